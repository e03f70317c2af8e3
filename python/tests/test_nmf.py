"""fednmf.NMF: scikit-learn's contract, and its objective beside scikit-learn's."""

import multiprocessing
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF as SklearnNMF
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fednmf import NMF

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(1)
    return rng.random((60, 4)) @ rng.random((4, 30))


@parametrize_with_checks(
    [NMF(), NMF(n_components=2, solver="cd"), NMF(n_components=2, beta_loss="kullback-leibler"), NMF(n_components=2, beta_loss=1.5)]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("k", [10, 20, 40])
def test_the_objective_on_digits_is_below_that_of_scikit_learn(digits, k):
    theirs = SklearnNMF(k, random_state=0).fit(digits)
    ours = NMF(k, random_state=0).fit(digits)
    assert ours.reconstruction_err_ < theirs.reconstruction_err_
    # The same method from a start that differs a little: NNDSVDa puts other numbers in place of zeros.
    ours = NMF(k, solver="cd", random_state=0).fit(digits)
    assert ours.reconstruction_err_ < theirs.reconstruction_err_ * 1.02


@pytest.mark.parametrize("k", [10, 20])
def test_the_divergence_on_digits_is_at_most_that_of_scikit_learn(digits, k):
    theirs = SklearnNMF(k, init="nndsvda", solver="mu", beta_loss="kullback-leibler", random_state=0).fit(digits)
    ours = NMF(k, beta_loss="kullback-leibler", random_state=0).fit(digits)
    assert ours.reconstruction_err_ <= theirs.reconstruction_err_
    assert NMF(k, beta_loss=1, init="random", random_state=0).fit(digits).reconstruction_err_ != ours.reconstruction_err_


@pytest.mark.parametrize("loss", ["itakura-saito", -1.0, 0.5])
def test_the_error_of_quiet_rows_counts(loss):
    X = np.array([[1e4, 2e4, 3e4], [1e-6, 2e-6, 3e-6]])
    model = NMF(1, beta_loss=loss, random_state=0)
    np.testing.assert_allclose(model.fit_transform(X) @ model.components_, X, rtol=1e-6)
    assert model.reconstruction_err_ < 1e-3


@pytest.mark.parametrize("solver", ["auto", "mu"])
@pytest.mark.parametrize("loss", ["itakura-saito", 0.5, "kullback-leibler", 1.5, 3])
def test_every_loss_is_at_most_that_of_the_best_start_of_scikit_learn(digits, loss, solver):
    X = digits[:300] + (0.5 if loss == "itakura-saito" else 0.0)
    settings = dict(n_components=8, beta_loss=loss, max_iter=400)
    starts = [("nndsvda", 0), ("random", 1), ("random", 2)]
    theirs = [SklearnNMF(solver="mu", init=init, random_state=seed, **settings).fit(X) for init, seed in starts]
    models = [NMF(solver=solver, init=init, random_state=seed, **settings) for init, seed in starts]
    if solver == "auto":  # From its own start.
        models = [NMF(random_state=0, **settings)]
    results = [(model.fit_transform(X), model) for model in models]
    W, ours = min(results, key=lambda result: result[1].reconstruction_err_)
    # The root of twice the divergence.
    assert ours.reconstruction_err_ <= 1.01 * min(model.reconstruction_err_ for model in theirs)
    assert (W >= 0).all() and (ours.components_ >= 0).all() and ours.transform(X[:5]).shape == (5, 8)


@pytest.mark.parametrize("loss", [0, 0.5, 1, 1.5, 3])
def test_the_scale_of_the_data_is_that_of_the_loss(planted, loss):
    settings = dict(n_components=3, solver="mu", init="random", beta_loss=loss, max_iter=20, tol=0, random_state=0)
    # Of powers of two, so that the iterations have the same bits. The error is the root of twice the divergence.
    error = NMF(**settings).fit(planted).reconstruction_err_
    for exponent in (-60, 60):
        found = NMF(**settings).fit(planted * 2.0**exponent).reconstruction_err_
        np.testing.assert_allclose(found / 2.0 ** (exponent * loss / 2), error, rtol=1e-6)


def test_a_loss_that_zeros_make_infinite_is_refused(digits):
    with pytest.raises(ValueError, match="zero"):
        NMF(3, beta_loss="itakura-saito").fit(digits)


@pytest.mark.parametrize("solver", ["auto", "cd", "mu"])
def test_a_planted_factorisation_is_found(planted, solver):
    model = NMF(4, solver=solver, tol=0, max_iter=2000, random_state=0)
    W = model.fit_transform(planted)
    assert (W >= 0).all() and (model.components_ >= 0).all()
    error = np.linalg.norm(planted - W @ model.components_)
    assert error < 0.02 * np.linalg.norm(planted)
    assert model.reconstruction_err_ == pytest.approx(error)
    np.testing.assert_array_equal(model.inverse_transform(W), W @ model.components_)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_transform_takes_few_components_on_request(loss):
    rng = np.random.default_rng(2)
    H = rng.dirichlet(np.full(60, 0.2), 8)
    W = np.where(rng.random((30, 8)) < 0.4, 500 * rng.random((30, 8)) + 200, 0)
    X = rng.poisson(W @ H).astype(float)
    model = NMF(n_components=8, beta_loss=loss, max_iter=1).fit(X)
    model.components_ = H
    few, exact = model.transform(X, min_gain=0.01), model.transform(X)
    assert (few > 0).sum() < (exact > 0).sum()
    assert ((few > 0) == (W > 0)).mean() > 0.95 > ((exact > 0) == (W > 0)).mean()
    with pytest.raises(ValueError, match="min_gain"):
        model.transform(X, min_gain=-1)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, np.asfortranarray])
