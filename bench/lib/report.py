"""The summary of a figure: setup, verdict on each claim, comparison with reference values, results."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

from .results import Results
from .spec import Figure, Missing
from .verdict import Comparison, decide

BUSY = "Times are compared on an idle machine only."
SOURCES = {
    "prototype": "an independent single-process prototype of the algorithm, mean ± standard deviation over its seeds",
    "paper": "printed in the paper, measured on its data and machine",
}


def wrap(text: str) -> str:
    """Wraps a paragraph or list item."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def number(x: float) -> str:
    return "never" if math.isinf(x) else f"{x:.4g}"


def cell(point) -> str:
    return number(point.y) + (f" ± {point.sd:.2g}" if point.seeds > 1 else "")


def verdicts(figure: Figure, compared: dict[str, list[Comparison]], results: Results) -> list[str]:
    """Returns each claim, its verdict and the comparison that decides it."""
    lines = []
    for claim in figure.tests():
        what = f"“{claim.quote}” ({claim.place})" if claim.place else claim.quote
        if claim.name in compared:
            found = decide(compared[claim.name], claim.most)
            lines.append(wrap(f"- **{found.verdict.value}**: {what} {claim.tested} {deciding(found)}"))
        else:
            reasons = "; ".join(dict.fromkeys(results.missing.values()))
            lines.append(wrap(f"- **not tested**: {what} {BUSY if claim.timed else reasons}"))
    return lines


def deciding(found) -> str:
    """Returns the comparison that decides a claim, in a sentence."""
    count = f" (one of {found.comparisons} comparisons)" if found.comparisons > 1 else ""
    return f"Deciding: {found.deciding}{count}."


def comparisons(figure: Figure, results: Results) -> list[str]:
    """Returns a table row for each reference value."""
    lines = []
    for ref in figure.references:
        try:
            measured = ref.get(results)
        except Missing:
            continue
        sd = f" ± {ref.sd:g}" if ref.sd is not None else ""
        near = "–" if not ref.sd else "yes" if abs(measured - ref.value) <= 3 * ref.sd else "no"
        lines.append(f"| {ref.text} | {number(measured)} | {ref.value:g}{sd} | {near} | {ref.source} |")
    return lines


def joint_table(panels, results: Results) -> list[str]:
    """Returns one table of all table panels that measure the same quantity."""
    rows: dict[str, dict] = {}
    for panel in panels:
        for label, points in results.panels[panel.name].items():
            rows.setdefault(label, {}).update({p.x: p for p in points})
    columns = list(dict.fromkeys(x for row in rows.values() for x in row))
    lines = [f"| {panels[0].ylabel} | " + " | ".join(str(c) for c in columns) + " |"]
    lines.append("| --- |" + " --- |" * len(columns))
    for label, row in rows.items():
        lines.append(f"| {label} | " + " | ".join(cell(row[c]) if c in row else "–" for c in columns) + " |")
    return lines


def final_values(panel, results: Results) -> list[str]:
    lines = [f"| {panel.name} | at {panel.xlabel} | {panel.ylabel} |", "| --- | --- | --- |"]
    for label, points in results.panels[panel.name].items():
        last = points[-1]
        x = last.x if isinstance(last.x, str) else number(last.x)
        lines.append(f"| {label} | {x} | {cell(last)} |")
    return lines


def seeds(results: Results) -> str:
    counts = {p.seeds for curves in results.panels.values() for points in curves.values() for p in points}
    return " or ".join(str(count) for count in sorted(counts))


def short_name(panel: str, results: Results) -> str:
    """Returns the set of an omitted panel, if all panels of the set are omitted, or the panel."""
    name = panel.split(", ")[0]
    return panel if any(other.split(", ")[0] == name for other in results.panels) else name


def write_summary(path: Path, figure: Figure, panels, results: Results, compared: dict, setup: dict) -> None:
    lines = [f"# {figure.name}: {figure.title}", "", wrap(f"{figure.paper}."), "", "```sh"]
    lines += [figure.run_by(), "```", ""]
    lines += [f"- Machine: {setup['machine']}, {setup['date']}", f"- Version: fednmf {setup['version']}"]
    lines += [wrap(f"- Data: {figure.data}"), f"- Seeds: {seeds(results)}"]
    lines += [wrap(f"- {setup['note']}")] * bool(setup["note"])
    if figure.note:
        lines += ["", wrap(figure.note)]
    lines.append("")
    for reason in dict.fromkeys(results.missing.values()):
        names = [name for name, other in results.missing.items() if other == reason]
        shown = ", ".join(f"*{name}*" for name in dict.fromkeys(short_name(name, results) for name in names))
        lines += [wrap(f"Omitted: {shown}. {reason}."), ""]
    if claims := verdicts(figure, compared, results):
        lines += ["## Claims", "", wrap("By the rule in [CLAIMS.md](../../../CLAIMS.md):"), "", *claims, ""]
    if compared := comparisons(figure, results):
        head = ["| quantity | measured | reference | within 3 sd | source |", "| --- | --- | --- | --- | --- |"]
        lines += ["## Reference values", "", *head, *compared, ""]
        used = dict.fromkeys(r.source for r in figure.references)
        lines += [wrap(" ".join(f"*{source}*: {SOURCES[source]}." for source in used)), ""]
    lines += ["## Results", ""]
    shown = [p for p in panels if p.name in results.panels]
    for quantity in dict.fromkeys(p.ylabel for p in shown if p.table):
        lines += [*joint_table([p for p in shown if p.table and p.ylabel == quantity], results), ""]
    for panel in shown:
        if not panel.table:
            lines += [*final_values(panel, results), ""]
    path.write_text("\n".join(lines[:-1]) + "\n")
