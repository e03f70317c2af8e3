"""fednmf.NMF and MiniBatchNMF beside scikit-learn's classes, NMF in its tests, IntegrativeNMF beside pyliger, fednmf.tl.cnmf beside cNMF."""

from __future__ import annotations

import argparse
import datetime
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from lib import matrices
from lib.datasets import BUNDLED, SETS
from lib.program import cpu_model

#: Seconds after which a fit is not repeated.
SLOW = 15.0

#: Images of MNIST that are factorised.
MNIST_ROWS = 10_000


def _mnist(path):
    import gzip

    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)[:MNIST_ROWS].astype(np.float64)


def _cells(path):
    return sp.csr_matrix(scipy.io.mmread(path).T, dtype=np.float64)


def _generated(_):
    """20000 cells x 2000 genes, where the bundled and public sets have fewer cells."""
    counts, _ = matrices.cells(20260105, (20_000, 2000), 1500)
    return sp.csr_matrix((counts.values, counts.columns, counts.starts), counts.shape)


#: Name, number of components, how the file is read.
MATRICES = {
    "digits": (16, lambda path: np.load(path).astype(np.float64)),
    "faces": (40, lambda path: np.load(path).astype(np.float64)),
    "mnist": (40, _mnist),
    "cells": (10, _cells),
    "generated cells": (20, _generated),
}


HELP = "nmf, batches, joint: the estimators; tests: scikit-learn's own tests with fednmf.NMF; cnmf: programmes of cells"


def main(arguments):
    parser = argparse.ArgumentParser(prog="bench/run python", description=__doc__)
    parser.add_argument("what", choices=["nmf", "batches", "joint", "tests", "cnmf"], help=HELP)
    parser.add_argument("--data", type=Path, default=os.environ.get("FEDNMF_DATA"), help="folder of the public sets")
    parser.add_argument("--repeats", type=int, default=5, help="of each fit; the median time counts (default: 5)")
    parser.add_argument("--jobs", type=int, default=1, help="threads of either (default: 1)")
    parser.add_argument("--runs", type=int, default=20, help="runs of cNMF for each k (default: 20)")
    parser.add_argument("-k", type=int, nargs="+", default=[4, 6, 8], help="numbers of programmes (default: 4 6 8)")
    parser.add_argument("--busy", action="store_true", help="no times: others use the machine")
    options = parser.parse_args(arguments)
    return {"nmf": _estimators, "batches": _batches, "joint": _joint, "tests": _tests, "cnmf": _programmes}[options.what](options)


def _path(name, options):
    if name == "digits":
        return BUNDLED
    if name not in SETS:
        return None
    path = Path(options.data or "", SETS[name].file)
    return path if options.data and path.exists() else None


def _estimators(options):
    import sklearn
    from sklearn.decomposition import NMF as SklearnNMF
    from threadpoolctl import threadpool_limits

    import fednmf

    print("# fednmf.NMF and scikit-learn's NMF\n\n```sh\nPYTHON bench/run python nmf --data DIR\n```\n")
    versions = f"fednmf {fednmf.__version__}, scikit-learn {sklearn.__version__}"
    print(f"{versions}, {'one thread' if options.jobs == 1 else f'{options.jobs} threads'} each, on {cpu_model()}, {datetime.date.today():%-d %B %Y}.\n")
    head = ["matrix", "loss", "k", "scikit-learn", "fednmf", "iterations"]
    head += [] if options.busy else ["seconds", "as good after"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for name, (k, read) in MATRICES.items():
        path = _path(name, options)
        if path is None and name in SETS:
            print(f"| {name} | no {SETS[name].file} below --data |" + " |" * (len(head) - 2))
            continue
        X = read(path)
        for loss, theirs in [
            ("frobenius", {"solver": "cd"}),
            ("kullback-leibler", {"solver": "mu", "init": "nndsvda"}),
        ]:
            common = {"beta_loss": loss, "random_state": 0}
            repeats = 1 if options.busy else options.repeats
            with threadpool_limits(options.jobs):
                their = _fitted(lambda common=common, theirs=theirs: SklearnNMF(k, **common, **theirs), X, repeats)
            our = _fitted(lambda common=common: fednmf.NMF(k, n_jobs=options.jobs, **common), X, repeats)
            (their_error, their_steps, their_seconds), (our_error, our_steps, our_seconds) = their, our
            row = [f"{name}, {X.shape[0]} x {X.shape[1]}", loss, str(k), f"{their_error:.6g}", f"{our_error:.6g}", f"{their_steps} / {our_steps}"]
            if not options.busy:
                reached = _seconds_to(their_error, 2 * their_seconds, X, k, common, options)
                row += [f"{their_seconds:.2f} / {our_seconds:.2f}", reached]
            print("| " + " | ".join(row) + " |", flush=True)


def _fitted(make, X, repeats):
    """The error of a fit, its iterations, and the median of its seconds; slow fits are not repeated."""
    import warnings

    seconds = []
    while len(seconds) < repeats and sum(seconds) < SLOW:
        model = make()
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X)
        seconds.append(time.perf_counter() - began)
    return model.reconstruction_err_, model.n_iter_, float(np.median(seconds))


