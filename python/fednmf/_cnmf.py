"""Consensus NMF as the cNMF pipeline defines it (Kotliar et al., eLife 2019), in its files."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, Union

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from . import _annotated, _losses, _rows, _run, _show
from ._cells import Cells, divisor, unit_variance
from ._nmf import _FROBENIUS, AnyLoss, checked_loss


@dataclass(repr=False)
class Programs:
    """The programmes of one number of components, in DataFrames. Programmes are numbered from 1, the most used one first.

    usages              cells x programmes: how much each cell uses each programme; the sums of the rows vary around 1
    spectra             programmes x factorised genes: medians over the runs, each gene in units of the standard deviation of its
                        counts; each row has sum 1
    gene_spectra_tpm    programmes x all genes: transcripts per million of a cell that uses this programme alone; the sums of the
                        rows are near a million
    gene_spectra_score  programmes x all genes: coefficients of the least squares fit of the z-scores of the transcripts per million
                        by the usages that belong to `spectra`. These usages are those of cNMF before its last refit, and their
                        sums are far above 1, so the coefficients are small: compare genes within a programme only
    local_density       spectra of all runs x 1: mean distance of each to its nearest others, both with norm 1; spectra with
                        `density_threshold` or more were left out
    silhouette          mean silhouette of the clusters of all spectra, those that were left out included
    prediction_error    squared error of the factorised counts, by the medians of these clusters
    """

    usages: Any
    spectra: Any
    gene_spectra_tpm: Any
    gene_spectra_score: Any
    local_density: Any
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
    layer: Optional[str] = None,
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
        Raw counts. Cells without a count in the genes that are factorised are refused. Genes that are all zero are factorised only
        if `genes` names them, and are zero in all tables. A matrix that stays in its file is read by rows in each pass; the genes
        that are factorised are held in memory.
    ks : iterable of int
    name, output_dir
        Files are written to `output_dir`/`name`.
    n_iter : int
        Runs for each number of components, from random starts.
    num_highvar_genes : int
        The most overdispersed genes are factorised, unless `genes` names others.
    layer : str or None
        The layer of the counts; None: `X`.
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
    FileExistsError
        If there are files of this name that an earlier call did not write.
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
    checked = _run.counts("ks", ks)
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
    in_parts = _rows.is_in_parts(_annotated.stored(adata, layer) if tpm is None else _rows.matrix_of(tpm))
    if checked_loss(beta_loss) != _FROBENIUS and in_parts:
        raise ValueError(
            f"beta_loss={beta_loss!r}: spectra of all genes need the transcripts per million in memory: call to_memory() first"
        )
    tol = _run.at_least_zero("tol", tol)
    max_iter = _run.count("max_iter", max_iter)
    cells = Cells(adata, layer, tpm, num_highvar_genes, chosen)
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
    cells: Cells, merged: Any, k: int, n_neighbors: int, threshold: float, settings: dict[str, Any]
) -> Programs:
    pd = _pandas()
    values = merged.to_numpy()
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    spectra = values / divisor(norms)
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
    by_shares, by_usages = cells.tpm.products(shares, usages)
    of_tpm = _spectra_of_tpm(cells, shares, by_shares, settings)
    scores = _regression(usages, by_usages, cells.tpm_mean, cells.tpm_std)
    # The usages once more, for the spectra in transcripts.
    normalized = unit_variance(cells.tpm.columns(cells.places))
    std = cells.tpm_std[cells.places]
    usages = _refit(normalized, of_tpm[:, cells.places] / divisor(std), settings)

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
    return medians / divisor(sums), labels


def _shares(usages: np.ndarray) -> np.ndarray:
    sums = usages.sum(axis=1, keepdims=True)
    return usages / divisor(sums)


def _spectra_of_tpm(cells: Cells, shares: np.ndarray, products: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """H >= 0 (k x genes) for W = `shares`; `products` are W' X."""
    if checked_loss(settings["beta_loss"]) != _FROBENIUS:
        whole = cells.tpm.columns(np.arange(cells.tpm.shape[1]))
        by_gene = whole.T.tocsr() if sp.issparse(whole) else np.ascontiguousarray(whole.T)
        return _refit(by_gene, shares.T, settings).T.astype(np.float64)
    # The same least squares problem with as many rows as components: W'W = A'A.
    values, vectors = np.linalg.eigh(shares.T.astype(np.float64) @ shares)
    kept = values > np.finfo(np.float64).eps * values[-1]
    roots = np.sqrt(values[kept])
    A, B = roots[:, None] * vectors[:, kept].T, (vectors[:, kept].T @ products) / roots[:, None]
    return np.array([nnls(A, b)[0] for b in B.T]).T


