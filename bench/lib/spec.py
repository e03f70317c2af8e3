"""What a figure consists of; the files in bench/figures/ are written in these terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .verdict import Comparison

# A column of the trace, or a function of an event (a dict) and the finished job it belongs to.
Column = str | Callable[[dict, Any], float]


class Missing(Exception):
    """A data set is not available; the message names it and the place where it was expected."""


@dataclass(frozen=True)
class Run:
    """A run of fednmf, repeated with `seeds` seeds."""

    algo: str
    data: Any  # a name in datasets.SETS, 'synthetic:…', or a datasets.Generated
    k: int
    iters: int
    parties: int | None = None
    ranks: int = 1
    every: int | None = None  # --eval-every; None: about forty evaluations
    seeds: int = 1
    seedless: bool = False  # nothing of it depends on the seed: one run stands for all seeds
    options: tuple = ()

    def but(self, **changes) -> Run:
        """Returns the same run with other fields or options."""
        fields = {k: changes.pop(k) for k in list(changes) if k in self.__dataclass_fields__}
        return replace(self, **fields, options=tuple(sorted({**dict(self.options), **changes}.items())))


def run(algo: str, data: Any, k: int, iters: int, **rest) -> Run:
    """Describes a run; whatever is not a field of Run is an option: `local_iters=10` is `--local-iters 10`."""
    return Run(algo, data, k, iters).but(**rest)


@dataclass
class Curve:
    """A line of a plot or a row of a table, defined by exactly one of `run`, `best` and `points`."""

    label: str
    run: Run | None = None  # the history of a run
    best: list[Run] | None = None  # the history of the run that ends lowest
    points: list[tuple[Any, Run]] | None = None  # (x, run): the final value of each run
    x: Column | None = None  # overrides the panel's
    y: Column | None = None


@dataclass
class Panel:
    name: str
    curves: list[Curve]
    xlabel: str
    ylabel: str
    x: Column = "iter"
    y: Column = "rel_error"
    log: str = ""  # 'x', 'y', 'xy'
    table: bool = False  # rows are curves, columns are x


@dataclass
class Test:
    """Comparisons that decide a claim by the rule of `verdict`."""

    name: str  # among the tests of its figure
    tested: str  # what is compared, on which data
    compare: Callable[[Any], Iterable[Comparison]]
    most: bool = False  # holds if most comparisons do, instead of all


@dataclass
class Claim:
    """A claim and its first test."""

    name: str
    quote: str  # the wording of the paper, or what is claimed beyond the papers
    place: str  # in the paper; empty for a claim beyond it
    tested: str
    compare: Callable[[Any], Iterable[Comparison]]
    most: bool = False
    timed: bool = False  # about measured time: decided on an idle machine alone
    also: list[Test] = field(default_factory=list)  # with other parameters, on other data or by another measure

    def tests(self) -> Iterator[Claim]:
        """Yields the claim with each of its tests."""
        yield replace(self, also=[])
        for test in self.also:
            yield replace(self, also=[], **vars(test))


@dataclass
class Reference:
    """A value `value` ± `sd` from `source`, compared with the measured one."""

    text: str
    value: float
    sd: float | None
    get: Callable[[Any], float]  # from the results
    source: str = "prototype"


@dataclass
class Figure:
    name: str
    paper: str
    title: str
    data: str  # description
    minutes: float  # on two cores
    panels: Callable[[], list[Panel]]
    note: str = ""  # differences from the paper
    claims: list[Claim] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    secret: bool = False  # parties draw in secret, so that no run of the same seed has the same values
    command: str = ""  # if it is not that of `bench/run reproduce`

    def tests(self) -> list[Claim]:
        """Returns its claims, one for each test."""
        return [tested for claim in self.claims for tested in claim.tests()]

    def run_by(self) -> str:
        """Returns the command that runs the figure."""
        return self.command or f"bench/run reproduce {self.name} --data DIR"
