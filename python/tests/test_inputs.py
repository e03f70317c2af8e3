"""What all functions and classes have in common: which matrices they accept, and what a refusal leaves."""

import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import fednmf
from fednmf import NMF, BooleanMF, IntegrativeNMF, MiniBatchNMF

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning:fednmf", "ignore:.*given more than once"
)
PROGRAM = shutil.which(os.environ.get("FEDNMF_BINARY", "fednmf"))
SETTINGS = {"max_iter": 5, "random_state": 0}


def annotated(X, layer=None):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(None if layer else X, shape=X.shape if layer else None)
    if layer:
        adata.layers[layer] = X
    return adata


def reference(shape):
    adata = annotated(np.random.default_rng(1).random(shape))
    fednmf.tl.nmf(adata, 2, max_iter=5)
    return adata


def by_program(X):
    if PROGRAM is None:
        pytest.skip("needs the program fednmf")
    return fednmf.mpi(X, 2, ranks=1, algo="hals", max_iter=5, binary=PROGRAM).H


#: What factorises a matrix of numbers, and returns what it found.
FITS = {
    "NMF": lambda X: NMF(2, **SETTINGS).fit(X).components_,
    "MiniBatchNMF": lambda X: MiniBatchNMF(2, **SETTINGS).fit(X).components_,
    "MiniBatchNMF of a batch": lambda X: MiniBatchNMF(2, random_state=0).partial_fit(X).components_,
    "IntegrativeNMF": lambda X: IntegrativeNMF(2, **SETTINGS).fit([X, X]).components_,
    "IntegrativeNMF of a batch": lambda X: IntegrativeNMF(2, random_state=0).partial_fit({"a": X}).components_,
    "MiniBatchNMF of batches": lambda X: MiniBatchNMF(2, random_state=0).fit(iter([X, X])).components_,
    "federated": lambda X: fednmf.federated([X, X], n_components=2, **SETTINGS).shared["V"],
    "federated columns": lambda X: fednmf.federated([X, X], n_components=2, algo="secure-hals", **SETTINGS).shared["U"],
    "choose_k": lambda X: fednmf.tl.choose_k(X, [2, 3], 2, max_iter=5).column("rmse"),
    "mpi": by_program,
}
#: Others that take a matrix.
OTHERS = {
    "transform": lambda X: NMF(2, **SETTINGS).fit(np.ones(X.shape)).transform(X),
    "transform of MiniBatchNMF": lambda X: MiniBatchNMF(2, **SETTINGS).fit(np.ones(X.shape)).transform(X),
    "transform of IntegrativeNMF": lambda X: IntegrativeNMF(2, **SETTINGS).fit([np.ones(X.shape)]).transform([X]),
    "inverse_transform": lambda X: NMF(X.shape[1], **SETTINGS).fit(np.ones(X.shape)).inverse_transform(X),
    "W": lambda X: NMF(2, init="custom").fit_transform(np.ones(X.shape), W=X[:, :2], H=np.ones((2, X.shape[1]))),
    "H": lambda X: MiniBatchNMF(2, init="custom").fit(np.ones(X.shape), H=X[:2]),
    "BooleanMF": lambda X: BooleanMF(2).fit(X > 0.5),
    "nmf of X": lambda X: fednmf.tl.nmf(annotated(X), 2),
    "nmf of a layer": lambda X: fednmf.tl.nmf(annotated(X, "l"), 2, layer="l"),
    "choose_k of a layer": lambda X: fednmf.tl.choose_k(annotated(X, "l"), [2, 3], 2, layer="l"),
    "federated layers": lambda X: fednmf.federated([annotated(X, "l")] * 2, n_components=2, layer="l"),
    "project": lambda X: fednmf.tl.project(annotated(X), reference(X.shape)),
    "cnmf": lambda X: fednmf.tl.cnmf(annotated(X), [2], name="x"),
    "spectra": lambda X: fednmf.tl.spectra({"a": annotated(X, "l")}, ks=[2], layer="l"),
    "MiniBatchNMF of AnnData": lambda X: MiniBatchNMF(2).fit(annotated(X)),
}


@pytest.mark.parametrize("door", [*FITS, *OTHERS])
def test_masked_entries_are_refused(door):
    X = np.ma.masked_array(np.random.default_rng(0).random((40, 6)), mask=False)
    X[:2, 1] = np.ma.masked
    with pytest.raises(ValueError, match="masked entries"):
        (FITS.get(door) or OTHERS[door])(X)


