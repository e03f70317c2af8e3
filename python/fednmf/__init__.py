"""Nonnegative and Boolean matrix factorisation of arrays in memory."""

from . import tl
from ._boolean import BooleanMF
from ._federated import Federated, federated
from ._fednmf import __version__
from ._nmf import NMF
from ._run import Method, methods

__all__ = ["NMF", "BooleanMF", "Federated", "Method", "__version__", "federated", "methods", "tl"]
