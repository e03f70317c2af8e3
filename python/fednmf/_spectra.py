"""Spectra of several samples in one table: factorised here, or released by others and read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np

from . import _annotated, _run
from ._nmf import NMF

#: The levels of the index of a table.
INDEX = ["sample", "k", "component"]


def spectra(
    samples: Any,
    ks: Iterable[int] = range(4, 10),
    sample_key: Optional[str] = None,
    layer: Optional[str] = None,
    use_highly_variable: Optional[bool] = None,
    *,
    random_state: Any = 0,
    **params: Any,
) -> Any:
    """Factorises each sample alone, once for each k.

    The table is what a site may release for `metaprograms`: ``table.to_csv("north.csv")``.

    Parameters
    ----------
    samples : AnnData, or dict of str to AnnData or DataFrame
        Cells x genes of all samples, or of each.
    ks : iterable of int
    sample_key : str or None
        The column of ``adata.obs`` with the sample of each cell; cells without one are left out, with a warning.
    layer, use_highly_variable
        As in `nmf`, for AnnData.
    **params
        Of `fednmf.NMF`: beta_loss, max_iter, n_jobs, ...

    Returns
    -------
    DataFrame
        Programmes x genes, by (sample, k, component), with components numbered from 0.

    Raises
    ------
    ValueError
        If a sample has fewer cells than components, or `NMF` refuses its matrix.

    Examples
    --------
    >>> import anndata, numpy as np, fednmf
    >>> adata = anndata.AnnData(np.random.default_rng(0).random((40, 12)))
    >>> adata.obs["donor"] = ["a"] * 20 + ["b"] * 20
    >>> fednmf.tl.spectra(adata, ks=[2, 3], sample_key="donor").shape
    (10, 12)
    """
    checked = sorted({_run.count("ks", k) for k in ks})
    if not checked:
        raise ValueError("ks is empty: there must be a number of components")
    tables = []
    for sample, cells in by_sample(samples, sample_key).items():
        if _annotated.is_annotated(cells):
            X, used, _ = _annotated.chosen(cells, layer, use_highly_variable)
            genes = cells.var_names[used]
        else:
            X, genes = _annotated.values(cells, f"sample {sample!r}"), cells.columns
        if checked[-1] > min(X.shape):
            raise ValueError(
                f"sample {sample!r}: {checked[-1]} components are more than its {X.shape[0]} x {X.shape[1]} matrix allows; "
                "leave it out, or lower ks"
            )
        for k in checked:
            H = NMF(k, random_state=random_state, **params).fit(X).components_
            tables.append(_indexed(pandas().DataFrame(H, columns=genes), sample))
    return pandas().concat(tables)


def top_lists(spectra: Any, n_top: int = 50, specificity: float = 5.0) -> Any:
    """The top genes of each spectrum, which a site may release in place of the spectra.

    Parameters
    ----------
    spectra : DataFrame
        Of `spectra`: programmes x genes.
    n_top : int
        Genes of a list, at most.
    specificity : float
        A gene's weight is multiplied by the power of this of its largest share in one component of the same run, as in GeneNMF.

    Returns
    -------
    DataFrame
        Programmes x ranks (1 to `n_top`): names of genes; None where a spectrum has fewer.

    Examples
    --------
    >>> import anndata, numpy as np, fednmf
    >>> adata = anndata.AnnData(np.random.default_rng(0).random((40, 12)))
    >>> table = fednmf.tl.spectra({"north": adata}, ks=[2, 3])
    >>> fednmf.tl.top_lists(table, n_top=4).shape
    (5, 4)
    """
    if list(spectra.index.names) != INDEX:
        raise ValueError("spectra must be a table of fednmf.tl.spectra, whose index is sample, k and component")
    check(spectra)
    _run.at_least_zero("specificity", specificity)
    weights, n_top = weighted(spectra, specificity), min(_run.count("n_top", n_top), spectra.shape[1])
    order = np.argsort(-weights, axis=1, kind="stable")[:, :n_top]
    names = np.asarray(spectra.columns, dtype=object)[order]
    names[np.take_along_axis(weights, order, axis=1) == 0] = None
    return pandas().DataFrame(names, index=spectra.index, columns=np.arange(1, n_top + 1))


def check(table: Any) -> None:
    """Refuses spectra that have no cosine: missing or negative weights, or two of one gene."""
    values = table.to_numpy(float)
    for wrong, what in ((~np.isfinite(values), "missing or infinite"), (values < 0, "negative")):
        if wrong.any():
            row, gene = np.argwhere(wrong)[0]
            raise ValueError(f"{named(table, row)} has a weight that is {what}: that of gene {str(table.columns[gene])!r}")
    if table.columns.has_duplicates:
        twice = table.columns[table.columns.duplicated()][0]
        raise ValueError(f"the spectra of sample {table.index[0][0]!r} have gene {str(twice)!r} in two columns: give each gene one")


def named(table: Any, row: int) -> str:
    """A programme in a message."""
    sample, k, component = table.index[row]
    return f"component {component} of sample {sample!r} with k = {k}"


def weighted(table: Any, specificity: float) -> np.ndarray:
    """Each spectrum times the specificities of the genes in its run, with sum 1."""
    weights = shares(table.to_numpy(float))
    for rows in table.groupby(level=["sample", "k"]).indices.values():
        of_gene = shares(weights[rows].T).max(axis=1)
        weights[rows] *= of_gene**specificity
    return shares(weights)


def shares(values: np.ndarray) -> np.ndarray:
    """Each row with sum 1."""
    sums = values.sum(axis=1, keepdims=True)
    return values / np.where(sums > 0, sums, 1)


def by_sample(samples: Any, sample_key: Optional[str]) -> Mapping[str, Any]:
    """What there is of each sample, by its name."""
    if _annotated.is_annotated(samples):
        if sample_key is None:
            raise ValueError("give sample_key=, the column of adata.obs with the sample of each cell")
        if sample_key not in samples.obs:
            raise ValueError(f"sample_key={sample_key!r}: adata.obs has no such column; it tells the sample of each cell")
        of_cell = _annotated.labels(samples.obs[sample_key], f"sample_key={sample_key!r}")
        return {sample: samples[of_cell == sample] for sample in sorted(set(of_cell) - {None})}
    if isinstance(samples, Mapping):
        of_text = {str(sample): given for sample, given in samples.items()}
        if len(of_text) < len(samples):
            raise ValueError("two names of samples are the same as text, such as 1 and '1': give each sample a name of its own")
        return of_text
    if isinstance(samples, (str, Path)) or hasattr(samples, "columns"):
        samples = [samples]  # One table, perhaps of several samples.
    named = [(Path(given).stem if isinstance(given, (str, Path)) else str(i), given) for i, given in enumerate(samples)]
    if len(dict(named)) < len(named):
        raise ValueError("two files of samples have the same name: give a dict from samples to files")
    return dict(named)


def released(sample: str, given: Any) -> Any:
    """The table of what a site has released: a file or a table of spectra or top lists, or several with other k."""
    if isinstance(given, (str, Path)):
        given = _read(Path(given))
    elif isinstance(given, (list, tuple)) and given and not isinstance(given[0], (list, tuple)):
        return pandas().concat([released(sample, part) for part in given])
    return _indexed(pandas().DataFrame(given), sample)


def is_lists(table: Any) -> bool:
    """Whether a table has names of genes."""
    numbers = [dtype.kind in "fiu" for dtype in table.dtypes]
    mixed = [title for title, number in zip(table.columns, numbers) if number and not all(numbers) and table[title].notna().any()]
    if mixed:
        raise ValueError(f"a table has text and, in column {str(mixed[0])!r}, numbers: give spectra, or top lists of names alone")
    return not all(numbers)


def _read(path: Path) -> Any:
    if path.suffix in (".csv", ".tsv", ".txt"):
        return _table(path, "," if path.suffix == ".csv" else "\t")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            V, names = file["V"], file.get("column_names")
    elif path.suffix == ".h5":
        import h5py

        with h5py.File(path) as file:
            V, names = file["V"][:], file.attrs.get("column_names")
    else:
        raise ValueError(f"{path}: must be .csv, .tsv, .txt, or an output of the program, .h5 or .npz")
    genes = [str(i) for i in range(len(V))] if names is None else json.loads(str(names))
    return pandas().DataFrame(V.T, columns=genes)


def _table(path: Path, separator: str) -> Any:
    with path.open(newline="", encoding="utf-8-sig") as file:
        head = next(csv.reader(file, delimiter=separator), [])
    twice = sorted({title for title in head if head.count(title) > 1})
    if twice:
        raise ValueError(f"{path}: {twice[0]!r} is the title of two columns: give each gene one")
    # As pandas writes a table whose index was not set.
    unset = head[1:4] == INDEX
    head = head[1:] if unset else head
    of_index = 3 if head[:3] == INDEX else 1
    # Names of samples and genes stay text, also those of digits.
    is_lists = head[of_index:] == [str(rank) for rank in range(1, len(head) - of_index + 1)]
    kinds = str if is_lists else {"sample": str}
    table = pandas().read_csv(path, sep=separator, dtype=kinds, keep_default_na=False, na_values=[""])
    table = table.iloc[:, 1:] if unset else table
    if of_index == 3:
        return table.astype({"k": int, "component": int}).set_index(INDEX)
    first = table.columns[0]
    if head and head[0] not in ("", "index", "component", "programme", "program") and table[first].dtype.kind == "f":
        raise ValueError(f"{path}: its first column, {head[0]!r}, has numbers, and must have names of programmes")
    return table.set_index(first)


def _indexed(table: Any, sample: str) -> Any:
    if list(table.index.names) == INDEX:
        return table.rename(index=str, level="sample")
    titles = [*table.index.names, *table.columns]
    found = [title for title in INDEX if title in titles]
    if len(found) == len(INDEX):
        kept = table.reset_index() if any(name in INDEX for name in table.index.names) else table
        kept = kept.drop(columns=[title for title in kept.columns if str(title).startswith("Unnamed: ")])
        return _indexed(kept.astype({"k": int, "component": int}).set_index(INDEX), sample)
    if len(found) > 1:
        raise ValueError(
            f"the table of sample {sample!r} has {' and '.join(map(repr, found))} among its genes: read it with "
            "pandas.read_csv(FILE, index_col=[0, 1, 2]), or give the file"
        )
    index = [(sample, len(table), component) for component in range(len(table))]
    return table.set_axis(pandas().MultiIndex.from_tuples(index, names=INDEX))


def pandas() -> Any:
    try:
        import pandas
    except ImportError as e:
        raise ImportError("tables need pandas: pip install pandas") from e
    return pandas
