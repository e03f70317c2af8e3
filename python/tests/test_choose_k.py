"""fednmf.tl.choose_k: the answer on a matrix with known components, and the numbers of the program."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

import fednmf
from fednmf.tl import choose_k


@pytest.fixture(scope="module")
def blocks():
    rng = np.random.default_rng(3)
    W, H = np.kron(np.eye(4), np.ones((25, 1))), np.kron(np.eye(4), np.ones((1, 15)))
    return np.maximum((W * rng.random(W.shape)) @ (H * rng.random(H.shape)) + 0.05 * rng.normal(size=(100, 60)), 0)


@pytest.fixture(scope="module")
def found(blocks):
    return choose_k(blocks, range(2, 8), 4)


def test_the_planted_number_is_recommended(blocks, found):
    assert found.recommended == 4 and found.reasons and not found.warnings
    stability = dict(zip(found.column("k"), found.column("silhouette")))
    assert stability[4] > 0.95 > stability[7]
    assert (np.diff(found.column("rmse")) < 0).all()
    heldout = dict(zip(found.column("k"), found.column("heldout")))
    assert heldout[4] < 0.7 * heldout[3]
    consensus = found.consensus
    error = np.sqrt(np.mean((blocks - consensus.W @ consensus.H) ** 2))
    assert consensus.rmse == pytest.approx(error, rel=1e-6)
    np.testing.assert_allclose(np.linalg.norm(consensus.H, axis=1), 1)
    assert consensus.share.sum() == pytest.approx(1) and (np.diff(consensus.share) <= 1e-9).all()


def test_the_consensus_is_of_the_number_to_interpret(found):
    assert found.for_prediction == found.for_interpretation == len(found.consensus.H) == 4
    # Batches that scale genes are components for prediction, on which runs do not agree.
    rng = np.random.default_rng(0)
    H, factor = rng.gamma(0.3, 1, (3, 80)), rng.lognormal(0, 1, (2, 80))
    X = rng.poisson(3 * rng.dirichlet([0.3] * 3, 120) @ H * np.repeat(factor, 60, axis=0)).astype(float)
    other = choose_k(X[:, X.any(axis=0)], range(2, 8), 4, beta_loss="kl", holdout=0.1)
    assert other.for_prediction is not None and len(other.consensus.H) == (other.for_interpretation or other.recommended)


def test_similarities_are_cosines_by_cluster(found):
    cosines, clusters = found.similarities[4]
    assert cosines.shape == (16, 16) and clusters.tolist() == np.repeat(np.arange(4), 4).tolist()
    same = clusters[:, None] == clusters
    assert cosines[same].min() > 0.95 > cosines[~same].max()


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, np.asfortranarray, np.float32])
def test_the_form_of_the_matrix_does_not_matter(blocks, form):
    # Entries are held out by their number, which is another one in a sparse matrix.
    some = [choose_k(X, [3, 4], 3, holdout=0) for X in (blocks.astype(np.float32), form(blocks.astype(np.float32)))]
    assert some[0].recommended == some[1].recommended == 4
    np.testing.assert_allclose(some[0].column("rmse"), some[1].column("rmse"), rtol=1e-6)


def program():
    return shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))


@pytest.mark.skipif(program() is None, reason="no program fednmf on the PATH")
@pytest.mark.parametrize("words", [[], ["--holdout=0"], ["--algo=kl-mu"], ["--algo=kl-cd", "--holdout=0.1"], ["--loss=kl"], ["--loss=1.5", "--max-iters=60"], ["--algo=mu", "--seed=5", "--max-iters=30"]])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_the_numbers_are_those_of_the_program(blocks, tmp_path, words, form):
    X = np.where(blocks > 0.2, blocks, 0) if form == "npz" else blocks
    path = tmp_path / f"blocks.{form}"
    if form == "npz":
        X = sp.csr_matrix(X)
        sp.save_npz(path, X)
    else:
        np.save(path, X)
    line = [program(), "sweep", "--k=2..5", "--runs=3", f"--input={path}", f"--output={tmp_path / 'sweep'}"]
    line += ["--json", "--quiet"]
    theirs = json.loads(subprocess.run(line + words, capture_output=True, text=True, check=True).stdout)
    given = dict(word.removeprefix("--").split("=") for word in words)
    ours = choose_k(
        X,
        range(2, 6),
        3,
        method=given.get("algo"),
        beta_loss={None: None, "kl": "kullback-leibler", "1.5": 1.5}[given.get("loss")],
        holdout=float(given["holdout"]) if "holdout" in given else None,
        random_state=int(given.get("seed", 0)),
        max_iter=int(given["max-iters"]) if "max-iters" in given else None,
    )
    assert ours.recommended == theirs["recommended"]
    points = theirs["points"]
    for name, of in {
        "rmse": lambda p: p["rmse"],
        "divergence": lambda p: p["divergence"],
        "heldout": lambda p: p["heldout"] and p["heldout"][0],
        "heldout_se": lambda p: p["heldout"] and p["heldout"][1],
        "silhouette": lambda p: p["stability"]["mean"],
        "least_silhouette": lambda p: p["stability"]["least"],
        "cosine": lambda p: p["stability"]["cosine"],
    }.items():
        expected = np.array([np.nan if of(p) is None else of(p) for p in points], dtype=float)
        np.testing.assert_allclose(ours.column(name), expected, rtol=1e-9, atol=1e-12, err_msg=name)
    if ours.consensus is not None:
        assert ours.consensus.rmse == pytest.approx(theirs["consensus"]["rmse"], rel=1e-9)
        divergence = theirs["consensus"]["divergence"]
        assert ours.consensus.divergence == (None if divergence is None else pytest.approx(divergence, rel=1e-9))
        shares = [component["share"] for component in theirs["consensus"]["components"]]
        np.testing.assert_allclose(ours.consensus.share, shares, rtol=1e-9)


def test_the_table_of_annotated_data_is_stored_and_written(blocks, tmp_path):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(blocks.astype(np.float32))
    adata.var["highly_variable"] = np.arange(60) < 30
    with pytest.warns(UserWarning, match="30 of 60 genes are marked"):
        found = choose_k(adata, [1, 2], 2)
    assert found.consensus.H.shape[1] == 30
    adata.write_h5ad(tmp_path / "cells.h5ad")
    stored = anndata.read_h5ad(tmp_path / "cells.h5ad").uns["nmf_choose_k"]
    assert stored["recommended"] == found.recommended
    assert (stored["params"]["n_runs"], stored["params"]["random_state"], "holdout" in stored["params"]) == (2, 0, False)
    np.testing.assert_array_equal(stored["table"]["rmse"], found.column("rmse"))
    assert found.feature_names == list(adata.var_names[:30]) and "\n" not in repr(found) and len(repr(found.consensus)) < 100
    # The consensus is the result that other functions read.
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(adata.varm["NMF"], np.vstack([found.consensus.H.T, np.zeros((30, found.recommended))]))
    fednmf.tl.project(adata, adata)
    np.testing.assert_allclose(adata.obsm["X_nmf"], found.consensus.W, rtol=1e-4, atol=1e-4 * found.consensus.W.max())
    assert adata.uns["nmf"]["params"]["random_state"] == 0 and adata.uns["nmf"]["version"] == fednmf.__version__
    pytest.importorskip("matplotlib")
    assert len(fednmf.pl.choose_k(anndata.read_h5ad(tmp_path / "cells.h5ad"))) == 2
    ticks = fednmf.pl.top_features(found, 3)[0].get_yticklabels()
    assert all(tick.get_text() in found.feature_names for tick in ticks)


def programmes(seed, k):
    """Counts of cells that mix k programmes of genes, with noise in proportion: a sweep's error falls with every component."""
    rng = np.random.default_rng(seed)
    genes = rng.gamma(0.3, 1, (1, 120)) + np.kron(np.eye(k), np.ones((1, 120 // k))) * rng.gamma(2, 1, 120)
    genes /= genes.sum(axis=1, keepdims=True)
    usage = 0.3 * rng.dirichlet(np.full(k, 0.3), 200)
    usage[np.arange(200), rng.integers(0, k, 200)] += 0.7
    depth = np.exp(rng.normal(6, 0.6, 200))[:, None]
    return rng.poisson(depth * (usage @ genes) * rng.gamma(2, 0.5, (200, 120))).astype(float)


@pytest.mark.parametrize("method", ["hals", "kl-cd", "kl-mu"])
@pytest.mark.parametrize("seed, k", [(0, 4), (1, 6)])
def test_planted_programmes_are_found_without_held_out_entries(method, seed, k):
    assert choose_k(programmes(seed, k), range(2, k + 4), 5, method=method, holdout=0).recommended == k


def test_a_single_run_has_no_stability(blocks):
    found = choose_k(blocks, [2, 3], 1)
    assert np.isnan(found.column("silhouette")).all() and found.consensus.silhouette is None


def test_a_single_run_has_no_standard_error(blocks):
    table = choose_k(blocks, [2, 3], n_runs=1, random_state=0).table
    assert np.isfinite(table["heldout"]).all() and np.isnan(table["heldout_se"]).all()


def test_a_table_of_arrow_has_its_names(blocks):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({f"g{i}": column for i, column in enumerate(np.asarray(blocks, float).T)})
    found = choose_k(table, [2], n_runs=2, random_state=0)
    assert found.feature_names == [f"g{i}" for i in range(blocks.shape[1])]


def test_a_callback_sees_the_runs_and_ends_the_search(blocks):
    seen = set()
    choose_k(blocks, [2, 3], 2, callback=lambda k, run, iteration, measures: seen.add((k, run)))
    assert seen == {(2, 0), (2, 1), (3, 0), (3, 1)}

    def stop(k, run, iteration, measures):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_k(blocks, [2, 3], 2, callback=stop)


@pytest.mark.parametrize(
    "args, params, message",
    [
        (([], 2), {}, "ks is empty"),
        ((3, 2), {}, "ks=3: must be a list"),
        (([2], 2), {"random_state": 1 << 64}, "random_state=.*below 2"),
        (([2], 2), {"n_jobs": 1.5}, "n_jobs=1.5"),
        (([2, 61], 2), {}, "61 components are more than the 100 x 60 matrix"),
        (([0], 2), {}, "ks=0: must be a whole number"),
        (([2], 0), {}, "n_runs=0"),
        (([2], 2), {"beta_loss": "mse"}, "beta_loss='mse': must be"),
        (([2], 2), {"beta_loss": 1.5, "holdout": 0.1}, "holdout.* not for"),
        (([2], 2), {"method": "hals", "beta_loss": 1}, "hals minimises"),
        (([2], 2), {"method": "nmf"}, "no method of a sweep; they are .*hals, bpp, mu"),
        (([2], 2), {"holdout": 0.95}, "holdout=0.95"),
        (([2], 2), {"layer": "counts"}, "are for AnnData"),
    ],
)
def test_wrong_arguments_are_refused(blocks, args, params, message):
    with pytest.raises(ValueError, match=message):
        choose_k(blocks, *args, **params)
    with pytest.raises(ValueError, match="negative"):
        choose_k(-blocks, [2], 2)


def test_plots_return_their_axes(blocks, found):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    error, stability = fednmf.pl.choose_k(found)
    assert error.get_xlabel() == "components" and "recommended: 4" in error.get_legend_handles_labels()[1]
    np.testing.assert_allclose(error.lines[0].get_ydata(), found.column("rmse"))
    np.testing.assert_allclose(stability.lines[0].get_ydata(), found.column("silhouette"))
    ax = fednmf.pl.consensus(found)
    np.testing.assert_array_equal(ax.images[0].get_array(), found.similarities[4].cosines)
    assert fednmf.pl.consensus(found, k=5, ax=ax) is ax
    with pytest.raises(ValueError, match="k=9: was not tried"):
        fednmf.pl.consensus(found, k=9)

    axes = fednmf.pl.top_features(found, n_features=3, names=[f"g{i}" for i in range(60)])
    assert len(axes) == 4
    for h, ax in zip(found.consensus.H, axes):
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"g{i}" for i in np.argsort(-h)[:3]]
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], np.sort(h)[::-1][:3])
    model = fednmf.NMF(5, random_state=0, max_iter=20, tol=0).fit(blocks)
    assert len(fednmf.pl.top_features(model)) == len(fednmf.pl.top_features(model.components_)) == 5
    with pytest.raises(ValueError, match="2 names, but 60 features"):
        fednmf.pl.top_features(model, names=["a", "b"])
    plt.close("all")


