"""Time on machines that are not available, modelled from counted multiplications and bytes.

A node performs RATE floating-point operations per second on dense and sparse data alike. A collective of p nodes costs
log2(p) latencies of the network, plus its bytes over one link. The bytes come from the run's own ledger. Modelled seconds show how
methods compare, not how long a run takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

RATE = 20e9


@dataclass(frozen=True)
class Network:
    latency: float  # seconds
    bandwidth: float  # bytes per second

    def __str__(self) -> str:
        return f"{self.latency * 1e6:g} µs, {self.bandwidth * 8 / 1e9:g} Gbit/s"

    def seconds(self, bytes_per_node: float, nodes: int, exchanges: float) -> float:
        """Returns the seconds of a number of exchanges among nodes."""
        return exchanges * self.latency * max(1.0, math.log2(nodes)) + bytes_per_node / self.bandwidth


ETHERNET = Network(50e-6, 1.25e9)
# A network on which latency hardly counts.
INFINIBAND = Network(2e-6, 12.5e9)
# What panels with its times are called.
FAST = ", fast network"
# Phases whose flops are not the method's.
OVERHEAD = ("evaluation", "statistics of")
DESCRIPTION = f"model: {RATE / 1e9:g} GF/s per node, {ETHERNET}"


def default_size(dimension: int, k: int) -> int:
    """Returns what --sketch-size auto keeps of a dimension."""
    return min(dimension, max(dimension // 10, min(dimension // 2, 10 * k), 2 * k))


def kept(dimension: int, k: int, size: str, which: int) -> int:
    """Returns what a --sketch-size in shares (or auto) keeps of a dimension: of columns (0), or of rows (1)."""
    if size == "auto":
        return default_size(dimension, k)
    share = size.split(",")[which]
    return max(1, round(float(share.removesuffix("%")) / 100 * dimension))


def party_columns(n: int, parties: int, skew: float | None) -> list[int]:
    """Returns the number of columns of each party."""
    if skew is None:
        return [n // parties + (p < n % parties) for p in range(parties)]
    first = round(skew * n)
    return [first, *party_columns(n - first, parties - 1, None)]


def seconds_per_iteration(end: dict, job, network: Network = ETHERNET) -> float:
    """Returns the time per iteration of a method on ranks, on as many nodes as the run had ranks; without evaluations."""
    m, n, k, p = (job.start[name] for name in ("m", "n", "k", "ranks"))
    iters = max(1, end["iter"])
    flops = {name: phase["flops"] / p / iters for name, phase in end["phases"].items()}
    work = sum(count for name, count in flops.items() if not name.startswith(OVERHEAD))
    if job.run.algo == "bpp":
        products = sum(count for name, count in flops.items() if name.startswith("product"))
        work = products * PIVOTING.setdefault((m, n, k, job.start["seed"]), pivoting(end))
    exchanges = job.sent("load", unit="messages") / p / iters
    return work / RATE + network.seconds(job.sent("load") / p / iters, p, exchanges)


def seconds_on_nodes(event: dict, job) -> float:
    """Returns the time until this event on as many nodes as the run had ranks."""
    return event["iter"] * seconds_per_iteration(job.end, job)


# Ratio of a BPP iteration to its products by matrix and seed, from the first run, the one with the fewest ranks.
PIVOTING: dict = {}


def pivoting(end: dict) -> float:
    """Returns the measured ratio of all local work of BPP to its products: no formula counts the pivoting."""
    seconds = {name: phase["seconds_mean"] for name, phase in end["phases"].items()}
    products = sum(s for name, s in seconds.items() if name.startswith(("product", "Gram")))
    return (products + seconds.get("update", 0.0)) / products


@cache
def step_seconds(
    algo: str,
    m: int,
    n: int,
    k: int,
    density: float,
    parties: int,
    skew: float | None,
    sketch: str,
    sweeps: int,
    summed: int,
) -> tuple[float, ...]:
    """Returns the time of a local step of each party.

    For secure-hals a step is an iteration of `sweeps` sweeps that exchanges `summed` rows of U.
    """
    times = []
    for columns in party_columns(n, parties, skew):
        rows = kept(m, k, sketch, 1) if algo in ("syn-ssd-u", "syn-ssd-uv") else m
        seen = kept(columns, k, sketch, 0) if algo in ("syn-ssd-v", "syn-ssd-uv", "asyn-ssd-v") else columns
        count = density * (rows * columns + m * seen) * k + 2 * (m + columns) * k * k * sweeps
        if summed < m:
            count = 2 * density * summed * columns * k + (m + columns) * k * k + (summed + columns) * k * k * sweeps
        times.append(2 * count / RATE)
    return tuple(times)


def local_work(job) -> tuple[tuple[float, ...], int]:
    """Returns the time of a local step of each party, and the local steps between two exchanges."""
    start, params = job.start, job.start["params"]
    local = params.get("local_iters", 1)
    secure = job.run.algo == "secure-hals"
    sketched = secure and params.get("sketch") == "subsample"
    seconds = step_seconds(
        job.run.algo,
        start["m"],
        start["n"],
        start["k"],
        start["nnz"] / (start["m"] * start["n"]),
        start["parties"],
        params.get("skew"),
        params.get("sketch_size") or "auto",
        sweeps=local if secure else 1,
        summed=params["sketch_size_v"] if sketched else start["m"],
    )
    return seconds, 1 if secure else local


def party_bytes(event: dict, job) -> float:
    """Returns the bytes that a party has sent and received until this event, from the ledger."""
    return job.sent() * event["iter"] / max(1, job.end["iter"]) / job.start["parties"]


def seconds(event: dict, job, network: Network = ETHERNET) -> float:
    """Returns the time until this event if each party were a node."""
    steps, local = local_work(job)
    parties, done = len(steps), event["iter"]
    sent = job.sent() / max(1, job.end["iter"])
    if job.run.algo.startswith("asyn"):
        return merge_seconds(tuple(step * local for step in steps), network.seconds(sent, 2, 2), done)
    exchanges = 2 + (local if "ssd-u" in job.run.algo else 0)
    return done * (max(steps) * local + network.seconds(sent / parties, parties, exchanges))


@cache
def merge_seconds(turns: tuple[float, ...], exchange: float, count: int) -> float:
    """Returns when the server has merged `count` turns, if no party waits for another."""
    done, now = [0] * len(turns), 0.0
    for _ in range(count):
        party = min(range(len(turns)), key=lambda p: turns[p] * (done[p] + 1))
        done[party] += 1
        now = max(now, done[party] * (turns[party] + exchange))
    return now


def local_iteration_rate(end: dict, job, network: Network = ETHERNET) -> float:
    """Returns the local iterations of a party per second, averaged over parties."""
    steps, local = local_work(job)
    if job.run.algo.startswith("asyn"):
        exchange = network.seconds(job.sent() / max(1, end["iter"]), 2, 2)
        return sum(local / (step * local + exchange) for step in steps) / len(steps)
    return end["iter"] * local / seconds(end, job, network)
