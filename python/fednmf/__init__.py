"""Nonnegative and Boolean matrix factorisation of arrays in memory."""

from . import pl, tl
from ._boolean import BooleanMF
from ._federated import Federated, federated
from ._fednmf import __version__
from ._minibatch import MiniBatchNMF
from ._mpi import MpiRun, mpi
from ._nmf import NMF
from ._run import Method, methods

__all__ = [
    "NMF",
    "BooleanMF",
    "Federated",
    "Method",
    "MiniBatchNMF",
    "MpiRun",
    "__version__",
    "federated",
    "methods",
    "mpi",
    "pl",
    "tl",
]
