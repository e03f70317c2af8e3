"""Properties that hold for every matrix and every parameter, on drawn ones.

FEDNMF_DRAWS=2000 FEDNMF_SEED=7 pytest python/tests/test_properties.py draws more, and others.
"""

import os
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import decomposition

from fednmf import NMF

DRAWS = int(os.environ.get("FEDNMF_DRAWS", "40"))
SEED = int(os.environ.get("FEDNMF_SEED", "0"))


def matrix(rng):
    """A small matrix: counts, planted, sparse, constant, low rank; with zero rows and columns; of any scale and type."""
    m, n = rng.integers(1, 25, 2)
    kind = rng.choice(["counts", "planted", "uniform", "sparse", "constant", "low rank", "blocks"])
    if kind == "counts":
        X = rng.poisson(rng.choice([0.5, 3.0, 50.0]), (m, n)).astype(float)
    elif kind == "planted":
        X = rng.gamma(0.5, 1, (m, 3)) @ rng.gamma(0.5, 1, (3, n)) + 0.1 * rng.random((m, n))
    elif kind == "sparse":
        X = rng.random((m, n)) * (rng.random((m, n)) < 0.2)
    elif kind == "constant":
        X = np.full((m, n), 3.0)
    elif kind == "low rank":
        X = rng.random((m, 2)) @ rng.random((2, n))
    elif kind == "blocks":
        X = (np.arange(m)[:, None] % 3 == np.arange(n) % 3).astype(float)
    else:
        X = rng.random((m, n))
    X[rng.random(m) < 0.1] = 0
    X[:, rng.random(n) < 0.1] = 0
    if not X.any():
        X[0, 0] = 1.0
    return X


def settings(rng, X):
    k = int(rng.integers(1, min(X.shape) + 3))
    inits = [None, "random"] + (["nndsvd", "nndsvda", "nndsvdar"] if k <= min(X.shape) else [])
    loss = str(rng.choice(["frobenius", "kullback-leibler"]))
    alphas = [(0, 0, 0), (0, 0, 0), (0.01, 0.01, 0.5), (0.05, 0, 1), (0, 0.05, 0), (0.001, 0.1, 1)][rng.integers(6)]
    return {
        "n_components": k,
        "init": inits[rng.integers(len(inits))],
        "beta_loss": loss,
        "solver": str(rng.choice(["auto", "cd"] if loss == "frobenius" else ["auto", "mu"])),
        "alpha_W": float(alphas[0]),
        "alpha_H": float(alphas[1]),
        "l1_ratio": float(alphas[2]),
        "random_state": int(rng.integers(1000)),
        "max_iter": 200,
    }


def form(rng, X):
    """X itself, or the same matrix in another form."""
    forms = [
        lambda: X,
        lambda: np.asfortranarray(X),
        lambda: sp.csr_matrix(X),
        lambda: sp.csc_matrix(X),
        lambda: sp.coo_array(X),
        lambda: X.astype(np.float32),
    ]
    return forms[rng.integers(len(forms))]()


def loss_of(X, W, H, beta_loss):
    F = W.astype(float) @ H.astype(float)
    if beta_loss == "frobenius":
        return 0.5 * ((X - F) ** 2).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(X > 0, X * np.log(X / F), 0.0) - X + F
    return terms.sum()


def objective(X, W, H, p):
    def penalty(F, alpha):
        return alpha * (p["l1_ratio"] * F.sum() + 0.5 * (1 - p["l1_ratio"]) * (F**2).sum())

    n, m = X.shape[1], X.shape[0]
    return loss_of(X, W, H, p["beta_loss"]) + penalty(W, p["alpha_W"] * n) + penalty(H, p["alpha_H"] * m)


@pytest.mark.parametrize("draw", range(DRAWS))
def test_whatever_is_drawn(draw):
    rng = np.random.default_rng([SEED, draw])
    X = matrix(rng)
    p = settings(rng, X)
    given = form(rng, X)
    about = f"draw {draw}: {X.shape} {type(given).__name__} {given.dtype} {p}"
    single = given.dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NMF(**p)
        W = model.fit_transform(given)
        H = model.components_
        assert np.isfinite(W).all() and np.isfinite(H).all() and (W >= 0).all() and (H >= 0).all(), about

        # The reported error is that of the factors.
        found = loss_of(X, W, H, p["beta_loss"])
        reported = 0.5 * model.reconstruction_err_**2
        tolerance = 1e-3 if single else 1e-6
        if np.isfinite(found):
            size = max(loss_of(X, 0 * W, H, "frobenius") if p["beta_loss"] == "frobenius" else X.sum(), 1e-300)
            assert found > -1e-9 * size and abs(reported - found) <= tolerance * (found + 1e-3 * size), about

        # A second look at the same data finds the same.
        np.testing.assert_allclose(model.transform(given), W, rtol=1e-5, atol=1e-6 * (W.max() or 1), err_msg=about)

        # Without penalties, the scale of the data does not matter.
        if not (p["alpha_W"] or p["alpha_H"] or single):
            exponent = int(rng.choice([-120, -40, 40, 120]))
            scaled = NMF(**p)
            V = scaled.fit_transform(given * 2.0**exponent)
            ratio = loss_of(X, V / 2.0**exponent if p["beta_loss"] == "frobenius" else V, scaled.components_, p["beta_loss"])
            if p["beta_loss"] != "frobenius":
                ratio = loss_of(X * 2.0**exponent, V, scaled.components_, p["beta_loss"]) / 2.0**exponent
            if np.isfinite(ratio) and np.isfinite(found):
                assert abs(ratio - found) <= 1e-2 * found + 1e-6 * size, f"{about} at 2^{exponent}: {ratio} {found}"

        # The objective is not above that of scikit-learn, in the best of a few starts: on matrices this small, one start may end
        # in another local minimum.
        if p["n_components"] <= min(X.shape) and np.isfinite(found) and p["init"] is None:
            q = {**p, "solver": "cd" if p["beta_loss"] == "frobenius" else "mu"}

            def best(kind, settings, data):
                starts = [(None, 0), ("random", 1), ("random", 2), ("random", 3), ("random", 4)]
                models = [kind(**{**settings, "init": init, "random_state": i}) for init, i in starts]
                return min(objective(X, fitted.fit_transform(data), fitted.components_, p) for fitted in models)

            ours, theirs = best(NMF, p, given), best(decomposition.NMF, q, X)
            assert not np.isfinite(theirs) or ours <= 1.02 * theirs + 1e-3 * size, f"{about}: {ours} {theirs}"
