"""Plots with matplotlib: they return the Axes, and show nothing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Optional

import numpy as np

from . import _annotated, _features
from ._choose_k import KChoice
from ._cnmf import Programs

__all__ = ["choose_k", "consensus", "embedding", "images", "top_features", "usage"]

_LARGEST = 12


def choose_k(result: Any, axes: Optional[Sequence[Any]] = None) -> np.ndarray:
    """Error and stability over the number of components: the curves of the page of ``fednmf sweep``.

    Parameters
    ----------
    result : KChoice, AnnData or dict of int to Programs
        What `fednmf.tl.choose_k` returned, or an AnnData that it has seen; or what `fednmf.tl.cnmf` returned, with its silhouette and
        prediction error.
    axes : two matplotlib Axes or None
        For error and stability; None: new ones, side by side.

    Returns
    -------
    array of two Axes

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> X = np.random.default_rng(0).random((40, 12))
    >>> found = fednmf.tl.choose_k(X, ks=[2, 3, 4], n_runs=3)
    >>> error, stability = fednmf.pl.choose_k(found)
    """
    plt = _pyplot()
    if hasattr(result, "uns"):
        if "nmf_choose_k" not in result.uns:
            raise ValueError("adata has no uns['nmf_choose_k']: run fednmf.tl.choose_k first")
        stored = result.uns["nmf_choose_k"]
        answers = [stored.get(name) for name in ("recommended", "for_prediction", "for_interpretation")]
        result = KChoice(stored["table"], *answers, [], [], None, {})
    of_cnmf = isinstance(result, dict) and bool(result) and all(isinstance(of, Programs) for of in result.values())
    if not of_cnmf and not isinstance(result, KChoice):
        raise TypeError(
            f"result is a {type(result).__name__}: give what fednmf.tl.choose_k or fednmf.tl.cnmf returned, or an AnnData that "
            "choose_k has seen"
        )
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    error, stability = axes
    if of_cnmf:
        ks = sorted(result)
        for ax, name in [(error, "prediction_error"), (stability, "silhouette")]:
            ax.plot(ks, [getattr(result[k], name) for k in ks], "o-")
            ax.set_ylabel(name.replace("_", " "))
            _components(ax)
        return np.array([error, stability])
    ks = result.column("k")
    by_divergence = not np.isnan(result.column("divergence")).all()
    heldout = result.column("heldout")
    is_held_out = not np.isnan(heldout).all()
    # The divergence is a sum over the seen entries, and that of held-out ones a mean: they do not go on one axis.
    if not by_divergence:
        error.plot(ks, result.column("rmse"), "o-", label="seen entries")
    elif not is_held_out:
        error.plot(ks, result.column("divergence"), "o-", label="divergence")
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
        _components(ax)
        if result.recommended is not None:
            ax.axvline(result.recommended, color="0.6", linestyle="--", label=f"recommended: {result.recommended}")
        if result.for_interpretation not in (None, result.recommended):
            ax.axvline(result.for_interpretation, color="0.6", linestyle=":", label=f"to interpret: {result.for_interpretation}")
        ax.legend(framealpha=0.5)
    return np.array([error, stability])


def _components(ax: Any) -> None:
    """The axis of the number of components."""
    ax.set_xlabel("components")
    ax.xaxis.get_major_locator().set_params(integer=True)


def top_features(
    components: Any,
    n_features: int = 8,
    names: Optional[Sequence[str]] = None,
    axes: Optional[Sequence[Any]] = None,
    by: Literal["weight", "specific"] = "weight",
) -> np.ndarray:
    """The top features of each component, as horizontal bars.

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
    by : "weight" or "specific"
        "weight": the largest entries. "specific": those that are large and hardly in other components, by the entry times the
        component's share of the feature, both of components with sum 1.

    Returns
    -------
    array of Axes

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> model = fednmf.NMF(3, random_state=0).fit(np.random.default_rng(0).random((40, 12)))
    >>> len(fednmf.pl.top_features(model, n_features=5))
    3
    """
    H, names, order = _features.ranked(components, n_features, names, by)
    axes = _grid(len(H), axes, 4, (3, 0.9 + 0.2 * n_features))
    labels = _features.labels(components, len(H))
    for component, (ax, h, top) in enumerate(zip(axes, H, order)):
        ax.barh(np.arange(len(top)), h[top], color=f"C{component % 10}")
        ax.set_yticks(np.arange(len(top)), [names[i] for i in top])
        ax.invert_yaxis()
        ax.set_title(f"component {labels[component]}")
    return np.array(axes[: len(H)], dtype=object)


def images(components: Any, shape: tuple[int, int], axes: Optional[Sequence[Any]] = None) -> np.ndarray:
    """Each component as an image, for data whose features are pixels.

    Parameters
    ----------
    components : array (components x features), fitted NMF or BooleanMF, Consensus, KChoice or AnnData
    shape : (int, int)
        Height and width of an image.
    axes : sequence of matplotlib Axes or None
        One for each component; None: new ones, in a grid.

    Returns
    -------
    array of Axes

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import fednmf
    >>> model = fednmf.NMF(6, random_state=0).fit(load_digits().data)
    >>> len(fednmf.pl.images(model, (8, 8)))
    6
    """
    H, _ = _features.components(components)
    if len(shape) != 2 or shape[0] * shape[1] != H.shape[1]:
        raise ValueError(f"shape={shape!r}: images of {H.shape[1]} pixels are needed, one for each feature")
    axes = _grid(len(H), axes, 8, (1.4, 1.6 * min(max(shape[0] / shape[1], 0.3), 3)))
    for component, (ax, h) in enumerate(zip(axes, H)):
        ax.imshow(h.reshape(shape), cmap="gray", vmin=0)
        ax.set_title(str(component))
        ax.set_axis_off()
    return np.array(axes[: len(H)], dtype=object)


def usage(data: Any, groups: Any, H: Any = None, ax: Any = None) -> Any:
    """How groups of samples use the components: a heat map of the mean shares.

    The share of a component in a sample is its part of the sum of the sample's row of W H.

    Parameters
    ----------
    data : AnnData, array (samples x components) or Programs of `fednmf.tl.cnmf`
        Of AnnData ``obsm["X_nmf"]`` and ``varm["NMF"]``; an array is W.
    groups : str or sequence
        A column of ``adata.obs``, or the group of each sample. Samples without one, or without any weight, are left out, with a
        warning. A Series is matched by the names of the samples, where these are known.
    H : array (components x features) or None
        For an array W; None: the components are used as if they had sum 1.
    ax : matplotlib Axes or None
        None: a new one.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import fednmf
    >>> digits = load_digits()
    >>> model = fednmf.NMF(6, random_state=0)
    >>> W = model.fit_transform(digits.data)
    >>> ax = fednmf.pl.usage(W, digits.target, H=model.components_)
    """
    shares = _shares(data, H)
    if isinstance(groups, str):
        if not hasattr(data, "obs") or groups not in data.obs:
            known = ", ".join(map(str, data.obs)) or "none" if hasattr(data, "obs") else "none, since data is an array"
            raise ValueError(f"groups={groups!r}: is no column of adata.obs; there are {known}")
        groups = data.obs[groups]
    groups = _matched(groups, data)
    given, groups = groups, _annotated.labels(groups, "groups")
    if len(groups) != len(shares):
        raise ValueError(f"groups has {len(groups)} entries, but there are {len(shares)} samples")
    names = _in_order(given, groups)
    empty = ~shares.any(axis=1)
    if empty.any():
        text = f"{empty.sum()} of {len(empty)} samples have no weight in any component, and are left out of the means"
        warnings.warn(text, UserWarning, stacklevel=2)
    # A group of such samples alone has only zeros.
    means = np.array([shares[groups == name].sum(axis=0) / max(1, ((groups == name) & ~empty).sum()) for name in names])
    if ax is None:
        _, ax = _pyplot().subplots(
            figsize=(2.5 + 0.45 * means.shape[1], 1.2 + 0.28 * len(names)), layout="constrained"
        )
    image = ax.imshow(means, vmin=0, cmap="viridis", aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="mean share")
    ax.set_xticks(np.arange(means.shape[1]), list(data.usages) if hasattr(data, "usages") else None)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_xlabel("component")
    return ax


def embedding(
    adata: Any, basis: str = "X_umap", names: Optional[Sequence[str]] = None, axes: Optional[Sequence[Any]] = None
) -> np.ndarray:
    """A map of the samples for each component, coloured by its share in them.

    Parameters
    ----------
    adata : AnnData
        With ``obsm["X_nmf"]`` and ``varm["NMF"]``, as `fednmf.tl.nmf` leaves them, and the map.
    basis : str
        The map in ``adata.obsm``: "X_umap" or "umap".
    names : sequence of str or None
        Titles of the components, after their numbers.
    axes : sequence of matplotlib Axes or None
        One for each component; None: new ones, in a grid.

    Returns
    -------
    array of Axes

    Examples
    --------
    >>> import anndata, numpy as np, fednmf
    >>> rng = np.random.default_rng(0)
    >>> adata = anndata.AnnData(rng.poisson(2, (60, 20)).astype("float32"))
    >>> adata.obsm["X_umap"] = rng.random((60, 2))
    >>> fednmf.tl.nmf(adata, n_components=3, max_iter=50)
    >>> len(fednmf.pl.embedding(adata))
    3
    """
    if not hasattr(adata, "obsm"):
        raise TypeError(
            f"embedding draws on a map of AnnData, and not a {type(adata).__name__}; for programmes of fednmf.tl.cnmf put the usages into "
            "adata.obs, a column each, and call scanpy.pl.umap(adata, color=...)"
        )
    # scanpy's names leave out X_.
    place = basis if basis in adata.obsm else f"X_{basis}"
    if place not in adata.obsm:
        raise ValueError(f"basis={basis!r}: is not in adata.obsm; there are {', '.join(adata.obsm) or 'none'}")
    shares, places = _shares(adata, None), np.asarray(adata.obsm[place])
    k = shares.shape[1]
    names = None if names is None else list(names)
    if names is not None and len(names) != k:
        raise ValueError(f"there are {len(names)} names, but {k} components")
    axes = _grid(k, axes, 4, (2.3, 2.3))
    for component, ax in enumerate(axes[:k]):
        # What uses the component most is drawn last.
        order = np.argsort(shares[:, component], kind="stable")
        colour = shares[order, component]
        points = ax.scatter(*places[order, :2].T, c=colour, s=min(4, 30000 / len(order)), vmin=0, vmax=1)
        ax.set_title(f"component {component}" if names is None else f"{component}: {names[component]}")
        ax.set_axis_off()
    axes[0].figure.colorbar(points, ax=list(axes[:k]), label="share", aspect=40, fraction=0.03)
    return np.array(axes[:k], dtype=object)


def consensus(result: KChoice, k: Optional[int] = None, ax: Any = None) -> Any:
    """How similar the components of all runs with `k` components are: a heat map of their cosines, cluster by cluster.

    Parameters
    ----------
    result : KChoice
        Of `fednmf.tl.choose_k`.
    k : int or None
        None: the number for interpretation, or without one the recommended, or without either the most stable.
    ax : matplotlib Axes or None
        None: a new one.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError
        If `result` is no KChoice.
    ValueError
        If `k` was not tried.

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> X = np.random.default_rng(0).random((40, 12))
    >>> ax = fednmf.pl.consensus(fednmf.tl.choose_k(X, ks=[2, 3], n_runs=3), k=2)
    """
    if not hasattr(result, "similarities"):
        raise TypeError(
            f"consensus draws a KChoice of fednmf.tl.choose_k, and not a {type(result).__name__}: programmes of fednmf.tl.cnmf have no "
            "cosines of the runs; fednmf.pl.choose_k draws their choice"
        )
    plt = _pyplot()
    if k is None:
        stability = np.nan_to_num(result.column("silhouette"), nan=-1)
        k = result.for_interpretation or result.recommended or int(result.column("k")[np.argmax(stability)])
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


def _in_order(groups: Any, labels: np.ndarray) -> list[str]:
    """The labels that occur, in the order of the categories, else of the numbers or texts that they are of."""
    # Of a Series, or of a Categorical itself.
    categories = getattr(getattr(groups, "cat", groups), "categories", None)
    values = np.asarray(groups if categories is None else categories, dtype=object)
    places = {str(value): at for at, value in enumerate(values)} if categories is not None else dict(zip(labels, values))
    found = set(labels) - {None}
    try:
        return sorted(found, key=places.__getitem__)
    except TypeError:
        return sorted(found)


def _matched(groups: Any, data: Any) -> Any:
    """A Series in the order of the samples of data, if both have names that are not just numbers in order."""
    names = getattr(data, "obs_names", getattr(getattr(data, "usages", data), "index", None))
    index = getattr(groups, "index", None)
    if names is None or not hasattr(index, "equals") or index.equals(names) or type(index).__name__ == "RangeIndex":
        return groups
    if not index.is_unique or set(index) != set(names):
        raise ValueError("groups is a Series with other names than the samples: give groups.to_numpy() if it is in their order")
    return groups.loc[names]


def _shares(data: Any, H: Any) -> np.ndarray:
    """The share of each component in the sum of each sample's row of W H."""
    if hasattr(data, "obsm"):
        for place, name in ((data.obsm, "X_nmf"), (data.varm, "NMF")):
            if name not in place:
                raise ValueError(f"adata has no {name}: run fednmf.tl.nmf first")
        W, sizes = np.asarray(data.obsm["X_nmf"]), np.asarray(data.varm["NMF"]).sum(axis=0)
    else:
        # A programme of cNMF has the sum of a cell.
        W = np.asarray(getattr(data, "usages", data), dtype=float)
        sizes = np.ones(W.shape[1]) if H is None else np.asarray(H, dtype=float).sum(axis=1)
    if W.shape[1:] != sizes.shape:
        raise ValueError(f"W has {W.shape[1]} components, and H {len(sizes)}")
    used = W * sizes
    total = used.sum(axis=1, keepdims=True)
    return np.divide(used, total, out=np.zeros_like(used), where=total > 0)


def _grid(count: int, axes: Optional[Sequence[Any]], across: int, size: tuple[float, float]) -> Any:
    """As many Axes: those given, or new ones of a size, so many in a row."""
    if axes is not None:
        if len(axes) < count:
            raise ValueError(f"there are {len(axes)} axes, but {count} components")
        return axes
    columns = min(count, across)
    rows = -(-count // columns)
    _, grid = _pyplot().subplots(
        rows, columns, figsize=(size[0] * columns, size[1] * rows), layout="constrained", squeeze=False
    )
    for ax in grid.ravel()[count:]:
        ax.set_axis_off()
    return grid.ravel()[:count]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise ImportError("fednmf.pl needs matplotlib: pip install matplotlib") from e
    return plt
