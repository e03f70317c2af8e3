"""Finds fednmf, runs it and reads its trace."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def add_binary_option(parser):
    parser.add_argument("--binary", metavar="FILE", help="the fednmf to run [target/release/fednmf]")


def find_binary(path=None):
    """Returns `path`, or the release build if it is None."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = Path(path) if path else target / "release" / "fednmf"
    if not os.access(binary, os.X_OK):
        sys.exit(f"{binary} is not a program: run `make build`, or name one with --binary")
    return binary.resolve()


def read_trace(path):
    """Returns the events of a trace, of which the first is `start` and the last `end`."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def run_traced(command):
    """Runs a fednmf command line on one BLAS thread per rank and returns the events of its trace."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch, "trace.jsonl")
        words = [str(word) for word in (*command, "--trace", trace, "--quiet")]
        done = subprocess.run(words, env=os.environ | ONE_THREAD, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{shlex.join(words)}\nexited with {done.returncode}: {done.stderr}")
        return read_trace(trace)


def history(events, measure="rel_error"):
    """Returns (iteration, seconds, relative error or another measure) of each evaluation."""
    return [(e["iter"], e["seconds"], e[measure]) for e in events if e["event"] == "iter"]


def cpu_model():
    try:
        found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else "unknown CPU"


def machine_name():
    """Returns a short name of this machine, such as epyc-2cores."""
    vendor = ("", "amd", "intel", "r", "tm", "cpu", "processor", "unknown")
    words = [word for word in re.split(r"\W+", cpu_model().lower()) if word not in vendor]
    return f"{words[0] if words else 'machine'}-{os.cpu_count()}cores"


def thin(points, limit=30):
    """Returns at most `limit` of the points: the first, the last, and others at equal distances between them.

    Every stored curve is thinned by this rule.
    """
    if len(points) <= limit:
        return points
    return [points[round(i * (len(points) - 1) / (limit - 1))] for i in range(limit)]
