"""Copy the tables of a comparison from its record to bench/README.md.

    bench/run tables bench/runs/2026-11-23-epyc-2cores/compare
    bench/run tables --check

Replaces the lines between the comments `comparison: begin` and `comparison: end`. The first of them names the record;
without RECORD this one is read again. --check changes nothing and fails if the page has other numbers.
"""

import argparse
import re
import sys
from pathlib import Path

from lib.comparison import read_rows, overview_lines
from lib.program import ROOT

COMMENT = "<!-- comparison: begin (made by `bench/run tables {}`) -->"
END = "<!-- comparison: end -->"
SECTION = re.compile(re.escape(COMMENT).replace(r"\{\}", "(.*?)") + "\n.*?" + re.escape(END), re.DOTALL)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", nargs="?", help="directory of a comparison [the one on the page]")
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    options = parser.parse_args(argv)
    page = ROOT / "bench/README.md"
    text = page.read_text()
    section = SECTION.search(text)
    if not section:
        sys.exit(f"{page.name}: no lines `{COMMENT.format('RECORD')}` and `{END}` to write between")
    record = options.record or section[1]
    if options.record:
        path = Path(record).resolve()
        if not path.is_relative_to(ROOT / "bench"):
            sys.exit(f"{record}: not a directory below bench/")
        record = str(path.relative_to(ROOT))
    results = ROOT / record / "results.csv"
    if not results.exists():
        sys.exit(f"{record}: no results.csv; name the directory that `bench/run compare` wrote")
    lines = [COMMENT.format(record), *overview_lines(read_rows(results), f"{Path(record).relative_to('bench')}/summary.md"), END]
    made = text[: section.start()] + "\n".join(lines) + text[section.end() :]
    if options.check and made != text:
        sys.exit(f"{page.name}: the comparison differs from {record}; run `bench/run tables`")
    if not options.check:
        page.write_text(made)
