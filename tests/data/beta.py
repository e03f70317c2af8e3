"""Writes beta.json: iterates of scikit-learn's multiplicative updates for β-divergences, for the tests of beta-mu."""
import json
import sys

import numpy as np
import scipy.sparse
from sklearn.decomposition import non_negative_factorization

M, N, K, ITERATIONS = 7, 6, 2, 25


def entries(rows, cols, a, b):
    return np.array([[1 + (a * i + b * j + i * j) % 11 for j in range(cols)] for i in range(rows)], dtype=float)


def case(beta, zeros, alpha_w=0.0, alpha_h=0.0, l1_ratio=0.0):
    x = entries(M, N, 7, 3)
    if zeros:
        x[(np.arange(M)[:, None] + 2 * np.arange(N)) % 3 == 0] = 0
    u, v = entries(M, K, 3, 5) / 4, entries(N, K, 2, 7) / 5
    found = []
    # Sparse data take other paths there.
    for data in [x, scipy.sparse.csr_matrix(x)] if zeros else [x]:
        w, h, _ = non_negative_factorization(
            data, W=u.copy(), H=np.ascontiguousarray(v.T), n_components=K, init="custom", solver="mu", beta_loss=beta,
            tol=0, max_iter=ITERATIONS, alpha_W=alpha_w, alpha_H=alpha_h, l1_ratio=l1_ratio,
        )
        found.append((w, h.T))
    assert all(np.allclose(found[0][i], f[i], rtol=1e-11) for f in found for i in range(2))
    w, v_end = found[0]
    return {
        "beta": beta, "x": x.ravel().tolist(), "u": u.ravel().tolist(), "v": v.ravel().tolist(), "alpha_u": alpha_w,
        "alpha_v": alpha_h, "l1_ratio": l1_ratio, "iterations": ITERATIONS, "shape": [M, N, K],
        "u_end": w.ravel().tolist(), "v_end": v_end.ravel().tolist(),
    }


cases = [case(beta, beta > 0 and zeros) for beta in [-1, 0, 0.5, 1, 1.5, 2, 2.5, 4] for zeros in [False, True][: 1 + (beta > 0)]]
cases += [case(beta, False, 0.05, 0.02, 0.4) for beta in [0, 0.5, 1.5, 2, 3]]
json.dump(cases, sys.stdout)
print()
