"""Compare NMF methods with other programs: time to 1.01 times the lowest error, and quality of the factors.

    VENV/bin/python bench/run compare --planc openblas=DIR/dense_distnmf --planc-sparse openblas=DIR/sparse_distnmf \\
        --dsanls-c f32=DIR/dsanls-f32 --dsanls-c f64=DIR/dsanls-f64 --sklearn PYTHON --nmf-rs PYTHON \\
        --nmf-torch PYTHON --pydnmfk PYTHON=DIR --rcppml Rscript --data DIR

Runs fednmf and the given baselines in turn, so that other load on the machine affects all of them alike, and rotates
the order from round to round. The baselines are separate programs: PLANC's distnmf, built without barrier timing; the
C code of the DSANLS paper, built with -O3 and with a working -u (the upper bound of the random initialisation); Pythons
with scikit-learn, nmf-rs, nmf-torch, torchnmf, fednmf's own package, and mpi4py with the sources of pyDNMFk in DIR; an R
with RcppML. Writes summary.md, setup.txt, results.csv and curves.csv to --out after each matrix. A full run takes an hour; --cases,
--ranks, --rounds, --budget and --minutes shorten it, and --smoke tries everything on small matrices within minutes.
`bench/run tables RECORD` copies the tables of a record to bench/README.md.
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
import textwrap
import time

import numpy as np

from lib.baselines import (
    PLANC,
    SKETCHES,
    TRIAL,
    DsanlsC,
    Fednmf,
    FednmfClass,
    NmfRs,
    NmfTorch,
    Planc,
    PyDnmfk,
    RcppMl,
    Sklearn,
    TorchNmf,
)
from lib.comparison import OURS, TOLERANCE, is_ours, reached, read_rows, rows_of, summary, write_rows
from lib.matrices import CASES, Case
from lib.program import ROOT, add_binary_option, cpu_model, find_binary, machine_name, run_traced, thin
from lib.quality import quality

METHODS = ["auto"]
SMOKE_CASES = {"frobenius": ["planted", "cells", "digits"], "kl": ["cells", "digits"]}
LOSSES = {"frobenius": "the squared error", "kl": "the Kullback-Leibler divergence"}
# How many times as long the closest programs run from the second round on, since the target may fall; the same if none
# reached the target.
LONGER, EXTENDED = 1.5, 3
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
    add("--planc-algos", type=names, default=["hals", "bpp", "aoadmm"], help=f"of {','.join(PLANC)}")
    add(
        "--dsanls-c",
        action="append",
        default=env("DSANLS_C", "").split(),
        metavar="f32=PATH|f64=PATH",
        help="C code of DSANLS; repeatable [$DSANLS_C]",
    )
    add("--dsanls-methods", type=names, default=list(SKETCHES)[:2], help=f"of {','.join(SKETCHES)}".replace("%", "%%"))
    add("--sklearn", default=env("SKLEARN"), metavar="PYTHON", help="a Python with scikit-learn [$SKLEARN]")
    add("--sklearn-solvers", type=names, help="of cd,mu [cd; mu for divergences]")
    add("--nmf-torch", metavar="PYTHON", help="a Python with nmf-torch")
    add("--nmf-torch-algos", type=names, help="of halsvar,hals,mu [halsvar,hals; mu for divergences]")
    add("--torchnmf", metavar="PYTHON", help="a Python with torchnmf, for --loss kl")
    add("--package", metavar="PYTHON", help="a Python with fednmf's package")
    add("--nmf-rs", metavar="PYTHON", help="a Python with nmf-rs")
    add("--pydnmfk", metavar="PYTHON=DIR", help="a Python with mpi4py, and the sources of pyDNMFk")
    add("--rcppml", metavar="RSCRIPT", help="an Rscript with RcppML")
    add("--loss", choices=LOSSES, default="frobenius", help="loss that all minimise [%(default)s]")
    add("--cases", type=names, help=f"of {','.join(CASES)} [all that suit the loss]")
    add("--data", default=env("FEDNMF_DATA"), metavar="DIR", help="directory of the data sets [$FEDNMF_DATA]")
    add("--ranks", type=names, default=["1", "2"], help="MPI ranks, or threads of scikit-learn [1,2]")
    add("--precision", type=names, default=["f64", "f32"], help="[f64,f32]")
    add("--rounds", type=int, default=3, help="repetitions [%(default)s]")
    add(
        "--budget",
        action="append",
        default=[],
        metavar="[CASE=]SECONDS",
        help="solver seconds of a run, of all matrices or of one; repeatable [8]",
    )
    add("--most", type=int, help="most iterations of a run [400; 1000 for divergences]")
    add("--minutes", type=float, default=float("inf"), help="start no further matrix after that time [no limit]")
    add(
        "--repeat-within",
        type=float,
        default=1.5,
        metavar="FACTOR",
        help="repeat programs that took at most this many times as long as the fastest other program [%(default)s]",
    )
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
    add("--append", action="store_true", help="keep the other matrices of a record in --out")
    add("--smoke", action="store_true", help="one round of few iterations")
    options = parser.parse_args(argv)
    divergence = options.loss == "kl"
    suited = [name for name, source in CASES.items() if options.loss in source.losses]
    options.cases = options.cases or (SMOKE_CASES[options.loss] if options.smoke else suited)
    options.most = options.most or (1000 if divergence else 400)
    options.sklearn_solvers = options.sklearn_solvers or (["mu"] if divergence else ["cd"])
    options.nmf_torch_algos = options.nmf_torch_algos or (["mu"] if divergence else ["halsvar", "hals"])
    for name, given, known in (("--cases", options.cases, CASES), ("--planc-algos", options.planc_algos, PLANC)):
        if wrong := set(given) - set(known):
            parser.error(f"{name}: unknown {', '.join(sorted(wrong))}; choose from {', '.join(known)}")
    if options.pydnmfk and "=" not in options.pydnmfk:
        parser.error("--pydnmfk: write PYTHON=DIR, with the directory of pyDNMFk's sources")
    options.budgets = {"": 8.0}
    for word in options.budget:
        case, _, seconds = word.rpartition("=")
        if case and case not in CASES:
            parser.error(f"--budget: unknown matrix {case}; choose from {', '.join(CASES)}")
        try:
            options.budgets[case] = float(seconds)
        except ValueError:
            parser.error(f"--budget: '{seconds}' is not a number of seconds")
    if options.smoke:
        options.rounds, options.budgets, options.most = 1, {"": 0.2}, 12
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


def entries(options, case, precision):
    """Yields everything that minimises the loss on the matrix."""
    for entry in all_entries(options, case, precision):
        if options.loss in entry.losses:
            entry.loss = options.loss
            yield entry


def all_entries(options, case, precision):
    for method in options.method or METHODS:
        yield Fednmf(OURS, method, precision, options.binary)
    for name, path in named(options.planc_sparse if case.sparse else options.planc, ""):
        for method in options.planc_algos if precision == "f64" else []:
            yield Planc(f"PLANC ({name})" if name else "PLANC", method, "f64", path)
    for of_precision, path in named(options.dsanls_c, "f32"):
        for method in options.dsanls_methods if precision == of_precision else []:
            yield DsanlsC("DSANLS in C", method, precision, path)
    scripts = [Sklearn("scikit-learn", solver, precision, options.sklearn) for solver in options.sklearn_solvers]
    scripts += [NmfTorch("nmf-torch", method, precision, options.nmf_torch) for method in options.nmf_torch_algos]
    scripts.append(TorchNmf("torchnmf", "mu", precision, options.torchnmf))
    scripts.append(FednmfClass("fednmf.NMF", "nmf", precision, options.package))
    scripts.append(NmfRs("nmf-rs", "hals", precision, options.nmf_rs))
    scripts.append(RcppMl("RcppML", "nmf", precision, options.rcppml))
    python, _, source = (options.pydnmfk or "").partition("=")
    scripts.append(PyDnmfk("pyDNMFk", "hals", precision, python, source))
    yield from (script for script in scripts if script.command and script.accepts(case))


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
    command = "bench/run compare " + without_directories(shlex.join(words))
    return " \\\n    ".join(textwrap.wrap(command, 112, break_long_words=False, break_on_hyphens=False))


def setup_lines(options):
    """Returns machine and versions."""
    revision = run_traced([options.binary, "-k", 1, "--max-iters", 1])[0]["git"]
    mpi = output_of(options.mpirun.split()[:1] + ["--version"]) or "unknown"
    lines = [
        f"date: {datetime.datetime.now().astimezone().isoformat(timespec='seconds')}",
        f"machine: {cpu_model()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        f"fednmf: {output_of([options.binary, '-V'])}, revision {revision}",
        f"MPI: {mpi.splitlines()[0]}",
        f"Python: {platform.python_version()}, numpy {np.__version__}",
    ]
    if options.sklearn:
        lines.append(versions(options.sklearn, "scikit-learn", "scipy", "numpy"))
    if options.nmf_rs:
        lines.append(versions(options.nmf_rs, "nmf_rs", "numpy"))
    if options.nmf_torch:
        lines.append(versions(options.nmf_torch, "nmf-torch", "torch", "numpy"))
    if options.torchnmf:
        lines.append(versions(options.torchnmf, "torchnmf", "torch", "numpy"))
    if options.package:
        lines.append(versions(options.package, "fednmf", "numpy"))
    if options.pydnmfk:
        python, _, source = options.pydnmfk.partition("=")
        revision = output_of(["git", "-C", source, "describe", "--always"])
        lines.append(f"pyDNMFk {revision}, {versions(python, 'mpi4py', 'numpy')}")
    if options.rcppml:
        code = "cat(R.version.string, '/ RcppML', as.character(packageVersion('RcppML')))"
        lines.append(output_of([options.rcppml, "-e", code]))
    seconds = ", ".join(f"{seconds:g} s{f' on {case}' * bool(case)}" for case, seconds in options.budgets.items())
    lines.append(f"loss: {LOSSES[options.loss]}")
    lines.append(f"{options.rounds} rounds, solver seconds of a run: {seconds}; one BLAS thread per rank")
    return lines


def versions(python, *packages):
    """Returns names and versions of packages of that Python."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    return ", ".join(f"{name} {v}" for name, v in zip(packages, output_of([python, "-c", code, *packages]).split()))


