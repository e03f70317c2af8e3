"""Runs a page of the tutorials from top to bottom, and renews what it shows: python pages.py PAGE.md ...

A block of ```python runs in one namespace, and what it prints is the block of ```text after it. In a block of ```console, lines
that begin with `$ ` run in a shell, and the lines below are what they print, errors included. In one of ```console,varies that
differs from run to run. The program is the one that FEDNMF_BINARY names, or that of the PATH. Pictures that a page saves belong
beside it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from test_mpi import BINARY, ENV

_BLOCK = re.compile(r"^```([\w,]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = re.compile(r"^```console,varies\n.*?^```$", re.MULTILINE | re.DOTALL)
# Numbers that differ from run to run: times, also at the end of a row, and bytes.
_MEASURED = re.compile(r"\b[\d.,]+ (s|ms|B|KiB|MiB|GiB)\b|(?<= )\d+\.\d$")


def needs_the_program(page: Path) -> bool:
    return "```console" in page.read_text()


def run(page: Path) -> str:
    """The page with what its blocks print here. Runs in the working directory, where its files stay."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text()
    made, end, printed = "", 0, ""
    for block in _BLOCK.finditer(text):
        kind, body = block.groups()
        assert not printed or kind == "text", f"{page}: what an example prints is not shown: {printed}"
        if kind == "python":
            printed = _python(body, namespace, page)
        elif kind == "text":
            body, printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n", ""
        else:
            body = _console(body)
        made += text[end : block.start()] + f"```{kind}\n{body}```"
        end = block.end()
    assert not printed, f"{page}: what an example prints is not shown: {printed}"
    return made + text[end:]


def unmeasured(page: str) -> list[str]:
    """The lines of a page, without what differs from run to run."""
    return [" ".join(_MEASURED.sub("#", line).split()) for line in _VARIES.sub("", page).splitlines()]


def _python(code: str, namespace: dict[str, object], page: Path) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(page), "exec"), namespace)
    return printed.getvalue()


def _console(body: str) -> str:
    path = os.pathsep.join([str(Path(BINARY).resolve().parent), os.environ["PATH"]])
    environment = {**os.environ, **ENV, "PATH": path}
    shown = ""
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*\n)", body, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        shown += f"$ {command}" + "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    return shown


def _renew(page: Path) -> None:
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            made = run(page)
        finally:
            os.chdir(home)
        page.write_text(made)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, page.parent)


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    for name in sys.argv[1:]:
        _renew(Path(name).resolve())
