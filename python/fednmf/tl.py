"""Tools for AnnData, with the names of scanpy's."""

from __future__ import annotations

import numbers
import re
import warnings
from collections.abc import Iterable
from typing import Any, Literal, Optional

import numpy as np

from . import _annotated, _rows, _show
from ._choose_k import Callback, Consensus, KChoice, SearchMethod
from ._choose_k import choose_k as _choose_k
from ._cnmf import Programs, cnmf
from ._features import top_features
from ._fednmf import __version__
from ._metaprograms import MetaPrograms, metaprograms
from ._nmf import NMF, AnyLoss, checked_loss
from ._parts import Parts
from ._spectra import spectra, top_lists

#: The losses of the program's methods; beta-mu has it as an option.
_BETAS = {
    **dict.fromkeys(["hals", "bpp", "mu", "dsanls", "vr-dsanls", "online"], 2.0),
    **dict.fromkeys(["kl-mu", "kl-cd", "kl-online"], 1.0),
    "beta-mu": None,
}

__all__ = [
    "Consensus",
    "KChoice",
    "MetaPrograms",
    "Programs",
    "choose_k",
    "cnmf",
    "metaprograms",
    "nmf",
    "project",
    "spectra",
    "top_features",
    "top_lists",
]


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
        Use the genes of `adata.var["highly_variable"]` alone; None: if there is such a column, with a warning.
    copy : bool
        Return a copy with the factors instead.
    **params
        Of `fednmf.NMF`: beta_loss, max_iter, n_jobs, ... For counts with a divergence, its 200 iterations may end before `tol`: give
        max_iter=1000, as the program has.

    Returns
    -------
    None, or the copy. Sets ``obsm["X_nmf"]`` (cells x components), ``varm["NMF"]`` (genes x components; zeros for genes that were
    not used) and ``uns["nmf"]`` (parameters with the seed, reconstruction error, number of iterations, version of fednmf).

    Raises
    ------
    ValueError
        If the layer or the column does not exist, or NMF refuses the matrix or a parameter.

    See Also
    --------
    project : Weights of other cells for the same components.
    choose_k : Which number of components the data support.
    cnmf, metaprograms : Programmes that many runs, or many samples, have in common.

    Examples
    --------
    >>> import anndata, numpy as np, fednmf
    >>> rng = np.random.default_rng(0)
    >>> counts = rng.poisson(rng.gamma(1, 1, (300, 4)) @ rng.gamma(1, 1, (4, 80)))
    >>> adata = anndata.AnnData(counts.astype("float32"))
    >>> fednmf.tl.nmf(adata, n_components=4, beta_loss="kullback-leibler", max_iter=1000)
    >>> adata.obsm["X_nmf"].shape, adata.varm["NMF"].shape
    ((300, 4), (80, 4))
    """
    adata = adata.copy() if copy else adata
    _rows.check_writable(adata)
    X, used, use_highly_variable = _annotated.chosen(adata, layer, use_highly_variable)
    model = NMF(n_components, random_state=random_state, **params)
    loss = checked_loss(model.beta_loss)
    _warn_of_logarithms(adata, X, layer, loss)
    if isinstance(n_components, numbers.Integral) and n_components > min(X.shape):
        _show.warn(f"n_components={n_components}: {X.shape[0]} cells and {X.shape[1]} genes determine at most {min(X.shape)} components")
    if isinstance(X, Parts) and loss not in (1, 2):
        raise ValueError(
            f"beta_loss={model.beta_loss!r} needs the matrix in memory, and it is read by parts: call adata.to_memory() first, or take "
            "'frobenius' or 'kullback-leibler'"
        )
    cells = model.fit_transform(X)
    about = {
        "params": {
            **model._penalties(),
            "n_components": model.n_components_,
            "layer": "X" if layer is None else layer,
            "use_highly_variable": use_highly_variable,
            "solver": model.solver,
            "beta_loss": model.beta_loss,
            # The weights of the L1 and the L2 norm of a cell's row of W.
            "penalty": list(model._penalty_on_W(X.shape[1])),
            "max_iter": model.max_iter,
            "tol": model.tol,
            **({"init": model.init} if model.init else {}),
            **_seed(random_state),
        },
        "reconstruction_err": model.reconstruction_err_,
        "n_iter": model.n_iter_,
    }
    _store(adata, cells, model.components_, used, loss, about)
    return adata if copy else None


def _store(adata: Any, W: np.ndarray, H: np.ndarray, used: np.ndarray, beta: float, about: dict[str, Any]) -> None:
    """Stores factors as a result that `project`, `fednmf.pl` and the program read."""
    genes = np.zeros((adata.n_vars, H.shape[0]), dtype=H.dtype)
    genes[used] = H.T
    adata.obsm["X_nmf"], adata.varm["NMF"] = W, genes
    params = {"beta": float(beta), **about["params"]}
    # The program knows the loss by the method, and its beta.
    algo = {2.0: "mu" if params.get("solver") == "mu" else "hals", 1.0: "kl-mu"}.get(beta, "beta-mu")
    adata.uns["nmf"] = {**about, "params": params, "algo": algo, "version": __version__}


def _seed(random_state: Any) -> dict[str, int]:
    """The seed for `uns`, which cannot hold a generator."""
    return {"random_state": int(random_state)} if isinstance(random_state, numbers.Integral) else {}


def _warn_of_logarithms(adata: Any, X: Any, layer: Optional[str], beta: Optional[float]) -> None:
    if beta != 1:
        return
    marked = layer is None and "log1p" in adata.uns
    if marked or _annotated.has_logarithms(X):
        where = "adata.X" if layer is None else f"layer {layer!r}"
        what = "has logarithms (adata.uns['log1p'])" if marked else "looks like logarithms of counts (log1p)"
        warnings.warn(
            f"the Kullback-Leibler divergence is for counts, and {where} {what}; give layer= with the counts, or use the squared error",
            UserWarning,
            stacklevel=3,
        )


def project(
    adata: Any,
    reference: Any,
    layer: Optional[str] = None,
    *,
    min_gain: Optional[float] = None,
    n_jobs: Optional[int] = None,
) -> None:
    """Weights of new cells for the components of `reference`, which `nmf` has factorised: ``adata.obsm["X_nmf"]``.

    With them `adata` gets the components, as far as it has their genes, in ``varm["NMF"]``, and ``uns["nmf"]`` of the reference.

    Genes are matched by name: those that `adata` lacks are left out of the fit, and others than those of `reference` are ignored,
    with a warning that counts both. The weights are the minimiser of the loss and the penalty with which `nmf` was called. For the
    cells of `reference` they are those of its ``obsm["X_nmf"]``, but for a beta below 1 or above 2, where `nmf` keeps those of its
    last iteration. `reference` may also be an AnnData that the program wrote (--output, --add-to), which has those of the last
    iteration too. Where genes are missing, the weights of all components change: ``1 - adata.varm["NMF"].sum(axis=0) /
    reference.varm["NMF"].sum(axis=0)`` is the part that each one lost. With `layer` None the layer is
    that of the reference ("X": none), or with a warning `adata.X` if `adata` lacks it. With `min_gain` each cell has few components,
    as in `fednmf.NMF.transform`.

    Raises
    ------
    ValueError
        If `reference` has no components, or no gene in common with `adata`.

    Examples
    --------
    >>> import anndata, numpy as np, fednmf
    >>> counts = np.random.default_rng(0).poisson(2, (300, 40)).astype("float32")
    >>> old, new = anndata.AnnData(counts[:200]), anndata.AnnData(counts[200:])
    >>> fednmf.tl.nmf(old, n_components=3, max_iter=50)
    >>> fednmf.tl.project(new, old)
    >>> new.obsm["X_nmf"].shape
    (100, 3)
    """
    if not hasattr(reference, "varm"):
        raise TypeError(
            f"reference is a {type(reference).__name__}: give an AnnData that fednmf.tl.nmf has factorised"
        )
    if "NMF" not in reference.varm:
        raise ValueError("the reference has no components in varm['NMF']: run fednmf.tl.nmf on it first")
    if "params" not in reference.uns.get("nmf", {}):
        raise ValueError(
            "the reference has no uns['nmf'], which tells the loss of its components; for components of your own set "
            "reference.uns['nmf'] = {'params': {'beta_loss': 'kullback-leibler'}}, or 'frobenius'"
        )
    components = np.asarray(reference.varm["NMF"])
    if not (np.isfinite(components).all() and (components >= 0).all()):
        raise ValueError(
            "reference.varm['NMF'] has entries that are not finite numbers of at least 0, as scores are: give components, such as "
            "gene_spectra_tpm of cNMF's results"
        )
    if not components.any():
        raise ValueError("the components of the reference are all zero: factorise it with a smaller penalty")
    used = _factorised(reference, components)
    names = reference.var_names[used]
    _rows.check_writable(adata)
    for what, index in (("adata", adata.var_names), ("the reference", reference.var_names)):
        if not index.is_unique:
            raise ValueError(f"names of genes in {what} are not unique: call var_names_make_unique() first")
    where = adata.var_names.get_indexer(names)
    common = where >= 0
    if not common.any():
        raise ValueError(f"adata has none of the {len(names)} genes of the components: {names[0]}, ...")
    # The reference may have genes that were not used for its components.
    others = (reference.var_names.get_indexer(adata.var_names) < 0).sum()
    differences = []
    if not common.all():
        weights = np.abs(components[used].astype(np.float64))
        shares = weights[~common].sum(axis=0) / np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
        lost = f"{100 * shares.max():.1f} % of the weight of component {shares.argmax()}"
        if len(shares) > 1:
            lost += f", and at most {100 * np.sort(shares)[-2]:.1f} % of that of any other"
        differences.append(
            f"{(~common).sum()} of the {len(names)} genes of the components are missing in adata, and are left out of the fit "
            f"(they carry {lost})"
        )
    if others:
        differences.append(f"{others} genes of adata are not in the reference, and are ignored")
    if differences:
        warnings.warn("; ".join(differences), UserWarning, stacklevel=2)
    beta_loss, penalty, divisor = _fitted(reference.uns["nmf"])
    layer = _layer_of(reference.uns["nmf"]["params"], adata) if layer is None else layer
    model = NMF(beta_loss=beta_loss, n_jobs=n_jobs)
    model.components_ = np.ascontiguousarray(components[used][common].T)
    model.n_components_, model.n_features_in_ = components.shape[1], int(common.sum())
    X = _annotated.of_genes(adata, None if layer == "X" else layer, where[common])
    _warn_of_logarithms(adata, X, None if layer == "X" else layer, checked_loss(beta_loss))
    X = model._checked(X, reset=False)
    scale = X.dtype.type(divisor)
    parts = (X[rows] for rows in X.slices()) if isinstance(X, Parts) else [X]
    found = [model._project(part if divisor == 1 else part / scale, penalty, min_gain) for part in parts]
    genes = np.zeros((adata.n_vars, components.shape[1]), dtype=components.dtype)
    genes[where[common]] = components[used][common]
    # Earlier projections may have left out some of the genes that are there.
    left_out = min(int(reference.uns["nmf"].get("columns_ignored", 0)), int((~genes[where[common]].any(axis=1)).sum()))
    about = _about_projected(reference, adata, int(others) + left_out)
    if "X_nmf" in reference.obsm and "balance" not in about:
        # As the program's project: by what weights are multiplied before those of different components are compared.
        with np.errstate(divide="ignore", invalid="ignore"):
            norms = [np.linalg.norm(np.asarray(of), axis=0) for of in (components, reference.obsm["X_nmf"])]
            about["balance"] = np.sqrt(norms[0].astype(np.float64) / norms[1])
    adata.obsm["X_nmf"], adata.varm["NMF"], adata.uns["nmf"] = np.concatenate(found), genes, about


def _about_projected(reference: Any, adata: Any, without_component: int) -> dict[str, Any]:
    """uns["nmf"] for factors of `adata`: penalties count for each cell and gene, and those on the cells are as they were."""
    about = dict(reference.uns["nmf"])
    params, new = dict(about["params"]), {"m": adata.n_obs, "n": adata.n_vars}
    old = {"m": reference.n_obs, "n": reference.n_vars, **{size: int(about[size]) for size in new if size in about}}
    if params.get("alpha_v") == "same":
        params["alpha_v"] = params["alpha_u"]
    for name, size in (("alpha_u", "n"), ("alpha_v", "m")):
        if name in params:
            params[name] = float(params[name]) * old[size] / new[size]
    about |= {"params": params, **{size: new[size] for size in new if size in about}}
    about.pop("columns_ignored", None)
    return {**about, "columns_ignored": without_component} if without_component else about


def _factorised(reference: Any, components: np.ndarray) -> np.ndarray:
    """The genes that were factorised, of which a penalty may have left a row of zeros."""
    params, used = reference.uns["nmf"]["params"], components.any(axis=1)
    if params.get("feature_type") is not None:
        return used
    selected = params.get("use_highly_variable", params.get("highly_variable", False))
    if not selected:
        return np.ones_like(used)
    return used | _annotated.truth(reference.var["highly_variable"]) if "highly_variable" in reference.var else used


def _layer_of(params: Any, adata: Any) -> str:
    """The layer that was factorised, if `adata` has it, else "X"."""
    # The program writes its input: FILE, or FILE:DATASET.
    dataset = re.search(r"\.(?:h5ad|h5mu|zarr):/?(?:mod/[^/]+/)?(?:layers/)?(.+)$", str(params.get("input", "")))
    layer = str(params.get("layer", dataset[1] if dataset else "X"))
    if layer == "X" or layer in adata.layers:
        return layer
    warnings.warn(
        f"the reference was factorised from its layer {layer!r}, which adata lacks, so adata.X is used; layer='X' says that this is meant",
        UserWarning,
        stacklevel=3,
    )
    return "X"


def _fitted(about: Any) -> tuple[Any, tuple[float, float], float]:
    """The loss and the penalty on W of stored components, and what their data were divided by."""
    params = about["params"]
    if "beta_loss" in params:
        l1, l2 = params.get("penalty", (0.0, 0.0))
        return params["beta_loss"], (float(l1), float(l2)), 1.0
    # The program wrote them.
    algo, of_columns = str(about["algo"]), str(about.get("V")) == "varm/NMF"
    if algo not in _BETAS or not of_columns or params.get("missing", "none") != "none" or params.get("binarize") is not None:
        raise ValueError(
            f"the components of the reference are of the program's {algo} with options that project does not know (missing entries, "
            "ones of a threshold, genes as rows, parties): use `fednmf project FACTORS --input CELLS`"
        )
    penalty, l1_ratio = float(params.get("alpha_u", 0.0)) * int(about["n"]), float(params.get("l1_ratio", 0.0))
    beta = float(params["beta"]) if algo == "beta-mu" else _BETAS[algo]
    return beta, (penalty * l1_ratio, penalty * (1 - l1_ratio)), float(params.get("scale_divisor", 1.0))


def choose_k(
    data: Any,
    ks: Iterable[int],
    n_runs: int = 10,
    layer: Optional[str] = None,
    use_highly_variable: Optional[bool] = None,
    *,
    method: Optional[SearchMethod] = None,
    beta_loss: Optional[AnyLoss] = None,
    holdout: Optional[float] = None,
    resample: Optional[Literal["poisson", "multinomial"]] = None,
    criterion: Optional[Literal["sigprofiler"]] = None,
    max_iter: Optional[int] = None,
    tol: float = 1e-4,
    random_state: Any = 0,
    n_jobs: Optional[int] = None,
    callback: Optional[Callback] = None,
    verbose: int = 0,
) -> KChoice:
    """Tries several numbers of components, each from several starts with other entries held out, and recommends one.

    The numbers are those of ``fednmf sweep`` for the same matrix, method and seed. The arithmetic is float64.

    Parameters
    ----------
    data : AnnData, array or sparse matrix
        Samples x features.
    ks : iterable of int
        Numbers of components: range(2, 20), [5, 10, 20].
    n_runs : int
        Runs for each.
    layer, use_highly_variable
        As in `nmf`, for AnnData.
    method : "hals", "mu", "auto", "bpp", "kl-mu", "kl-cd", "dsanls" or None
        None: "hals", or "auto" with a `beta_loss`. The error of "kl-mu" and "kl-cd" is the Kullback-Leibler divergence; on
        held-out entries its mean.
    beta_loss : str, float or None
        The loss to minimise, as in `fednmf.NMF`, by the method that "auto" chooses for it. A method that is named has its own.
    holdout : float or None
        Share of the entries that a run does not see; None: 0.05, or 0 for a divergence and a matrix that is read by parts. With 0
        each run is faster, and stability and error decide.
    resample : "poisson", "multinomial" or None
        Factorise in each run a copy of the counts, drawn by its seed around them: each from a Poisson distribution, or those of a row
        from the multinomial distribution with its total. Errors and consensus are those on the counts themselves.
    criterion : "sigprofiler" or None
        Choose k by the rule of SigProfilerExtractor: the smallest with stable components that fits the samples as well as the largest
        such k. It is for divergences. None: by held-out entries, or the elbow of the loss, and stability.
    max_iter, tol
        A run ends after `max_iter` iterations (None: 200, or 1000 for a divergence), or when in ten its error falls by less than
        `tol` times the first one, a divergence by less than `tol` times the last one. The default of `NMF` and `cnmf` is ten times
        as fine: it is `tol=1e-5` here.
    random_state : int, RandomState or None
        A whole number is the seed of the first run, and the next ones count on.
    callback : callable or None
        Called with k, the run, the iteration and the last measures at each evaluation and about four times a second; an exception ends the
        search.
    verbose : int
        Print the progress.

    Returns
    -------
    KChoice
        `table`, `recommended`, `for_prediction`, `for_interpretation`, `reasons`, `warnings`, `consensus` (factors of the number for
        interpretation, or if there is none, of the recommended one) and `similarities`; `fednmf.pl` plots them. For AnnData
        table, answers and options are in ``uns["nmf_choose_k"]`` too, and the consensus replaces the result of `nmf`: in ``obsm["X_nmf"]``,
        ``varm["NMF"]`` and ``uns["nmf"]``. If no number has stable components, this is warned of.

    Raises
    ------
    ValueError
        If a number of components is larger than the matrix, an option is wrong, or entries are negative or not finite.

    Examples
    --------
    >>> import numpy as np, fednmf
    >>> rng = np.random.default_rng(3)
    >>> X = np.kron(np.eye(4), rng.random((25, 1))) @ np.kron(np.eye(4), rng.random((1, 15))) + 0.01 * rng.random((100, 60))
    >>> found = fednmf.tl.choose_k(X, ks=range(2, 7), n_runs=3)
    >>> found.recommended
    4
    >>> found.consensus.H.shape
    (4, 60)
    """
    annotated = _annotated.is_annotated(data)
    if not annotated and (layer is not None or use_highly_variable is not None):
        raise ValueError("layer and use_highly_variable are for AnnData, not for a matrix")
    if annotated:
        _rows.check_writable(data)
        X, used, use_highly_variable = _annotated.chosen(data, layer, use_highly_variable)
        beta = _BETAS.get(method or "hals", 2.0) if beta_loss is None else checked_loss(beta_loss)
        _warn_of_logarithms(data, X, layer, beta)
        names = data.var_names[used]
    else:
        # `columns` of a table of Arrow are its entries.
        X, names = data, getattr(data, "columns" if hasattr(data, "iloc") else "column_names", getattr(data, "columns", None))
    found = _choose_k(
        X,
        ks,
        n_runs,
        method=method,
        beta_loss=beta_loss,
        holdout=holdout,
        resample=resample,
        criterion=criterion,
        max_iter=max_iter,
        tol=tol,
        random_state=random_state,
        n_jobs=n_jobs,
        callback=callback,
        verbose=verbose,
    )
    found.feature_names = None if names is None else [str(name) for name in names]
    if annotated:
        stored: dict[str, Any] = {"table": {name: found.column(name) for name in found.table}}
        answers = {name: getattr(found, name) for name in ("recommended", "for_prediction", "for_interpretation")}
        stored |= {name: k for name, k in answers.items() if k is not None}
        options = {"n_runs": n_runs, "method": method, "beta_loss": beta_loss, "holdout": holdout, "resample": resample}
        options |= {"criterion": criterion, "max_iter": max_iter, "tol": tol, **_seed(random_state)}
        # AnnData cannot keep None.
        stored["params"] = {name: value for name, value in options.items() if value is not None}
        data.uns["nmf_choose_k"] = stored
        if found.consensus is not None:
            about = {
                "params": {
                    "n_components": len(found.consensus.H),
                    "layer": "X" if layer is None else layer,
                    "use_highly_variable": use_highly_variable,
                    "consensus_of": n_runs,
                    "beta_loss": beta,
                    "penalty": [0.0, 0.0],
                    **({"method": method} if method else {}),
                    **_seed(random_state),
                },
            }
            _store(data, found.consensus.W, found.consensus.H, used, beta, about)
            if found.for_interpretation is None and n_runs > 1:
                _show.warn("no number has stable components: those that are stored are means of unlike ones; do not read much into them")
    return found