def test_the_form_of_the_matrix_does_not_matter(planted, form, loss):
    X = np.where(planted > 1, planted, 0)
    model, other = (NMF(3, beta_loss=loss, random_state=0, tol=1e-6, max_iter=2000) for _ in range(2))
    W, W_other = model.fit_transform(X), other.fit_transform(form(X))
    np.testing.assert_allclose(W @ model.components_, W_other @ other.components_, rtol=0.02, atol=0.02)
    assert other.reconstruction_err_ == pytest.approx(model.reconstruction_err_, rel=1e-3)
    np.testing.assert_allclose(model.transform(form(X)), model.transform(X), rtol=1e-3, atol=1e-6)


def test_the_form_is_not_changed(planted):
    X = sp.csr_matrix(planted)
    X.data[::3] = 0
    before = X.copy()
    NMF(3, random_state=0).fit(X)
    assert X.nnz == before.nnz and (X.data == before.data).all()


@pytest.mark.parametrize("form", [np.array, sp.csr_matrix])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_float32_stays_float32(planted, form, loss):
    X = form(planted.astype(np.float32))
    model = NMF(3, beta_loss=loss, random_state=0)
    W = model.fit_transform(X)
    assert {W.dtype, model.components_.dtype, model.transform(X).dtype} == {np.dtype(np.float32)}
    assert model.inverse_transform(W).dtype == np.float32


def test_transform_is_the_exact_least_squares_solution(planted):
    from scipy.optimize import nnls

    model = NMF(4, random_state=0).fit(planted[:40])
    W = model.transform(planted[40:])
    exact = np.array([nnls(model.components_.T, row)[0] for row in planted[40:]])
    np.testing.assert_allclose(W, exact, atol=1e-8)
    np.testing.assert_allclose(model.fit_transform(planted), model.transform(planted))


