"""Runs pyDNMFk on MPI ranks with its default start; METHOD is hals or mu, for the Frobenius norm. See recorder.py.

Each rank has a block of rows of the dense matrix: pyDNMFk has no sparse ones. Rank r writes its rows of the factors to
FACTORS.r.npz.
"""

import contextlib
from types import SimpleNamespace

import numpy as np
import pyDNMFk.config as config

config.init(0)

from mpi4py import MPI
from pyDNMFk import pyDNMF
from pyDNMFk.dist_comm import MPI_comm
from recorder import Finished, Recorder, arguments, load


def main():
    given, world = arguments(), MPI.COMM_WORLD
    rank, ranks = world.rank, world.size
    given.factors += f".{rank}"
    x = load(given, dense=True)
    first, last = (r * (x.shape[0] // ranks) + min(r, x.shape[0] % ranks) for r in (rank, rank + 1))
    x = np.ascontiguousarray(x[first:last])
    recorder = Recorder(x, given, world.allreduce, rank == 0)
    update = pyDNMF.nmf_algorithms_1D.update

    def recorded_update(self):
        w, h = update(self)
        recorder.record(w, h)
        return w, h

    pyDNMF.nmf_algorithms_1D.update = recorded_update
    grid = MPI_comm(world, ranks, 1)
    options = SimpleNamespace(
        p_r=ranks,
        p_c=1,
        k=given.k,
        init="rand",
        itr=given.iterations,
        norm="fro",
        method=given.method,
        verbose=False,
        prune=False,
        rank=rank,
        comm1=grid.comm,
        comm=grid,
        col_comm=grid.cart_1d_column(),
        row_comm=grid.cart_1d_row(),
    )
    np.random.seed(1000 * given.seed + rank)
    world.barrier()
    recorder.start()
    with contextlib.suppress(Finished):
        pyDNMF.PyNMF(x, params=options).fit()


if __name__ == "__main__":
    main()