def test_plots_name_what_they_need(found, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        fednmf.pl.choose_k(found)


@pytest.mark.parametrize("how", ["poisson", "multinomial"])
def test_resampled_runs_find_the_number_of_planted_components(how):
    rng = np.random.default_rng(1)
    components = rng.dirichlet(np.full(40, 0.3), 4)
    counts = rng.poisson(300 * rng.dirichlet(np.full(4, 0.5), 120) @ components).astype(float)
    found = choose_k(counts, range(2, 7), 5, beta_loss="kullback-leibler", resample=how, max_iter=200)
    assert found.recommended == 4
    cosines = (components / np.linalg.norm(components, axis=1)[:, None]) @ found.consensus.H.T
    assert cosines.max(axis=1).min() > 0.95
    again = choose_k(sp.csr_matrix(counts), range(2, 7), 5, beta_loss="kullback-leibler", resample=how, max_iter=200)
    np.testing.assert_allclose(found.column("divergence"), again.column("divergence"), rtol=1e-6)


def test_the_rule_of_sigprofiler_is_that_of_its_source():
    """With SciPy's test and its nonnegative least squares: those of the consensus, since the components of the runs are alike."""
    nnls, ranksums = pytest.importorskip("scipy.optimize").nnls, pytest.importorskip("scipy.stats").ranksums
    rng = np.random.default_rng(2)
    components = rng.dirichlet(np.full(40, 0.3), 4)
    counts = rng.poisson(300 * rng.dirichlet(np.full(4, 0.5), 120) @ components).astype(float)
    search = lambda ks, **more: choose_k(counts, ks, 4, beta_loss="kullback-leibler", max_iter=200, **more)  # noqa: E731
    found = search(range(1, 7), criterion="sigprofiler")
    ks, means, leasts = (found.column(name).round(2) for name in ("k", "silhouette", "least_silhouette"))
    stable = np.flatnonzero((means >= 0.8) & (leasts >= 0.2))
    considered = [int(ks[i]) for i in stable if means[i] >= means[stable[-1]]]
    errors = {}
    for k in considered:
        H = search([k], criterion="sigprofiler").consensus.H
        errors[k] = np.array([nnls(H.T, x)[1] / np.linalg.norm(x) for x in counts]).round(5)
    expected = considered[-1]
    for k in considered[-2::-1]:
        p = ranksums(errors[k], errors[considered[-1]]).pvalue
        if k == 1 or (p < 0.05 and np.median(errors[k]) > np.median(errors[considered[-1]])):
            break
        expected = k
    assert found.recommended == expected == 4
    assert f"{100 * np.median(errors[considered[-1]]):.2f} %" in found.reasons[0]
    assert search([5, 6], criterion="sigprofiler").reasons == ["no k is stable"]
    # Samples without mutations have no relative error.
    planted = rng.poisson(rng.gamma(1, 300, (30, 3)) @ rng.dirichlet(np.full(96, 0.1), 3)).astype(float)
    planted[:16] = 0
    for kept in (planted, planted[16:]):
        found = choose_k(kept, range(1, 4), 4, beta_loss="kullback-leibler", criterion="sigprofiler")
        assert found.recommended == 3 and "100.00" not in found.reasons[0], found.reasons


def test_the_criterion_is_checked(blocks):
    with pytest.raises(ValueError, match="criterion sigprofiler: is for counts.*beta_loss"):
        choose_k(blocks, [2], 2, criterion="sigprofiler")
    with pytest.raises(ValueError, match="criterion=.elbow.: must be 'sigprofiler' or None"):
        choose_k(blocks, [2], 2, criterion="elbow")


def test_what_cannot_be_resampled_is_refused(blocks):
    with pytest.raises(ValueError, match="only counts"):
        choose_k(blocks, [2], 2, resample="poisson")
    with pytest.raises(ValueError, match="multinomial"):
        choose_k(np.round(blocks), [2], 2, resample="bootstrap")
