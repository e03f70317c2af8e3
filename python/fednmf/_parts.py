"""A matrix that stays where it is, in a file or an array of dask, and is read by rows in each pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import scipy.sparse as sp

from . import _rows, _run

#: Bytes of the rows that are read together; longer reads are not faster.
_PANEL = 32 << 20
#: Rows from which the size of the others is guessed.
_PROBED = 16
#: What follows on negative entries.
NEGATIVE = ", as scaled data have; use counts or log counts: a layer of them (layer=), or adata.raw.to_adata()"


class Parts:
    """The rows of `X`, or some of their columns, checked as they are read; `what` names them in messages."""

    def __init__(self, X: Any, what: str, columns: Optional[np.ndarray] = None, dtype: Any = None) -> None:
        _rows.check(X)
        self._given, self._what, self._columns = X, what, columns
        self.dtype = np.dtype(dtype or (np.float32 if X.dtype == np.float32 else np.float64))
        self.shape = int(X.shape[0]), int(X.shape[1] if columns is None else len(columns))
        self.sparse = False
        places = np.unique(np.linspace(0, self.shape[0] - 1, _PROBED).astype(int)) if self.shape[0] else []
        probed = [self[row : row + 1] for row in places]
        self.sparse = any(map(sp.issparse, probed))
        stored = max((sp.csr_matrix(part).nnz for part in probed), default=0) if self.sparse else self.shape[1]
        row = stored * (self.dtype.itemsize + (4 if self.sparse else 0)) + 8
        # Whole chunks, since a part of one is not read or computed alone.
        chunk = getattr(X, "chunks", None)
        chunk = int(np.max(chunk[0])) if chunk else 1
        self.at_once = -(-max(_PANEL // row, 1) // chunk) * chunk

    def cast(self, dtype: Any) -> Parts:
        """The same rows in another type."""
        return Parts(self._given, self._what, self._columns, dtype)

    def __getitem__(self, rows: slice) -> Any:
        part = _rows.read(self._given, [(rows.start, rows.stop)])
        part = part if self._columns is None else part[:, self._columns]
        part = _run.canonical(_run.checked(part, self._what, dtype=self.dtype))
        # Chunks of dask may be of either kind.
        part = sp.csr_matrix(part) if self.sparse and not sp.issparse(part) else part
        values = part.data if sp.issparse(part) else part
        if values.size and values.min() < 0:
            raise ValueError(f"{self._what} has negative entries{NEGATIVE}")
        return part

    def slices(self) -> Iterator[slice]:
        """The rows of each part."""
        m = self.shape[0]
        return (slice(first, min(first + self.at_once, m)) for first in range(0, m, self.at_once))

    def read(self, first: int, end: int) -> Any:
        """Some rows as the native part takes them."""
        return _run.native(self[first:end])
