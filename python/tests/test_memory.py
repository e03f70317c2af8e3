"""Which matrices are taken without a copy: the peak of the process's memory during a fit, in units of the matrix."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")

SCRIPT = """
import json, sys, warnings
import numpy as np, scipy.sparse as sp
import fednmf

warnings.simplefilter("ignore")

def now(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024

def size(X):
    return X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes

form, dtype, what = sys.argv[1:]
rng = np.random.default_rng(0)
if form in ("csr", "csc"):
    make = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[form]
    columns = np.sort(rng.integers(0, 40_000, (2000, 5000), dtype=np.int32), axis=1)
    starts = np.arange(0, columns.size + 1, 5000)
    X = sp.csr_matrix((np.ones(columns.size, dtype), columns.ravel(), starts), (2000, 40_000))
    X.sum_duplicates()
    X = make(X)
else:
    X = np.ones((3000, 5000), dtype=dtype, order="C" if form == "C" else "F")
    X[::2, ::3] = 2
run = {
    "cd": lambda X: fednmf.NMF(3, solver="cd", init="random", max_iter=2, tol=0).fit(X),
    "kl": lambda X: fednmf.NMF(3, beta_loss=1, init="random", max_iter=2, tol=0).fit(X),
    "transform": lambda X: model.transform(X),
}[what]
small = X[:50].copy() if form != "F" else np.asfortranarray(X[:50])
model = fednmf.NMF(3, solver="cd", init="random", max_iter=2, tol=0).fit(small)
if what != "transform":
    run(small)
open("/proc/self/clear_refs", "w").write("5")
before = now("VmRSS:")
run(X)
print((now("VmHWM:") - before) / size(X))
"""


# More rows of cells x genes in a file, by cells.
IN_PARTS = """
import sys, warnings
import anndata, numpy as np, scipy.sparse as sp
import fednmf
from fednmf import _parts

warnings.simplefilter("ignore")
cells, folder = int(sys.argv[1]), sys.argv[2]
_parts._PANEL = 2 << 20
rng = np.random.default_rng(0)
block = sp.random(5000, 2000, 0.2, "csr", np.float32, rng, lambda n: rng.integers(1, 9, n).astype(np.float32))
# No cell without a count in the few genes of cNMF, which are held in memory.
block = sp.hstack([np.ones((5000, 1), np.float32), block[:, 1:]], format="csr")
few = [str(gene) for gene in range(15)]
anndata.AnnData(sp.vstack([block] * (cells // 5000), format="csr")).write_h5ad(f"{folder}/x.h5ad")
backed = anndata.read_h5ad(f"{folder}/x.h5ad", backed="r")
small = backed[:1000].to_memory()
fednmf.tl.nmf(small, 3, solver="cd", max_iter=2, tol=0)

def now(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024

open("/proc/self/clear_refs", "w").write("5")
before = now("VmRSS:")
fednmf.tl.nmf(backed, 3, solver="cd", init="random", max_iter=3, tol=0)
fednmf.tl.nmf(backed, 3, beta_loss="kullback-leibler", init="random", max_iter=3, tol=0)
fednmf.tl.project(backed, small)
fednmf.tl.choose_k(backed, [2, 3], n_runs=2, holdout=0, max_iter=3)
fednmf.tl.cnmf(backed, [2], name="x", output_dir=folder, n_iter=4, genes=few, max_iter=3, density_threshold=2)
print(now("VmHWM:") - before)
"""


def peak(*words, script=SCRIPT):
    # Not where the sources are: they would be imported.
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("form", ["C", "csr"])
@pytest.mark.parametrize("what", ["cd", "transform"])
def test_rows_are_not_copied(form, dtype, what):
    # Checks of a sparse matrix, and errors by blocks of rows, need some.
    assert peak(form, dtype, what) < 0.5


@pytest.mark.parametrize("form", ["F", "csc"])
def test_columns_are_copied_once(form):
    assert 0.7 < peak(form, "float64", "cd") < 1.6


@pytest.mark.parametrize("form", ["C", "F"])
def test_the_divergence_has_a_copy_in_the_other_order(form):
    assert 0.7 < peak(form, "float64", "kl") < 1.6


def test_memory_does_not_grow_with_the_cells_of_a_file(tmp_path):
    pytest.importorskip("anndata")
    # A cell has 3200 bytes of entries. What is kept for it, some 600 bytes: factors of several runs, its name, few genes.
    cells = 5_000, 25_000
    few, many = (peak(str(count), str(tmp_path), script=IN_PARTS) for count in cells)
    assert many - few < 0.5 * 3200 * (cells[1] - cells[0]), (few, many)
