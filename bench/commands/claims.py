"""Write CLAIMS.md: each claim of the papers, its verdict, and the interval that decides it, from the stored records."""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from commands import barycenters
from commands.reproduce import figures
from lib.program import ROOT
from lib.report import BUSY, wrap
from lib.results import read_claims
from lib.spec import Claim, Figure
from lib.verdict import RULE, Comparison, decide

PAGE = ROOT / "bench" / "CLAIMS.md"
RECORDS = ROOT / "bench" / "runs"
# Where the methods of the figures are whose names begin so; a commit there makes a record older than its method.
SOURCES = {
    "dsanls": "distributed",
    **dict.fromkeys(("dsanls-fig6", "dsanls-fig7", "dsanls-fig8", "dsanls-fig9", "secure"), "federated/columns"),
    "fnmf": "federated/rows",
    "felb": "boolean",
    "dp": "boolean",
    "ppdnmf": "federated/graph",
}
# No figure runs in real time.
UNUSED = "crates/methods/src/federated/columns/asyn/real_clock.rs"
BEYOND = "Claims of this project"


@dataclass
class Record:
    """A stored run of a figure."""

    directory: Path
    date: str
    commit: str
    compared: dict[str, list[Comparison]]
    confirmed: str | None = None  # a later commit whose values are the same


def newest(figure: Figure) -> Record | None:
    """Returns the newest record of a figure, by the date in its summary."""
    found = []
    for summary in RECORDS.glob(f"*/{figure.name}/summary.md"):
        text = summary.read_text()
        date = re.search(r"^- Machine: .*, (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
        commit = re.search(r"^- Version: fednmf \S+ \((\w+)", text, re.MULTILINE)
        if date and commit:
            values = summary.with_name("claims.csv")
            compared = read_claims(values) if values.exists() else {}
            later = re.search(r"^- Confirmed: fednmf \S+ \((\w+)", text, re.MULTILINE)
            found.append(Record(summary.parent, date[1], commit[1], compared, later[1] if later else None))
    return max(found, key=lambda record: (record.date, record.directory.parent.name), default=None)


def has_changed(record: Record, figure: Figure) -> bool:
    """Returns whether the methods of a figure have changed since its record or its confirmation, as far as the history
    is here."""
    folder = SOURCES[max((name for name in SOURCES if figure.name.startswith(name)), key=len)]
    since = f"{record.confirmed or record.commit}..HEAD"
    command = ["git", "rev-list", "--count", since, "--", f"crates/methods/src/{folder}", f":(exclude){UNUSED}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode == 0 and int(done.stdout) > 0


def origin(record: Record, figure: Figure) -> str:
    """Returns the date and commit of a record, the commit that confirms it, and whether the methods have changed since."""
    link = (record.directory / "summary.md").relative_to(PAGE.parent)
    text = f"[{record.date}]({link}), {record.commit[:7]}"
    text += f", confirmed by {record.confirmed[:7]}" if record.confirmed else ""
    return text + ("; methods changed since" if has_changed(record, figure) else "")


def row(claim: Claim, figure: Figure, record: Record | None) -> tuple[str, str]:
    """Returns the verdict on a claim, and its line of the table."""
    command = f"`{figure.run_by()}`"
    if record is None:
        verdict, decided, source = "undecided", "not yet run", "–"
    elif claim.name not in record.compared:
        reason = "not run, or without its data" if record.compared else "recorded without values by seed"
        if claim.timed and record.compared:
            reason = BUSY
        verdict, decided, source = "undecided", reason, origin(record, figure)
    else:
        decision = decide(record.compared[claim.name], claim.most)
        verdict = decision.verdict.value
        others = f"; weakest of {decision.comparisons}" if decision.comparisons > 1 else ""
        decided, source = f"{decision.deciding}{others}", origin(record, figure)
    quote = f"“{claim.quote}”, {claim.place}" if claim.place else claim.quote
    cells = (f"**{verdict}**", quote, claim.tested, decided, f"{source}; {command}")
    return verdict, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def group(claim: Claim, figure: Figure, papers: list[str]) -> str:
    """Returns the paper that makes a claim, or BEYOND."""
    return next((paper for paper in papers if claim.place and figure.paper.startswith(paper)), BEYOND)


def page(known: dict[str, Figure]) -> str:
    papers = list(dict.fromkeys(paper_of(figure) for figure in known.values() if ", " in figure.paper))
    tables: dict[str, list[str]] = {paper: [] for paper in [*papers, BEYOND]}
    counts: dict[str, dict[str, int]] = {name: {} for name in tables}
    for figure in known.values():
        record = newest(figure)
        for claim in figure.tests():
            name = group(claim, figure, papers)
            verdict, line = row(claim, figure, record)
            tables[name].append(line)
            counts[name][verdict] = counts[name].get(verdict, 0) + 1
    lines = [
        "# Claims",
        "",
        wrap("Made by `bench/run claims` from the records in [runs](runs), which hold the values."),
    ]
    lines += ["", wrap(RULE), ""]
    lines += [wrap(f"*{key}*: {meaning}") + "\n" for key, meaning in NOTES.items()]
    lines += ["| | holds | fails | undecided |", "| --- | --- | --- | --- |"]
    for name, found in counts.items():
        if tables[name]:
            numbers = " | ".join(str(found.get(v, 0)) for v in ("holds", "fails", "undecided"))
            lines.append(f"| {name} | {numbers} |")
    for name, rows in tables.items():
        if rows:
            head = "| verdict | claim | tested as | decided by | record and command |"
            lines += ["", f"## {name}", "", head, "| --- " * 5 + "|", *rows]
    return "\n".join(lines) + "\n"


NOTES = {
    "Undecided": "includes claims whose only record is a single run, and those that were not run.",
    "Decided by": "the comparison that decides, with its mean difference and interval; what the claim calls greater "
    "comes first, so that a positive difference is in favour of the claim.",
    "Tested as": "the parameters, where the paper leaves them open or needs data that is not available. The same words "
    "are tested more than once if the answer depends on them, and a claim of a paper that fails is tested with other "
    "parameters too; the table counts each test. Verdicts on real data are about the sets that the record "
    "has, which it names; few of them are the paper's.",
}


def paper_of(figure: Figure) -> str:
    """Returns the paper of a figure without the figure or section."""
    return re.sub(r", (Figures?|Tables?|section) .*$", "", figure.paper)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/run claims", description=__doc__)
    parser.add_argument("--out", default=PAGE, metavar="FILE", help="the page [bench/CLAIMS.md]")
    out = Path(parser.parse_args(argv).out)
    copies = barycenters.FIGURE
    out.write_text(page({**figures(), copies.name: copies}))
    print(out)
    return 0
