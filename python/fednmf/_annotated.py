"""The matrix of an AnnData: cells x the genes to use."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, Optional

import numpy as np
import scipy.sparse as sp

from . import _fednmf, _rows, _run
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
            "give use_highly_variable=False for all genes, or True for these without this warning",
            UserWarning,
            stacklevel=3,
        )
    use_highly_variable = marked if use_highly_variable is None else use_highly_variable
    X = of_genes(adata, layer, None if used.all() else np.flatnonzero(used))
    if not isinstance(X, Parts):
        values = X.data if sp.issparse(X) else np.asarray(X)
        least = values.min() if values.size else 0
        if np.isnan(least):
            raise ValueError(f"{name(layer)} has NaN, and every entry must be a number; the program leaves such entries out (--missing nan)")
        if least < 0:
            raise ValueError(f"{name(layer)} has negative entries{NEGATIVE}")
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
    """Whether X, if it is in memory, looks like logarithms of counts, as the program warns of them."""
    if not sp.issparse(X) and not isinstance(X, np.ndarray) or not X.shape[0]:
        return False
    # The rule looks at as many rows.
    some = X[np.unique(np.linspace(0, X.shape[0] - 1, 64).astype(int))]
    return _fednmf.has_logarithms(_run.native(_run.canonical(_run.checked(some, dtype=np.float64))))


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
    X = stored(adata, layer)
    if layer is None and _rows.is_in_parts(X):
        _rows.check_in_memory(adata)
    return _rows.computed(X)


def of_genes(adata: Any, layer: Optional[str], genes: Optional[np.ndarray]) -> Any:
    """`adata.X`, or a layer, or some of its columns: what is in memory, or else its parts."""
    X = stored(adata, layer, genes)
    if _rows.is_in_parts(X):
        return Parts(X, name(layer), genes)
    _rows.check_unmasked(X, name(layer))
    return X if genes is None else X[:, genes]


def stored(adata: Any, layer: Optional[str], genes: Optional[np.ndarray] = None) -> Any:
    """`adata.X`, or a layer, as it is, of genes that can be factorised together."""
    _rows.check_features(adata, slice(None) if genes is None else genes)
    if layer is None:
        return _rows.matrix_of(adata)
    if layer not in adata.layers:
        names = ", ".join(adata.layers) or "none"
        raise ValueError(f"layer={layer!r}: adata has no such layer; it has {names}")
    return adata.layers[layer]


def name(layer: Optional[str]) -> str:
    """The matrix in the words of messages."""
    return "adata.X" if layer is None else f"layer {layer!r}"
