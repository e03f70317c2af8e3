"""Plots with matplotlib: they return the Axes, and show nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from ._choose_k import Consensus, KChoice

__all__ = ["choose_k", "consensus", "top_features"]

_LARGEST = 12


def choose_k(result: Any, axes: Optional[Sequence[Any]] = None) -> np.ndarray:
    """Error and stability over the number of components: the curves of the page of ``fednmf sweep``.

    Parameters
    ----------
    result : KChoice or AnnData
        Of `fednmf.tl.choose_k`; of AnnData ``uns["nmf_choose_k"]``.
    axes : two matplotlib Axes or None
        For error and stability; None: new ones, side by side.

    Returns
    -------
    array of two Axes
    """
    plt = _pyplot()
    if hasattr(result, "uns"):
        if "nmf_choose_k" not in result.uns:
            raise ValueError("adata has no uns['nmf_choose_k']: run fednmf.tl.choose_k first")
        stored = result.uns["nmf_choose_k"]
        result = KChoice(stored["table"], stored.get("recommended"), [], [], None, {})
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    error, stability = axes
    ks = result.column("k")
    by_divergence = not np.isnan(result.column("divergence")).all()
    heldout = result.column("heldout")
    is_held_out = not np.isnan(heldout).all()
    # The divergence is a sum over the seen entries, and that of held-out ones a mean: they do not go on one axis.
    if not by_divergence:
        error.plot(ks, result.column("rmse"), "o-", label="seen entries")
    elif not is_held_out:
        error.plot(ks, result.column("divergence"), "o-", label="Kullback-Leibler divergence")
    if is_held_out:
        error.errorbar(ks, heldout, yerr=result.column("heldout_se"), fmt="s-", capsize=3, label="held-out entries")
    per_entry = " per entry" if is_held_out else ""
    error.set_ylabel(f"divergence{per_entry}" if by_divergence else "root mean squared error")
    for name, label in [
        ("silhouette", "mean silhouette"),
        ("least_silhouette", "least stable component"),
        ("cosine", "mean cosine"),
    ]:
        stability.plot(ks, result.column(name), "o-", label=label)
    stability.set_ylabel("stability over the runs")
    for ax in (error, stability):
        ax.set_xlabel("components")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if result.recommended is not None:
            ax.axvline(result.recommended, color="0.6", linestyle="--", label=f"recommended: {result.recommended}")
        ax.legend()
    return np.array([error, stability])


def top_features(
    components: Any, n_features: int = 8, names: Optional[Sequence[str]] = None, axes: Optional[Sequence[Any]] = None
) -> np.ndarray:
    """The features with the largest entries in each component, as horizontal bars.

    Parameters
    ----------
    components : array (components x features), fitted NMF or BooleanMF, Consensus, KChoice or AnnData
        Of AnnData ``varm["NMF"]``.
    n_features : int
        Features of each component.
    names : sequence of str or None
        Names of the features; None: those of the data, or their numbers.
    axes : sequence of matplotlib Axes or None
        One for each component; None: new ones, in a grid.

    Returns
    -------
    array of Axes
    """
    plt = _pyplot()
    H, own_names = _components(components)
    names = own_names if names is None else names
    if names is None:
        names = [str(i) for i in range(H.shape[1])]
    if len(names) != H.shape[1]:
        raise ValueError(f"there are {len(names)} names, but {H.shape[1]} features")
    if axes is None:
        columns = min(len(H), 4)
        rows = -(-len(H) // columns)
        size = (3 * columns, (0.9 + 0.2 * n_features) * rows)
        _, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        axes = grid.ravel()[: len(H)]
        for ax in grid.ravel()[len(H) :]:
            ax.set_axis_off()
    if len(axes) < len(H):
        raise ValueError(f"there are {len(axes)} axes, but {len(H)} components")
    for component, (ax, h) in enumerate(zip(axes, H)):
        top = np.argsort(-h, kind="stable")[:n_features]
        ax.barh(np.arange(len(top)), h[top])
        ax.set_yticks(np.arange(len(top)), [names[i] for i in top])
        ax.invert_yaxis()
        ax.set_title(f"component {component}")
    return np.array(axes[: len(H)], dtype=object)


def consensus(result: KChoice, k: Optional[int] = None, ax: Any = None) -> Any:
    """How similar the components of all runs with `k` components are: a heat map of their cosines, cluster by cluster.

    Parameters
    ----------
    result : KChoice
        Of `fednmf.tl.choose_k`.
    k : int or None
        None: the recommended number, or without one the most stable.
    ax : matplotlib Axes or None
        None: a new one.

    Returns
    -------
    Axes
    """
    plt = _pyplot()
    if k is None:
        stability = np.nan_to_num(result.column("silhouette"), nan=-1)
        k = result.recommended or int(result.column("k")[np.argmax(stability)])
    if k not in result.similarities:
        raise ValueError(f"k={k!r}: was not tried; tried were {', '.join(map(str, result.similarities))}")
    cosines, clusters = result.similarities[k]
    if ax is None:
        _, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
    image = ax.imshow(cosines, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="cosine")
    borders = np.flatnonzero(np.diff(clusters)) + 0.5
    for border in borders if len(borders) < _LARGEST else []:
        ax.axhline(border, color="white", linewidth=0.8)
        ax.axvline(border, color="white", linewidth=0.8)
    starts = np.r_[-0.5, borders, len(clusters) - 0.5]
    middle = (starts[:-1] + starts[1:]) / 2
    numbers = [str(cluster) for cluster in dict.fromkeys(clusters.tolist())]
    ax.set_xticks(middle, numbers)
    ax.set_yticks(middle, numbers)
    ax.set_title(f"components of {len(clusters) // k} runs with k = {k}, by cluster")
    return ax


def _components(given: Any) -> tuple[np.ndarray, Optional[Sequence[str]]]:
    """Components x features, and the names of the features if they are known."""
    if isinstance(given, KChoice):
        if given.consensus is None:
            raise ValueError("the result has no consensus, since no number of components is recommended")
        return given.consensus.H, given.feature_names
    if isinstance(given, Consensus):
        return given.H, None
    if hasattr(given, "components_"):
        return np.asarray(given.components_, dtype=float), getattr(given, "feature_names_in_", None)
    if hasattr(given, "varm"):
        if "NMF" not in given.varm:
            raise ValueError("adata has no components in varm['NMF']: run fednmf.tl.nmf first")
        return np.asarray(given.varm["NMF"]).T, list(given.var_names)
    H = np.asarray(given, dtype=float)
    if H.ndim != 2:
        raise ValueError(f"components must be a matrix, components x features, not of {H.ndim} dimensions")
    return H, None


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise ImportError("fednmf.pl needs matplotlib: pip install matplotlib") from e
    return plt
