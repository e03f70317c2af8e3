"""scikit-learn's NMF with its course: `sklearn_course.py MATRIX K ITERATIONS cd|mu f32|f64 SEED` prints a line
`iteration seconds error` after each iteration. Wraps the functions that update a factor from outside; the clock stands
still while the error is computed."""
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF, _nmf


class Course:
    def __init__(self, x):
        self.x, self.seconds, self.iteration, self.since = x, 0.0, 0, None
        values = (x.data if sp.issparse(x) else x).ravel()
        self.norm2 = float(np.dot(values, values.astype(float)))

    def begin(self):
        if self.since is None:
            self.since = time.perf_counter()

    def end(self, w, h):
        """After an iteration, with X ≈ w·h."""
        self.seconds += time.perf_counter() - self.since
        self.iteration += 1
        xh = self.x @ np.ascontiguousarray(h.T)
        gram = (w.T @ w).astype(float)
        left = self.norm2 - 2 * np.einsum("ij,ij->", xh, w, dtype=float) + (gram * (h @ h.T)).sum()
        print(self.iteration, f"{self.seconds:.6f}", f"{np.sqrt(max(left, 0.0) / self.norm2):.8f}", flush=True)
        self.since = time.perf_counter()


def main():
    path, k, iterations, solver, precision, seed = sys.argv[1:7]
    x = sp.load_npz(path).tocsr() if path.endswith(".npz") else np.load(path)
    course = Course(x.astype({"f32": np.float32, "f64": np.float64}[precision]))
    if solver == "cd":
        update, calls = _nmf._update_coordinate_descent, [0]

        def half(matrix, factor, other, *rest, **named):
            course.begin()
            result = update(matrix, factor, other, *rest, **named)
            calls[0] += 1
            if calls[0] % 2 == 0:  # the second half has the transposed matrix
                course.end(other, factor.T)
            return result

        _nmf._update_coordinate_descent = half
    else:
        update_w, update_h = _nmf._multiplicative_update_w, _nmf._multiplicative_update_h

        def first(*rest, **named):
            course.begin()
            return update_w(*rest, **named)

        def second(matrix, w, *rest, **named):
            h = update_h(matrix, w, *rest, **named)
            course.end(w, h)
            return h

        _nmf._multiplicative_update_w, _nmf._multiplicative_update_h = first, second
    warnings.simplefilter("ignore")  # that it did not converge
    NMF(int(k), init="random", solver=solver, max_iter=int(iterations), tol=0, random_state=int(seed)).fit(course.x)


if __name__ == "__main__":
    main()
