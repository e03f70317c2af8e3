"""fednmf.IntegrativeNMF: its objective beside full passes and a naive step, planted parts, and one batch in memory."""

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

import fednmf
from fednmf import IntegrativeNMF, MiniBatchNMF


RNG = np.random.default_rng(4)
SHARED = RNG.gamma(0.3, size=(4, 60))
#: Two data sets with four components, of which one differs between them in its first twelve features.
PLANTED = {"A": SHARED, "B": SHARED + np.where((np.arange(4) == 1)[:, None] & (np.arange(60) < 12), 3, 0)}


@pytest.fixture(scope="module")
def donors():
    sizes = {"A": 900, "B": 500}
    return {name: RNG.gamma(0.5, size=(size, 4)) @ PLANTED[name] + 0.02 * RNG.random((size, 60)) for name, size in sizes.items()}


def objective(model, sets):
    total = 0.0
    for name, W in model.transform(sets).items():
        own = model.own_components_[name]
        total += 0.5 * np.linalg.norm(sets[name] - W @ (model.components_ + own)) ** 2
        total += 0.5 * model.own_penalty * np.linalg.norm(W @ own) ** 2
    return total


@pytest.mark.parametrize("own_penalty", [0.5, 5.0])
def test_the_objective_is_that_of_full_passes(donors, own_penalty):
    blocks = list(donors.values())
    runs = [fednmf.federated(blocks, algo="inmf", n_components=4, own_penalty=own_penalty, max_iter=300, random_state=seed) for seed in range(3)]
    best = min(run.measures["objective"] for run in runs)
    models = [IntegrativeNMF(4, own_penalty=own_penalty, batch_size=280, random_state=seed).fit(donors) for seed in range(3)]
    assert min(model.objective_ for model in models) <= 1.02 * best
    for model in models:
        assert model.objective_ == pytest.approx(objective(model, donors), rel=1e-9)
        assert model.n_iter_ < 200


def test_another_number_of_components_is_refused_after_a_batch(donors):
    model = IntegrativeNMF(3, random_state=0).partial_fit(donors)
    with pytest.raises(ValueError, match="earlier batches had 3"):
        model.set_params(n_components=5).partial_fit(donors)


def test_one_step_is_that_of_a_naive_implementation(donors):
    penalty, sets = 2.0, {name: X[:40] for name, X in donors.items()}
    model = IntegrativeNMF(3, own_penalty=penalty, batch_size=50, forget_factor=0.5, random_state=0)
    model.partial_fit(sets)
    before = model.components_, dict(model.own_components_), dict(model._statistics)
    model.partial_fit(sets)
    H, owns, statistics = before
    total_a, total_b = np.zeros((3, 3)), np.zeros_like(H.T)
    for name, X in sets.items():
        own = owns[name]
        stacked = np.vstack([(H + own).T, np.sqrt(penalty) * own.T])
        W = np.array([nnls(stacked, np.concatenate([x, np.zeros(H.shape[1])]))[0] for x in X])
        rho = 0.5 ** (40 / 50)
        a, b = rho * statistics[name][0] + W.T @ W, rho * statistics[name][1] + X.T @ W
        rhs = b / (1 + penalty) - H.T @ a / (1 + penalty)
        own = swept(own.T, a, rhs)
        np.testing.assert_allclose(model.own_components_[name], own.T, atol=1e-8)
        total_a, total_b = total_a + a, total_b + b - own @ a
    np.testing.assert_allclose(model.components_, swept(H.T, total_a, total_b).T, atol=1e-8)


def swept(x, a, b):
    x = x.copy()
    for j in range(len(a)):
        x[:, j] = np.maximum(0, x[:, j] + (b[:, j] - x @ a[:, j]) / a[j, j])
    return x


def least_cosine(found, planted):
    """Of the planted components with the found one that is most like each."""
    unit = lambda X: X / np.linalg.norm(X, axis=1, keepdims=True)  # noqa: E731
    return (unit(planted) @ unit(found).T).max(axis=1).min()


def test_each_data_set_has_its_own_form_of_a_component(donors):
    runs = (IntegrativeNMF(4, own_penalty=0.1, batch_size=300, random_state=seed).fit(donors) for seed in range(3))
    model = min(runs, key=lambda model: model.objective_)
    for name, planted in PLANTED.items():
        assert least_cosine(model.components_ + model.own_components_[name], planted) > 0.98
    together = MiniBatchNMF(4, batch_size=300, random_state=0).fit(np.concatenate(list(donors.values())))
    assert min(least_cosine(together.components_, planted) for planted in PLANTED.values()) < 0.95


def test_a_large_penalty_is_one_factorisation_of_all_samples(donors):
    stacked = np.concatenate(list(donors.values()))
    one = min(MiniBatchNMF(4, batch_size=280, random_state=seed).fit(stacked).reconstruction_err_ for seed in range(3))
    models = [IntegrativeNMF(4, own_penalty=1e9, batch_size=280, random_state=seed).fit(donors) for seed in range(3)]
    assert min(model.reconstruction_err_ for model in models) == pytest.approx(one, rel=0.02)


