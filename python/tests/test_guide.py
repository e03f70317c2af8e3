"""The examples of docs/guide/python.md run."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
EXAMPLES = [block.split("```")[0] for block in PAGE.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_example_runs(example):
    if "anndata" in example:
        pytest.importorskip("anndata")
    exec(compile(example, str(PAGE), "exec"), {})


def test_there_are_examples():
    assert len(EXAMPLES) == 6
