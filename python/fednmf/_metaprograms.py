"""Programmes that several samples share: clusters of the spectra of samples that were factorised alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Optional

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_samples

from . import _annotated, _run, _spectra

#: Largest number of clusters that is tried.
_MOST = 30
#: A gene of a meta-programme is in more than this share of the top lists of its members.
_CONFIDENCE = 0.5
#: 3CA: share of the top genes that a robust programme has in common with one of the same sample for another k.
_ROBUST = 0.7
#: With more in common, two programmes of a sample are redundant; with as much, two of different samples are similar.
_SIMILAR = 0.2


@dataclass(repr=False)
class MetaPrograms:
    """Meta-programmes, named MP1, MP2, ...: those of most samples first. All tables are DataFrames."""

    #: Meta-programmes x genes: the mean of the members' spectra, each with sum 1; of top lists, the mean of their zeros and ones.
    weights: Any
    #: The top genes of each.
    genes: dict[str, list[str]]
    #: The programmes that were clustered: sample, k, component, silhouette, metaprogram ("": none).
    members: Any
    #: Of each: share of the samples, silhouette, similarity (means over members and pairs of them), number of members.
    table: Any

    def __repr__(self) -> str:
        samples = self.members["sample"].nunique()
        return f"MetaPrograms({len(self.genes)} from {len(self.members)} programmes of {samples} samples)"


def metaprograms(
    samples: Any,
    ks: Iterable[int] = range(4, 10),
    n_metaprograms: Optional[int] = None,
    sample_key: Optional[str] = None,
    *,
    rule: Literal["genenmf", "3ca"] = "genenmf",
    metric: Optional[Literal["cosine", "jaccard"]] = None,
    n_top: int = 50,
    specificity: float = 5.0,
    min_share: float = 0.5,
    min_silhouette: float = 0.0,
    **params: Any,
) -> MetaPrograms:
    """Finds the programmes that samples have in common, from the spectra of each.

    Each sample is factorised alone for several k. Ward's linkage clusters the spectra of all, as in GeneNMF: by the cosine of
    their weights, or by the overlap of their top genes. A cluster of enough samples is a meta-programme.

    Parameters
    ----------
    samples : AnnData, or dict or list of samples
        An AnnData with all samples, or of each sample an AnnData, or what its owner has released: a DataFrame, or a file
        (``.csv`` and ``.tsv`` of `spectra` or `top_lists`, or any programmes x genes; ``.h5`` and ``.npz`` of the program, with V
        of the genes), or a list of them with other k, or lists of top genes. Spectra are compared in the genes that all have.
    ks, layer, use_highly_variable, random_state, **params
        Of `spectra`, for AnnData.
    n_metaprograms : int or None
        Number of clusters; None: from 2 to 30, the one with the largest mean silhouette.
    sample_key : str or None
        The column of ``adata.obs`` with the sample of each cell; cells without one are left out, with a warning.
    rule : "genenmf" or "3ca"
        "genenmf" clusters all programmes. "3ca" leaves out those that are not robust (70 % of the top genes in common with one
        of the same sample for another k), not similar to one of another sample (20 %), or redundant in their sample (more than
        20 % in common with one that is more similar to other samples).
    metric : "cosine", "jaccard" or None
        None: "cosine", or "jaccard" if a sample has top lists only.
    n_top, specificity
        Of `top_lists`. A meta-programme has those of the genes that more than half of its members list, at most `n_top`.
    min_share : float
        A meta-programme has members of at least this share of the samples, and of two.
    min_silhouette : float
        Least mean silhouette of a meta-programme.

    Returns
    -------
    MetaPrograms

    Raises
    ------
    ValueError
        If the samples have no gene in common, there are too few programmes, or an option is wrong.

    References
    ----------
    GeneNMF: https://github.com/carmonalab/GeneNMF. 3CA: Gavish et al., Nature 618 (2023).

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> rng = np.random.default_rng(0)
    >>> shared = np.kron(np.eye(2), np.ones((1, 10)))
    >>> released = {site: shared + 0.1 * rng.random((2, 20)) for site in ["north", "south", "west"]}
    >>> fednmf.tl.metaprograms(released, n_top=10)
    MetaPrograms(2 from 6 programmes of 3 samples)
    """
    if rule not in ("genenmf", "3ca"):
        raise ValueError(f"rule={rule!r}: must be 'genenmf' or '3ca'")
    if metric not in (None, "cosine", "jaccard"):
        raise ValueError(f"metric={metric!r}: must be 'cosine', 'jaccard' or None")
    for name, value, least, most in (
        ("min_share", min_share, 0, 1),
        ("min_silhouette", min_silhouette, -1, 1),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name}={value!r}: must be a number from {least} to {most}")
    _run.at_least_zero("specificity", specificity)
    pd = _spectra.pandas()
    given = _spectra.by_sample(samples, sample_key)
    if params and not any(map(_annotated.is_annotated, given.values())):
        raise ValueError(f"{', '.join(params)}: for samples that are AnnData, and these have been factorised")
    tables = []
    for sample, of in given.items():
        if _annotated.is_annotated(of):
            tables.append(_spectra.spectra({sample: of}, ks, **params))
            continue
        table = _spectra.released(sample, of)
        own = table.index.get_level_values("sample").unique()
        # A dict names the samples anew.
        if isinstance(samples, dict) and len(own) == 1:
            table = table.rename(index={own[0]: sample}, level="sample")
        tables.append(table)
    for table in tables:
        if not _spectra.is_lists(table):
            _spectra.check(table)
    has_lists = any(_spectra.is_lists(table) for table in tables)
    if has_lists and metric == "cosine":
        raise ValueError("metric='cosine' needs the spectra of all samples, and one has top lists only")
    if not has_lists:
        # The lists are those of the genes that all have.
        common_genes = pd.concat([table.iloc[:1] for table in tables], join="inner").columns
        tables = [table[common_genes] for table in tables]
    lists = pd.concat([t if _spectra.is_lists(t) else _spectra.top_lists(t, n_top, specificity) for t in tables])
    if lists.index.duplicated().any():
        raise ValueError(f"sample {lists.index[lists.index.duplicated()][0][0]!r} is there twice: give each a name of its own")
    listed = pd.DataFrame([dict.fromkeys(row.dropna(), 1.0) for _, row in lists.iterrows()], index=lists.index).fillna(0.0)
    weights = listed if has_lists else pd.concat(tables, join="inner")
    if weights.shape[1] == 0:
        raise ValueError("no gene is in all samples: use the same names of genes everywhere")
    scores = listed.to_numpy() if has_lists else _spectra.weighted(weights, specificity)
    empty = ~(scores.any(axis=1) & listed.to_numpy().any(axis=1))
    if empty.any():
        programme = _spectra.named(weights, int(np.argmax(empty)))
        raise ValueError(f"{programme} has no weight in the genes that all samples have: leave it out")
    n_samples = weights.index.get_level_values("sample").nunique()

    common = listed.to_numpy() @ listed.to_numpy().T
    sizes = np.diag(common)
    if metric == "jaccard" or has_lists:
        similarity = common / (np.add.outer(sizes, sizes) - common)
    else:
        unit = scores / np.linalg.norm(scores, axis=1, keepdims=True)
        similarity = unit @ unit.T
    kept = _robust(weights.index, common / np.maximum.outer(sizes, sizes)) if rule == "3ca" else np.arange(len(weights))
    if n_samples < 2 or len(kept) < 3:
        robust = " robust" if rule == "3ca" else ""
        raise ValueError(f"{len(kept)}{robust} of {len(weights)} programmes, of {n_samples} samples: too few to cluster")
    labels, silhouette = _clusters(1 - similarity[np.ix_(kept, kept)], n_metaprograms)
    members = weights.index[kept].to_frame(index=False).assign(silhouette=silhouette, metaprogram="")

    # (share, silhouette, similarity, number of members), and the members.
    found = []
    for label in np.unique(labels):
        of = np.flatnonzero(labels == label)
        n, mean = members["sample"].iloc[of].nunique(), silhouette[of].mean()
        if n >= max(2, min_share * n_samples) and mean >= min_silhouette:
            pairs = similarity[np.ix_(kept[of], kept[of])][np.triu_indices(len(of), 1)]
            if not pairs.any():
                continue  # They have nothing in common.
            found.append(((n / n_samples, mean, pairs.mean(), len(of)), of))
    if not found:
        warnings.warn(
            f"no cluster of programmes has min_share={min_share} of the samples and min_silhouette={min_silhouette}: "
            "lower one of them, or give other ks",
            UserWarning,
            stacklevel=2,
        )
    found.sort(key=lambda one: one[0], reverse=True)
    names = [f"MP{i}" for i in range(1, len(found) + 1)]
    table = pd.DataFrame([row for row, _ in found], index=names, columns=["share", "silhouette", "similarity", "members"])
    means, genes = [], {}
    for name, (_, of) in zip(names, found):
        members.loc[of, "metaprogram"] = name
        means.append(_spectra.shares(weights.to_numpy(float)[kept[of]]).mean(axis=0))
        often = listed.iloc[kept[of]].mean()
        ranked = weights.columns[np.argsort(-scores[kept[of]].mean(axis=0), kind="stable")]
        genes[name] = [str(gene) for gene in ranked if often.get(gene, 0) > _CONFIDENCE][:n_top]
    return MetaPrograms(pd.DataFrame(means, index=names, columns=weights.columns), genes, members, table)


def _clusters(distance: np.ndarray, n: Optional[int]) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of each programme, and its silhouette."""
    distance = np.clip((distance + distance.T) / 2, 0, None) * (1 - np.eye(len(distance)))
    most = len(distance) - 1
    if n is not None and _run.count("n_metaprograms", n) > most:
        raise ValueError(f"n_metaprograms={n}: {len(distance)} programmes have at most {most} clusters of more than one")
    tried = range(2, min(most, _MOST) + 1) if n is None else [n]
    tree = linkage(squareform(distance), "ward")
    best = None
    for n in tried:
        labels = fcluster(tree, n, "maxclust")
        several = len(set(labels)) > 1
        silhouette = silhouette_samples(distance, labels, metric="precomputed") if several else np.zeros(len(labels))
        if best is None or silhouette.mean() > best[1].mean():
            best = labels, silhouette
    assert best is not None
    return best


def _robust(index: Any, overlap: np.ndarray) -> np.ndarray:
    """The programmes that 3CA keeps."""
    samples, ks = (index.get_level_values(level).to_numpy() for level in ("sample", "k"))
    same = samples[:, None] == samples
    within = np.where(same & (ks[:, None] != ks), overlap, 0).max(axis=1)
    across = np.where(same, 0, overlap).max(axis=1)
    kept: list[int] = []
    for i in np.argsort(-across, kind="stable"):
        redundant = any(same[i, j] and overlap[i, j] > _SIMILAR for j in kept)
        if within[i] >= _ROBUST and across[i] >= _SIMILAR and not redundant:
            kept.append(int(i))
    return np.sort(kept).astype(int)