def _seconds_to(error, most, X, k, common, options):
    """The median seconds of the shortest fit of fednmf, by doubling its iterations, that is as good; "-" if none of less
    than `most` seconds is."""
    import fednmf

    for iterations in [10 * 2**i for i in range(10)]:
        make = lambda: fednmf.NMF(k, n_jobs=options.jobs, max_iter=iterations, tol=0, **common)  # noqa: B023, E731
        found, _, seconds = _fitted(make, X, 1)
        if found <= error:
            return f"{_fitted(make, X, options.repeats)[2]:.2f}"
        if seconds > most:
            break
    return "-"


def _in_order(X):
    """X with its rows by their largest column, as joined files are sorted by type."""
    return X[np.argsort(np.asarray(X.argmax(axis=1)).ravel(), kind="stable")]


def _batches(options):
    """Mini-batches: the error with the defaults, and the time to 1.01 times the lowest error of either class."""
    import sklearn
    from sklearn.decomposition import MiniBatchNMF as SklearnMiniBatchNMF
    from threadpoolctl import threadpool_limits

    import fednmf

    print("# fednmf.MiniBatchNMF and scikit-learn's MiniBatchNMF\n\n```sh\nPYTHON bench/run python batches --data DIR\n```\n")
    print(f"fednmf {fednmf.__version__}, scikit-learn {sklearn.__version__}, one thread each, on {cpu_model()}, {datetime.date.today():%-d %B %Y}.\n")
    head = ["matrix", "loss", "k", "error by default", "passes", "seconds", "lowest error", "seconds to 1.01 times it"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for name, (k, read) in MATRICES.items():
        path = _path(name, options)
        if path is None and name in SETS:
            continue
        given = read(path)
        orders = {name: given, f"{name}, sorted": _in_order(given)} if sp.issparse(given) else {name: given}
        for title, X in orders.items():
            for loss in ("frobenius", "kullback-leibler"):
                make = [
                    lambda loss=loss, **more: SklearnMiniBatchNMF(k, beta_loss=loss, random_state=0, **more),  # noqa: B023
                    lambda loss=loss, **more: fednmf.MiniBatchNMF(k, beta_loss=loss, random_state=0, n_jobs=1, **more),  # noqa: B023
                ]
                with threadpool_limits(1):
                    defaults = [_fitted(one, X, 1) for one in make]
                    curves = [_by_passes(one, X) for one in make]
                lowest = min(error for curve in [*curves, [(error, 0.0) for error, *_ in defaults]] for error, _ in curve)
                reached = [next((f"{seconds:.2f}" for error, seconds in curve if error <= 1.01 * lowest), "-") for curve in curves]
                row = [f"{title}, {X.shape[0]} x {X.shape[1]}", loss, str(k)]
                row += [" / ".join(f"{one[0]:.6g}" for one in defaults), " / ".join(str(one[1]) for one in defaults)]
                row += [" / ".join(f"{one[2]:.2f}" for one in defaults), f"{lowest:.6g}", " / ".join(reached)]
                print("| " + " | ".join(row) + " |", flush=True)


def _by_passes(make, X):
    """The error and the seconds of fits with 1, 2, 4, ... passes, up to those that are slow."""
    curve = []
    for passes in [2**i for i in range(9)]:
        error, _, seconds = _fitted(lambda: make(max_iter=passes, tol=0, max_no_improvement=None), X, 1)  # noqa: B023
        curve.append((error, seconds))
        if seconds > SLOW:
            break
    return curve


def _pbmc():
    """The control and the stimulated cells that pyliger comes with: parts of a cell's counts in the 2000 genes that vary most."""
    import anndata
    import pyliger

    folder = Path(pyliger.__file__).parent / "datasets"
    found = [anndata.read_h5ad(folder / f"PBMC_{name}.h5ad") for name in ("control", "interferon-stimulated")]
    found = [one[:, ~one.var_names.duplicated()] for one in found]
    genes = found[0].var_names.intersection(found[1].var_names)
    sets = []
    for one in found:
        counts = sp.csr_matrix(one[:, genes].X, dtype=np.float64)
        counts.sort_indices()
        sets.append(sp.csr_matrix(sp.diags(1 / np.maximum(counts.sum(axis=1).A1, 1)) @ counts))
    stacked = sp.vstack(sets)
    means = stacked.mean(axis=0).A1
    spread = (stacked.multiply(stacked).mean(axis=0).A1 - means**2) / np.maximum(means, 1e-12)
    chosen = np.sort(np.argsort(-spread)[:2000])
    return [one[:, chosen] for one in sets]


def _cortex():
    """Generated cells, as many as in the two data sets of the mouse cortex with which online iNMF was published."""
    sets = []
    for seed, cells in enumerate((156_167, 99_186)):
        parts = []
        for first in range(0, cells, 20_000):
            counts, _ = matrices.cells(20260105 + seed, (min(20_000, cells - first), 2000), 400)
            parts.append(sp.csr_matrix((counts.values, counts.columns, counts.starts), counts.shape, dtype=np.float64))
        sets.append(sp.vstack(parts, format="csr"))
    return sets


def _by_root_mean_square(X):
    """X with columns divided by their root mean square, as LIGER scales data."""
    squares = np.bincount(X.indices, X.data**2, X.shape[1])
    scaled = X.data / np.sqrt(squares / (X.shape[0] - 1))[X.indices]
    return sp.csr_matrix((scaled, X.indices, X.indptr), X.shape)


def _joint(options):
    """Online iNMF: the objective, seconds and peak memory with pyliger's defaults, and the time to 1.01 times the lowest objective."""
    from threadpoolctl import threadpool_limits

    import fednmf

    print("# fednmf.IntegrativeNMF and online_iNMF of pyliger\n\n```sh\nPYTHON bench/run python joint\n```\n")
    print(f"fednmf {fednmf.__version__}, pyliger {metadata.version('pyliger')}, one thread each, on {cpu_model()}, {datetime.date.today():%-d %B %Y}.\n")
    head = ["data sets", "passes", "objective", "seconds", "MiB beyond the data", "lowest objective", "seconds to 1.01 times it"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for name, read in (("PBMC, control and stimulated", _pbmc), ("generated cells", _cortex)):
        sets = [_by_root_mean_square(X) for X in read()]
        curves = []
        for fit in (_pyliger, _integrative):
            curve = []
            with threadpool_limits(1):
                for passes in (5, 1, 2, 10):
                    curve.append((passes, *_measured_fit(fit, sets, passes)))
                    if curve[-1][2] > 20 * SLOW:
                        break
            curves.append(curve)
        lowest = min(objective for curve in curves for _, objective, *_ in curve)
        first = [next((f"{seconds:.1f}" for _, objective, seconds, _ in sorted(curve) if objective <= 1.01 * lowest), "-") for curve in curves]
        defaults = [curve[0] for curve in curves]
        row = [f"{name}: {' and '.join(f'{X.shape[0]} x {X.shape[1]}' for X in sets)}", " / ".join(str(one[0]) for one in defaults)]
        row += [" / ".join(f"{one[1]:.6g}" for one in defaults), " / ".join(f"{one[2]:.1f}" for one in defaults)]
        row += [" / ".join(f"{one[3]:.0f}" for one in defaults), f"{lowest:.6g}", " / ".join(first)]
        print("| " + " | ".join(row) + " |", flush=True)


def _pyliger(sets, passes):
    """H of each data set, and W and V of LIGER (genes x k)."""
    import anndata
    import pyliger
    from pyliger.factorization._online_iNMF import online_iNMF

    adatas = []
    for place, X in enumerate(sets):
        adata = anndata.AnnData(X, uns={"sample_name": str(place)}, layers={"scale_data": X})
        adata.uns["var_gene_idx"] = np.arange(X.shape[1])
        adatas.append(adata)
    liger = pyliger.pyliger.Liger(adatas)
    liger.var_genes = adatas[0].var_names
    began = time.perf_counter()
    online_iNMF(liger, k=20, value_lambda=5.0, max_epochs=passes, miniBatch_size=5000, rand_seed=1, verbose=False)
    return time.perf_counter() - began, [(one.obsm["H"], one.varm["W"], one.varm["V"]) for one in adatas]


def _integrative(sets, passes):
    import fednmf

    began = time.perf_counter()
    model = fednmf.IntegrativeNMF(20, own_penalty=5.0, batch_size=5000, max_iter=passes, tol=0, random_state=1, n_jobs=1)
    weights = model.fit_transform(sets)
    owns = model.own_components_
    return time.perf_counter() - began, [(W, model.components_.T, owns[place].T) for place, W in enumerate(weights)]


def _measured_fit(fit, sets, passes):
    """The objective of a fit, its seconds, and its peak memory beyond that at the start in MiB."""
    judged = lambda fitted: (fitted[0], sum(map(_part_of_objective, sets, fitted[1])))  # noqa: E731
    (seconds, objective), peak, _ = _in_a_process(lambda: fit(sets, passes), judged)
    return objective, seconds, peak


def _in_a_process(step, then=lambda found: found):
    """What `then` makes of what a step returns, the step's peak memory in MiB beyond that at its start, and the resources used, of a
    process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(2, 1)
            resident = _resident("VmRSS")
            found = step()
            peak = _resident("VmHWM") - resident
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump((then(found), peak), pipe)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit("a step failed")
    return (*pickle.loads(answer), used)


def _resident(name):
    """MiB of this process: VmRSS at present, VmHWM at the most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _part_of_objective(X, found):
    """Of a data set, with the weight 5 of its own part."""
    W, shared, own = found
    gram, sum_of = W.T @ W, shared + own
    residual2 = X.data @ X.data - 2 * ((X @ sum_of) * W).sum() + (gram * (sum_of.T @ sum_of)).sum()
    return 0.5 * residual2 + 0.5 * 5.0 * (gram * (own.T @ own)).sum()


def _tests(_):
    """scikit-learn's tests of NMF, which import fednmf's class under that name."""
    with tempfile.TemporaryDirectory() as folder:
        plugin = "import sklearn.decomposition\nimport fednmf\nsklearn.decomposition.NMF = fednmf.NMF\n"
        Path(folder, "in_place.py").write_text(plugin)
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "in_place", "-p", "no:cacheprovider"]
        command += ["--pyargs", "sklearn.decomposition.tests.test_nmf", "-k", "not minibatch and not MiniBatch"]
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, check=False)


