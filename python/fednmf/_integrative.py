"""Joint factorisation of several data sets in batches: online iNMF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Hashable, Optional, Union

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _fednmf, _rows, _run, _show

#: Iterations of the start on the first batches, and the largest penalty: own parts are of the order of its reciprocal.
_START, _MOST_PENALTY = 10, 1e12

#: Several data sets, with names or in order.
DataSets = Union[Mapping[Hashable, Any], Sequence[Any]]


def _columns(X: Any) -> Any:
    """The names of the columns, if X has any."""
    names = getattr(X, "var_names", getattr(X, "columns", None))
    return None if names is None else list(names)


class IntegrativeNMF(BaseEstimator):
    """Joint NMF of several data sets with the same features, X_i ~ W_i (H + H_i): shared components H, and each data set's own
    part H_i of them.

    The objective of LIGER, 1/2 sum_i ||X_i - W_i (H + H_i)||^2 + 1/2 own_penalty sum_i ||W_i H_i||^2, is minimised over W_i, H,
    H_i >= 0 by online iNMF (Gao et al. 2021). A batch has rows of every data set, in proportion to their sizes. W is the minimiser for
    them, and H_i and H take a step of coordinate descent on statistics of all batches so far. One batch is in memory at a time.

    The method `inmf` (of `federated` and the program) has the same objective for data sets in memory, between parties too.
    Neither scales features: divide the columns of each data set by their root mean square first, as LIGER does.

    Parameters
    ----------
    n_components : int
    own_penalty : float
        Weight of the penalty on the own parts, the lambda of LIGER: the larger, the more is shared; at most 1e12.
    batch_size : int
        Samples of a batch, about; a data set with fewer rows than there are batches has rows in as many only.
    tol : float
        Stop when the average cost falls by at most this share in a pass. 0: never.
    max_iter : int
        Largest number of passes over the data sets.
    forget_factor : float
        Weight of earlier batches: after a pass in `fit`; in `partial_fit` after `batch_size` samples of a data set.
    random_state : int, RandomState or None
    verbose : int
    n_jobs : int or None
        Threads; None: one.

    A batch of `fit` has rows from sixteen places of each data set, since data are often sorted. Data sets are a dict or a list of
    arrays, sparse matrices, AnnData (also with `backed="r"`), datasets of HDF5 or zarr, or arrays of dask. Names of columns must be
    the same in all, in the same order. The start is another where a data set is sparse than for the same entries in dense arrays, and so
    may be the result. A fit that fails leaves the model as it was.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        H.
    own_components_ : dict of arrays (n_components, n_features)
        H_i, by the name of the data set, or its place in the list.
    objective_ : float
        Not after `partial_fit`.
    reconstruction_err_ : float
        The root of sum_i ||X_i - W_i (H + H_i)||^2; not after `partial_fit`.
    n_iter_ : int
        Passes over the data sets, or calls of `partial_fit`.
    n_features_in_ : int
    feature_names_in_ : array of str
        If the data sets have names of columns that are all strings.

    See Also
    --------
    MiniBatchNMF : For one data set.

    References
    ----------
    Gao, C. et al. (2021). Iterative single-cell multi-omic integration using online learning. Nature Biotechnology 39, 1000-1007.

    Examples
    --------
    >>> import numpy as np
    >>> from fednmf import IntegrativeNMF
    >>> rng = np.random.default_rng(0)
    >>> H = rng.random((5, 60))
    >>> donors = {name: rng.random((800, 5)) @ H for name in ("A", "B")}
    >>> model = IntegrativeNMF(n_components=5, batch_size=200, random_state=0).fit(donors)
    >>> model.components_.shape, sorted(model.own_components_)
    ((5, 60), ['A', 'B'])
    >>> model.transform(donors)["B"].shape
    (800, 5)
    """

    def __init__(
        self,
        n_components: int = 20,
        *,
        own_penalty: float = 5.0,
        batch_size: int = 5000,
        tol: float = 1e-4,
        max_iter: int = 200,
        forget_factor: float = 0.7,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: Optional[int] = None,
    ) -> None:
        self.n_components = n_components
        self.own_penalty = own_penalty
        self.batch_size = batch_size
        self.tol = tol
        self.max_iter = max_iter
        self.forget_factor = forget_factor
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: DataSets, y: Any = None) -> IntegrativeNMF:
        """Finds the components of data sets (n_samples_i, n_features)."""
        with _run.kept_if_it_fails(self):
            self._check_parameters()
            vars(self).pop("components_", None)
            sets = self._given(X)
            with _show.Progress() as progress:
                self._fit(sets, progress if self.verbose else None)
            squares = np.zeros(2)
            for name, matrix in sets.items():
                for rows in self._consecutive(matrix):
                    squares += self._rows(rows, name)[1:]
            self.reconstruction_err_ = float(np.sqrt(squares[0]))
            self.objective_ = float(squares @ [0.5, 0.5 * self.own_penalty])
        return self

    def partial_fit(self, X: DataSets, y: Any = None) -> IntegrativeNMF:
        """Updates the components with one batch of some data sets, of which new ones join those so far."""
        with _run.kept_if_it_fails(self):
            self._check_parameters()
            batches = {name: _run.batch(matrix, (0, matrix.shape[0])) for name, matrix in self._given(X).items()}
            if hasattr(self, "components_"):
                _run.same_components(self)
            else:
                self.n_iter_ = 0
            rhos = {name: float(self.forget_factor) ** (rows.shape[0] / self.batch_size) for name, rows in batches.items()}
            self._step(batches, rhos)
            self.n_iter_ += 1
            for name in ("reconstruction_err_", "objective_"):
                vars(self).pop(name, None)
        return self

    def transform(self, X: DataSets) -> Any:
        """W_i (n_samples_i, n_components) of data sets, in a dict or list as X is: the exact minimiser for H and H_i. A data set that was
        not fitted has no own part, so that its W is that of H alone."""
        check_is_fitted(self, "components_")
        given = self._given(X)
        found = {name: np.concatenate([self._rows(rows, name)[0] for rows in self._consecutive(matrix)]) for name, matrix in given.items()}
        return found if isinstance(X, Mapping) else list(found.values())

    def fit_transform(self, X: DataSets, y: Any = None) -> Any:
        """As `fit`, and returns what `transform` does."""
        return self.fit(X).transform(X)

    def _check_parameters(self) -> None:
        _run.count("n_components", self.n_components)
        _run.count("batch_size", self.batch_size)
        _run.count("max_iter", self.max_iter)
        if _run.at_least_zero("own_penalty", self.own_penalty) > _MOST_PENALTY:
            raise ValueError(f"own_penalty={self.own_penalty!r}: must be a number from 0 to {_MOST_PENALTY:g}")
        _run.at_least_zero("tol", self.tol)
        _run.share("forget_factor", self.forget_factor)

    def _given(self, X: DataSets) -> dict[Hashable, Any]:
        """The matrices by name."""
        if hasattr(X, "shape") or not isinstance(X, (Mapping, Sequence)):
            raise TypeError(f"X must be a dict or a list of data sets, not {type(X).__name__}; for one matrix use MiniBatchNMF")
        named = dict(X.items() if isinstance(X, Mapping) else enumerate(X))
        if not named:
            raise ValueError("there is no data set")
        columns = {name: _columns(matrix) for name, matrix in named.items()}
        with_names = [name for name, listed in columns.items() if listed is not None]
        for name in with_names:
            if columns[name] != columns[with_names[0]]:
                raise ValueError(f"data set {name!r}: its columns are not those of {with_names[0]!r}, in the same order")
        # Names that some data sets have are those of all.
        order = sorted(named, key=lambda name: columns[name] is None)
        first = None if hasattr(self, "components_") else order[0]
        given = {}
        for name in order:
            try:
                given[name] = _run.given(self, named[name], reset=name == first)
            except (ValueError, TypeError) as e:
                raise type(e)(f"data set {name!r}: {e}") from None
        return {name: given[name] for name in named}

    def _fit(self, sets: dict[Hashable, Any], progress: Optional[_show.Progress]) -> None:
        sizes = {name: matrix.shape[0] for name, matrix in sets.items()}
        total = sum(sizes.values())
        count = -(-total // int(self.batch_size))
        parts = {name: _fednmf.batches(size, -(-size // count)) for name, size in sizes.items()}
        last = np.nan
        for passes in range(1, int(self.max_iter) + 1):
            cost = 0.0
            for step in range(count):
                batches = {name: _run.batch(sets[name], *of[step]) for name, of in parts.items() if step < len(of)}
                rhos = {name: float(self.forget_factor) ** (rows.shape[0] / sizes[name]) for name, rows in batches.items()}
                cost += self._step(batches, rhos)
            self.n_iter_, average = passes, cost / total
            if progress is not None:
                progress.show(f"pass {passes}", {"average": average})
            # The first pass has the batches of the start, which fit too well.
            if passes > 1:
                if self.tol > 0 and last - average <= self.tol * average:
                    break
                last = average
        else:
            if self.tol > 0:
                _show.warn(f"{self.max_iter} passes did not reach tol={self.tol}; raise max_iter or tol", ConvergenceWarning)

    def _begin(self, batches: dict[Hashable, Any]) -> None:
        """The start of H, from the first batches together; the own parts start at zero."""
        rows = list(batches.values())
        run = _run.factorize(
            [sp.vstack(rows, format="csr") if any(map(sp.issparse, rows)) else np.concatenate(rows)],
            algo="auto",
            k=int(self.n_components),
            random_state=self.random_state,
            max_iter=_START,
            options={},
            eval_every=0,
            scale="balanced",
            n_jobs=self.n_jobs,
        )
        v = next(values for name, _, values in run.factors if name == "V")
        self.components_, self.own_components_, self._statistics = np.ascontiguousarray(v.T), {}, {}

    def _step(self, batches: dict[Hashable, Any], rhos: dict[Hashable, float]) -> float:
        """Adds a batch of some data sets; their part of the objective before the step."""
        if not hasattr(self, "components_"):
            self._begin(batches)
        H, k = self.components_, len(self.components_)
        for name in batches:
            if name not in self._statistics:
                self.own_components_[name] = np.zeros_like(H)
                self._statistics[name] = np.zeros((k, k), H.dtype), np.zeros((H.shape[1], k), H.dtype)
        names = list(self._statistics)
        sets = [(np.ascontiguousarray(self.own_components_[name].T), *self._statistics[name]) for name in names]
        given = [(names.index(name), _run.native(rows.astype(H.dtype, copy=False)), rhos[name]) for name, rows in batches.items()]
        v, sets, cost = _fednmf.joint_step(given, str(H.dtype), np.ascontiguousarray(H.T), sets, self._settings())
        # Arrays that a caller has kept stay as they are.
        self.components_ = np.ascontiguousarray(v.T)
        self.own_components_ = {name: np.ascontiguousarray(own.T) for name, (own, _, _) in zip(names, sets)}
        self._statistics = {name: (a, b) for name, (_, a, b) in zip(names, sets)}
        return cost

    def _rows(self, rows: Any, name: Hashable) -> tuple[np.ndarray, float, float]:
        """W of some rows of a data set, ||X - W (H + H_i)||^2 and ||W H_i||^2."""
        dtype = np.result_type(self.components_, rows)
        H = self.components_.astype(dtype, copy=False)
        own = self.own_components_.get(name, np.zeros_like(H)).astype(dtype, copy=False)
        rows = _run.native(rows.astype(dtype, copy=False))
        return _fednmf.joint_rows(rows, str(dtype), np.ascontiguousarray(H.T), np.ascontiguousarray(own.T), self._settings())

    def _settings(self) -> tuple[float, int]:
        return float(self.own_penalty), _run.threads(self.n_jobs)

    def _consecutive(self, X: Any) -> Iterator[Any]:
        size = int(self.batch_size)
        return (_run.batch(X, (first, min(first + size, X.shape[0]))) for first in range(0, X.shape[0], size))
