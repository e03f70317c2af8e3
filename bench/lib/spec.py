"""What a figure is made of. The files in bench/figures/ consist of these and of little else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Union

# A column of the trace, or a function of one of its events (a dict) and the finished job it belongs to.
Column = Union[str, Callable[[dict, "Any"], float]]


class Missing(Exception):
    """A data set that is not there; the message says what it is and where it is looked for."""


@dataclass(frozen=True)
class Run:
    """One invocation of fednmf, repeated with `seeds` seeds."""

    algo: str
    data: Any  # a name in data.SETS, 'synthetic:…', or a data.Made
    k: int
    iters: int
    parties: int | None = None
    ranks: int = 1
    every: int | None = None  # --eval-every; None: some forty points
    seeds: int = 1
    options: tuple = ()

    def but(self, **changes) -> Run:
        """The same run with other fields or options."""
        fields = {k: changes.pop(k) for k in list(changes) if k in self.__dataclass_fields__}
        return replace(self, **fields, options=tuple(sorted({**dict(self.options), **changes}.items())))


def run(algo: str, data: Any, k: int, iters: int, **rest) -> Run:
    """A run; what is no field of Run is an option of fednmf (`local_iters=10` is `--local-iters 10`)."""
    return Run(algo, data, k, iters).but(**rest)


@dataclass
class Curve:
    """A line of a plot or the row of a table. One of `run`, `best` and `points` says what is run."""

    label: str
    run: Run | None = None  # the course of one run
    best: list[Run] | None = None  # the same, of the run that ends lowest
    points: list[tuple[Any, Run]] | None = None  # (x, run): the end of each run
    x: Column | None = None  # other than the panel's
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
class Claim:
    """What the paper says, and a function of the results that gives (whether it holds here, what was measured)."""

    text: str
    check: Callable[[Any], tuple[bool, str]]


@dataclass
class Reference:
    """A number that others found: `value` ± `sd` from `source`, beside what was measured here."""

    text: str
    value: float
    sd: float | None
    get: Callable[[Any], float]
    source: str = "prototype"


@dataclass
class Figure:
    name: str
    paper: str
    title: str
    data: str  # in words
    minutes: float  # of two cores
    panels: Callable[[], list[Panel]]
    note: str = ""  # what differs from the paper
    claims: list[Claim] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
