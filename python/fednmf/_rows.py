"""Matrices whose rows are read a part at a time: arrays in files and of dask, AnnData that stays in its file."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp


def matrix_of(X: Any) -> Any:
    """X, or the matrix of an AnnData."""
    if not (hasattr(X, "obs_names") and hasattr(X, "var_names")):
        return X
    check_modality(X)
    if X.X is None:
        layers = ", ".join(X.layers) or "none"
        raise ValueError(f"adata.X is None, so there is nothing to factorise; its layers are {layers}")
    return X.X


def check_features(adata: Any, used: Any = slice(None)) -> None:
    """Refuses features of several types, such as genes and antibodies, among those that are used."""
    if "feature_types" not in adata.var:
        return
    types = adata.var["feature_types"].iloc[used].astype(str).value_counts()
    if len(types) > 1:
        listed = ", ".join(f"{name} ({count})" for name, count in types.items())
        raise ValueError(
            f"adata.var['feature_types'] has several types, which are measured on different scales: {listed}; choose one, such as "
            f"adata[:, adata.var['feature_types'] == {types.index[0]!r}].copy()"
        )


def check_modality(data: Any) -> None:
    """Refuses a MuData, which has a matrix for each modality."""
    if hasattr(data, "mod"):
        names = list(data.mod)
        raise ValueError(f"this is a MuData of {', '.join(names)}: give one of its modalities, such as mdata[{names[0]!r}]")


def check_writable(adata: Any) -> None:
    """Refuses what cannot hold results: an AnnData that is a part of one that stays in its file, and other objects."""
    if not hasattr(adata, "is_view"):
        raise TypeError(f"adata must be an AnnData, not {type(adata).__name__}; fednmf.NMF takes an array")
    check_modality(adata)
    if adata.is_view and adata.isbacked:
        raise ValueError(
            "adata is a part of an AnnData that stays in its file, and cannot hold results: call adata.to_memory() first, or fit "
            "fednmf.NMF to adata.X"
        )


def check_unmasked(X: Any, what: str = "X") -> None:
    """Refuses a masked array, whose mask a conversion would drop."""
    if np.ma.is_masked(X):
        raise ValueError(
            f"{what} has masked entries, which would be taken for data: fill them in, or for a method that has missing='nan' "
            "(as --missing of the program) with NaN"
        )


def is_in_parts(X: Any) -> bool:
    """Whether X is an array that is not in memory, such as a dataset of HDF5 or zarr, or an array of dask."""
    if isinstance(X, np.ndarray) or sp.issparse(X) or hasattr(X, "iloc"):
        return False
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "dtype") and hasattr(X, "__getitem__")


def check_in_memory(
    adata: Any, what: str = "adata", else_use: str = "for a matrix that does not fit, `fednmf --input` reads the file a part at a time"
) -> None:
    """Refuses an AnnData whose matrix stays in its file."""
    if adata.isbacked:
        raise ValueError(
            f"{what} is backed by {adata.filename}, and the matrix must be in memory: call {what}.to_memory() first; {else_use}"
        )


def is_batches(X: Any) -> bool:
    """Whether X yields one batch after the other."""
    return isinstance(X, Iterator)


def check(X: Any) -> None:
    """Refuses a matrix without entries, or whose rows are not together in the file, or not counted."""
    if not all(isinstance(length, numbers.Integral) for length in X.shape):
        raise ValueError("X has chunks of unknown size: call X.compute_chunk_sizes() first")
    if 0 in X.shape:
        raise ValueError(f"X is empty: {X.shape[0]} rows x {X.shape[1]} columns")
    if getattr(X, "format", None) == "csc":
        raise ValueError("X is stored by columns (CSC) in its file, and its rows cannot be read alone; write it as CSR")


def read(X: Any, parts: Sequence[tuple[int, int]]) -> Any:
    """The rows of some ranges (first, end) of X, in one array or CSR matrix."""
    if len(parts) == 1 and parts[0] == (0, X.shape[0]) and not is_in_parts(X):
        return X
    found = [_part(X[first:end]) for first, end in parts]
    if len(found) == 1:
        return found[0]
    return sp.vstack(found, format="csr") if any(map(sp.issparse, found)) else np.concatenate(found)


def computed(X: Any) -> Any:
    """X, or what an array of dask computes, whose mask the conversion to an array would drop."""
    return X.compute() if hasattr(X, "compute") else X


def _part(part: Any) -> Any:
    part = computed(part)
    check_unmasked(part)
    return part if sp.issparse(part) else np.asarray(part)
