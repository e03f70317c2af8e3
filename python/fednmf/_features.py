"""The features of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Optional

import numpy as np

from . import _run, _spectra
from ._choose_k import Consensus, KChoice


def top_features(
    components: Any,
    n_features: int = 8,
    names: Optional[Sequence[str]] = None,
    by: Literal["weight", "specific"] = "weight",
) -> Any:
    """The top features of each component, as a table.

    Parameters
    ----------
    components : array or DataFrame (components x features), fitted NMF or BooleanMF, Consensus, KChoice, Programs, MetaPrograms or AnnData
        Of AnnData ``varm["NMF"]``, of Programs ``gene_spectra_tpm``. Components have the labels of a table, as those of cNMF from 1,
        and otherwise count from 0.
    n_features : int
        Features of each component, at most; none of weight 0.
    names : sequence of str or None
        Names of the features; None: those of the data, or their numbers.
    by : "weight" or "specific"
        "weight": the largest entries. "specific": those that are large and hardly in other components, by the entry times the
        component's share of the feature, both of components with sum 1.

    Returns
    -------
    DataFrame
        Columns ``component``, ``rank`` (from 1), ``feature``, ``weight`` (the entry of H) and ``share`` (of the component in the
        feature, both of components with sum 1).

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> model = fednmf.NMF(3, random_state=0).fit(np.random.default_rng(0).random((40, 12)))
    >>> fednmf.tl.top_features(model, 2).shape
    (6, 5)
    """
    H, names, order = ranked(components, n_features, names, by)
    share = _spectra.shares(_spectra.shares(H).T).T
    rows = [
        (label, rank, names[feature], H[component, feature], share[component, feature])
        for component, (label, top) in enumerate(zip(labels(components, len(H)), order))
        for rank, feature in enumerate(top, 1)
        if H[component, feature] > 0
    ]
    return _spectra.pandas().DataFrame(rows, columns=["component", "rank", "feature", "weight", "share"])


def ranked(
    given: Any, n_features: int, names: Optional[Sequence[str]], by: str
) -> tuple[np.ndarray, Sequence[str], np.ndarray]:
    """Components x features, the names of the features, and for each component the numbers of its top features."""
    H, own_names = components(given)
    if not (np.isfinite(H).all() and (H >= 0).all()):
        raise ValueError(
            "weights must be finite numbers of at least 0, which scores are not: take components, or gene_spectra_tpm of cNMF's results"
        )
    if by not in ("weight", "specific"):
        raise ValueError(f"by={by!r}: must be 'weight' or 'specific'")
    # By position, also those of a pandas Series.
    names = own_names if names is None else list(names)
    if names is None:
        names = [str(i) for i in range(H.shape[1])]
    if len(names) != H.shape[1]:
        raise ValueError(f"there are {len(names)} names, but {H.shape[1]} features")
    parts = _spectra.shares(H)
    keys = parts * _spectra.shares(parts.T).T if by == "specific" else H
    return H, names, np.argsort(-keys, axis=1, kind="stable")[:, : _run.count("n_features", n_features)]


def labels(given: Any, k: int) -> list[Any]:
    """How the k components are called: by the index of a table, or numbers from 0."""
    table = _table(given)
    return list(table.index) if hasattr(table, "iloc") else list(range(k))


def _table(given: Any) -> Any:
    """The components of cNMF's results and of meta-programmes, or what is given."""
    return getattr(given, "gene_spectra_tpm", getattr(given, "weights", given))


def components(given: Any) -> tuple[np.ndarray, Optional[Sequence[str]]]:
    """Components x features, and the names of the features if they are known."""
    if isinstance(given, KChoice):
        if given.consensus is None:
            raise ValueError("the result has no consensus, since no number of components is recommended")
        return given.consensus.H, given.feature_names
    if isinstance(given, Consensus):
        return given.H, None
    given = _table(given)
    if hasattr(given, "components_"):
        return np.asarray(given.components_, dtype=float), getattr(given, "feature_names_in_", None)
    if hasattr(given, "varm"):
        if "NMF" not in given.varm:
            raise ValueError("adata has no components in varm['NMF']: run fednmf.tl.nmf first")
        return np.asarray(given.varm["NMF"]).T, list(given.var_names)
    names = [str(name) for name in given.columns] if hasattr(given, "iloc") else None
    H = np.asarray(given, dtype=float)
    if H.ndim != 2:
        raise ValueError(f"components must be a matrix, components x features, not of {H.ndim} dimensions")
    return H, names
