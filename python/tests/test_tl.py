"""fednmf.tl: factors in AnnData."""

import os
import shutil
import subprocess
import warnings

import numpy as np
import pandas
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import fednmf
from fednmf import _annotated, _parts

anndata = pytest.importorskip("anndata")


@pytest.fixture
def cells():
    rng = np.random.default_rng(4)
    X = rng.poisson(rng.gamma(1, 1, (90, 3)) @ rng.gamma(1, 1, (3, 40))).astype(np.float32)
    adata = anndata.AnnData(sp.csr_matrix(X))
    adata.obs_names = [f"cell{i}" for i in range(90)]
    adata.var_names = [f"gene{i}" for i in range(40)]
    adata.layers["log"] = adata.X.log1p()
    return adata


def test_factors_are_stored_and_written(cells, tmp_path):
    assert fednmf.tl.nmf(cells, 3) is None
    W, V = cells.obsm["X_nmf"], cells.varm["NMF"]
    assert W.shape == (90, 3) and V.shape == (40, 3) and W.dtype == np.float32
    error = np.linalg.norm(cells.X.toarray() - W @ V.T)
    assert cells.uns["nmf"]["reconstruction_err"] == pytest.approx(error, rel=1e-3)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert again.uns["nmf"]["params"]["n_components"] == 3 and again.uns["nmf"]["version"] == fednmf.__version__


def test_layers_and_highly_variable_genes(cells):
    cells.var["highly_variable"] = np.arange(40) < 25
    with pytest.warns(UserWarning, match="25 of 40 genes are marked as highly variable, and these alone are used"):
        fednmf.tl.nmf(cells, 3, layer="log")
    V = cells.varm["NMF"]
    assert V[:25].any(axis=1).all() and not V[25:].any()
    assert cells.uns["nmf"]["params"]["layer"] == "log"
    other = fednmf.tl.nmf(cells, 3, use_highly_variable=False, copy=True)
    assert other.varm["NMF"][25:].any() and not cells.varm["NMF"][25:].any()


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_new_cells_get_weights_by_the_names_of_genes(cells, loss):
    fednmf.tl.nmf(cells, 3, beta_loss=loss, max_iter=1000)
    new = cells[:20, ::-1].copy()
    del new.obsm["X_nmf"]
    fednmf.tl.project(new, cells)
    tolerance = 1e-3 if loss == "frobenius" else 0.1
    np.testing.assert_allclose(new.obsm["X_nmf"], cells.obsm["X_nmf"][:20], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1])
def test_components_that_are_no_weights_are_refused(cells, wrong):
    fednmf.tl.nmf(cells, 3)
    cells.varm["NMF"][4, 1] = wrong
    with pytest.raises(ValueError, match="not finite numbers of at least 0"):
        fednmf.tl.project(cells[:9].copy(), cells)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_genes_that_new_cells_lack_are_left_out_of_the_fit(cells, loss):
    fednmf.tl.nmf(cells, 3, beta_loss=loss, max_iter=1000)
    X = cells.X[:20, 5:].toarray()
    new = anndata.AnnData(sp.csr_matrix(np.hstack([X[:, :2], X])))
    new.var_names = ["other", "another", *cells.var_names[5:]]
    other = new[:, :2].copy()
    weights = cells.varm["NMF"].astype(np.float64)
    shares = weights[:5].sum(axis=0) / weights.sum(axis=0)
    next_one = f"and at most {100 * np.sort(shares)[-2]:.1f} % of that of any other"
    share = f"they carry {100 * shares.max():.1f} % of the weight of component {shares.argmax()}, {next_one}"
    with pytest.warns(UserWarning, match=f"5 of the 40 genes of the components are missing .*{share}.* 2 genes of adata"):
        fednmf.tl.project(new, cells)
    W, H = new.obsm["X_nmf"], cells.varm["NMF"][5:].T
    # No weight can be changed for the better: the conditions of Karush, Kuhn and Tucker on the common genes.
    fit = W @ H
    slope = (fit - X if loss == "frobenius" else 1 - X / np.maximum(fit, 1e-30)) @ H.T
    size = np.abs(X @ H.T).max() if loss == "frobenius" else H.sum()
    assert slope.min() > -1e-3 * size and np.abs(slope * W).max() < 1e-2 * size * W.max()
    with pytest.raises(ValueError, match="has none of the 40 genes of the components: gene0, ..."):
        fednmf.tl.project(other, cells)


