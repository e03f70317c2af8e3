"""Runs scikit-learn's NMF and prints `iteration seconds error` after each iteration.

    sklearn_history.py MATRIX K ITERATIONS cd|mu f32|f64 SEED

Wraps the functions that update a factor. The clock starts with the fit, so that the start counts, and stops while the error is
computed.
"""

import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF, _nmf


class Recorder:
    def __init__(self, x):
        self.x, self.seconds, self.iteration, self.since = x, 0.0, 0, None
        values = (x.data if sp.issparse(x) else x).ravel()
        self.norm2 = float(np.dot(values, values.astype(float)))

    def start(self):
        if self.since is None:
            self.since = time.perf_counter()

    def record(self, w, h):
        """Records an iteration that ended with X ≈ w h."""
        self.seconds += time.perf_counter() - self.since
        self.iteration += 1
        xh = self.x @ np.ascontiguousarray(h.T)
        gram = (w.T @ w).astype(float)
        residual = self.norm2 - 2 * np.einsum("ij,ij->", xh, w, dtype=float) + (gram * (h @ h.T)).sum()
        error = np.sqrt(max(residual, 0.0) / self.norm2)
        print(self.iteration, f"{self.seconds:.6f}", f"{error:.8f}", flush=True)
        self.since = time.perf_counter()


def main():
    path, k, iterations, solver, precision, seed = sys.argv[1:]
    x = sp.load_npz(path).tocsr() if path.endswith(".npz") else np.load(path)
    recorder = Recorder(x.astype({"f32": np.float32, "f64": np.float64}[precision]))
    if solver == "cd":
        update, calls = _nmf._update_coordinate_descent, [0]

        def update_factor(matrix, factor, other, *rest, **named):
            recorder.start()
            result = update(matrix, factor, other, *rest, **named)
            calls[0] += 1
            if calls[0] % 2 == 0:  # the second call of an iteration has the transposed matrix
                recorder.record(other, factor.T)
            return result

        _nmf._update_coordinate_descent = update_factor
    else:
        multiply_w, multiply_h = _nmf._multiplicative_update_w, _nmf._multiplicative_update_h

        def update_w(*rest, **named):
            recorder.start()
            return multiply_w(*rest, **named)

        def update_h(matrix, w, *rest, **named):
            h = multiply_h(matrix, w, *rest, **named)
            recorder.record(w, h)
            return h

        _nmf._multiplicative_update_w, _nmf._multiplicative_update_h = update_w, update_h
    warnings.simplefilter("ignore")  # it warns that it has not converged
    # Its own default start, whose time counts.
    model = NMF(int(k), solver=solver, max_iter=int(iterations), tol=0, random_state=int(seed))
    recorder.start()
    model.fit(recorder.x)


if __name__ == "__main__":
    main()