@pytest.mark.parametrize("door", [*FITS, *OTHERS])
def test_masked_chunks_are_refused(door):
    dask = pytest.importorskip("dask.array")
    X = np.ma.masked_array(np.random.default_rng(0).random((40, 6)), mask=False)
    X[:2, 1] = np.ma.masked
    with pytest.raises(ValueError, match="masked entries"):
        (FITS.get(door) or OTHERS[door])(dask.from_array(X, chunks=(10, 6)))


@pytest.mark.parametrize("door", FITS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "float32"])
def test_duplicates_of_a_sparse_matrix_are_summed_as_numbers(door, dtype):
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, 30, 400), rng.integers(0, 6, 400)
    values = rng.integers(1, 120, 400).astype(dtype)
    numbers = "float32" if dtype == "float32" else "float64"
    whole = sp.coo_matrix((values.astype(numbers), (rows, columns)), shape=(30, 6)).tocsr()
    by_row = np.argsort(rows, kind="stable")
    ends = np.concatenate([[0], np.bincount(rows, minlength=30).cumsum()])
    expected = FITS[door](whole)
    for X in (
        sp.coo_matrix((values, (rows, columns)), shape=(30, 6)),
        sp.csr_matrix((values[by_row], columns[by_row], ends), shape=(30, 6)),
        sp.csc_matrix((values[by_row], columns[by_row], ends), shape=(6, 30)).T,
    ):
        np.testing.assert_allclose(FITS[door](X), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "model", [NMF(3, **SETTINGS), MiniBatchNMF(3, batch_size=20, **SETTINGS), BooleanMF(3, **SETTINGS)], ids=lambda m: type(m).__name__
)
def test_a_fit_that_fails_leaves_the_model_as_it_was(model):
    X = (np.random.default_rng(2).random((60, 8)) > 0.4).astype(float)
    model.fit(X)
    before = dict(vars(model))
    late = X.copy()
    late[-1] = -1
    fits = [lambda: model.fit(-X), lambda: model.fit(X[:, :5] * np.nan), lambda: model.fit("x"), lambda: model.fit(0 * X[:, :4])]
    if isinstance(model, MiniBatchNMF):
        h5py = pytest.importorskip("h5py")
        file = h5py.File("x", "w", driver="core", backing_store=False)
        fits += [lambda: model.fit(iter([X[:, :5], -X[:, :5]])), lambda: model.fit(iter([]))]
        fits += [lambda: model.fit(file.create_dataset("x", data=late)), lambda: model.partial_fit(late)]
    for fit in fits:
        with pytest.raises(ValueError):
            fit()
        assert vars(model) == before


def test_names_of_columns_are_those_of_the_fit(tmp_path):
    """Of AnnData as of DataFrames, in memory or not, in every pair of calls."""
    anndata = pytest.importorskip("anndata")
    X = np.random.default_rng(3).random((50, 6))
    adata = anndata.AnnData(X)
    adata.var_names = [f"g{i}" for i in range(6)]
    other = adata.copy()
    other.var_names = [f"h{i}" for i in range(6)]

    def backed(data, file):
        data.write_h5ad(tmp_path / file)
        return anndata.read_h5ad(tmp_path / file, backed="r")

    same = [adata, adata.to_df(), backed(adata, "same")]
    reversed_ = adata[:, ::-1].copy()
    wrong = [reversed_, reversed_.to_df(), backed(reversed_, "reversed"), other]
    model = MiniBatchNMF(2, batch_size=20, **SETTINGS)
    expected = model.fit(X).transform(X)
    for first in same:
        assert list(model.fit(first).feature_names_in_) == list(adata.var_names)
        for second in same:
            np.testing.assert_allclose(model.transform(second), expected, rtol=1e-9)
            np.testing.assert_allclose(model.fit_transform(second), expected, rtol=1e-9)
        for second in wrong:
            for call in (
                lambda: model.transform(second),
                lambda: model.transform(iter([first, second])),
                lambda: model.partial_fit(second),
                lambda: MiniBatchNMF(2).fit(iter([first, second])),
            ):
                with pytest.raises(ValueError, match="feature names should match"):
                    call()


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("model", [NMF(2, **SETTINGS), MiniBatchNMF(2, batch_size=20, **SETTINGS), BooleanMF(2, algo="asso")])
def test_a_data_frame_is_fitted_without_a_warning(model):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame((np.random.default_rng(4).random((60, 4)) > 0.4).astype(float), columns=list("abcd"))
    assert model.fit_transform(X).shape == model.transform(X).shape == (60, 2)
    # Files of other machines have another byte order.
    for dtype in (">f8", ">f4"):
        other = X.astype(dtype)
        assert model.fit_transform(other).shape == model.transform(other).shape == (60, 2)


