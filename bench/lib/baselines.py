"""How `compare` runs each program and reads its history: (iteration, solver seconds, relative error)."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lib.program import ONE_THREAD, history, read_trace

# Iterations of the trial run that estimates the time per iteration.
TRIAL = 8
# PLANC's numbers of its algorithms.
PLANC = {"mu": 0, "hals": 1, "bpp": 2, "aoadmm": 4}
# Options of the DSANLS reference, by the fednmf method that does the same.
SKETCHES = {
    "hals": ["-s", "1", "1"],
    "dsanls --sketch-size 10%": ["-s", "0.1", "0.1", "-t", "1", "1"],
    "dsanls --sketch gaussian --sketch-size 10%": ["-s", "0.1", "0.1", "-m", "1", "-t", "1", "1"],
}


class Entry:
    """A program with a method and a precision. Entries with the same `method` do the same iteration."""

    def __init__(self, program, method, precision, command):
        self.program, self.method, self.precision, self.command = program, method, precision, command

    def threads(self, ranks):
        """Returns the number of MPI processes, 0 for a program without MPI, and the BLAS threads of each."""
        return ranks, 1

    def words(self, case, k, ranks, iterations, seed, scratch):
        """Returns the command line; `scratch` is a directory for its files."""
        raise NotImplementedError

    def history(self, output, scratch):
        raise NotImplementedError

    def evaluation_interval(self, iterations):
        return max(1, iterations // 40)

    def run(self, options, case, k, ranks, iterations, seed):
        """Runs the program; returns its history, empty after a failure, and its command line."""
        processes, threads = self.threads(ranks)
        env = os.environ | dict.fromkeys(ONE_THREAD, str(threads))
        with tempfile.TemporaryDirectory() as scratch:
            words = self.words(case, k, ranks, iterations, seed, scratch)
            if processes:
                words = [*shlex.split(options.mpirun), "-n", str(processes), *words]
            start = time.time()
            try:
                done = subprocess.run(
                    shlex.split(options.prefix) + words,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=options.timeout,
                )
                points = self.history(done.stdout, scratch)
                result = f"exit code {done.returncode}: {(done.stderr or done.stdout)[-300:]}"
            except subprocess.TimeoutExpired:
                points, result = [], f"exceeded {options.timeout:.0f} s"
            if points:
                _, seconds, error = points[-1]
                result = f"{len(points)} points, {seconds:.2f} s of {time.time() - start:.1f} s, error {error:.5f}"
            print(
                f"  {self.program} {self.method} {self.precision}, {ranks} ranks, {iterations} iterations: {result}",
                file=sys.stderr,
                flush=True,
            )
            return points, shlex.join(words)


class Fednmf(Entry):
    def words(self, case, k, ranks, iterations, seed, scratch):
        interval = self.evaluation_interval(iterations)
        command = f"--algo {self.method} -k {k} --precision {self.precision} --max-iters {iterations} "
        command += f"--eval-every {interval} --seed {seed} --quiet"
        return [self.command, *shlex.split(command), "--input", case.native, "--trace", f"{scratch}/trace.jsonl"]

    def history(self, output, scratch):
        trace = Path(scratch, "trace.jsonl")
        return history(read_trace(trace)) if trace.exists() else []


class Planc(Entry):
    def words(self, case, k, ranks, iterations, seed, scratch):
        m, n = case.shape
        command = [self.command, "-a", str(PLANC[self.method]), "-k", str(k), "-d", f"{m} {n}", "-p", f"{ranks} 1"]
        command += ["-i", case.planc(ranks), "-t", str(iterations + 1), "-e", "1", "-r", "0 0 0 0"]
        command += ["--seed", str(193957 + seed)]
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


class DsanlsC(Entry):
    def evaluation_interval(self, iterations):
        # Evaluations are expensive: they form the whole residual.
        return max(1, iterations // (2 if iterations <= TRIAL else 8))

    def words(self, case, k, ranks, iterations, seed, scratch):
        interval = self.evaluation_interval(iterations)
        command = [self.command, case.dsanls_c(self.precision), str(k), "-i", str(iterations + 1), "-o", str(interval)]
        # The default start, U(0, 1), ignores the scale of the data; this one reproduces its mean.
        return command + ["-u", f"{2 * (case.mean / k) ** 0.5:.6g}"] + SKETCHES[self.method]

    def history(self, output, scratch):
        found = re.findall(r"Iter: (\d+), Time: ([-+.e\d]+), .*Rel\. Error: ([-+.e\d]+)", output)
        return [(int(i), float(s), float(e) ** 0.5) for i, s, e in found]  # it prints the squared error


class Sklearn(Entry):
    def threads(self, ranks):
        return 0, ranks

    def words(self, case, k, ranks, iterations, seed, scratch):
        script = str(Path(__file__).with_name("sklearn_history.py"))
        return [self.command, script, case.native, str(k), str(iterations), self.method, self.precision, str(seed)]

    def history(self, output, scratch):
        return [(int(i), float(s), float(e)) for i, s, e in (line.split() for line in output.splitlines())]
