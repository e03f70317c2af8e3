"""fednmf.tl.cnmf: its files and its programmes beside those of the cnmf package, where that is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, nnls

import fednmf
from fednmf import _cells, _cnmf, _losses, _nmf, _parts, _run

pd = pytest.importorskip("pandas")
anndata = pytest.importorskip("anndata")

KS, RUNS, GENES = [4, 5], 12, 120


def planted_cells(form=sp.csr_matrix):
    """Counts of 300 cells with five programmes of twenty genes, and the programmes (5 x 200)."""
    rng = np.random.default_rng(8)
    programs = np.full((5, 200), 0.3)
    for i in range(5):
        programs[i, 20 * i : 20 * (i + 1)] = rng.gamma(2, 3, 20)
    usages = rng.dirichlet(np.full(5, 0.3), 300) * 3
    adata = anndata.AnnData(form(rng.poisson(usages @ programs).astype(np.float32)))
    adata.obs_names = [f"cell{i}" for i in range(300)]
    adata.var_names = [f"gene{i}" for i in range(200)]
    return adata, programs


@pytest.fixture(scope="module")
def cells():
    return planted_cells()


@pytest.fixture(scope="module")
def ours(cells, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    found = fednmf.tl.cnmf(
        cells[0], KS, name="ours", output_dir=folder, n_iter=RUNS, num_highvar_genes=GENES, random_state=3
    )
    return folder, found


def read(path):
    with np.load(path, allow_pickle=True) as f:
        return pd.DataFrame(**f)


def matched(a, b):
    """The correlation of each row of a with its row of b."""
    correlation = np.corrcoef(a, b)[: len(a), len(a) :]
    rows, columns = linear_sum_assignment(-correlation)
    return correlation[rows, columns]


def test_planted_programmes_are_found(cells, ours):
    adata, programs = cells
    found = ours[1][5]
    assert matched(found.gene_spectra_tpm.to_numpy(), programs).min() > 0.9
    # The genes with the largest scores mark the programme.
    marked = [set(np.argsort(-row)[:10] // 20) for row in found.gene_spectra_score.to_numpy()]
    assert sorted(min(m) for m in marked) == [0, 1, 2, 3, 4] and all(len(m) == 1 for m in marked)
    assert ours[1][5].silhouette > 0.8 and ours[1][5].prediction_error < ours[1][4].prediction_error
    shares = found.usages.div(found.usages.sum(axis=1), axis=0).sum()
    assert list(found.usages.columns) == [1, 2, 3, 4, 5] and shares.iloc[0] == shares.max()
    np.testing.assert_allclose(found.spectra.sum(axis=1), 1)


def test_plots_and_tables_call_programmes_as_their_tables_do(cells, ours):
    pytest.importorskip("matplotlib").use("Agg")
    adata, found = cells[0], ours[1][5]
    assert fednmf.tl.top_features(found, 1)["component"].tolist() == [1, 2, 3, 4, 5]
    assert [ax.get_title() for ax in fednmf.pl.top_features(found, 2)] == [f"component {i}" for i in range(1, 6)]
    ax = fednmf.pl.usage(found, np.arange(adata.n_obs) % 2)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3", "4", "5"]
    shares = found.usages.div(found.usages.sum(axis=1), axis=0).to_numpy()
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array())[0], shares[::2].mean(axis=0))


def test_usages_and_spectra_are_those_of_the_definition(cells, ours):
    adata, found = cells[0], ours[1][5]
    tpm = adata.X.toarray() / adata.X.toarray().sum(axis=1, keepdims=True) * 1e6
    places = adata.var_names.get_indexer(found.spectra.columns)
    std = tpm.std(axis=0)
    # The last refit of the usages.
    H = (found.gene_spectra_tpm.to_numpy() / np.where(std > 0, std, 1))[:, places]
    X = tpm[:, places] / np.where(std > 0, tpm.std(axis=0, ddof=1), 1)[places]
    expected = np.array([nnls(H.T, x)[0] for x in X[:10]])
    np.testing.assert_allclose(found.usages.to_numpy()[:10], expected, rtol=1e-3, atol=1e-4 * expected.max())
    # The clusters, from the spectra of the runs alone.
    with np.load(ours[0] / "ours" / "cnmf_tmp" / "ours.spectra.k_5.merged.df.npz", allow_pickle=True) as f:
        merged = pd.DataFrame(**f)
    assert merged.index[7] == "iter1_topic3" and merged.shape == (5 * RUNS, GENES)
    spectra = merged.to_numpy(float)
    spectra /= np.linalg.norm(spectra, axis=1, keepdims=True)
    distances = np.sqrt(np.maximum(2 - 2 * spectra @ spectra.T, 0))
    nearest = np.sort(distances, axis=1)[:, 1 : 1 + int(0.3 * RUNS)].mean(axis=1)
    np.testing.assert_allclose(found.local_density["local_density"], nearest, atol=1e-6)
    medians, kept = found.spectra.to_numpy(), spectra[nearest < 0.5]
    label = np.argmax(kept @ (medians / np.linalg.norm(medians, axis=1, keepdims=True)).T, axis=1)
    for i, row in enumerate(medians):
        median = np.median(kept[label == i], axis=0)
        np.testing.assert_allclose(row, median / median.sum(), rtol=1e-6, atol=1e-9)


def test_the_form_of_the_counts_does_not_matter(cells, ours, tmp_path):
    dense = planted_cells(np.asarray)[0]
    found = fednmf.tl.cnmf(
        dense, [5], name="dense", output_dir=tmp_path, n_iter=RUNS, num_highvar_genes=GENES, random_state=3
    )
    assert set(found[5].spectra.columns) == set(ours[1][5].spectra.columns)
    assert matched(found[5].gene_spectra_tpm.to_numpy(), ours[1][5].gene_spectra_tpm.to_numpy()).min() > 0.999


@pytest.mark.parametrize("form", ["backed", "backed, dense", "dask"])
def test_counts_in_a_file_have_the_programmes_of_those_in_memory(cells, ours, tmp_path, monkeypatch, form):
    monkeypatch.setattr(_parts, "_PANEL", 20_000)
    adata = planted_cells(np.asarray)[0] if form == "backed, dense" else cells[0].copy()
    if form == "dask":
        adata.X = pytest.importorskip("dask.array").from_array(adata.X.toarray(), chunks=(32, 200))
    else:
        adata.write_h5ad(tmp_path / "cells.h5ad", compression="gzip")
        adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    found = fednmf.tl.cnmf(
        adata, KS, name="ours", output_dir=tmp_path, n_iter=RUNS, num_highvar_genes=GENES, random_state=3
    )
    names = sorted(path.relative_to(ours[0]) for path in ours[0].rglob("*.*"))
    assert names == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("ours*.*"))
    for name in ("usages", "spectra", "gene_spectra_tpm", "gene_spectra_score"):
        expected = getattr(ours[1][5], name)
        # Dense counts are summed in another order, and a run may stop elsewhere.
        np.testing.assert_allclose(getattr(found[5], name), expected, rtol=1e-3, atol=5e-3 * expected.to_numpy().max())
    tpm = [anndata.read_h5ad(folder / "ours/cnmf_tmp/ours.tpm.h5ad") for folder in (tmp_path, ours[0])]
    assert list(tpm[0].obs_names) == list(tpm[1].obs_names) and list(tpm[0].var_names) == list(tpm[1].var_names)
    np.testing.assert_allclose(*[of.X.toarray() if sp.issparse(of.X) else of.X for of in tpm], rtol=1e-6)


@pytest.mark.parametrize("form", [lambda X: np.asarray(X, np.float16), np.asarray, sp.csc_matrix, None])
def test_statistics_of_columns_do_not_depend_on_the_form(form):
    X = np.random.default_rng(0).poisson(0.7, (60, 30)).astype(np.float64)
    whole = sp.csr_matrix(X)
    by_row = np.argsort(np.tile(np.repeat(np.arange(60), np.diff(whole.indptr)), 2), kind="stable")
    # Each entry twice, with half of its value.
    halves = sp.csr_matrix((np.tile(whole.data, 2)[by_row] / 2, np.tile(whole.indices, 2)[by_row], 2 * whole.indptr), shape=X.shape)
    mean, std = _cells.Matrix(halves if form is None else form(X), "X").mean_and_std(1)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(std, X.std(axis=0, ddof=1), rtol=1e-6)


@pytest.mark.parametrize("loss", ["kullback-leibler", 1.5])
def test_the_divergence_and_given_genes(cells, tmp_path, loss):
    adata = cells[0][:, :100].copy()
    genes = list(adata.var_names[::-1])
    found = fednmf.tl.cnmf(
        adata, [5], name="kl", output_dir=tmp_path, n_iter=4, genes=genes, beta_loss=loss, max_iter=200, random_state=2
    )
    assert list(found[5].spectra.columns) == genes
    assert matched(found[5].gene_spectra_tpm.to_numpy(), cells[1][:, :100]).min() > 0.9
    # Programmes come from normalised medians, and usages for them minimise the loss.
    prepared = _cells.Cells(adata, None, None, GENES, genes)
    medians = found[5].spectra.to_numpy()
    of_medians = _cnmf._refit(prepared.normalized, medians, {"beta_loss": loss, "n_jobs": None})
    beta = _nmf.checked_loss(loss)
    least = _losses.divergence(prepared.normalized, of_medians, medians, beta)
    by_squares = _run.project(prepared.normalized, medians)
    assert least < _losses.divergence(prepared.normalized, by_squares, medians, beta)


def test_a_gene_without_deviation_leaves_no_infinite_number(cells, tmp_path):
    adata = cells[0][:, :100].copy()
    tpm = adata.copy()
    X = tpm.X.toarray()
    X[:, 3] = 0.1  # The mean of these is not exactly 0.1.
    tpm.X = X
    fednmf.tl.cnmf(adata, [5], name="even", output_dir=tmp_path, n_iter=4, genes=list(adata.var_names), tpm=tpm)
    written = sorted((tmp_path / "even").glob("even.*k_5*.txt"))
    assert any("starcat" in path.name for path in written)
    for path in written:
        table = pd.read_csv(path, sep="\t", index_col=0)
        assert np.isfinite(table.to_numpy()).all() and table.to_numpy().max() < 1e9, path.name
    assert (pd.read_csv(next(p for p in written if "starcat" in p.name), sep="\t", index_col=0)["gene3"] == 0).all()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"ks": []}, "ks is empty"),
        ({"n_iter": 3}, "n_iter=3: local_neighborhood_size=0.3"),
        ({"ks": [121]}, "121 components are more"),
        ({"density_threshold": 0.0}, "k = 3: 0 of 12 spectra have a local density below 0.0"),
        ({"genes": ["gene3", "gene777"]}, "adata has no 'gene777'"),
        ({"genes": ["gene150"]}, "cells have no count in the genes"),
        ({"beta_loss": "mse"}, "beta_loss='mse'"),
        ({"beta_loss": "itakura-saito"}, "zero"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"name": ".."}, "name='..'"),
        ({"genes": "gene3"}, "must be a list"),
        ({"genes": ["gene3", "gene4", "gene3"]}, "'gene3' is there twice"),
        ({"local_neighborhood_size": 5.0}, "must be a share below 1"),
    ],
)
def test_what_is_wrong_is_named(cells, tmp_path, params, message):
    settings = {"ks": [3], "name": "x", "n_iter": 4, "num_highvar_genes": GENES, **params}
    with pytest.raises(ValueError, match=message):
        fednmf.tl.cnmf(cells[0], output_dir=tmp_path, **settings)


def test_a_layer_has_the_programmes_of_x_and_other_annotations_are_not_written(cells, ours, tmp_path):
    import anndata

    adata = anndata.AnnData(cells[0].X * 2, obs=cells[0].obs.copy(), var=cells[0].var.copy(), layers={"counts": cells[0].X})
    adata.obs["of any type"] = [None, 1, "two"] * (adata.n_obs // 3) + [{}] * (adata.n_obs % 3)
    settings = {"name": "x", "output_dir": tmp_path, "n_iter": 4, "num_highvar_genes": GENES, "random_state": 0}
    layer = fednmf.tl.cnmf(adata, [3], layer="counts", **settings)[3]
    same = fednmf.tl.cnmf(cells[0], [3], **settings)[3]
    np.testing.assert_allclose(layer.gene_spectra_tpm, same.gene_spectra_tpm, rtol=1e-6)
    with pytest.raises(ValueError, match="no such layer"):
        fednmf.tl.cnmf(adata, [3], layer="spliced", **settings)


def test_files_of_others_are_not_replaced(cells, tmp_path):
    settings = {"ks": [3], "output_dir": tmp_path, "n_iter": 4, "num_highvar_genes": GENES, "random_state": 0}
    for sub, name in [("", "a"), ("cnmf_tmp", "b")]:
        theirs = tmp_path / name / sub / f"{name}.overdispersed_genes.txt"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("theirs")
        with pytest.raises(FileExistsError, match="overdispersed_genes.txt is not of a run of fednmf.tl.cnmf"):
            fednmf.tl.cnmf(cells[0], name=name, **settings)
        assert theirs.read_text() == "theirs"
    for _ in range(2):
        fednmf.tl.cnmf(cells[0], name="own", **settings)


def test_negative_counts_are_refused(cells, tmp_path):
    adata = cells[0].copy()
    adata.X = adata.X.toarray() - 1
    with pytest.raises(ValueError, match="raw counts"):
        fednmf.tl.cnmf(adata, [3], name="x", output_dir=tmp_path)


@pytest.fixture(scope="module")
def package():
    return pytest.importorskip("cnmf", reason="cnmf is not installed")


@pytest.mark.filterwarnings("ignore")
def test_the_files_are_those_of_cnmf(package, cells, ours, tmp_path):
    path = tmp_path / "cells.h5ad"
    cells[0].write_h5ad(path)
    theirs = package.cNMF(output_dir=str(tmp_path), name="theirs")
    theirs.prepare(str(path), components=KS, n_iter=RUNS, num_highvar_genes=GENES, seed=3)
    theirs.factorize()
    theirs.combine()
    theirs.k_selection_plot(close_fig=True)
    for k in KS:
        theirs.consensus(k, density_threshold=0.5, show_clustering=False)

    folder, found = ours
    our_files, their_files = (
        {str(path.relative_to(root / name)).replace(name, "") for path in (root / name).rglob("*.*")}
        for root, name in ((folder, "ours"), (tmp_path, "theirs"))
    )
    assert our_files == {name for name in their_files if not name.endswith(".png")}

    reader = package.cNMF(output_dir=str(folder), name="ours")
    for k in KS:
        usage, scores, tpm, top = reader.load_results(K=k, density_threshold=0.5)
        their_usage, their_scores, their_tpm, _ = theirs.load_results(K=k, density_threshold=0.5)
        assert (usage.index == their_usage.index).all() and (tpm.index == their_tpm.index).all()
        np.testing.assert_allclose(scores.to_numpy().T, found[k].gene_spectra_score, rtol=1e-9)
        if k == 5:
            for a, b in ((tpm, their_tpm), (scores, their_scores), (usage, their_usage)):
                assert matched(a.to_numpy().T, b.to_numpy().T).min() > 0.99
    assert Path(folder, "ours", "ours.overdispersed_genes.txt").read_text() == Path(
        tmp_path, "theirs", "theirs.overdispersed_genes.txt"
    ).read_text()

    # Its own steps go on from our files, and come to our numbers.
    from cnmf.cnmf import load_df_from_npz

    stats = load_df_from_npz(reader.paths["k_selection_stats"]).astype(float)
    reader.combine()
    reader.k_selection_plot(close_fig=True)
    again = load_df_from_npz(reader.paths["k_selection_stats"]).astype(float)
    np.testing.assert_allclose(stats["silhouette"], again["silhouette"], rtol=1e-6)
    np.testing.assert_allclose(stats["prediction_error"], again["prediction_error"], rtol=1e-3)
    before = found[5].gene_spectra_tpm.to_numpy()
    os.remove(reader.paths["local_density_cache"] % 5)
    reader.consensus(5, density_threshold=0.5, show_clustering=True, close_clustergram_fig=True)
    assert matched(reader.load_results(K=5, density_threshold=0.5)[2].to_numpy().T, before).min() > 0.9999


PROGRAM = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))


@pytest.mark.skipif(PROGRAM is None, reason="needs the program")
@pytest.mark.parametrize("memory", [None, "450K"])
def test_the_program_has_the_same_programmes_from_files(cells, tmp_path, memory):
    adata = cells[0]
    fednmf.tl.cnmf(adata, KS, name="run", output_dir=tmp_path, n_iter=RUNS, num_highvar_genes=GENES, random_state=3)
    folder = tmp_path / "run"
    # All but what `cnmf prepare` leaves: the program replaces no results that it did not write.
    results = ["*.txt", "*.k_selection_stats.*", "cnmf_tmp/*spectra*", "cnmf_tmp/*usages*", "cnmf_tmp/*density*"]
    for file in [file for pattern in results for file in folder.glob(pattern)]:
        file.unlink()
    line = f"sweep --k {KS[0]}..{KS[-1]} --runs {RUNS} --holdout 0 --max-iters 300 --cnmf {folder} --output {tmp_path / 'sweep'}"
    words = line.split() + ["--input", str(folder / "cnmf_tmp" / "run.norm_counts.h5ad")]
    words += [] if memory is None else ["--memory", memory]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("are read from the file" in done.stderr) == (memory is not None), done.stderr

    prepared = _cells.Cells(adata, None, None, GENES, None)
    settings = {"beta_loss": "frobenius", "n_jobs": None}
    for k in KS:
        frames = [read(folder / "cnmf_tmp" / f"run.spectra.k_{k}.iter_{run}.df.npz") for run in range(RUNS)]
        expected = _cnmf._consensus(prepared, pd.concat(frames), k, int(0.3 * RUNS), 0.5, settings)
        label = f"k_{k}.dt_0_5"
        stats = read(folder / "run.k_selection_stats.df.npz").set_index("k").loc[k]
        assert stats["silhouette"] == pytest.approx(expected.silhouette, abs=1e-6)
        assert stats["prediction_error"] == pytest.approx(expected.prediction_error, rel=1e-5)
        if k != 5:
            # With too few programmes k-means has several nearly equal minima.
            continue
        for kind, frame in [
            (f"spectra.{label}.consensus", expected.spectra),
            (f"usages.{label}.consensus", expected.usages),
            (f"gene_spectra_tpm.{label}", expected.gene_spectra_tpm),
            (f"gene_spectra_score.{label}", expected.gene_spectra_score),
        ]:
            text = pd.read_csv(folder / f"run.{kind}.txt", sep="\t", index_col=0, float_precision="round_trip")
            table = read(folder / "cnmf_tmp" / f"run.{kind}.df.npz")
            np.testing.assert_array_equal(text.to_numpy(), table.to_numpy())
            assert [str(name) for name in table.columns] == list(text.columns) == [str(name) for name in frame.columns]
            assert list(table.index) == list(text.index) == list(frame.index)
            # The transcripts per million are float32, and so are Python's products with them.
            scale = np.abs(frame.to_numpy()).max()
            np.testing.assert_allclose(table.to_numpy(), frame.to_numpy(), atol=2e-3 * scale, err_msg=kind)


def test_transcripts_of_an_earlier_run_are_read_and_replaced(cells, tmp_path):
    options = {"ks": [3], "name": "e", "output_dir": tmp_path, "n_iter": 8, "num_highvar_genes": GENES, "random_state": 0}
    first = fednmf.tl.cnmf(cells[0], **options)
    path = tmp_path / "e/cnmf_tmp/e.tpm.h5ad"
    again = fednmf.tl.cnmf(cells[0], tpm=anndata.read_h5ad(path, backed="r"), **options)
    pd.testing.assert_frame_equal(again[3].gene_spectra_tpm, first[3].gene_spectra_tpm, rtol=1e-6)
    assert anndata.read_h5ad(path).X.shape == cells[0].shape
    assert not list(tmp_path.rglob("*.part.*"))
