"""The cells of cNMF: their counts and transcripts per million, in memory or read by rows in each pass, and their variable genes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import scipy.sparse as sp

from . import _annotated, _rows, _run
from ._parts import Parts

#: The means over genes whose coefficient of variation is the constant part of the expected one.
_MOST_EXPRESSED = 20
#: A standard deviation below this share of the mean is a rounding error.
_ROUNDING = 1e-12
#: Entries of a matrix in memory that are worked on at a time.
_BLOCK = 1 << 22


class Matrix:
    """Cells x genes without negative entries, in memory or where they are; with `total` each row is scaled to this sum."""

    def __init__(self, X: Any, what: str, total: Optional[float] = None) -> None:
        self.in_memory = not _rows.is_in_parts(X)
        self._X = _checked(what, X) if self.in_memory else Parts(X, what)
        self._total = total
        #: Entries that are stored, as `mean_and_std` counts them.
        self.stored = 0
        self.shape, self.dtype = self._X.shape, self._X.dtype
        if 0 in self.shape:
            raise ValueError(f"{what} is empty: {self.shape[0]} cells x {self.shape[1]} genes")

    def parts(self, columns: Optional[np.ndarray] = None) -> Iterator[tuple[slice, Any]]:
        """The rows in parts, or some of their columns, with their places."""
        for rows in self._slices():
            part = self._X[rows]
            part = part if self._total is None else scaled_rows(part, self._total)
            yield rows, part if columns is None else part[:, columns]

    def _slices(self) -> Iterator[slice]:
        if not self.in_memory:
            return self._X.slices()
        m = self.shape[0]
        stored = self._X.nnz if sp.issparse(self._X) else m * self.shape[1]
        step = max(1, m * _BLOCK // max(stored, 1))
        return (slice(first, min(first + step, m)) for first in range(0, m, step))

    def columns(self, places: np.ndarray) -> Any:
        """Some columns of all rows, in memory."""
        found = [part for _, part in self.parts(places)]
        return sp.vstack(found, format="csr") if sp.issparse(found[0]) else np.concatenate(found)

    def is_whole(self) -> bool:
        """Whether all entries are whole numbers."""
        return all((values == np.floor(values)).all() for _, part in self.parts() for values in [_stored(part)])

    def products(self, *factors: np.ndarray) -> list[np.ndarray]:
        """The transposed factors (cells x k) times the matrix: k x genes each."""
        sums = [np.zeros((factor.shape[1], self.shape[1])) for factor in factors]
        for rows, part in self.parts():
            wide = part.astype(np.float64)
            for total, factor in zip(sums, factors):
                total += np.asarray(wide.T @ factor[rows].astype(np.float64)).T
        return sums

    def mean_and_std(self, ddof: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Of each column."""
        m, n = self.shape
        mean = np.zeros(n)
        for _, part in self.parts():
            mean += np.asarray(part.sum(axis=0, dtype=np.float64)).ravel()
        mean /= max(m, 1)
        squares, stored = np.zeros(n), np.zeros(n)
        for _, part in self.parts():
            if sp.issparse(part):
                off = (part.data - mean[part.indices]) ** 2
                squares += np.bincount(part.indices, weights=off, minlength=n)
                stored += np.bincount(part.indices, minlength=n)
            else:
                squares += ((part - mean) ** 2).sum(axis=0)
                stored += part.shape[0]
        self.stored = int(stored.sum())
        std = np.sqrt((squares + (m - stored) * mean**2) / max(m - ddof, 1))
        # Of a constant column, only the rounding error of the mean is left.
        return mean, np.where(std > _ROUNDING * np.abs(mean), std, 0)


