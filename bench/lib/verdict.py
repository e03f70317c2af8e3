"""The one rule by which measurements decide a claim.

A claim is a list of comparisons: of two quantities it says which one is greater. Each comparison has a pair of values
for every seed. The interval of their mean difference is Student's, and the intervals of a claim hold together with a
probability of 95 % (Bonferroni). A comparison holds if its interval is above zero, fails if it is below, and is
undecided otherwise, or with fewer than two seeds. Values that no seed changes are decided by their difference, without an
interval. A claim about all comparisons holds if all hold and fails if one
fails; one about most of them holds if more than half hold and fails if at least half fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from statistics import mean, stdev

CONFIDENCE = 0.95
RULE = (
    "Each claim is a list of comparisons, and each comparison has a pair of values for every seed. A comparison "
    "*holds* if the interval of the mean difference lies on the claimed side of zero, *fails* if it lies on the "
    "other, and is *undecided* otherwise or with fewer than two seeds. Values that no seed changes, such as counts, are decided by their difference "
    "alone. The intervals are Student's for paired "
    f"differences; those of a claim hold together with a probability of {CONFIDENCE * 100:g} % (Bonferroni). A claim "
    "about all comparisons holds if all hold and fails if one fails; a claim about most of them holds if more than "
    "half hold and fails if at least half fail."
)


class Verdict(Enum):
    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Comparison:
    """Says that `greater` exceeds `smaller`; both have a value for every seed."""

    label: str
    greater: tuple[float, ...]
    smaller: tuple[float, ...]
    exact: bool = False  # a single pair of values that no seed changes

    def __post_init__(self):
        if len(self.greater) != len(self.smaller):
            raise ValueError(f"{self.label}: {len(self.greater)} and {len(self.smaller)} seeds")

    @property
    def seeds(self) -> int:
        return len(self.greater)

    def differences(self) -> list[float]:
        return [a - b for a, b in zip(self.greater, self.smaller)]


@dataclass(frozen=True)
class Interval:
    """A mean difference and its confidence interval: infinite with a single seed, a point for exact values."""

    label: str
    mean: float
    half: float
    seeds: int
    exact: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.mean - self.half > 0:
            return Verdict.HOLDS
        return Verdict.FAILS if self.mean + self.half < 0 else Verdict.UNDECIDED

    def strength(self) -> float:
        """Returns how many half-widths the mean is on the claimed side of zero."""
        if math.isinf(self.half):
            return 0.0
        return self.mean / self.half if self.half else math.copysign(math.inf, self.mean) if self.mean else 0.0

    def __str__(self) -> str:
        if self.exact:
            return f"{self.label}: {self.mean:+.3g}, the same for every seed"
        if math.isinf(self.half):
            return f"{self.label}: {self.mean:+.3g}, a single run"
        low, high = self.mean - self.half, self.mean + self.half
        return f"{self.label}: {self.mean:+.3g} [{low:.3g}, {high:.3g}], {self.seeds} seeds"


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    deciding: Interval
    comparisons: int


def decide(comparisons: Sequence[Comparison], most: bool = False) -> Decision:
    """Decides a claim about all of the comparisons, or about most of them, and returns the interval that decides it.

    >>> better = Comparison("b", (3.0, 3.1, 2.9), (1.0, 1.1, 1.0))
    >>> worse = Comparison("w", (1.0, 1.1, 1.0), (3.0, 3.1, 2.9))
    >>> noise = Comparison("n", (1.0, 2.0, 3.0), (1.1, 1.9, 3.0))
    >>> decide([better]).verdict.value, decide([worse]).verdict.value, decide([better, noise]).verdict.value
    ('holds', 'fails', 'undecided')
    >>> found = decide([better, noise, worse])
    >>> found.verdict.value, found.deciding.label, found.comparisons
    ('fails', 'w', 3)
    >>> decide([better, noise, better], most=True).verdict.value, decide([worse, better], most=True).verdict.value
    ('holds', 'fails')
    >>> decide([Comparison("one run", (3.0,), (1.0,))]).verdict.value
    'undecided'
    >>> decide([Comparison("counts", (3.0,), (1.0,), exact=True)]).verdict.value
    'holds'
    """
    if not comparisons:
        raise ValueError("a claim without comparisons")
    intervals = sorted((interval(c, len(comparisons)) for c in comparisons), key=Interval.strength)
    count = len(intervals)
    holding, failing = (sum(i.verdict is v for i in intervals) for v in (Verdict.HOLDS, Verdict.FAILS))
    # In the order of strength, this comparison and those beyond it decide.
    needed = count // 2 + 1 if most else count
    against = count - needed + 1
    if holding >= needed:
        return Decision(Verdict.HOLDS, intervals[count - needed], count)
    if failing >= against:
        return Decision(Verdict.FAILS, intervals[against - 1], count)
    return Decision(Verdict.UNDECIDED, intervals[against - 1], count)


def interval(comparison: Comparison, comparisons: int) -> Interval:
    """Returns the interval of a comparison that is one of several of a claim."""
    differences, n = comparison.differences(), comparison.seeds
    if comparison.exact:
        return Interval(comparison.label, mean(differences), 0.0, n, exact=True)
    if n < 2:
        return Interval(comparison.label, mean(differences), math.inf, n)
    quantile = student_quantile(1 - (1 - CONFIDENCE) / (2 * comparisons), n - 1)
    return Interval(comparison.label, mean(differences), quantile * stdev(differences) / math.sqrt(n), n)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Returns the quantile of Student's distribution, for a probability above one half, by bisection.

    >>> [round(student_quantile(p, f), 4) for p, f in ((0.975, 1), (0.975, 2), (0.975, 9), (0.995, 9), (0.9995, 19))]
    [12.7062, 4.3027, 2.2622, 3.2498, 3.8834]
    """
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_cdf(t: float, freedom: int) -> float:
    """Returns Student's distribution function for t ≥ 0, by its finite series (Abramowitz, Stegun, 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for j in range(1 + odd, freedom, 2):
        total += term
        term *= cosine2 * j / (j + 1)
    inside = math.sin(angle) * total
    if odd:
        inside = (angle + inside) * 2 / math.pi
    return (1 + inside) / 2
