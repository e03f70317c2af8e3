"""Consensus NMF as the cNMF pipeline defines it (Kotliar et al., eLife 2019), in its files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, Union

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from . import _losses, _rows, _run, _show
from ._nmf import _FROBENIUS, AnyLoss, checked_loss

#: The means over genes whose coefficient of variation is the constant part of the expected one.
_MOST_EXPRESSED = 20
#: A standard deviation below this share of the mean is a rounding error.
_ROUNDING = 1e-12


@dataclass(repr=False)
class Programs:
    """The programmes of one number of components. Programmes are numbered from 1, the most used one first."""

    #: Cells x programmes: DataFrames, as the following.
    usages: Any
    #: Programmes x genes that were factorised; each row has sum 1.
    spectra: Any
    #: Programmes x all genes: contribution to the transcripts per million, and regression on their z-scores.
    gene_spectra_tpm: Any
    gene_spectra_score: Any
    #: Mean distance of the spectra of all runs to their nearest neighbours.
    local_density: Any
    #: Of the clusters of all spectra, without the filter, and the squared error of their medians.
    silhouette: float
    prediction_error: float

    def __repr__(self) -> str:
        cells, k = self.usages.shape
        genes = self.gene_spectra_tpm.shape[1]
        return f"Programs({k} of {cells} cells and {genes} genes, silhouette={self.silhouette:.3f})"


def cnmf(
    adata: Any,
    ks: Iterable[int],
    *,
    name: str,
    output_dir: Union[str, Path] = ".",
    n_iter: int = 100,
    num_highvar_genes: int = 2000,
    genes: Optional[Iterable[str]] = None,
    tpm: Any = None,
    density_threshold: float = 0.5,
    local_neighborhood_size: float = 0.30,
    beta_loss: AnyLoss = "frobenius",
    max_iter: int = 1000,
    tol: float = 1e-4,
    random_state: Any = None,
    n_jobs: Optional[int] = None,
    callback: Optional[Callable[[int, int], Any]] = None,
    verbose: int = 0,
) -> dict[int, Programs]:
    """Consensus programmes of cells x genes, in the files of cNMF 1.7: a faster engine for its pipeline.

    The steps prepare, factorize, combine, consensus and k_selection_plot (its numbers) of the `cnmf` package, whose
    methods `load_results`, `consensus`, `k_selection_plot` and others go on from the files. The runs are those of
    fednmf, and usages and spectra are refitted by the exact minimisers of the loss, where cNMF iterates.

    Parameters
    ----------
    adata : AnnData
        Raw counts, without cells or genes that are all zero.
    ks : iterable of int
    name, output_dir
        Files are written to `output_dir`/`name`.
    n_iter : int
        Runs for each number of components, from random starts.
    num_highvar_genes : int
        The most overdispersed genes are factorised, unless `genes` names others.
    tpm : AnnData or None
        Transcripts per million of the same cells and genes; None: computed from the counts.
    density_threshold : float
        Spectra whose mean distance to their nearest neighbours is not below this are left out; 2 leaves out none.
    local_neighborhood_size : float
        Number of these neighbours, as a share of `n_iter`.
    beta_loss : str or float
        As in `fednmf.NMF`.
    max_iter, tol
        Of each run, as in `fednmf.NMF`.
    random_state : int, RandomState or None
        For the seeds of the runs.
    callback : callable or None
        Called with k and the run when it is done.
    verbose : int
        Print the progress.

    Returns
    -------
    dict of int to Programs

    Raises
    ------
    ValueError
        If counts are negative or not finite, a cell has no count in the genes that are factorised, too few spectra pass
        the filter, or a parameter is wrong.

    Examples
    --------
    >>> import tempfile, anndata, numpy as np, fednmf
    >>> rng = np.random.default_rng(0)
    >>> programmes = np.kron(np.eye(4), rng.gamma(2, 3, (1, 20))) + 0.2
    >>> counts = rng.poisson(rng.dirichlet(np.full(4, 0.3), 200) @ programmes)
    >>> adata = anndata.AnnData(counts.astype("float32"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = fednmf.tl.cnmf(adata, ks=[4], name="pbmc", output_dir=folder, n_iter=10, random_state=0)
    >>> found[4].usages.shape
    (200, 4)
    """
    pd = _pandas()
    checked = sorted({_run.count("ks", k) for k in ks})
    if not checked:
        raise ValueError("ks is empty: there must be a number of components")
    n_iter = _run.count("n_iter", n_iter)
    if int(local_neighborhood_size * n_iter) < 1:
        raise ValueError(
            f"n_iter={n_iter}: local_neighborhood_size={local_neighborhood_size} of it is no neighbour; "
            "raise one of them"
        )
    if not local_neighborhood_size < 1:
        raise ValueError(f"local_neighborhood_size={local_neighborhood_size}: must be a share below 1")
    _run.at_least_zero("density_threshold", density_threshold)
    if isinstance(genes, str):
        raise ValueError(f"genes={genes!r}: must be a list of names")
    chosen = None if genes is None else list(genes)
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise ValueError(f"genes: {next(gene for gene in chosen if chosen.count(gene) > 1)!r} is there twice")
    checked_loss(beta_loss)
    tol = _run.at_least_zero("tol", tol)
    max_iter = _run.count("max_iter", max_iter)
    cells = _Cells(adata, tpm, num_highvar_genes, chosen)
    if checked[-1] > min(cells.normalized.shape):
        raise ValueError(f"ks: {checked[-1]} components are more than the factorised matrix has cells or genes")
    files = _Files(Path(output_dir), name)
    seeds = check_random_state(random_state).randint(1, 2**31 - 1, size=len(checked) * n_iter)
    settings = {"beta_loss": beta_loss, "max_iter": max_iter, "tol": tol, "n_jobs": n_jobs}
    files.write_preparation(cells, checked, n_iter, seeds, settings)

    found = {}
    with _show.Progress() as progress:
        for i, k in enumerate(checked):
            spectra = []
            for run in range(n_iter):
                H = _spectra(cells.normalized, k, int(seeds[i * n_iter + run]), settings)
                frame = pd.DataFrame(H, index=np.arange(1, k + 1), columns=cells.genes)
                files.write_frame(frame, "cnmf_tmp", f"spectra.k_{k}.iter_{run}")
                spectra.append(frame.set_axis([f"iter{run}_topic{t}" for t in range(1, k + 1)]))
                if verbose:
                    progress.show(f"k = {k}", {"run": run + 1, "of": n_iter})
                if callback is not None:
                    callback(k, run)
            merged = pd.concat(spectra)
            files.write_frame(merged, "cnmf_tmp", f"spectra.k_{k}.merged")
            n_neighbors = int(local_neighborhood_size * n_iter)
            found[k] = _consensus(cells, merged, k, n_neighbors, density_threshold, settings)
            files.write_consensus(found[k], cells, k, density_threshold)
    stats = [[float(k), density_threshold, p.silhouette, p.prediction_error] for k, p in found.items()]
    columns = ["k", "local_density_threshold", "silhouette", "prediction_error"]
    files.write_frame(pd.DataFrame(stats, columns=columns), "", "k_selection_stats")
    return found


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as e:
        raise ImportError("cnmf needs pandas and anndata: pip install anndata") from e
    return pandas


class _Cells:
    """The cells as they are factorised and as they are scored."""

    def __init__(self, adata: Any, tpm: Any, num_highvar_genes: int, genes: Optional[list[str]]) -> None:
        if not adata.var_names.is_unique:
            raise ValueError("names of genes are not unique: call adata.var_names_make_unique() first")
        for what, given in (("adata", adata), ("tpm", tpm)):
            if given is not None:
                _rows.check_in_memory(given, what, "`fednmf sweep --cnmf` reads the files that `prepare` has written a part at a time")
        counts = _checked("adata.X", _rows.matrix_of(adata))
        values = counts.data if sp.issparse(counts) else counts
        if tpm is None and (values != np.floor(values)).any():
            warnings.warn(
                "adata.X has entries that are not whole numbers; cNMF takes counts, and finds the variable genes by their rule",
                UserWarning,
                stacklevel=3,
            )
        self.adata = adata
        self.tpm_adata = self._transcripts(counts) if tpm is None else tpm
        names = [(list(a.obs_names), list(a.var_names)) for a in (adata, self.tpm_adata)]
        if names[0] != names[1]:
            raise ValueError("tpm has other cells or genes than adata, or in another order")
        self.tpm = _checked("tpm", _rows.matrix_of(self.tpm_adata))
        self.tpm_mean, self.tpm_std = _mean_and_std(self.tpm, ddof=0)
        if genes is None:
            used = overdispersed(self.tpm_mean, self.tpm_std**2, _run.count("num_highvar_genes", num_highvar_genes))
            self.places = np.flatnonzero(used)
        else:
            self.places = adata.var_names.get_indexer(genes)
            if (self.places < 0).any():
                raise ValueError(f"genes: adata has no {genes[int(np.argmin(self.places))]!r}")
        self.genes = adata.var_names[self.places]
        self.normalized = _unit_variance(counts[:, self.places].astype(np.float64))
        empty = np.flatnonzero(np.asarray(self.normalized.sum(axis=1)).ravel() == 0)
        if empty.size:
            raise ValueError(
                f"{empty.size} cells have no count in the genes that are factorised, "
                f"such as {adata.obs_names[empty[0]]!r}: remove them, or take more genes"
            )

    def _transcripts(self, counts: Any) -> Any:
        totals = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
        scale = 1e6 / np.where(totals > 0, totals, 1e6)
        dtype = counts.dtype if counts.dtype.kind == "f" else np.float32
        X = sp.csr_matrix(sp.diags(scale) @ counts, dtype=dtype) if sp.issparse(counts) else counts * scale[:, None]
        other = self.adata.copy()
        other.X = X.astype(dtype, copy=False)
        return other


def _checked(what: str, X: Any) -> Any:
    X = _run.canonical(_run.checked(X, what, ensure_all_finite=False))
    values = X.data if sp.issparse(X) else X
    if values.size and not (np.isfinite(values).all() and values.min() >= 0):
        raise ValueError(f"{what} has entries that are negative or not finite; cNMF takes raw counts")
    return X


def _mean_and_std(X: Any, ddof: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each column."""
    n = X.shape[0]
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if sp.issparse(X):
        columns = X.tocsc()
        stored = np.diff(columns.indptr)
        off = (columns.data - np.repeat(mean, stored)) ** 2
        of_column = np.repeat(np.arange(X.shape[1]), stored)
        squares = np.bincount(of_column, weights=off, minlength=X.shape[1]) + (n - stored) * mean**2
    else:
        squares = ((X - mean) ** 2).sum(axis=0, dtype=np.float64)
    std = np.sqrt(squares / max(n - ddof, 1))
    # Of a constant column, only the rounding error of the mean is left.
    return mean, np.where(std > _ROUNDING * np.abs(mean), std, 0)


def _divisor(x: Any) -> Any:
    """x with ones in place of zeros, to divide by."""
    return np.where(x > 0, x, 1)


def _unit_variance(X: Any) -> Any:
    """Each column divided by its standard deviation; columns without any stay."""
    std = _mean_and_std(X, ddof=1)[1]
    scale = 1 / _divisor(std)
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


def _spectra(X: Any, k: int, seed: int, settings: dict[str, Any]) -> np.ndarray:
    """Of one run (k x genes)."""
    run = _run.factorize(
        [X],
        algo="auto",
        k=k,
        random_state=seed,
        max_iter=settings["max_iter"],
        tol=settings["tol"] / 10,
        options={"init": "random", "loss": checked_loss(settings["beta_loss"])},
        n_jobs=settings["n_jobs"],
        scale="balanced",
    )
    return {name: values for name, _, values in run.factors}["V"].T


def _refit(X: Any, H: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """W >= 0 for a given H."""
    H = np.ascontiguousarray(H, dtype=X.dtype)
    beta = checked_loss(settings["beta_loss"])
    return _run.project(X, H, settings["n_jobs"], beta=None if beta == _FROBENIUS else beta)


def _consensus(
    cells: _Cells, merged: Any, k: int, n_neighbors: int, threshold: float, settings: dict[str, Any]
) -> Programs:
    pd = _pandas()
    values = merged.to_numpy()
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    spectra = values / _divisor(norms)
    distances = np.sort(euclidean_distances(spectra), axis=1)
    density = distances[:, : n_neighbors + 1].sum(axis=1) / n_neighbors
    kept = density < threshold
    if kept.sum() < k:
        raise ValueError(
            f"k = {k}: {kept.sum()} of {len(kept)} spectra have a local density below {threshold}; "
            "raise density_threshold or n_iter"
        )
    all_medians, labels = _clusters(spectra, k)
    usages = _refit(cells.normalized, all_medians, settings)
    several = 1 < len(set(labels)) < len(labels)
    silhouette = silhouette_score(spectra, labels) if several else np.nan
    error = _losses.frobenius(cells.normalized, usages, all_medians) ** 2

    medians, _ = _clusters(spectra[kept], k)
    usages = _refit(cells.normalized, medians, settings)
    shares = _shares(usages)
    order = np.argsort(-shares.sum(axis=0), kind="stable")
    medians, usages, shares = medians[order], usages[:, order], shares[:, order]
    by_gene = cells.tpm.T.tocsr() if sp.issparse(cells.tpm) else np.ascontiguousarray(cells.tpm.T)
    by_gene = by_gene if by_gene.dtype.kind == "f" else by_gene.astype(np.float64)
    of_tpm = _refit(by_gene, shares.T, settings).T.astype(np.float64)
    scores = _regression(usages, cells.tpm, cells.tpm_mean, cells.tpm_std)
    # The usages once more, for the spectra in transcripts.
    normalized = _unit_variance(cells.tpm[:, cells.places].astype(np.float64))
    std = cells.tpm_std[cells.places]
    usages = _refit(normalized, of_tpm[:, cells.places] / _divisor(std), settings)

    numbers = np.arange(1, k + 1)
    obs, var = cells.adata.obs_names, cells.adata.var_names
    return Programs(
        usages=pd.DataFrame(usages, index=obs, columns=numbers),
        spectra=pd.DataFrame(medians, index=numbers, columns=cells.genes),
        gene_spectra_tpm=pd.DataFrame(of_tpm, index=numbers, columns=var),
        gene_spectra_score=pd.DataFrame(scores, index=numbers, columns=var),
        local_density=pd.DataFrame({"local_density": density}, index=merged.index),
        silhouette=float(silhouette),
        prediction_error=error,
    )


def _clusters(spectra: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The median of each cluster, with sum 1, and the cluster of each spectrum."""
    labels = KMeans(n_clusters=k, n_init=10, random_state=1).fit(spectra).labels_
    medians = np.array([np.median(spectra[labels == cluster], axis=0) for cluster in range(k)])
    sums = medians.sum(axis=1, keepdims=True)
    return medians / _divisor(sums), labels


def _shares(usages: np.ndarray) -> np.ndarray:
    sums = usages.sum(axis=1, keepdims=True)
    return usages / _divisor(sums)


def _regression(usages: np.ndarray, Y: Any, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The coefficients of ordinary least squares of the z-scores of Y on the usages."""
    cross = np.asarray((Y.T @ usages).T, dtype=np.float64) - np.outer(usages.sum(axis=0), mean)
    return np.linalg.lstsq(usages.T @ usages, cross / _divisor(std), rcond=None)[0]


class _Files:
    """The files of cNMF: pandas tables as .npz archives (data, index, columns) and as text."""

    def __init__(self, folder: Path, name: str) -> None:
        if not name or "/" in name or name in (".", ".."):
            raise ValueError(f"name={name!r}: must be a file name")
        self.folder, self.name = folder / name, name
        (self.folder / "cnmf_tmp").mkdir(parents=True, exist_ok=True)

    def _path(self, sub: str, rest: str) -> Path:
        return self.folder / sub / f"{self.name}.{rest}"

    def write_frame(self, frame: Any, sub: str, rest: str) -> None:
        types = [None if axis.dtype.kind in "iuf" else object for axis in frame.axes]
        index, columns = (np.asarray(axis, dtype=dtype) for axis, dtype in zip(frame.axes, types))
        np.savez_compressed(self._path(sub, rest + ".df.npz"), data=frame.to_numpy(), index=index, columns=columns)

    def write_preparation(
        self, cells: _Cells, ks: list[int], n_iter: int, seeds: np.ndarray, settings: dict[str, Any]
    ) -> None:
        import anndata

        pd = _pandas()
        genes = cells.adata.var.iloc[cells.places].copy()
        normalized = anndata.AnnData(cells.normalized, obs=cells.adata.obs.copy(), var=genes)
        normalized.write_h5ad(self._path("cnmf_tmp", "norm_counts.h5ad"))
        cells.tpm_adata.write_h5ad(self._path("cnmf_tmp", "tpm.h5ad"))
        stats = pd.DataFrame({"__mean": cells.tpm_mean, "__std": cells.tpm_std}, index=cells.adata.var_names)
        self.write_frame(stats, "cnmf_tmp", "tpm_stats")
        self._path("", "overdispersed_genes.txt").write_text("\n".join(cells.genes))
        runs = [[k, run, int(seeds[i * n_iter + run]), True] for i, k in enumerate(ks) for run in range(n_iter)]
        runs = pd.DataFrame(runs, columns=["n_components", "iter", "nmf_seed", "completed"]).astype(object)
        self.write_frame(runs, "cnmf_tmp", "nmf_params")
        parameters = {
            "alpha_H": 0.0,
            "alpha_W": 0.0,
            "beta_loss": settings["beta_loss"],
            "init": "random",
            "l1_ratio": 0.0,
            "max_iter": settings["max_iter"],
            "solver": "cd" if checked_loss(settings["beta_loss"]) == _FROBENIUS else "mu",
            "tol": settings["tol"],
        }
        # YAML takes 1e-05 for a word.
        text = {name: f"{x:.15f}" if isinstance(x, float) else x for name, x in parameters.items()}
        lines = "".join(f"{name}: {value}\n" for name, value in text.items())
        self._path("cnmf_tmp", "nmf_idvrun_params.yaml").write_text(lines)

    def write_consensus(self, found: Programs, cells: _Cells, k: int, threshold: float) -> None:
        label = f"k_{k}.dt_{str(threshold).replace('.', '_')}"
        self.write_frame(found.local_density, "cnmf_tmp", f"local_density_cache.k_{k}.merged")
        # A programme without genes, and a gene without deviation, are zero instead of 0 / 0.
        sums = _divisor(found.gene_spectra_tpm.sum(axis=1))
        per_million = found.gene_spectra_tpm.div(sums, axis=0) * 1e6
        reference = (per_million / _divisor(cells.tpm_std) * (cells.tpm_std > 0))[list(cells.genes)]
        reference.index = "GEP" + reference.index.astype(str)
        for kind, frame, ending in [
            ("spectra", found.spectra, ".consensus"),
            ("usages", found.usages, ".consensus"),
            ("gene_spectra_tpm", found.gene_spectra_tpm, ""),
            ("gene_spectra_score", found.gene_spectra_score, ""),
            ("starcat_spectra", reference, ""),
        ]:
            self.write_frame(frame, "cnmf_tmp", f"{kind}.{label}{ending}")
            frame.to_csv(self._path("", f"{kind}.{label}{ending}.txt"), sep="\t")
