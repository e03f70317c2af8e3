"""From Python's arguments to the native part, and back."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_non_negative, validate_data

from . import _fednmf, _rows

Callback = Callable[[int, dict[str, float]], Any]


class Method(NamedTuple):
    """A method, as `fednmf list` has it."""

    name: str
    summary: str
    #: What a party holds: "rows", "columns", or None if the method takes one matrix.
    parties: Optional[str]


def methods() -> list[Method]:
    """All methods."""
    return [Method(*entry) for entry in _fednmf.methods()]


class Sent(NamedTuple):
    """Messages of one kind, of all parties together."""

    kind: str
    #: What they carry ("SharedFactor", "Gram", ...), and how it is protected ("in the clear", "masked", "noised", ...).
    payload: str
    protection: str
    #: How often the parties sent one.
    rounds: int
    #: Bytes that they sent and received.
    bytes: int


def _sent(kind: str, payload: str, protection: str, rounds: int, total: int) -> Sent:
    return Sent(kind, payload, protection, rounds, total)


class Edge(NamedTuple):
    """Messages from one party to another, in methods whose parties have neighbours."""

    sender: int
    receiver: int
    messages: int
    bytes: int


class Run(NamedTuple):
    """The result of a factorisation."""

    #: Name of the factor, its party (None: shared), values.
    factors: list[tuple[str, Optional[int], np.ndarray]]
    n_iter: int
    seconds: float
    stopped_by: str
    measures: dict[str, float]
    ledger: list[Sent]
    edges: list[Edge]
    #: Why parties that own their blocks would refuse the run.
    refused_between_owners: Optional[str]


def count(name: str, value: Any) -> int:
    """`value` if it is a whole number from 1 on."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise ValueError(f"{name}={value!r}: must be a whole number, at least 1")


def same_components(model: Any) -> None:
    """Refuses another number of components than that of earlier batches."""
    wanted, has = model.n_components, len(model.components_)
    if isinstance(wanted, numbers.Integral) and wanted != has:
        raise ValueError(f"n_components={wanted!r}: earlier batches had {has}; begin again with a new model or fit")


def counts(name: str, values: Any) -> list[int]:
    """Such numbers, each once and in order."""
    if not isinstance(values, Iterable):
        raise ValueError(f"{name}={values!r}: must be a list of whole numbers, such as range(2, 9)")
    found = sorted({count(name, value) for value in values})
    if not found:
        raise ValueError(f"{name} is empty: there must be a number of components")
    return found


def threads(n_jobs: Any) -> int:
    """The number of threads of `n_jobs`."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool)):
        raise ValueError(f"n_jobs={n_jobs!r}: must be None or a whole number")
    return effective_n_jobs(n_jobs)


def at_least_zero(name: str, value: Any) -> float:
    """`value` if it is a finite number from 0 on."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < float("inf"):
        return float(value)
    raise ValueError(f"{name}={value!r}: must be a finite number, at least 0")


