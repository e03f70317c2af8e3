"""The algorithm for vantage6 (examples/vantage6), with the mock client and the wrapper of its tools."""

import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
mock = pytest.importorskip("vantage6.algorithm.tools.mock_client", reason="needs vantage6-algorithm-tools 4")

EXAMPLE = Path(__file__).parents[2] / "examples" / "vantage6"
PROGRAM = os.environ.get("FEDNMF_BINARY") or shutil.which("fednmf")
SHARED = np.kron(np.eye(3), np.ones((1, 10))) * np.random.default_rng(0).gamma(3, 1, (3, 30))


@pytest.fixture(autouse=True)
def algorithm(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import v6_fednmf

    return v6_fednmf


def rows(seed, n=80):
    """Counts of three components that all organizations have."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2 * rng.dirichlet(np.full(3, 0.3), n) @ SHARED)
    return pd.DataFrame(counts, columns=[f"g{j}" for j in range(30)])


def client(*frames):
    return mock.MockAlgorithmClient([[{"database": frame}] for frame in frames], module="v6_fednmf", organization_ids=[7, 8, 9])


def run(of, method, organizations=(7,), **kwargs):
    task = of.task.create(input_={"method": method, "kwargs": kwargs}, organizations=list(organizations))
    return of.wait_for_results(task["id"])


@pytest.mark.parametrize("what", ["lists", "spectra"])
def test_nodes_find_their_common_components_from_one_release(what, monkeypatch):
    monkeypatch.setenv("FEDNMF_RELEASE", what)
    (found,) = run(client(rows(1), rows(2), rows(3)), "metaprograms", ks=[3], what=what, n_top=10)
    assert len(found["top"]) == 3 and not found["excluded"]
    blocks = [{f"g{j}" for j in range(10 * b, 10 * b + 10)} for b in range(3)]
    assert sorted(map(sorted, found["top"].values())) == sorted(map(sorted, blocks))
    assert {of["share"] for of in found["table"].values()} == {1.0}
    weights = np.array([[found["weights"][name][f"g{j}"] for j in range(30)] for name in found["top"]])
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (SHARED, weights)]
    assert ((unit[0] @ unit[1].T).max(axis=1) > (0.99 if what == "spectra" else 0.8)).all()


def test_a_node_releases_no_weights_unless_its_owner_allows_it(monkeypatch):
    of = client(rows(1), rows(2), rows(3))
    (lists,) = run(of, "release", ks=[3], n_top=10)
    assert all(isinstance(name, str) for values in lists["values"] for name in values)
    assert set(lists) == {"index", "columns", "values"}
    assert run(of, "release", ks=[3], what="spectra") == [{"excluded": "the owner does not release spectra"}]
    monkeypatch.setenv("FEDNMF_RELEASE", "nothing")
    assert run(of, "release", ks=[3]) == [{"excluded": "the owner does not release lists"}]
    with pytest.raises(RuntimeError, match="fewer than two organizations have released anything"):
        run(of, "metaprograms", ks=[3])


def test_small_nodes_and_rare_columns_are_left_out(monkeypatch):
    of = client(rows(1), rows(2), rows(3, n=40))
    (found,) = run(of, "metaprograms", ks=[3], n_top=10)
    assert found["excluded"] == {"9": "too few rows"} and len(found["top"]) == 3
    assert run(of, "release", ks=[3, 9]) == [{"excluded": "too few rows"}]
    assert run(of, "join", [9], options={"algo": "fnmf"}) == [{"excluded": "too few rows"}]
    # One patient has this.
    rare = rows(1).assign(rare=[1000] + 79 * [0])
    monkeypatch.setenv("FEDNMF_RELEASE", "spectra")
    for what in ("lists", "spectra"):
        (released,) = run(client(rare), "release", [0], ks=[3], what=what)
        assert "rare" not in json.dumps(released)
    monkeypatch.setenv("FEDNMF_MIN_ROWS_PER_COLUMN", "1")
    assert "rare" in json.dumps(run(client(rare), "release", [0], ks=[3]))


def test_a_task_cannot_set_what_belongs_to_the_owner():
    from v6_fednmf.partial import arguments

    assert arguments({"algo": "--no-policy", "n_components": 3, "dp": False}) == ["--algo=--no-policy", "--k=3"]
    of = client(rows(1), rows(2), rows(3))
    for options in ({"hub": "evil.example:443"}, {"no_policy": True}, {"accept_risk": "rows"}, {"output": "/tmp/x"}):
        with pytest.raises(ValueError, match="a task may not give"):
            run(of, "join", options=options)
    with pytest.raises(ValueError, match="not in the data of this node: age"):
        run(of, "release", ks=[3], columns=["g1", "age"])
    with pytest.raises(ValueError, match="not numbers"):
        run(client(rows(1).assign(name="Ada")), "release", [0], ks=[3])


def test_the_store_describes_the_functions(algorithm):
    store = json.loads((EXAMPLE / "algorithm_store.json").read_text())
    assert {function["name"] for function in store["functions"]} == set(algorithm.__all__)
    kinds = {"column_list", "integer_list", "organization_list", "string", "integer", "float", "json"}
    for function in store["functions"]:
        given = inspect.signature(inspect.unwrap(getattr(algorithm, function["name"]))).parameters
        # The first one is the client or the data.
        names = list(given)[1:]
        assert [argument["name"] for argument in function["arguments"]] == names, function["name"]
        assert function["type"] == ("central" if next(iter(given)) == "client" else "federated")
        for argument in function["arguments"]:
            default = given[argument["name"]].default
            assert argument["type"] in kinds
            assert argument.get("has_default_value", False) == (default is not inspect.Parameter.empty)
            if default not in (None, inspect.Parameter.empty):
                assert argument["default_value"] == str(default)


def start(site, method, kwargs, hub):
    """A node's container, without the container: the command of the image with the environment that a node gives it."""
    rows(ord(site[0]), n=200).to_csv(f"{site}/rows.csv", index=False)
    Path(f"{site}/input").write_text(json.dumps({"method": method, "kwargs": kwargs}))
    environment = {
        **os.environ,
        "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(EXAMPLE), *sys.path]),
        "PKG_NAME": "v6_fednmf",
        "INPUT_FILE": f"{site}/input",
        "OUTPUT_FILE": f"{site}/output",
        "USER_REQUESTED_DATABASE_LABELS": "default",
        "DEFAULT_DATABASE_URI": f"{site}/rows.csv",
        "FEDNMF_HUB": hub,
        "FEDNMF_SITE": str(site),
        "FEDNMF_JOIN_OPTIONS": "--site-log log.jsonl",
    }
    wrap = "from vantage6.algorithm.tools.wrap import wrap_algorithm; wrap_algorithm(log_traceback=False)"
    command = [sys.executable, "-c", wrap]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.skipif(PROGRAM is None or not hasattr(os, "fork"), reason="needs the program fednmf")
def test_nodes_run_together_over_a_hub(algorithm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["north", "south", "west"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keygen = [PROGRAM, "keygen", "keys", "--sites", ",".join(names), "--hub", "localhost"]
    subprocess.run(keygen, check=True, capture_output=True)
    policy = {"methods": ["fnmf"], "require": ["secure-sum", "transcript"], "min_parties": 3, "min_rows": 50}
    for name in names:
        Path(name).mkdir()
        for source, target in ((f"{name}.pem", "site.pem"), (f"{name}.key", "site.key"), ("ca.pem", "ca.pem")):
            shutil.copy(f"keys/{source}", f"{name}/{target}")
        Path(name, "policy.json").write_text(json.dumps(policy))
    keys = ["--cert", "keys/hub.pem", "--key", "keys/hub.key", "--ca", "keys/ca.pem"]
    hub = subprocess.Popen(
        [PROGRAM, "serve", "--listen", f"127.0.0.1:{port}", "--sites", ",".join(names), *keys],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(1)
        refused = {"algo": "fnmf", "n_components": 3}
        node = start("north", "join", {"options": refused}, f"localhost:{port}")
        assert "this site refuses the run" in node.communicate(timeout=120)[0]
        assert "--secure-sum" in Path("north/join.log").read_text()
        options = {"algo": "fnmf", "n_components": 3, "secure_sum": True, "max_iters": 60, "eval_every": 20}
        nodes = [start(name, "join", {"options": options}, f"localhost:{port}") for name in names]
        logs = [node.communicate(timeout=300)[0] for node in nodes]
    finally:
        hub.kill()
        hub.wait()
    results = [json.loads(Path(name, "output").read_text()) for name in names]
    assert all(node.returncode == 0 for node in nodes), logs
    V = np.array(results[0]["V"])
    assert V.shape == (30, 3) and results[0]["columns"] == [f"g{j}" for j in range(30)]
    cosines = (SHARED / np.linalg.norm(SHARED, axis=1, keepdims=True)) @ (V / np.linalg.norm(V, axis=0))
    assert (cosines.max(axis=1) > 0.95).all()
    # Private factors stay at their sites.
    for name, result in zip(names, results):
        assert set(result) == {"V", "columns", "digest"} and list(Path(name).glob("factors.party-*.npz"))
        assert Path(name, "log.jsonl").exists() and Path(name, "transcript.jsonl").exists()
    # The central function, with what the nodes have answered.
    answers = iter(results)
    monkeypatch.setattr(algorithm, "join", lambda options, columns=None: next(answers))
    (found,) = run(client(rows(1), rows(2), rows(3)), "together", options=options)
    assert found["V"] == results[0]["V"] and found["organizations"] == [7, 8, 9]
    answers = iter([*results[:2], {**results[2], "digest": "other"}])
    with pytest.raises(RuntimeError, match="different shared factors"):
        run(client(rows(1), rows(2), rows(3)), "together", options=options)
    answers = iter([*results[:2], {"excluded": "too few rows"}])
    with pytest.raises(RuntimeError, match="there was no run, since organizations cannot take part: {9: 'too few rows'}"):
        run(client(rows(1), rows(2), rows(3)), "together", options=options)