def _regression(usages: np.ndarray, products: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The coefficients of ordinary least squares of the z-scores of Y on the usages U; `products` are U' Y."""
    cross = products - np.outer(usages.sum(axis=0, dtype=np.float64), mean)
    usages = usages.astype(np.float64)
    return np.linalg.lstsq(usages.T @ usages, cross / divisor(std), rcond=None)[0]


class _Files:
    """The files of cNMF: pandas tables as .npz archives (data, index, columns) and as text."""

    PARAMETERS, MARK = "nmf_idvrun_params.yaml", "# by fednmf.tl.cnmf\n"

    def __init__(self, folder: Path, name: str) -> None:
        if not name or "/" in name or name in (".", ".."):
            raise ValueError(f"name={name!r}: must be a file name")
        self.folder, self.name = folder / name, name
        parameters = self._path("cnmf_tmp", self.PARAMETERS)
        own = parameters.is_file() and parameters.read_text(errors="replace").startswith(self.MARK)
        before = [path for sub in ("", "cnmf_tmp") for path in (self.folder / sub).glob(f"{glob.escape(name)}.*")]
        if before and not own:
            raise FileExistsError(
                f"{min(before)} is not of a run of fednmf.tl.cnmf, which would replace it: give another name or output_dir"
            )
        (self.folder / "cnmf_tmp").mkdir(parents=True, exist_ok=True)

    def _path(self, sub: str, rest: str) -> Path:
        return self.folder / sub / f"{self.name}.{rest}"

    def _write(self, rest: str, write: Callable[[Path], Any]) -> None:
        """Replaces a file only when the new one is complete: the data may be those of the old one."""
        path = self._path("cnmf_tmp", rest)
        part = path.with_suffix(".part.h5ad")
        write(part)
        part.replace(path)

    def write_frame(self, frame: Any, sub: str, rest: str) -> None:
        types = [None if axis.dtype.kind in "iuf" else object for axis in frame.axes]
        index, columns = (np.asarray(axis, dtype=dtype) for axis, dtype in zip(frame.axes, types))
        np.savez_compressed(self._path(sub, rest + ".df.npz"), data=frame.to_numpy(), index=index, columns=columns)

    def write_preparation(
        self, cells: Cells, ks: list[int], n_iter: int, seeds: np.ndarray, settings: dict[str, Any]
    ) -> None:
        import anndata

        pd = _pandas()
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
        self._path("cnmf_tmp", self.PARAMETERS).write_text(self.MARK + lines)
        genes = cells.adata.var[[]].iloc[cells.places]
        normalized = anndata.AnnData(cells.normalized, obs=cells.adata.obs[[]], var=genes)
        self._write("norm_counts.h5ad", normalized.write_h5ad)
        self._write("tpm.h5ad", cells.write_tpm)
        stats = pd.DataFrame({"__mean": cells.tpm_mean, "__std": cells.tpm_std}, index=cells.adata.var_names)
        self.write_frame(stats, "cnmf_tmp", "tpm_stats")
        self._path("", "overdispersed_genes.txt").write_text("\n".join(cells.genes))
        runs = [[k, run, int(seeds[i * n_iter + run]), True] for i, k in enumerate(ks) for run in range(n_iter)]
        runs = pd.DataFrame(runs, columns=["n_components", "iter", "nmf_seed", "completed"]).astype(object)
        self.write_frame(runs, "cnmf_tmp", "nmf_params")

    def write_consensus(self, found: Programs, cells: Cells, k: int, threshold: float) -> None:
        label = f"k_{k}.dt_{str(threshold).replace('.', '_')}"
        self.write_frame(found.local_density, "cnmf_tmp", f"local_density_cache.k_{k}.merged")
        # A programme without genes, and a gene without deviation, are zero instead of 0 / 0.
        sums = divisor(found.gene_spectra_tpm.sum(axis=1))
        per_million = found.gene_spectra_tpm.div(sums, axis=0) * 1e6
        reference = (per_million / divisor(cells.tpm_std) * (cells.tpm_std > 0))[list(cells.genes)]
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