def share(name: str, value: Any) -> float:
    """`value` if it is a number above 0, at most 1."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) <= 1:
        return float(value)
    raise ValueError(f"{name}={value!r}: must be a number above 0, at most 1")


def accepted(X: Any, what: str = "X") -> Any:
    """X as scikit-learn's checks may have it: they drop a mask, and add up duplicates of a sparse matrix in its own type, such as
    uint8."""
    if _rows.is_batches(X) or hasattr(X, "obs_names") or (_rows.is_in_parts(X) and not hasattr(X, "__array__")):
        raise ValueError(
            f"{what} is not an array or sparse matrix in memory; MiniBatchNMF takes an AnnData, also one that stays in its file, "
            "and an iterator of batches; fednmf.tl.nmf takes an AnnData, in memory or in its file; others take its adata.X, or a layer"
        )
    X = _rows.computed(X)
    _rows.check_unmasked(X, what)
    return X.astype(np.float64) if sp.issparse(X) and X.dtype.kind in "biu" else X


def checked(X: Any, what: str = "X", **rules: Any) -> Any:
    """X as an array or CSR matrix of float64 or float32; `rules` are those of `check_array`."""
    rules = {"dtype": [np.float64, np.float32], "accept_sparse": "csr", **rules}
    return check_array(accepted(X, what), input_name=what, **rules)


def given(model: Any, X: Any, reset: bool) -> Any:
    """The matrix of X, checked if it is in memory, whose columns have the names of the model's fit, also those of an AnnData."""
    matrix = _rows.matrix_of(X)
    if matrix is not X:
        _rows.check_features(X)
    in_parts = _rows.is_in_parts(matrix)
    if in_parts:
        _rows.check(matrix)
    elif matrix is X:
        X = validate_data(model, accepted(X), reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        return nonnegative(X)
    named = matrix if matrix is X else X.var[[]].T
    validate_data(model, named, skip_check_array=True, reset=reset)
    return matrix if in_parts else nonnegative(checked(matrix))


def batch(X: Any, *parts: tuple[int, int]) -> Any:
    """Rows of a matrix of `given`, checked if it is not in memory, and else has been."""
    rows = _rows.read(X, parts)
    return nonnegative(checked(rows)) if _rows.is_in_parts(X) else rows


def nonnegative(X: Any) -> Any:
    """X in its canonical form, if no entry is negative."""
    X = canonical(X)
    check_non_negative(X, "NMF (input X)")
    return X


@contextmanager
def kept_if_it_fails(model: Any) -> Iterator[None]:
    """Leaves a fitted model as it was if another fit fails."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def canonical(X: Any) -> Any:
    """X in the byte order of this machine, if it is sparse in CSR with each nonzero once, in order; X itself is never changed."""
    if not X.dtype.isnative:
        X = X.astype(X.dtype.newbyteorder("="))
    if not sp.issparse(X):
        return X
    X = X.tocsr()
    if max(X.shape) > np.iinfo(np.int32).max:
        raise ValueError(f"a sparse matrix has at most 2^31 - 1 rows and columns, not {X.shape[0]} x {X.shape[1]}")
    # SciPy remembers whether a matrix is canonical, also when its arrays have changed since.
    X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape, copy=False)
    if not X.has_canonical_format or (X.data == 0).any():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def native(X: Any) -> Any:
    """A checked matrix as the native part takes it."""
    if not sp.issparse(X):
        return X
    X = canonical(X)
    indices, indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False)
    return (X.data, indices, indptr, tuple(X.shape))


#: Products of entries and components in one call of a projection: about a second.
_WORK_AT_ONCE = 1 << 28


def seed_of(random_state: Any) -> int:
    """A seed of the library: a whole number is itself, so that the program gives the same with it."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool) and random_state >= 0:
        if random_state >= 1 << 64:
            raise ValueError(f"random_state={random_state}: must be below 2^64")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def parameters(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters by name and text: inner_sweeps=3 is ("inner_sweeps", "3"), clamp=True is ("clamp", "true"). None is not given."""
    given = []
    for name, value in options.items():
        if isinstance(value, (bool, np.bool_)):
            given.append((name, str(value).lower()))
        elif value is not None:
            words = value if isinstance(value, (list, tuple)) else [value]
            given.append((name, ",".join(map(str, words))))
    return given


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Options as on the command line: inner_sweeps=3 is --inner-sweeps=3, clamp=True is --clamp."""
    flags = {name: bool(value) for name, value in options.items() if isinstance(value, (bool, np.bool_))}
    for name, on in flags.items():
        if not on:
            raise ValueError(f"{name}=False: leave it out; the program takes options only to turn something on")
    words = [(name, "--" + name.replace("_", "-"), text) for name, text in parameters(options)]
    return [flag if name in flags else f"{flag}={text}" for name, flag, text in words]


def factorize(
    parts: Sequence[Any],
    *,
    algo: str,
    k: int,
    random_state: Any,
    max_iter: int,
    options: Mapping[str, Any],
    tol: Optional[float] = None,
    target_error: Optional[float] = None,
    time_limit: Optional[float] = None,
    eval_every: int = 10,
    scale: str = "as-found",
    n_jobs: Optional[int] = None,
    start: Optional[tuple[np.ndarray, np.ndarray]] = None,
    kernel: str = "native",
    mixed_precision: bool = False,
    callback: Optional[Callback] = None,
) -> Run:
    """Runs a method on checked matrices of one dtype. `kernel` is "native", "mkl" or "auto", as --kernel of the program."""
    settings = {
        "algo": algo,
        "options": parameters(options),
        "k": k,
        "seed": seed_of(random_state),
        "max_iters": max_iter,
        "tol": tol or None,
        "target_error": None if target_error is None else at_least_zero("target_error", target_error),
        "time_limit": None if time_limit is None else at_least_zero("time_limit", time_limit),
        "eval_every": eval_every,
        "scale": scale,
        "threads": threads(n_jobs),
        "kernel": kernel,
        "mixed_precision": mixed_precision,
        "callback": callback,
    }
    factors, about = _fednmf.factorize([native(part) for part in parts], str(parts[0].dtype), settings, start)
    return Run(
        factors,
        about["iterations"],
        about["seconds"],
        about["stopped_by"],
        about["measures"],
        [_sent(*entry) for entry in about["ledger"]],
        [Edge(*entry) for entry in about["edges"]],
        about["refused_between_owners"],
    )


def _exponent(X: Any) -> int:
    """The exponent of the largest entry if powers of it may be out of range, else 0."""
    values = X.data if sp.issparse(X) else X
    largest = float(values.max()) if values.size else 0.0
    exponent = int(np.frexp(largest)[1])
    return exponent if 0 < largest < float("inf") and abs(exponent) > np.finfo(values.dtype).maxexp // 8 else 0


def project(
    X: Any,
    components: np.ndarray,
    n_jobs: Optional[int] = None,
    penalty: tuple[float, float] = (0.0, 0.0),
    beta: Optional[float] = None,
    min_gain: Optional[float] = None,
) -> np.ndarray:
    """The exact W >= 0 (rows x k) for H = `components` (k x columns).

    It minimises half the squared Frobenius norm of X - W H, or with `beta` the beta-divergence (1: Kullback-Leibler), and for
    `penalty` = (a, b) also a |W|_1 + b |W|_F^2 / 2. With `min_gain` a row has few components.
    """
    v = np.ascontiguousarray(components.T, dtype=X.dtype)
    stored = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    work = max(stored / X.shape[0], components.shape[0]) * components.shape[0] if X.shape[0] else 1
    step = min(max(int(_WORK_AT_ONCE / max(work, 1)), 1), getattr(X, "at_once", X.shape[0]))
    # Between the parts Python raises what Ctrl-C asks for.
    in_memory = isinstance(X, np.ndarray) or sp.issparse(X)
    m = X.shape[0]
    parts = [X] if in_memory and step >= m else (X[first : min(first + step, m)] for first in range(0, m, step))
    count_of_threads = threads(n_jobs)

    def solved(part: Any) -> np.ndarray:
        exponent = _exponent(part) if beta not in (None, 1) else 0
        weights = penalty
        if exponent:
            scale = -exponent
            part = part._with_data(np.ldexp(part.data, scale)) if sp.issparse(part) else np.ldexp(part, scale)
            # The divergence of a part s times as large is s^beta times as large, and its minimiser s times.
            powers = np.exp2(np.clip([scale * (beta - 1), scale * (beta - 2)], -1022, 1023))
            weights = float(penalty[0] * powers[0]), float(penalty[1] * powers[1])
        found = _fednmf.project(native(part), str(X.dtype), v, weights, count_of_threads, beta, min_gain)
        return np.ldexp(found, exponent) if exponent else found

    found = [solved(part) for part in parts]
    # The weights of a row of zeros may be -0, and -0 + 0 = 0.
    return (found[0] if len(found) == 1 else np.concatenate(found)) + X.dtype.type(0)
