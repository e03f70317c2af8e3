"""Runs of the program `fednmf` under mpirun, for data beyond this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import scipy.sparse as sp

from . import _run

#: How errors and warnings of the program begin on stderr.
_FAILS, _WARNS = "error: ", "warning: "


@dataclass(repr=False)
class MpiRun:
    """The result of a run: M ~ U V', in the units of the input; with scale="max", U is multiplied by the divisor."""

    #: By name: "U" and "V", and others of some methods.
    factors: dict[str, np.ndarray]
    #: The events of the trace: start, iter, ..., end.
    trace: list[dict[str, Any]]
    n_iter: int
    stopped_by: str
    #: Those of the last evaluation, by name; with scale="max" of the divided entries, as those of the trace.
    measures: dict[str, float]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {factor.shape}" for name, factor in self.factors.items())
        leading = "".join(f", {name}={value:.4g}" for name, value in list(self.measures.items())[:1])
        return f"MpiRun({shapes}, n_iter={self.n_iter}{leading}, stopped_by={self.stopped_by!r})"

    @property
    def W(self) -> np.ndarray:
        """U, with scikit-learn's name."""
        return self._shared("U")

    @property
    def H(self) -> np.ndarray:
        """V' (components x features), with scikit-learn's name."""
        return self._shared("V").T

    def _shared(self, name: str) -> np.ndarray:
        if name not in self.factors:
            raise AttributeError(f"{name} is private in this method: the parties have it; use fednmf.federated, or the program's --output")
        return self.factors[name]


def mpi(
    data: Any,
    n_components: int,
    *,
    ranks: int,
    algo: str = "auto",
    max_iter: int = 200,
    random_state: Any = 0,
    binary: Union[str, Path, None] = None,
    launcher: Union[str, Sequence[str]] = "mpirun",
    env: Optional[Mapping[str, str]] = None,
    directory: Union[str, Path, None] = None,
    timeout: Optional[float] = None,
    **options: Any,
) -> MpiRun:
    """Factorises a file, or an array, with the program: ``mpirun -n RANKS fednmf --input ...``.

    Parameters
    ----------
    data : str, Path, array or sparse matrix
        A file is read by the ranks, each its own part. An array is written to a temporary file first (.npy, sparse
        .npz).
    n_components : int
    ranks : int
        MPI processes. 1 starts the program without a launcher.
    algo, max_iter
        As --algo and --max-iters.
    random_state : int, RandomState or None
        A whole number is --seed.
    binary : str, Path or None
        The program; None: `fednmf` on the PATH.
    launcher : str or sequence of str
        What starts the ranks, with its arguments: "mpirun", ["mpirun", "--oversubscribe"], "srun".
    env : mapping or None
        Variables beside those of this process.
    directory : str, Path or None
        Where the temporary files go: with several nodes one that all of them see. None: that of the system.
    timeout : float or None
        Seconds after which the run is ended with subprocess.TimeoutExpired.
    **options
        Others of the program, with underscores: tol=1e-5, precision="f32", checkpoint="c.h5". Output and trace are
        taken.

    Returns
    -------
    MpiRun

    Raises
    ------
    ValueError
        If the program refuses input or options, with its message.
    RuntimeError
        If the run fails, with its message.
    FileNotFoundError
        If there is no program, or no launcher.

    Examples
    --------
    >>> found = fednmf.mpi("counts.mtx.gz", 20, ranks=16, precision="f32")   # doctest: +SKIP
    >>> found.W.shape, found.H.shape                                          # doctest: +SKIP
    """
    ranks = _run.count("ranks", ranks)
    taken = sorted({"input", "output", "trace", "components", "k", "seed", "max_iters", "quiet", "json"} & set(options))
    if taken:
        raise ValueError(f"{taken[0]}: is no option of fednmf.mpi, which sets it itself")
    command = _launch(launcher, ranks) + [_program(binary)]
    with tempfile.TemporaryDirectory(prefix="fednmf-", dir=directory) as folder:
        output, trace = Path(folder, "factors.npz"), Path(folder, "run.jsonl")
        command += [f"--input={_input(data, Path(folder))}", f"--components={_run.count('n_components', n_components)}"]
        command += [f"--algo={algo}", f"--seed={_run.seed_of(random_state)}"]
        command += [f"--max-iters={_run.count('max_iter', max_iter)}"]
        command += _run.arguments({**options, "output": output, "trace": trace, "quiet": True})
        variables = {**os.environ, **(env or {})}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=variables)
        message, told = _messages(done.stderr)
        if done.returncode != 0:
            message = message or done.stderr.strip() or f"{command[0]} ended with code {done.returncode}"
            raise ValueError(message) if done.returncode == 2 else RuntimeError(message)
        for warning in told:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        # U and V, and the factors of methods that have others; the rest are attributes.
        with np.load(output) as stored:
            factors = {name: stored[name] for name in stored.files if stored[name].ndim == 2}
    # Zeros and ones have no unit.
    params = events[0]["params"]
    divisor = params.get("scale_divisor") if params.get("binarize") is None else None
    if divisor is not None:
        if set(factors) == {"U", "V"}:
            factors["U"] *= factors["U"].dtype.type(divisor)
        else:
            warnings.warn(f"scale='max' divided the entries by {divisor:g}, and the factors are of these", UserWarning, stacklevel=2)
    end = events[-1]
    evaluated = [event for event in events if event["event"] == "iter"] or [{}]
    other = {"event", "iter", "seconds", "bytes_sent"}
    measures = {name: x for name, x in evaluated[-1].items() if name not in other and isinstance(x, (int, float))}
    return MpiRun(factors, events, end["iter"], end["stopped_by"], measures)


def _launch(launcher: Union[str, Sequence[str]], ranks: int) -> list[str]:
    if ranks == 1:
        return []
    words = [launcher] if isinstance(launcher, str) else list(launcher)
    if not words or shutil.which(words[0]) is None:
        raise FileNotFoundError(
            f"launcher={launcher!r}: there is no such program; install an MPI, or give another launcher"
        )
    return [*words, "-n", str(ranks)]


def _program(binary: Union[str, Path, None]) -> str:
    found = shutil.which("fednmf" if binary is None else str(binary))
    if found is None:
        where = "on the PATH" if binary is None else f"at {binary}"
        raise FileNotFoundError(
            f"there is no program fednmf {where}: install it (make install in a checkout), or name it with binary="
        )
    return found


def _input(data: Any, folder: Path) -> str:
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    # Whole numbers stay so, which need less space.
    data = _run.checked(data, "data", dtype="numeric", ensure_all_finite=False)
    if sp.issparse(data):
        path = folder / "input.npz"
        sp.save_npz(path, data, compressed=False)
        return str(path)
    path = folder / "input.npy"
    np.save(path, data)
    return str(path)


def _messages(stderr: str) -> tuple[str, list[str]]:
    """The error of the program and its warnings, without what the launcher adds."""
    def of(kind):
        return list(dict.fromkeys(line[len(kind) :] for line in stderr.splitlines() if line.startswith(kind)))

    return "\n".join(of(_FAILS)), of(_WARNS)