def iterations_within_budget(points, seconds, most):
    pace = min((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:]))
    return int(min(most, max(TRIAL, seconds / max(pace, 1e-6))))


def contenders(histories, factor):
    """Returns the keys of the baselines that were close to the fastest one in the first round, and whether any was.

    `histories` maps the key of an entry to its history. If no baseline reached the target, the two with the lowest
    error count as close.
    """
    target = TOLERANCE * min(error for points in histories.values() for _, _, error in points)
    others = {key: points for key, points in histories.items() if not is_ours(key)}
    times = {key: time[0] for key, points in others.items() if (time := reached(points, target))}
    if times:
        return [key for key, seconds in times.items() if seconds <= factor * min(times.values())], True
    return sorted(others, key=lambda key: min(error for _, _, error in others[key]))[:2], False


def measure(options, case, precision, ranks):
    """Runs all programs on a case, interleaved.

    Returns (entry, round, history) triples, (recovery, ARI) by entry and round, and the command lines.
    """
    plans, trials, results, found = [], {}, {}, {}
    seconds = options.budgets.get(case.name, options.budgets[""])
    for entry in entries(options, case, precision):
        if entry.stops_by_time:
            plans.append((entry, options.most))
            continue
        # The trial also writes the input file and brings it into the page cache.
        trials[entry] = entry.run(options, case, ranks, TRIAL, 0)
        points, iterations = trials[entry].points, TRIAL
        if len(points) > 1:
            iterations = iterations_within_budget(points, seconds, options.most)
        plans.append((entry, iterations))

    def run_all(turn):
        shift = turn * len(plans) // options.rounds
        for entry, iterations in plans[shift:] + plans[:shift]:
            if turn == 0 and iterations == TRIAL and entry in trials:
                run = trials[entry]  # the trial has spent the seconds of a run, or has failed
            else:
                run = entry.run(options, case, ranks, iterations, turn, seconds)
            results[entry, turn] = run
            found[case.name, ranks, entry.key, turn] = quality(case.known, run.factors)

    run_all(0)
    commands = [f"{case.name}, {ranks} ranks: {without_directories(run.command)}" for run in results.values()]
    if options.rounds > 1:
        histories = {entry.key: run.points for (entry, _), run in results.items() if run.points}
        close, any_reached = contenders(histories, options.repeat_within)
        plans = [plan for plan in plans if is_ours(plan[0].key) or plan[0].key in close]
        factor = LONGER if any_reached else EXTENDED
        seconds *= factor
        plans = [(entry, n if is_ours(entry.key) else int(factor * n)) for entry, n in plans]
        if not any_reached:
            trials.clear()
            run_all(0)
        for turn in range(1, options.rounds):
            run_all(turn)
    return [(entry, turn, run.points) for (entry, turn), run in results.items()], found, commands


