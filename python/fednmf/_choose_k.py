"""The number of components: several runs for each, by error on held-out entries and stability."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Optional

import numpy as np

from . import _fednmf, _run, _show
from ._nmf import AnyLoss, checked_loss
from ._parts import Parts

#: Called with k, the run, the iteration and the last measures.
Callback = Callable[[int, int, int, dict[str, float]], Any]

#: The methods of the runs.
SearchMethod = Literal["dsanls", "hals", "bpp", "mu", "kl-mu", "kl-cd", "auto"]

_COLUMNS = ("k", "rmse", "divergence", "heldout", "heldout_se", "silhouette", "least_silhouette", "cosine")


@dataclass(repr=False)
class Consensus:
    """What the runs with one k agree on.

    W           samples x k: the exact minimiser of the loss for this H
    H           k x features: the mean of each component over the runs, with norm 1
    rmse        root mean squared error of W H
    divergence  of W H, if the method minimises one
    silhouette, cosine
                of each component: how well the runs agree on it (None with a single run)
    share       of each component: its part of the sum of the entries of W H
    """

    W: np.ndarray
    H: np.ndarray
    rmse: float
    divergence: Optional[float]
    silhouette: Optional[np.ndarray]
    cosine: Optional[np.ndarray]
    share: np.ndarray

    def __repr__(self) -> str:
        return f"Consensus(W: {self.W.shape}, H: {self.H.shape}, rmse={self.rmse:.6g})"


class Similarities(NamedTuple):
    """How similar the components of all runs with one k are."""

    #: The cosine of each two, cluster by cluster (runs * k x runs * k).
    cosines: np.ndarray
    #: The cluster of each, from 0.
    clusters: np.ndarray


@dataclass(repr=False)
class KChoice:
    """The result of `choose_k`."""

    #: A pandas.DataFrame with a row for each k, or without pandas a dictionary of arrays: mean errors over the runs,
    #: and the stability of the components. NaN: not known.
    table: Any
    #: None if nothing supports a choice.
    recommended: Optional[int]
    #: The smallest number that predicts held-out entries as well as any; None if nothing was held out.
    for_prediction: Optional[int]
    #: The number whose components are stable, to read them; None if those of none are.
    for_interpretation: Optional[int]
    reasons: list[str]
    #: Why to try other numbers of components.
    warnings: list[str]
    #: Of the runs with the number for interpretation, or if there is none, with the recommended one.
    consensus: Optional[Consensus]
    similarities: dict[int, Similarities]
    #: Of the features, if the data have names.
    feature_names: Optional[list[str]] = None

    def __repr__(self) -> str:
        why = "; ".join([*self.reasons, *self.warnings])
        return f"KChoice(recommended={self.recommended}, tried={self.column('k').astype(int).tolist()}: {why})"

    def _repr_html_(self) -> str:
        answer = "none is recommended" if self.recommended is None else f"k = {self.recommended} is recommended"
        known = [name for name in _COLUMNS if not np.isnan(self.column(name)).all()]
        columns = [self.column(name).astype(int).tolist() if name == "k" else self.column(name).tolist() for name in known]
        return (
            _show.paragraph(f"{answer}: {'; '.join(self.reasons)}")
            + _show.table(known, zip(*columns))
            + "".join(_show.paragraph(f"Warning: {warning}") for warning in self.warnings)
        )

    def column(self, name: str) -> np.ndarray:
        """A column of the table as an array."""
        return np.asarray(self.table[name])


def choose_k(
    X: Any,
    ks: Iterable[int],
    n_runs: int,
    *,
    method: Optional[str],
    beta_loss: Optional[AnyLoss],
    holdout: Optional[float],
    resample: Optional[str],
    criterion: Optional[str],
    max_iter: Optional[int],
    tol: float,
    random_state: Any,
    n_jobs: Optional[int],
    callback: Optional[Callback],
    verbose: int = 0,
) -> KChoice:
    """See `fednmf.tl.choose_k`; X is a matrix."""
    in_parts = isinstance(X, Parts)
    X = X.cast(np.float64) if in_parts else _run.checked(X, dtype=np.float64)
    # Held-out entries need the matrix in memory, as in `fednmf sweep`.
    holdout = 0.0 if in_parts and holdout is None else holdout
    checked = _run.counts("ks", ks)
    with _show.Progress() as progress:
        found = _fednmf.choose_k(
            _run.native(X),
            {
                "ks": checked,
                "runs": _run.count("n_runs", n_runs),
                "method": method,
                "loss": None if beta_loss is None else checked_loss(beta_loss),
                "holdout": None if holdout is None else _share(holdout),
                "resample": resample,
                "criterion": criterion,
                "max_iters": None if max_iter is None else _run.count("max_iter", max_iter),
                "tol": _run.at_least_zero("tol", tol),
                "seed": _run.seed_of(random_state),
                "threads": _run.threads(n_jobs),
                "callback": _show.together(progress.run if verbose else None, callback),
            },
        )
    similarities = {
        k: Similarities(cosines, np.asarray(clusters)) for k, (cosines, clusters) in zip(checked, found["similarities"])
    }
    none = "no k is stable" if criterion else "nothing was held out, and no k is stable"
    none = "stability is not known: that takes at least two runs" if n_runs == 1 else none
    if found["choice"] is None:
        _show.warn(f"{none}: no number of components is recommended, and there is no consensus")
    k, predicting, stable, reasons, warnings = found["choice"] or (None, None, None, [none], [])
    consensus = found["consensus"] and _consensus(*found["consensus"])
    return KChoice(_table(found["points"]), k, predicting, stable, reasons, warnings, consensus, similarities)


def _share(holdout: Any) -> float:
    share = _run.at_least_zero("holdout", holdout)
    if share > 0.9:
        raise ValueError(f"holdout={holdout!r}: must be a number from 0 to 0.9")
    return share


def _table(points: list[dict[str, Any]]) -> Any:
    columns = {name: np.array([np.nan if p[name] is None else p[name] for p in points]) for name in _COLUMNS}
    try:
        import pandas as pd
    except ImportError:
        return columns
    return pd.DataFrame(columns)


def _consensus(
    u: np.ndarray, v: np.ndarray, rmse: float, divergence: Optional[float], components: list[tuple]
) -> Consensus:
    silhouette, cosine, share = zip(*components)
    known = silhouette[0] is not None
    return Consensus(
        W=np.ascontiguousarray(u),
        H=np.ascontiguousarray(v.T),
        rmse=rmse,
        divergence=divergence,
        silhouette=np.array(silhouette) if known else None,
        cosine=np.array(cosine) if known else None,
        share=np.array(share),
    )
