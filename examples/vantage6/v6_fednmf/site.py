"""What the owner of a node has set, in `algorithm_env` of the node's configuration. No task can change it."""

import os
import shlex
from pathlib import Path

import pandas as pd


def number(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


def min_rows() -> int:
    """Least number of rows with which this node takes part."""
    return int(number("FEDNMF_MIN_ROWS", 50))


def min_rows_per_column() -> int:
    """A column with entries in fewer rows is left out of what this node releases."""
    return int(number("FEDNMF_MIN_ROWS_PER_COLUMN", 10))


def rows_per_component() -> float:
    """Least number of rows for each component."""
    return number("FEDNMF_ROWS_PER_COMPONENT", 10)


def allowed() -> str:
    """What `release` may release: "lists" of top columns, "spectra", or "nothing"."""
    return os.environ.get("FEDNMF_RELEASE", "lists")


def hub() -> str:
    """HOST:PORT of the hub that this node dials, whatever a task says."""
    return os.environ["FEDNMF_HUB"]


def folder() -> Path:
    """The owner's folder: site.pem, site.key, ca.pem and policy.json, and the results of `join`."""
    return Path(os.environ["FEDNMF_SITE"]).resolve()


def own_options() -> list[str]:
    """Options of `fednmf join` that are this site's own affair, such as --site-log and --budget; files are in its folder."""
    return shlex.split(os.environ.get("FEDNMF_JOIN_OPTIONS", ""))


def chosen(data: pd.DataFrame, columns: list[str] | None) -> pd.DataFrame:
    """The columns of the task, which have to be numbers."""
    unknown = [] if columns is None else [name for name in columns if name not in data.columns]
    if unknown:
        raise ValueError(f"{len(unknown)} columns of the task are not in the data of this node: {unknown[0]}, ...")
    data = data if columns is None else data[columns]
    if not all(pd.api.types.is_numeric_dtype(dtype) for dtype in data.dtypes):
        raise ValueError("some columns are not numbers: name those to factorise in the task (columns)")
    return data
