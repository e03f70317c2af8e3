from collections.abc import Mapping
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

__version__: str

# An array, or (data, indices, indptr, shape) of a CSR matrix.
_Matrix = Any
_Array = NDArray[np.floating[Any]]

def factorize(
    parts: list[_Matrix], dtype: str, settings: Mapping[str, Any], start: Optional[tuple[_Array, _Array]] = None
) -> tuple[list[tuple[str, Optional[int], _Array]], dict[str, Any]]: ...
def project(
    given: _Matrix,
    dtype: str,
    v: _Array,
    penalty: tuple[float, float],
    threads: int,
    beta: Optional[float] = None,
    min_gain: Optional[float] = None,
) -> _Array: ...
def online_step(
    given: _Matrix,
    dtype: str,
    state: tuple[_Array, _Array, _Array],
    rows: float,
    step: tuple[float, tuple[float, float], tuple[float, float], int],
    divergence: bool,
) -> tuple[_Array, _Array, _Array, float, float]: ...
def batches(m: int, size: int) -> list[list[tuple[int, int]]]: ...
def choose_k(given: _Matrix, settings: Mapping[str, Any]) -> dict[str, Any]: ...
def methods() -> list[tuple[str, str, Optional[str]]]: ...
