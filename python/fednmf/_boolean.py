"""Boolean matrix factorisation as an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Optional, get_args

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _run

#: The methods of `BooleanMF`.
Algorithm = Literal["felb", "felb-mu", "elbmf", "zhang", "asso", "grecond", "mebf"]
_ALGORITHMS = get_args(Algorithm)
#: Entries that are dense at a time.
_BLOCK = 4_000_000


class BooleanMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Boolean matrix factorisation: X ~ W o H with zeros and ones alone, where 1 + 1 = 1.

    Parameters
    ----------
    n_components : int
    algo : "felb", "felb-mu", "elbmf", "zhang", "asso", "grecond" or "mebf"
    max_iter : int
        Largest number of iterations: rounds of felb and felb-mu, updates of elbmf and zhang. The others end with
        `n_components` components.
    random_state : int, RandomState or None
    options : mapping or None
        Further options of the method, as on the command line with underscores: {"tau": 0.8} for asso.
    n_jobs : int or None
        Threads, as in joblib.

    Attributes
    ----------
    components_ : bool array (n_components, n_features)
    f1_ : float
        The F1 score of W o H as a prediction of the ones of X.
    n_iter_ : int
    n_features_in_ : int

    See Also
    --------
    NMF : For numbers that are not zeros and ones only.

    Examples
    --------
    >>> import numpy as np
    >>> from fednmf import BooleanMF
    >>> X = np.zeros((60, 40), dtype=bool)
    >>> X[:30, :20] = X[20:, 15:] = True             # two rectangles, which overlap
    >>> model = BooleanMF(n_components=2, algo="asso")
    >>> W = model.fit_transform(X)
    >>> W.dtype, model.f1_
    (dtype('bool'), 1.0)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        algo: Algorithm = "felb",
        max_iter: int = 100,
        random_state: Any = None,
        options: Optional[Mapping[str, Any]] = None,
        n_jobs: Optional[int] = None,
    ) -> None:
        self.n_components = n_components
        self.algo = algo
        self.max_iter = max_iter
        self.random_state = random_state
        self.options = options
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> BooleanMF:
        """Finds the components of X (n_samples, n_features), whose entries are 0 or 1 (or False or True)."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Finds the components of X (n_samples, n_features) and returns W (n_samples, n_components; bool).

        Raises
        ------
        ValueError
            If an entry of X is neither 0 nor 1, all are 0, or a parameter is not accepted.
        """
        if self.algo not in _ALGORITHMS:
            raise ValueError(f"algo={self.algo!r}: must be one of {', '.join(_ALGORITHMS)}")
        with _run.kept_if_it_fails(self):
            return self._fit(X)

    def _fit(self, X: Any) -> np.ndarray:
        X = self._checked(X, reset=True)
        run = _run.factorize(
            [X],
            algo=self.algo,
            k=_run.count("n_components", self.n_components),
            random_state=self.random_state,
            max_iter=_run.count("max_iter", self.max_iter),
            options=self.options or {},
            n_jobs=self.n_jobs,
        )
        factors = {name: values > 0.5 for name, _, values in run.factors}
        W, self.components_ = factors["U"], np.ascontiguousarray(factors["V"].T)
        self.n_iter_ = run.n_iter
        self.f1_ = run.measures["f1"]
        if self.f1_ == 0:
            warnings.warn(
                "f1 is 0: the product has no one where X has one, so the components say nothing; try another algo, other options or "
                "another random_state",
                UserWarning,
                stacklevel=3,
            )
        return W

    def transform(self, X: Any) -> np.ndarray:
        """W (n_samples, n_components; bool): each sample takes the component that corrects most of its entries, until none
        corrects more than it spoils."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        W = np.zeros((X.shape[0], len(self.components_)), dtype=bool)
        rows = max(1, _BLOCK // X.shape[1])
        for first in range(0, X.shape[0], rows):
            block = X[first : first + rows]
            W[first : first + rows] = _cover(block.toarray() if sp.issparse(block) else block, self.components_)
        return W

    def inverse_transform(self, X: Any) -> np.ndarray:
        """The Boolean product of W = `X` (n_samples, n_components) and the components."""
        check_is_fitted(self)
        W = _run.checked(X, accept_sparse=True)
        W = W.toarray() if sp.issparse(W) else W
        if W.shape[1] != len(self.components_):
            raise ValueError(f"X has {W.shape[1]} columns, but there are {len(self.components_)} components")
        if not np.isin(W, (0, 1)).all():
            raise ValueError("X must hold zeros and ones, as transform returns them")
        return (W > 0.5).astype(np.float32) @ self.components_.astype(np.float32) > 0

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _checked(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, _run.accepted(X), reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        X = _run.canonical(X)
        values = X.data if sp.issparse(X) else X
        if not ((values == 0) | (values == 1)).all():
            raise ValueError("BooleanMF takes zeros and ones alone; X has other entries (choose a threshold: X >= t)")
        return X


def _cover(X: np.ndarray, components: np.ndarray) -> np.ndarray:
    H = components.astype(np.float32)
    gain_of_entry = (2 * X - 1).astype(np.float32)
    W = np.zeros((len(X), len(H)), dtype=bool)
    for _ in range(len(H)):
        gains = gain_of_entry @ H.T
        gains[W] = 0
        best = gains.argmax(axis=1)
        taken = np.flatnonzero(gains[np.arange(len(X)), best] > 0)
        if taken.size == 0:
            break
        W[taken, best[taken]] = True
        # What is covered neither gains nor loses any more.
        gain_of_entry[taken] *= 1 - H[best[taken]]
    return W
