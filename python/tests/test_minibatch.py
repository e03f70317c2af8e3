"""fednmf.MiniBatchNMF: scikit-learn's contract, its objective beside scikit-learn's, and one batch in memory."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition import MiniBatchNMF as Sklearn
from sklearn.utils.estimator_checks import parametrize_with_checks

from fednmf import NMF, MiniBatchNMF, _minibatch

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(1)
    return rng.random((3000, 6)) @ rng.random((6, 50)) + 0.1 * rng.random((3000, 50))


def error(model, X):
    return np.linalg.norm(X - model.transform(X) @ model.components_)


@parametrize_with_checks([MiniBatchNMF(), MiniBatchNMF(n_components=2, batch_size=7)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("k", [5, 20])
@pytest.mark.parametrize("init", [None, "random"])
@pytest.mark.parametrize("name", ["digits", "planted"])
def test_the_error_is_at_most_that_of_scikit_learn(name, k, init, request):
    X = request.getfixturevalue(name)
    for seed in range(2):
        params = {"batch_size": 256, "init": init, "random_state": seed}
        theirs, ours = Sklearn(k, **params).fit(X), MiniBatchNMF(k, **params).fit(X)
        assert ours.reconstruction_err_ <= 1.02 * theirs.reconstruction_err_
        assert ours.reconstruction_err_ == pytest.approx(error(ours, X), rel=1e-9)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_a_fit_ends_once_passes_lower_the_cost_no_more(loss, digits):
    params = {"beta_loss": loss, "batch_size": 500, "random_state": 0}
    by_default = MiniBatchNMF(6, **params).fit(digits)
    longest = MiniBatchNMF(6, tol=0, max_no_improvement=None, **params).fit(digits)
    assert by_default.n_iter_ < longest.n_iter_ == 200
    assert by_default.reconstruction_err_ <= 1.01 * longest.reconstruction_err_


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_the_batch_of_the_start_ends_no_fit_of_sorted_samples(loss, digits):
    X = digits[np.argsort(digits.argmax(axis=1), kind="stable")]
    params = {"beta_loss": loss, "random_state": 0}
    by_default = MiniBatchNMF(10, **params).fit(X)
    longer = MiniBatchNMF(10, tol=0, max_no_improvement=None, max_iter=100, **params).fit(X)
    assert by_default.n_iter_ > 2 and by_default.reconstruction_err_ <= 1.01 * longer.reconstruction_err_


def test_the_error_of_single_batches_is_at_most_that_of_scikit_learn(digits):
    X = np.random.default_rng(0).permutation(digits)
    for k in (5, 15):
        theirs, ours = (Class(k, random_state=0) for Class in (Sklearn, MiniBatchNMF))
        for _ in range(3):
            for batch in np.array_split(X, 9):
                theirs.partial_fit(batch)
                ours.partial_fit(batch)
        assert error(ours, X) <= 1.02 * error(theirs, X)
        assert (ours.n_steps_, ours.n_components_) == (27, k)


def test_the_objective_with_penalties_is_at_most_that_of_scikit_learn(digits):
    m, n = digits.shape
    for alpha_W, alpha_H, l1_ratio in ((0.05, "same", 0.5), (0.0, 0.1, 1.0), (0.1, 0.02, 0.0)):
        params = {"alpha_W": alpha_W, "alpha_H": alpha_H, "l1_ratio": l1_ratio, "batch_size": 300, "random_state": 0}

        def objective(model):
            W, H = model.transform(digits), model.components_
            norm = lambda F: l1_ratio * F.sum() + (1 - l1_ratio) / 2 * (F**2).sum()  # noqa: E731
            on_H = alpha_W if alpha_H == "same" else alpha_H
            return 0.5 * np.linalg.norm(digits - W @ H) ** 2 + alpha_W * n * norm(W) + on_H * m * norm(H)

        theirs = Sklearn(10, transform_max_iter=1000, **params).fit(digits)
        ours = MiniBatchNMF(10, **params).fit(digits)
        assert objective(ours) <= 1.02 * objective(theirs)


def kl_objective(model, X):
    # Components of scikit-learn may be 0 where X is not.
    found = np.maximum(model.transform(X) @ model.components_, 1e-10)
    positive = X > 0
    return (X[positive] * np.log(X[positive] / found[positive])).sum() - X.sum() + found.sum()


@pytest.mark.parametrize("k", [5, 12])
def test_the_divergence_is_at_most_that_of_scikit_learn(digits, k):
    # In sum over starts: from one of them, either may reach the better minimum.
    totals = np.zeros(2)
    for seed in range(4):
        params = {"batch_size": 256, "init": "random", "random_state": seed, "beta_loss": "kullback-leibler"}
        theirs = Sklearn(k, transform_max_iter=1000, **params).fit(digits)
        ours = MiniBatchNMF(k, **params).fit(digits)
        totals += kl_objective(ours, digits), kl_objective(theirs, digits)
        assert ours.reconstruction_err_ == pytest.approx(np.sqrt(2 * kl_objective(ours, digits)), rel=1e-6)
    assert totals[0] <= 1.02 * totals[1]
    theirs, ours = (Class(k, random_state=0, beta_loss=1) for Class in (Sklearn, MiniBatchNMF))
    X = np.random.default_rng(0).permutation(digits)
    for _ in range(3):
        for batch in np.array_split(X, 9):
            theirs.partial_fit(batch)
            ours.partial_fit(batch)
    assert kl_objective(ours, X) <= 1.02 * kl_objective(theirs, X)
    sparse = MiniBatchNMF(k, **params).fit(sp.csr_matrix(digits))
    dense = MiniBatchNMF(k, **params).fit(digits)
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-5, atol=1e-8)
    single = MiniBatchNMF(k, **params).fit(digits.astype(np.float32))
    assert single.components_.dtype == np.float32
    assert single.reconstruction_err_ == pytest.approx(dense.reconstruction_err_, rel=1e-2)


def test_it_is_nearly_as_good_as_all_rows_at_once(digits):
    exact = NMF(10, random_state=0).fit(digits).reconstruction_err_
    params = {"batch_size": 200, "forget_factor": 0.1, "tol": 0, "max_no_improvement": None, "max_iter": 60}
    assert MiniBatchNMF(10, random_state=0, **params).fit(digits).reconstruction_err_ < 1.02 * exact


def test_sparse_and_single_precision(planted):
    X = np.where(planted > np.median(planted), planted, 0)
    # A start from the data is another one for sparse data.
    params = {"n_components": 4, "init": "random", "batch_size": 500, "random_state": 3, "max_iter": 5}
    dense = MiniBatchNMF(**params).fit(X)
    sparse = MiniBatchNMF(**params).fit(sp.csc_matrix(X))
    np.testing.assert_allclose(dense.components_, sparse.components_, rtol=1e-6, atol=1e-8)
    single = MiniBatchNMF(**params).fit(X.astype(np.float32))
    assert single.components_.dtype == single.transform(X.astype(np.float32)).dtype == np.float32
    assert single.reconstruction_err_ == pytest.approx(dense.reconstruction_err_, rel=1e-3)


def test_transform_and_fit_transform_are_exact(digits):
    model = MiniBatchNMF(8, batch_size=400, random_state=0)
    W = model.fit_transform(digits)
    np.testing.assert_array_equal(W, model.transform(digits))
    gradient = (W @ model.components_ - digits) @ model.components_.T
    assert (W * np.abs(gradient)).max() < 1e-6 * np.abs(digits @ model.components_.T).max()
    assert gradient.min() > -1e-6 * np.abs(digits @ model.components_.T).max()


def test_a_start_is_continued(digits):
    first = MiniBatchNMF(8, batch_size=400, random_state=0).fit(digits)
    again = MiniBatchNMF(8, init="custom", batch_size=400, max_iter=1).fit(digits, H=first.components_)
    assert again.reconstruction_err_ < 1.01 * first.reconstruction_err_
    steps = first.n_steps_
    before = first.components_.copy()
    first.partial_fit(digits[:400])
    assert first.n_steps_ == steps + 1 and 0 < np.abs(first.components_ - before).max()


def test_rows_in_files_give_the_components_of_rows_in_memory(planted, tmp_path):
    h5py, anndata = pytest.importorskip("h5py"), pytest.importorskip("anndata")
    params = {"n_components": 4, "batch_size": 700, "random_state": 3, "max_iter": 4}
    sparse = sp.csr_matrix(np.where(planted > np.median(planted), planted, 0))
    for X in (planted, sparse):
        held = MiniBatchNMF(**params).fit(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            anndata.AnnData(X).write_h5ad(tmp_path / "x.h5ad")
        backed = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
        sources = [backed, backed.X]
        if X is planted:
            with h5py.File(tmp_path / "x.h5", "w") as file:
                file["x"] = X
            sources.append(h5py.File(tmp_path / "x.h5")["x"])
        for source in sources:
            model = MiniBatchNMF(**params).fit(source)
            np.testing.assert_allclose(model.components_, held.components_, rtol=1e-9)
            assert model.reconstruction_err_ == pytest.approx(held.reconstruction_err_, rel=1e-9)
            np.testing.assert_allclose(model.transform(source), held.transform(X), rtol=1e-9, atol=1e-12)
        backed.file.close()


def test_arrays_of_dask_and_iterators(planted):
    params = {"n_components": 4, "batch_size": 700, "random_state": 3, "max_iter": 4}
    batches = np.array_split(planted, 7)
    model = MiniBatchNMF(**params).fit(iter(batches))
    one_by_one = MiniBatchNMF(**params)
    for batch in batches:
        one_by_one.partial_fit(batch)
    np.testing.assert_array_equal(model.components_, one_by_one.components_)
    np.testing.assert_array_equal(model.transform(iter(batches)), model.transform(planted))
    assert (model.n_iter_, model.n_steps_) == (1, 7)
    dask = pytest.importorskip("dask.array")
    held = MiniBatchNMF(**params).fit(planted)
    lazy = MiniBatchNMF(**params).fit(dask.from_array(planted, chunks=(500, 50)))
    np.testing.assert_allclose(lazy.components_, held.components_, rtol=1e-9)


def test_what_is_wrong_is_refused(digits, tmp_path):
    for params, words in (
        ({"beta_loss": "itakura-saito"}, "NMF has other losses"),
        ({"forget_factor": 0}, "forget_factor"),
        ({"forget_factor": 1.5}, "forget_factor"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_no_improvement": -1}, "max_no_improvement"),
        ({"init": "custom"}, "needs H"),
        ({"init": "svd"}, "init"),
        ({"tol": -1}, "tol"),
    ):
        with pytest.raises(ValueError, match=words):
            MiniBatchNMF(3, **params).fit(digits)
    with pytest.raises(ValueError, match="no batch with an entry"):
        MiniBatchNMF(3).fit(iter([]))
    with pytest.raises(ValueError, match="Negative values"):
        MiniBatchNMF(3).fit(iter([digits, -digits]))
    with pytest.raises(ValueError, match="features"):
        MiniBatchNMF(3).partial_fit(digits).partial_fit(digits[:, :5])
    with pytest.raises(ValueError, match="earlier batches had another loss"):
        MiniBatchNMF(3).partial_fit(digits).set_params(beta_loss="kullback-leibler").partial_fit(digits)
    with pytest.raises(ValueError, match="earlier batches had 3"):
        MiniBatchNMF(3).partial_fit(digits).set_params(n_components=5).partial_fit(digits)
    with pytest.raises(ValueError, match="MiniBatchNMF takes"):
        NMF(3).fit(iter([digits]))
    anndata = pytest.importorskip("anndata")
    with pytest.raises(ValueError, match="MiniBatchNMF takes"):
        NMF(3).fit(anndata.AnnData(digits))
    anndata.AnnData(sp.csc_matrix(digits)).write_h5ad(tmp_path / "c.h5ad")
    with pytest.raises(ValueError, match="write it as CSR"):
        MiniBatchNMF(3).fit(anndata.read_h5ad(tmp_path / "c.h5ad", backed="r"))


SCRIPT = """
import json, sys
import numpy as np
import fednmf

