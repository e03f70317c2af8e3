"""What a person sees of a run: its progress, and tables in a notebook."""

from __future__ import annotations

import html
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warns of the line that called this package, whatever of scikit-learn stands between."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("fednmf", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


class Progress:
    """Prints how a run goes: on a terminal or in a notebook in one line, elsewhere a line each time.

    Leaving it as a context ends the line.
    """

    def __init__(self) -> None:
        self._begin, self._width, self._run = time.perf_counter(), 0, (0, 0)
        self._rewrites = sys.stdout.isatty() or "ipykernel" in sys.modules

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            print()

    def iteration(self, iteration: int, measures: dict[str, float]) -> None:
        self.show(f"iteration {iteration}", measures)

    def run(self, k: int, run: int, iteration: int, measures: dict[str, float]) -> None:
        if self._rewrites:
            self.show(f"k = {k}, run {run}, iteration {iteration}", measures)
        elif (k, run) != self._run:
            # A line for each run.
            self._run = (k, run)
            self.show(f"k = {k}", {"run": run})

    def show(self, what: str, measures: dict[str, float]) -> None:
        values = ", ".join(f"{name} {value:.6g}" for name, value in measures.items())
        line = f"{what}: {values} ({time.perf_counter() - self._begin:.1f} s)"
        if not self._rewrites:
            print(line, flush=True)
            return
        print("\r" + line.ljust(self._width), end="", flush=True)
        self._width = len(line)


def together(*callbacks: Optional[Callable[..., Any]]) -> Optional[Callable[..., None]]:
    """One callback that calls all that are given; None if there is none."""
    given = [callback for callback in callbacks if callback is not None]
    if not given:
        return None

    def call(*arguments: Any) -> None:
        for callback in given:
            callback(*arguments)

    return call


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in HTML."""

    def line(cells: Iterable[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(_text(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return "–" if cell != cell else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
