"""An estimator with the names of scikit-learn's NMF."""

from __future__ import annotations

import numbers
from typing import Any, Literal, Optional, Union, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from . import _losses, _run, _show
from ._parts import Parts

_FROBENIUS, _KULLBACK_LEIBLER = 2.0, 1.0
# The short names are those of the program.
_LOSSES = {
    "frobenius": _FROBENIUS,
    "kullback-leibler": _KULLBACK_LEIBLER,
    "kl": _KULLBACK_LEIBLER,
    "itakura-saito": 0.0,
    "is": 0.0,
}
#: Parameters of `NMF`.
Init = Literal["random", "nndsvd", "nndsvda", "nndsvdar", "custom"]
Solver = Literal["auto", "cd", "mu"]
Loss = Literal["frobenius", "kullback-leibler", "kl", "itakura-saito", "is"]
#: Largest magnitude of a beta.
_MOST = 10
#: A loss by its name, or its beta.
AnyLoss = Union[Loss, float]
_INITS = (None, *get_args(Init))
_SOLVERS = get_args(Solver)


def checked_loss(beta_loss: Any) -> float:
    """The beta of a loss."""
    loss = _LOSSES.get(beta_loss) if isinstance(beta_loss, str) else beta_loss
    if isinstance(loss, bool) or not isinstance(loss, numbers.Real) or not abs(loss) <= _MOST:
        raise ValueError(
            f"beta_loss={beta_loss!r}: must be 'frobenius' (2), 'kullback-leibler' (1), 'itakura-saito' (0) or a "
            f"number from {-_MOST} to {_MOST}"
        )
    # The formulas for other losses lose all digits near 0, 1 and 2.
    whole = round(float(loss))
    return float(whole) if abs(loss - whole) < 1e-8 else float(loss)


class NMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nonnegative matrix factorisation, X ~ W H with W, H >= 0.

    Parameters
    ----------
    n_components : int, "auto" or None
        Number of components. None: the number of features; "auto": that of W or H if they are given, else as None.
    init : None, "random", "nndsvd", "nndsvda", "nndsvdar" or "custom"
        The start. None: chosen by sizes with solver "auto", else "nndsvda" if n_components is at most the smaller dimension,
        otherwise "random". "custom": W and H of `fit_transform`.
    solver : "auto", "cd" or "mu"
        "auto": accelerated coordinate descent (HALS with extrapolation), or sketches for very large dense matrices, and for
        other losses multiplicative updates with extrapolation. "cd": coordinate descent (HALS). "mu": multiplicative updates.
    beta_loss : "frobenius" (or 2), "kullback-leibler" (or 1), "itakura-saito" (or 0), or another number
        The loss: a beta-divergence. All but "frobenius" need solver "auto" or "mu"; those from 0 down need an X without zeros.
    tol : float
        Stop when over 10 iterations the relative error falls by less than `tol / 10` times its first value, or the divergence
        or with penalties the objective by less than `tol / 10` times its last value. 0: only `max_iter` stops.
    max_iter : int
        Largest number of iterations.
    random_state : int, RandomState or None
        Seed of the start.
    alpha_W : float
        Weight of the penalty on W, which is multiplied by the number of features.
    alpha_H : float or "same"
        Weight of the penalty on H, which is multiplied by the number of samples. "same": that of W.
    l1_ratio : float
        Share of L1 in the penalties, from 0 (L2 alone) to 1 (L1 alone).
    verbose : int
        Print iteration, measures and seconds during the run.
    n_jobs : int or None
        Threads, as in joblib: None is 1, -1 is all cores.

    X is an array or a sparse matrix. A masked array is refused, since its mask would be lost. Duplicates of a sparse matrix are
    summed as floating-point numbers.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        H, by descending weight after the last iteration; with init "custom" in the order given.
    n_components_ : int
    reconstruction_err_ : float
        The Frobenius norm of X - W H, or the square root of twice the divergence, without penalties, for the W that
        `fit_transform` returns; after `fit`, which does not compute that W, for the one of the last iteration.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : array of str
        If X has names of columns that are all strings.

    See Also
    --------
    MiniBatchNMF : For more samples than memory holds, or batches.
    fednmf.tl.nmf : For cells x genes in an AnnData.
    fednmf.tl.choose_k : Which number of components the data support.

    References
    ----------
    Cichocki, A. and Phan, A. H. (2009). Fast local algorithms for large scale nonnegative matrix and tensor factorizations. IEICE
    Transactions on Fundamentals, E92-A(3), 708-721.

    Lee, D. D. and Seung, H. S. (2001). Algorithms for non-negative matrix factorization. Advances in Neural Information Processing
    Systems 13, 556-562.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from fednmf import NMF
    >>> X = load_digits().data                       # 1797 images of 8 x 8 pixels
    >>> model = NMF(n_components=16, random_state=0)
    >>> W = model.fit_transform(X)
    >>> W.shape, model.components_.shape
    ((1797, 16), (16, 64))
    >>> model.transform(X[:5]).shape                 # the weights of the same components in other images
    (5, 16)
    """

    def __init__(
        self,
        n_components: Union[int, Literal["auto"], None] = "auto",
        *,
        init: Optional[Init] = None,
        solver: Solver = "auto",
        beta_loss: AnyLoss = "frobenius",
        tol: float = 1e-4,
        max_iter: int = 200,
        random_state: Any = None,
        alpha_W: float = 0.0,
        alpha_H: Union[float, Literal["same"]] = "same",
        l1_ratio: float = 0.0,
        verbose: int = 0,
        n_jobs: Optional[int] = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, *, W: Any = None, H: Any = None) -> NMF:
        """Finds the components of X (n_samples, n_features). W and H: see `fit_transform`."""
        self._fit(X, W, H)
        return self

    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> np.ndarray:
        """Finds the components of X (n_samples, n_features) and returns W (n_samples, n_components).

        W is the minimiser for `components_`, as `transform` returns it; for a beta below 1 or above 2, whose divergence has
        several local minima, it is the W of the last iteration. W and H (n_components, n_features) are the start with init
        "custom".

        Raises
        ------
        ValueError
            If a parameter is not supported, or X is negative, not finite, or all zero.
        """
        X, W = self._fit(X, W, H)
        loss = self._checked_loss()
        if 1 <= loss <= 2:
            W = self._project(X, self._penalty_on_W(X.shape[1]))
            self.reconstruction_err_ = self._error(X, W, loss)
        return W

    def _fit(self, X: Any, W: Any, H: Any) -> tuple[Any, np.ndarray]:
        """Sets the attributes, and returns the checked X and the W of the last iteration."""
        with _run.kept_if_it_fails(self):
            return self._fit_or_fail(X, W, H)

    def _fit_or_fail(self, X: Any, W: Any, H: Any) -> tuple[Any, np.ndarray]:
        loss = self._checked_loss()
        X = self._checked(X, reset=True)
        start = self._start(X, W, H)
        k = self._k(X.shape[1], start)
        algo, options = self._method(X.shape, k, loss, start is not None)
        tol = _run.at_least_zero("tol", self.tol)
        penalties = self._penalties()
        self._warn_if_one_sided(penalties)
        with _show.Progress() as progress:
            run = _run.factorize(
                [X],
                algo=algo,
                k=k,
                random_state=self.random_state,
                max_iter=_run.count("max_iter", self.max_iter),
                tol=tol / 10,
                options={**options, **penalties},
                scale="as-found" if self.init == "custom" else "sorted" if penalties else "balanced",
                n_jobs=self.n_jobs,
                start=start and (start[0], np.ascontiguousarray(start[1].T)),
                callback=progress.iteration if self.verbose else None,
            )
        if tol > 0 and run.stopped_by == "max_iters":
            _show.warn(
                f"{run.n_iter} iterations did not reach tol={self.tol}; raise max_iter or tol",
                ConvergenceWarning,
            )
        factors = {name: values for name, _, values in run.factors}
        self._warn_if_empty(penalties, factors["U"], factors["V"])
        self.components_ = np.ascontiguousarray(factors["V"].T)
        self.n_components_, self.n_iter_ = k, run.n_iter
        W = np.ascontiguousarray(factors["U"])
        self.reconstruction_err_ = self._error(X, W, loss)
        return X, W

    def _error(self, X: Any, W: np.ndarray, loss: float) -> float:
        if isinstance(X, Parts):
            return float(np.sqrt(sum(self._error(X[rows], W[rows], loss) ** 2 for rows in X.slices())))
        if loss == _FROBENIUS:
            return _losses.frobenius(X, W, self.components_)
        return float(np.sqrt(2 * _losses.divergence(X, W, self.components_, loss)))

    def transform(self, X: Any, *, min_gain: Optional[float] = None) -> np.ndarray:
        """W (n_samples, n_components) for new samples: the minimiser of the loss for `components_`, and of the penalty on
        W.

        With `min_gain` (0.01 suits signatures) each sample has few components: one is used only if it lowers the loss of the sample
        by more than this share of the size of the sample, which is half its squared norm, or for the Kullback-Leibler divergence its
        sum. They are chosen by removing and adding one at a time.
        """
        check_is_fitted(self, "components_")
        X = self._checked(X, reset=False)
        return self._project(X, self._penalty_on_W(X.shape[1]), min_gain)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """W H for W = `X` (n_samples, n_components)."""
        check_is_fitted(self, "components_")
        X = _run.checked(X)
        if X.shape[1] != self.n_components_:
            raise ValueError(f"X has {X.shape[1]} columns, but there are {self.n_components_} components")
        return X @ self.components_

    def _project(self, X: Any, penalty: tuple[float, float], min_gain: Optional[float] = None) -> np.ndarray:
        loss = self._checked_loss()
        beta = None if loss == _FROBENIUS else loss
        if min_gain is not None:
            min_gain = _run.at_least_zero("min_gain", min_gain)
        return _run.project(X, self.components_, self.n_jobs, penalty, beta, min_gain)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked(self, X: Any, reset: bool) -> Any:
        if isinstance(X, Parts):
            return validate_data(self, X, skip_check_array=True, reset=reset)
        X = validate_data(self, _run.accepted(X), reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        return _run.nonnegative(X)

    def _checked_loss(self) -> float:
        """The beta of the loss, if all parameters that are independent of X are supported."""
        self._penalties()
        if self.init is not None and self.init not in _INITS:
            raise ValueError(f"init={self.init!r}: must be None, 'random', 'nndsvd', 'nndsvda', 'nndsvdar' or 'custom'")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver={self.solver!r}: must be 'auto', 'cd' or 'mu'")
        loss = checked_loss(self.beta_loss)
        if loss != _FROBENIUS and self.solver == "cd":
            raise ValueError("solver='cd' is for beta_loss='frobenius'; use 'mu' or 'auto'")
        return loss

    @staticmethod
    def _warn_if_empty(penalties: dict[str, float], *factors: np.ndarray) -> None:
        if penalties and not all(factor.any() for factor in factors):
            _show.warn(
                "no component is left beside the penalties: use smaller alpha_W and alpha_H, fewer components, or another init",
            )

    def _penalties(self) -> dict[str, float]:
        """The options of the program; empty without penalties."""
        alpha_W = _run.at_least_zero("alpha_W", self.alpha_W)
        same = isinstance(self.alpha_H, str) and self.alpha_H == "same"
        alpha_H = alpha_W if same else _run.at_least_zero("alpha_H", self.alpha_H)
        l1_ratio = _run.at_least_zero("l1_ratio", self.l1_ratio)
        if l1_ratio > 1:
            raise ValueError(f"l1_ratio={self.l1_ratio!r}: must be a number from 0 to 1")
        if alpha_W == 0 and alpha_H == 0:
            return {}
        return {"alpha_u": alpha_W, "alpha_v": alpha_H, "l1_ratio": l1_ratio}

    def _penalty_on_W(self, n_features: int) -> tuple[float, float]:
        """The weights of its L1 and its L2 norm."""
        weight = float(self.alpha_W) * n_features
        return weight * float(self.l1_ratio), weight * (1 - float(self.l1_ratio))

    @staticmethod
    def _warn_if_one_sided(penalties: dict[str, float]) -> None:
        if penalties and 0 in (penalties["alpha_u"], penalties["alpha_v"]):
            _show.warn(
                "only one of alpha_W and alpha_H is above 0, so that factor shrinks while the other grows, and the product is hardly "
                "restricted; a penalty on both acts on the product",
            )

    def _start(self, X: Any, W: Any, H: Any) -> Optional[tuple[np.ndarray, np.ndarray]]:
        if self.init != "custom":
            self._warn_of_unused_start(W, H)
            return None
        if W is None or H is None:
            raise ValueError("init='custom' needs W and H")
        W, H = (_run.checked(factor, name, accept_sparse=False, dtype=X.dtype) for name, factor in (("W", W), ("H", H)))
        k = len(H) if self.n_components == "auto" else self._k(X.shape[1], None)
        self._check_start("W", W, (X.shape[0], k))
        self._check_start("H", H, (k, X.shape[1]))
        return W, H

    @staticmethod
    def _warn_of_unused_start(*factors: Any) -> None:
        if any(factor is not None for factor in factors):
            _show.warn("W and H are used with init='custom' only", RuntimeWarning)

    def _check_start(self, name: str, factor: np.ndarray, shape: tuple[int, int]) -> None:
        if factor.shape != shape:
            raise ValueError(f"{name} is {factor.shape[0]} x {factor.shape[1]}, but must be {shape[0]} x {shape[1]}")
        check_non_negative(factor, f"{type(self).__name__} (input {name})")
        if not factor.any():
            raise ValueError(f"{name} is all zero: no start")

    def _k(self, n_features: int, start: Optional[tuple[np.ndarray, np.ndarray]]) -> int:
        if start is not None:
            return len(start[1])
        if self.n_components is None or self.n_components == "auto":
            return n_features
        return _run.count("n_components", self.n_components)

    def _method(self, shape: tuple[int, int], k: int, loss: float, started: bool) -> tuple[str, dict[str, Any]]:
        """The method's name, and its options."""
        fits = k <= min(shape)
        if self.init in ("nndsvd", "nndsvda", "nndsvdar") and not fits:
            raise ValueError(f"init={self.init!r} needs n_components <= {min(shape)}, the smaller dimension of X")
        if self.solver == "auto":
            return "auto", {"init": None if started else self.init, "loss": loss}
        init = None if started else self.init or ("nndsvda" if fits else "random")
        if self.solver == "cd":
            return "hals", {"init": init}
        if loss in (_FROBENIUS, _KULLBACK_LEIBLER):
            return ("mu", {"init": init}) if loss == _FROBENIUS else ("kl-mu", {"init": init, "extrapolation": "none"})
        return "beta-mu", {"init": init, "beta": loss, "extrapolation": "none"}