def test_the_part_with_an_entry_that_is_refused_is_named():
    X = np.random.default_rng(0).random((6, 4))
    with pytest.raises(ValueError, match="^part 2: .* row 0, column 0 is negative"):
        fednmf.federated([X, X, -X], n_components=2)


def test_an_annotated_object_without_a_matrix_is_named():
    adata = annotated(np.ones((20, 4)), "counts")
    for call in (
        lambda: fednmf.tl.nmf(adata, 2),
        lambda: fednmf.tl.choose_k(adata, [2]),
        lambda: fednmf.tl.spectra({"a": adata}, ks=[2]),
        lambda: fednmf.tl.cnmf(adata, [2], name="x"),
        lambda: fednmf.federated([adata, adata], n_components=2),
        lambda: MiniBatchNMF(2).fit(adata),
    ):
        with pytest.raises(ValueError, match="adata.X is None.*its layers are counts"):
            call()


def test_missing_numbers_of_a_data_frame_are_named():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(5).random((30, 4)), columns=list("abcd")).astype("Float64")
    X.iloc[3, 1] = pandas.NA
    for door in ("NMF", "MiniBatchNMF", "federated", "choose_k", "mpi"):
        with pytest.raises(ValueError, match="NaN"):
            FITS[door](X)
    found = fednmf.federated([X, X], n_components=2, missing="nan", **SETTINGS)
    filled = X.to_numpy(float, na_value=np.nan)
    expected = fednmf.federated([filled, sp.csr_matrix(filled)], n_components=2, missing="nan", **SETTINGS)
    np.testing.assert_allclose(found.shared["V"], expected.shared["V"], rtol=1e-5)


def test_dask_arrays_of_unknown_length_are_named():
    dask = pytest.importorskip("dask.array")
    X = dask.from_array(np.random.default_rng(6).random((40, 6)), chunks=(10, 6))
    model = MiniBatchNMF(2, **SETTINGS).fit(X)
    some = X[X[:, 0] > 0.5]
    for call in (model.transform, model.partial_fit, model.fit):
        with pytest.raises(ValueError, match="compute_chunk_sizes"):
            call(some)
    some.compute_chunk_sizes()
    assert model.fit_transform(some).shape == (some.shape[0], 2)


@pytest.mark.parametrize("beta", [0.0, -1.0])
@pytest.mark.parametrize("form", [np.array, sp.csr_matrix])
def test_zeros_have_no_divergence_for_a_beta_of_at_most_0(beta, form):
    X = np.random.default_rng(7).random((30, 5)) + 0.1
    model = NMF(2, beta_loss=beta, **SETTINGS).fit(X)
    zero = X.copy()
    zero[3, 1] = 0
    messages = []
    for call in (model.fit, model.transform):
        with pytest.raises(ValueError, match="1 zero") as refused:
            call(form(zero))
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
def test_weights_of_zeros_are_positive_zeros(loss):
    X = np.random.default_rng(8).random((30, 5))
    model = NMF(2, beta_loss=loss, **SETTINGS).fit(X)
    W = model.transform(np.zeros((4, 5)))
    assert not W.any() and not np.signbit(W).any()


def test_sparse_weights_have_an_inverse():
    X = (np.random.default_rng(9).random((30, 5)) > 0.5).astype(float)
    for model in (NMF(2, **SETTINGS), MiniBatchNMF(2, **SETTINGS), BooleanMF(2, algo="asso")):
        W = model.fit_transform(X)
        found = model.inverse_transform(sp.csr_matrix(W.astype(float)))
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, model.inverse_transform(W), rtol=1e-12)


def test_a_start_of_zeros_is_refused():
    X, zeros = np.ones((30, 5)), np.zeros((2, 5))
    for fit in (
        lambda: NMF(2, init="custom").fit(X, W=np.ones((30, 2)), H=zeros),
        lambda: MiniBatchNMF(2, init="custom").fit(X, H=zeros),
        lambda: MiniBatchNMF(2, init="custom").partial_fit(X, H=zeros),
    ):
        with pytest.raises(ValueError, match="H is all zero"):
            fit()
