"""Plots of components and their use, tables in notebooks, and progress."""

import re
import sys

import fednmf
import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(autouse=True)
def closed():
    """Matplotlib warns of many open figures."""
    yield
    if plt := sys.modules.get("matplotlib.pyplot"):
        plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X = load_digits().data
    model = fednmf.NMF(6, random_state=0)
    return X, model, model.fit_transform(X)


def test_components_are_drawn_as_images(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    _, model, _ = fitted
    axes = fednmf.pl.images(model, (8, 8))
    assert len(axes) == 6
    assert (axes[2].images[0].get_array() == model.components_[2].reshape(8, 8)).all()
    with pytest.raises(ValueError, match="64 pixels"):
        fednmf.pl.images(model, (8, 9))


def test_the_use_by_groups_has_a_row_for_each_group_and_rows_of_sum_one(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    _, model, W = fitted
    target = load_digits().target
    ax = fednmf.pl.usage(W, target, H=model.components_)
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (10, 6)
    assert np.allclose(shown.sum(axis=1), 1)
    of_zeros = W[target == 0] * model.components_.sum(axis=1)
    assert np.allclose(shown[0], (of_zeros / of_zeros.sum(axis=1, keepdims=True)).mean(axis=0))
    with pytest.raises(ValueError, match="3 entries"):
        fednmf.pl.usage(W, [1, 2, 3], H=model.components_)


def test_the_map_colours_cells_by_their_shares():
    anndata = pytest.importorskip("anndata")
    pytest.importorskip("matplotlib").use("Agg")
    rng = np.random.default_rng(0)
    adata = anndata.AnnData(rng.poisson(2, (60, 20)).astype("float32"))
    adata.obs["kind"] = ["a", "b", "c"] * 20
    fednmf.tl.nmf(adata, n_components=3, max_iter=50)
    with pytest.raises(ValueError, match="X_umap"):
        fednmf.pl.embedding(adata)
    adata.obsm["X_umap"] = rng.random((60, 2))
    axes = fednmf.pl.embedding(adata, names=["x", "y", "z"])
    assert [ax.get_title() for ax in axes] == ["0: x", "1: y", "2: z"]
    colours = np.sort(axes[1].collections[0].get_array())
    used = adata.obsm["X_nmf"] * adata.varm["NMF"].sum(axis=0)
    assert np.allclose(colours, np.sort((used / used.sum(axis=1, keepdims=True))[:, 1]))
    by_column = np.asarray(fednmf.pl.usage(adata, "kind").images[0].get_array())
    assert by_column.shape == (3, 3)
    # A Series has names, whatever its order.
    kinds = adata.obs["kind"].sample(frac=1, random_state=1)
    np.testing.assert_array_equal(np.asarray(fednmf.pl.usage(adata, kinds).images[0].get_array()), by_column)
    with pytest.raises(ValueError, match="other names than the samples"):
        fednmf.pl.usage(adata, kinds.rename(lambda name: name + "x"))
    with pytest.raises(ValueError, match="there are kind"):
        fednmf.pl.usage(adata, "leiden")


def test_specific_features_are_not_in_all_components():
    pytest.importorskip("matplotlib").use("Agg")
    H = np.array([[5.0, 4.0, 0.0], [5.0, 0.0, 4.0]])
    first = [ax.get_yticklabels()[0].get_text() for ax in fednmf.pl.top_features(H, 1)]
    assert first == ["0", "0"]
    first = [ax.get_yticklabels()[0].get_text() for ax in fednmf.pl.top_features(H, 1, by="specific")]
    assert first == ["1", "2"]
    frame = pytest.importorskip("pandas").DataFrame(H, columns=["x", "y", "z"])
    assert set(fednmf.tl.top_features(frame, 2)["feature"]) <= {"x", "y", "z"}
    table = fednmf.tl.top_features(H, 2, names=["a", "b", "c"], by="specific")
    assert table["feature"].tolist() == ["b", "a", "c", "a"] and table["rank"].tolist() == [1, 2, 1, 2]
    assert table["weight"].tolist() == [4, 5, 4, 5] and np.allclose(table["share"], [1, 0.5, 1, 0.5])
    for function in (fednmf.pl.top_features, fednmf.tl.top_features):
        with pytest.raises(ValueError, match="must be 'weight' or 'specific'"):
            function(H, by="marker")


def test_notebooks_show_short_tables(fitted):
    X, _, _ = fitted
    found = fednmf.federated([X[:600], X[600:1200], X[1200:]], n_components=4, max_iter=10, secure_sum=True)
    shown = found._repr_html_()
    assert "sum V_j" in shown and "masked" in shown and len(shown) < 5000
    choice = fednmf.tl.choose_k(X[:300], ks=[2, 3], n_runs=2, max_iter=20)
    shown = choice._repr_html_()
    assert shown.count("<tr>") == 3 and "heldout_se" in shown and "divergence" not in shown


def test_progress_is_printed_where_it_is_wanted(fitted, capsys):
    X, _, _ = fitted
    fednmf.NMF(3, random_state=0, verbose=1, max_iter=30, tol=0).fit(X[:200])
    assert re.search(r"^iteration 10: rel_error 0\.\d+ \(\d+\.\d s\)$", capsys.readouterr().out, re.MULTILINE)
    fednmf.tl.choose_k(X[:200], ks=[2, 3], n_runs=2, max_iter=20, verbose=1)
    assert "k = 3: run 1" in capsys.readouterr().out
    fednmf.NMF(3, random_state=0, max_iter=30, tol=0).fit(X[:200])
    assert capsys.readouterr().out == ""


def test_scaled_cells_are_refused_with_what_to_do():
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(np.random.default_rng(0).normal(size=(20, 10)))
    with pytest.raises(ValueError, match=r"adata\.X has negative entries.*layer="):
        fednmf.tl.nmf(adata, n_components=2)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_samples_without_a_group_are_left_out(fitted, missing):
    pytest.importorskip("matplotlib").use("Agg")
    _, model, W = fitted
    H, target = model.components_, load_digits().target
    groups = np.array(target, dtype=object)
    groups[::3] = missing
    with pytest.warns(UserWarning, match=f"groups: {len(groups[::3])} of {len(groups)} have no label"):
        ax = fednmf.pl.usage(W, groups, H=H)
    known = np.arange(len(groups)) % 3 > 0
    expected = fednmf.pl.usage(W[known], target[known], H=H)
    np.testing.assert_allclose(ax.images[0].get_array(), expected.images[0].get_array())


def test_samples_without_weights_are_left_out_of_the_mean_shares():
    pytest.importorskip("matplotlib").use("Agg")
    W = np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 2.0], [0.0, 0.0]])
    with pytest.warns(UserWarning, match="2 of 4 samples have no weight") as found:
        ax = fednmf.pl.usage(W, ["a", "a", "b", "c"])
    assert len(found) == 1
    assert ax.images[0].get_array().tolist() == [[0.25, 0.75], [0.5, 0.5], [0, 0]]


