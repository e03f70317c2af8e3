"""Checks for memory errors, undefined behaviour and leaks that take too long for `make test`.

    adversary [BINARY [SECONDS [DATA ...]]]  what one or two of three parties find by all attacks, on all private methods, as a table
    attacks [BINARY [DATA]]       what one party can compute of the others' data, as a table
    columns [BINARY [DATA]]       methods for private columns: error, bytes, and what attacks recover, as a table
    doors [MINUTES [BINARY [SEED]]]  whether class, fednmf.tl and program have the same results on random matrices [10 minutes];
                                  needs the package
    epsilon [BINARY [RUNS]]       a lower bound on the epsilon of whole runs with --dp, as a table
    findings [BINARY [ATTACKER [FINDING ...]]]  whether the attacks of a review succeed against a binary, as a table
    fuzz [SECONDS [TARGET ...]]   fuzz each target for SECONDS [60]; needs cargo-fuzz and nightly Rust
    pages [BINARY [FOLDER]]       reports in a headless browser, at three sizes, light and dark, and on paper; needs Node.js and
                                  Chromium, and is skipped without them
    tsan                          thread pool, link and reader of panels under the thread sanitizer
    miri [TEST ...]               unit tests of the pure modules under Miri; needs nightly Rust with Miri
    slurm [BINARY [CHECK ...]]    the batch scripts in jobs/ on a Slurm of four nodes, started here; needs Slurm and munge
    soak [SECONDS [BINARY]]       long runs that watch memory, open files and MPI requests [600 s]
    valgrind [BINARY]             one rank of each family under Memcheck; needs valgrind

Arguments in brackets are optional.
"""

import argparse
import subprocess

from lib.program import ROOT

CHECKS = ("adversary", "attacks", "columns", "doors", "epsilon", "findings", "fuzz", "miri", "pages", "slurm", "soak", "tsan", "valgrind")


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run safety", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("arguments", nargs="*", help="arguments of the check, as listed above")
    options = parser.parse_args(argv)
    return subprocess.run([ROOT / "bench" / "safety" / options.check, *options.arguments]).returncode
