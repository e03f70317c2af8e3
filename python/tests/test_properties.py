"""Properties that hold for every matrix and every parameter, on drawn ones.

FEDNMF_DRAWS=2000 FEDNMF_SEED=7 pytest python/tests/test_properties.py draws more and other ones. FEDNMF_BINARY names the program,
whose results must be those of the class; `bench/run safety doors` compares them for minutes.
"""

import json
import os
import shutil
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import decomposition

import doors
import fednmf
from fednmf import NMF

DRAWS = int(os.environ.get("FEDNMF_DRAWS", "40"))
SEED = int(os.environ.get("FEDNMF_SEED", "0"))
PROGRAM = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
#: Each draw of these starts the program several times.
PROGRAM_DRAWS = int(os.environ.get("FEDNMF_PROGRAM_DRAWS", "12"))


#: The beta of each loss; the usual two are drawn more often than the others.
BETAS = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0, 0.5: 0.5, 1.5: 1.5, 3.0: 3.0}
LOSSES = 4 * list(BETAS)[:2] + list(BETAS)[2:]


def matrix(rng):
    """A small matrix: counts, planted, sparse, constant, low rank; with zero rows and columns; of any scale and type."""
    m, n = rng.integers(1, 25, 2)
    kind = rng.choice(["counts", "planted", "uniform", "sparse", "constant", "low rank", "blocks"])
    if kind == "counts":
        X = rng.poisson(rng.choice([0.5, 3.0, 50.0]), (m, n)).astype(float)
    elif kind == "planted":
        X = rng.gamma(0.5, 1, (m, 3)) @ rng.gamma(0.5, 1, (3, n)) + 0.1 * rng.random((m, n))
    elif kind == "sparse":
        X = rng.random((m, n)) * (rng.random((m, n)) < 0.2)
    elif kind == "constant":
        X = np.full((m, n), 3.0)
    elif kind == "low rank":
        X = rng.random((m, 2)) @ rng.random((2, n))
    elif kind == "blocks":
        X = (np.arange(m)[:, None] % 3 == np.arange(n) % 3).astype(float)
    else:
        X = rng.random((m, n))
    X[rng.random(m) < 0.1] = 0
    X[:, rng.random(n) < 0.1] = 0
    if not X.any():
        X[0, 0] = 1.0
    return X


def settings(rng, X):
    k = int(rng.integers(1, min(X.shape) + 3))
    inits = [None, "random"] + (["nndsvd", "nndsvda", "nndsvdar"] if k <= min(X.shape) else [])
    loss = LOSSES[rng.integers(len(LOSSES))]
    alphas = [(0, 0, 0), (0, 0, 0), (0.01, 0.01, 0.5), (0.05, 0, 1), (0, 0.05, 0), (0.001, 0.1, 1)][rng.integers(6)]
    return {
        "n_components": k,
        "init": inits[rng.integers(len(inits))],
        "beta_loss": loss,
        "solver": str(rng.choice(["auto", "cd"] if loss == "frobenius" else ["auto", "mu"])),
        "alpha_W": float(alphas[0]),
        "alpha_H": float(alphas[1]),
        "l1_ratio": float(alphas[2]),
        "random_state": int(rng.integers(1000)),
        "max_iter": 200,
    }


def drawn(rng):
    """A matrix and parameters for it."""
    X = matrix(rng)
    p = settings(rng, X)
    if p["beta_loss"] == "itakura-saito":
        X += 0.05 * X.max()  # It has no zeros.
    return X, p


def form(rng, X):
    """X itself, or the same matrix in another form."""
    forms = [
        lambda: X,
        lambda: np.asfortranarray(X),
        lambda: sp.csr_matrix(X),
        lambda: sp.csc_matrix(X),
        lambda: sp.coo_array(X),
        lambda: X.astype(np.float32),
    ]
    return forms[rng.integers(len(forms))]()


