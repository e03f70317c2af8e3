"""Compare NMF methods with other programs: seconds per iteration, and seconds to a target error.

    VENV/bin/python bench/run compare --planc openblas=DIR/dense_distnmf --planc-sparse openblas=DIR/sparse_distnmf \\
        --dsanls-c f32=DIR/dsanls-f32 --dsanls-c f64=DIR/dsanls-f64 --sklearn VENV/bin/python --data DIR

Runs fednmf and the given baselines in turn, so that other load on the machine affects all of them alike, and rotates
the order from round to round. The baselines are separate programs: PLANC's distnmf, built without barrier timing; the
C code of the DSANLS paper, built with -O3 and with a working -u (the upper bound of the random initialisation); a
Python with scikit-learn. Writes summary.md, setup.txt and curves.csv to --out. A full run takes an hour; --cases,
--ranks, --rounds and --budget shorten it, and --smoke tries everything within minutes.
"""

import argparse
import csv
import datetime
import os
import platform
import shlex
import subprocess
import sys
import tempfile

import numpy as np

from lib.baselines import PLANC, SKETCHES, TRIAL, DsanlsC, Fednmf, Planc, Sklearn
from lib.comparison import summary
from lib.matrices import CASES, Case
from lib.program import ROOT, add_binary_option, cpu_model, find_binary, machine_name, thin

METHODS = ["auto", "hals", "bpp", "mu", "dsanls --sketch-size 10%"]
LOCAL = ("--binary", "--work", "--out", "--prefix")  # options that say nothing about a measurement


def parse(argv):
    def names(text):
        return text.split(",")

    parser = argparse.ArgumentParser(
        prog="bench/run compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    env = os.environ.get
    add_binary_option(parser)
    add(
        "--method",
        action="append",
        help=f"method of fednmf with its options; repeatable [{'; '.join(METHODS)}]".replace("%", "%%"),
    )
    add(
        "--planc",
        action="append",
        default=env("PLANC", "").split(),
        metavar="[NAME=]PATH",
        help="PLANC's dense_distnmf; repeatable [$PLANC]",
    )
    add(
        "--planc-sparse",
        action="append",
        default=env("PLANC_SPARSE", "").split(),
        metavar="[NAME=]PATH",
        help="PLANC's sparse_distnmf; repeatable [$PLANC_SPARSE]",
    )
    add("--planc-algos", type=names, default=["hals", "bpp", "mu", "aoadmm"], help=f"of {','.join(PLANC)}")
    add(
        "--dsanls-c",
        action="append",
        default=env("DSANLS_C", "").split(),
        metavar="f32=PATH|f64=PATH",
        help="C code of DSANLS; repeatable [$DSANLS_C]",
    )
    add("--dsanls-methods", type=names, default=list(SKETCHES)[:2], help=f"of {','.join(SKETCHES)}".replace("%", "%%"))
    add("--sklearn", default=env("SKLEARN"), metavar="PYTHON", help="a Python with scikit-learn [$SKLEARN]")
    add("--sklearn-solvers", type=names, default=["cd"], help="of cd,mu")
    add("--cases", type=names, default=list(CASES), help=f"of {','.join(CASES)}")
    add("--data", default=env("FEDNMF_DATA"), metavar="DIR", help="directory of MNIST and KOS [$FEDNMF_DATA]")
    add("--ranks", type=names, default=["1", "2"], help="MPI ranks, or threads of scikit-learn [1,2]")
    add("--precision", type=names, default=["f64", "f32"], help="[f64,f32]")
    add("-k", type=int, default=40, help="components [%(default)s]")
    add("--rounds", type=int, default=3, help="repetitions [%(default)s]")
    add("--budget", type=float, default=8.0, help="solver seconds of a run [%(default)s]")
    add("--most", type=int, default=400, help="most iterations of a run [%(default)s]")
    add("--timeout", type=float, default=600.0, help="time limit of a run in seconds [%(default)s]")
    add("--mpirun", default="mpirun --oversubscribe --bind-to core", help="launcher [%(default)s]")
    add("--prefix", default="", help="words before each command, such as nice")
    add(
        "--work",
        default=os.path.join(tempfile.gettempdir(), "fednmf-bench"),
        metavar="DIR",
        help="directory of the matrices, 3 GB [TMPDIR/fednmf-bench]",
    )
    add("--out", metavar="DIR", help="directory of the results [bench/runs/<date>-<machine>/compare]")
    add("--smoke", action="store_true", help="one round of few iterations")
    options = parser.parse_args(argv)
    for name, given, known in (("--cases", options.cases, CASES), ("--planc-algos", options.planc_algos, PLANC)):
        if wrong := set(given) - set(known):
            parser.error(f"{name}: unknown {', '.join(sorted(wrong))}; choose from {', '.join(known)}")
    if options.smoke:
        options.rounds, options.budget, options.most = 1, 0.5, 12
    options.binary = str(find_binary(options.binary))
    return options


def named(words, default):
    """Splits NAME=PATH words."""
    return [tuple(word.split("=", 1)) if "=" in word else (default, word) for word in words]


def output_of(words):
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def entries(options, sparse):
    """Yields everything that runs on a dense or a sparse matrix."""
    for method in options.method or METHODS:
        for precision in options.precision:
            yield Fednmf("fednmf", method, precision, options.binary)
    for name, path in named(options.planc_sparse if sparse else options.planc, "default build"):
        for method in options.planc_algos if "f64" in options.precision else []:
            yield Planc(f"PLANC ({name})", method, "f64", path)
    for precision, path in named(options.dsanls_c, "f32"):
        for method in options.dsanls_methods if precision in options.precision else []:
            yield DsanlsC("DSANLS in C", method, precision, path)
    for solver in options.sklearn_solvers if options.sklearn else []:
        for precision in options.precision:
            yield Sklearn("scikit-learn", solver, precision, options.sklearn)


def without_directories(command):
    """Returns a command line with base names only: a stored result has no path of the machine."""
    return shlex.join("=".join(os.path.basename(part) for part in word.split("=")) for word in shlex.split(command))


def described_command(argv):
    """Returns the command line of this comparison without options that concern only this machine."""
    words, skip = [], False
    for word in argv:
        if skip or word.split("=")[0] in LOCAL:
            skip = not skip and word in LOCAL
        else:
            words.append(word)
    return "bench/run compare " + without_directories(shlex.join(words))


def setup_lines(options):
    """Returns machine and versions."""
    revision = output_of(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])
    mpi = output_of(options.mpirun.split()[:1] + ["--version"]) or "unknown"
    lines = [
        f"date: {datetime.datetime.now().astimezone().isoformat(timespec='seconds')}",
        f"machine: {cpu_model()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        f"fednmf: {output_of([options.binary, '--version'])}, revision {revision}",
        f"MPI: {mpi.splitlines()[0]}",
        f"Python: {platform.python_version()}, numpy {np.__version__}",
    ]
    if options.sklearn:
        code = "import sklearn, scipy, numpy; print(sklearn.__version__, scipy.__version__, numpy.__version__)"
        versions = output_of([options.sklearn, "-c", code]).split()
        lines.append(", ".join(f"{n} {v}" for n, v in zip(("scikit-learn", "scipy", "numpy"), versions)))
    lines.append(f"k = {options.k}, {options.rounds} rounds, {options.budget} s per run, one BLAS thread per rank")
    return lines


