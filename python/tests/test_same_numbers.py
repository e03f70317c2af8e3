"""Kinds of inputs that gave other programs, or this one, wrong numbers."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn import decomposition
from sklearn.datasets import load_digits

import fednmf
from fednmf import NMF, BooleanMF

LOSSES = ("frobenius", "kullback-leibler")


def counts(seed=0, shape=(50, 20)):
    return np.random.default_rng(seed).poisson(2.0, shape).astype(float)


def forms(X):
    """The same matrix in the forms in which SciPy and NumPy may hold it."""
    csr = sp.csr_matrix(X)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(csr.indptr))
    twice = np.argsort(np.r_[rows, rows], kind="stable")
    starts = np.r_[0, 2 * csr.indptr[1:]]
    halves = sp.csr_matrix((np.r_[csr.data / 2, csr.data / 2][twice], np.r_[csr.indices, csr.indices][twice], starts), X.shape)
    backwards = csr.copy()
    for a, b in zip(csr.indptr, csr.indptr[1:]):
        backwards.indices[a:b], backwards.data[a:b] = csr.indices[a:b][::-1].copy(), csr.data[a:b][::-1].copy()
    backwards.has_sorted_indices = backwards.has_canonical_format = True  # As it was before its arrays changed.
    zeros = sp.csr_matrix((X.ravel(), np.tile(np.arange(X.shape[1]), len(X)), np.arange(0, X.size + 1, X.shape[1])), X.shape)
    wide = csr.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    padded = np.zeros((2 * X.shape[0], 2 * X.shape[1]))
    padded[::2, ::2] = X
    return {
        "csr": csr,
        "csc": csr.tocsc(),
        "coo": csr.tocoo(),
        "array": sp.csr_array(csr),
        "duplicates": halves,
        "unsorted": backwards,
        "explicit zeros": zeros,
        "int64 indices": wide,
        "Fortran order": np.asfortranarray(X),
        "strided": padded[::2, ::2],
        "big-endian": X.astype(">f8"),
        "integers": X.astype(int),
    }


@pytest.mark.parametrize("loss", LOSSES)
def test_every_form_of_a_matrix_has_the_same_numbers(loss):
    X = counts()
    # Sparse and dense matrices may be given other steps, by their cost.
    references = []
    for form in (X, sp.csr_matrix(X)):
        model = NMF(3, beta_loss=loss, random_state=0, max_iter=50, tol=0)
        references.append((model, model.fit_transform(form)))
    errors = [model.reconstruction_err_ for model, _ in references]
    np.testing.assert_allclose(*errors, rtol=1e-3)
    for name, form in forms(X).items():
        before = form.copy()
        model, W = references[sp.issparse(form)]
        other = NMF(3, beta_loss=loss, random_state=0, max_iter=50, tol=0)
        found = other.fit_transform(form)
        np.testing.assert_allclose(found, W, rtol=1e-6, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(other.reconstruction_err_, model.reconstruction_err_, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(model.transform(form), W, rtol=1e-6, atol=1e-9, err_msg=name)
        assert abs(form - before).sum() == 0, f"{name}: the input was changed"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("init", [None, "random", "nndsvd", "nndsvda", "nndsvdar"])
def test_scaling_the_data_scales_the_answer(loss, init):
    X = counts(1, (30, 18))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (NMF(4, beta_loss=loss, init=init, random_state=0).fit(X * c) for c in (1.0, 2.0**40))
    power = 40 if loss == "frobenius" else 20
    np.testing.assert_allclose(other.reconstruction_err_, one.reconstruction_err_ * 2.0**power, rtol=1e-3)
    assert abs(other.n_iter_ - one.n_iter_) <= 10


def test_the_divergence_of_large_counts_is_near_the_optimum():
    rng = np.random.default_rng(0)
    rate = rng.gamma(1, 1, (60, 5)) @ rng.gamma(0.5, 1, (5, 300))
    X = rng.poisson(rate / rate.mean() * 1e4).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = NMF(5, beta_loss=1, random_state=0, max_iter=1000).fit(X)
        theirs = decomposition.NMF(5, beta_loss=1, solver="mu", init="random", random_state=0, max_iter=1000).fit(X)
    assert ours.reconstruction_err_**2 < 1.02 * theirs.reconstruction_err_**2


def objective(X, W, H, alpha_W, alpha_H, l1_ratio):
    def penalty(F, alpha):
        return alpha * (l1_ratio * F.sum() + 0.5 * (1 - l1_ratio) * (F**2).sum())

    return 0.5 * ((X - W @ H) ** 2).sum() + penalty(W, alpha_W * X.shape[1]) + penalty(H, alpha_H * X.shape[0])


@pytest.mark.parametrize("solver", ["auto", "cd"])
@pytest.mark.parametrize("alphas", [(0.01, 0.01, 1.0), (0.1, 0.0, 1.0), (0.0, 0.1, 1.0), (0.05, 0.01, 0.5), (0.2, 0.0, 0.0)])
def test_penalised_objectives_are_not_above_those_of_scikit_learn(solver, alphas):
    rng = np.random.default_rng(0)
    planted = rng.random((200, 6)) @ rng.random((6, 80)) + 0.1 * rng.random((200, 80))
    for X, k in ((planted, 6), (load_digits().data[:400], 10)):
        alpha_W, alpha_H, l1_ratio = alphas
        settings = dict(alpha_W=alpha_W, alpha_H=alpha_H, l1_ratio=l1_ratio, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = []
            for model in (NMF(k, solver=solver, **settings), decomposition.NMF(k, **settings)):
                W = model.fit_transform(X)
                found.append(objective(X, W, model.components_, *alphas))
        assert found[0] <= 1.02 * found[1], found


def test_no_nan_where_a_column_was_never_seen():
    X, Y = counts(2, (40, 8)), counts(3, (10, 8))
    X[:, 4], Y[:, 4] = 0, 9
    for loss in LOSSES:
        W = NMF(2, beta_loss=loss, random_state=0, max_iter=300).fit(X).transform(Y)
        assert np.isfinite(W).all() and (W >= 0).all()


@pytest.mark.parametrize("scales", [(1, 1, 1, 1), (1, 1, 1e-8, 1e-8), (1e-150, 1, 1e8, 1e140)])
def test_least_squares_are_those_of_scipy(scales):
    rng = np.random.default_rng(4)
    H = np.zeros((4, 40))
    for i, scale in enumerate(scales):
        H[i, 10 * i : 10 * i + 10] = (rng.random(10) + 0.1) * scale
    W = rng.random((60, 4))
    model = NMF(4, random_state=0).fit(rng.random((60, 40)))
    model.components_ = H
    np.testing.assert_allclose(model.transform(W @ H), W, rtol=1e-9, atol=1e-12)


def test_singular_least_squares_are_as_good_as_those_of_scipy():
    rng = np.random.default_rng(5)
    H = rng.random((3, 30))
    model = NMF(6, random_state=0).fit(rng.random((40, 30)))
    model.components_ = np.vstack([H, H[:2], H.sum(axis=0, keepdims=True)])
    X = rng.random((25, 30))
    W = model.transform(X)
    found = np.linalg.norm(X - W @ model.components_, axis=1)
    best = np.array([nnls(model.components_.T, x)[1] for x in X])
    assert (found <= best * (1 + 1e-9)).all() and (W >= 0).all()


def test_nearly_equal_components_have_finite_weights_in_single_precision():
    X = np.full((21, 18), 3.0, dtype=np.float32)
    X[[3, 8, 18]] = 0
    X[:, [16]] = 0
    model = NMF(17, init="nndsvd", random_state=783)
    W = model.fit_transform(X)
    assert W.dtype == np.float32 and np.isfinite(W).all()
    np.testing.assert_allclose(W @ model.components_, X, atol=1e-2)


def test_projected_cells_are_those_of_the_run():
    anndata = pytest.importorskip("anndata")
    X = counts(6, (80, 20)).astype("f4")
    for settings in ({}, {"alpha_W": 0.5}, {"alpha_W": 0.1, "alpha_H": 0.0, "l1_ratio": 1.0}, {"beta_loss": 1, "alpha_W": 0.1}):
        adata = anndata.AnnData(X, var={"g": range(20)})
        fednmf.tl.nmf(adata, 3, **settings)
        again = anndata.AnnData(X, var={"g": range(20)})
        fednmf.tl.project(again, adata)
        np.testing.assert_allclose(again.obsm["X_nmf"], adata.obsm["X_nmf"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", ["felb", "felb-mu", "elbmf", "zhang", "asso", "grecond", "mebf"])
def test_identical_rows_are_exact_in_every_boolean_method(algo):
    for seed in range(5):
        row = np.random.default_rng(seed).random((1, 20)) < 0.5
        for X in (np.tile(row, (30, 1)), np.tile(row, (30, 1)).T):
            model = BooleanMF(3, algo=algo, random_state=seed)
            assert (model.inverse_transform(model.fit_transform(X)) == X).all()


def test_what_does_not_fit_into_memory_is_a_memory_error():
    X = sp.random(300, 200_000, 1e-4, format="csr", random_state=0)
    with pytest.raises(MemoryError, match="fewer components"):
        NMF().fit(X)


def test_least_squares_near_the_rank_take_no_longer_than_some_iterations():
    X = load_digits().data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NMF(64, max_iter=50, random_state=0).fit(X)
    start = time.perf_counter()
    model.transform(X)
    assert time.perf_counter() - start < 5
