"""A model of time on machines that are not here: counted multiplications and counted bytes, nothing measured.

A node does RATE floating-point operations a second on dense and sparse data alike; a collective of p nodes costs
log2(p) latencies and its bytes over one link. The bytes are those of the run's own ledger. So a model's seconds say how
methods compare, not how long anybody waits."""

from __future__ import annotations

import math
from functools import lru_cache

RATE = 20e9
LATENCY = 50e-6
BANDWIDTH = 1.25e9
WORDS = f"model: {RATE / 1e9:g} GF/s a node, {LATENCY * 1e6:g} µs, {BANDWIDTH * 8 / 1e9:g} Gbit/s"


def default_size(of: int, k: int) -> int:
    """What --sketch-size auto keeps of a dimension."""
    return min(of, max(of // 10, min(of // 2, 10 * k), 2 * k))


def network(words_of_bytes: float, nodes: int, times: float) -> float:
    """Seconds of `times` exchanges among nodes that move so many bytes of each."""
    return times * LATENCY * max(1.0, math.log2(nodes)) + words_of_bytes / BANDWIDTH


def shares(n: int, parties: int, skew: float | None) -> list[int]:
    """Columns of each party."""
    if skew is None:
        return [n // parties + (p < n % parties) for p in range(parties)]
    first = round(skew * n)
    return [first, *shares(n - first, parties - 1, None)]


def ranks(end: dict, job) -> float:
    """Seconds per iteration of dsanls, hals, mu, bpp on as many nodes as the run had ranks."""
    m, n, k, p = (job.start[name] for name in ("m", "n", "k", "ranks"))
    density, iters = job.start["nnz"] / (m * n), max(1, end["iter"])
    if job.run.algo == "dsanls":
        params = job.start["params"]
        d_u, d_v = params["sketch_size_u"], params["sketch_size_v"]
        exact = params["sketch"] not in ("subsample", "count")
        products = 2 * density * k * (2 * m * n if exact else m * d_u + n * d_v) / p
        small = 2 * k * k * (d_u + d_v + (m + n) / p)
    else:
        products, small = 4 * density * m * n * k / p, 4 * k * k * (m + n) / p
    work = products + small
    if job.run.algo == "bpp":
        work = products * PIVOTING.setdefault((m, n, k), pivoting(end))
    exchanges = job.sent("load", unit="messages") / p / iters
    return work / RATE + network(job.sent("load") / p / iters, p, exchanges)


# Of BPP on a matrix: how much more than the products its iteration is, from the first run, that with the fewest ranks.
PIVOTING: dict = {}


def pivoting(end: dict) -> float:
    """How often BPP pivots is in no formula: the ratio of all local work to the products in a run."""
    spent = {name: phase["seconds_mean"] for name, phase in end["phases"].items()}
    known = sum(s for name, s in spent.items() if name.startswith(("product", "Gram")))
    return (known + spent.get("update", 0.0)) / known


@lru_cache(maxsize=None)
def steps(
    algo: str, m: int, n: int, k: int, density: float, parties: int, skew: float | None, sweeps: int, summed: int
) -> tuple:  # fmt: skip
    """Seconds that a local step of each party takes (secure-hals: an iteration with that many sweeps, of `summed` rows of U)."""
    times = []
    for columns in shares(n, parties, skew):
        rows = default_size(m, k) if algo in ("syn-ssd-u", "syn-ssd-uv") else m
        seen = default_size(columns, k) if algo in ("syn-ssd-v", "syn-ssd-uv", "asyn-ssd-v") else columns
        count = density * (rows * columns + m * seen) * k + 2 * (m + columns) * k * k * sweeps
        if summed < m:
            count = 2 * density * summed * columns * k + (m + columns) * k * k + (summed + columns) * k * k * sweeps
        times.append(2 * count / RATE)
    return tuple(times)


def parts(job) -> tuple:
    start, params = job.start, job.start["params"]
    local = params.get("local_iters", 1)
    secure = job.run.algo == "secure-hals"
    density = start["nnz"] / (start["m"] * start["n"])
    each = steps(
        job.run.algo, start["m"], start["n"], start["k"], density, start["parties"], params.get("skew"),
        local if secure else 1, params["sketch_size_v"] if secure and params.get("sketch") == "subsample" else start["m"],
    )  # fmt: skip
    return each, 1 if secure else local


def party_bytes(event: dict, job) -> float:
    """Bytes that a party has handed over and got back so far, from the ledger."""
    return job.sent() * event["iter"] / max(1, job.end["iter"]) / job.start["parties"]


def virtual(event: dict, job) -> float:
    """Seconds until this event, were each party a node of its own."""
    each, local = parts(job)
    parties, done = len(each), event["iter"]
    sent = job.sent() / max(1, job.end["iter"])
    if job.run.algo.startswith("asyn"):
        return merges(tuple(t * local for t in each), network(sent, 2, 2), done)
    exchanges = 2 + (local if "ssd-u" in job.run.algo else 0)
    return done * (max(each) * local + network(sent / parties, parties, exchanges))


@lru_cache(maxsize=None)
def merges(turns: tuple, exchange: float, count: int) -> float:
    """When the server has merged `count` turns, if nobody waits for anybody."""
    done, now = [0] * len(turns), 0.0
    for _ in range(count):
        party = min(range(len(turns)), key=lambda p: turns[p] * (done[p] + 1))
        done[party] += 1
        now = max(now, done[party] * (turns[party] + exchange))
    return now


def rate(end: dict, job) -> float:
    """Local iterations that a party does in a second, the mean over parties."""
    each, local = parts(job)
    if job.run.algo.startswith("asyn"):
        exchange = network(job.sent() / max(1, end["iter"]), 2, 2)
        return sum(local / (t * local + exchange) for t in each) / len(each)
    return end["iter"] * local / virtual(end, job)
