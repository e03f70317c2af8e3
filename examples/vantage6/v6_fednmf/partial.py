"""What runs at a node, beside its data."""

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from fednmf import tl
from vantage6.algorithm.tools.decorators import data
from vantage6.algorithm.tools.util import info

from . import site

#: Options of `fednmf join` that a task may give. Whether this site runs with them is up to its policy.
OPTIONS = {
    "algo", "n_components", "max_iters", "tol", "eval_every", "local_iters", "secure_sum", "secure_threshold",
    "suppress_rare", "dp", "dp_unit", "epsilon", "delta", "clip", "common_columns",
}  # fmt: skip
#: Seconds to wait for the hub and the other sites.
WAIT = 600


@data(1)
def join(df: pd.DataFrame, options: dict, columns: list[str] | None = None) -> dict:
    """Takes part in a run of `fednmf join` over the owner's hub.

    Parameters
    ----------
    df : DataFrame (rows x columns)
        The data of this node; they stay here.
    options : dict
        Of the run, by their names with underscores: {"algo": "fnmf", "n_components": 5, "secure_sum": True}.
    columns : list of str or None
        The columns to factorise.

    Returns
    -------
    dict
        "V" (columns x components), its "columns" and "digest"; or "excluded", why this node does not take part.
    """
    refused = sorted(set(options) - OPTIONS)
    if refused:
        raise ValueError(f"a task may not give {', '.join(refused)}")
    df = site.chosen(df, columns)
    if len(df) < site.min_rows():
        return {"excluded": "too few rows"}
    folder = site.folder()
    with tempfile.TemporaryDirectory() as temporary:
        rows = Path(temporary) / "rows.csv"
        df.to_csv(rows, index=False)
        command = [
            "fednmf", "join", "--hub", site.hub(), "--cert", "site.pem", "--key", "site.key", "--ca", "ca.pem",
            "--policy", "policy.json", "--transcript", "transcript.jsonl", *site.own_options(), "--wait", str(WAIT),
            "--input", rows, "--header", "yes", "--index-col", "no", "--output", "factors.npz", *arguments(options),
        ]  # fmt: skip
        info("fednmf joins the run; the log stays in the folder of the site")
        with open(folder / "join.log", "ab") as log:
            code = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
    if code == 2:
        raise RuntimeError("this site refuses the run, or its options are wrong; join.log at the site says why")
    if code != 0:
        raise RuntimeError(f"fednmf has ended with exit code {code}; join.log at the site says why")
    with np.load(folder / "factors.npz") as factors:
        V, names = factors["V"], json.loads(str(factors["column_names"]))
    return {"V": V.tolist(), "columns": names, "digest": hashlib.sha256(V.tobytes()).hexdigest()}


def arguments(options: dict) -> list[str]:
    """{"n_components": 5, "secure_sum": True} is --k=5 --secure-sum. With = a value cannot become an option."""
    words = []
    for name, value in options.items():
        flag = "--k" if name == "n_components" else "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words.append(f"{flag}={value}")
    return words


@data(1)
def release(df: pd.DataFrame, ks: list[int], what: str = "lists", n_top: int = 50, columns: list[str] | None = None) -> dict:
    """Factorises the data of this node alone, and releases spectra or lists of top columns.

    Parameters
    ----------
    df : DataFrame (rows x columns)
        The data of this node; they stay here.
    ks : list of int
        Numbers of components.
    what : "lists" or "spectra"
        Lists of top columns, or the weights of all columns, which the owner of the node has to allow.
    n_top : int
        Columns of a list.
    columns : list of str or None
        The columns to factorise.

    Returns
    -------
    dict
        "index" of (k, component), "columns" and "values" (components x columns, or x ranks); or "excluded", why this node
        releases nothing.
    """
    if what not in ("lists", "spectra"):
        raise ValueError(f"what={what!r}: must be 'lists' or 'spectra'")
    if site.allowed() not in (what, "spectra"):
        return {"excluded": f"the owner does not release {what}"}
    df = site.chosen(df, columns)
    if len(df) < max(site.min_rows(), site.rows_per_component() * max(ks)):
        return {"excluded": "too few rows"}
    df = df.loc[:, (df != 0).sum() >= site.min_rows_per_column()]
    table = tl.spectra({"node": df}, ks)
    table = tl.top_lists(table, n_top) if what == "lists" else table
    index = [[int(k), int(component)] for _, k, component in table.index]
    return {"index": index, "columns": [str(name) for name in table.columns], "values": table.to_numpy().tolist()}
