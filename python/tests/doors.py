"""Runs of the program that are compared with the class: the same matrix in files of each format, with the same settings."""

import subprocess

import numpy as np
import scipy.io
import scipy.sparse as sp

DENSE = ("npy", "csv", "tsv", "h5", "loom")
SPARSE = ("npz", "mtx", "h5ad", "10x", "10x directory")
#: Of these, those whose rows are the columns of the matrix.
GENES_BY_CELLS = ("loom", "10x", "10x directory")


def one_index_type(X):
    """X with indices of one type: SciPy neither writes nor unpacks a matrix whose two kinds of indices differ."""
    if sp.issparse(X) and X.indptr.dtype != X.indices.dtype:
        X = X.copy()
        X.indptr = X.indptr.astype(X.indices.dtype)
    return X


def write(path, X, kind):
    """A file with X, which is dense for the formats of DENSE and in CSR for those of SPARSE."""
    X = one_index_type(X)
    m, n = X.shape
    if kind == "npy":
        np.save(path, X)
    elif kind in ("csv", "tsv"):
        separator = "," if kind == "csv" else "\t"
        lines = [separator.join(["row", *(f"c{j}" for j in range(n))])]
        lines += [separator.join([f"r{i}", *(repr(float(x)) for x in X[i])]) for i in range(m)]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "npz":
        sp.save_npz(path, X)
    elif kind == "mtx":
        # With 17 digits SciPy (1.17) fills float32 values with NUL.
        scipy.io.mmwrite(path, X.astype(float) if X.dtype == np.float32 else X, precision=17)
    elif kind == "10x directory":
        path.mkdir()
        write(path / "matrix.mtx", X.T, "mtx")
        for name, lines in [
            ("barcodes", (f"r{i}" for i in range(m))),
            ("features", (f"g{j}\tc{j}\tGene Expression" for j in range(n))),
        ]:
            (path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    else:
        _write_hdf5(path, X, kind)


def _write_hdf5(path, X, kind):
    import h5py

    m, n = X.shape
    rows, columns = [f"r{i}" for i in range(m)], [f"c{j}" for j in range(n)]
    with h5py.File(path, "w") as f:
        if kind == "h5":
            f["X"] = X
        elif kind == "loom":
            # Genes x cells.
            f["matrix"] = np.ascontiguousarray(X.T)
            f["row_attrs/Gene"], f["col_attrs/CellID"] = columns, rows
        elif kind == "10x":
            # In the order of cells, which are the columns.
            f["matrix/data"], f["matrix/indices"], f["matrix/indptr"] = X.data, X.indices, X.indptr.astype(np.int64)
            f["matrix/shape"] = np.array([n, m], dtype=np.int32)
            f["matrix/barcodes"] = np.array(rows, dtype="S")
            f["matrix/features/name"] = f["matrix/features/id"] = np.array(columns, dtype="S")
            f["matrix/features/feature_type"] = np.array(["Gene Expression"] * n, dtype="S")
        else:
            f.attrs["encoding-type"], f.attrs["encoding-version"] = "anndata", "0.1.0"
            group = f.create_group("X")
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
            group.attrs["shape"] = X.shape
            group["data"], group["indices"], group["indptr"] = X.data, X.indices, X.indptr


def ending(kind):
    return {"10x": "h5", "10x directory": "counts"}.get(kind, kind)


def options(kind):
    """The options for the orientation of the file and for the names in a table."""
    if kind in GENES_BY_CELLS:
        return ["--transpose"]
    return ["--header", "yes", "--index-col", "yes"] if kind in ("csv", "tsv") else []


def run(program, ranks, words):
    """Standard output of the program; None and its message if it refuses."""
    ahead = [] if ranks == 1 else ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    found = subprocess.run([*ahead, program, *map(str, words)], capture_output=True, text=True, timeout=300)
    if found.returncode == 2:
        return None, found.stderr
    assert found.returncode == 0, f"{words}: {found.returncode} {found.stderr}"
    return found.stdout, found.stderr