def test_marks_of_genes_are_truth_values(cells):
    marks = np.arange(40) < 25
    for same in (marks, marks.astype(int), marks.astype(float), marks.astype(object)):
        cells.var["highly_variable"] = same
        fednmf.tl.nmf(cells, 3, use_highly_variable=True)
        assert np.array_equal(cells.varm["NMF"].any(axis=1), marks)
    missing = marks.astype(float)
    missing[3] = np.nan
    cells.var["highly_variable"] = np.where(marks, "True", "False")
    fednmf.tl.nmf(cells, 3, use_highly_variable=True)
    assert np.array_equal(cells.varm["NMF"].any(axis=1), marks)
    for wrong, shown in ((np.where(marks, "yes", "no"), "yes"), (missing, "nan"), (marks * 2, "2")):
        cells.var["highly_variable"] = wrong
        with pytest.raises(ValueError, match=f"highly_variable.*{shown}.*neither True nor False"):
            fednmf.tl.nmf(cells, 3)
    fednmf.tl.nmf(cells, 3, use_highly_variable=False)


def test_the_layer_is_that_of_the_reference(cells):
    reference = cells.copy()
    reference.layers["twice"] = 2 * reference.X
    fednmf.tl.nmf(reference, 3, layer="twice", random_state=0)
    weights = reference.obsm["X_nmf"].copy()
    fednmf.tl.project(reference, reference)
    np.testing.assert_allclose(reference.obsm["X_nmf"], weights, rtol=1e-4, atol=1e-4 * weights.max())
    without = cells.copy()
    with pytest.warns(UserWarning, match="its layer 'twice', which adata lacks"):
        fednmf.tl.project(without, reference)
    fednmf.tl.project(reference, reference, layer="X")
    np.testing.assert_allclose(reference.obsm["X_nmf"], without.obsm["X_nmf"], rtol=1e-6)


def test_genes_that_the_reference_lacks_are_named(cells):
    fednmf.tl.nmf(cells, 3)
    new = anndata.AnnData(sp.hstack([cells.X[:20], cells.X[:20, :2]], format="csr"))
    new.var_names = [*cells.var_names, "other", "another"]
    with pytest.warns(UserWarning, match="^2 genes of adata are not in the reference"):
        fednmf.tl.project(new, cells)


def in_parts(cells, how, folder):
    """The same cells, whose matrix is not in memory."""
    if how == "backed":
        cells.write_h5ad(folder / "cells.h5ad", compression="gzip")
        return anndata.read_h5ad(folder / "cells.h5ad", backed="r")
    if how == "backed, dense":
        dense = anndata.AnnData(cells.X.toarray(), obs=cells.obs.copy(), var=cells.var.copy())
        dense.write_h5ad(folder / "dense.h5ad")
        return anndata.read_h5ad(folder / "dense.h5ad", backed="r")
    other = anndata.AnnData(cells.X, obs=cells.obs.copy(), var=cells.var.copy())
    if how == "dask":
        array = pytest.importorskip("dask.array")
        other.X = array.from_array(cells.X.toarray(), chunks=(32, 40))
    elif how == "h5py":
        h5py = pytest.importorskip("h5py")
        h5py.File(folder / "x.h5", "w").create_dataset("x", data=cells.X.toarray(), chunks=(7, 40), compression="gzip")
        other.layers["x"] = h5py.File(folder / "x.h5")["x"]
    else:
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(str(folder / "x.zarr"), shape=cells.shape, chunks=(20, 40), dtype="f4")
        array[:] = cells.X.toarray()
        other.layers["x"] = array
    return other


