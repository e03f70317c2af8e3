"""How `compare` runs each program and reads its history: (iteration, solver seconds, error)."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lib.program import ONE_THREAD, history, read_trace

# Iterations of the trial run that estimates the time per iteration.
TRIAL = 5
# PLANC's numbers of its algorithms.
PLANC = {"mu": 0, "hals": 1, "bpp": 2, "aoadmm": 4}
# Options of the DSANLS reference, by the fednmf method that does the same.
SKETCHES = {
    "hals": ["-s", "1", "1"],
    "dsanls --sketch-size 10%": ["-s", "0.1", "0.1", "-t", "1", "1"],
    "dsanls --sketch gaussian --sketch-size 10%": ["-s", "0.1", "0.1", "-m", "1", "-t", "1", "1"],
}
# Entries of a sparse matrix beyond which a program without sparse matrices is left out: its dense copy is too large.
LARGEST_DENSE_COPY = 100_000_000
# Entries of a matrix beyond which the DSANLS reference evaluates less often.
LARGEST_OFTEN_EVALUATED = 10_000_000


class Run:
    """What a run left: its history, empty after a failure, its factors (U, V) or None, and its command line."""

    def __init__(self, points, factors, command):
        self.points, self.factors, self.command = points, factors, command


class Entry:
    """A program with a method and a precision. Entries with the same `method` do the same iteration."""

    # Whether the program stops after a number of seconds; others need a trial run and a number of iterations.
    stops_by_time = False
    losses = ("frobenius",)
    loss = "frobenius"

    def __init__(self, program, method, precision, command):
        self.program, self.method, self.precision, self.command = program, method, precision, command

    @property
    def key(self):
        return self.program, self.method, self.precision

    def accepts(self, case):
        return True

    def threads(self, ranks):
        """Returns the number of MPI processes, 0 for a program without MPI, and the threads of each."""
        return ranks, 1

    def words(self, case, ranks, iterations, seed, scratch):
        """Returns the command line; `scratch` is a directory for its files."""
        raise NotImplementedError

    def environment(self):
        return {}

    def history(self, output, scratch):
        raise NotImplementedError

    def factors(self, case, scratch):
        """Returns U (m x k) and V (n x k) of the run, or None if the program does not write them."""
        return None

    def run(self, options, case, ranks, iterations, seed, seconds=None):
        """Runs the program; `seconds` limits an entry that stops by time."""
        processes, threads = self.threads(ranks)
        self.seconds = seconds
        env = os.environ | dict.fromkeys(ONE_THREAD, str(threads)) | self.environment()
        with tempfile.TemporaryDirectory() as scratch:
            words = self.words(case, ranks, iterations, seed, scratch)
            if processes:
                words = [*shlex.split(options.mpirun), "-n", str(processes), *words]
            start, factors = time.time(), None
            try:
                done = subprocess.run(
                    shlex.split(options.prefix) + words,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=options.timeout,
                )
                points = [point for point in self.history(done.stdout, scratch) if np.isfinite(point[2])]
                result = f"exit code {done.returncode}: {(done.stderr or done.stdout)[-300:]}"
            except subprocess.TimeoutExpired:
                points, result = [], f"exceeded {options.timeout:.0f} s"
            if points:
                factors = self.factors(case, scratch)
                _, seconds, error = points[-1]
                result = f"{len(points)} points, {seconds:.3g} s of {time.time() - start:.1f} s, error {error:.5f}"
            print(
                f"  {self.program} {self.method} {self.precision}, {ranks} ranks, {iterations} iterations: {result}",
                file=sys.stderr,
                flush=True,
            )
            return Run(points, factors, shlex.join(words))


def stored_factors(path):
    if not path.exists():
        return None
    with np.load(path) as file:
        return file["U"], file["V"]


class Fednmf(Entry):
    losses = ("frobenius", "kl")

    def words(self, case, ranks, iterations, seed, scratch):
        interval = max(1, iterations // 400)
        command = f"--algo {self.method} -k {case.k} --precision {self.precision} --max-iters {iterations} "
        command += f"--eval-every {interval} --seed {seed} --quiet"
        command += " --loss kl" if self.loss == "kl" else ""
        files = ["--input", case.native, "--trace", f"{scratch}/trace.jsonl", "--output", f"{scratch}/factors.npz"]
        return [self.command, *shlex.split(command), *files]

    def history(self, output, scratch):
        trace = Path(scratch, "trace.jsonl")
        measure = "kl_divergence" if self.loss == "kl" else "rel_error"
        return history(read_trace(trace), measure) if trace.exists() else []

    def factors(self, case, scratch):
        return stored_factors(Path(scratch, "factors.npz"))


class Planc(Entry):
    def words(self, case, ranks, iterations, seed, scratch):
        m, n = case.shape
        command = [self.command, "-a", str(PLANC[self.method]), "-k", str(case.k), "-d", f"{m} {n}"]
        command += ["-p", f"{ranks} 1", "-i", case.planc(ranks), "-t", str(iterations + 1), "-e", "1", "-r", "0 0 0 0"]
        command += ["--seed", str(193957 + seed), "-o", f"{scratch}/factor"]
        return command + (["--unpartitioned", "0"] if case.sparse else [])

    def history(self, output, scratch):
        seconds, errors, iteration = {}, {}, None
        for line in output.splitlines():
            if found := re.search(r"Completed it =(\d+)", line):
                iteration = int(found[1])
            elif found := re.search(r"::relative error::([-+.e\d]+)", line):
                errors[iteration] = float(found[1])
            elif found := re.search(r"completed it=(\d+)::taken::([-+.e\d]+)", line):
                seconds[int(found[1]) + 1] = float(found[2])
        # PLANC prints an error one iteration late, and none for the first iteration.
        return [(i, seconds[i], errors[i]) for i in sorted(seconds) if i in errors]

    def factors(self, case, scratch):
        factors = []
        for name, rows in zip("WH", case.shape):
            path = Path(scratch, f"factor_{name}")
            entries = np.fromfile(path) if path.exists() else np.empty(0)
            if entries.size != rows * case.k:
                return None
            factors.append(entries.reshape(case.k, rows).T)
        return factors


class DsanlsC(Entry):
    def words(self, case, ranks, iterations, seed, scratch):
        # Evaluations form the whole residual: few of them on large matrices.
        evaluations = 100 if case.shape[0] * case.shape[1] <= LARGEST_OFTEN_EVALUATED else 24
        interval = max(1, iterations // (2 if iterations <= TRIAL else evaluations))
        command = [self.command, case.dsanls_c(self.precision), str(case.k)]
        command += ["-i", str(iterations + 1), "-o", str(interval)]
        # The default start, U(0, 1), ignores the scale of the data; this one reproduces its mean.
        return command + ["-u", f"{2 * (case.mean / case.k) ** 0.5:.6g}"] + SKETCHES[self.method]

    def history(self, output, scratch):
        found = re.findall(r"Iter: (\d+), Time: ([-+.e\d]+), .*Rel\. Error: ([-+.e\d]+)", output)
        return [(int(i), float(s), float(e) ** 0.5) for i, s, e in found]  # it prints the squared error


def printed_history(output):
    words = (line.split() for line in output.splitlines())
    return [(int(i), float(s), float(e)) for i, s, e in words]


class Script(Entry):
    """A library in Python, run by a script in programs/; `command` is the interpreter."""

    stops_by_time, script, has_sparse, precisions = True, "", False, ("f64", "f32")

    def accepts(self, case):
        m, n = case.shape
        fits = self.has_sparse or not case.sparse or m * n <= LARGEST_DENSE_COPY
        return fits and self.precision in self.precisions

    def threads(self, ranks):
        return 0, ranks

    def words(self, case, ranks, iterations, seed, scratch):
        script = str(Path(__file__).with_name("programs") / self.script)
        given = [case.native, case.k, iterations, self.seconds, self.method]
        given += [self.precision, seed, self.threads(ranks)[1], f"{scratch}/factors", self.loss]
        return [self.command, script, *map(str, given)]

    def history(self, output, scratch):
        return printed_history(output)

    def factors(self, case, scratch):
        return stored_factors(Path(scratch, "factors.npz"))


class Sklearn(Script):
    script, has_sparse, losses = "run_sklearn.py", True, ("frobenius", "kl")


class NmfTorch(Script):
    script, losses = "run_nmf_torch.py", ("frobenius", "kl")


class TorchNmf(Script):
    script, has_sparse, losses = "run_torchnmf.py", True, ("kl",)


class FednmfClass(Script):
    script, has_sparse, losses = "run_fednmf.py", True, ("frobenius", "kl")


class NmfRs(Script):
    script, precisions = "run_nmf_rs.py", ("f64",)


class PyDnmfk(Script):
    script = "run_pydnmfk.py"

    def __init__(self, program, method, precision, command, source):
        super().__init__(program, method, precision, command)
        self.source = source

    def environment(self):
        return {"PYTHONPATH": self.source}

    def threads(self, ranks):
        return ranks, 1

    def factors(self, case, scratch):
        parts = [stored_factors(path) for path in sorted(Path(scratch).glob("factors.*.npz"))]
        return (np.concatenate([left for left, _ in parts]), parts[0][1]) if parts else None


class RcppMl(Script):
    script, has_sparse, precisions = "run_rcppml.R", True, ("f64",)

    def words(self, case, ranks, iterations, seed, scratch):
        script = str(Path(__file__).with_name("programs") / self.script)
        kind, path = ("sparse", case.compressed_columns()) if case.sparse else ("dense", case.by_columns())
        given = [kind, path, *case.shape, case.k, iterations, self.seconds / 2, seed, ranks, f"{scratch}/factors"]
        return [self.command, script, *map(str, given)]

    def factors(self, case, scratch):
        path, (m, n) = Path(scratch, "factors"), case.shape
        if not path.exists():
            return None
        entries = np.fromfile(path)
        right, left = entries[: n * case.k], entries[n * case.k :]
        return left.reshape(case.k, m).T, right.reshape(case.k, n).T
