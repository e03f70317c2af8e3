"""The examples of docs/guide/python.md and of the README run, and the page's statements on scikit-learn's tests are true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "python.md"
README = ROOT / "README.md"
EXAMPLES = [block.split("```")[0] for block in PAGE.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_example_runs(example):
    if "anndata" in example:
        pytest.importorskip("anndata")
    exec(compile(example, str(PAGE), "exec"), {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_readme_shows_what_its_examples_print(capsys):
    first, *others = README.read_text().split("```python\n")[1:]
    example, after = first.split("```", 1)
    exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out == after.split("```text\n")[1].split("```")[0]
    for other in others:
        exec(compile(other.split("```")[0], str(README), "exec"), {})


def test_there_are_examples():
    assert len(EXAMPLES) == 6


def test_as_many_of_scikit_learns_own_tests_pass_as_the_page_says():
    version, total, passed = re.search(r"\(version ([\d.]+), (\d+) without .*?, (\d+) pass", PAGE.read_text(), re.S).groups()
    if sklearn.__version__ != version:
        pytest.skip(f"the page is about scikit-learn {version}")
    done = subprocess.run([sys.executable, ROOT / "bench" / "run", "python", "tests"], capture_output=True, text=True)
    assert f"{int(total) - int(passed)} failed, {passed} passed" in done.stdout, done.stdout[-2000:] + done.stderr