def write_curves(file, results_by_case):
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["case", "ranks", "program", "method", "precision", "round", "iteration", "seconds", "error"])
    for (case, ranks, precision), results in results_by_case.items():
        for entry, turn, points in results:
            for iteration, seconds, error in thin(points):
                measured = [iteration, f"{seconds:.4g}", f"{error:.5f}"]
                writer.writerow([case, ranks, entry.program, entry.method, precision, turn, *measured])


def earlier_record(out, cases):
    """Returns what a record has of other matrices: rows, lines of curves, commands, command lines of runs."""

    def others(name, separator):
        with open(os.path.join(out, name), newline="") as file:
            lines = file.read().splitlines(keepends=True)
        return [line for line in lines if line.split(separator)[0] in set(CASES) - set(cases)]

    rows = [row for row in read_rows(os.path.join(out, "results.csv")) if row.case not in cases]
    with open(os.path.join(out, "summary.md")) as file:
        commands = file.read().split("```sh\n")[1].split("\n```")[0].split("\n\n")
    return rows, others("curves.csv", ","), commands, [line.rstrip("\n") for line in others("setup.txt", ",")]


def main(argv):
    options, begin = parse(argv), time.monotonic()
    name = "compare-kl" if options.loss == "kl" else "compare"
    out = options.out or str(ROOT / "bench" / "runs" / f"{datetime.date.today()}-{machine_name()}" / name)
    os.makedirs(out, exist_ok=True)
    os.makedirs(options.work, exist_ok=True)
    setup, results_by_case, found = setup_lines(options), {}, {}
    head = [f"- {line}" for line in setup]
    earlier, earlier_curves, earlier_commands, earlier_runs = [], [], [], []
    if options.append:
        earlier, earlier_curves, earlier_commands, earlier_runs = earlier_record(out, options.cases)
    commands_given = [*earlier_commands, described_command(argv)]
    setup += earlier_runs
    for precision in options.precision:
        for name in options.cases:
            if time.monotonic() - begin > 60 * options.minutes:
                break
            case = Case(name, options.data, options.work)
            for ranks in map(int, options.ranks):
                print(f"{name}, {precision}, {ranks} ranks", file=sys.stderr, flush=True)
                results_by_case[name, ranks, precision], factors_found, commands = measure(
                    options, case, precision, ranks
                )
                found |= factors_found
                setup += commands
            case.release()
            rows = earlier + rows_of(results_by_case, found)
            with open(os.path.join(out, "setup.txt"), "w") as file:
                file.write("\n".join([*setup, ""]))
            with open(os.path.join(out, "curves.csv"), "w", newline="") as file:
                write_curves(file, results_by_case)
                file.writelines(earlier_curves)
            with open(os.path.join(out, "results.csv"), "w", newline="") as file:
                write_rows(rows, file)
            with open(os.path.join(out, "summary.md"), "w") as file:
                file.write(summary(commands_given, head, rows))
    print(os.path.join(out, "summary.md"))
