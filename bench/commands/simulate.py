"""Predict scaling to thousands of ranks: SimGrid replays the traces that `fednmf estimate --trace` writes.

    bench/run simulate --out DIR                        all matrices, methods and platforms; plots
    bench/run simulate --only dense --methods hals dsanls --ranks 16 256 4096 --platforms infiniband-hdr
    bench/run simulate --validate                       the same prediction beside runs on this machine
    bench/run simulate --validate --counts --ranks 16   bytes and messages alone, also of sparse exchanges

Rates of the kernels are measured here, on 2 ranks at once, for each matrix and method (or taken from --rates). A node of
the platforms has 32 cores, filled one after the other. Strong scaling keeps the matrix; weak scaling keeps the rows of a
rank. Sparse matrices are assumed to be spread evenly. Needs smpirun (package libsimgrid-dev of Debian).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import exchange
from lib.plot import draw_panels
from lib.program import ONE_THREAD, ROOT, add_binary_option, find_binary

PLATFORMS = Path(__file__).resolve().parent.parent / "platforms"
CORES = 32
ITERATIONS = 1
K = 50

# Rows, columns and stored entries; what a rank has of it in weak scaling is a 256th.
MATRICES = {
    "dense": (1_000_000, 100_000, None),
    "rcv1": (804_414, 47_236, 60_915_113),
    "cells": (1_306_127, 27_998, 2_624_828_308),
}

# Options, and whether the parties are as many as the ranks.
METHODS = {
    "hals": ("--algo hals", False),
    "bpp": ("--algo bpp", False),
    "dsanls": ("--algo dsanls", False),
    "vr-dsanls": ("--algo vr-dsanls", False),
    "secure-hals": ("--algo secure-hals", True),
    "fnmf": ("--algo fnmf --update hals --align lap", True),
}
MOST_PARTIES = 256

# Those whose messages a trace has one by one: collectives are other messages in a trace than in the ledger.
ONE_BY_ONE = {name: (f"--algo {name} --exchange sparse", False) for name in ("hals", "bpp", "mu")}
LINES = METHODS | {f"{name}, sparse exchange": line for name, line in ONE_BY_ONE.items()}


def estimate(options, matrix, method, ranks, extra, launch=(), k=K):
    """Returns the JSON answer of `fednmf estimate` about a matrix of these sizes, or in this file."""
    line, private = LINES[method]
    words = [*launch, find_binary(options.binary), "estimate", *line.split(), "-k", k, "--ranks", ranks, "--json", *extra]
    if isinstance(matrix, tuple):
        m, n, stored = matrix
        words += ["-m", m, "-n", n]
        words += ["--nnz", stored] if stored else []
    else:
        words += ["--input", matrix]
    words += ["--parties", ranks] if private else []
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return json.loads(done.stdout)


def replay(trace, platform, nodes, ranks):
    """Returns the seconds of a trace on a platform. Short all-reduces double recursively, as in Open MPI."""
    hosts = trace / "hosts"
    hosts.write_text("".join(f"{nodes(rank)}\n" for rank in range(ranks)))
    words = ["smpirun", "-replay", "ranks.txt", "-np", str(ranks), "-platform", str(platform), "-hostfile", "hosts"]
    words += ["--cfg=smpi/allreduce:rdb", "--cfg=network/model:SMPI", "--log=root.thres:critical"]
    words += ["--log=smpi_replay.thres:info"]
    done = subprocess.run(words, cwd=trace, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "Simulation time" in line]
    if done.returncode or not said:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    return float(said[-1].rsplit(maxsplit=1)[1])


def simulate(options, matrix, method, ranks, rates, platforms, scratch):
    """Returns the seconds of an iteration by platform, and what `estimate` says."""
    trace = Path(scratch) / "trace"
    shutil.rmtree(trace, ignore_errors=True)
    extra = ["--rates", rates, "--trace", trace, "--max-iters", ITERATIONS]
    said = estimate(options, matrix, method, ranks, extra)
    seconds = {
        name: replay(trace, path, lambda rank: f"node-{rank // CORES}", ranks) / ITERATIONS
        for name, path in platforms.items()
    }
    return seconds, said


def grown(matrix, ranks, weak):
    """The matrix for `ranks` ranks: in weak scaling 256 of them have the whole one."""
    m, n, stored = matrix
    if not weak:
        return matrix
    rows = max(m * ranks // 256, 1)
    return rows, n, stored and max(stored * rows // m, 1)


def computing(said):
    return sum(seconds for part, seconds in said["parts"].items() if part != "messages")


def heaviest(said):
    """The message kind with most bytes."""
    kinds = said["traffic"]["by_purpose"]
    return max(kinds, key=lambda kind: kinds[kind]["mpi_bytes"], default="")


def rates_for(options, scratch, name, method):
    """A file of rates: measured with two ranks, on a block such as one of 64 ranks has."""
    if options.rates:
        return options.rates
    path = Path(scratch) / f"rates-{name}-{method}.json"
    if not path.exists():
        launch = [*options.mpirun.split(), "-n", "2"]
        said = estimate(options, MATRICES[name], method, 64, [], launch)
        path.write_text(json.dumps(said["rates"]))
    return path


def scaling(options, scratch):
    """Yields a row for each matrix, kind of scaling, method, platform and number of ranks."""
    platforms = {name: PLATFORMS / f"{name}.xml" for name in options.platforms}
    for name in options.only:
        for weak in (False, True):
            for method in options.methods:
                rates = rates_for(options, scratch, name, method)
                first = {}
                for ranks in options.ranks:
                    if METHODS[method][1] and ranks > MOST_PARTIES:
                        continue
                    matrix = grown(MATRICES[name], ranks, weak)
                    seconds, said = simulate(options, matrix, method, ranks, rates, platforms, scratch)
                    for platform, time in seconds.items():
                        base = first.setdefault(platform, (ranks, time))
                        speedup = base[1] / time * (ranks / base[0] if weak else 1)
                        yield {
                            "matrix": name,
                            "scaling": "weak" if weak else "strong",
                            "method": method,
                            "platform": platform,
                            "ranks": ranks,
                            "seconds": time,
                            "efficiency": speedup * base[0] / ranks,
                            "computing": computing(said) / time,
                            "predicted": said["seconds"],
                            "bytes": said["traffic"]["mpi_bytes"],
                            "heaviest": heaviest(said) if ranks > 1 else "",
                        }


def write_rows(rows, path):
    names = list(rows[0])
    with open(path, "w", encoding="utf-8") as out:
        out.write(",".join(names) + "\n")
        for row in rows:
            out.write(",".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()) + "\n")


def write_summary(rows, command, path):
    """A table with a line for each method and matrix: efficiency over ranks, and what limits it."""
    shown = sorted({row["ranks"] for row in rows})
    lines = ["# Scaling, simulated", "", f"`{command}`", ""]
    lines += ["Each line compares with the smallest number of ranks; at the largest it has the seconds of an iteration, the share of"]
    lines += ["computing in them, and the message kind with most bytes. In weak scaling a rank keeps its rows, but the columns stay"]
    lines += ["those of the matrix: their share of the work falls with the ranks, so that an efficiency may exceed 100 %."]
    for platform in dict.fromkeys(row["platform"] for row in rows):
        for kind in ("strong", "weak"):
            lines += ["", f"## {platform}, {kind}", ""]
            titles = ["matrix", "method", *map(str, shown), "seconds", "computing", "most bytes"]
            lines.append("| " + " | ".join(titles) + " |")
            lines.append("| --- | --- |" + " ---: |" * (len(shown) + 2) + " --- |")
            of = [row for row in rows if row["platform"] == platform and row["scaling"] == kind]
            for matrix, method in dict.fromkeys((row["matrix"], row["method"]) for row in of):
                line = {row["ranks"]: row for row in of if (row["matrix"], row["method"]) == (matrix, method)}
                last = line[max(line)]
                cells = [f"{line[r]['efficiency']:.0%}" if r in line else "" for r in shown]
                cells += [f"{last['seconds']:.3g}", f"{last['computing']:.0%}", last["heaviest"]]
                lines.append(f"| {matrix} | {method} | " + " | ".join(cells) + " |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def panels(rows):
    """Efficiency over ranks: a panel for each matrix and kind of scaling, on the first platform."""
    platform = rows[0]["platform"]
    found = {}
    for row in (row for row in rows if row["platform"] == platform):
        curves = found.setdefault(f"{row['matrix']}, {row['scaling']}", {})
        curves.setdefault(row["method"], []).append((row["ranks"], row["efficiency"], 0.0))
    return [
        {"name": name, "xlabel": "ranks", "ylabel": "efficiency", "log": "x", "curves": curves}
        for name, curves in found.items()
    ]


LOCAL = """<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id="local" routing="Full">
    <host id="here" speed="1Gf" core="{cores}"/>
    <link id="memory" bandwidth="{bandwidth}Bps" latency="{latency}s" sharing_policy="FATPIPE"/>
    <route src="here" dst="here"><link_ctn id="memory"/></route>
  </zone>
