"""Runs fednmf and reads what it writes down. A finished run is kept below target/, so that nothing runs twice."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import data
from .spec import Run

ROOT = Path(__file__).resolve().parents[2]
# A run of one rank needs no daemon and no network: Open MPI starts in a fiftieth of a second instead of half of one.
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}
LIMIT = 900  # seconds; no run of a figure is near it


class Failed(Exception):
    """A run that did not end well; the message has the command and what it said."""


class Enough(Exception):
    """The time of --for is over."""


@dataclass
class Job:
    """A finished run with one seed."""

    run: Run
    seed: int
    start: dict
    events: list[dict]
    end: dict

    def sent(self, *skip: str, unit: str = "party_bytes") -> float:
        """Bytes (or messages) of the algorithm itself: without loading, evaluation, control and what `skip` names."""
        aside = ("figures of", "evaluation", "agreement", "control", "public key", *skip)
        return sum(w[unit] for w in self.end["wire"] if not w["purpose"].startswith(aside))


class Engine:
    def __init__(self, binary: Path, folder: Path | None, scratch: Path, smoke=False, seconds=math.inf, fresh=False):
        self.binary, self.folder, self.scratch, self.smoke = binary, folder, scratch, smoke
        self.fresh, self.until = fresh, time.monotonic() + seconds
        self.started, self.known = 0, {}
        self.env = environment()
        stamp = binary.stat()
        self.stamp = f"{stamp.st_size} {stamp.st_mtime_ns}"
        (scratch / "runs").mkdir(parents=True, exist_ok=True)

    def jobs(self, run: Run) -> list[Job]:
        """A run with all of its seeds."""
        if self.smoke:
            run = shrink(run)
        return [self.job(run, seed) for seed in range(run.seeds)]

    def job(self, run: Run, seed: int) -> Job:
        args = self.arguments(run, seed)
        key = hashlib.sha256("\0".join([self.stamp, str(run.ranks), *args]).encode()).hexdigest()[:24]
        if key not in self.known:
            trace = self.scratch / "runs" / f"{key}.jsonl"
            if self.fresh or self.smoke or not trace.exists():
                self.execute(run, args, trace)
            lines = [json.loads(line) for line in trace.read_text().splitlines()]
            self.known[key] = Job(run, seed, lines[0], [e for e in lines if e["event"] == "iter"], lines[-1])
        return self.known[key]

    def arguments(self, run: Run, seed: int) -> list[str]:
        scaled = "scale" in dict(run.options)
        path, own = data.resolve(run.data, seed, self.folder, self.scratch, self.smoke, scaled)
        every = max(1, run.iters // 40) if run.every is None else run.every
        args = ["--algo", run.algo, "--input", path, "-k", run.k, "--max-iters", run.iters, "--eval-every", every]
        args += ["--seed", seed] + (["--parties", run.parties] if run.parties else [])
        for name, value in sorted({**dict(own), **dict(run.options)}.items()):
            if value is not False:
                args += [f"--{name.replace('_', '-')}"] + ([] if value is True else [value])
        return [str(a) for a in args]

    def execute(self, run: Run, args: list[str], trace: Path) -> None:
        started = trace.with_suffix(".part")
        command = [*launcher(run.ranks), str(self.binary), *args, "--trace", str(started), "--quiet"]
        if time.monotonic() > self.until:
            raise Enough
        if not self.smoke:
            print("  " + " ".join(["fednmf", *args]) + (f"  # {run.ranks} ranks" * (run.ranks > 1)), flush=True)
        self.started += 1
        limit = 30 if self.smoke else LIMIT
        env = {**self.env, **(ALONE if run.ranks == 1 else {})}
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{shlex.join(command)}\nstill runs after {limit} s") from None
        if done.returncode != 0:
            raise Failed(f"{shlex.join(command)}\nended with {done.returncode}: {done.stderr.strip()[-1000:]}")
        started.replace(trace)


def environment() -> dict:
    """The environment that jobs/setup.sh prescribes, and ranks that give way where they outnumber the cores."""
    script = f'eval "$({shlex.quote(str(ROOT / "jobs" / "setup.sh"))} --env)"; env -0'
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT).stdout
    env = dict(pair.split("=", 1) for pair in told.split("\0") if "=" in pair) or dict(os.environ)
    return {**env, "OMPI_MCA_mpi_yield_when_idle": "1"}


def launcher(ranks: int) -> list[str]:
    if ranks == 1:
        return []
    mpirun = os.environ.get("FEDNMF_MPIRUN", "mpirun")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    return [mpirun, *(["--oversubscribe"] if "Open MPI" in version else []), "-n", str(ranks)]


def shrink(run: Run) -> Run:
    """The same run, small: the smoke test sees that it works, not what it gives."""
    options = dict(run.options)
    for name, most in (("local_iters", 2), ("admm_iters", 2)):
        if name in options or name == "admm_iters" and run.algo in ("ppdnmf", "admm"):
            options[name] = min(int(options.get(name, most)), most)
    options.pop("time_limit", None)
    if run.algo == "ppdnmf" and not options.get("plain"):
        options.update(admm_iters=1)
    given = run.data
    if isinstance(given, str) and given.startswith("synthetic:"):
        given = re.sub(r"\b(m|n)=(\d+)", lambda m: f"{m[1]}={min(int(m[2]), 60)}", given)
        given = re.sub(r"noise=[\d.]+", "noise=0.1", given)
    if isinstance(given, data.Made) and given.kind == "blocks":
        given = data.made("blocks", clients=3, rows=20, n=40, k=4)
    uneven = isinstance(given, data.Made) and given.kind == "spectra"
    if uneven:
        given = data.made("spectra", m=4)
    parties = run.parties if uneven or not run.parties else min(run.parties, 3)
    return Run(
        run.algo, given, min(run.k, 4), min(run.iters, 2), parties, min(run.ranks, 2), 1, 1,
        tuple(sorted(options.items())),
    )  # fmt: skip


def value(column, event: dict, job: Job) -> float:
    """A column of an event; fails where it is not there or no number."""
    found = column(event, job) if callable(column) else event.get(column)
    if not isinstance(found, (int, float)) or not math.isfinite(found):
        raise Failed(f"{job.run.algo}: {column} is {found} at iteration {event.get('iter')}: {job.start['args']}")
    return float(found)


def find_binary(asked: str | None) -> Path:
    """The program to run: --binary, or the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(asked) if asked else target / "release" / "fednmf"
    if not path.exists():
        sys.exit(f"{path} is not there: run `make build` first, or name one with --binary")
    return path.resolve()


def clock() -> str:
    return time.strftime("%Y-%m-%d")
