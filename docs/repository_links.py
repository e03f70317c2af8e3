#!/usr/bin/env python3
"""A preprocessor of mdBook: links of these pages that work in the repository, and would not in the book.

Links to files outside this folder become the paths of the files, and those to a README.md lead to the index.html that mdBook
makes of it.
"""

import json
import posixpath
import re
import sys

_LINK = re.compile(r"\[([^]]*)\]\(([^):#\s]+)(#[^)\s]*)?\)")


def with_links_of_the_book(content, page):
    """The Markdown of a page, given with its path in the book."""

    def replaced(link):
        text, target, heading = link.groups("")
        folder, name = posixpath.split(posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target)))
        if folder.split("/")[0] == "docs":
            return link.group() if name != "README.md" else f"[{text}]({target[: -len(name)]}index.md{heading})"
        return text if name in text else f"{text} (`{posixpath.join(folder, name)}`)"

    return _LINK.sub(replaced, content)


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
            chapter["content"] = with_links_of_the_book(chapter["content"], chapter["path"])
        json.dump(book, sys.stdout)