@pytest.fixture(params=["backed", "backed, dense", "dask", "h5py", "zarr"])
def both(cells, request, tmp_path, monkeypatch):
    """Cells in memory, and the same in parts of few rows; and the layer of the latter."""
    monkeypatch.setattr(_parts, "_PANEL", 1500)
    cells.var["highly_variable"] = np.arange(40) % 3 > 0
    other = in_parts(cells, request.param, tmp_path)
    layer = "x" if request.param in ("h5py", "zarr") else None
    assert 4 < len(list(_annotated.of_genes(other, layer, None).slices())) < 90 or request.param == "dask"
    return cells, other, layer


@pytest.mark.parametrize("genes", [True, False])
@pytest.mark.parametrize("params", [{"solver": "cd"}, {"beta_loss": "kullback-leibler", "solver": "mu", "init": "random"}])
def test_a_matrix_that_is_read_in_parts_has_the_factors_of_one_in_memory(both, params, genes):
    cells, other, layer = both
    params = {"n_components": 3, "use_highly_variable": genes, "max_iter": 60, "tol": 0, **params}
    fednmf.tl.nmf(cells, **params)
    fednmf.tl.nmf(other, layer=layer, **params)
    for name, place in (("X_nmf", "obsm"), ("NMF", "varm")):
        expected = getattr(cells, place)[name]
        np.testing.assert_allclose(getattr(other, place)[name], expected, rtol=2e-3, atol=1e-4 * expected.max())
    assert other.uns["nmf"]["reconstruction_err"] == pytest.approx(cells.uns["nmf"]["reconstruction_err"], rel=1e-5)
    # New cells in parts.
    expected = cells.obsm["X_nmf"]
    fednmf.tl.project(other, cells, layer=layer or "X")
    np.testing.assert_allclose(other.obsm["X_nmf"], expected, rtol=2e-3, atol=1e-4 * expected.max())


def test_the_number_of_components_is_that_of_a_matrix_in_memory(both):
    cells, other, layer = both
    search = {"ks": [2, 3, 4], "n_runs": 3, "use_highly_variable": False, "max_iter": 60}
    for more in ({}, {"method": "kl-mu"}):
        found = [fednmf.tl.choose_k(cells, holdout=0, **search, **more), fednmf.tl.choose_k(other, layer=layer, **search, **more)]
        assert found[0].recommended == found[1].recommended
        for name in ("rmse", "divergence", "silhouette"):
            np.testing.assert_allclose(found[1].column(name), found[0].column(name), rtol=1e-4)
        np.testing.assert_allclose(found[1].consensus.H, found[0].consensus.H, rtol=1e-3, atol=1e-4)
    for more, word in ({"holdout": 0.05}, "holdout"), ({"resample": "poisson"}, "resample"), ({"method": "kl-cd"}, "kl-cd"):
        with pytest.raises(ValueError, match=f"{word}.*in memory"):
            fednmf.tl.choose_k(other, layer=layer, **search, **more)


def test_samples_of_a_matrix_in_parts_are_factorised(cells, tmp_path):
    cells.obs["donor"] = np.repeat(["a", "b", "c"], 30)
    backed = in_parts(cells, "backed", tmp_path)
    tables = [fednmf.tl.spectra(of, ks=[2], sample_key="donor") for of in (cells, backed)]
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-6)