PENALTIES = [
    {"alpha_W": 0.01},
    {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": 1},
    {"alpha_W": 0.02, "alpha_H": 0.005, "l1_ratio": 0.5},
]


def objective(X, W, H, *, alpha_W, alpha_H="same", l1_ratio=0, divergence=False):
    alpha_H = alpha_W if alpha_H == "same" else alpha_H
    fit = W @ H
    if divergence:
        loss = (X * np.log(X / fit) - X + fit).sum()
    else:
        loss = ((X - fit) ** 2).sum() / 2
    penalty = [l1_ratio * A.sum() + (1 - l1_ratio) * (A**2).sum() / 2 for A in (W, H)]
    return loss + alpha_W * X.shape[1] * penalty[0] + alpha_H * X.shape[0] * penalty[1]


@pytest.mark.parametrize("penalties", PENALTIES)
@pytest.mark.parametrize("solver, loss", [("cd", 2), ("mu", 2), ("mu", 1), ("auto", 2)])
def test_the_penalised_minimum_is_that_of_scikit_learn(planted, penalties, solver, loss):
    # From the minimum of scikit-learn on, so that all come to the same one.
    settings = dict(n_components=3, init="custom", beta_loss=loss, tol=0, max_iter=4000, **penalties)
    X = planted + 0.01
    rng = np.random.default_rng(5)
    W, H = rng.random((60, 3)), rng.random((3, 30))
    model = SklearnNMF(solver="cd" if solver == "auto" else solver, **settings)
    theirs = (model.fit_transform(X, W=W, H=H), model.components_)
    start = [1.05 * factor for factor in theirs]
    ours = NMF(solver=solver, **settings)
    W = ours.fit_transform(X, W=start[0], H=start[1])
    mine, other = (objective(X, *f, **penalties, divergence=loss == 1) for f in ((W, ours.components_), theirs))
    # Where H has lost a component scikit-learn keeps that of W, which its penalty then counts.
    assert 0.98 * other < mine < other * (1 + 1e-4)
    np.testing.assert_allclose(W @ ours.components_, theirs[0] @ theirs[1], rtol=0.02, atol=0.01)
    np.testing.assert_allclose(ours.transform(X), W)
    if loss == 2:  # for the divergence, scikit-learn's transform adds its L1 penalty again in each iteration
        again = model.transform(X) @ theirs[1]
        np.testing.assert_allclose(W @ ours.components_, again, rtol=0.02, atol=0.01)


def test_penalties_make_factors_small(planted):
    plain, zero = NMF(3, random_state=0).fit(planted), NMF(3, random_state=0, l1_ratio=0.5).fit(planted)
    np.testing.assert_array_equal(plain.components_, zero.components_)
    models = [NMF(3, random_state=0, alpha_W=a) for a in (1e-4, 1e-2, 0.1, 1e6)]
    sizes = [np.linalg.norm(model.fit_transform(planted) @ model.components_) for model in models]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 1e-6


@pytest.mark.parametrize("form", [np.array, sp.csr_matrix])
def test_transform_minimises_the_divergence(planted, form):
    X = np.where(planted > 0.8, planted, 0)
    model = NMF(4, beta_loss="kullback-leibler", random_state=0, tol=1e-6, max_iter=3000)
    W = model.fit_transform(X)
    new = model.transform(form(X))

    def divergence(W):
        product = W @ model.components_
        return product.sum() - (X[X > 0] * np.log(product[X > 0])).sum()

    # W may be a little off the minimum; the projection is not.
    assert divergence(new) <= divergence(W) + 1e-6 * abs(divergence(W))


def test_a_given_start_is_used_and_keeps_its_order(planted):
    rng = np.random.default_rng(3)
    W, H = rng.random((60, 4)), rng.random((4, 30))
    good = NMF(4, tol=0, max_iter=500, random_state=0)
    U = good.fit_transform(planted)
    order = [2, 0, 3, 1]
    for solver in ("auto", "cd", "mu"):
        model = NMF(4, init="custom", solver=solver, tol=0, max_iter=1)
        model.fit(planted, W=U[:, order], H=good.components_[order])
        assert model.reconstruction_err_ <= good.reconstruction_err_ * 1.05 + 1e-6
        np.testing.assert_allclose(model.components_, good.components_[order], rtol=0.2, atol=0.05)
    first, second = (NMF(init="custom", max_iter=3, random_state=seed).fit(planted, W=W, H=H) for seed in (0, 1))
    np.testing.assert_array_equal(first.components_, second.components_)
    assert first.n_components_ == 4
    with pytest.raises(ValueError, match="W is 4 x 60, but must be 60 x 4"):
        model.fit(planted, W=W.T, H=H)
    with pytest.raises(ValueError, match="needs W and H"):
        model.fit(planted)
    with pytest.warns(RuntimeWarning, match="init='custom' only"):
        NMF(4, random_state=0).fit(planted, W=W, H=H)


def test_the_seed_decides_and_threads_do_not(planted):
    def fit(seed, jobs):
        return NMF(4, init="random", random_state=seed, n_jobs=jobs).fit(planted).components_

    np.testing.assert_array_equal(fit(1, 1), fit(1, 1))
    np.testing.assert_allclose(fit(1, 1), fit(1, 2), rtol=1e-6)
    assert not np.allclose(fit(1, 1), fit(2, 1))


def test_more_components_than_features(planted):
    model = NMF(40, solver="cd", random_state=0)
    assert model.fit_transform(planted).shape == (60, 40)
    with pytest.raises(ValueError, match="n_components <= 30"):
        NMF(40, init="nndsvd").fit(planted)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"alpha_W": -0.1}, "alpha_W=-0.1: must be a finite number, at least 0"),
        ({"alpha_H": "some"}, "alpha_H='some': must be a finite number, at least 0"),
        ({"l1_ratio": 1.5}, "l1_ratio=1.5: must be a number from 0 to 1"),
        ({"init": "nndsvdx"}, "init='nndsvdx': must be"),
        ({"solver": "hals"}, "solver='hals': must be"),
        ({"solver": "cd", "beta_loss": "kullback-leibler"}, "use 'mu' or 'auto'"),
        ({"beta_loss": "hinge"}, "beta_loss='hinge': must be"),
        ({"beta_loss": 11}, "a number from -10 to 10"),
        ({"beta_loss": 0.5, "solver": "cd"}, "use 'mu' or 'auto'"),
        ({"max_iter": 0}, "max_iter=0: must be a whole number"),
        ({"tol": -1}, "tol=-1: must be a finite number"),
        ({"n_components": 2.5}, "n_components=2.5: must be a whole number"),
    ],
)
def test_what_is_not_supported_is_refused(planted, params, message):
    with pytest.raises(ValueError, match=message):
        NMF(**{"n_components": 3, **params}).fit(planted)