def iterations_within_budget(points, options):
    seconds = min((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:]))
    return int(min(options.most, max(10, options.budget / max(seconds, 1e-6))))


def measure(options, case, ranks):
    """Runs all programs on a case, interleaved; returns (entry, round, history) triples and the command lines."""
    plans, results, commands = [], [], []
    for entry in entries(options, case.sparse):
        # The trial also writes the input file and brings it into the page cache.
        points, _ = entry.run(options, case, options.k, ranks, TRIAL, 0)
        if len(points) > 1:
            plans.append((entry, iterations_within_budget(points, options)))
    for turn in range(options.rounds):
        shift = turn * len(plans) // options.rounds
        for entry, iterations in plans[shift:] + plans[:shift]:
            points, command = entry.run(options, case, options.k, ranks, iterations, turn)
            results.append((entry, turn, points))
            if turn == 0:
                commands.append(f"{case.name}, {ranks} ranks: {without_directories(command)}")
    return results, commands


def write_curves(file, results_by_case):
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["case", "ranks", "program", "method", "precision", "round", "iteration", "seconds", "error"])
    for (case, ranks), results in results_by_case.items():
        for entry, turn, points in results:
            for iteration, seconds, error in thin(points):
                writer.writerow(
                    [
                        case,
                        ranks,
                        entry.program,
                        entry.method,
                        entry.precision,
                        turn,
                        iteration,
                        f"{seconds:.4g}",
                        f"{error:.5f}",
                    ]
                )


def main(argv):
    options = parse(argv)
    out = options.out or str(ROOT / "bench" / "runs" / f"{datetime.date.today()}-{machine_name()}" / "compare")
    os.makedirs(out, exist_ok=True)
    os.makedirs(options.work, exist_ok=True)
    setup, results_by_case = setup_lines(options), {}
    for name in options.cases:
        case = Case(name, options.data, options.work)
        for ranks in map(int, options.ranks):
            print(f"{name}, {ranks} ranks", file=sys.stderr, flush=True)
            results_by_case[name, ranks], commands = measure(options, case, ranks)
            setup += commands
            with open(os.path.join(out, "setup.txt"), "w") as file:
                file.write("\n".join([*setup, ""]))
            with open(os.path.join(out, "curves.csv"), "w", newline="") as file:
                write_curves(file, results_by_case)
            with open(os.path.join(out, "summary.md"), "w") as file:
                file.write(summary(described_command(argv), [f"- {line}" for line in setup[:3]], results_by_case))
        case.release()
    print(os.path.join(out, "summary.md"))
