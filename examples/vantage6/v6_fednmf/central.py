"""What runs once for a task, and sees only what the nodes release."""

from typing import Any

import pandas as pd
from fednmf import tl
from vantage6.algorithm.tools.decorators import algorithm_client
from vantage6.algorithm.tools.util import info


@algorithm_client
def together(client: Any, options: dict, columns: list[str] | None = None, organizations: list[int] | None = None) -> dict:
    """Factorises the rows of all nodes together: each runs `fednmf join` over a hub.

    Parameters
    ----------
    options : dict
        Of the run: {"algo": "fnmf", "n_components": 5, "secure_sum": True, "max_iters": 50}.
    columns : list of str or None
        The columns to factorise.
    organizations : list of int or None
        The organizations that take part; None: all.

    Returns
    -------
    dict
        The shared factor "V" (columns x components) and its "columns". The weights of rows stay at their nodes.
    """
    results = _at_all_nodes(client, "join", {"options": options, "columns": columns}, organizations)
    excluded = {organization: result["excluded"] for organization, result in results.items() if "excluded" in result}
    if excluded:
        # The others have waited for them in vain.
        raise RuntimeError(f"there was no run, since organizations cannot take part: {excluded}")
    if len({result["digest"] for result in results.values()}) != 1:
        raise RuntimeError("the nodes have different shared factors, which cannot be of one run")
    result = next(iter(results.values()))
    return {"V": result["V"], "columns": result["columns"], "organizations": list(results)}


@algorithm_client
def metaprograms(
    client: Any,
    ks: list[int],
    n_metaprograms: int | None = None,
    what: str = "lists",
    rule: str = "genenmf",
    n_top: int = 50,
    min_share: float = 0.5,
    columns: list[str] | None = None,
    organizations: list[int] | None = None,
) -> dict:
    """Finds the components that the nodes have in common: each factorises alone and releases once.

    Parameters
    ----------
    ks : list of int
        Numbers of components.
    n_metaprograms : int or None
        Number of clusters; None: chosen by the silhouette.
    what : "lists" or "spectra"
        What each node releases.
    rule, n_top, min_share
        Of `fednmf.tl.metaprograms`.
    columns, organizations
        As in `together`.

    Returns
    -------
    dict
        "top" columns, "weights", "table" (share of the organizations, silhouette, ...) by meta-programme, and "excluded".
    """
    given = {"ks": ks, "what": what, "n_top": n_top, "columns": columns}
    results = _at_all_nodes(client, "release", given, organizations)
    excluded = {organization: result["excluded"] for organization, result in results.items() if "excluded" in result}
    tables = {str(name): _table(str(name), result) for name, result in results.items() if name not in excluded}
    if len(tables) < 2:
        raise RuntimeError(f"fewer than two organizations have released anything; excluded: {excluded}")
    found = tl.metaprograms(tables, n_metaprograms=n_metaprograms, rule=rule, n_top=n_top, min_share=min_share)
    return {
        "top": found.genes,
        "weights": found.weights.T.to_dict(),
        "table": found.table.T.to_dict(),
        "excluded": {str(organization): why for organization, why in excluded.items()},
    }


def _table(organization: str, result: dict) -> pd.DataFrame:
    index = [(organization, k, component) for k, component in result["index"]]
    names = ["sample", "k", "component"]
    return pd.DataFrame(result["values"], pd.MultiIndex.from_tuples(index, names=names), result["columns"])


def _at_all_nodes(client: Any, method: str, kwargs: dict, organizations: list[int] | None) -> dict[int, dict]:
    """The result of each organization."""
    chosen = organizations or [organization["id"] for organization in client.organization.list()]
    tasks = {}
    for organization in chosen:
        # A task for each, since results do not say whose they are.
        task = client.task.create(
            input_={"method": method, "kwargs": kwargs}, organizations=[organization], name=f"fednmf {method}"
        )
        tasks[organization] = task["id"]
    info(f"{method} at {len(chosen)} organizations")
    results = {organization: client.wait_for_results(task_id=task) for organization, task in tasks.items()}
    failed = {"excluded": "the task has failed; its log says why"}
    return {organization: (result and result[0]) or failed for organization, result in results.items()}
