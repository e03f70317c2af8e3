"""Tools for AnnData, with the names of scanpy's."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ._nmf import NMF


def nmf(
    adata: Any,
    n_components: int,
    layer: Optional[str] = None,
    use_highly_variable: Optional[bool] = None,
    *,
    random_state: Any = 0,
    copy: bool = False,
    **params: Any,
) -> Any:
    """Factorises cells x genes and stores the factors in `adata`.

    Parameters
    ----------
    adata : AnnData
        Counts, or log counts; scaled data has negative entries and is refused.
    n_components : int
    layer : str or None
        The layer to factorise; None: `adata.X`.
    use_highly_variable : bool or None
        Use the genes of `adata.var["highly_variable"]` alone; None: if there is such a column.
    copy : bool
        Return a copy with the factors instead.
    **params
        Of `fednmf.NMF`: beta_loss, max_iter, n_jobs, ...

    Returns
    -------
    None, or the copy. Sets ``obsm["X_nmf"]`` (cells x components), ``varm["NMF"]`` (genes x components; zeros for genes that were
    not used) and ``uns["nmf"]`` (parameters, reconstruction error, number of iterations).

    Raises
    ------
    ValueError
        If the layer or the column does not exist, or NMF refuses the matrix or a parameter.
    """
    adata = adata.copy() if copy else adata
    if use_highly_variable is None:
        use_highly_variable = "highly_variable" in adata.var
    if use_highly_variable and "highly_variable" not in adata.var:
        raise ValueError("use_highly_variable=True, but adata.var has no 'highly_variable': find them first")
    used = np.asarray(adata.var["highly_variable"], dtype=bool) if use_highly_variable else np.ones(adata.n_vars, bool)
    if not used.any():
        raise ValueError("no gene is marked in adata.var['highly_variable']")
    X = _matrix(adata, layer)
    model = NMF(n_components, random_state=random_state, **params)
    cells = model.fit_transform(X if used.all() else X[:, used])
    genes = np.zeros((adata.n_vars, model.n_components_), dtype=model.components_.dtype)
    genes[used] = model.components_.T
    adata.obsm["X_nmf"] = cells
    adata.varm["NMF"] = genes
    adata.uns["nmf"] = {
        "params": {
            "n_components": model.n_components_,
            "layer": "X" if layer is None else layer,
            "use_highly_variable": bool(use_highly_variable),
            "solver": model.solver,
            "beta_loss": model._checked_loss(),
        },
        "reconstruction_err": model.reconstruction_err_,
        "n_iter": model.n_iter_,
    }
    return adata if copy else None


def project(adata: Any, reference: Any, layer: Optional[str] = None, *, n_jobs: Optional[int] = None) -> None:
    """Weights of new cells for the components of `reference`, which `nmf` has factorised: ``adata.obsm["X_nmf"]``.

    Genes are matched by name. The weights are the exact nonnegative least squares solution, or the minimiser of the
    divergence if that was the loss.

    Raises
    ------
    ValueError
        If `reference` has no components, or `adata` lacks a gene that they use.
    """
    if "NMF" not in reference.varm or "nmf" not in reference.uns:
        raise ValueError("the reference has no components in varm['NMF']: run fednmf.tl.nmf on it first")
    components = np.asarray(reference.varm["NMF"])
    used = components.any(axis=1)
    names = reference.var_names[used]
    for what, index in (("adata", adata.var_names), ("the reference", reference.var_names)):
        if not index.is_unique:
            raise ValueError(f"names of genes in {what} are not unique: call var_names_make_unique() first")
    where = adata.var_names.get_indexer(names)
    if (where < 0).any():
        lacking = names[where < 0]
        raise ValueError(f"adata lacks {len(lacking)} of the {len(names)} genes of the components: {lacking[0]}, ...")
    model = NMF(beta_loss=reference.uns["nmf"]["params"]["beta_loss"], n_jobs=n_jobs)
    model.components_ = np.ascontiguousarray(components[used].T)
    model.n_components_, model.n_features_in_ = components.shape[1], int(used.sum())
    adata.obsm["X_nmf"] = model.transform(_matrix(adata, layer)[:, where])


def _matrix(adata: Any, layer: Optional[str]) -> Any:
    if layer is None:
        return adata.X
    if layer not in adata.layers:
        names = ", ".join(adata.layers) or "none"
        raise ValueError(f"layer={layer!r}: adata has no such layer; it has {names}")
    return adata.layers[layer]