def divergence(X, F, beta, least=0.0):
    """Of X from F (Févotte and Idier 2011, equation 3), and for beta = 2 half the squared error. In negative powers F is at least
    `least`."""
    divisor = np.maximum(F, least) if beta < 1 else F
    # Where X is zero, terms that are its multiples vanish, also if F is zero.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if beta == 0:
            return (X / divisor - np.log(X / divisor) - 1).sum()
        if beta == 1:
            return (np.where(X > 0, X * np.log(X / F), 0.0) - X + F).sum()
        mixed = np.where(X > 0, X * divisor ** (beta - 1), 0.0)
        return (X**beta / (beta * (beta - 1)) + F**beta / beta - mixed / (beta - 1)).sum()


def size_of(X, beta):
    """A figure in the unit of the divergence."""
    return max((X**beta).sum(), 1e-300)


def loss_of(X, W, H, beta_loss):
    return divergence(X, W.astype(float) @ H.astype(float), BETAS[beta_loss])


def objective(X, W, H, p):
    def penalty(F, alpha):
        # The squares of a factor without a penalty may overflow.
        return alpha and alpha * (p["l1_ratio"] * F.sum() + 0.5 * (1 - p["l1_ratio"]) * (F**2).sum())

    n, m = X.shape[1], X.shape[0]
    return loss_of(X, W, H, p["beta_loss"]) + penalty(W, p["alpha_W"] * n) + penalty(H, p["alpha_H"] * m)


def refit(model, X, W, p):
    """What `transform` returns for the data X of the fit: W if the divergence is convex, and otherwise another minimiser."""
    return W if 1 <= BETAS[p["beta_loss"]] <= 2 else model.transform(X)


@pytest.mark.parametrize("draw", range(DRAWS))
def test_whatever_is_drawn(draw):
    rng = np.random.default_rng([SEED, draw])
    X, p = drawn(rng)
    given = form(rng, X)
    about = f"draw {draw}: {X.shape} {type(given).__name__} {given.dtype} {p}"
    single = given.dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NMF(**p)
        W = model.fit_transform(given)
        H = model.components_
        assert np.isfinite(W).all() and np.isfinite(H).all() and (W >= 0).all() and (H >= 0).all(), about

        # The reported error is that of the factors.
        beta = BETAS[p["beta_loss"]]
        found, size = loss_of(X, W, H, p["beta_loss"]), size_of(X, beta)
        reported = 0.5 * model.reconstruction_err_**2
        tolerance = 1e-3 if single else 1e-6
        if np.isfinite(found):
            assert found > -1e-9 * size and abs(reported - found) <= tolerance * (found + 1e-3 * size), about

        # A second look at the same data finds the same.
        again = model.transform(given)
        if 1 <= beta <= 2:
            np.testing.assert_allclose(again, W, rtol=1e-5, atol=1e-6 * (W.max() or 1), err_msg=about)
        elif np.isfinite(found):
            # Of several minima it may find another one, but none that is much worse.
            assert objective(X, again, H, p) <= 1.1 * objective(X, W, H, p) + 1e-3 * size, about

        # Without penalties, the scale of the data does not matter.
        if not (p["alpha_W"] or p["alpha_H"] or single):
            exponent = int(rng.choice([-120, -40, 40, 120]))
            scaled = NMF(**p)
            V = scaled.fit_transform(given * 2.0**exponent)
            again = loss_of(X * 2.0**exponent, V, scaled.components_, p["beta_loss"]) / 2.0 ** (beta * exponent)
            if np.isfinite(again) and np.isfinite(found):
                assert abs(again - found) <= 1e-2 * found + 1e-6 * size, f"{about} at 2^{exponent}: {again} {found}"

        # The objective is not above that of scikit-learn, in the best of a few starts: on matrices this small, one start may end
        # in another local minimum, of which divergences that are not convex have many for each row.
        if p["n_components"] <= min(X.shape) and np.isfinite(found) and p["init"] is None:
            q = {**p, "solver": "cd" if p["beta_loss"] == "frobenius" else "mu"}

            few = [(None, 0), ("random", 1), ("random", 2), ("random", 3), ("random", 4)]

            def best(kind, settings, data, starts=few):
                models = [kind(**{**settings, "init": init, "random_state": i}) for init, i in starts]
                return min(objective(X, fitted.fit_transform(data), fitted.components_, p) for fitted in models)

            ours, theirs = best(NMF, p, given), best(decomposition.NMF, q, X)
            bound = 1.02 * theirs + (1e-3 if 1 <= beta <= 2 else 5e-2) * size
            if np.isfinite(theirs) and ours > bound:
                # A few starts may have bad luck, or those of scikit-learn good luck; many have not.
                ours = min(ours, best(NMF, p, given, [("random", i) for i in range(5, 130)]))
                assert ours <= bound, f"{about}: {ours} {theirs}"


