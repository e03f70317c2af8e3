"""Runs fednmf for a figure and caches finished runs below target/, so that no run is repeated."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import datasets
from .program import ROOT, read_trace
from .spec import Missing, Run

# With one rank Open MPI needs neither daemon nor network: it starts 25 times as fast.
SINGLE_RANK = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}
TIME_LIMIT = 900  # seconds, far above any run of a figure
SMOKE_TIME_LIMIT = 30
# Methods that would compute a start from the data; the papers' figures start all methods at random.
COMPUTE_STARTS = ("auto", "hals", "mu", "bpp")
# Messages that are not the algorithm's own traffic, by the beginning of their purpose.
OVERHEAD = ("statistics of", "evaluation", "agreement", "control", "public key")


class RunFailed(Exception):
    """A run failed; the message has the command and its output."""


@dataclass
class Job:
    """A finished run with one seed."""

    run: Run
    seed: int
    start: dict
    events: list[dict]
    end: dict

    def sent(self, *skip: str, unit: str = "party_bytes") -> float:
        """Returns the algorithm's own bytes (or messages), without OVERHEAD and what `skip` names."""
        return sum(w[unit] for w in self.end["wire"] if not w["purpose"].startswith((*OVERHEAD, *skip)))


class Engine:
    def __init__(
        self, binary: Path, data: Path | None, scratch: Path, smoke=False, fresh=False, finished=False, seeds=math.inf
    ):
        self.binary, self.data, self.scratch, self.smoke, self.fresh = binary, data, scratch, smoke, fresh
        self.seeds = seeds  # the most seeds of a run that are used
        self.finished = finished  # whether to start no runs, and take those that are finished
        self.started, self.known = 0, {}
        self.env = environment()
        stat = binary.stat()
        self.build = f"{stat.st_size} {stat.st_mtime_ns}"
        (scratch / "runs").mkdir(parents=True, exist_ok=True)

    def jobs(self, run: Run) -> list[Job]:
        """Returns the run with each of its seeds, or with those that are finished if no runs are to be started."""
        if self.smoke:
            run = shrink(run)
        if run.seeds > self.seeds:
            run = run.but(seeds=self.seeds)
        if not self.finished:
            return [self.job(run, seed) for seed in range(run.seeds)]
        done = [seed for seed in range(run.seeds) if self.trace(run, self.arguments(run, seed)).exists()]
        if len(done) < min(run.seeds, 2):
            raise Missing("Not run for this record")
        return [self.job(run, seed) for seed in done]

    def trace(self, run: Run, args: list[str]) -> Path:
        """Returns the file of a run in the cache."""
        key = hashlib.sha256("\0".join([self.build, str(run.ranks), *args]).encode()).hexdigest()[:24]
        return self.scratch / "runs" / f"{key}.jsonl"

    def job(self, run: Run, seed: int) -> Job:
        args = self.arguments(run, seed)
        trace = self.trace(run, args)
        key = trace.stem
        if key not in self.known:
            if self.fresh or self.smoke or not trace.exists():
                self.execute(run, args, trace)
            events = read_trace(trace)
            self.known[key] = Job(run, seed, events[0], [e for e in events if e["event"] == "iter"], events[-1])
        return self.known[key]

    def arguments(self, run: Run, seed: int) -> list[str]:
        scaled = "scale" in dict(run.options)
        path, own = datasets.resolve(run.data, seed, self.data, self.scratch, self.smoke, scaled)
        every = max(1, run.iters // 40) if run.every is None else run.every
        args = ["--algo", run.algo, "--input", path, "-k", run.k, "--max-iters", run.iters, "--eval-every", every]
        args += ["--seed", seed] + (["--parties", run.parties] if run.parties else [])
        start = {"init": "random"} if run.algo in COMPUTE_STARTS else {}
        for name, value in sorted({**start, **dict(own), **dict(run.options)}.items()):
            if value is not False:
                args += [f"--{name.replace('_', '-')}"] + ([] if value is True else [value])
        return [str(a) for a in args]

    def execute(self, run: Run, args: list[str], trace: Path) -> None:
        partial = trace.with_suffix(".part")
        command = [*launcher(run.ranks), str(self.binary), *args, "--trace", str(partial), "--quiet"]
        if not self.smoke:
            print("  " + " ".join(["fednmf", *args]) + (f"  # {run.ranks} ranks" * (run.ranks > 1)), flush=True)
        self.started += 1
        limit = SMOKE_TIME_LIMIT if self.smoke else TIME_LIMIT
        env = dict(self.env)
        if run.ranks == 1:
            # All isolated ranks use the same session directory and remove it at their end: other jobs need another one.
            env |= SINGLE_RANK | {"OMPI_MCA_orte_tmpdir_base": str(self.scratch)}
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{shlex.join(command)}\nexceeded {limit} s") from None
        if done.returncode != 0:
            raise RunFailed(f"{shlex.join(command)}\nexited with {done.returncode}: {done.stderr.strip()[-1000:]}")
        partial.replace(trace)


def environment() -> dict:
    """Returns the environment of jobs/setup.sh, with ranks that yield when they outnumber the cores."""
    script = f'eval "$({shlex.quote(str(ROOT / "jobs" / "setup.sh"))} --env)"; env -0'
    output = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT).stdout
    env = dict(pair.split("=", 1) for pair in output.split("\0") if "=" in pair) or dict(os.environ)
    return {**env, "OMPI_MCA_mpi_yield_when_idle": "1"}


def launcher(ranks: int) -> list[str]:
    if ranks == 1:
        return []
    mpirun = os.environ.get("FEDNMF_MPIRUN", "mpirun")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    return [mpirun, *(["--oversubscribe"] if "Open MPI" in version else []), "-n", str(ranks)]


def shrink(run: Run) -> Run:
    """Returns a small version of the run: a smoke test checks that it works, not what it computes."""
    options = dict(run.options)
    for name, most in (("local_iters", 2), ("admm_iters", 2)):
        if name in options or name == "admm_iters" and run.algo in ("ppdnmf", "admm"):
            options[name] = min(int(options.get(name, most)), most)
    options.pop("time_limit", None)
    if run.algo == "ppdnmf" and not options.get("plain"):
        options.update(admm_iters=1)
    data = run.data
    if isinstance(data, str) and data.startswith("synthetic:"):
        data = re.sub(r"\b(m|n)=(\d+)", lambda m: f"{m[1]}={min(int(m[2]), 60)}", data)
        data = re.sub(r"noise=[\d.]+", "noise=0.1", data)
    if isinstance(data, datasets.Generated) and data.kind == "blocks":
        data = datasets.generated("blocks", clients=3, rows=20, n=40, k=4)
    fixed_parties = isinstance(data, datasets.Generated) and data.kind == "spectra"
    if fixed_parties:
        data = datasets.generated("spectra", m=4)
    parties = run.parties if fixed_parties or not run.parties else min(run.parties, 3)
    return Run(
        run.algo,
        data,
        k=min(run.k, 4),
        iters=min(run.iters, 2),
        parties=parties,
        ranks=min(run.ranks, 2),
        every=1,
        seedless=run.seedless,
        options=tuple(sorted(options.items())),
    )


def value(column, event: dict, job: Job) -> float:
    """Returns a column of an event, which must be a finite number."""
    found = column(event, job) if callable(column) else event.get(column)
    if not isinstance(found, (int, float)) or not math.isfinite(found):
        raise RunFailed(f"{job.run.algo}: {column} is {found} at iteration {event.get('iter')}: {job.start['args']}")
    return float(found)
