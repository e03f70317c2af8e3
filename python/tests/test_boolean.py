"""fednmf.BooleanMF."""

import numpy as np
import pytest
import scipy.sparse as sp

from fednmf import BooleanMF
from fednmf._boolean import _ALGORITHMS


@pytest.fixture(scope="module")
def tiles():
    """Three tiles that do not overlap in rows, and one row in two of them."""
    X = np.zeros((60, 40))
    for j in range(3):
        X[20 * j : 20 * j + 20, 12 * j : 12 * j + 12] = 1
    X[5, 12:24] = 1
    return X


@pytest.mark.parametrize("algo", _ALGORITHMS)
def test_tiles_are_found(tiles, algo):
    model = BooleanMF(3, algo=algo, max_iter=300, random_state=0)
    W = model.fit_transform(tiles)
    assert W.dtype == bool and W.shape == (60, 3) and model.components_.shape == (3, 40)
    again = model.inverse_transform(W)
    both = (again & (tiles == 1)).sum()
    f1 = 2 * both / (again.sum() + tiles.sum())
    assert model.f1_ == pytest.approx(f1)
    assert f1 > (0.99 if algo in ("asso", "grecond", "felb") else 0.6)


def test_sparse_and_bool_matrices(tiles):
    dense = BooleanMF(3, algo="asso").fit(tiles)
    for X in (sp.csr_matrix(tiles), tiles.astype(bool), tiles.astype(np.float32)):
        np.testing.assert_array_equal(BooleanMF(3, algo="asso").fit(X).components_, dense.components_)
        np.testing.assert_array_equal(dense.transform(X), dense.transform(tiles))


def test_transform_covers_new_rows(tiles):
    model = BooleanMF(3, algo="asso").fit(tiles)
    W = model.transform(tiles[::7])
    np.testing.assert_array_equal(model.inverse_transform(W), tiles[::7] == 1)
    with pytest.raises(ValueError, match="zeros and ones"):
        model.inverse_transform(0.5 * W)


def test_what_is_not_supported_is_refused(tiles):
    with pytest.raises(ValueError, match="zeros and ones alone"):
        BooleanMF(2).fit(2 * tiles)
    with pytest.raises(ValueError, match="must be one of felb"):
        BooleanMF(2, algo="hals").fit(tiles)
    with pytest.raises(ValueError, match="asso: .*nothing"):
        BooleanMF(2, algo="asso", options={"nothing": 1}).fit(tiles)
    with pytest.raises(ValueError, match="^[^-]*tau"):
        BooleanMF(2, algo="asso", options={"tau": 7}).fit(tiles)


def test_components_that_say_nothing_are_warned_of():
    with pytest.warns(UserWarning, match="f1 is 0"):
        model = BooleanMF(2, algo="zhang", random_state=0).fit(np.eye(60))
    assert model.f1_ == 0
