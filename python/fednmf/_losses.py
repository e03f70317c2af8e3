"""Losses of a factorisation X ~ W H."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

#: Entries of W H that are computed at a time.
_BLOCK = 1_000_000
#: Below this share of its terms a difference of sums has too few digits.
_CANCELLED = 1e-8
#: Lower bound of an entry of W H in a negative power, in units of X; the same as in the iterations.
_FLOOR = float(np.finfo(np.float64).eps)


def _row_blocks(X: Any, k: int):
    rows = max(1, _BLOCK // max(X.shape[1], k))
    return (slice(first, first + rows) for first in range(0, X.shape[0], rows))


def _stored_blocks(X: Any):
    """The stored entries of a sparse matrix in float64, and their places."""
    slices = (slice(first, first + _BLOCK) for first in range(0, X.nnz, _BLOCK))
    return ((X.data[some].astype(np.float64), some) for some in slices)


def _at_nonzeros(X: Any, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """The entries of W H where the CSR matrix X has its own."""
    values = np.empty(X.nnz, dtype=W.dtype)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    step = max(1, _BLOCK // W.shape[1])
    by_columns = np.ascontiguousarray(H.T)
    for first in range(0, X.nnz, step):
        some = slice(first, first + step)
        np.einsum("ij,ij->i", W[rows[some]], by_columns[X.indices[some]], out=values[some])
    return values


def frobenius(X: Any, W: np.ndarray, H: np.ndarray) -> float:
    """The Frobenius norm of X - W H."""
    W, H = W.astype(np.float64, copy=False), H.astype(np.float64, copy=False)
    if sp.issparse(X):
        size = sum((float(np.vdot(x, x)) for x, _ in _stored_blocks(X)), 0.0)
        # By blocks, since SciPy widens a matrix in float32 for the product.
        step = max(1, X.shape[0] * _BLOCK // max(X.nnz, 1))
        parts = (slice(first, first + step) for first in range(0, X.shape[0], step))
        cross = sum((float(np.vdot(X[rows] @ H.T, W[rows])) for rows in parts), 0.0)
        squared = size + np.vdot(W.T @ W, H @ H.T) - 2 * cross
        if squared > _CANCELLED * size:
            return float(np.sqrt(squared))
    dense = lambda rows: X[rows].toarray() if sp.issparse(X) else X[rows]  # noqa: E731
    squared = sum((float(np.linalg.norm(dense(rows) - W[rows] @ H)) ** 2 for rows in _row_blocks(X, len(H))), 0.0)
    return float(np.sqrt(squared))


def divergence(X: Any, W: np.ndarray, H: np.ndarray, beta: float) -> float:
    """The beta-divergence of W H from X."""
    if beta == 1:
        return kullback_leibler(X, W, H)
    unit = _unit(X)
    W, H = W.astype(np.float64, copy=False) / unit, H.astype(np.float64, copy=False)
    total = 0.0
    for rows in _row_blocks(X, len(H)):
        given = (X[rows].toarray() if sp.issparse(X) else X[rows]).astype(np.float64)
        x, found = given / unit, W[rows] @ H
        if beta == 0:
            found = np.maximum(found, _FLOOR)
            ratio = x / found
            # Where it underflows, its logarithm does not.
            tiny = ratio < np.finfo(float).tiny
            logarithm = np.log(np.where(tiny, 1, ratio))
            logarithm[tiny] = np.log(given[tiny]) - np.log(unit) - np.log(found[tiny])
            total += float((ratio - logarithm - 1).sum())
        else:
            terms = x**beta + (beta - 1) * _power(found, beta) - beta * x * _power(found, beta - 1)
            total += float(terms.sum()) / (beta * (beta - 1))
    return max(total, 0.0) * unit**beta


def _power(found: np.ndarray, by: float) -> np.ndarray:
    return (np.maximum(found, _FLOOR) if by < 0 else found) ** by


def _unit(X: Any) -> float:
    """The power of two nearest to the root mean square of X, in which powers of its entries stay in the range of numbers."""
    if sp.issparse(X):
        squares = sum(float(np.vdot(x, x)) for x, _ in _stored_blocks(X))
    else:
        squares = sum(float(np.linalg.norm(X[rows].astype(np.float64))) ** 2 for rows in _row_blocks(X, 1))
    return float(2.0 ** np.round(0.5 * np.log2(squares / (X.shape[0] * X.shape[1])))) if squares > 0 else 1.0


def kullback_leibler(X: Any, W: np.ndarray, H: np.ndarray) -> float:
    """The generalised Kullback-Leibler divergence of W H from X."""
    W, H = W.astype(np.float64, copy=False), H.astype(np.float64, copy=False)
    total = float(W.sum(axis=0) @ H.sum(axis=1))
    if sp.issparse(X):
        at_nonzeros = _at_nonzeros(X, W, H)
        for x, some in _stored_blocks(X):
            x, found = x[x > 0], at_nonzeros[some][x > 0]
            # Infinite where W H is 0.
            with np.errstate(divide="ignore"):
                total += float((x * (np.log(x) - np.log(found)) - x).sum())
        return max(total, 0.0)
    for rows in _row_blocks(X, len(H)):
        block = X[rows].astype(np.float64)
        positive = block > 0
        x = block[positive]
        with np.errstate(divide="ignore"):
            total += float((x * (np.log(x) - np.log((W[rows] @ H)[positive])) - x).sum())
    return max(total, 0.0)
