"""`fednmf prepare` against scikit-learn and scanpy, of one owner and of three. FEDNMF_BINARY names the program, otherwise it is
looked for on the PATH."""

import os
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfTransformer

PROGRAM = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no program")

PARTS = [(0, 60), (60, 150), (150, 300)]


@pytest.fixture(scope="module")
def counts():
    """300 cells x 400 genes; 40 genes vary more than the others, and some are in few cells."""
    rng = np.random.default_rng(3)
    means = rng.lognormal(-0.5, 1.5, 400)
    groups = rng.integers(0, 4, 300)
    rates = np.tile(means, (300, 1)) * rng.lognormal(0, 0.4, (300, 1))
    for gene in range(40):
        rates[groups == gene % 4, gene] *= 6
    return pd.DataFrame(rng.poisson(rates), columns=[f"gene{j}" for j in range(400)]).rename(index="cell{}".format)


def prepared(counts, folder, words, parties=1):
    """The output of `prepare` for the counts of one owner, or of three in files with {party} in their names."""
    if parties == 1:
        names, parts = ["all"], [(0, len(counts))]
    else:
        names, parts = ["0", "1", "2"], PARTS
    for name, (first, last) in zip(names, parts):
        counts.iloc[first:last].to_csv(folder / f"raw-{name}.csv")
    name = names[0] if parties == 1 else "{party}"
    line = [PROGRAM, "prepare", *words.split(), folder / f"raw-{name}.csv", "-o", folder / f"out-{name}.csv"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return pd.concat([pd.read_csv(folder / f"out-{name}.csv", index_col=0) for name in names])


def same(ours, theirs, columns):
    assert list(ours.columns) == list(columns)
    np.testing.assert_allclose(ours.to_numpy(), np.asarray(theirs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parties", [1, 3])
def test_tf_idf_is_that_of_scikit_learn(counts, tmp_path, parties):
    theirs = TfidfTransformer().fit_transform(counts.to_numpy()).toarray()
    same(prepared(counts, tmp_path, "tf-idf", parties), theirs, counts.columns)


@pytest.mark.parametrize("parties", [1, 3])
@pytest.mark.parametrize("log", [False, True])
def test_counts_are_those_of_scanpy(counts, tmp_path, parties, log):
    sc = pytest.importorskip("scanpy")
    cells = sc.AnnData(counts.astype(float))
    sc.pp.filter_genes(cells, min_cells=5)
    sc.pp.normalize_total(cells, target_sum=1e4)
    if log:
        sc.pp.log1p(cells)
    sc.pp.scale(cells, zero_center=False)
    words = f"counts --min-rows-per-column 5 --unit-variance {'--log1p' if log else ''}"
    same(prepared(counts, tmp_path, words, parties), cells.X, cells.var_names)


@pytest.mark.parametrize("parties", [1, 3])
def test_the_most_variable_genes_are_those_of_scanpy(counts, tmp_path, parties):
    sc = pytest.importorskip("scanpy")
    cells = sc.AnnData(counts.astype(float))
    sc.pp.filter_genes(cells, min_cells=5)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    sc.pp.highly_variable_genes(cells, flavor="seurat", n_top_genes=60)
    used = cells[:, cells.var["highly_variable"]]
    words = "counts --min-rows-per-column 5 --log1p --variable-columns 60 --variable-by seurat"
    same(prepared(counts, tmp_path, words, parties), used.X, used.var_names)


@pytest.mark.parametrize("parties", [1, 3])
def test_counts_of_the_most_variable_genes_are_those_of_cnmf(counts, tmp_path, parties):
    fednmf = pytest.importorskip("fednmf._cells")
    left = counts.loc[:, (counts > 0).sum() >= 5]
    tpm = left.div(left.sum(axis=1), axis=0) * 1e6
    used = left.loc[:, fednmf.overdispersed(tpm.mean().to_numpy(), tpm.var(ddof=0).to_numpy(), 50)]
    words = "counts --min-rows-per-column 5 --keep-counts --variable-columns 50 --unit-variance"
    same(prepared(counts, tmp_path, words, parties), used / used.std(ddof=1), used.columns)


@pytest.mark.parametrize("of", ["obs_names", "var_names"])
def test_names_with_line_breaks_are_not_written_to_tables(tmp_path, of):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(np.arange(1.0, 13.0).reshape(4, 3))
    adata.obs_names, adata.var_names = list("abcd"), list("xyz")
    setattr(adata, of, ["one\ntwo", *list(getattr(adata, of))[1:]])
    adata.write_h5ad(tmp_path / "a.h5ad")
    run = [PROGRAM, "prepare", "tf-idf", tmp_path / "a.h5ad", "-o"]
    done = subprocess.run([*run, tmp_path / "o.csv"], capture_output=True, text=True)
    assert done.returncode == 2 and "line break" in done.stderr and not (tmp_path / "o.csv").exists()
    subprocess.run([*run, tmp_path / "o.h5ad"], check=True)
    assert list(getattr(anndata.read_h5ad(tmp_path / "o.h5ad"), of)) == list(getattr(adata, of))
