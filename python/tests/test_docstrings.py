"""Examples in docstrings run and print what they show, and what everybody sees first has one."""

import doctest
import importlib
import pkgutil

import fednmf
import pytest

MODULES = [f"fednmf.{module.name}" for module in pkgutil.iter_modules(fednmf.__path__) if module.name != "_fednmf"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_show(name):
    module = importlib.import_module(name)
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    text = "".join(str(example.source) for test in found for example in test.examples)
    for package in ("anndata", "pandas"):
        if package in text or "tl." in text or "metaprograms" in text:
            pytest.importorskip(package)
    if "pl." in text:
        pytest.importorskip("matplotlib").use("Agg")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(module, optionflags=flags).failed == 0


def test_everything_public_has_an_example():
    public = [getattr(fednmf, name) for name in fednmf.__all__ if name not in ("pl", "tl", "__version__")]
    public += [getattr(module, name) for module in (fednmf.pl, fednmf.tl) for name in module.__all__]
    # Results are made by a function, which has the example.
    made = ("Federated", "Method", "MpiRun", "Consensus", "KChoice", "MetaPrograms", "Programs", "methods")
    missing = [one.__name__ for one in public if one.__name__ not in made and ">>>" not in (one.__doc__ or "")]
    assert missing == []
