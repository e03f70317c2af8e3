"""Carries the connections of fednmf's sites to their hub in messages of Flower."""