</platform>
"""

# Small enough for one machine, large enough to be timed.
VALIDATED = {
    "dense": ((20_000, 5_000, None), "synthetic:planted,m=20000,n=5000,k=20"),
    "sparse": ((200_000, 20_000, 8_000_000), "synthetic:sparse,m=200000,n=20000,density=0.002"),
}


# Those whose nonzeros are counted, so that a sparse exchange is predicted.
# Their Gram matrices are so small that a trace has them as collectives, not as messages.
SHORT_K = 20
COUNTED = {
    "power law": "synthetic:sparse,law=power,m=20000,n=10000,density=0.001,seed=3",
    "mesh": None,
}


def run(options, method, source, ranks, iterations, k=K):
    """Returns the summary of a run."""
    line, private = LINES[method]
    words = [*options.mpirun.split(), "-n", ranks, find_binary(options.binary), *line.split(), "--input", source]
    words += ["-k", k, "--max-iters", iterations, "--eval-every", 0, "--quiet", "--json"]
    words += ["--parties", ranks] if private else []
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return json.loads(done.stdout)


def messages_of_trace(trace):
    """Bytes and number of the messages between two ranks, at both ends."""
    sizes = []
    for name in (trace / "ranks.txt").read_text().split():
        lines = (line.split() for line in (trace / name).read_text().splitlines())
        sizes += [int(words[4]) for words in lines if words[1] in ("isend", "recv")]
    return sum(sizes), len(sizes)


def sent(summary):
    """Bytes and messages of a run in the exchange of rows of factors."""
    rows = [row for row in summary["wire"] if row["purpose"] in ("gather V", "gather U", "sum M'U", "sum M V")]
    return sum(row["mpi_bytes"] for row in rows), sum(row["messages"] for row in rows)


def validate_counts(options, scratch):
    """Prints bytes and messages of an iteration by the ledger of a run, and of the trace that was replayed."""
    print("| matrix | method | ranks | grid | bytes, ledger | bytes, trace | messages, ledger | messages, trace |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |")
    rates = Path(scratch) / "rates.json"
    rates.write_text(json.dumps(dict.fromkeys(["mul", "tmul", "gram", "sweep", "pivot", "multiply", "copy"], 1e9)))
    platform = Path(scratch) / "local.xml"
    for name, source in COUNTED.items():
        if source is None:
            source = Path(scratch) / "mesh.mtx"
            exchange.write(source, exchange.mesh())
        for method in (method for method in LINES if method not in METHODS):
            for ranks in options.ranks:
                platform.write_text(LOCAL.format(cores=ranks, bandwidth=1e9, latency=1e-6))
                trace = Path(scratch) / "trace"
                shutil.rmtree(trace, ignore_errors=True)
                extra = ["--rates", rates, "--trace", trace, "--max-iters", 1]
                said = estimate(options, source, method, ranks, extra, k=SHORT_K)
                replay(trace, platform, lambda _: "here", ranks)
                counted = sent(run(options, method, source, ranks, 1, k=SHORT_K))
                replayed = messages_of_trace(trace)
                cells = [name, method, ranks, said["grid"], counted[0], replayed[0], counted[1], replayed[1]]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                if counted != replayed:
                    sys.exit("bench/run simulate: the trace has other messages than the run")


def validate(options, scratch):
    """Prints predicted and measured seconds and bytes of an iteration.

    The processor time of computing can be measured on any number of ranks, the wall time on as many as there are cores.
    """
    titles = ["matrix", "method", "ranks", "computing, CPU s", "predicted", "error", "wall s", "replayed", "error"]
    titles += ["bytes, ledger", "bytes, trace"]
    print("| " + " | ".join(titles) + " |")
    print("| --- | --- |" + " ---: |" * (len(titles) - 2))
    for name, (matrix, source) in VALIDATED.items():
        for method in options.methods:
            for ranks in options.ranks:
                timed = ranks <= 2
                launch = [*options.mpirun.split(), "-n", str(min(ranks, 2))]
                rates = Path(scratch) / "rates.json"
                rates.write_text(json.dumps(estimate(options, matrix, method, ranks, [], launch)["rates"]))
                measured = json.loads(rates.read_text())
                platform = Path(scratch) / "local.xml"
                platform.write_text(
                    LOCAL.format(cores=ranks, bandwidth=measured["bandwidth"], latency=measured["latency"])
                )
                trace = Path(scratch) / "trace"
                shutil.rmtree(trace, ignore_errors=True)
                extra = ["--rates", rates, "--trace", trace, "--max-iters", ITERATIONS]
                said = estimate(options, matrix, method, ranks, extra)
                replayed = replay(trace, platform, lambda _: "here", ranks) / ITERATIONS
                runs = [[run(options, method, source, ranks, i) for i in (2, 12)] for _ in range(3 if timed else 1)]

                def each(measure):
                    return min((long[measure] - short[measure]) / 10 for short, long in runs)  # noqa: B023

                cells = []
                for known, predicted, found in [
                    (True, computing(said), each("cpu_seconds_max")),
                    (timed, replayed, each("seconds")),
                ]:
                    error = f"{predicted / found - 1:+.0%}"
                    cells += [f"{found:.4g}", f"{predicted:.4g}", error] if known else ["", f"{predicted:.4g}", ""]
                cells += [f"{each('bytes_sent'):.0f}", str(said["traffic"]["mpi_bytes"])]
                print(f"| {name} | {method} | {ranks} | " + " | ".join(cells) + " |", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    names = sorted(path.stem for path in PLATFORMS.glob("*.xml"))
    parser.add_argument("--only", nargs="+", choices=MATRICES, default=list(MATRICES), help="matrices")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="methods")
    parser.add_argument("--platforms", nargs="+", choices=names, default=names, help="platforms")
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", help="[1 16 64 256 1024 4096; 1 2 4 16]")
    parser.add_argument("--rates", metavar="JSON", help="output of `fednmf estimate --json` from another machine")
    parser.add_argument("--mpirun", default="mpirun --bind-to none --oversubscribe", help="launcher [%(default)s]")
    parser.add_argument("--validate", action="store_true", help="compare with runs on this machine instead")
    parser.add_argument("--counts", action="store_true", help="with --validate: compare bytes and messages, time nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write simulated.csv, summary.md and plot.svg")
    options = parser.parse_args(argv)
    if not shutil.which("smpirun"):
        sys.exit("bench/run simulate: no smpirun; install SimGrid (libsimgrid-dev on Debian and Ubuntu)")
    options.ranks = options.ranks or ([1, 2, 4, 16] if options.validate else [1, 16, 64, 256, 1024, 4096])
    if options.rates:
        options.rates = str(Path(options.rates).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        if options.validate:
            return validate_counts(options, scratch) if options.counts else validate(options, scratch)
        rows = []
        for row in scaling(options, scratch):
            rows.append(row)
            print(",".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()), flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            write_rows(rows, options.out / "simulated.csv")
            write_summary(rows, " ".join(["bench/run simulate", *argv]), options.out / "summary.md")
            title = f"Scaling on {rows[0]['platform']}, simulated"
            draw_panels(title, panels(rows), options.out / "plot.svg", ROOT / "target" / "reproduce")
    return None