#: Exponents of two by which entries are multiplied, and the types of entries and indices that files and arrays have.
SCALES = [0, 0, 0, 0, -990, -200, -60, 60, 200, 990]
TYPES = ["f8", "f8", "f4", ">f8", ">f4", "i4", "u2", "i8"]
INDICES = [np.int32, np.int32, np.int64]


def typed(rng, X):
    """The matrix with entries of a drawn type, and of another scale if they are floating-point numbers."""
    dtype = np.dtype(str(rng.choice(TYPES)))
    if dtype.kind in "iu":
        return np.ceil(X * (1 if X.max() > 1 else 20)).astype(dtype)
    exponent = int(rng.choice(SCALES))
    return (X * 2.0 ** (exponent if dtype.itemsize == 8 else exponent // 10)).astype(dtype)


def entries(rng, X):
    """A file format, and the matrix in its form, with a random scale and type: dense, or CSR that may have duplicates, explicit
    zeros, unsorted columns or wider indices."""
    X = typed(rng, X)
    kind = str(rng.choice(doors.DENSE + doors.SPARSE))
    if kind in doors.DENSE:
        return kind, X
    # SciPy's sparse matrices have the byte order of the machine.
    X = X.astype(X.dtype.newbyteorder("="))
    Y = sp.csr_matrix(X)
    change = rng.choice(["none", "duplicates", "zeros", "backwards"])
    if change == "duplicates" and X.dtype.kind == "f":
        # Halves, so that sums are exact.
        rows = np.repeat(np.arange(len(X)), np.diff(Y.indptr))
        order = np.argsort(np.r_[rows, rows], kind="stable")
        halves = np.r_[Y.data / 2, Y.data / 2][order]
        Y = sp.csr_matrix((halves, np.r_[Y.indices, Y.indices][order], 2 * Y.indptr), shape=X.shape)
    elif change == "zeros":
        indices, starts = np.tile(np.arange(X.shape[1]), len(X)), np.arange(0, X.size + 1, X.shape[1])
        Y = sp.csr_matrix((X.ravel(), indices, starts), shape=X.shape)
    elif change == "backwards":
        for a, b in zip(Y.indptr, Y.indptr[1:]):
            Y.indices[a:b], Y.data[a:b] = Y.indices[a:b][::-1].copy(), Y.data[a:b][::-1].copy()
        Y.has_sorted_indices = False
    Y.indices, Y.indptr = (part.astype(INDICES[rng.integers(3)]) for part in (Y.indices, Y.indptr))
    return kind, Y


def dense_of(given):
    """Its entries as an array of numbers of the machine, and the largest one."""
    X = np.asarray(doors.one_index_type(given).todense() if sp.issparse(given) else given).astype(float)
    return X, float(X.max())


def product(A, B, peak):
    """A B / peak, without intermediate numbers that leave the range."""
    A, B = A.astype(float), B.astype(float)
    top = A.max() or 1.0
    return (A / top) @ (B * (top / peak) if top < peak else B / (peak / top))


@pytest.mark.parametrize("draw", range(DRAWS))
def test_tools_for_annotated_data_have_the_numbers_of_the_class(draw):
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng([SEED, 2, draw])
    X, p = drawn(rng)
    _, given = entries(rng, X)
    k, about = p["n_components"], f"draw {draw}: {X.shape} {type(given).__name__} {given.dtype} {p}"
    peak = dense_of(given)[1]
    if given.dtype.kind in "iu" or not given.dtype.isnative:
        given = given.astype(float)
    used = rng.random(X.shape[1]) < 0.7
    used[rng.integers(len(used))] = True
    some = bool(rng.integers(2))
    whole = sp.csr_matrix(doors.one_index_type(given)) if sp.issparse(given) else given
    adata = anndata.AnnData(whole.copy())
    if some:
        adata.var["highly_variable"] = used
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = given if not some else doors.one_index_type(given)[:, used]
        model, refused = NMF(**p), None
        try:
            W = model.fit_transform(X)
        except ValueError as e:
            refused = str(e)
        try:
            fednmf.tl.nmf(adata, k, **{name: value for name, value in p.items() if name != "n_components"})
        except ValueError as e:
            assert refused is not None and str(e) == refused, f"{about}: {e} {refused}"
            return
        assert refused is None, f"{about}: {refused}"
        close = {"rtol": 1e-5, "atol": 1e-6 * (W.max() or 1), "err_msg": about}
        np.testing.assert_allclose(adata.obsm["X_nmf"], W, **close)
        genes = adata.varm["NMF"]
        H = model.components_
        np.testing.assert_allclose(genes[used] if some else genes, H.T, rtol=1e-5, atol=1e-6 * (H.max() or 1), err_msg=about)
        assert not some or not genes[~used].any(), about
        # Its own cells, in another order of genes, are fitted as before. The weights are unique for few components only.
        if genes.any():
            again = anndata.AnnData(whole.copy())[:, ::-1].copy()
            fednmf.tl.project(again, adata)
            fits = [product(cells, H, peak) for cells in (again.obsm["X_nmf"], refit(model, X, W, p))]
            np.testing.assert_allclose(*fits, atol=1e-3 if given.dtype == np.float32 else 1e-5, err_msg=about)


@pytest.mark.parametrize("draw", range(DRAWS))
def test_transposed_factors_are_as_good_for_the_transposed_matrix(draw):
    rng = np.random.default_rng([SEED, 3, draw])
    X, p = drawn(rng)
    if 0 in (p["alpha_W"], p["alpha_H"]):
        # A penalty on one factor only is evaded by its scale, which never ends.
        p["alpha_W"] = p["alpha_H"] = 0.0
    # The penalties of rows and columns change places.
    q = {**p, "alpha_W": p["alpha_H"], "alpha_H": p["alpha_W"], "init": "custom"}
    given, turned = (form(rng, Y).astype(float) for Y in (X, X.T.copy()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, other = NMF(**p), NMF(**q)
        W = model.fit_transform(given)
        H = model.components_
        if not (W.any() and H.any()):
            return  # A penalty larger than the data has no start.
        # Started from them, the fit hardly rises, as it would from factors that changed places.
        V = other.fit_transform(turned, W=np.ascontiguousarray(H.T), H=np.ascontiguousarray(W.T))
    one, two = objective(X, W, H, p), objective(X.T, V, other.components_, q)
    size = size_of(X, BETAS[p["beta_loss"]])
    assert not np.isfinite(one) or two <= 1.01 * one + 1e-5 * size, f"draw {draw}: {X.shape} {p}: {one} {two}"


def check_divergence(figures, dense, F, peak, beta, tolerance, about):
    """The printed divergence is that of the factors, whose product, like the matrix, is divided by peak."""
    (printed,) = (value for name, value in figures.items() if name.endswith("_divergence"))
    # A share of the usual entry, as docs/guide/algorithms/beta-mu.md says.
    usual = np.sqrt(np.mean(dense**2)) or 1.0
    least = np.finfo(float).eps * 2.0 ** (np.round(np.log2(usual) + np.log2(peak)) - np.log2(peak))
    found, size = divergence(dense, F, beta, least), size_of(dense, beta)
    with np.errstate(over="ignore"):
        unit = np.float64(peak) ** beta
    if np.isfinite(found) and 1e-290 < unit * size < 1e290:
        assert printed >= 0 and abs(printed / unit - found) <= tolerance * (found + size), f"{about}: {printed} {found * unit}"


@pytest.mark.skipif(PROGRAM is None, reason="no program fednmf on the PATH")
@pytest.mark.parametrize("draw", range(PROGRAM_DRAWS))
def test_the_program_has_the_numbers_of_the_class(tmp_path, draw):
    pytest.importorskip("h5py")
    rng = np.random.default_rng([SEED, 1, draw])
    X, p = drawn(rng)
    p["n_components"] = min(p["n_components"], *X.shape)
    # Few iterations: rounding errors depend on the number of ranks and grow with each iteration.
    p["max_iter"], p["tol"] = int(rng.integers(1, 30)), 0
    kind, given = entries(rng, X)
    # The file may have the transposed matrix, which the program transposes again.
    turned = bool(rng.integers(2)) and kind not in doors.GENES_BY_CELLS
    about = f"seed {SEED}, draw {draw}: {X.shape} {kind} {given.dtype} largest {dense_of(given)[1]} turned {turned} {p}"
    # A whole random_state is the seed itself.
    seed = p["random_state"]
    file, out = tmp_path / f"x.{doors.ending(kind)}", tmp_path / "o.npz"
    stored = doors.one_index_type(given).T if turned else given
    doors.write(file, sp.csr_matrix(stored) if sp.issparse(given) else stored, kind)

    # Like scikit-learn, the class takes float32 of another byte order as float64.
    beta, single = BETAS[p["beta_loss"]], given.dtype == np.float32
    model = NMF(**p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = None
        try:
            W = model.fit_transform(given)
        except ValueError as e:
            refused = str(e)
    algo, options = model._method(X.shape, p["n_components"], model._checked_loss(), started=False)
    penalised = bool(model._penalties())
    words = ["-i", file, "--algo", algo, "-k", p["n_components"], "--seed", seed, "--max-iters", p["max_iter"], "-o", out]
    words += ["--precision", "f32" if single else "f64", "--json", "--quiet"]
    words += ["--factor-scale", "sorted" if penalised else "balanced"]
    words += [f"--{name}={value}" for name, value in options.items() if value is not None]
    for name, value in model._penalties().items():
        words += ["--" + name.replace("_", "-"), value]
    table = doors.options(kind) + (["--transpose"] if turned else [])
    words += table
    tight = 1e-4 if single else 1e-7
    for ranks in (1, 2):
        printed, why = doors.run(PROGRAM, ranks, words)
        assert (printed is None) == (refused is not None), f"{about}, {ranks} ranks: {refused} {why}"
        if printed is None:
            continue
        theirs = np.load(out)
        U, V = theirs["U"].astype(float), theirs["V"].astype(float)
        assert np.isfinite(U).all() and np.isfinite(V).all(), about
        # The same product, and on one rank the same components.
        dense, peak = dense_of(given)
        dense, F = dense / peak, product(U, V.T, peak)
        ours, size = product(W, model.components_, peak), np.linalg.norm(dense)
        if ranks == 1:
            scale = np.abs(V).max() or 1.0
            np.testing.assert_allclose(model.components_.T / scale, V / scale, atol=tight, err_msg=about)
        # The error that it prints is that of its factors, and evaluate finds it again.
        error = np.linalg.norm(dense - F) / size
        summary = json.loads(printed)
        assert abs(summary["rel_error"] - error) <= 10 * tight * (1 + error), f"{about}: {summary} {error}"
        evaluated, why = doors.run(PROGRAM, ranks, ["evaluate", out, "-i", file, "--json", *table])
        assert abs(json.loads(evaluated)["rel_error"] - error) <= 1e-6 * (1 + error) + 1e-7, f"{about}: {evaluated} {error}"
        if beta != 2:
            for figures, about_it in ((summary, about), (json.loads(evaluated), f"{about}: evaluate")):
                check_divergence(figures, dense, F, peak, beta, 10 * tight, about_it)
        if beta == 2 and not penalised:
            # Without a penalty the class fits W exactly to the components.
            assert np.linalg.norm(dense - ours) <= (error + 10 * tight) * size * (1 + 1e-3), about
        projected = tmp_path / "p.npz"
        printed, why = doors.run(PROGRAM, ranks, ["project", out, "-i", file, "-o", projected, "--json", *table])
        fitted = product(np.load(projected)["U"], V.T, peak)
        if beta != 2:
            check_divergence(json.loads(printed), dense, fitted, peak, beta, 1e-6, f"{about}: project")
        if ranks == 1 and p["n_components"] < min(X.shape):
            atol = 1e-3 if single else 1e-6
            ours = product(refit(model, given, W, p), model.components_, peak)
            np.testing.assert_allclose(fitted, ours, atol=atol, rtol=1e-3, err_msg=f"{about}: project")