def test_what_needs_the_matrix_in_memory_says_so(cells, tmp_path):
    def directory(name):
        (tmp_path / name).mkdir()
        return tmp_path / name

    backed = in_parts(cells, "backed", tmp_path)
    for call in (
        lambda: fednmf.tl.nmf(backed, 3, beta_loss=0.5),
        lambda: fednmf.tl.cnmf(backed, [2], name="x", output_dir=tmp_path, beta_loss="kullback-leibler"),
        lambda: fednmf.federated([backed], n_components=2),
    ):
        with pytest.raises(ValueError, match=r"to_memory\(\)"):
            call()
    columns = cells.copy()
    columns.X = columns.X.tocsc()
    with pytest.raises(ValueError, match="by columns.*CSR"):
        fednmf.tl.nmf(in_parts(columns, "backed", directory("columns")), 3)
    negative = cells.copy()
    negative.X[80, 3] = -1
    with pytest.raises(ValueError, match="adata.X has negative entries"):
        fednmf.tl.nmf(in_parts(negative, "backed", directory("negative")), 3)


def test_a_part_of_a_file_cannot_hold_results(cells, tmp_path):
    fednmf.tl.nmf(cells, 2, max_iter=5)
    part = in_parts(cells, "backed", tmp_path)[::2]
    calls = (lambda: fednmf.tl.nmf(part, 2), lambda: fednmf.tl.project(part, cells), lambda: fednmf.tl.choose_k(part, [2]))
    for call in calls:
        with pytest.raises(ValueError, match=r"cannot hold results.*to_memory\(\)"):
            call()


