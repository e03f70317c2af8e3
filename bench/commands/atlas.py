"""Factorise matrices of the published sizes of atlases: seconds of the iterations, and largest memory.

    bench/run atlas > atlas.md
    VENV/bin/python bench/run atlas --cases gzip        (needs numpy and h5py)

table: 40,000 x 5,000 counts with 33 million nonzeros, k = 20, 20 iterations, in memory: the matrix of a published table, where
RcppML 1.0 needs 38.5 s on 56 threads and 2.78 s on an H100. flat: 2,000 genes of 130,612 and of 1,306,127 cells, read from the
file within a limit: memory may grow by the factors of the other cells, and by nothing else. gzip: the same cells in AnnData
files with and without compression, in memory and read from the file. The matrices are generated. Prints a Markdown table.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile

from lib.program import add_binary_option, find_binary, run_traced

# Cells, genes and the share of nonzeros.
TABLE = (40_000, 5_000, 0.165)
FLAT = (1_306_127, 2_000, 0.05)
# Largest memory of matrix and factors of a streamed run.
ROOM = "1G"


def generated(binary, work, cells, genes, density):
    path = os.path.join(work, f"{cells}x{genes}.npz")
    if not os.path.exists(path):
        spec = f"sparse,m={cells},n={genes},density={density},values=counts,seed=1"
        subprocess.run([binary, "generate", spec, "--output", path], check=True)
    return path


def annotated(path, compression):
    """Writes the matrix of an .npz as AnnData does, and returns the name of the file."""
    import h5py
    import numpy as np

    to = path.replace(".npz", f".{compression or 'plain'}.h5ad")
    if os.path.exists(to):
        return to
    with np.load(path) as arrays, h5py.File(to, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"] = "csr_matrix"
        group.attrs["shape"] = arrays["shape"]
        for name, kind in (("indptr", None), ("indices", None), ("data", "f4")):
            packed = {} if name == "indptr" or not compression else {"compression": compression}
            values = arrays[name]
            group.create_dataset(name, data=values if kind is None else values.astype(kind), **packed)
    return to


def cases(options, binary):
    """Yields the name of a case, its file and the words of its command."""
    if "table" in options.cases:
        path = generated(binary, options.work, *TABLE)
        for precision in ("f64", "f32"):
            yield "table", path, f"-k 20 --max-iters 20 --precision {precision}"
    cells, genes, density = FLAT
    if "flat" in options.cases:
        for count in (cells // 10, cells):
            path = generated(binary, options.work, count, genes, density)
            yield "flat", path, f"-k 20 --max-iters 5 --memory {ROOM}"
    if "gzip" in options.cases:
        path = generated(binary, options.work, cells // 10, genes, density)
        for compression in (None, "gzip"):
            for memory in ("", " --memory 128M"):
                yield "gzip", annotated(path, compression), f"-k 20 --max-iters 10{memory}"


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run atlas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    work = os.path.join(tempfile.gettempdir(), "fednmf-bench")
    parser.add_argument("--work", metavar="DIR", default=work, help="directory of the files, 8 GB [TMPDIR/fednmf-bench]")
    parser.add_argument(
        "--cases",
        type=lambda text: text.split(","),
        default=["table", "flat"],
        metavar="NAMES",
        help="of table,flat,gzip [table,flat]",
    )
    parser.add_argument("--prefix", type=shlex.split, default=[], help="words before each command, such as mpirun -n 2")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - {"table", "flat", "gzip"}:
        parser.error(f"--cases: {', '.join(sorted(unknown))}")
    binary = find_binary(options.binary)
    os.makedirs(options.work, exist_ok=True)
    print("| case | cells x genes | nonzeros | options | loading, s | iterations, s | waiting for the file, s | peak, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, path, words in cases(options, binary):
        iterations = words.split("--max-iters ")[1].split()[0]
        line = f"--algo hals --init random --eval-every {iterations} {words}"
        start, *_, end = run_traced([*options.prefix, binary, *line.split(), "--input", path])
        waiting = end.get("streamed", {}).get("wait_seconds", 0.0)
        print(
            f"| {name}, {os.path.basename(path)} | {start['m']} x {start['n']} | {start['nnz']} | `{words}` | "
            f"{start['load_seconds']:.1f} | {end['seconds']:.1f} | {waiting:.1f} | {end['peak_rss_sum_bytes'] / 1e6:.0f} |",
            flush=True,
        )

