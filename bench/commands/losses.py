"""Count the iterations that `--algo auto` and its alternatives need for each loss to reach a good divergence.

The target is 1.01 times the lowest divergence of all methods with the same seed. A cell is the median over the seeds of the
iterations to the target. The start counts as the number of iterations that take as long. `-` means that the median run did not
reach the target. An iteration of kl-cd takes several times as long as one of multiplicative updates. `--seconds` prints seconds
instead; measure them with a release build on an idle machine.
"""

import argparse
import statistics
from pathlib import Path

from lib.datasets import SETS
from lib.program import ROOT, add_binary_option, find_binary, run_traced

# Matrix, k, loss, maximum number of iterations.
CASES = {
    "digits, kl": ("digits", 16, "kl", 400),
    "digits, 1.5": ("digits", 10, "1.5", 200),
    "kos, kl": ("kos", 20, "kl", 200),
    "cells, kl": ("cells", 10, "kl", 300),
    "counts, kl": ("synthetic:sparse,m=1000,n=800,density=0.05,values=counts,seed=3", 10, "kl", 200),
    "planted, kl": ("synthetic:planted,m=800,n=500,k=10,noise=0.1,seed=3", 10, "kl", 200),
    "planted, 0.5": ("synthetic:planted,m=300,n=200,k=6,noise=0.1,seed=3", 6, "0.5", 200),
}
RESTART, NONE = ["--extrapolation", "restart"], ["--extrapolation", "none"]
RANDOM, SAMPLED = ["--init", "random"], ["--init", "sampled"]


def methods(loss):
    """The names of the compared methods, and their options of fednmf."""
    method = ["--algo", "kl-mu"] if loss == "kl" else ["--algo", "beta-mu", "--beta", loss]
    plain = [*method, *NONE]
    found = [("auto", ["--loss", loss]), ("updates", [*plain, *RANDOM]), ("updates, sampled", [*plain, *SAMPLED])]
    if loss in ("kl", "1.5"):
        found.append(("extrapolated", [*method, *RESTART, *RANDOM]))
    if loss == "kl":
        found += [("kl-cd", ["--algo", "kl-cd", *RANDOM]), ("kl-cd, sampled", ["--algo", "kl-cd", *SAMPLED])]
    return found


def curve(events):
    """Returns (iterations, seconds, divergence) of each evaluation, the start included as in the docstring."""
    of = lambda event: event.get("kl_divergence", event.get("beta_divergence"))  # noqa: E731
    points = [(event["iter"], event["seconds"], of(event)) for event in events if event["event"] == "iter"]
    begun, (iterations, seconds, _) = points[0][1], points[-1]
    start = begun * iterations / max(seconds - begun, 1e-9)
    return [(at + start, passed, value) for at, passed, value in points]


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run losses", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="public sets [data]")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help="[all]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="[0 1 2]")
    parser.add_argument("--seconds", action="store_true", help="print seconds instead of iterations")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    names = [name for name, _ in methods("kl")]
    print("| matrix, loss | k | " + " | ".join(names) + " |")
    print("| --- | --- |" + " --- |" * len(names), flush=True)
    for case in options.cases:
        name, k, loss, most = CASES[case]
        source = name if name.startswith("synthetic:") else options.data / SETS[name].file
        costs = {}
        for seed in options.seeds:
            common = [binary, "-k", k, "--seed", seed, "--input", source, "--max-iters", most, "--eval-every", 2]
            curves = {method: curve(run_traced([*common, *words])) for method, words in methods(loss)}
            target = 1.01 * min(value for points in curves.values() for *_, value in points)
            for method, points in curves.items():
                at = [(passed if options.seconds else iterations) for iterations, passed, value in points if value <= target]
                costs.setdefault(method, []).append(at[0] if at else float("inf"))
        medians = {method: statistics.median(values) for method, values in costs.items()}
        digits = 2 if options.seconds else 0
        cell = lambda cost: "" if cost is None else "-" if cost == float("inf") else f"{cost:.{digits}f}"  # noqa: E731
        print(f"| {case} | {k} | " + " | ".join(cell(medians.get(method)) for method in names) + " |", flush=True)