def test_chunks_of_dask_may_be_dense_or_sparse(cells):
    dask = pytest.importorskip("dask.array")
    anndata = pytest.importorskip("anndata")
    X = cells.X.toarray() if sp.issparse(cells.X) else np.asarray(cells.X)
    whole = dask.from_array(X, chunks=(30, X.shape[1]))
    half = 30 * (len(X) // 60)
    mixed = anndata.AnnData(dask.concatenate([whole[:half], whole[half:].map_blocks(sp.csr_matrix)]))
    fednmf.tl.nmf(mixed, 3, init="random")
    same = anndata.AnnData(sp.csr_matrix(X))
    fednmf.tl.nmf(same, 3, init="random", solver="cd")
    assert mixed.uns["nmf"]["reconstruction_err"] == pytest.approx(same.uns["nmf"]["reconstruction_err"], rel=0.02)


def test_what_is_no_annotated_matrix_is_refused(cells):
    class Modalities:
        mod = {"rna": cells, "prot": cells}
        obs_names, var_names, obsm, is_view = cells.obs_names, cells.var_names, cells.obsm, False

    for call in (fednmf.tl.nmf, fednmf.tl.choose_k):
        with pytest.raises(ValueError, match=r"mdata\['rna'\]"):
            call(Modalities(), [2, 3])
    with pytest.raises(TypeError, match="must be an AnnData, not ndarray"):
        fednmf.tl.nmf(np.ones((4, 3)), 2)


def test_an_annotated_matrix_without_cells_is_refused(cells):
    dask = pytest.importorskip("dask.array")
    anndata = pytest.importorskip("anndata")
    none = anndata.AnnData(dask.zeros((0, cells.n_vars), chunks=(5, cells.n_vars)), var=cells.var.copy())
    for call in (lambda: fednmf.tl.nmf(none, 2), lambda: fednmf.tl.choose_k(none, [2])):
        with pytest.raises(ValueError, match="empty: 0 rows"):
            call()


def test_genes_and_antibodies_are_not_factorised_together(cells, tmp_path):
    cells.var["feature_types"] = ["Gene Expression"] * 35 + ["Antibody Capture"] * 5
    for call in (
        lambda: fednmf.tl.nmf(cells, 3),
        lambda: fednmf.tl.choose_k(cells, [2, 3]),
        lambda: fednmf.tl.cnmf(cells, [2], name="x", output_dir=tmp_path),
        lambda: fednmf.federated([cells[:45], cells[45:]], n_components=2),
        lambda: fednmf.MiniBatchNMF(2).fit(cells),
    ):
        with pytest.raises(ValueError, match=r"Gene Expression \(35\), Antibody Capture \(5\); choose one"):
            call()
    genes = cells[:, cells.var["feature_types"] == "Gene Expression"].copy()
    fednmf.tl.nmf(genes, 3, max_iter=5)
    # Those that are used have one type.
    cells.var["highly_variable"] = np.arange(40) < 20
    fednmf.tl.nmf(cells, 3, use_highly_variable=True, max_iter=5)
    fednmf.tl.project(cells, genes)


def test_what_goes_wrong_while_rows_are_read_is_raised(cells, monkeypatch):
    class Failing:
        shape, dtype = cells.shape, cells.X.dtype

        def __init__(self):
            self.reads = 0

        def __getitem__(self, rows):
            self.reads += 1
            if self.reads > 40:
                raise OSError("the disk is gone")
            return cells.X[rows].toarray()

    monkeypatch.setattr(_parts, "_PANEL", 1500)
    before = dict(cells.uns)
    with pytest.raises(OSError, match="the disk is gone"):
        fednmf.NMF(3, solver="cd", max_iter=1000).fit(_parts.Parts(Failing(), "X"))
    assert dict(cells.uns) == before


def test_what_does_not_exist_is_named(cells):
    with pytest.raises(ValueError, match="layer='counts': adata has no such layer; it has log"):
        fednmf.tl.nmf(cells, 3, layer="counts")
    with pytest.raises(ValueError, match="no 'highly_variable'"):
        fednmf.tl.nmf(cells, 3, use_highly_variable=True)
    with pytest.raises(ValueError, match="no components"):
        fednmf.tl.project(cells, cells)
    cells.varm["NMF"] = np.ones((40, 2))
    with pytest.raises(ValueError, match=r"no uns\['nmf'\], which tells the loss"):
        fednmf.tl.project(cells, cells)
    with pytest.warns(UserWarning, match="90 cells and 40 genes determine at most 40 components"):
        fednmf.tl.nmf(cells, 41, max_iter=5)
    cells.layers["gap"] = cells.X.toarray()
    cells.layers["gap"][3, 4] = np.nan
    with pytest.raises(ValueError, match="layer 'gap' has NaN"):
        fednmf.tl.nmf(cells, 3, layer="gap")
    cells.X = -cells.X
    with pytest.raises(ValueError, match="negative entries"):
        fednmf.tl.nmf(cells, 3)


def test_logarithms_are_not_projected_on_components_of_counts_in_silence(cells):
    fednmf.tl.nmf(cells, 3, beta_loss="kullback-leibler", max_iter=1000)
    with pytest.warns(UserWarning, match="the Kullback-Leibler divergence is for counts, and layer 'log' looks like logarithms"):
        fednmf.tl.project(cells[:40].copy(), cells, layer="log")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fednmf.tl.project(cells[:40].copy(), cells)


@pytest.mark.parametrize(
    "words",
    [
        ["--algo=bpp"],
        ["--algo=kl-mu"],
        ["--algo=beta-mu", "--beta=1.5"],
        ["--algo=bpp", "--scale=max"],
        ["--algo=bpp", "--alpha-u=0.001", "--alpha-v=0.001", "--l1-ratio=0.5", "--scale=max"],
    ],
)
@pytest.mark.parametrize("option", ["--output", "--add-to"])
def test_new_cells_get_weights_for_the_components_of_the_program(cells, words, option, tmp_path):
    program = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
    if program is None:
        pytest.skip("needs the program fednmf")
    source, reference = tmp_path / "cells.h5ad", tmp_path / "reference.h5ad"
    cells.write_h5ad(source)
    if option == "--add-to":
        cells.write_h5ad(reference)
    matrix = source if option == "--add-to" else f"{source}:layers/log"
    command = [program, "--input", matrix, "-k", "3", "--max-iters", "1000", option, reference, *words]
    subprocess.run(command, check=True, capture_output=True)
    new = cells[:20, ::-1].copy()
    fednmf.tl.project(new, anndata.read_h5ad(reference))
    subprocess.run([program, "project", reference, "--input", matrix, "--add-to", source], check=True, capture_output=True)
    expected = anndata.read_h5ad(source).obsm["X_nmf"][:20]
    np.testing.assert_allclose(new.obsm["X_nmf"], expected, rtol=1e-3, atol=1e-4 * expected.max())


def test_cells_that_were_projected_are_a_reference_like_the_first(cells, tmp_path):
    program = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
    if program is None:
        pytest.skip("needs the program fednmf")
    rng = np.random.default_rng(5)
    wide = anndata.AnnData(rng.poisson(1.0, (20, 120)).astype(np.float32))
    wide.var_names = [f"gene{i}" for i in range(120)]
    fednmf.tl.nmf(cells, 3, alpha_W=0.1, l1_ratio=0.4, max_iter=2000, tol=1e-8)
    with pytest.warns(UserWarning, match="80 genes of adata are not in the reference"):
        fednmf.tl.project(wide, cells)
    wide.write_h5ad(tmp_path / "wide.h5ad")
    again, source, output = cells[:30].copy(), tmp_path / "cells.h5ad", tmp_path / "p.h5ad"
    again.write_h5ad(source)
    with pytest.warns(UserWarning, match="80 of the 120 genes of the components are missing"):
        fednmf.tl.project(again, wide)
    np.testing.assert_allclose(again.obsm["X_nmf"], cells.obsm["X_nmf"][:30], rtol=1e-3, atol=1e-4)
    command = [program, "project", tmp_path / "wide.h5ad", "--input", source, "--output", output]
    subprocess.run(command, check=True, capture_output=True)
    np.testing.assert_allclose(anndata.read_h5ad(output).obsm["X_nmf"], again.obsm["X_nmf"], rtol=1e-4, atol=1e-5)
    command = [program, "evaluate", tmp_path / "wide.h5ad", "--input", tmp_path / "wide.h5ad"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert "an earlier projection ignored 80 of these 120 columns" in told


@pytest.mark.parametrize("words", [["--missing=zero-unobserved"], ["--transpose"], ["--binarize=2"]])
def test_components_that_project_does_not_know_are_refused_with_the_cure(cells, words, tmp_path):
    program = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
    if program is None:
        pytest.skip("needs the program fednmf")
    source, reference = tmp_path / "cells.h5ad", tmp_path / "reference.h5ad"
    cells.write_h5ad(source)
    subprocess.run([program, "--input", source, "-k", "3", "--output", reference, *words], check=True, capture_output=True)
    with pytest.raises(ValueError, match="fednmf project"):
        fednmf.tl.project(cells, anndata.read_h5ad(reference))


def test_logarithms_are_no_counts_for_the_divergence(cells):
    logs = cells.copy()
    logs.X, logs.uns["log1p"] = logs.layers["log"], {}
    with pytest.warns(UserWarning, match="is for counts, and adata.X has logarithms"):
        fednmf.tl.nmf(logs, n_components=2, beta_loss="kl", max_iter=3, tol=0)
    with pytest.warns(UserWarning, match="is for counts, and adata.X has logarithms"):
        fednmf.tl.choose_k(logs, [2], n_runs=1, method="kl-cd", max_iter=3)
    for kind in (sp.csr_matrix, sp.csc_matrix, sp.csr_array, lambda X: X.toarray()):
        other = cells.copy()
        other.layers["log"] = kind(cells.layers["log"])
        with pytest.warns(UserWarning, match="is for counts, and layer 'log' looks like logarithms"):
            fednmf.tl.nmf(other, n_components=2, layer="log", beta_loss="kl", max_iter=3, tol=0)
    cells.layers["scaled"] = cells.X * 0.37
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        fednmf.tl.nmf(logs, n_components=2, max_iter=3)
        fednmf.tl.nmf(cells, n_components=2, beta_loss="kl", max_iter=3)
        fednmf.tl.nmf(cells, n_components=2, layer="scaled", beta_loss="kl", max_iter=3)


def _with_rare_genes(marked):
    """Cells with 20 genes of three programmes and 10 genes that a penalty makes zero; `marked` are highly variable."""
    rng = np.random.default_rng(1)
    V = np.zeros((3, 30))
    for component, first in enumerate((0, 6, 12)):
        V[component, first : first + 8] = rng.random(8) + 0.2
    X = rng.random((100, 3)) * (rng.random((100, 3)) < 0.6) @ V
    X[:, :20] += 0.02 * rng.random((100, 20))
    X[:, 20:] = 0.5 * (rng.random((100, 10)) < 0.03)
    adata = anndata.AnnData(X)
    adata.var_names = [f"gene{i}" for i in range(30)]
    adata.var["highly_variable"] = marked
    return adata


@pytest.mark.parametrize("marked", [np.ones(30, bool), np.arange(30) != 7], ids=["all", "some"])
def test_genes_whose_components_are_zero_count_for_the_size_of_a_cell(marked):
    cells = _with_rare_genes(marked)
    fednmf.tl.nmf(cells, 3, use_highly_variable=not marked.all(), alpha_W=0.003, l1_ratio=1.0)
    H = cells.varm["NMF"][marked].T
    assert (H == 0).all(axis=0).any()
    model = fednmf.NMF(3, alpha_W=0.003, l1_ratio=1.0).fit(cells.X[:, marked])
    model.components_ = np.ascontiguousarray(H)
    few = model.transform(cells.X[:, marked], min_gain=0.2)
    fednmf.tl.project(cells, cells, min_gain=0.2)
    np.testing.assert_allclose(cells.obsm["X_nmf"], few, atol=1e-9)


def test_results_that_are_no_reference_are_refused_with_the_cure(cells):
    with pytest.raises(TypeError, match="is a dict: give an AnnData that fednmf.tl.nmf has factorised"):
        fednmf.tl.project(cells, {})


def test_the_program_uses_the_loss_of_stored_components(tmp_path):
    """Weights of the same cells by the package and by the program."""
    program = os.environ.get("FEDNMF_BINARY")
    if not program:
        pytest.skip("FEDNMF_BINARY is not set")
    counts = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 2, (120, 30))).astype("float32")
    names = [f"g{j}" for j in range(30)]
    for params in ({}, {"beta_loss": "kullback-leibler"}, {"beta_loss": 1.5}, {"beta_loss": 1, "alpha_W": 0.01, "l1_ratio": 0.5}):
        old, new = (anndata.AnnData(part, var=pandas.DataFrame(index=names)) for part in (counts[:80], counts[80:]))
        fednmf.tl.nmf(old, 4, max_iter=500, **params)
        fednmf.tl.project(new, old)
        old.write(tmp_path / "old.h5ad")
        new.write(tmp_path / "new.h5ad")
        output = tmp_path / "new.npz"
        command = [program, "project", tmp_path / "old.h5ad", "--input", tmp_path / "new.h5ad", "--output", output, "--quiet"]
        subprocess.run(command, check=True, capture_output=True)
        np.testing.assert_allclose(np.load(output)["U"], new.obsm["X_nmf"], rtol=1e-3, atol=1e-4 * new.obsm["X_nmf"].max())
        output.unlink()
    # The program may replace what the package has stored, and refuses components of some genes.
    subprocess.run([program, tmp_path / "old.h5ad", "-k", "3", "-q", "--add-to", tmp_path / "old.h5ad"], check=True, capture_output=True)
    assert anndata.read_h5ad(tmp_path / "old.h5ad").obsm["X_nmf"].shape == (80, 3)
    old.var["highly_variable"] = np.arange(30) < 20
    fednmf.tl.nmf(old, 4, use_highly_variable=True, max_iter=500)
    old.write(tmp_path / "some.h5ad")
    refused = subprocess.run([program, "project", tmp_path / "some.h5ad", "--input", tmp_path / "new.h5ad"], capture_output=True, text=True)
    assert refused.returncode == 2 and "fednmf.tl.project" in refused.stderr
