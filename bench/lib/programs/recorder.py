"""What the scripts here share: arguments, the matrix, the clock and the history.

Each script factorises a matrix with another program and prints `iteration seconds error` at each evaluation. It ends
after the given iterations or seconds, whichever comes first, and writes its last factors:

    run_PROGRAM.py MATRIX K ITERATIONS SECONDS METHOD PRECISION SEED THREADS FACTORS LOSS

LOSS is frobenius, whose error is the relative error, or kl, whose error is the Kullback-Leibler divergence.

The clock starts when the program gets the matrix in memory, so that its start counts, and stops during evaluations.
"""

import sys
import time
from types import SimpleNamespace

import numpy as np

NAMES = "matrix k iterations seconds method precision seed threads factors loss".split()
INTEGERS = ("k", "iterations", "seed", "threads")
# A run is evaluated at least so often, if its iterations are not longer.
EVALUATIONS = 60
# Entries of the product that an evaluation of a divergence forms at once.
BLOCK = 4_000_000


class Finished(Exception):
    """Raised by `record` when the time is over."""


def arguments():
    """Returns the arguments of the script by name."""
    given = SimpleNamespace(**dict(zip(NAMES, sys.argv[1:], strict=True)))
    for name in INTEGERS:
        setattr(given, name, int(getattr(given, name)))
    given.seconds = float(given.seconds)
    given.dtype = {"f32": np.float32, "f64": np.float64}[given.precision]
    return given


def load(given, dense=False):
    """Returns the matrix: a SciPy CSR matrix from .npz, or an array from .npy or on request."""
    if not given.matrix.endswith(".npz"):
        return np.load(given.matrix).astype(given.dtype, copy=False)
    import scipy.sparse as sp

    x = sp.load_npz(given.matrix).tocsr().astype(given.dtype)
    return x.toarray() if dense else x


class Recorder:
    """The clock and the history of a run on the matrix `x`, or with a sum over ranks on this rank's rows of it."""

    def __init__(self, x, given, sum_over_ranks=lambda value: value, is_root=True):
        self.x, self.given, self.sum, self.is_root = x, given, sum_over_ranks, is_root
        self.seconds, self.iteration, self.since = 0.0, 0, None
        self.evaluated = 0.0
        values = x.ravel() if isinstance(x, np.ndarray) else x.data
        self.norm2 = self.sum(float(np.dot(values, values.astype(float))))

    def start(self):
        if self.since is None:
            self.since = time.perf_counter()

    def stop(self):
        self.seconds += time.perf_counter() - self.since
        self.since = None

    def record(self, w, h, iterations=1):
        """Counts iterations that ended with X ≈ w h; evaluates if it is time to.

        # Raises

        `Finished` after the last iteration or the last second; the factors are written then.
        """
        self.iteration += iterations
        self.stop()
        # All ranks must agree on the end.
        seconds = self.sum(self.seconds if self.is_root else 0.0)
        last = self.iteration >= self.given.iterations or seconds >= self.given.seconds
        if last or self.iteration <= 5 or seconds - self.evaluated >= self.given.seconds / EVALUATIONS:
            self.evaluated = seconds
            w, h = np.asarray(w), np.asarray(h)
            error = self.divergence(w, h) if self.given.loss == "kl" else self.relative_error(w, h)
            if self.is_root:
                print(self.iteration, f"{seconds:.6f}", f"{error:.8f}", flush=True)
        if last:
            self.save(w, h)
            raise Finished
        self.start()

    def relative_error(self, w, h):
        inner = float(np.einsum("ij,ij->", self.x @ np.ascontiguousarray(h.T), w, dtype=float))
        gram = self.sum((w.T @ w).astype(float))
        residual = self.norm2 - 2 * self.sum(inner) + (gram * (h @ h.T)).sum()
        return np.sqrt(max(residual, 0.0) / self.norm2)

    def divergence(self, w, h):
        """The sum of x ln(x / y) - x + y over all entries, of which the first two terms vanish where x does."""
        total = self.sum(float(w.sum(axis=0, dtype=float) @ h.sum(axis=1, dtype=float)))
        step = max(1, BLOCK // h.shape[1])
        for first in range(0, self.x.shape[0], step):
            rows = self.x[first : first + step]
            found = rows.nonzero()
            x = np.asarray(rows[found], dtype=float).ravel()
            y = (w[first : first + step] @ h)[found].astype(float)
            total += self.sum(float(x @ np.log(x / y) - x.sum()))
        return total

    def save(self, w, h):
        """Writes w and h' as U and V; with several ranks each writes its own rows."""
        np.savez(self.given.factors, U=w, V=np.asarray(h).T)