def test_forms_of_the_data_give_the_same(donors, tmp_path):
    dense = IntegrativeNMF(3, batch_size=300, random_state=0).fit(list(donors.values()))
    sparse = [sp.csr_matrix(X) for X in donors.values()]
    with h5py.File(tmp_path / "sets.h5", "w") as file:
        for name, X in donors.items():
            file[name] = X
    anndata.AnnData(donors["A"]).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "sets.h5") as file:
        in_files = [anndata.read_h5ad(tmp_path / "a.h5ad", backed="r"), file["B"]]
        for sets in (sparse, in_files):
            model = IntegrativeNMF(3, batch_size=300, random_state=0).fit(sets)
            np.testing.assert_allclose(model.components_, dense.components_, atol=1e-6)
            assert model.objective_ == pytest.approx(dense.objective_, rel=1e-6)
            for found, expected in zip(model.transform(sets), dense.transform(list(donors.values()))):
                np.testing.assert_allclose(found, expected, atol=1e-5)
    scaled = IntegrativeNMF(3, batch_size=300, random_state=0).fit([1e6 * X for X in donors.values()])
    assert scaled.reconstruction_err_ == pytest.approx(1e6 * dense.reconstruction_err_, rel=1e-6)
    single = IntegrativeNMF(3, batch_size=300, random_state=0).fit([X.astype(np.float32) for X in donors.values()])
    assert single.components_.dtype == np.float32 and single.objective_ == pytest.approx(dense.objective_, rel=0.01)


def test_data_sets_may_arrive_later_and_unknown_ones_have_no_own_part(donors):
    model = IntegrativeNMF(4, batch_size=100, random_state=0)
    for rows in np.split(donors["A"], 9):
        model.partial_fit({"A": rows})
    kept = model.components_.copy()
    np.testing.assert_array_equal(model.transform({"B": donors["B"]})["B"], model.transform({"C": donors["B"]})["C"])
    held = model.components_
    for rows in np.split(donors["B"], 5):
        model.partial_fit({"B": rows})
    np.testing.assert_array_equal(held, kept)
    assert sorted(model.own_components_) == ["A", "B"] and model.n_iter_ == 14
    assert not hasattr(model, "objective_")


@pytest.mark.parametrize("size", [1e155, 1e160])
def test_batches_with_too_large_entries_are_refused_and_leave_the_model(donors, size):
    X = donors["A"][:60]
    models = [IntegrativeNMF(3, random_state=0).partial_fit({"A": X}), MiniBatchNMF(3, random_state=0).partial_fit(X)]
    for model, batch in zip(models, ({"A": size * X}, size * X)):
        before = model.components_
        with pytest.raises(ValueError, match="too large for f64"):
            model.partial_fit(batch)
        assert model.components_ is before
    with pytest.raises(ValueError, match="too large for f32; divide the data first, or use float64"):
        MiniBatchNMF(3, random_state=0).fit(iter([X.astype(np.float32), (1e19 * X).astype(np.float32) * np.float32(10)]))


def test_new_data_are_computed_in_their_own_precision(donors):
    single = IntegrativeNMF(3, batch_size=300, random_state=0).fit([X.astype(np.float32) for X in donors.values()])
    W = single.transform([1e-60 * donors["A"]])[0]
    assert W.dtype == np.float64
    np.testing.assert_allclose(1e60 * W, single.transform([donors["A"]])[0], rtol=1e-6, atol=1e-12)


def test_names_of_columns_are_those_of_all(donors):
    frames = {name: pd.DataFrame(X, columns=[f"g{i}" for i in range(60)]) for name, X in donors.items()}
    model = IntegrativeNMF(2, batch_size=500, random_state=0)
    assert list(model.fit([donors["A"], frames["B"]]).feature_names_in_[:2]) == ["g0", "g1"]
    for sets in ([donors["A"], frames["A"], frames["B"].iloc[:, ::-1]], [frames["A"], frames["B"].iloc[:, ::-1]]):
        with pytest.raises(ValueError, match="its columns are not those of"):
            model.fit(sets)


@pytest.mark.parametrize(
    ("params", "sets", "message"),
    [
        ({}, np.ones((3, 2)), "for one matrix use MiniBatchNMF"),
        ({}, [], "no data set"),
        ({}, [np.ones((3, 2)), np.ones((3, 4))], "data set 1: X has 4 features"),
        ({}, {"x": -np.ones((3, 2))}, "data set 'x': Negative values"),
        ({}, {"x": np.full((3, 2), np.nan)}, "data set 'x': Input X contains NaN"),
        ({"own_penalty": -1}, [np.ones((3, 2))], "own_penalty=-1"),
        ({"own_penalty": 1e13}, [np.ones((3, 2))], "must be a number from 0 to 1e\\+12"),
        ({"n_components": 0}, [np.ones((3, 2))], "n_components=0"),
        ({"forget_factor": 0}, [np.ones((3, 2))], "forget_factor=0"),
    ],
)
def test_wrong_input_is_named_and_leaves_the_model(donors, params, sets, message):
    model = IntegrativeNMF(2, batch_size=200, max_iter=2, tol=0, random_state=0).fit(donors)
    before = model.components_
    model.set_params(**params)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(sets)
    assert model.components_ is before
