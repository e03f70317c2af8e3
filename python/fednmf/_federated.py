"""Factorisations of the blocks of several parties, all in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from sklearn.utils import check_array

from . import _run


@dataclass(repr=False)
class Federated:
    """Factors of the blocks of several parties, M_i ~ U V_i' (columns by party) or M_i ~ U_i V' (rows by party)."""

    algo: str
    #: Factors that all parties know, by name.
    shared: dict[str, np.ndarray]
    #: Factors of each party, by name.
    private: list[dict[str, np.ndarray]]
    n_iter: int
    #: Seconds in the algorithm.
    seconds: float
    stopped_by: str
    #: Those of the last evaluation: rel_error, f1, rmsd.
    measures: dict[str, float]
    #: What left the parties, by message kind: kind, payload, protection, rounds, bytes.
    ledger: list[_run.Sent]
    #: What a party sent to another: sender, receiver, messages, bytes. Only where the parties have neighbours.
    edges: list[_run.Edge]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {factor.shape}" for name, factor in self.shared.items())
        leading = "".join(f", {name}={value:.4g}" for name, value in list(self.measures.items())[:1])
        return f"Federated({self.algo!r}, {len(self.private)} parties, {shapes}, n_iter={self.n_iter}{leading})"


def federated(
    parts: Sequence[Any],
    *,
    n_components: int,
    algo: str = "fnmf",
    max_iter: int = 100,
    tol: float = 0.0,
    target_error: Optional[float] = None,
    time_limit: Optional[float] = None,
    eval_every: int = 10,
    random_state: Any = None,
    n_jobs: Optional[int] = None,
    callback: Optional[_run.Callback] = None,
    **options: Any,
) -> Federated:
    """Runs a federated method on arrays or sparse matrices, one for each party.

    All parties are simulated in this process: what they exchange is what they would exchange over a network, but nothing
    is protected from who calls this.

    Parameters
    ----------
    parts : sequence of arrays or sparse matrices
        Party 0's block first. Blocks of rows (samples) have the same columns, blocks of columns the same rows, as the method
        asks (`fednmf.methods()`).
    n_components : int
    algo : str
        A method with parties: "fnmf", "secure-hals", "syn-sd", "felb", "ppdnmf" and others.
    max_iter, tol, target_error, time_limit, eval_every
        As --max-iters, --tol, --target-error, --time-limit (seconds) and --eval-every of the program.
    callback : callable or None
        Called with the iteration and the last measures about four times a second; an exception ends the run.
    **options
        Options of the method as on the command line, with underscores: secure_sum=True, local_iters=5.

    Raises
    ------
    ValueError
        If the method has no parties, the blocks do not fit together, an entry is not accepted, or an option is wrong.
    """
    known = {method.name: method.parties for method in _run.methods()}
    if known.get(algo, "") is None:
        names = ", ".join(name for name, parties in known.items() if parties)
        raise ValueError(f"algo={algo!r} takes one matrix; methods with parties are {names}")
    if len(parts) == 0:
        raise ValueError("parts is empty: there must be a matrix for each party")
    checked = [
        check_array(part, accept_sparse="csr", dtype=[np.float64, np.float32], input_name=f"part {i}")
        for i, part in enumerate(parts)
    ]
    dtype = np.result_type(*(part.dtype for part in checked))
    run = _run.factorize(
        [part.astype(dtype, copy=False) for part in checked],
        algo=algo,
        k=_run.count("n_components", n_components),
        random_state=random_state,
        max_iter=_run.count("max_iter", max_iter),
        tol=_run.at_least_zero("tol", tol),
        target_error=target_error,
        time_limit=time_limit,
        eval_every=eval_every,
        options=options,
        n_jobs=n_jobs,
        callback=callback,
    )
    shared: dict[str, np.ndarray] = {}
    private: list[dict[str, np.ndarray]] = [{} for _ in parts]
    for name, party, values in run.factors:
        (shared if party is None else private[party])[name] = values
    return Federated(
        algo, shared, private, run.n_iter, run.seconds, run.stopped_by, run.measures, run.ledger, run.edges
    )
