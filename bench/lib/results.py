"""Curves as means over seeds, and the queries that claims make."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from .engine import Engine, value
from .program import thin
from .spec import Curve, Missing, Panel


@dataclass
class Point:
    x: float | str
    y: float
    sd: float
    seeds: int


def mean_and_sd(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
    return mean, sd


def evaluate(engine: Engine, panel: Panel, curve: Curve) -> list[Point]:
    """Runs what a curve needs and returns its points."""
    x, y = curve.x or panel.x, curve.y or panel.y
    if curve.points is not None:
        points = []
        for at, run in curve.points:
            jobs = engine.jobs(run.but(every=run.iters) if run.every is None else run)
            points.append(Point(at, *mean_and_sd([value(y, j.end, j) for j in jobs]), len(jobs)))
        return points

    def final(jobs):
        return mean_and_sd([value(y, j.end, j) for j in jobs])[0]

    jobs = engine.jobs(curve.run) if curve.run else min((engine.jobs(r) for r in curve.best), key=final)
    points = []
    for events in zip(*(job.events for job in jobs)):
        pairs = list(zip(events, jobs))
        at, _ = mean_and_sd([value(x, e, j) for e, j in pairs])
        points.append(Point(at, *mean_and_sd([value(y, e, j) for e, j in pairs]), len(jobs)))
    return points


class Results:
    """The curves of a figure, by panel and label."""

    def __init__(self):
        self.panels: dict[str, dict[str, list[Point]]] = {}
        self.missing: dict[str, str] = {}

    def __getitem__(self, panel: str) -> dict[str, list[Point]]:
        if panel in self.missing:
            raise Missing(self.missing[panel])
        return self.panels[panel]

    def last(self, panel: str, curve: str) -> float:
        """Returns the y at the end of a curve."""
        return self[panel][curve][-1].y

    def at(self, panel: str, curve: str, x) -> float:
        """Returns the y at x, or at the last point before it."""
        points = self[panel][curve]
        if any(p.x == x for p in points):
            return next(p.y for p in points if p.x == x)
        return next((p.y for p in reversed(points) if p.x <= x), points[0].y)

    def reach(self, panel: str, curve: str, y: float) -> float:
        """Returns the x at which a curve falls to y, or infinity."""
        return next((p.x for p in self[panel][curve] if p.y <= y), math.inf)

    def present(self) -> list[str]:
        return list(self.panels)


def shorten(x: float | str, digits: int) -> str:
    return x if isinstance(x, str) else f"{x:.{digits}g}"


def write_csv(path: Path, results: Results) -> None:
    """Writes the curves, thinned; `sd` is empty for a single seed."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["panel", "curve", "x", "y", "sd"])
        for panel, curves in results.panels.items():
            for label, points in curves.items():
                for p in thin(points):
                    sd = shorten(p.sd, 2) if p.seeds > 1 else ""
                    out.writerow([panel, label, shorten(p.x, 4), shorten(p.y, 4), sd])


def read_csv(path: Path) -> dict[str, dict[str, list[tuple[float | str, float, float]]]]:
    """Returns panel -> curve -> (x, y, sd)."""
    panels: dict = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            try:
                x = float(row["x"])
            except ValueError:
                x = row["x"]
            points = panels.setdefault(row["panel"], {}).setdefault(row["curve"], [])
            points.append((x, float(row["y"]), float(row["sd"] or 0)))
    return panels
