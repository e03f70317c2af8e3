"""Factorise matrices of the published sizes of atlases: seconds of the iterations, and largest memory.

    bench/run atlas > atlas.md
    VENV/bin/python bench/run atlas --cases gzip        (needs numpy and h5py)

published: the operations on 40,000, 10,000 and 500 cells that RcppML 1.0 publishes times of, on 56 threads and on an H100, with 20
iterations. flat: 2,000 genes of 130,612 and of 1,306,127 cells, read from the file within a limit: memory may grow by the factors
of the other cells, and by nothing else. gzip: the same cells in AnnData files with and without compression, in memory and read
from the file. large: 278,676 x 38,606 with 554 million nonzeros, in memory (7 GB) and read from the file. ranks: 1,306,127 x 2,000
on 1 to 16 ranks, each reading its part; their memory, and the one that `estimate` predicts. programs: all steps of cNMF for the
1,306,127 cells, from counts to its last file. full: 1,306,127 x 27,998 with 2.6 billion nonzeros, more than 2^31, through all steps
within 1 GB (70 GB of disk). The matrices are generated. Prints a Markdown table for each kind.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lib.program import add_binary_option, find_binary, run_traced

# Cells, genes and the share of nonzeros.
FLAT = (1_306_127, 2_000, 0.05)
LARGE = (278_676, 38_606, 0.0515)
FULL = (1_306_127, 27_998, 0.0711)
# Shape, options, and RcppML's seconds on 56 threads and on an H100
# (zdebruine/RcppML, docs/articles/gpu-acceleration.md, 2026).
PUBLISHED = (
    ((40_000, 5_000, 0.165), "--algo hals -k 20", (38.5, 2.78)),
    ((10_000, 5_000, 0.165), "--algo hals -k 64", (29.2, 0.88)),
    ((10_000, 5_000, 0.165), "--algo hals -k 64 --holdout 0.1", (75.3, 2.39)),
    ((10_000, 5_000, 0.165), "--algo hals -k 20 --missing zero-unobserved", (10.5, 0.75)),
    ((500, 8_000, 0.103), "--algo hals -k 20", (2.2, 0.21)),
    ((500, 8_000, 0.103), "--algo hals -k 16 --holdout 0.1", (4.0, 0.20)),
    ((500, 8_000, 0.103), "--algo kl-mu -k 16", (23.4, 1.98)),
)
KINDS = ("published", "flat", "gzip", "large", "ranks", "programs", "full")
RANKS = (1, 2, 4, 8, 16)
# Largest memory of matrix and factors of a streamed run.
ROOM = "1G"


@dataclass
class Bench:
    """What all kinds use: the program, words before it, and the directory of the files."""

    binary: Path
    prefix: list
    work: str

    def path(self, name):
        return os.path.join(self.work, name)

    def generated(self, shape, form="npz"):
        cells, genes, density = shape
        path = self.path(f"{cells}x{genes}.{form}")
        if not os.path.exists(path):
            spec = f"sparse,m={cells},n={genes},density={density},values=counts,seed=1"
            subprocess.run([self.binary, "generate", spec, "--output", path], check=True)
        return path

    def factorise(self, path, words, prefix=None):
        """The first and the last event of the trace of a run."""
        iterations = words.split("--max-iters ")[1].split()[0]
        line = f"--init random --eval-every {iterations} {words}".split()
        start, *_, end = run_traced([*(self.prefix if prefix is None else prefix), self.binary, *line, "--input", path])
        return start, end

    def factorised(self, path, words):
        """A row of the table of runs."""
        start, end = self.factorise(path, words)
        waiting = end.get("streamed", {}).get("wait_seconds", 0.0)
        return (
            os.path.basename(path),
            f"{start['m']} x {start['n']}",
            start["nnz"],
            f"`{words}`",
            f"{start['load_seconds']:.1f}",
            f"{end['seconds']:.1f}",
            f"{waiting:.1f}",
            f"{end['peak_rss_sum_bytes'] / 1e6:.0f}",
        )

    def step(self, name, *words):
        """A row of the table of steps: runs a command with `words`, and measures it."""
        command = [str(word) for word in (*(self.prefix if words[0] == "sweep" else []), self.binary, *words)]
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        told = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{shlex.join(command)}: {told}")
        shown = [word for word in map(str, words) if not word.startswith(self.work)]
        return name, f"`{shlex.join(shown)}`", f"{time.perf_counter() - start:.1f}", f"{used.ru_maxrss * 1024 / 1e6:.0f}"

    def fresh(self, *names):
        """Paths of outputs, of which nothing is left from before."""
        for path in map(self.path, names):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.remove(path)
        return [self.path(name) for name in names]


RUNS = ("file", "cells x genes", "nonzeros", "options", "loading, s", "iterations, s", "waiting for the file, s", "peak, MB")
STEPS = ("step", "options", "seconds", "peak, MB")


def published(bench):
    yield "cells x genes", "nonzeros", "options", "iterations, s", "RcppML, s", "on an H100, s"
    for shape, words, times in PUBLISHED:
        for precision in ("f64", "f32"):
            words_used = f"{words} --max-iters 20 --precision {precision}"
            start, end = bench.factorise(bench.generated(shape), words_used)
            yield f"{start['m']} x {start['n']}", start["nnz"], f"`{words_used}`", f"{end['seconds']:.2f}", *times


def flat(bench):
    yield RUNS
    for count in (FLAT[0] // 10, FLAT[0]):
        yield bench.factorised(bench.generated((count, *FLAT[1:])), f"--algo hals -k 20 --max-iters 5 --memory {ROOM}")


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


def gzip(bench):
    yield RUNS
    path = bench.generated((FLAT[0] // 10, *FLAT[1:]))
    for compression in (None, "gzip"):
        for memory in ("", " --memory 128M"):
            yield bench.factorised(annotated(path, compression), f"--algo hals -k 20 --max-iters 10{memory}")


def large(bench):
    yield RUNS
    for memory in ("", f" --memory {ROOM}"):
        yield bench.factorised(bench.generated(LARGE), f"--algo hals -k 20 --max-iters 5{memory}")


def ranks(bench):
    """The largest memory of a rank, and its prediction; the error, which no number of ranks may change."""
    yield "ranks", "relative error", "largest memory of a rank, MB", "predicted, MB"
    path = bench.generated(FLAT)
    words = "--algo hals -k 20 --max-iters 5"
    for count in RANKS:
        prefix = [*shlex.split("mpirun --oversubscribe --allow-run-as-root -n"), str(count)]
        _, end = bench.factorise(path, words, prefix)
        asked = [bench.binary, "estimate", *words.split(), "--ranks", count, "--input", path, "--json"]
        done = subprocess.run([*prefix, *map(str, asked)], check=True, capture_output=True, text=True)
        predicted = json.loads(done.stdout)["memory"]["peak_bytes"]
        yield count, f"{end['rel_error']:.12f}", *(f"{x / 1e6:.0f}" for x in (end["peak_rss_bytes"], predicted))


def programs(bench):
    """All steps of cNMF, from counts to its last file."""
    yield STEPS
    yield from steps_of_programs(bench, bench.generated(FLAT, "h5ad"), 1000)


def steps_of_programs(bench, counts, genes):
    norm, tpm, runs, out = bench.fresh("norm.h5ad", "tpm.h5ad", "spectra", "cnmf")
    prepare = ["prepare", "counts", counts, "--memory", ROOM]
    chosen = ["--keep-counts", "--variable-columns", genes, "--unit-variance"]
    yield bench.step("normalise", *prepare, *chosen, "--output", norm)
    yield bench.step("transcripts per million", *prepare, "--row-total", "1e6", "--output", tpm)
    sweep = "sweep --k 8 --runs 4 --holdout 0 --max-iters 20 --quiet --memory".split()
    yield bench.step("factorise", *sweep, ROOM, "--input", norm, "--output", runs)
    files = sorted(os.path.join(runs, name) for name in os.listdir(runs) if name.startswith("k") and name.endswith(".h5"))
    # Counts that are drawn at random have no programmes: spectra of different starts are not alike.
    given = ["--input", norm, "--tpm", tpm, "--memory", ROOM, "--density-threshold", "2"]
    yield bench.step("programmes", "programs", *files, *given, "--cnmf", out)


def full(bench):
    """All that is done with one matrix."""
    yield STEPS
    counts = bench.generated(FULL, "h5ad")
    factors, page, rows, tables = bench.fresh("factors.h5", "factors.html", "projected.h5", "clusters.tsv")
    hals = f"--algo hals -k 20 --max-iters 5 --eval-every 5 --memory {ROOM} --quiet --input".split()
    yield bench.step("inspect", "inspect", counts)
    yield bench.step("factorise, report", *hals, counts, "--output", factors, "--report", page)
    yield bench.step("evaluate", "evaluate", factors, "--memory", ROOM, "--input", counts)
    yield bench.step("project", "project", factors, "--memory", ROOM, "--input", counts, "--output", rows)
    yield bench.step("clusters", "clusters", factors, "--output", tables)
    yield from steps_of_programs(bench, counts, 2000)


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
        default=["published", "flat"],
        metavar="NAMES",
        help=f"of {','.join(KINDS)} [published,flat]",
    )
    parser.add_argument("--prefix", type=shlex.split, default=[], help="words before each run, such as mpirun -n 2")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - set(KINDS):
        parser.error(f"--cases: {', '.join(sorted(unknown))}")
    os.makedirs(options.work, exist_ok=True)
    bench = Bench(find_binary(options.binary), options.prefix, options.work)
    makers = (published, flat, gzip, large, ranks, programs, full)
    for name, rows in zip(KINDS, makers, strict=True):
        if name not in options.cases:
            continue
        print(f"{name}:\n")
        for place, row in enumerate(rows(bench)):
            print(f"| {' | '.join(map(str, row))} |", flush=True)
            if place == 0:
                print(f"|{' --- |' * len(row)}")
        print()
