"""Regenerate figures and tables of the papers, with a verdict on each claim."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

from lib import datasets, report
from lib.engine import Engine, RunFailed
from lib.plot import plot
from lib.program import ROOT, add_binary_option, find_binary, machine_name
from lib.results import Results, evaluate, write_claims, write_csv
from lib.spec import Figure, Missing
from lib.verdict import Comparison

FAMILIES = ["dsanls", "secure", "fnmf", "felb", "dp", "ppdnmf"]
SCRATCH = ROOT / "target" / "reproduce"
EPILOG = """\
A figure leaves curves.csv, summary.md and plot.svg in its directory. Finished runs are cached in target/reproduce/runs
until fednmf is rebuilt, so an interrupted figure continues where it stopped."""


def figures() -> dict[str, Figure]:
    """Returns all figures by name, in the order of the papers."""
    modules = [importlib.import_module(f"figures.{family}") for family in FAMILIES]
    return {figure.name: figure for module in modules for figure in module.FIGURES}


def choose(known: dict[str, Figure], words: list[str]) -> list[Figure]:
    """Returns the figures named by a word, by its prefix, or all of them for `all`."""
    chosen = {}
    for word in words:
        hits = [known[word]] if word in known else [f for n, f in known.items() if word == "all" or n.startswith(word)]
        if not hits:
            sys.exit(f"no figure {word}; `bench/run reproduce --list` lists the figures")
        chosen |= {f.name: f for f in hits}
    return list(chosen.values())


def collect(figure: Figure, engine: Engine) -> tuple[list, Results]:
    """Runs all panels of a figure whose data is available."""
    panels, results = figure.panels(), Results()
    for panel in panels:
        try:
            results.panels[panel.name] = {c.label: evaluate(engine, panel, c) for c in panel.curves}
        except Missing as missing:
            results.missing[panel.name] = str(missing)
            print(f"  omitting {panel.name}: {missing}", flush=True)
    return panels, results


def compare(figure: Figure, results: Results, busy: bool) -> dict[str, list[Comparison]]:
    """Returns the comparisons of each claim whose data is available; on a busy machine none about measured time."""
    compared = {}
    for claim in figure.tests():
        if busy and claim.timed:
            continue
        try:
            found = list(claim.compare(results))
        except Missing:
            continue
        if found:
            compared[claim.name] = found
    return compared


def write(directory: Path, figure: Figure, panels: list, results: Results, setup: dict) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    compared = compare(figure, results, setup["busy"])
    write_csv(directory / "curves.csv", results)
    if compared:
        write_claims(directory / "claims.csv", compared)
    report.write_summary(directory / "summary.md", figure, panels, results, compared, setup)


def smoke(chosen: list[Figure], binary: Path) -> int:
    """Runs every figure on small bundled data and checks that it produces the columns it reads."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(binary, None, Path(folder), smoke=True)
        for figure in chosen:
            start, started = time.monotonic(), engine.started
            try:
                panels, results = collect(figure, engine)
                for panel in panels:
                    for label, points in results[panel.name].items():
                        if len(points) < 2 and not panel.table and not isinstance(points[0].x, str):
                            raise RunFailed(f"{panel.name}, {label}: a curve of {len(points)} points")
                setup = {"machine": "", "date": "", "version": "", "note": "", "busy": False}
                write(Path(folder, figure.name), figure, panels, results, setup)
                seconds, runs = time.monotonic() - start, engine.started - started
                print(f"ok      {figure.name:14} {runs:3} runs  {seconds:5.1f} s", flush=True)
            except Exception as error:  # report the other figures too
                failed += 1
                print(f"FAILED  {figure.name}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


def full(chosen: list[Figure], options) -> int:
    data = options.data or os.environ.get("FEDNMF_DATA")
    engine = Engine(
        find_binary(options.binary),
        Path(data) if data else None,
        SCRATCH,
        fresh=options.fresh,
        finished=options.finished,
    )
    machine, date = options.machine or machine_name(), time.strftime("%Y-%m-%d")
    out = Path(options.out) if options.out else ROOT / "bench" / "runs" / f"{date}-{machine}"
    failed = 0
    for figure in chosen:
        print(f"{figure.name}: {figure.title}", flush=True)
        start = time.monotonic()
        try:
            panels, results = collect(figure, engine)
        except RunFailed as error:
            failed += 1
            print(f"  failed: {error}", file=sys.stderr, flush=True)
            continue
        if not results.panels:
            continue
        trace = next(iter(engine.known.values())).start
        version = f"{trace['version']} ({trace['git']})"
        setup = {"machine": machine, "date": date, "version": version, "note": options.note, "busy": options.busy}
        write(out / figure.name, figure, panels, results, setup)
        plot(figure, out / figure.name, SCRATCH)
        print(f"  {out / figure.name}  {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


def plot_stored(known: dict[str, Figure], directories: list[str]) -> int:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    for directory in map(Path, directories):
        name = directory.resolve().name
        if name not in known or not (directory / "curves.csv").exists():
            sys.exit(f"{directory} does not hold the curves of a figure")
        plot(known[name], directory, SCRATCH)
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bench/run reproduce",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_binary_option(parser)
    parser.add_argument("figure", nargs="*", help="names, prefixes (felb: all figures of that paper), or all")
    parser.add_argument("--list", action="store_true", help="list the figures with paper, data and minutes")
    parser.add_argument("--smoke", action="store_true", help="run all figures small, on bundled data, without plots")
    parser.add_argument("--plot", nargs="+", metavar="DIR", help="plot the stored curves of these directories")
    parser.add_argument("--sets", action="store_true", help="list the data sets: source, preparation, checksum")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="directory of the public data sets (see --sets; nothing is downloaded) [$FEDNMF_DATA]",
    )
    parser.add_argument("--out", metavar="DIR", help="directory of the results [bench/runs/<date>-<machine>]")
    parser.add_argument("--machine", metavar="NAME", help="name of this machine in the results")
    parser.add_argument("--note", default="", metavar="TEXT", help="remark for the summary on how this was run")
    parser.add_argument("--busy", action="store_true", help="other programs run here: decide no claim about time")
    parser.add_argument("--fresh", action="store_true", help="repeat cached runs")
    parser.add_argument("--finished", action="store_true", help="start no runs; omit panels whose runs are not cached")
    options = parser.parse_args(argv)
    known = figures()
    if options.list:
        for figure in known.values():
            print(f"{figure.name:18} {figure.title}\n{'':18} {figure.paper}; {figure.data}; {figure.minutes:g} min")
        return 0
    if options.sets:
        print(datasets.describe())
        return 0
    if options.plot:
        return plot_stored(known, options.plot)
    if options.smoke:
        return smoke(choose(known, options.figure or ["all"]), find_binary(options.binary))
    if not options.figure:
        parser.error("name a figure; --list lists them")
    return full(choose(known, options.figure), options)
