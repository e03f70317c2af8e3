"""Factorise matrices of the published sizes of atlases: seconds of the iterations, and largest memory.

    bench/run atlas > atlas.md
    VENV/bin/python bench/run atlas --cases gzip        (needs numpy and h5py)

table: 40,000 x 5,000 counts with 33 million nonzeros, k = 20, 20 iterations, in memory: the matrix of a published table, where
RcppML 1.0 needs 38.5 s on 56 threads and 2.78 s on an H100. divergence: the same for the Kullback-Leibler divergence. flat: 2,000
genes of 130,612 and of 1,306,127 cells, read from the file within a limit: memory may grow by the factors of the other cells, and
by nothing else. gzip: the same cells in AnnData files with and without compression, in memory and read from the file. large:
278,676 x 38,606 with 554 million nonzeros, in memory (7 GB) and read from the file. programs: all steps of cNMF for the 1,306,127 cells, from counts to
its last file. The matrices are generated. Prints a Markdown table, and another one for programs.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from lib.program import add_binary_option, find_binary, run_traced

# Cells, genes and the share of nonzeros.
TABLE = (40_000, 5_000, 0.165)
FLAT = (1_306_127, 2_000, 0.05)
LARGE = (278_676, 38_606, 0.0515)
NAMES = ("table", "divergence", "flat", "gzip", "large", "programs")
# Largest memory of matrix and factors of a streamed run.
ROOM = "1G"


def generated(binary, work, cells, genes, density, form="npz"):
    path = os.path.join(work, f"{cells}x{genes}.{form}")
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
            yield "table", path, f"--algo hals -k 20 --max-iters 20 --precision {precision}"
    if "divergence" in options.cases:
        path = generated(binary, options.work, *TABLE)
        for precision in ("f64", "f32"):
            yield "divergence", path, f"--algo kl-mu -k 20 --max-iters 20 --precision {precision}"
    cells, genes, density = FLAT
    if "flat" in options.cases:
        for count in (cells // 10, cells):
            path = generated(binary, options.work, count, genes, density)
            yield "flat", path, f"--algo hals -k 20 --max-iters 5 --memory {ROOM}"
    if "gzip" in options.cases:
        path = generated(binary, options.work, cells // 10, genes, density)
        for compression in (None, "gzip"):
            for memory in ("", " --memory 128M"):
                yield "gzip", annotated(path, compression), f"--algo hals -k 20 --max-iters 10{memory}"
    if "large" in options.cases:
        path = generated(binary, options.work, *LARGE)
        for memory in ("", f" --memory {ROOM}"):
            yield "large", path, f"--algo hals -k 20 --max-iters 5{memory}"


def steps_of_programs(options, binary):
    """Yields the steps of cNMF from counts to its last file: what a step does, and its command."""
    counts = generated(binary, options.work, *FLAT, "h5ad")
    norm, tpm, runs, out = (os.path.join(options.work, name) for name in ("norm.h5ad", "tpm.h5ad", "spectra", "cnmf"))
    for made in (norm, tpm):
        if os.path.exists(made):
            os.remove(made)
    for made in (runs, out):
        shutil.rmtree(made, ignore_errors=True)
    prepare = [binary, "prepare", "counts", counts, "--memory", ROOM]
    yield "normalise", [*prepare, "--keep-counts", "--variable-columns", "1000", "--unit-variance", "--output", norm]
    yield "transcripts per million", [*prepare, "--row-total", "1e6", "--output", tpm]
    sweep = "sweep --k 8 --runs 4 --holdout 0 --max-iters 20 --quiet --memory".split()
    yield "factorise", [*options.prefix, binary, *sweep, ROOM, "--input", norm, "--output", runs]
    files = sorted(os.path.join(runs, name) for name in os.listdir(runs) if name.startswith("k") and name.endswith(".h5"))
    # Counts that are drawn at random have no programmes: spectra of different starts are not alike.
    yield "programmes", [binary, "programs", *files, "--input", norm, "--tpm", tpm, "--density-threshold", "2", "--cnmf", out]


def write_programs(options, binary):
    """Prints seconds and largest memory of a process for each step of cNMF."""
    print("| step | options | seconds | peak, MB |\n| --- | --- | --- | --- |")
    for name, command in steps_of_programs(options, binary):
        start = time.perf_counter()
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        told = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{shlex.join(map(str, command))}: {told}")
        words = [word for word in map(str, command[1:]) if not word.startswith(options.work)]
        print(f"| {name} | `{shlex.join(words)}` | {time.perf_counter() - start:.1f} | {used.ru_maxrss * 1024 / 1e6:.0f} |", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run atlas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    work = os.path.join(tempfile.gettempdir(), "fednmf-bench")
    parser.add_argument("--work", metavar="DIR", default=work, help="directory of the files, 16 GB [TMPDIR/fednmf-bench]")
    parser.add_argument(
        "--cases",
        type=lambda text: text.split(","),
        default=["table", "flat"],
        metavar="NAMES",
        help=f"of {','.join(NAMES)} [table,flat]",
    )
    parser.add_argument("--prefix", type=shlex.split, default=[], help="words before each command, such as mpirun -n 2")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - set(NAMES):
        parser.error(f"--cases: {', '.join(sorted(unknown))}")
    binary = find_binary(options.binary)
    os.makedirs(options.work, exist_ok=True)
    if options.cases != ["programs"]:
        print("| case | cells x genes | nonzeros | options | loading, s | iterations, s | waiting for the file, s | peak, MB |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, path, words in cases(options, binary):
        iterations = words.split("--max-iters ")[1].split()[0]
        line = f"--init random --eval-every {iterations} {words}"
        start, *_, end = run_traced([*options.prefix, binary, *line.split(), "--input", path])
        waiting = end.get("streamed", {}).get("wait_seconds", 0.0)
        print(
            f"| {name}, {os.path.basename(path)} | {start['m']} x {start['n']} | {start['nnz']} | `{words}` | "
            f"{start['load_seconds']:.1f} | {end['seconds']:.1f} | {waiting:.1f} | {end['peak_rss_sum_bytes'] / 1e6:.0f} |",
            flush=True,
        )
    if "programs" in options.cases:
        print()
        write_programs(options, binary)
