#!/usr/bin/env python3
"""Checks the built book: each link leads to a file and a heading that exist. check_book.py [FOLDER]   (target/guide)"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]


def broken(folder):
    """Yields the page and the target of each link that leads nowhere."""
    pages = {path.resolve(): _Page(path) for path in folder.rglob("*.html")}
    for path, page in pages.items():
        # The print page repeats all others, with links that are relative to them; the page of errors is for any address.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            heading = unquote(parts.fragment)
            if not target.exists() or heading and target in pages and heading not in pages[target].ids:
                yield path.relative_to(folder.resolve()), link


if __name__ == "__main__":
    folder = Path(sys.argv[1] if sys.argv[1:] else "target/guide")
    pages = len(list(folder.rglob("*.html")))
    found = list(broken(folder))
    for page, link in found:
        print(f"{page}: {link}")
    print(f"{pages} pages, {len(found)} broken links")
    sys.exit(bool(found) or not pages)
