"""Factorisations of the blocks of several parties, all in this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import scipy.sparse as sp

from . import _annotated, _run, _show
from ._choose_k import KChoice, choose_k

#: Methods whose error is neither the squared error nor the Kullback-Leibler divergence of a factorisation.
_NOT_SEARCHED = ("fed-beta", "felb", "felb-mu", "elbmf", "zhang", "asso", "grecond", "mebf")
#: Options that change neither the data nor the loss, so that `choose_k` searches for the number of components of the same problem:
#: masks, and how the run gets there.
_OF_THE_RUN = frozenset(
    "accept_risk admm_iters admm_tol clock colluding crypto_threads extrapolation headroom inertia insecure_key key_bits local_iters "
    "local_tol max_releases min_rows order participation party_timeout plain record_order replay secret_seed secure_sum "
    "secure_threshold sketch sketch_size solver start topology update".split()
)


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
    #: Names of the rows of the shared factor, and of those of each party's private factors; None: the parts have no names.
    shared_names: Optional[list[str]] = None
    private_names: Optional[list[list[str]]] = None
    #: Why this number of components, if several were given.
    choice: Optional[KChoice] = None

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {factor.shape}" for name, factor in self.shared.items())
        leading = "".join(f", {name}={value:.4g}" for name, value in list(self.measures.items())[:1])
        return f"Federated({self.algo!r}, {len(self.private)} parties, {shapes}, n_iter={self.n_iter}{leading})"

    def _repr_html_(self) -> str:
        rows = [(sent.kind, sent.protection, sent.rounds, sent.bytes) for sent in self.ledger]
        return (
            _show.paragraph(repr(self))
            + _show.paragraph("What left the parties:")
            + _show.table(["message", "protection", "rounds", "bytes"], rows)
        )


def federated(
    parts: Sequence[Any],
    *,
    n_components: Union[int, Sequence[int]],
    algo: str = "fnmf",
    layer: Optional[str] = None,
    common_columns: bool = False,
    all_columns: bool = False,
    n_runs: int = 10,
    max_iter: int = 100,
    tol: float = 0.0,
    target_error: Optional[float] = None,
    time_limit: Optional[float] = None,
    eval_every: int = 10,
    random_state: Any = None,
    n_jobs: Optional[int] = None,
    callback: Optional[_run.Callback] = None,
    verbose: int = 0,
    **options: Any,
) -> Federated:
    """Runs a federated method on the data of several parties.

    All parties are simulated in this process: what they exchange is what they would exchange over a network, but nothing
    is protected from who calls this.

    Parameters
    ----------
    parts : sequence of AnnData, DataFrames (pandas, polars, Arrow), arrays or sparse matrices
        Party 0's block first. Blocks of rows (samples) have the same columns, blocks of columns the same rows, as the method
        asks. Columns that have names are matched by name, in the order of party 0.
    n_components : int or sequence of int
        Of several, the one that `fednmf.tl.choose_k` recommends for the joined matrix, by error and stability; it is in `choice`.
        Joined data exist in a simulation only: institutions choose with ``fednmf choose``, from the factors of their runs. The
        search knows no options of a method: those that change data or loss (penalties, missing, holdout, noise, ...) need one
        number.
    algo : str
        A method with parties, see below.
    layer : str or None
        The layer of AnnData to factorise; None: `X`.
    common_columns, all_columns : bool
        As --common-columns and --all-columns of the program: the columns that all parties have, or those that any party has, with
        zeros where a party lacks one. With neither, those that all have, with a warning if others are left out.
    n_runs : int
        Runs for each of several numbers of components.
    max_iter, tol, target_error, time_limit, eval_every
        As --max-iters, --tol, --target-error, --time-limit (seconds) and --eval-every of the program.
    callback : callable or None
        Called with the iteration and the last measures at each evaluation and about four times a second; an exception ends the run.
    verbose : int
        Print the progress.
    **options
        Options of the method as on the command line, with underscores: secure_sum=True, local_iters=5.

    Returns
    -------
    Federated

    Raises
    ------
    ValueError
        If the method has no parties, the blocks do not fit together, an entry is not accepted, or an option is wrong.

    Notes
    -----
    The methods and their options, which ``fednmf list NAME`` explains. Four groups of options are named by a word:

    masks          secure_sum, headroom, colluding, min_rows, suppress_rare, accept_risk
    drop-outs      secure_threshold
    noise          dp, dp_unit, epsilon, delta, clip, dp_calibration, dp_noise, dp_releases, budget, budget_limit, secret_seed
    penalties      alpha_u, alpha_v, l1_ratio

    Private rows, shared V (columns x k):

    fnmf           local_iters, local_tol, update, inertia, participation, normalize, missing, gamma, align, barycenter,
                   personalize, start; masks, drop-outs, noise, penalties
    fedavg         local_iters, local_tol, update, inertia, participation, normalize, missing, start; masks, drop-outs, noise,
                   penalties
    fedprox        local_iters, local_tol, update, inertia, participation, normalize, missing, gamma, start; masks, drop-outs,
                   noise, penalties
    ipalm          inertia, start; masks, drop-outs, noise, penalties
    mur            start; masks, drop-outs, noise, penalties
    fed-kl         extrapolation, missing, holdout; masks, drop-outs
    fed-beta       beta; masks, drop-outs
    inmf           own_penalty, update, local_iters; masks, drop-outs
    mpc-rows       secret_seed
    felb           local_iters, lambda, lambda_rate, kappa, gamma, inertia, refit, until_boolean, clamp; masks, noise
    felb-mu        local_iters, lambda, lambda_rate, kappa, gamma, inertia, refit, until_boolean, clamp; masks, noise
    elbmf          lambda, lambda_rate, kappa, inertia, step_size, aggregate, refit; masks, noise
    zhang          lambda, lambda_rate, aggregate, refit; masks, noise
    asso           tau, gain_weight, loss_weight, aggregate, refit; masks, noise
    grecond        aggregate, refit; masks, noise
    mebf           tau, cover_limit, aggregate, refit; masks, noise

    Private columns, shared U (rows x k):

    syn-sd         local_iters, order, solver, mu, mu_alpha, mu_beta, missing, weights; masks, drop-outs, noise, penalties
    syn-ssd-u      local_iters, order, solver, mu, mu_alpha, mu_beta, missing, weights, sketch, sketch_size; masks, drop-outs,
                   penalties
    syn-ssd-v      local_iters, order, solver, mu, mu_alpha, mu_beta, missing, weights, sketch, sketch_size; masks, drop-outs,
                   noise, penalties
    syn-ssd-uv     local_iters, order, solver, mu, mu_alpha, mu_beta, missing, weights, sketch, sketch_size; masks, drop-outs,
                   penalties
    asyn-sd        local_iters, order, solver, mu, mu_alpha, mu_beta, missing, rho, clock, record_order, replay,
                   party_timeout; penalties
    asyn-ssd-v     local_iters, order, solver, mu, mu_alpha, mu_beta, missing, rho, clock, record_order, replay,
                   party_timeout, sketch, sketch_size; penalties
    secure-hals    local_iters, update, start, extrapolation, sketch, sketch_size; masks, drop-outs, noise, penalties
    dsanls-secure  sketch, sketch_size, max_releases, solver, mu, mu_alpha, mu_beta; masks, penalties
    mpc-columns    secret_seed
    ppdnmf         topology, mu_penalty, eta, admm_iters, admm_tol, g_max, g_scale, quantization, x_range, key_bits,
                   insecure_key, plain, scalar_g, crypto_threads, secret_seed
    admm           mu_penalty, eta, admm_iters, admm_tol

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> X = np.random.default_rng(0).random((400, 12))
    >>> found = fednmf.federated([X[:200], X[200:]], n_components=3, random_state=0, max_iter=20)
    >>> found.shared["V"].shape, found.private[0]["U"].shape
    ((12, 3), (200, 3))

    Three hospitals, whose sums are masked, and what left them:

    >>> parts = [X[:130], X[130:260], X[260:]]
    >>> found = fednmf.federated(parts, n_components=3, secure_sum=True, random_state=0, max_iter=20)
    >>> [sent.protection for sent in found.ledger if sent.kind == "sum V_j"]
    ['masked']
    """
    known = {method.name: method.parties for method in _run.methods()}
    if known.get(algo, "") is None:
        names = ", ".join(name for name, parties in known.items() if parties)
        raise ValueError(f"algo={algo!r} takes one matrix; methods with parties are {names}")
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"parts must be a list of matrices, one for each party, not {type(parts).__name__}")
    if len(parts) == 0:
        raise ValueError("parts is empty: there must be a matrix for each party")
    of_rows = known.get(algo) == "rows"
    matrices, shared_names, private_names = _aligned(parts, layer, of_rows, common_columns, all_columns)
    finite = "allow-nan" if options.get("missing") == "nan" else True
    checked = [_run.checked(matrix, f"part {i}", ensure_all_finite=finite) for i, matrix in enumerate(matrices)]
    if any(map(sp.issparse, checked)):
        # The native part takes parts of one kind.
        checked = [sp.csr_matrix(part) for part in checked]
    choice = None
    if isinstance(n_components, Iterable):
        other = [name for name, value in options.items() if name not in _OF_THE_RUN and value is not None and value is not False]
        if other:
            raise ValueError(
                f"n_components={n_components!r}: {', '.join(other)} would not be part of the search for the number of components; "
                "give one number"
            )
        choice = _choice(checked, n_components, n_runs, algo, of_rows, random_state, n_jobs)
    dtype = np.result_type(*(part.dtype for part in checked))
    with _show.Progress() as progress:
        run = _run.factorize(
            [part.astype(dtype, copy=False) for part in checked],
            algo=algo,
            k=_run.count("n_components", n_components if choice is None else choice.recommended),
            random_state=random_state,
            max_iter=_run.count("max_iter", max_iter),
            tol=_run.at_least_zero("tol", tol),
            target_error=target_error,
            time_limit=time_limit,
            eval_every=eval_every,
            options=options,
            n_jobs=n_jobs,
            callback=_show.together(progress.iteration if verbose else None, callback),
        )
    if run.refused_between_owners:
        warnings.warn(f"between owners this run would be refused: {run.refused_between_owners}", UserWarning, stacklevel=2)
    if algo.startswith("mpc-") and len(parts) == 2:
        warnings.warn(
            "between owners this run would be refused: three parties compute on the secret shares, and of two one sees all data",
            UserWarning,
            stacklevel=2,
        )
    if options.get("secure_sum") and len(parts) == 2:
        warnings.warn(
            "secure_sum hides nothing between two parties: each can subtract its own term from the sum; use three or more",
            UserWarning,
            stacklevel=2,
        )
    shared: dict[str, np.ndarray] = {}
    private: list[dict[str, np.ndarray]] = [{} for _ in parts]
    for name, party, values in run.factors:
        (shared if party is None else private[party])[name] = values
    return Federated(
        algo,
        shared,
        private,
        run.n_iter,
        run.seconds,
        run.stopped_by,
        run.measures,
        run.ledger,
        run.edges,
        shared_names,
        private_names,
        choice,
    )


def _choice(
    parts: Sequence[Any], ks: Any, n_runs: int, algo: str, of_rows: bool, random_state: Any, n_jobs: Optional[int]
) -> KChoice:
    if algo in _NOT_SEARCHED:
        raise ValueError(f"n_components={ks!r}: {algo} takes one number; several are for the squared error and fed-kl")
    stack = (sp.vstack if of_rows else sp.hstack) if sp.issparse(parts[0]) else (np.vstack if of_rows else np.hstack)
    choice = choose_k(
        stack(parts),
        ks,
        n_runs,
        method="kl-mu" if algo == "fed-kl" else "hals",
        beta_loss=None,
        holdout=None,
        resample=None,
        criterion=None,
        max_iter=None,
        tol=1e-4,
        random_state=random_state,
        n_jobs=n_jobs,
        callback=None,
    )
    if choice.recommended is None:
        raise ValueError(f"n_components={ks!r}: none is supported ({'; '.join(choice.reasons)}); give one number")
    return choice


def _aligned(
    parts: Sequence[Any], layer: Optional[str], of_rows: bool, common_columns: bool, all_columns: bool
) -> tuple[list[Any], Optional[list[str]], Optional[list[list[str]]]]:
    """The matrices with the same columns (or rows), the names of these, and those of the other side of each part."""
    if common_columns and all_columns:
        raise ValueError("common_columns and all_columns exclude each other")
    if not of_rows and (common_columns or all_columns):
        raise ValueError("common_columns and all_columns are for parts that are rows; the parts of this method are columns")
    # Tables of polars and Arrow have names, too.
    parts = [part if hasattr(part, "iloc") or not hasattr(part, "to_pandas") else part.to_pandas() for part in parts]
    named = [_annotated.is_annotated(part) or hasattr(part, "iloc") for part in parts]
    if layer is not None and not all(map(_annotated.is_annotated, parts)):
        raise ValueError(f"layer={layer!r} is for parts that are AnnData")
    if not all(named):
        if any(named) or common_columns or all_columns:
            raise ValueError(f"part {named.index(False)} has no names of columns: give an AnnData or a DataFrame for each party")
        return list(parts), None, None
    for i, part in enumerate(parts):
        columns_of_part = part.var_names if _annotated.is_annotated(part) else part.columns
        if of_rows and not columns_of_part.is_unique:
            raise ValueError(f"part {i} has several columns {columns_of_part[columns_of_part.duplicated()][0]!r}: give each a name of its own")
    matrices = [
        _run.accepted(_annotated.matrix(part, layer), f"part {i}")
        if _annotated.is_annotated(part)
        else _annotated.values(part, f"part {i}")
        for i, part in enumerate(parts)
    ]
    rows, columns = zip(
        *((part.obs_names, part.var_names) if _annotated.is_annotated(part) else (part.index, part.columns) for part in parts)
    )
    if not of_rows:
        for i, names in enumerate(rows):
            if not names.equals(rows[0]):
                raise ValueError(f"part {i} has other rows than part 0, or in another order: bring them into one order first")
        return matrices, _words(rows[0]), [_words(names) for names in columns]
    wanted = columns[0]
    for names in columns[1:]:
        wanted = wanted.union(names, sort=False) if all_columns else wanted[wanted.isin(names)]
    if len(wanted) == 0:
        raise ValueError("no column is in all parts: use the same names everywhere, such as gene symbols")
    most = max(map(len, columns))
    if len(wanted) < most and not common_columns:
        warnings.warn(
            f"{len(wanted)} columns are in all parts, and others are left out (a part has {most}); common_columns=True says that "
            "this is meant, and all_columns=True keeps them with zeros",
            UserWarning,
            stacklevel=3,
        )
    return [_taken(X, names, wanted) for X, names in zip(matrices, columns)], _words(wanted), [_words(names) for names in rows]


def _taken(X: Any, names: Any, wanted: Any) -> Any:
    """The wanted columns of X, with zeros for those that it lacks."""
    if names.equals(wanted):
        return X
    places = names.get_indexer(wanted)
    if (places < 0).any():
        # A column of zeros, for all that are missing.
        places = np.where(places < 0, X.shape[1], places)
        zeros = np.zeros((X.shape[0], 1), dtype=X.dtype)
        X = sp.hstack([X, zeros], format="csr", dtype=X.dtype) if sp.issparse(X) else np.hstack([X, zeros])
    return X[:, places]


def _words(names: Any) -> list[str]:
    return [str(name) for name in names]
