"""Repeat recorded figures with a few of their seeds, and confirm records whose values recur.

A record stands for the commit that it was measured on. Where a later program gives the same values, a few seeds show it
in a fraction of the time. A confirmed record names the later commit; `bench/run claims` takes it from there. Claims about
measured time are left out: they are repeated on an idle machine only. So are figures whose parties draw in secret.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

from commands.claims import newest
from commands.reproduce import EPILOG, SCRATCH, choose, collect, compare, figures
from lib.engine import Engine, RunFailed
from lib.program import add_binary_option, find_binary
from lib.results import ANY
from lib.verdict import Comparison

# Relative difference of two values that are the same: they are recorded with six digits, and the order of sums in
# other kernels changes the last ones of a long iteration.
SAME = 1e-3
CONFIRMED = "- Confirmed: "


def pairs(compared: dict[str, list[Comparison]], claims: set[str]) -> dict[tuple, float]:
    """Returns the values by claim, comparison, seed and side."""
    found = {}
    for claim, comparisons in compared.items():
        if claim in claims:
            for c in comparisons:
                for seed, both in enumerate(zip(c.greater, c.smaller)):
                    for side, value in enumerate(both):
                        found[claim, c.label, ANY if c.exact else seed, side] = value
    return found


def differences(recorded: dict[tuple, float], again: dict[tuple, float]) -> tuple[int, list[str]]:
    """Returns how many values are in both, and those that differ.

    >>> differences({("c", "a − b", 0, 0): 1.0, ("c", "a − b", 1, 0): 2.0}, {("c", "a − b", 0, 0): 1.0001})
    (1, [])
    >>> differences({("c", "a − b", 0, 0): 1.0}, {("c", "a − b", 0, 0): 1.1})
    (1, ['c, a − b, seed 0: 1 recorded, 1.1 now'])
    """
    common = [key for key in recorded if key in again]
    wrong = []
    for key in common:
        old, new = recorded[key], again[key]
        if abs(old - new) > SAME * max(abs(old), abs(new), 1e-9):
            claim, label, seed, _ = key
            wrong.append(f"{claim}, {label}, seed {seed}: {old:.6g} recorded, {new:.6g} now")
    return len(common), wrong


def mark(summary: Path, line: str) -> None:
    """Writes a line on the confirmation below that on the version, in place of an earlier one."""
    lines = [old for old in summary.read_text().splitlines() if not old.startswith(CONFIRMED)]
    place = next(i for i, old in enumerate(lines) if old.startswith("- Version: ")) + 1
    summary.write_text("\n".join([*lines[:place], CONFIRMED + line, *lines[place:]]) + "\n")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bench/run confirm",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_binary_option(parser)
    parser.add_argument("figure", nargs="+", help="names, prefixes (felb: all figures of that paper), or all")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds to repeat [2]")
    parser.add_argument("--data", metavar="DIR", help="directory of the public data sets [$FEDNMF_DATA]")
    options = parser.parse_args(argv)
    data = options.data or os.environ.get("FEDNMF_DATA")
    engine = Engine(find_binary(options.binary), Path(data) if data else None, SCRATCH, seeds=options.seeds)
    failed = 0
    for figure in choose(figures(), options.figure):
        record = newest(figure)
        claims = {claim.name for claim in figure.tests() if not claim.timed}
        recorded = pairs(record.compared, claims) if record else {}
        if figure.secret:
            print(f"{figure.name}: parties draw in secret, so its values never recur; run it again", flush=True)
            continue
        if not recorded:
            print(f"{figure.name}: no record with values by seed of claims that are not about time", flush=True)
            continue
        try:
            _, results = collect(figure, engine)
        except RunFailed as error:
            failed += 1
            print(f"{figure.name}: failed: {error}", file=sys.stderr, flush=True)
            continue
        count, wrong = differences(recorded, pairs(compare(figure, results, busy=True), claims))
        if wrong or not count:
            failed += 1
            print(f"{figure.name}: {len(wrong)} of {count} values differ; run it again", flush=True)
            for line in wrong[:10]:
                print(f"  {line}", flush=True)
            continue
        trace = next(iter(engine.known.values())).start
        commit = re.sub(r"\W.*", "", trace["git"])
        line = f"fednmf {trace['version']} ({commit}), {time.strftime('%Y-%m-%d')}: {count} values of the first seeds recur"
        mark(record.directory / "summary.md", line)
        print(f"{figure.name}: {line}", flush=True)
    return 1 if failed else 0
