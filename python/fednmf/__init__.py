"""Nonnegative and Boolean matrix factorisation, X ~ W H, of arrays, AnnData and the data of several parties.

NMF, MiniBatchNMF   with the interface of scikit-learn; MiniBatchNMF reads batches of very many samples
IntegrativeNMF      components that several data sets share, and each one's own part, as online iNMF of LIGER
BooleanMF           factors of zeros and ones
tl.nmf, tl.project  factors of cells x genes in an AnnData, and weights of new cells for them
tl.choose_k         which number of components the data support
tl.cnmf             consensus programmes, as cNMF
tl.metaprograms     programmes that several samples have
pl.usage, ...       plots: embedding, top_features, images, choose_k, consensus
federated, methods  factors of the blocks of several parties, in this process; which methods there are
mpi                 starts the program on many cores or machines
"""

from . import pl, tl
from ._boolean import BooleanMF
from ._federated import Federated, federated
from ._fednmf import __version__
from ._integrative import IntegrativeNMF
from ._minibatch import MiniBatchNMF
from ._mpi import MpiRun, mpi
from ._nmf import NMF
from ._run import Method, methods

__all__ = [
    "NMF",
    "BooleanMF",
    "Federated",
    "IntegrativeNMF",
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
