"""Copy the tables of records to the pages that show them.

    bench/run tables bench/runs/2026-11-23-epyc-2cores/compare
    bench/run tables bench/runs/2026-11-28-epyc-2cores/python.md
    bench/run tables --check

The directory of a comparison (`bench/run compare`) has the tables of bench/README.md, and what `bench/run python nmf` has printed is
the table of docs/guide/python.md. A page has them between the comments `NAME: begin` and `NAME: end`. The first of them names the
record; without RECORD the records of all pages are read again. --check changes nothing and fails if a page has other numbers.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from lib.comparison import read_rows, overview_lines
from lib.program import ROOT


def of_comparison(record, page):
    """Returns the lines of the comparison in a directory."""
    results = ROOT / record / "results.csv"
    if not results.exists():
        sys.exit(f"{record}: no results.csv; name the directory that `bench/run compare` wrote")
    return overview_lines(read_rows(results), os.path.relpath(ROOT / record / "summary.md", page.parent))


def of_table(record, page):
    """Returns the table in a record, and the link to the record."""
    table = [line for line in (ROOT / record).read_text().splitlines() if line.startswith("|")]
    if not table:
        sys.exit(f"{record}: no table; write what `bench/run python nmf` prints to a file")
    link = os.path.relpath(ROOT / record, page.parent)
    return ["", *table, "", f"[The record]({link}) has the command and the versions.", ""]


# The name of a section, its page, and how its lines are made from a record.
SECTIONS = {
    "comparison": ("bench/README.md", of_comparison),
    "estimators": ("docs/guide/python.md", of_table),
}


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", nargs="?", help="a comparison's directory, or a file [those on the pages]")
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    options = parser.parse_args(argv)
    for name, (page, make) in SECTIONS.items():
        if not options.record or Path(options.record).is_dir() == (name == "comparison"):
            renew(name, ROOT / page, make, options)


def renew(name, page, make, options):
    """Writes a section, or fails if it differs from its record."""
    comment, end = f"<!-- {name}: begin (made by `bench/run tables {{}}`) -->", f"<!-- {name}: end -->"
    text = page.read_text()
    section = re.search(re.escape(comment).replace(r"\{\}", "(.*?)") + "\n.*?" + re.escape(end), text, re.DOTALL)
    if not section:
        sys.exit(f"{page.name}: no lines `{comment.format('RECORD')}` and `{end}` to write between")
    record = section[1]
    if options.record:
        path = Path(options.record).resolve()
        if not path.is_relative_to(ROOT / "bench"):
            sys.exit(f"{options.record}: not below bench/")
        record = str(path.relative_to(ROOT))
    made = "\n".join([comment.format(record), *make(record, page), end])
    made = text[: section.start()] + made + text[section.end() :]
    if options.check and made != text:
        sys.exit(f"{page.name}: the section {name} differs from {record}; run `bench/run tables`")
    if not options.check:
        page.write_text(made)
