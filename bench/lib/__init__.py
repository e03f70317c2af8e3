"""Helpers of the benchmark commands; most need the standard library only."""
