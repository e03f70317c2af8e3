"""Online NMF with the names of scikit-learn's MiniBatchNMF."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional, Union

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from . import _fednmf, _losses, _rows, _run, _show
from ._nmf import _FROBENIUS, _INITS, _LOSSES, NMF, Init

#: Iterations of the start on the first batch, and the least entry of a start for a divergence, as a share of the mean.
_START, _LEAST = 10, 1e-3
#: Products below this share of the data are nothing.
_NOTHING = 1e-4


class _State(NamedTuple):
    """H transposed, the statistics A (k x k; for a divergence 1 x k) and B (features x k), the rows that they hold, and the loss."""

    v: np.ndarray
    a: np.ndarray
    b: np.ndarray
    rows: float
    loss: float


def _has_entries(X: Any) -> bool:
    return bool((X.data if sp.issparse(X) else X).any())


def _at_moderate_scale(state: _State) -> _State:
    """The same factorisation with components whose scale has drifted, as from batches of few samples, back at norm 1.

    Powers of two change nothing but the exponents.
    """
    norms = np.linalg.norm(state.v, axis=0)
    exponents = np.log2(norms, out=np.zeros_like(norms), where=norms > 0)
    exponents = np.where(np.abs(exponents) > np.finfo(norms.dtype).maxexp // 4, np.rint(exponents), 0).astype(int)
    if not exponents.any():
        return state
    a = np.ldexp(np.ldexp(state.a, exponents), exponents[:, None])
    return state._replace(v=np.ldexp(state.v, -exponents), a=a, b=np.ldexp(state.b, exponents))


class MiniBatchNMF(NMF):
    """Nonnegative matrix factorisation, X ~ W H with W, H >= 0, for many samples: H is updated after each batch.

    For a batch, W is the minimiser, and H takes a step on statistics of all batches so far: of coordinate descent (Mairal, Bach,
    Ponce, Sapiro 2010), as the method `online` of the program, or a multiplicative one for "kullback-leibler" (Lefèvre, Bach,
    Févotte 2011), as `kl-online`. One batch is in memory at a time.

    Parameters
    ----------
    n_components, init, random_state, alpha_W, alpha_H, l1_ratio, verbose, n_jobs
        As those of NMF. init applies to the first batch; None: a few iterations on it.
    batch_size : int
        Samples of a batch.
    beta_loss : "frobenius" (or 2) or "kullback-leibler" (or 1)
        Others are for NMF.
    tol : float
        Stop when the average cost falls by at most this share in a pass. 0: never.
    max_no_improvement : int or None
        After the first pass, stop after as many batches without a lower average cost. None: never.
    max_iter : int
        Largest number of passes over X.
    forget_factor : float
        Weight of earlier batches: after a pass over X in `fit`; in `partial_fit` after `batch_size` samples, in one call or several.
    fresh_restarts, fresh_restarts_max_iter, transform_max_iter
        Accepted as in scikit-learn, and without effect: W is solved for exactly.

    A batch of `fit` has rows from sixteen places of X, since data are often sorted. The default start is another for sparse data
    than for dense data with the same entries, and so may be the result. Names of columns must be those of the first fit,
    in the same order. A fit that fails leaves the model as it was.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        H.
    n_components_ : int
    reconstruction_err_ : float
        The Frobenius norm of X - W H, or the root of twice the divergence; not after `partial_fit` and a `fit` of batches from an
        iterator.
    n_iter_ : int
        Passes over X, or calls of `partial_fit`.
    n_steps_ : int
        Batches.
    n_features_in_ : int
    feature_names_in_ : array of str
        If X has names of columns that are all strings.

    See Also
    --------
    NMF : For a matrix that memory holds: fewer passes, and other losses.

    References
    ----------
    Mairal, J., Bach, F., Ponce, J. and Sapiro, G. (2010). Online learning for matrix factorization and sparse coding. Journal of
    Machine Learning Research 11, 19-60.

    Lefèvre, A., Bach, F. and Févotte, C. (2011). Online algorithms for nonnegative matrix factorization with the Itakura-Saito
    divergence. IEEE Workshop on Applications of Signal Processing to Audio and Acoustics, 313-316.

    Examples
    --------
    >>> import numpy as np
    >>> from fednmf import MiniBatchNMF
    >>> rng = np.random.default_rng(0)
    >>> H = rng.random((5, 60))
    >>> batches = (rng.random((200, 5)) @ H for _ in range(20))
    >>> model = MiniBatchNMF(n_components=5, random_state=0).fit(batches)
    >>> model.components_.shape, model.n_steps_
    ((5, 60), 20)
    """

    def __init__(
        self,
        n_components: Union[int, Literal["auto"], None] = "auto",
        *,
        init: Optional[Init] = None,
        batch_size: int = 1024,
        beta_loss: Union[Literal["frobenius", "kullback-leibler"], float] = "frobenius",
        tol: float = 1e-4,
        max_no_improvement: Optional[int] = 10,
        max_iter: int = 200,
        alpha_W: float = 0.0,
        alpha_H: Union[float, Literal["same"]] = "same",
        l1_ratio: float = 0.0,
        forget_factor: float = 0.7,
        fresh_restarts: bool = False,
        fresh_restarts_max_iter: int = 30,
        transform_max_iter: Optional[int] = None,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: Optional[int] = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.batch_size = batch_size
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.max_iter = max_iter
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.forget_factor = forget_factor
        self.fresh_restarts = fresh_restarts
        self.fresh_restarts_max_iter = fresh_restarts_max_iter
        self.transform_max_iter = transform_max_iter
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, *, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Finds the components of X (n_samples, n_features).

        X may also be an AnnData that stays in its file (`backed="r"`), a dataset of HDF5 or zarr, an array of dask, or an iterator
        of batches, which is read once. H is the start with init "custom"; W is not used.
        """
        with _run.kept_if_it_fails(self):
            with _show.Progress() as progress:
                X = self._fit(X, H, progress if self.verbose else None)
            if X is not None:
                self.reconstruction_err_ = self._error_of_batches(X)
        return self

    def _error_of_batches(self, X: Any) -> float:
        loss, squared, H = self._checked_loss(), 0.0, self.components_
        for part in self._consecutive(X.shape[0]):
            batch = _run.batch(X, part)
            W = self._weights(batch)
            if loss == _FROBENIUS:
                squared += _losses.frobenius(batch, W, H) ** 2
            else:
                squared += 2 * _losses.divergence(batch, W, H, loss)
        return float(np.sqrt(squared))

    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> np.ndarray:
        """As `fit`, and returns W (n_samples, n_components), as `transform` does. X is not an iterator."""
        if _rows.is_batches(X):
            raise ValueError("an iterator of batches is read once; use fit, and transform with a second iterator")
        return self.fit(X, W=W, H=H).transform(X)

    def partial_fit(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Updates the components with one batch X (n_samples, n_features). The first one has entries above zero."""
        with _run.kept_if_it_fails(self):
            return self._update(X, H)

    def _update(self, X: Any, H: Any, of_several: bool = False) -> MiniBatchNMF:
        loss = self._checked_loss()
        if hasattr(self, "components_") and self._state.loss != loss:
            raise ValueError(f"beta_loss={self.beta_loss!r}: earlier batches had another loss; begin again with a new model or fit")
        if hasattr(self, "components_"):
            _run.same_components(self)
        X = _run.given(self, X, reset=not hasattr(self, "components_"))
        X = _run.batch(X, (0, X.shape[0]))
        if not hasattr(self, "components_"):
            if not _has_entries(X):
                if of_several:
                    return self  # The start needs entries.
                raise ValueError("the first batch has only zeros, from which components cannot start; begin with another one")
            self._begin(X, H)
            self.n_iter_, self.n_steps_ = 0, 0
        # That of an earlier fit is not of these components.
        self.__dict__.pop("reconstruction_err_", None)
        self._step(X, float(self.forget_factor) ** (X.shape[0] / self.batch_size))
        self.n_iter_ += 1
        self.n_steps_ += 1
        return self

    def transform(self, X: Any) -> np.ndarray:
        """W (n_samples, n_components) for new samples: the exact minimiser for `components_`, and the penalty on W. X as in
        `fit`."""
        check_is_fitted(self, "components_")
        if _rows.is_batches(X):
            found = [self.transform(batch) for batch in X]
            if not found:
                raise ValueError("the iterator has no batch")
            return np.concatenate(found)
        X = _run.given(self, X, reset=False)
        if not _rows.is_in_parts(X):
            return self._weights(X)
        return np.concatenate([self._weights(_run.batch(X, part)) for part in self._consecutive(X.shape[0])])

    def _fit(self, X: Any, H: Any, progress: Optional[_show.Progress]) -> Any:  # type: ignore[override]
        """The matrix in rows, or None if it was an iterator."""
        self._checked_loss()
        passes, patience = _run.count("max_iter", self.max_iter), self.max_no_improvement
        if patience is not None:
            _run.count("max_no_improvement", patience)
        tol = _run.at_least_zero("tol", self.tol)
        in_batches = _rows.is_batches(X)
        X = X if in_batches else _run.given(self, X, reset=True)
        if hasattr(self, "components_"):
            del self.components_
        if in_batches:
            for batch in X:
                self._update(batch, H, of_several=True)
            if not hasattr(self, "components_"):
                raise ValueError("the iterator has no batch with an entry above zero")
            self._warn_if_empty(self._penalties(), self.components_)
            self.n_iter_ = 1
            return None
        samples = X.shape[0]
        batches = _fednmf.batches(samples, min(self.batch_size, samples))
        # The mean cost of a sample in the first pass, and then a moving one.
        average, total, lowest, since = np.nan, 0.0, np.inf, 0
        last = np.nan  # at the end of the pass before
        for step in range(passes * len(batches)):
            if step == 0 or len(batches) > 1:  # A single one stays in memory.
                batch = _run.batch(X, *batches[step % len(batches)])
            if not hasattr(self, "components_"):
                if step + 1 < len(batches) and not _has_entries(batch):
                    continue  # The start needs entries.
                self._begin(batch, H)
            share = batch.shape[0] / samples
            cost = self._step(batch, float(self.forget_factor) ** share) / batch.shape[0]
            self.n_steps_, self.n_iter_ = step + 1, step // len(batches) + 1
            # Data are often sorted: no batch ends the fit before all have been read once.
            if step < len(batches):
                total += share * cost
                average = total if step + 1 == len(batches) else np.nan
            else:
                average = (1 - share) * average + share * cost
            if progress is not None:
                progress.show(f"batch {step + 1}", {"cost": cost, "average": average})
            if np.isnan(average):
                continue
            since = 0 if average < lowest else since + 1
            lowest = min(lowest, average)
            if patience is not None and since >= patience:
                break
            # The first pass has the batch of the start, which fits too well.
            if (step + 1) % len(batches) == 0 and self.n_iter_ > 1:
                if tol > 0 and last - average <= tol * average:
                    break
                last = average
        else:
            if tol > 0 or patience is not None:
                _show.warn(f"{passes} passes did not reach tol={self.tol}; raise max_iter or tol", ConvergenceWarning)
        if self._penalties():
            # An L2 penalty leaves entries that are tiny, and not 0.
            self._warn_if_empty(self._penalties(), self._weights(batch) @ self.components_ > _NOTHING * batch.max())
        return X

    def _begin(self, X: Any, H: Any) -> None:
        """The start, from the first batch."""
        self._warn_if_one_sided(self._penalties())
        if self.init == "custom":
            if H is None:
                raise ValueError("init='custom' needs H")
            H = _run.checked(H, "H", accept_sparse=False, dtype=X.dtype)
            self._check_start("H", H, (len(H) if self.n_components in ("auto", None) else self.n_components, X.shape[1]))
            v = np.ascontiguousarray(H.T)
        else:
            self._warn_of_unused_start(H)
            k = self._k(X.shape[1], None)
            if self.init not in (None, "random") and k > min(X.shape):
                raise ValueError(f"init={self.init!r} needs n_components <= {min(X.shape)}, the smaller dimension of a batch")
            of_divergence = self._checked_loss() != _FROBENIUS
            options: dict[str, Any] = {"init": self.init}
            if of_divergence and not self.init:
                options["loss"] = "kullback-leibler"
            run = _run.factorize(
                [X],
                algo="hals" if self.init else "auto",
                k=k,
                random_state=self.random_state,
                max_iter=0 if self.init else _START,
                options=options,
                eval_every=0,
                scale="balanced",
                n_jobs=self.n_jobs,
            )
            v = next(values for name, _, values in run.factors if name == "V")
            if of_divergence:
                # An entry of 0 would remain so, also where later batches have counts.
                v = np.maximum(v, _LEAST * v.mean(axis=0))
        k = v.shape[1]
        self.n_components_ = k
        rows = k if self._checked_loss() == _FROBENIUS else 1
        self._state = _State(v, np.zeros((rows, k), X.dtype), np.zeros((X.shape[1], k), X.dtype), 0.0, self._checked_loss())

    def _step(self, X: Any, rho: float) -> float:
        """Adds a batch; its cost before the step."""
        v, a, b, rows, loss = self._state
        X = X.astype(v.dtype, copy=False)
        weight = float(self.alpha_W) if isinstance(self.alpha_H, str) else float(self.alpha_H)
        penalty_on_H = weight * float(self.l1_ratio), weight * (1 - float(self.l1_ratio))
        settings = rho, self._penalty_on_W(X.shape[1]), penalty_on_H, _run.threads(self.n_jobs)
        of_divergence = self._checked_loss() != _FROBENIUS
        *state, cost = _fednmf.online_step(_run.native(X), str(v.dtype), (v, a, b), rows, settings, of_divergence)
        self._state = _State(*state, loss)
        if not of_divergence and not self._penalties():
            self._state = _at_moderate_scale(self._state)
        self.components_ = np.ascontiguousarray(self._state.v.T)
        return cost

    def _weights(self, X: Any) -> np.ndarray:
        return self._project(X, self._penalty_on_W(X.shape[1]))

    def _consecutive(self, samples: int) -> list[tuple[int, int]]:
        return [(first, min(first + self.batch_size, samples)) for first in range(0, samples, self.batch_size)]

    def _checked_loss(self) -> float:
        self._penalties()
        _run.count("batch_size", self.batch_size)
        if self.init not in _INITS:
            raise ValueError(f"init={self.init!r}: must be None, 'random', 'nndsvd', 'nndsvda', 'nndsvdar' or 'custom'")
        loss = _LOSSES.get(self.beta_loss) if isinstance(self.beta_loss, str) else self.beta_loss
        if isinstance(loss, bool) or loss not in (1, 2):
            raise ValueError(
                f"beta_loss={self.beta_loss!r}: MiniBatchNMF has 'frobenius' (2) and 'kullback-leibler' (1); NMF has other losses"
            )
        _run.share("forget_factor", self.forget_factor)
        return float(loss)