def _measured(step):
    """Seconds of the processor, seconds, and peak memory in MiB beyond that at the start, of a step in a process of its own."""
    began = time.perf_counter()
    _, peak, used = _in_a_process(step, lambda _: None)
    return used.ru_utime + used.ru_stime, time.perf_counter() - began, peak


def _programmes(options):
    import anndata
    import cnmf
    from scipy.optimize import linear_sum_assignment

    import fednmf

    path = _path("cells", options)
    if path is None:
        raise SystemExit(f"no {SETS['cells'].file} below --data")
    adata = anndata.AnnData(_cells(path).astype(np.float32))
    adata.obs_names = [f"cell{i}" for i in range(adata.n_obs)]
    adata.var_names = [f"gene{i}" for i in range(adata.n_vars)]
    # As cNMF asks: no empty cells or genes.
    adata = adata[np.asarray(adata.X.sum(axis=1)).ravel() >= 5, np.asarray(adata.X.sum(axis=0)).ravel() >= 5].copy()
    genes = min(300, adata.n_vars)
    adata = adata[np.asarray((adata.X > 0).sum(axis=1)).ravel() >= 5].copy()
    print("# fednmf.tl.cnmf and cNMF\n\n```sh\nPYTHON bench/run python cnmf --data DIR\n```\n")
    versions = f"fednmf {fednmf.__version__}, cNMF {metadata.version('cnmf')}"
    print(f"{versions}, one thread each, on {cpu_model()}, {datetime.date.today():%-d %B %Y}.\n")
    print(f"{adata.n_obs} cells x {adata.n_vars} genes, {genes} of them factorised, {options.runs} runs\n")
    with tempfile.TemporaryDirectory() as folder:
        adata.write_h5ad(Path(folder, "cells.h5ad"))
        theirs = cnmf.cNMF(output_dir=folder, name="theirs")
        path = str(Path(folder, "cells.h5ad"))
        prepare = {"components": options.k, "n_iter": options.runs, "num_highvar_genes": genes, "seed": 0}
        steps = {
            "prepare": lambda: theirs.prepare(path, **prepare),
            "factorize": theirs.factorize,
            "combine": theirs.combine,
            "k_selection_plot": lambda: theirs.k_selection_plot(close_fig=True),
            "consensus, each k": lambda: [theirs.consensus(k, density_threshold=0.5, show_clustering=False) for k in options.k],
        }
        settings = {"name": "ours", "output_dir": folder, "n_iter": options.runs, "num_highvar_genes": genes}
        all_steps = lambda: fednmf.tl.cnmf(adata, options.k, random_state=0, n_jobs=options.jobs, **settings)  # noqa: E731
        measured = {f"cNMF: {name}": _measured(step) for name, step in steps.items()}
        measured["fednmf.tl.cnmf: all steps"] = _measured(all_steps)
        ours = all_steps()
        stats = cnmf.load_df_from_npz(theirs.paths["k_selection_stats"]).astype(float).set_index("k")
        head = ["K", "correlation of programmes, median (least)", "of usages"]
        head += ["silhouette: cNMF, fednmf", "squared error: cNMF, fednmf"]
        print("| " + " | ".join(head) + " |")
        print("|" + " --- |" * 5)
        for k in options.k:
            usage, _, tpm, _ = theirs.load_results(K=k, density_threshold=0.5)
            ours_usage = ours[k].usages.div(ours[k].usages.sum(axis=1), axis=0)
            columns = []
            for a, b in ((tpm.T.to_numpy(), ours[k].gene_spectra_tpm), (usage.T.to_numpy(), ours_usage.T)):
                correlation = np.corrcoef(np.nan_to_num(a), np.nan_to_num(b))[:k, k:]
                matched = correlation[linear_sum_assignment(-correlation)]
                columns.append(f"{np.median(matched):.3f} ({matched.min():.3f})")
            silhouette = f"{stats.silhouette[k]:.3f}, {ours[k].silhouette:.3f}"
            error = f"{stats.prediction_error[k]:.0f}, {ours[k].prediction_error:.0f}"
            print(f"| {k} | {columns[0]} | {columns[1]} | {silhouette} | {error} |")
        print("\n| step | processor seconds | seconds | added peak memory, MiB |\n| --- | --- | --- | --- |")
        for name, (processor, seconds, memory) in measured.items():
            print(f"| {name} | {processor:.1f} | {'-' if options.busy else f'{seconds:.1f}'} | {memory:.0f} |")
