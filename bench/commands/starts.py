"""Compare the errors in which `--algo auto` ends with the best of plain methods from as many random starts.

For the squared error the plain method is HALS, for the Kullback-Leibler divergence multiplicative updates without extrapolation. `auto`
stops by itself. Printed are its median and its worst error over the seeds, each divided by the lowest one of the plain method.
No clock is involved, so the numbers do not depend on the load of the machine.
"""

import argparse
import statistics
from pathlib import Path

from lib.datasets import SETS
from lib.program import ROOT, add_binary_option, find_binary, history, run_traced

CASES = {
    "digits": [10, 16, 40],
    "faces": [10, 30, 40],
    "kos": [10, 30],
    "cells": [10, 30],
    "mushroom": [10, 20, 30],
    "synthetic:planted,m=60,n=40,k=5,noise=0.1,seed=1": [5, 8],
    "synthetic:planted,m=300,n=80,k=8,noise=0.3,seed=2": [8, 16],
    "synthetic:exponential,m=100,n=50,seed=3": [5, 20],
    "synthetic:sparse,m=400,n=200,density=0.03,values=counts,seed=4": [5, 20],
    "synthetic:sparse,law=power,m=600,n=300,density=0.05,values=counts,seed=5": [5, 20],
}
LOSSES = {
    "frobenius": ["hals", "--init", "random", "--max-iters", 300],
    "kl": ["kl-mu", "--init", "random", "--extrapolation", "none", "--max-iters", 500],
}


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run starts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="public sets [data]")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help="[all]")
    parser.add_argument("-k", type=int, nargs="+", metavar="K", help="only these of the numbers of components")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), metavar="LOSS", help="[all]")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="number of seeds [10]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    print("| matrix | k | loss | lowest of the plain method | median of auto | worst of auto | median / lowest | worst / lowest |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for case in options.cases:
        source = case if case.startswith("synthetic:") else options.data / SETS[case].file
        for loss in options.losses:
            for k in [k for k in CASES[case] if not options.k or k in options.k]:

                def ends(*words, k=k, source=source, loss=loss):
                    """The lowest value of the loss in a run for each seed."""
                    for seed in range(options.seeds):
                        line = [binary, "-k", k, "--seed", seed, "--input", source, "--eval-every", 10, "--algo", *words]
                        events = run_traced(line)
                        if loss == "frobenius":
                            yield min(error for _, _, error in history(events))
                        else:
                            yield min(event["kl_divergence"] for event in events if event["event"] == "iter")

                plain = min(ends(*LOSSES[loss]))
                auto = sorted(ends("auto", "--loss", loss))
                median, worst = statistics.median(auto), auto[-1]
                name = case.removeprefix("synthetic:")
                print(
                    f"| {name} | {k} | {loss} | {plain:.6g} | {median:.6g} | {worst:.6g} | {median / plain:.4f} | {worst / plain:.4f} |",
                    flush=True,
                )