def test_wrong_data_is_refused(planted):
    with pytest.raises(ValueError, match="Negative values"):
        NMF(3).fit(-planted)
    with pytest.raises(ValueError, match="NaN"):
        NMF(3).fit(np.where(planted > 2, np.nan, planted))
    with pytest.raises(ValueError, match="all entries of the matrix are zero"):
        NMF(3).fit(np.zeros((5, 4)))
    with pytest.raises(NotFittedError):
        NMF(3).transform(planted)
    with pytest.raises(ValueError, match="X has 2 columns, but there are 3 components"):
        NMF(3, random_state=0).fit(planted).inverse_transform(np.ones((5, 2)))


def test_a_run_that_does_not_reach_tol_warns(planted):
    with pytest.warns(ConvergenceWarning, match="1 iterations did not reach tol"):
        NMF(3, max_iter=1).fit(planted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NMF(3, max_iter=1, tol=0).fit(planted)


def test_fit_does_not_project(planted, monkeypatch):
    whole = NMF(3, random_state=0).fit(planted)
    monkeypatch.setattr("fednmf._run.project", None)
    alone = NMF(3, random_state=0).fit(planted)
    assert np.array_equal(alone.components_, whole.components_)
    assert alone.reconstruction_err_ == whole.reconstruction_err_ > 0


def test_a_whole_random_state_is_the_seed(planted):
    from fednmf import _fednmf

    settings = dict(init="random", solver="cd", tol=0, max_iter=1)
    seen = []
    run, _fednmf.factorize = _fednmf.factorize, lambda *words: seen.append(words[2]["seed"]) or run(*words)
    try:
        NMF(3, random_state=7, **settings).fit(planted)
    finally:
        _fednmf.factorize = run
    assert seen == [7]


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_projected_in_parts(planted, loss, sparse, monkeypatch):
    model = NMF(3, beta_loss=loss, random_state=0).fit(planted)
    X = sp.csr_matrix(planted) if sparse else planted
    whole = model.transform(X)
    monkeypatch.setattr("fednmf._run._WORK_AT_ONCE", 1000)
    np.testing.assert_allclose(model.transform(X), whole, rtol=1e-6, atol=1e-9)

    # Between the parts an interruption ends it.
    parts = []
    from fednmf import _fednmf

    def interrupted(*words):
        parts.append(len(words[0][3]) if sparse else len(words[0]))
        raise KeyboardInterrupt

    monkeypatch.setattr(_fednmf, "project", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.transform(X)
    assert len(parts) == 1 and parts[0] < len(planted)


def test_a_penalty_on_one_factor_is_warned_of(planted):
    for alphas in ({"alpha_W": 0.1, "alpha_H": 0}, {"alpha_W": 0, "alpha_H": 0.1}):
        with pytest.warns(UserWarning, match="only one of alpha_W and alpha_H"):
            NMF(2, **alphas).fit(planted)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="only one of")
        NMF(2, alpha_W=0.1).fit(planted)


def test_names_and_pipelines(planted):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(planted, columns=[f"g{i}" for i in range(30)])
    model = NMF(2, random_state=0).set_output(transform="pandas")
    assert list(model.fit_transform(frame).columns) == ["nmf0", "nmf1"]
    assert list(model.feature_names_in_) == list(frame.columns)
    assert make_pipeline(MaxAbsScaler(), NMF(2, random_state=0)).fit_transform(planted).shape == (60, 2)


def test_ctrl_c_ends_a_run():
    X = np.random.default_rng(0).random((600, 500))
    # A shell makes its background jobs ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            NMF(20, solver="cd", init="random", tol=0, max_iter=10**8).fit(X)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 20


def test_other_threads_run_meanwhile():
    X = np.random.default_rng(0).random((600, 500))
    ticks, done = [], threading.Event()

    def count():
        while not done.wait(0.01):
            ticks.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    NMF(20, solver="cd", init="random", tol=0, max_iter=300).fit(X)
    done.set()
    thread.join()
    assert len(ticks) > 5


def _fit_with_threads(X):
    return NMF(3, random_state=0, n_jobs=2).fit(X).reconstruction_err_


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_may_fork_after_a_run_with_threads(planted):
    here = _fit_with_threads(planted)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_fit_with_threads, (planted,)).get(timeout=60) == pytest.approx(here)


