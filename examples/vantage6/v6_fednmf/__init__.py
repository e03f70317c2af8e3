"""Nonnegative matrix factorisation between the nodes of vantage6."""

from .central import metaprograms, together
from .partial import join, release

__all__ = ["join", "metaprograms", "release", "together"]
