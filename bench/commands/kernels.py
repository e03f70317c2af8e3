"""Compare each hot kernel with a plain loop in C, or MKL's dense product, in the same run, on one core.

Compiles bench/reference.rs, which compiles the loops of bench/reference.c with the machine's C compiler (CC, -O3
-march=native -ffast-math). A kernel and its reference alternate; the best time of each counts, so that another load on
the machine matters little. Prints the milliseconds of fednmf in f64, its time divided by that of the reference in
either precision (>1: the reference is faster), its time divided by MKL's, and how much faster f32 is than f64. The
matrices are generated, with the shapes of word counts and of counts of cells; --input adds others. Dense products have
no loop in C, but MKL's.
"""

import argparse
import csv
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from lib.program import ROOT

BENCHMARK = ["cargo", "bench", "--quiet", "--package", "fednmf-linalg", "--bench", "reference", "--"]


def measure(options):
    """Returns the seconds of fednmf, MKL and C for each (kernel, matrix, k, precision)."""
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for path in options.input:
            files.append(path.resolve())
            if path.suffix == ".gz":
                files[-1] = Path(scratch) / path.stem
                files[-1].write_bytes(gzip.decompress(path.read_bytes()))
        words = [options.turns, ",".join(map(str, options.k)), ",".join(options.precision), *files]
        program = [options.program] if options.program else BENCHMARK
        done = subprocess.run(
            [*program, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
    rows = csv.DictReader(done.stdout.splitlines())
    found = {}
    for row in rows:
        seconds = [float(row[of]) if row[of] else None for of in ("fednmf", "mkl", "c")]
        found[row["kernel"], row["matrix"], int(row["k"]), row["precision"]] = seconds
    return found


def above(limit, found):
    """Returns the kernels that take more than `limit` times as long as their reference, with this ratio."""
    ratios = {key: own / (c or mkl) for key, (own, mkl, c) in found.items() if c or mkl}
    return {key: ratio for key, ratio in ratios.items() if limit and ratio > limit}


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", type=int, nargs="+", default=[10, 20, 40, 100], metavar="K", help="[10 20 40 100]")
    parser.add_argument("--precision", nargs="+", choices=["f64", "f32"], default=["f64", "f32"], help="[f64 f32]")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="repetitions of each kernel [%(default)s]")
    parser.add_argument(
        "--input", type=Path, nargs="+", default=[], metavar="FILE", help="sparse matrices (.mtx, .mtx.gz), such as KOS"
    )
    parser.add_argument(
        "--limit",
        type=float,
        metavar="RATIO",
        help="exit with 1 if a kernel takes more than this many times its reference, twice",
    )
    parser.add_argument(
        "--program", metavar="FILE", help="the built benchmark [that of `cargo bench --bench reference`]"
    )
    options = parser.parse_args(argv)
    found = measure(options)
    ratio = lambda own, other: f"{own / other:.2f}" if own and other else ""  # noqa: E731
    print("| kernel | matrix | k | ms, f64 | f64 / reference | f32 / reference | f64 / MKL | f32 / MKL | f64 / f32 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for kernel, matrix, k in dict.fromkeys(key[:3] for key in found):
        none = [None] * 3
        wide, narrow = (found.get((kernel, matrix, k, precision), none) for precision in ("f64", "f32"))
        cells = [f"{1e3 * wide[0]:.2f}" if wide[0] else ""]
        cells += [ratio(own, c or mkl) for own, mkl, c in (wide, narrow)]
        cells += [ratio(own, mkl) for own, mkl, _ in (wide, narrow)]
        print("| " + " | ".join([kernel, matrix, str(k), *cells, ratio(wide[0], narrow[0])]) + " |")
    slow = above(options.limit, found)
    if slow:
        # Another load on the machine is unlikely to hit the same kernel twice.
        slow = slow.keys() & above(options.limit, measure(options)).keys()
    for kernel, matrix, k, precision in sorted(slow):
        print(f"{kernel} on {matrix}, k = {k}, {precision}: above the limit, twice", file=sys.stderr)
    return 1 if slow else 0
