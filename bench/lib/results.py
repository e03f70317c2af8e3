"""Curves out of runs: means over seeds, and what claims ask about them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .engine import Engine, value
from .spec import Curve, Missing, Panel

POINTS = 60  # a stored curve has no more


@dataclass
class Point:
    x: float | str
    y: float
    sd: float
    seeds: int


def mean(values: list[float]) -> tuple[float, float]:
    middle = sum(values) / len(values)
    spread = math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
    return middle, spread


def evaluate(engine: Engine, panel: Panel, curve: Curve) -> list[Point]:
    x, y = curve.x or panel.x, curve.y or panel.y
    if curve.points is not None:
        points = []
        for at, run in curve.points:
            jobs = engine.jobs(run.but(every=run.iters) if run.every is None else run)
            points.append(Point(at, *mean([value(y, j.end, j) for j in jobs]), len(jobs)))
        return points
    jobs = engine.jobs(curve.run) if curve.run else min(
        (engine.jobs(r) for r in curve.best), key=lambda jobs: mean([value(y, j.end, j) for j in jobs])[0]
    )  # fmt: skip
    points = []
    for events in zip(*(job.events for job in jobs)):
        pairs = list(zip(events, jobs))
        at, _ = mean([value(x, e, j) for e, j in pairs])
        points.append(Point(at, *mean([value(y, e, j) for e, j in pairs]), len(jobs)))
    step = max(1, -(-len(points) // POINTS))
    return points[::step] + ([points[-1]] if (len(points) - 1) % step else [])


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
        """The y at the end of a curve."""
        return self[panel][curve][-1].y

    def at(self, panel: str, curve: str, x) -> float:
        """The y of the last point whose x is not beyond."""
        points = self[panel][curve]
        if any(p.x == x for p in points):
            return next(p.y for p in points if p.x == x)
        return next((p.y for p in reversed(points) if p.x <= x), points[0].y)

    def reach(self, panel: str, curve: str, y: float) -> float:
        """The x at which a curve falls to y; infinite where it does not."""
        return next((p.x for p in self[panel][curve] if p.y <= y), math.inf)

    def lowest(self, panel: str) -> str:
        """The curve that ends lowest."""
        return min(self[panel], key=lambda curve: self.last(panel, curve))

    def present(self) -> list[str]:
        return list(self.panels)