def test_names_are_taken_by_position():
    H = np.array([[1.0, 3.0, 2.0]])
    names = ["a", "b", "c"]
    for index in ([2, 1, 0], [10, 11, 12], ["x", "y", "z"]):
        series = pytest.importorskip("pandas").Series(names, index=index)
        assert list(fednmf.tl.top_features(H, 3, names=series)["feature"]) == ["b", "c", "a"]
        (ax,) = fednmf.pl.top_features(H, 3, names=series)
        assert {label.get_text() for label in ax.get_yticklabels()} == set(names)
        assert ax.get_yticklabels()[0].get_text() == fednmf.pl.top_features(H, 3, names=names)[0].get_yticklabels()[0].get_text()


def test_maps_have_the_names_of_scanpy_too():
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    adata = anndata.AnnData(rng.poisson(2, (60, 20)).astype("float32"))
    with pytest.raises(ValueError, match="there are none"):
        fednmf.pl.embedding(adata)
    fednmf.tl.nmf(adata, n_components=3, max_iter=50)
    adata.obsm["X_umap"] = rng.random((60, 2))
    assert len(fednmf.pl.embedding(adata, basis="umap")) == 3
    with pytest.raises(TypeError, match="what fednmf.tl.choose_k or fednmf.tl.cnmf returned"):
        fednmf.pl.choose_k({3: None})


def test_the_choice_of_cnmf_has_the_curves_of_its_plot():
    pytest.importorskip("matplotlib").use("Agg")
    from fednmf._cnmf import Programs

    found = {k: Programs(None, None, None, None, None, silhouette=1 / k, prediction_error=10.0 * k) for k in (5, 3, 4)}
    error, stability = fednmf.pl.choose_k(found)
    assert error.lines[0].get_xydata().tolist() == [[3, 30], [4, 40], [5, 50]]
    assert stability.lines[0].get_ydata().tolist() == [1 / 3, 1 / 4, 1 / 5]
    # What programmes do not have is no AttributeError.
    for draw, cure in [(fednmf.pl.consensus, "fednmf.pl.choose_k draws their choice"), (fednmf.pl.embedding, "adata.obs")]:
        for wrong in (found, found[3]):
            with pytest.raises(TypeError, match=cure):
                draw(wrong)


def test_groups_keep_the_order_of_their_categories(fitted):
    pandas = pytest.importorskip("pandas")
    W = np.random.default_rng(0).random((30, 3))
    groups = pandas.Categorical(["b", "a", "c"] * 10, categories=["c", "a", "b"])
    for given in (groups, pandas.Series(groups)):
        labels = [text.get_text() for text in fednmf.pl.usage(W, given).get_yticklabels()]
        assert [label[:1] for label in labels] == ["c", "a", "b"]
