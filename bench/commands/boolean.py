"""Compare Boolean methods with other programs on one core.

    python3 -m venv VENV && VENV/bin/pip install torch numpy scipy PyBMF
    git clone https://github.com/sdall/elbmf-python
    VENV/bin/python bench/run boolean --elbmf elbmf-python/src --mushroom DIR/mushroom/mushroom.dat > boolean.md

ELBMF is compared per iteration: its authors' PyTorch code runs in f32 on a dense matrix, fednmf in f32 on the sparse
one. The two alternate for --rounds rounds, and the best time counts. ASSO, GRECOND and MEBF are compared per run with
PyBMF; a run of PyBMF that exceeds --limit gives a lower bound of the ratio. Times of fednmf are solver times without
loading, those of the baselines are the time of the call. Prints a Markdown table.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import scipy.sparse as sparse

from lib.program import ONE_THREAD, add_binary_option, find_binary, run_traced

# Both run in a process of their own and print seconds.
ELBMF = """
import sys, time, numpy as np, scipy.sparse as sparse, torch
sys.path.insert(0, {0!r})
torch.set_num_threads(1)
from elbmf import elbmf
x = torch.tensor(sparse.load_npz({1!r}).toarray().astype(np.float32))
times = []
elbmf(x, {2}, maxiter={3}, tolerance=-1.0, callback=lambda *_: times.append(time.perf_counter()))
print((times[-1] - times[0]) / (len(times) - 1))
"""
PYBMF = """
import time, io, contextlib, scipy.sparse as sparse
from PyBMF.models import Asso, GreConD, MEBF
x = sparse.load_npz({1!r}).astype(float)
models = {{"asso": lambda: Asso(tau=0.5, k={2}), "grecond": lambda: GreConD(k={2}), "mebf": lambda: MEBF(k={2}, t=0.5)}}
model = models[{0!r}]()
model.show_matrix = lambda *_, **__: None  # plots despite display=False
quiet = dict(verbose=False, display=False, show_logs=False, save_model=False, show_result=False)
start = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    model.fit(X_train=x, task="reconstruction", **quiet)
print(time.perf_counter() - start)
"""


def mushroom(path):
    """Reads FIMI transactions, whose items count from 1, as a 0/1 matrix."""
    with open(path) as file:
        rows = [sorted({int(item) - 1 for item in line.split()}) for line in file if line.strip()]
    starts = np.cumsum([0] + [len(row) for row in rows])
    items = np.concatenate(rows)
    return sparse.csr_matrix((np.ones(len(items)), items, starts), shape=(len(rows), int(items.max()) + 1))


def tiles():
    """Returns a 6000 x 4000 matrix of 20 tiles of ones and as many scattered ones, with a density below 1 %."""
    rng, (m, n) = np.random.default_rng(5), (6000, 4000)
    x = np.zeros((m, n), bool)
    for _ in range(20):
        x[np.ix_(rng.choice(m, 90, replace=False), rng.choice(n, 60, replace=False))] = True
    x.ravel()[rng.choice(m * n, int(x.sum()), replace=False)] = True
    return sparse.csr_matrix(x.astype(float))


def run_python(code, *arguments, limit):
    """Returns the seconds that a script prints, or None if it exceeds the limit."""
    words = [sys.executable, "-c", code.format(*arguments)]
    try:
        done = subprocess.run(words, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def row(options, binary, method, path):
    """Returns the seconds of fednmf and of the baseline, and whether the latter is a lower bound."""
    command = [
        binary,
        "--algo",
        method,
        "--parties",
        1,
        "--input",
        path,
        "-k",
        options.k,
        "--precision",
        "f32",
        "--eval-every",
        0,
    ]
    if method != "elbmf":
        seconds = run_python(PYBMF, method, path, options.k, limit=options.limit)
        return run_traced(command)[-1]["seconds"], seconds or options.limit, seconds is None
    ours, baseline = [], []
    for _ in range(options.rounds):
        end = run_traced([*command, "--max-iters", options.iterations])[-1]
        ours.append(end["seconds"] / end["iter"])
        baseline.append(run_python(ELBMF, options.elbmf, path, options.k, options.iterations, limit=3600))
    return min(ours), min(baseline), False


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run boolean", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--elbmf", metavar="DIR", help="directory of the authors' elbmf.py [ELBMF is skipped]")
    parser.add_argument("--mushroom", metavar="FILE", help="FIMI transactions [this data set is skipped]")
    parser.add_argument("-k", type=int, default=20, help="components [%(default)s]")
    parser.add_argument("--iterations", type=int, default=60, help="iterations of ELBMF [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of ELBMF [%(default)s]")
    parser.add_argument("--limit", type=float, default=120.0, help="time limit of a PyBMF run in seconds [%(default)s]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    matrices = {"tiles 6000 x 4000": tiles()}
    if options.mushroom:
        matrices["mushroom"] = mushroom(options.mushroom)
    print("| matrix | density | method | fednmf, s | baseline, s | speedup |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, x in matrices.items():
            path = os.path.join(folder, "x.npz")
            sparse.save_npz(path, x.tocsr())
            density = x.nnz / (x.shape[0] * x.shape[1])
            for method in (["elbmf"] if options.elbmf else []) + ["asso", "grecond", "mebf"]:
                ours, baseline, late = row(options, binary, method, path)
                bound = ">" if late else ""
                what = "ELBMF, per iteration" if method == "elbmf" else method.upper()
                print(
                    f"| {name} | {100 * density:.2f} % | {what} | {ours:.4g} | {bound}{baseline:.4g} | "
                    f"{bound}{baseline / ours:.1f} |",
                    flush=True,
                )
