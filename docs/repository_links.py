#!/usr/bin/env python3
"""A preprocessor of mdBook: links to files of the repository outside this folder become their paths, since a book has only these pages.

In the repository the pages keep such links.
"""

import json
import posixpath
import re
import sys

_LINK = re.compile(r"\[([^]]*)\]\((\.\./[^)#\s]*)(?:#[^)\s]*)?\)")


def without_outer_links(content, page):
    """The Markdown of a page, given with its path in the book."""

    def plain(link):
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return link.group()
        return text if posixpath.basename(path) in text else f"{text} (`{path}`)"

    return _LINK.sub(plain, content)


def _chapters(part):
    if isinstance(part, list):
        for item in part:
            yield from _chapters(item)
    elif isinstance(part, dict):
        if "content" in part and part.get("path"):
            yield part
        for item in part.values():
            yield from _chapters(item)


if __name__ == "__main__":
    if sys.argv[1:2] != ["supports"]:
        _, book = json.load(sys.stdin)
        for chapter in _chapters(book):
            chapter["content"] = without_outer_links(chapter["content"], chapter["path"])
        json.dump(book, sys.stdout)
