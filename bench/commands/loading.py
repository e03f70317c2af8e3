"""Compare the time to load a matrix on one core with fast_matrix_market, SciPy and h5py.

    python3 -m venv VENV && VENV/bin/pip install numpy scipy fast_matrix_market h5py
    VENV/bin/python bench/run loading > loading.md
    VENV/bin/python bench/run loading --files FILES --prefix "mpirun -n 2"          (without the others)

The time of fednmf is `load_seconds` of its trace on one rank: header, entries, validation, assembly of the rows, and
statistics and checksum of the matrix. The time of a baseline is that of the call; fast_matrix_market and SciPy return
coordinates, so conversion by `tocsr` is also measured. The files are in the page cache, and the programs alternate.
Baselines slower than 2 s run once. Prints a Markdown table of best and median times.
"""

import argparse
import gzip
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from statistics import median

import numpy as np

from commands.atlas import annotated
from lib.matrices import Case
from lib.program import ONE_THREAD, add_binary_option, find_binary, run_traced

# With how h5py stores the matrix.
HDF5_FILES = {"dense.h5": {}, "chunked.h5": {"chunks": True}, "gzip.h5": {"chunks": True, "compression": "gzip"}}
# Each runs in a process of its own; {0} is the path.
FAST = "import fast_matrix_market as f; load = lambda: f.mmread({0!r}, parallelism=1)"
MARKET_READERS = {
    "fast_matrix_market, 1 thread": FAST,
    "fast_matrix_market, 1 thread, and tocsr": FAST + "; coordinates = load; load = lambda: coordinates().tocsr()",
    "scipy.io.mmread, SciPy 1.11 (Python)": "from scipy.io._mmio import MMFile; load = lambda: MMFile().read({0!r})",
    "scipy.io.mmread, current": "import scipy.io; load = lambda: scipy.io.mmread({0!r})",
}
LOAD_NPZ = "import scipy.sparse; load = lambda: scipy.sparse.load_npz({0!r})"
LOAD_H5AD = (
    "import h5py, scipy.sparse; X = h5py.File({0!r})['X']; "
    "load = lambda: scipy.sparse.csr_matrix(tuple(X[a][:] for a in ('data', 'indices', 'indptr')), shape=X.attrs['shape'])"
)
READERS = {
    "counts.mtx": MARKET_READERS,
    "reals.mtx": MARKET_READERS,
    "reals.mtx.gz": MARKET_READERS,
    "dense.npy": {"numpy.load": "import numpy; load = lambda: numpy.load({0!r})"},
    "counts.npz": {"scipy.sparse.load_npz": LOAD_NPZ},
    "packed.npz": {"scipy.sparse.load_npz": LOAD_NPZ},
    "counts.plain.h5ad": {"h5py and SciPy": LOAD_H5AD},
    "counts.gzip.h5ad": {"h5py and SciPy": LOAD_H5AD},
} | dict.fromkeys(HDF5_FILES, {"h5py": "import h5py; load = lambda: h5py.File({0!r})['M'][:]"})
TIMED = "import time; {0}\nstart = time.perf_counter(); load(); print(time.perf_counter() - start)"


def write_market(path, matrix, values, value_format):
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.starts))
    with open(path, "w") as file:
        file.write(
            f"%%MatrixMarket matrix coordinate real general\n{matrix.shape[0]} {matrix.shape[1]} {values.size}\n"
        )
        np.savetxt(file, np.column_stack((rows + 1, matrix.columns + 1, values)), fmt=f"%d %d {value_format}")


def write_files(work):
    """Writes word counts, the same with 17 digits per value, and a dense matrix; returns their paths."""
    sparse, dense = Case("sparse", None, work), Case("dense", None, work)
    paths = {name: os.path.join(work, name) for name in READERS}
    if not os.path.exists(paths["counts.mtx"]):
        write_market(paths["counts.mtx"], sparse.matrix, sparse.matrix.values, "%g")
    if not os.path.exists(paths["reals.mtx"]):
        noise = np.random.default_rng(3).random(sparse.matrix.values.size)
        write_market(paths["reals.mtx"], sparse.matrix, sparse.matrix.values + noise, "%.17g")
    if not os.path.exists(paths["reals.mtx.gz"]):
        with open(paths["reals.mtx"], "rb") as text, gzip.open(paths["reals.mtx.gz"], "wb", 6) as packed:
            shutil.copyfileobj(text, packed, 1 << 20)
    for name, save in (("counts.npz", np.savez), ("packed.npz", np.savez_compressed)):
        if not os.path.exists(paths[name]):
            x = sparse.matrix
            arrays = {"data": x.values, "indices": x.columns.astype("i4"), "indptr": x.starts, "shape": x.shape}
            save(paths[name], format=b"csr", **arrays)
    for compression in (None, "gzip"):
        annotated(paths["counts.npz"], compression)
    for name, storage in HDF5_FILES.items():
        if not os.path.exists(paths[name]):
            import h5py

            with h5py.File(paths[name], "w") as file:
                file.create_dataset("M", data=dense.matrix, **storage)
    return paths


def fednmf_seconds(binary, path, prefix):
    command = [*prefix, binary, "--algo", "mu", "-k", 1, "--max-iters", 1, "--eval-every", 0, "--input", path]
    return run_traced(command)[0]["load_seconds"]


def baseline_seconds(code, prefix):
    """Returns the seconds of a reader, or None if it fails."""
    words = [*prefix, sys.executable, "-c", TIMED.format(code)]
    done = subprocess.run(words, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def measure(options, binary, name, path):
    """Returns the seconds of every program that can read the file, by name."""
    with open(path, "rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    seconds = {"fednmf": []} | {reader: [] for reader in READERS[name]}
    for turn in range(options.rounds):
        seconds["fednmf"].append(fednmf_seconds(binary, path, options.prefix))
        for reader, code in READERS[name].items():
            slow = seconds[reader] and min(seconds[reader]) >= 2
            failed = turn > 0 and not seconds[reader]
            if not (slow or failed) and (found := baseline_seconds(code.format(path), options.prefix)):
                seconds[reader].append(found)
    return {program: values for program, values in seconds.items() if values}


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run loading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    work = os.path.join(tempfile.gettempdir(), "fednmf-bench")
    add_binary_option(parser)
    parser.add_argument(
        "--work", metavar="DIR", default=work, help="directory of the files, 2 GB [TMPDIR/fednmf-bench]"
    )
    parser.add_argument(
        "--files",
        type=lambda text: text.split(","),
        default=list(READERS),
        metavar="NAMES",
        help=f"of {','.join(READERS)} [all]",
    )
    parser.add_argument("--rounds", type=int, default=5, help="repetitions [%(default)s]")
    parser.add_argument("--prefix", type=shlex.split, default=[], help="words before each command, such as taskset")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    os.makedirs(options.work, exist_ok=True)
    paths = write_files(options.work)
    print("| file | MB | program | best, s | median, s | MB/s | ratio to fednmf |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.files:
        size = os.path.getsize(paths[name]) / 1e6
        seconds = measure(options, binary, name, paths[name])
        ours = median(seconds["fednmf"])
        for program, values in seconds.items():
            middle = median(values)
            print(
                f"| {name} | {size:.0f} | {program} | {min(values):.3f} | {middle:.3f} | {size / middle:.0f} | "
                f"{middle / ours:.2f} |",
                flush=True,
            )
