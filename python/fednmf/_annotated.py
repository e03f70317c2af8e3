"""The matrix of an AnnData: cells x the genes to use."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, Optional

import numpy as np
import scipy.sparse as sp

from . import _rows, _run
from ._parts import NEGATIVE, Parts


def is_annotated(data: Any) -> bool:
    """Whether `data` is an AnnData."""
    return hasattr(data, "obsm") and hasattr(data, "var_names")


def chosen(adata: Any, layer: Optional[str], use_highly_variable: Optional[bool]) -> tuple[Any, np.ndarray, bool]:
    """The matrix of the genes to use, which these are, and whether they are the highly variable ones."""
    marked = "highly_variable" in adata.var
    if use_highly_variable and not marked:
        raise ValueError("use_highly_variable=True, but adata.var has no 'highly_variable': find them first")
    used = np.ones(adata.n_vars, bool)
    if marked and use_highly_variable is not False:
        used = truth(adata.var["highly_variable"])
        if not used.any():
            raise ValueError("no gene is marked in adata.var['highly_variable']")
    if use_highly_variable is None and not used.all():
        # The program uses all genes unless told otherwise.
        warnings.warn(
            f"{used.sum()} of {used.size} genes are marked as highly variable, and these alone are used; "
            "use_highly_variable=True or False says which",
            UserWarning,
            stacklevel=3,
        )
    use_highly_variable = marked if use_highly_variable is None else use_highly_variable
    X = of_genes(adata, layer, None if used.all() else np.flatnonzero(used))
    if not isinstance(X, Parts):
        values = X.data if sp.issparse(X) else np.asarray(X)
        if values.size and values.min() < 0:
            raise ValueError(f"{_name(layer)} has negative entries{NEGATIVE}")
    return X, used, bool(use_highly_variable)


def truth(column: Any) -> np.ndarray:
    """The marks of a column; other text and missing values are refused, which NumPy takes for true."""
    words = {"true": True, "false": False}
    values = np.array([words.get(x.lower(), x) if isinstance(x, str) else x for x in np.asarray(column, dtype=object)], object)
    wrong = [value for value in values if not isinstance(value, (bool, np.bool_, numbers.Number)) or value not in (0, 1)]
    if wrong:
        raise ValueError(f"adata.var['highly_variable'] has {wrong[0]!r}, which is neither True nor False")
    return values.astype(bool)


def has_logarithms(X: Any) -> bool:
    """Whether most of 64 rows have entries ln(1 + c n) with whole numbers n, by the rule of the program (logarithms.rs)."""
    if not sp.issparse(X) and not isinstance(X, np.ndarray):
        return False
    some = X[np.unique(np.linspace(0, X.shape[0] - 1, 64).astype(int))]
    rows = [_logarithms(row.data if sp.issparse(row) else row) for row in (some.tocsr() if sp.issparse(some) else some)]
    return rows.count(True) >= 3 and rows.count(True) > rows.count(False)


def _logarithms(row: np.ndarray) -> Optional[bool]:
    """Of one row; None: its entries may be scaled counts, or are too few to decide."""
    entries = row[row > 0].astype(float)
    if entries.size and (entries % 1 == 0).all():
        return False

    def are_multiples(x: np.ndarray) -> Optional[bool]:
        x = x / x.min(initial=np.inf)
        x = x[(x >= 1.5) & (x < 10)]
        return bool((abs(x - x.round()) <= 0.01 * x).all()) if x.size >= 4 else None

    return None if are_multiples(entries) else are_multiples(np.expm1(entries))


def values(frame: Any, what: str) -> Any:
    """The numbers of a DataFrame, in float64 or float32, with NaN where they are missing."""
    return _run.checked(frame, what, ensure_all_finite="allow-nan")


def labels(column: Any, what: str) -> np.ndarray:
    """Labels as text, and None where one is missing, with a warning."""
    # None, NaN, NaT and pandas.NA.
    words = [None if not isinstance(x, str) and str(x) in ("None", "nan", "NaT", "<NA>") else str(x) for x in np.asarray(column, object)]
    missing = words.count(None)
    if missing == len(words):
        raise ValueError(f"{what} has no label that is not missing")
    if missing:
        warnings.warn(f"{what}: {missing} of {len(words)} have no label, and are left out", UserWarning, stacklevel=4)
    return np.array(words, dtype=object)


def matrix(adata: Any, layer: Optional[str]) -> Any:
    """`adata.X`, or a layer, in memory."""
    X = _stored(adata, layer)
    if layer is None and _rows.is_in_parts(X):
        _rows.check_in_memory(adata)
    return _rows.computed(X)


def of_genes(adata: Any, layer: Optional[str], genes: Optional[np.ndarray]) -> Any:
    """`adata.X`, or a layer, or some of its columns: what is in memory, or else its parts."""
    X = _stored(adata, layer)
    if _rows.is_in_parts(X):
        return Parts(X, _name(layer), genes)
    _rows.check_unmasked(X, _name(layer))
    return X if genes is None else X[:, genes]


def _stored(adata: Any, layer: Optional[str]) -> Any:
    if layer is None:
        return _rows.matrix_of(adata)
    if layer not in adata.layers:
        names = ", ".join(adata.layers) or "none"
        raise ValueError(f"layer={layer!r}: adata has no such layer; it has {names}")
    return adata.layers[layer]


def _name(layer: Optional[str]) -> str:
    return "adata.X" if layer is None else f"layer {layer!r}"
