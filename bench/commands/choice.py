"""Count the work that `--algo auto` needs to reach a good error, beside its alternatives.

Work is what the kernels count: floating-point operations of products, Gram matrices and updates, the start included. One
with a nonzero of sparse data counts as four, as in `crates/methods/src/shared/init/choice.rs`. It is given in products of the whole
matrix with a factor. No clock is involved, so the numbers are the same on every machine and under any load. The target
is 1.01 times the lowest error of all methods with the same seed. Each cell is the median over the seeds; `-` means that a
median run did not reach it.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from lib.datasets import SETS
from lib.program import ROOT, add_binary_option, find_binary, history, run_traced

FAST = ["--inner-sweeps", "auto", "--extrapolation", "restart"]
# Name, options of fednmf, most iterations, iterations between two evaluations, whether it starts where auto does.
METHODS = [
    ("auto", ["auto"], 200, 1, False),
    ("hals", ["hals"], 300, 1, False),
    ("A-HALS", ["hals", *FAST], 300, 1, False),
    ("A-HALS, nndsvd", ["hals", *FAST, "--init", "nndsvd"], 200, 1, False),
    ("A-HALS, compressed", ["hals", *FAST, "--init", "compressed"], 200, 1, False),
    ("A-HALS, sampled", ["hals", *FAST, "--init", "sampled"], 200, 1, False),
    ("dsanls, d = 10 k", ["dsanls", "--sketch-size", "10k"], 3000, 10, False),
    ("dsanls, weighted", ["dsanls", "--sketch", "weighted"], 600, 10, False),
    ("vr-dsanls", ["vr-dsanls"], 300, 1, False),
    ("vr-dsanls, auto's start", ["vr-dsanls"], 300, 1, True),
]
CASES = {
    "digits": ("digits", 10),
    "mnist-test": ("mnist-test", 40),
    "faces": ("faces", 30),
    "kos": ("kos", 20),
    "cells": ("cells", 10),
    "planted": ("synthetic:planted,m=4000,n=1000,k=20,noise=0.05,seed=3", 20),
    "planted, wide": ("synthetic:planted,m=500,n=8000,k=20,noise=0.05,seed=3", 20),
    "power law": ("synthetic:sparse,law=power,m=10000,n=4000,density=0.01,seed=3", 20),
    "planted, mn/(m+n) = 250 k": ("synthetic:planted,m=4000,n=4000,k=8,noise=0.05,seed=3", 8),
    "planted, mn/(m+n) = 500 k": ("synthetic:planted,m=8000,n=8000,k=8,noise=0.05,seed=3", 8),
    "power law, thin": ("synthetic:sparse,law=power,m=20000,n=10000,density=0.001,seed=3", 20),
}
SPARSE_FLOP = 4.0


def work(events):
    """Returns the operations of a run, weighed, in products of the whole matrix with a factor."""
    start, end = events[0], events[-1]
    sparse = "sparse" in start["format"] or "coordinate" in start["format"] or "triples" in start["format"]
    entries = start["nnz"] if sparse else start["m"] * start["n"]
    weight = SPARSE_FLOP if sparse else 1.0
    total = sum(
        phase["flops"] * (weight if name.startswith("product") else 1.0)
        for name, phase in end["phases"].items()
        if not name.startswith("evaluation")
    )
    return total / (weight * 2.0 * entries * start["k"])


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run choice", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="public sets [data]")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help="[all]")
    parser.add_argument("--precision", default="f64", help="f64 or f32 [f64]")
    parser.add_argument("--most", type=float, default=1.0, metavar="F", help="share of the usual iterations [1]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="[0 1 2]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    print("| matrix | k | auto chose | " + " | ".join(name for name, *_ in METHODS) + " | auto / best |")
    print("| --- | --- | --- |" + " --- |" * (len(METHODS) + 1), flush=True)
    for case in options.cases:
        name, k = CASES[case]
        source = name if name.startswith("synthetic:") else options.data / SETS[name].file
        rounds = {method: [] for method, *_ in METHODS}
        choice = ""
        for seed in options.seeds:
            common = [binary, "-k", k, "--seed", seed, "--input", source]
            common += ["--precision", options.precision]
            with tempfile.TemporaryDirectory() as scratch:
                start = Path(scratch, "start.h5")
                as_found = ["--factor-scale", "as-found", "--output", start]
                events = run_traced([*common, "--algo", "auto", "--max-iters", 0, *as_found])
                begun, shorter = work(events), min(events[0]["m"], events[0]["n"])
                runs = {}
                for method, words, iterations, every, warm in METHODS:
                    words = [str(min(10 * k, shorter)) if word == "10k" else word for word in words]
                    line = [*common, "--algo", *words, *(["--init", start] if warm else [])]
                    line += ["--max-iters", round(options.most * iterations), "--eval-every", every]
                    events = run_traced(line)
                    if method == "auto":
                        choice = f"{events[0]['algo']}, {events[0]['params'].get('init', '')}"
                    runs[method] = line, min(error for _, _, error in history(events))
                target = 1.01 * min(error for _, error in runs.values())
                for method, *_, warm in METHODS:
                    line, error = runs[method]
                    cost = float("inf")
                    if error <= target:
                        cost = work(run_traced([*line, "--target-error", f"{target:.12g}"])) + (begun if warm else 0.0)
                    rounds[method].append(cost)
        medians = {method: statistics.median(costs) for method, costs in rounds.items()}
        cells = ["-" if cost == float("inf") else f"{cost:.1f}" for cost in medians.values()]
        ratio = medians["auto"] / min(medians.values()) if medians["auto"] < float("inf") else float("inf")
        print(f"| {case} | {k} | {choice} | " + " | ".join(cells) + f" | {ratio:.2f} |", flush=True)
