"""The command line of bench/reproduce."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import tempfile
import time
from pathlib import Path

from . import engine as engines
from . import plot, report
from .results import Results, evaluate
from .spec import Figure, Missing

FAMILIES = ["dsanls", "secure", "fnmf", "felb", "dp", "ppdnmf"]


def figures() -> dict[str, Figure]:
    """All figures by name, in the papers' order."""
    found = {}
    for family in FAMILIES:
        for figure in importlib.import_module(f"figures.{family}").FIGURES:
            found[figure.name] = figure
    return found


def choose(known: dict[str, Figure], words: list[str]) -> list[Figure]:
    """The figures that were asked for: by name, by the beginning of one, or `all`."""
    chosen = {}
    for word in words:
        hits = [known[word]] if word in known else [f for n, f in known.items() if word == "all" or n.startswith(word)]
        if not hits:
            sys.exit(f"no figure {word}; bench/reproduce --list shows what there is")
        chosen |= {f.name: f for f in hits}
    return list(chosen.values())


def collect(figure: Figure, engine) -> tuple[list, Results]:
    """Runs all panels of a figure; one whose data is missing is left out and says so."""
    panels, results = figure.panels(), Results()
    for panel in panels:
        try:
            results.panels[panel.name] = {c.label: evaluate(engine, panel, c) for c in panel.curves}
        except Missing as missing:
            results.missing[panel.name] = str(missing)
            print(f"  {panel.name} is left out: {missing}", flush=True)
    return panels, results


def smoke(chosen: list[Figure], binary: Path) -> int:
    """Every run of every figure, small, on bundled data: it works and gives the columns that its figure reads."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        engine = engines.Engine(binary, None, Path(folder), smoke=True)
        for figure in chosen:
            before = time.monotonic(), engine.started
            try:
                panels, results = collect(figure, engine)
                for panel in panels:
                    for label, points in results[panel.name].items():
                        if len(points) < 2 and not panel.table and not isinstance(points[0].x, str):
                            raise engines.Failed(f"{panel.name}, {label}: a curve of {len(points)} points")
                report.verdicts(figure, results)
                report.comparisons(figure, results)
                report.write_csv(Path(folder) / "curves.csv", results)
                setup = {"command": "", "machine": "", "date": "", "version": "", "note": ""}
                report.write_summary(Path(folder) / "summary.md", figure, panels, results, setup)
                seconds, runs = time.monotonic() - before[0], engine.started - before[1]
                print(f"ok      {figure.name:14} {runs:3} runs  {seconds:5.1f} s", flush=True)
            except Exception as error:  # one broken figure hides no other
                failed += 1
                print(f"FAILED  {figure.name}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


def full(chosen: list[Figure], args) -> int:
    folder = args.data or os.environ.get("FEDNMF_DATA")
    scratch = engines.ROOT / "target" / "reproduce"
    binary = engines.find_binary(args.binary)
    engine = engines.Engine(binary, Path(folder) if folder else None, scratch, seconds=args.seconds, fresh=args.fresh)
    machine = args.machine or report.machine()
    out = Path(args.out) if args.out else engines.ROOT / "bench" / "runs" / f"{engines.clock()}-{machine}"
    failed = 0
    for figure in chosen:
        print(f"{figure.name}: {figure.title}", flush=True)
        started = time.monotonic()
        try:
            panels, results = collect(figure, engine)
        except engines.Failed as error:
            failed += 1
            print(f"  failed: {error}", file=sys.stderr, flush=True)
            continue
        except engines.Enough:
            print("  to be continued: the same command goes on from here", flush=True)
            return 75
        if not results.panels:
            continue
        place = out / figure.name
        place.mkdir(parents=True, exist_ok=True)
        version = next(iter(engine.known.values())).start
        setup = {
            "command": f"bench/reproduce {figure.name} --data DIR",
            "machine": machine,
            "date": engines.clock(),
            "note": f" {args.note}" if args.note else "",
            "version": f"{version['version']} ({version['git']})",
        }
        report.write_csv(place / "curves.csv", results)
        report.write_summary(place / "summary.md", figure, panels, results, setup)
        plot.draw(figure, panels, results, scratch, place / "plot.svg")
        print(f"  {place}  {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/reproduce", description="Regenerates figures and tables of the papers.")
    parser.add_argument("figure", nargs="*", help="names, beginnings of names (felb: all of that paper), or all")
    parser.add_argument("--list", action="store_true", help="show the figures: paper, data, minutes")
    parser.add_argument("--smoke", action="store_true", help="small runs of all figures on bundled data; no plots")
    parser.add_argument("--data", metavar="DIR", help="where the public data sets are (or FEDNMF_DATA)")
    parser.add_argument("--out", metavar="DIR", help="where to write (bench/runs/<date>-<machine>)")
    parser.add_argument("--machine", metavar="NAME", help="how the results call this machine")
    parser.add_argument("--binary", metavar="FILE", help="the fednmf to run (target/release/fednmf)")
    parser.add_argument("--for", dest="seconds", type=float, default=math.inf, metavar="S",
                        help="start no run after S seconds, and exit with 75; the next call goes on")  # fmt: skip
    parser.add_argument("--note", default="", metavar="TEXT", help="a sentence for the summary, on how this was run")
    parser.add_argument("--fresh", action="store_true", help="repeat runs that are known below target/reproduce")
    args = parser.parse_args()
    known = figures()
    if args.list:
        for figure in known.values():
            print(f"{figure.name:14} {figure.title}\n{'':14} {figure.paper}; {figure.data}; {figure.minutes:g} min")
        return 0
    if args.smoke:
        return smoke(choose(known, args.figure or ["all"]), engines.find_binary(args.binary))
    if not args.figure:
        parser.error("which figure? --list shows what there is")
    return full(choose(known, args.figure), args)