def now(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024

def batches(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield rng.random((1000, 2000))

what, path = sys.argv[1:]
if what == "file":
    import h5py
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (20_000, 2000))
        for i, batch in enumerate(batches(20)):
            x[1000 * i : 1000 * i + 1000] = batch
model = fednmf.MiniBatchNMF(3, batch_size=1000, max_iter=1)
model.fit(batches(1))
open("/proc/self/clear_refs", "w").write("5")
before = now("VmRSS:")
if what == "file":
    model.fit(h5py.File(path)["x"])
elif what == "iterator":
    model.fit(batches(20))
else:
    for batch in batches(20):
        model.partial_fit(batch)
print((now("VmHWM:") - before) / (1000 * 2000 * 8))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
@pytest.mark.parametrize("what", ["partial_fit", "iterator", "file"])
def test_one_batch_is_in_memory(what, tmp_path):
    if what == "file":
        pytest.importorskip("h5py")
    words = [sys.executable, "-c", SCRIPT, what, str(tmp_path / "x.h5")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    # Twenty batches: a batch, the next one that an iterator makes before the last is freed, and copies of parts.
    assert json.loads(done.stdout) < 4, done.stdout


def test_batches_of_zeros_come_before_the_start(planted):
    zeros = np.zeros((100, planted.shape[1]))
    rest = [planted[first : first + 500] for first in range(0, 3000, 500)]
    expected = MiniBatchNMF(6, batch_size=500, random_state=0).fit(iter(rest)).components_
    for empty in (zeros, sp.csr_matrix(zeros)):
        np.testing.assert_array_equal(
            MiniBatchNMF(6, batch_size=500, random_state=0).fit(iter([empty, *rest])).components_, expected
        )
    ahead = MiniBatchNMF(6, batch_size=100, max_iter=20, random_state=0).fit(np.vstack([zeros, planted]))
    assert error(ahead, planted) < 0.05 * np.linalg.norm(planted)
    for fit in (lambda: MiniBatchNMF(2).fit(zeros), lambda: MiniBatchNMF(2).fit(iter([zeros]))):
        with pytest.raises(ValueError, match="zero"):
            fit()


def test_samples_may_come_one_by_one(digits):
    X = np.random.default_rng(0).permutation(digits)
    theirs, ours = Sklearn(10, random_state=0), MiniBatchNMF(10, random_state=0)
    for i in range(len(X)):
        theirs.partial_fit(X[i : i + 1])
        ours.partial_fit(X[i : i + 1])
    assert error(ours, X) <= 0.95 * error(theirs, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_drifted_scale_comes_back_without_another_change(dtype):
    rng = np.random.default_rng(0)
    v, a, b = rng.random((9, 3)).astype(dtype), rng.random((3, 3)).astype(dtype), rng.random((9, 3)).astype(dtype)
    drift = np.array([np.finfo(dtype).maxexp // 3, 0, -np.finfo(dtype).maxexp // 3])
    far = _minibatch._State(np.ldexp(v, drift), np.ldexp(np.ldexp(a, -drift), -drift[:, None]), np.ldexp(b, -drift), 5.0, 2.0)
    near = _minibatch._at_moderate_scale(far)
    assert np.abs(np.log2(np.linalg.norm(near.v, axis=0))).max() < 2
    for part in ("v @ a", "b"):
        value = (lambda s: s.v @ s.a @ s.v.T) if part == "v @ a" else (lambda s: s.v @ s.b.T)
        np.testing.assert_array_equal(value(near), value(_minibatch._State(v, a, b, 5.0, 2.0)))
    assert _minibatch._at_moderate_scale(near) is near


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_no_fit_ends_before_all_rows_are_read(loss):
    # Cells of one type after the other, as joined files have them.
    rng = np.random.default_rng(0)
    k, n = 6, 60
    H = np.kron(np.eye(k), rng.gamma(2, 1, (1, n // k))) + 0.05
    kind = np.tile(np.repeat(np.arange(k), 300), 8)
    X = rng.poisson(5 * rng.gamma(2, 0.5, (len(kind), 1)) * H[kind]).astype(float)
    model = MiniBatchNMF(k, beta_loss=loss, batch_size=128, random_state=0).fit(X)
    assert model.n_steps_ >= len(X) // 128
    assert model.reconstruction_err_ <= 1.02 * NMF(k, beta_loss=loss, random_state=0).fit(X).reconstruction_err_


@pytest.mark.parametrize("sizes", [(500, 500), (1000, 1000), (2000,), (4000,), (250, 1750)])
def test_earlier_batches_are_forgotten_by_samples(sizes):
    rng = np.random.default_rng(0)
    X = rng.random((6000, 4)) @ rng.random((4, 20))
    model = MiniBatchNMF(4, random_state=0, batch_size=1000, forget_factor=0.5).partial_fit(X[:1000])
    kept, first = 1.0, 1000
    for size in sizes:
        before = model._state.rows
        model.partial_fit(X[first : first + size])
        kept *= (model._state.rows - size) / before
        first += size
    assert kept == pytest.approx(0.5 ** (sum(sizes) / 1000))


def test_what_has_no_rows_is_refused_in_the_same_way(planted, tmp_path):
    h5py, dask = pytest.importorskip("h5py"), pytest.importorskip("dask.array")
    model = MiniBatchNMF(2, random_state=0, batch_size=500, max_iter=2).fit(planted)
    n = planted.shape[1]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for X in (np.zeros((0, n)), dask.zeros((0, n)), file.create_dataset("x", (0, n), dtype="f8")):
            for door in (MiniBatchNMF(2).fit, MiniBatchNMF(2).partial_fit, model.transform):
                with pytest.raises(ValueError, match="0 sample|empty"):
                    door(X)
    with pytest.raises(ValueError, match="no batch"):
        model.transform(iter([]))


def test_a_penalty_that_leaves_no_component_and_a_fit_that_ends_early_are_named(planted):
    with pytest.warns(UserWarning, match="no component is left"):
        MiniBatchNMF(2, random_state=0, batch_size=500, max_iter=2, alpha_W=1e6, l1_ratio=1).fit(planted)
    with pytest.warns(Warning, match="2 passes did not reach"):
        MiniBatchNMF(2, random_state=0, batch_size=500, max_iter=2, tol=1e-12).fit(planted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_feature_that_comes_late_is_found(dtype):
    rng = np.random.default_rng(1)
    H = rng.gamma(1, 1, (3, 20))
    X = rng.poisson(rng.gamma(1, 1, (400, 3)) @ H).astype(dtype)
    early = X.copy()
    early[:, 0] = 0
    model = MiniBatchNMF(3, beta_loss="kullback-leibler", random_state=0, batch_size=20)
    for batch in [early] * 30 + [X] * 30:
        model.partial_fit(batch)
    assert np.isfinite(model.components_).all()
    found = (model.transform(X) @ model.components_)[:, 0].mean()
    assert found == pytest.approx(X[:, 0].mean(), rel=0.1)


def test_a_first_batch_of_zeros_is_refused_and_a_later_one_counts():
    from sklearn.exceptions import NotFittedError

    model = MiniBatchNMF(2, random_state=0)
    with pytest.raises(ValueError, match="first batch has only zeros"):
        model.partial_fit(np.zeros((3, 4)))
    for call in (model.transform, model.inverse_transform):
        with pytest.raises(NotFittedError):
            call(np.ones((1, 4)))
    model.partial_fit(np.random.default_rng(0).random((9, 4))).partial_fit(np.zeros((3, 4)))
    assert model.n_iter_ == model.n_steps_ == 2


@pytest.mark.parametrize("penalty", [{"alpha_W": 1.0}, {"alpha_W": 1e6, "l1_ratio": 1.0}])
def test_nothing_that_is_left_is_named(penalty):
    X = np.random.default_rng(7).random((300, 8))
    with pytest.warns(UserWarning, match="no component is left"):
        MiniBatchNMF(2, random_state=0, **penalty).fit(X)


def test_penalties_and_starts_that_do_nothing_are_warned_of():
    X = np.random.default_rng(0).random((60, 12))
    with pytest.warns(UserWarning, match="only one of alpha_W and alpha_H is above 0"):
        MiniBatchNMF(3, alpha_W=0.1, alpha_H=0.0, random_state=0, max_iter=2, max_no_improvement=None, tol=0).fit(X)
    with pytest.warns(RuntimeWarning, match="init='custom' only"):
        MiniBatchNMF(3, random_state=0, max_iter=2, max_no_improvement=None, tol=0).fit(X, H=np.ones((3, 12)))
