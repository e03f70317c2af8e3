#!/usr/bin/env python3
"""Makes notebooks of the tutorials: docs/notebooks.py [FOLDER]   (target/notebooks)

The pages are the source. A block of ```python becomes a cell, one of ```console a cell for a shell, and what the page shows after
it their output, so that a notebook can be read before it is run. Pictures are contained.
"""

import base64
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "guide" / "tutorials"
_BLOCK = re.compile(r"^```([\w,]+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*\n)", re.MULTILINE)
_PICTURE = re.compile(r"!\[[^]]*\]\(([^):]+\.png)\)")
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\((?![a-z]+://|#)[^)]+\)")


def notebook(page: Path) -> dict:
    """The notebook of a page (nbformat 4.5)."""
    cells: list[dict] = []
    text, end = page.read_text(), 0
    for block in _BLOCK.finditer(text):
        _add_text(cells, text[end : block.start()], page)
        kind, body = block.groups()
        end = block.end()
        if kind == "python":
            _add(cells, "code", body.rstrip("\n"))
        elif kind == "text" and cells and cells[-1]["cell_type"] == "code":
            cells[-1]["outputs"].append({"output_type": "stream", "name": "stdout", "text": _lines(body)})
        elif kind.split(",")[0] == "console":
            # What stands before a command is what the command before it has printed.
            _, *parts = _COMMAND.split(body)
            for command, printed in zip(parts[::2], parts[1::2]):
                _add(cells, "code", "%%bash --no-raise-error\n" + command.rstrip("\n"))
                if printed.strip():
                    cells[-1]["outputs"].append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
        else:
            _add(cells, "markdown", f"```{kind}\n{body}```")
    _add_text(cells, text[end:], page)
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _add_text(cells: list, text: str, page: Path) -> None:
    if not text.strip():
        return
    attachments = {}
    for name in _PICTURE.findall(text):
        picture = base64.b64encode((page.parent / name).read_bytes()).decode()
        attachments[name] = {"image/png": picture}
        text = text.replace(f"]({name})", f"](attachment:{name})")
    # Other pages are not beside a notebook.
    _add(cells, "markdown", _LINK.sub(r"\1", text).strip("\n"))
    if attachments:
        cells[-1]["attachments"] = attachments


def _add(cells: list, kind: str, source: str) -> None:
    cell = {"id": f"cell-{len(cells)}", "cell_type": kind, "metadata": {}, "source": _lines(source)}
    cells.append(cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []})


def _lines(text: str) -> list:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(PAGES.glob("*.md")):
        path = folder / f"{page.stem}.ipynb"
        path.write_text(json.dumps(notebook(page), ensure_ascii=False, indent=1) + "\n")
        print(path)
