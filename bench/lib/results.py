"""Curves as means over seeds, and the queries that claims make."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .engine import Engine, value
from .program import thin
from .spec import Curve, Missing, Panel
from .verdict import Comparison


@dataclass
class Point:
    """A point of a curve, with a value for every seed."""

    x: float | str
    values: tuple[float, ...]
    seedless: bool = False

    @property
    def y(self) -> float:
        return statistics.fmean(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def sd(self) -> float:
        return statistics.stdev(self.values) if self.seeds > 1 else 0.0

    @property
    def seeds(self) -> int:
        return len(self.values)

    def repeated(self, seeds: int) -> tuple[float, ...]:
        """Returns the values, those of a method that draws nothing once for each of the seeds."""
        return self.values * seeds if self.seedless else self.values[:seeds]


def evaluate(engine: Engine, panel: Panel, curve: Curve) -> list[Point]:
    """Runs what a curve needs and returns its points."""
    x, y = curve.x or panel.x, curve.y or panel.y
    if curve.points is not None:
        points = []
        for at, run in curve.points:
            jobs = engine.jobs(run.but(every=run.iters) if run.every is None else run)
            points.append(Point(at, tuple(value(y, j.end, j) for j in jobs), run.seedless))
        return points

    def final(jobs):
        return statistics.fmean(value(y, j.end, j) for j in jobs)

    jobs = engine.jobs(curve.run) if curve.run else min((engine.jobs(r) for r in curve.best), key=final)
    points = []
    for events in zip(*(job.events for job in jobs)):
        pairs = list(zip(events, jobs))
        at = statistics.fmean(value(x, e, j) for e, j in pairs)
        points.append(Point(at, tuple(value(y, e, j) for e, j in pairs), jobs[0].run.seedless))
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

    def point(self, panel: str, curve: str, x=None) -> Point:
        """Returns the point at x, or the last one before it; without x, the last one of the curve."""
        points = self[panel][curve]
        if x is None:
            return points[-1]
        if any(p.x == x for p in points):
            return next(p for p in points if p.x == x)
        return next((p for p in reversed(points) if p.x <= x), points[0])

    def last(self, panel: str, curve: str) -> float:
        """Returns the y at the end of a curve."""
        return self.point(panel, curve).y

    def at(self, panel: str, curve: str, x) -> float:
        """Returns the y at x, or at the last point before it."""
        return self.point(panel, curve, x).y

    def compare(self, panel: str, greater: str, smaller: str, x=None, *, place="", slack=0.0, factor=1.0) -> Comparison:
        """Says that `factor` times a curve is more than another one less `slack`, at x or at their ends."""
        a, b = self.point(panel, greater, x), self.point(panel, smaller, x)
        seeds = min((p.seeds for p in (a, b) if not p.seedless), default=1)
        times = "" if factor == 1 else f"{factor:g} "
        label = f"{place or panel}: {times}{greater} − {smaller}" + (f" + {slack:g}" if slack else "")
        values = tuple(factor * v for v in a.repeated(seeds))
        return Comparison(label, values, tuple(v - slack for v in b.repeated(seeds)), a.seedless and b.seedless)

    def grows(self, panel: str, curve: str, few, many, times: float, *, more=True) -> Comparison:
        """Says that a curve is at `many` more, or less, than `times` times what it is at `few`."""
        start, end = (self.point(panel, curve, x) for x in (few, many))
        limit, name = tuple(times * v for v in start.values), panel.split(",")[0]
        if more:
            label = f"{name}: {curve} at {many} − {times:g} times that at {few}"
            return Comparison(label, end.values, limit, end.seedless)
        return Comparison(f"{name}: {times:g} times {curve} at {few} − that at {many}", limit, end.values, end.seedless)

    def above(self, panel: str, curve: str, level: float, x=None, *, place="") -> Comparison:
        """Says that a curve is above a fixed level, at x or at its end."""
        point = self.point(panel, curve, x)
        label = f"{place or panel}: {curve} − {level:g}"
        return Comparison(label, point.values, (level,) * point.seeds, point.seedless)

    def below(self, panel: str, curve: str, level: float, x=None, *, place="") -> Comparison:
        """Says that a curve is below a fixed level, at x or at its end."""
        point = self.point(panel, curve, x)
        label = f"{place or panel}: {level:g} − {curve}"
        return Comparison(label, (level,) * point.seeds, point.values, point.seedless)

    def near(self, panel: str, a: str, b: str, margin: float, x=None, *, place="") -> Iterable[Comparison]:
        """Says that two curves differ by less than a share `margin` of the second one."""
        first, second = self.point(panel, a, x), self.point(panel, b, x)
        seeds = min((p.seeds for p in (first, second) if not p.seedless), default=1)
        values, others = first.repeated(seeds), second.repeated(seeds)
        where, exact = place or panel, first.seedless and second.seedless
        high, low = (tuple(f * o for o in others) for f in (1 + margin, 1 - margin))
        yield Comparison(f"{where}: {1 + margin:g} {b} − {a}", high, values, exact)
        yield Comparison(f"{where}: {a} − {1 - margin:g} {b}", values, low, exact)

    def highest(self, panel: str, curves: Iterable[str], x=None) -> str:
        """Returns the curve with the highest mean."""
        return max((c for c in curves if c in self[panel]), key=lambda c: self.point(panel, c, x).y)

    def lowest(self, panel: str, curves: Iterable[str], x=None) -> str:
        """Returns the curve with the lowest mean."""
        return min((c for c in curves if c in self[panel]), key=lambda c: self.point(panel, c, x).y)

    def reach(self, panel: str, curve: str, y: float) -> float:
        """Returns the x at which a curve falls to y, or infinity."""
        return next((p.x for p in self[panel][curve] if p.y <= y), math.inf)

    def present(self) -> list[str]:
        return list(self.panels)


# In place of a seed where no seed changes the values.
ANY = "any"


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


def write_claims(path: Path, compared: dict[str, list[Comparison]]) -> None:
    """Writes the pairs of values that decide the claims, by the name of the claim; those of every seed are of `any`."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["claim", "comparison", "seed", "greater", "smaller"])
        for claim, comparisons in compared.items():
            for c in comparisons:
                for seed, pair in enumerate(zip(c.greater, c.smaller)):
                    out.writerow([claim, c.label, ANY if c.exact else seed, *(shorten(v, 6) for v in pair)])


def read_claims(path: Path) -> dict[str, list[Comparison]]:
    """Returns the comparisons of each claim."""
    values: dict = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            pairs = values.setdefault(row["claim"], {}).setdefault((row["comparison"], row["seed"] == ANY), [])
            pairs.append((float(row["greater"]), float(row["smaller"])))
    return {
        claim: [Comparison(label, *map(tuple, zip(*pairs)), exact) for (label, exact), pairs in own.items()]
        for claim, own in values.items()
    }


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