class Cells:
    """The cells as they are factorised and as they are scored."""

    def __init__(
        self, adata: Any, layer: Optional[str], tpm: Any, num_highvar_genes: int, genes: Optional[list[str]]
    ) -> None:
        if not adata.var_names.is_unique:
            raise ValueError("names of genes are not unique: call adata.var_names_make_unique() first")
        given, what = _annotated.stored(adata, layer), _annotated.name(layer)
        counts = Matrix(given, what)
        if tpm is None and not counts.is_whole():
            warnings.warn(
                f"{what} has entries that are not whole numbers; cNMF takes counts, and finds the variable genes by their rule",
                UserWarning,
                stacklevel=3,
            )
        self.adata = adata
        if tpm is not None:
            names = [(list(a.obs_names), list(a.var_names)) for a in (adata, tpm)]
            if names[0] != names[1]:
                raise ValueError("tpm has other cells or genes than adata, or in another order")
        self.tpm = Matrix(given, what, 1e6) if tpm is None else Matrix(_rows.matrix_of(tpm), "tpm")
        self.tpm_mean, self.tpm_std = self.tpm.mean_and_std()
        if genes is None:
            used = overdispersed(self.tpm_mean, self.tpm_std**2, _run.count("num_highvar_genes", num_highvar_genes))
            self.places = np.flatnonzero(used)
        else:
            self.places = adata.var_names.get_indexer(genes)
            if (self.places < 0).any():
                raise ValueError(f"genes: adata has no {genes[int(np.argmin(self.places))]!r}")
        self.genes = adata.var_names[self.places]
        self.normalized = unit_variance(counts.columns(self.places))
        empty = np.flatnonzero(np.asarray(self.normalized.sum(axis=1)).ravel() == 0)
        if empty.size:
            raise ValueError(
                f"{empty.size} cell{'s have' if empty.size > 1 else ' has'} no count in the genes that are factorised, "
                f"such as {adata.obs_names[empty[0]]!r}: remove them, or take more genes"
            )

    def write_tpm(self, path: Path) -> None:
        """Writes the transcripts per million as AnnData, a part at a time."""
        import anndata
        import h5py

        anndata.AnnData(obs=self.adata.obs[[]], var=self.adata.var[[]]).write_h5ad(path)
        with h5py.File(path, "r+") as file:
            if "X" in file:
                del file["X"]
            parts = self.tpm.parts()
            first = next(parts)
            write = _write_sparse if sp.issparse(first[1]) else _write_dense
            write(file, self.tpm, itertools.chain([first], parts))


def _write_sparse(file: Any, tpm: Matrix, parts: Iterator[tuple[slice, Any]]) -> None:
    group = file.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": tpm.shape})
    kinds = {"data": tpm.dtype, "indices": np.int32}
    for name, kind in kinds.items():
        group.create_dataset(name, (tpm.stored,), kind)
    starts = [np.zeros(1, dtype=np.int64)]
    for _, part in parts:
        first = int(starts[-1][-1])
        starts.append(first + part.indptr[1:].astype(np.int64))
        for name in kinds:
            group[name][first : first + part.nnz] = getattr(part, name)
    group["indptr"] = np.concatenate(starts)


def _write_dense(file: Any, tpm: Matrix, parts: Iterator[tuple[slice, Any]]) -> None:
    data = file.create_dataset("X", tpm.shape, tpm.dtype)
    data.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for rows, part in parts:
        data[rows] = part


def scaled_rows(X: Any, total: float) -> Any:
    """X with rows of this sum, or of zeros, in its own type."""
    sums = np.asarray(X.sum(axis=1), dtype=np.float64).ravel()
    scale = total / np.where(sums > 0, sums, total)
    return sp.csr_matrix(sp.diags(scale) @ X, dtype=X.dtype) if sp.issparse(X) else (X * scale[:, None]).astype(X.dtype)


def _stored(X: Any) -> np.ndarray:
    return X.data if sp.issparse(X) else X


def _checked(what: str, X: Any) -> Any:
    X = _run.canonical(_run.checked(X, what, ensure_all_finite=False))
    values = _stored(X)
    if values.size and not (np.isfinite(values).all() and values.min() >= 0):
        raise ValueError(f"{what} has entries that are negative or not finite; cNMF takes raw counts")
    return X


def divisor(x: Any) -> Any:
    """x with ones in place of zeros, to divide by."""
    return np.where(x > 0, x, 1)


def unit_variance(X: Any) -> Any:
    """Each column divided by its standard deviation, in float64; columns without any stay."""
    X = X.astype(np.float64)
    scale = 1 / divisor(Matrix(X, "X").mean_and_std(ddof=1)[1])
    return sp.csr_matrix(X @ sp.diags(scale)) if sp.issparse(X) else X * scale


def overdispersed(mean: np.ndarray, variance: np.ndarray, count: int) -> np.ndarray:
    """The `count` genes whose variance is most above what their mean lets expect: Fano = A^2 mean + B^2."""
    with np.errstate(invalid="ignore", divide="ignore"):
        fano = variance / mean
        top = np.argsort(-mean, kind="stable")[:_MOST_EXPRESSED]
        A = np.nanmin(np.sqrt(variance[top]) / mean[top])
    inside = np.ones(len(mean), dtype=bool)
    for values in (fano, mean):
        low, high = np.nanquantile(values, [0.10, 0.90])
        inside &= (values > low) & (values < high)
    # Few genes may all be at the edges.
    typical = np.median(fano[inside]) if inside.any() else np.nanmedian(fano)
    ratio = fano / (A**2 * mean + typical)
    used = np.zeros(len(mean), dtype=bool)
    used[np.argsort(-np.nan_to_num(ratio, nan=-np.inf), kind="stable")[:count]] = True
    return used & (mean > 0)
