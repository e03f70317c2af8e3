"""The matrix of an AnnData: cells x the genes to use."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np


def is_annotated(data: Any) -> bool:
    """Whether `data` is an AnnData."""
    return hasattr(data, "obsm") and hasattr(data, "var_names")


def chosen(adata: Any, layer: Optional[str], use_highly_variable: Optional[bool]) -> tuple[Any, np.ndarray, bool]:
    """The matrix of the genes to use, which these are, and whether they are the highly variable ones."""
    if use_highly_variable is None:
        use_highly_variable = "highly_variable" in adata.var
    if use_highly_variable and "highly_variable" not in adata.var:
        raise ValueError("use_highly_variable=True, but adata.var has no 'highly_variable': find them first")
    used = np.asarray(adata.var["highly_variable"], dtype=bool) if use_highly_variable else np.ones(adata.n_vars, bool)
    if not used.any():
        raise ValueError("no gene is marked in adata.var['highly_variable']")
    X = matrix(adata, layer)
    return X if used.all() else X[:, used], used, bool(use_highly_variable)


def matrix(adata: Any, layer: Optional[str]) -> Any:
    """`adata.X`, or a layer."""
    if layer is None:
        if adata.isbacked:
            raise ValueError(
                f"adata is backed by {adata.filename}, and the matrix must be in memory: call adata.to_memory() first; for a matrix "
                "that does not fit, `fednmf --input` reads the file a part at a time"
            )
        return adata.X
    if layer not in adata.layers:
        names = ", ".join(adata.layers) or "none"
        raise ValueError(f"layer={layer!r}: adata has no such layer; it has {names}")
    return adata.layers[layer]
