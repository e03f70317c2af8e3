"""What a figure leaves: curves.csv, plot.svg, summary.md."""

from __future__ import annotations

import csv
import math
import os
import platform
import re
from pathlib import Path

from .results import Results
from .spec import Figure, Missing

SOURCES = {
    "prototype": "an independent single-process prototype of the algorithm, mean ± standard deviation over its seeds",
    "paper": "printed in the paper, on its data and machine",
}


def machine() -> str:
    """A short name of this machine, such as epyc-2cores."""
    model = platform.machine()
    try:
        found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
        model = found[1] if found else model
    except OSError:
        pass
    words = [w for w in re.split(r"\W+", model.lower()) if w not in ("", "amd", "intel", "r", "tm", "cpu", "processor")]
    return f"{words[0] if words else 'machine'}-{os.cpu_count()}cores"


def number(x: float) -> str:
    if math.isinf(x):
        return "never"
    return f"{x:.4g}"


def write_csv(path: Path, results: Results) -> None:
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["panel", "curve", "x", "y", "sd", "seeds"])
        for panel, curves in results.panels.items():
            for label, points in curves.items():
                out.writerows([panel, label, short(p.x), short(p.y), short(p.sd), p.seeds] for p in points)


def short(x):
    return x if isinstance(x, (str, int)) else f"{x:.6g}"


def verdicts(figure: Figure, results: Results) -> list[str]:
    """Each claim of the paper and whether it holds."""
    lines = []
    for claim in figure.claims:
        try:
            holds, measured = claim.check(results)
            lines.append(f"- **{'holds' if holds else 'does not hold'}**: {claim.text} Measured: {measured}")
        except Missing as missing:
            lines.append(f"- **not checked**: {claim.text} ({missing})")
    return lines


def comparisons(figure: Figure, results: Results) -> list[str]:
    lines = []
    for ref in figure.references:
        try:
            here = ref.get(results)
        except Missing:
            continue
        spread = f" ± {ref.sd:g}" if ref.sd is not None else ""
        near = "–" if not ref.sd else "yes" if abs(here - ref.value) <= 3 * ref.sd else "no"
        lines.append(f"| {ref.text} | {number(here)} | {ref.value:g}{spread} | {near} | {ref.source} |")
    return lines


def table(panels, results: Results) -> list[str]:
    """The tables that share what is measured (`ylabel`) as one."""
    rows: dict[str, dict] = {}
    for panel in panels:
        for label, points in results.panels[panel.name].items():
            rows.setdefault(label, {}).update({p.x: p for p in points})
    columns = list(dict.fromkeys(x for row in rows.values() for x in row))
    lines = [f"| {panels[0].ylabel} | " + " | ".join(str(c) for c in columns) + " |", "| --- |" + " --- |" * len(columns)]
    for label, row in rows.items():
        lines.append(f"| {label} | " + " | ".join(cell(row[c]) if c in row else "–" for c in columns) + " |")
    return lines


def cell(point) -> str:
    return number(point.y) + (f" ± {point.sd:.2g}" if point.seeds > 1 else "")


def ends(panel, results: Results) -> list[str]:
    lines = [f"| {panel.name} | at {panel.xlabel} | {panel.ylabel} |", "| --- | --- | --- |"]
    for label, points in results.panels[panel.name].items():
        p = points[-1]
        x = p.x if isinstance(p.x, str) else number(p.x)
        lines.append(f"| {label} | {x} | {cell(p)} |")
    return lines


def write_summary(path: Path, figure: Figure, panels, results: Results, setup: dict) -> None:
    lines = [f"# {figure.name}: {figure.title}", "", f"{figure.paper}. Made by", ""]
    lines += ["```sh", setup["command"], "```", ""]
    lines += [f"on {setup['machine']}, {setup['date']}, fednmf {setup['version']}. Data: {figure.data}.{setup['note']}", ""]
    if figure.note:
        lines += [" ".join(figure.note.split()), ""]
    if any(not p.table for p in panels if p.name in results.panels):
        lines += ["![plot](plot.svg)", ""]
    for why in dict.fromkeys(results.missing.values()):
        names = ", ".join(f"*{name}*" for name, other in results.missing.items() if other == why)
        lines += [f"Left out: {names}. {why}.", ""]
    claims = verdicts(figure, results)
    if claims:
        lines += ["## What the paper says", "", *claims, ""]
    compared = comparisons(figure, results)
    if compared:
        head = ["| what | here | there | within 3 sd | from |", "| --- | --- | --- | --- | --- |"]
        lines += ["## Beside other numbers", "", *head, *compared]
        used = dict.fromkeys(r.source for r in figure.references)
        lines += ["", " ".join(f"*{s}*: {SOURCES[s]}." for s in used), ""]
    lines += ["## Results", ""]
    shown = [p for p in panels if p.name in results.panels]
    for words in dict.fromkeys(p.ylabel for p in shown if p.table):
        lines += [*table([p for p in shown if p.table and p.ylabel == words], results), ""]
    for panel in shown:
        if not panel.table:
            lines += [*ends(panel, results), ""]
    path.write_text("\n".join(lines))