def test_verbose_prints_measures(planted, capfd):
    NMF(3, verbose=1, random_state=0).fit(planted)
    assert "rel_error" in capfd.readouterr().out


def test_masked_entries_are_refused():
    X = np.ma.masked_array(np.arange(12.0).reshape(4, 3), mask=False)
    assert NMF(2, max_iter=5).fit(X).components_.shape == (2, 3)
    X[1, 1] = np.ma.masked
    with pytest.raises(ValueError, match="masked entries"):
        NMF(2).fit(X)


def test_messages_name_parameters():
    with pytest.raises(ValueError, match=r"beta=0: the matrix has"):
        NMF(2, beta_loss="itakura-saito").fit(np.eye(3))
    with pytest.raises(ValueError, match=r"the largest entry is 1e200, whose square .*; divide the data first$"):
        NMF(2).fit(np.full((3, 3), 1e200))


@pytest.mark.parametrize("seed", range(30, 60))
def test_more_iterations_are_not_worse(seed):
    # Components that nearly depend on each other: extrapolated factors can be far from all good ones at the same objective.
    rng = np.random.default_rng(seed)
    m, n = rng.integers(8, 25, 2)
    k = int(rng.integers(4, min(m, n)))
    X = rng.random((m, 3)) @ rng.random((3, n)) + 0.02 * rng.random((m, n))
    errors = [NMF(k, max_iter=most, tol=0, random_state=seed).fit(X).reconstruction_err_ for most in (60, 150, 400, 800)]
    assert all(later <= 1.01 * earlier for earlier, later in zip(errors, errors[1:])), errors


@pytest.mark.parametrize("largest", [1.0, 1e7, 1e9])
def test_the_error_of_a_nearly_exact_sparse_fit_has_all_digits(largest):
    rng = np.random.default_rng(0)
    factor = lambda shape: rng.random(shape) * (rng.random(shape) < 0.5)  # noqa: E731
    X = factor((60, 3)) @ factor((3, 25))
    X[0, 0] = largest
    for given in (X, sp.csr_matrix(X)):
        model = NMF(3, random_state=0, max_iter=1000)
        W = model.fit_transform(given)
        assert model.reconstruction_err_ == pytest.approx(np.linalg.norm(X - W @ model.components_), rel=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_divergence_is_infinite_where_nothing_explains_an_entry(form):
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    start = {"W": np.ones((3, 1)), "H": np.array([[1.0, 0.0]])}
    model = NMF(1, beta_loss=1, solver="mu", init="custom", max_iter=3).fit(form(X), **start)
    assert model.reconstruction_err_ == np.inf
    assert 0 < NMF(1, beta_loss=1, random_state=0).fit(form(X)).reconstruction_err_ < np.inf


@pytest.mark.parametrize("beta", [-1, 0, 0.5, 1, 1.5, 2, 3])
@pytest.mark.parametrize("exponent", [-900, 600, 900])
def test_weights_of_new_data_have_their_scale(beta, exponent, planted):
    model = NMF(3, beta_loss=beta, solver="mu", random_state=0, max_iter=100).fit(planted)
    W, scaled = model.transform(planted), model.transform(np.ldexp(planted, exponent))
    np.testing.assert_allclose(np.ldexp(scaled, -exponent), W, rtol=1e-6, atol=1e-9 * W.max())


def test_the_divergence_of_tiny_entries_is_finite():
    for smallest in (1e-323, 1e-310, 1e-200):
        X = np.array([[1, 2], [3, 4], [5, smallest], [6, 7]])
        model = NMF(2, beta_loss="itakura-saito", random_state=0, max_iter=50)
        W = model.fit_transform(X)
        # The least fit, in units of the nearest power of two to the root mean square.
        logarithm = np.log(X) - np.log(np.maximum(W @ model.components_, 4 * np.finfo(float).eps))
        assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * (np.exp(logarithm) - logarithm - 1).sum()))
