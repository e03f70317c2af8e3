#!/usr/bin/env python3
"""Prints docs/reference/python.md, made from the docstrings of the package, which must be installed."""

import inspect
import textwrap

import fednmf

_HEAD = """# Python

Made by `docs/python_reference.py`; a test keeps it up to date. [The guide](../guide/python.md) has examples that belong together.
"""
_GROUPS = {
    "Factorisations": ["fednmf.NMF", "fednmf.MiniBatchNMF", "fednmf.IntegrativeNMF", "fednmf.BooleanMF", "fednmf.federated", "fednmf.mpi", "fednmf.methods"],
    "AnnData": [f"fednmf.tl.{name}" for name in ("nmf", "project", "choose_k", "top_features", "cnmf", "metaprograms", "spectra", "top_lists")],
    "Plots": [f"fednmf.pl.{name}" for name in fednmf.pl.__all__],
    "Results": ["fednmf.Federated", "fednmf.MpiRun", "fednmf.tl.KChoice", "fednmf.tl.Consensus", "fednmf.tl.Programs", "fednmf.tl.MetaPrograms"],
}


def page() -> str:
    made = _HEAD
    for heading, names in _GROUPS.items():
        made += f"\n## {heading}\n"
        for name in names:
            made += _entry(name, _find(name))
    return made


def _find(name: str):
    found = fednmf
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def _entry(name: str, what) -> str:
    made = f"\n### `{name}`\n\n```text\n"
    if inspect.isfunction(what) or hasattr(what, "fit"):
        made += _with_defaults(name.rpartition(".")[2], what)
    made += f"{inspect.cleandoc(what.__doc__)}\n"
    fields = getattr(what, "__dataclass_fields__", {})
    if fields:
        made += "\nAttributes: " + ", ".join(fields) + "\n"
    elif inspect.isclass(what):
        for method in ("fit", "fit_transform", "partial_fit", "transform", "inverse_transform"):
            found = getattr(what, method, None)
            if found is not None and found.__doc__:
                made += f"\n.{method}{_signature(found)}\n    {inspect.cleandoc(found.__doc__)}\n".replace("\n\n\n", "\n\n")
    return made + "```\n"


def _with_defaults(name: str, what) -> str:
    """The call with all parameters and defaults, in lines of at most 130 characters."""
    given, parameters = [], inspect.signature(what).parameters.values()
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        given.append(str(parameter.replace(annotation=parameter.empty)))
    call = f"{name}({', '.join(given)})"
    return textwrap.fill(call, 130, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) + "\n\n"


def _signature(function) -> str:
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        if name != "self":
            names.append(name)
    return f"({', '.join(names)})"


if __name__ == "__main__":
    print(page(), end="")
