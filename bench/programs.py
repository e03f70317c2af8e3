"""How each program of the comparison is run, and how its course is read: (iteration, solver seconds, relative error)."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Iterations of a run that only finds out how long they take.
TRIAL = 8
# PLANC's numbers for its algorithms.
PLANC = {"mu": 0, "hals": 1, "bpp": 2, "aoadmm": 4}


class Entry:
    """One program with one method and precision. `method` names what is comparable: the same word, the same iteration."""

    #: Iterations between two evaluations, so that `points` of them fit into a run.
    points = 40

    def __init__(self, program, method, precision, command):
        self.program, self.method, self.precision, self.command = program, method, precision, command

    @property
    def label(self):
        return f"{self.program} {self.method}"

    def threads(self, ranks):
        """Processes, and BLAS threads of each."""
        return ranks, 1

    def words(self, case, k, ranks, iterations, seed, scratch):
        raise NotImplementedError

    def course(self, output, scratch):
        raise NotImplementedError

    def every(self, iterations):
        return max(1, iterations // self.points)

    def run(self, setup, case, k, ranks, iterations, seed):
        """Runs it and returns (course, command line); an empty course, and why on stderr, when it fails."""
        processes, threads = self.threads(ranks)
        with tempfile.TemporaryDirectory() as scratch:
            words = self.words(case, k, ranks, iterations, seed, scratch)
            if processes:
                words = shlex.split(setup.mpirun) + ["-n", str(processes)] + words
            words = shlex.split(setup.prefix) + words
            names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
            env = os.environ | dict.fromkeys(names, str(threads))
            begin = time.time()
            try:
                done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=setup.timeout, check=False)
                course = self.course(done.stdout, scratch)
                why = "" if course else f"code {done.returncode}: {(done.stderr or done.stdout)[-300:]}"
            except subprocess.TimeoutExpired:
                course, why = [], f"no end after {setup.timeout:.0f} s"
            tail = why or f"{len(course)} points, {course[-1][1]:.2f} s of {time.time() - begin:.1f} s, error {course[-1][2]:.5f}"
            print(f"  {self.label} {self.precision}, {ranks} ranks, {iterations} iterations: {tail}", file=sys.stderr, flush=True)
            return course, shlex.join(words)


class Fednmf(Entry):
    def words(self, case, k, ranks, iterations, seed, scratch):
        return [
            self.command, "--algo", *shlex.split(self.method), "-k", str(k), "--precision", self.precision, "--input", case.native,
            "--max-iters", str(iterations), "--eval-every", str(self.every(iterations)), "--seed", str(seed),
            "--trace", os.path.join(scratch, "trace.jsonl"), "--quiet",
        ]  # fmt: skip

    def course(self, output, scratch):
        path = os.path.join(scratch, "trace.jsonl")
        events = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
        return [(e["iter"], e["seconds"], e["rel_error"]) for e in events if e["event"] == "iter"]


class Planc(Entry):
    def words(self, case, k, ranks, iterations, seed, scratch):
        m, n = case.shape
        command = [self.command, "-a", str(PLANC[self.method]), "-k", str(k), "-d", f"{m} {n}", "-p", f"{ranks} 1"]
        command += ["-i", case.planc(ranks), "-t", str(iterations + 1), "-e", "1", "-r", "0 0 0 0", "--seed", str(193957 + seed)]
        return command + (["--unpartitioned", "0"] if case.sparse else [])

    def course(self, output, scratch):
        seconds, errors, now = {}, {}, None
        for line in output.splitlines():
            if found := re.search(r"Completed it =(\d+)", line):
                now = int(found[1])
            elif found := re.search(r"::relative error::([-+.e\d]+)", line):
                errors[now] = float(found[1])
            elif found := re.search(r"completed it=(\d+)::taken::([-+.e\d]+)", line):
                seconds[int(found[1]) + 1] = float(found[2])
        # The error is known one iteration later, and of the first not at all.
        return [(i, seconds[i], errors[i]) for i in sorted(seconds) if i in errors]


class DsanlsC(Entry):
    def every(self, iterations):
        # It forms the whole residual for an error: few, and two in a trial.
        return max(1, iterations // (2 if iterations <= TRIAL else 8))

    def words(self, case, k, ranks, iterations, seed, scratch):
        every = self.every(iterations)
        command = [self.command, case.dsanls_c(self.precision), str(k), "-i", str(iterations + 1), "-o", str(every)]
        # Its own start, U(0, 1), has nothing of the data's scale; this one has the data's mean.
        return command + ["-u", f"{2 * (case.mean / k) ** 0.5:.6g}"] + SKETCHES[self.method]

    def course(self, output, scratch):
        found = re.findall(r"Iter: (\d+), Time: ([-+.e\d]+), .*Rel\. Error: ([-+.e\d]+)", output)
        return [(int(i), float(s), float(e) ** 0.5) for i, s, e in found]  # it prints the square


# Methods of the DSANLS reference; the words after `dsanls` are fednmf's options for the same.
SKETCHES = {
    "hals": ["-s", "1", "1"],
    "dsanls --sketch-size 10%": ["-s", "0.1", "0.1", "-t", "1", "1"],
    "dsanls --sketch gaussian --sketch-size 10%": ["-s", "0.1", "0.1", "-m", "1", "-t", "1", "1"],
}


class Sklearn(Entry):
    def threads(self, ranks):
        return 0, ranks

    def words(self, case, k, ranks, iterations, seed, scratch):
        course = os.path.join(HERE, "sklearn_course.py")
        return [self.command, course, case.native, str(k), str(iterations), self.method, self.precision, str(seed)]

    def course(self, output, scratch):
        rows = [line.split() for line in output.splitlines()]
        return [(int(i), float(s), float(e)) for i, s, e in rows]
