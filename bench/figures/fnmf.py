"""FNMF (Dalleiger and Gionis), Figures 1 to 3 and Table 1."""

from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, findings, run

PAPER = "Dalleiger and Gionis, Creating Coherence in Federated Non-Negative Matrix Factorization"
FNMF = {
    "FNMF-LAP": dict(algo="fnmf"),
    "FNMF-LAP-rho": dict(algo="fnmf", align="lap-rho"),
    "FNMF-SK": dict(algo="fnmf", align="sinkhorn"),
    "FNMF-SK-rho": dict(algo="fnmf", align="sinkhorn-rho"),
}
BASELINES = {"FedAvg": dict(algo="fedavg"), "FedProx": dict(algo="fedprox")}
ONE_SHOT = {"iPALM": dict(algo="ipalm"), "MUR": dict(algo="mur")}
METHODS = {**FNMF, **BASELINES, **ONE_SHOT}


def method_run(label, data, k, local, rounds, **rest):
    """Returns a run with `rounds` rounds of `local` steps; the one-shot baselines do as many steps in total."""
    options = dict(METHODS[label])
    algo = options.pop("algo")
    if label in ONE_SHOT:
        return run(algo, data, k, local * rounds, **{**rest, **options})
    return run(algo, data, k, rounds, **{"local_iters": local, **rest, **options})


SERVERS = {
    "LAP": dict(align="lap"),
    "LAP-rho": dict(align="lap-rho"),
    "SK": dict(align="sinkhorn"),
    "SK-rho": dict(align="sinkhorn-rho"),
    "k-NN": dict(align="knn"),
    "greedy": dict(barycenter="greedy"),
    "tree": dict(barycenter="tree"),
    "KMC": dict(barycenter="kmeans"),
    "FCM": dict(barycenter="fuzzy-cmeans"),
}


def aligning(end, job):
    """Returns the seconds per round at the server: everything but the local steps."""
    local = ("Gram", "product", "update", "pull")
    spent = sum(p["seconds_mean"] for name, p in end["phases"].items() if name.startswith(local))
    return (end["seconds"] - spent) / end["iter"]


def figure1():
    panels = []
    for name, noise in (("ideal", 0.0), ("noisy", 0.3)):
        data = {c: generated("blocks", clients=c, rows=50, n=100, noise=noise) for c in (4, 16, 48)}
        for quantity, y in (
            ("sum of RMSD", "rmsd"),
            ("orthogonality gap", "orthogonality_gap"),
            ("seconds per round", aligning),
        ):
            curves = [
                Curve(
                    s,
                    points=[
                        (c, run("fnmf", d, 10, 10, parties=c, local_iters=50, seeds=2, **o)) for c, d in data.items()
                    ],
                )
                for s, o in SERVERS.items()
            ]
            panels.append(
                Panel(f"{name}: {quantity}", curves, "clients", quantity, y=y, log="x" if "gap" in quantity else "xy")
            )
    return panels


def figure2():
    panels = []
    for name, rows in (("fixed data", lambda c: 1024 // c), ("growing data", lambda c: 100)):
        data = {c: generated("blocks", clients=c, rows=rows(c), n=100) for c in (4, 16, 64)}
        for quantity, y in (("mean RMSD", "rmsd_mean"), ("seconds", "seconds")):
            curves = [
                Curve(m, points=[(c, method_run(m, d, 10, 50, 10, parties=c, seeds=2)) for c, d in data.items()])
                for m in METHODS
            ]
            panels.append(Panel(f"{name}: {quantity}", curves, "clients", quantity, y=y, log="xy"))
    data = {a: generated("blocks", absent=a) for a in (0.0, 0.3, 0.6)}
    curves = [
        Curve(m, points=[(a, method_run(m, d, 10, 100, 20, parties=10, seeds=3)) for a, d in data.items()])
        for m in METHODS
    ]
    panels.append(
        Panel("differing clients", curves, "share of components that a client lacks", "sum of RMSD", y="rmsd")
    )
    return panels


BLOCKS = generated("blocks")
STEPS = 2000


def figure3():
    drift = [
        Curve(
            m,
            points=[
                (t, method_run(m, BLOCKS, 10, t, STEPS // t, parties=10, seeds=3)) for t in (1, 10, 50, 100, 200, 500)
            ],
        )
        for m in (*FNMF, *BASELINES)
    ] + [
        Curve(
            f"{m}, no inertia",
            points=[(t, method_run(m, BLOCKS, 10, t, STEPS // t, parties=10, seeds=3, inertia=0)) for t in (10, 50)],
        )
        for m in BASELINES
    ]
    convergence = [
        Curve(
            m,
            method_run(m, BLOCKS, 10, 100, 20, parties=10, seeds=3, every=1 if m not in ONE_SHOT else 100),
            x=(lambda e, j: e["iter"] / 100) if m in ONE_SHOT else None,
        )
        for m in METHODS
    ]
    return [
        Panel("100 local steps", convergence, "round", "sum of RMSD", y="rmsd", log="y"),
        Panel(f"{STEPS} local steps in all", drift, "local steps between rounds", "sum of RMSD", y="rmsd", log="xy"),
    ]


SETS = {
    "MNIST test": "mnist-test",
    "Fashion MNIST": "fashion",
    "faces": "faces",
    "digits": "digits",
    "KOS": "kos",
    "cells": "cells",
    "mushroom": "mushroom",
}
SHOWN = ["iPALM", "MUR", "FedAvg", "FedProx", "FNMF-LAP", "FNMF-LAP-rho"]


def cell(method, data):
    return method_run(method, data, 20, 50, 5, parties=50, scale="max")


def table1():
    """One panel per set, so that a missing set does not hide the others."""
    panels = []
    for name, data in SETS.items():
        for y in ("rmsd", "rmsd_refit", "rel_error"):
            curves = [Curve(m, points=[(name, cell(m, data))]) for m in SHOWN]
            if y == "rel_error":
                curves.append(Curve("HALS, central", points=[(name, run("hals", data, 20, 60, scale="max"))]))
            panels.append(Panel(f"{name}, {y}", curves, "", y, y=y, table=True))
    return panels


# The local steps of the paper, and HALS with a stronger proximal term and three sweeps per round.
SIZES = {
    "FNMF, HALS steps": ("FNMF-LAP", 3, 200, dict(update="hals", gamma=1)),
    "FNMF": ("FNMF-LAP", 20, 50, {}),
    "FedAvg": ("FedAvg", 20, 50, {}),
    "FedAvg, HALS steps": ("FedAvg", 3, 200, dict(update="hals")),
}


def sizes():
    panels = []
    for panel, quantity, y in (
        ("MNIST test", "relative error, k =", "rel_error"),
        ("MNIST test, summed", "sum of RMSD, k =", "rmsd"),
    ):
        curves = [
            Curve(
                name,
                points=[
                    (k, method_run(m, "mnist-test", k, local, rounds, parties=50, scale="max", **rest))
                    for k in (20, 50, 100)
                ],
            )
            for name, (m, local, rounds, rest) in SIZES.items()
        ]
        if y == "rel_error":
            central = [(k, run("hals", "mnist-test", k, 200, scale="max")) for k in (20, 50, 100)]
            curves.append(Curve("HALS, central", points=central))
        panels.append(Panel(panel, curves, "k", quantity, y=y, table=True))
    return panels


@findings
def exact_wins(results):
    for name in ("ideal", "noisy"):
        panel = f"{name}: sum of RMSD"
        lap, kmc = results.last(panel, "LAP"), results.last(panel, "KMC")
        yield (
            lap < kmc,
            f"{name}, 48 clients: LAP {lap:.3f}, SK {results.last(panel, 'SK'):.3f}, KMC {kmc:.3f}, FCM "
            f"{results.last(panel, 'FCM'):.3f}",
        )


def slow(results):
    panel = "noisy: seconds per round"
    lap, fcm = results.last(panel, "LAP"), results.last(panel, "FCM")
    return fcm > lap, f"a round of LAP {lap * 1e3:.3g} ms, of FCM {fcm * 1e3:.3g} ms (48 clients)."


def soft(results):
    a, b = (results.last("noisy: sum of RMSD", s) for s in ("SK", "LAP"))
    c = results.last("noisy: sum of RMSD", "k-NN")
    return max(a, c) < b, f"SK {a:.3f}, k-NN {c:.3f}, LAP {b:.3f}."


@findings
def scale(results):
    for name in ("fixed data", "growing data"):
        ends = {m: results.last(f"{name}: mean RMSD", m) for m in METHODS}
        best, baseline = min(ends[m] for m in FNMF), min(ends[m] for m in BASELINES)
        yield best < baseline, f"{name}, 64 clients: FNMF {best:.4f}, FedAvg or FedProx {baseline:.4f}"


@findings
def personal(results):
    for absent in (0.3, 0.6):
        a, b, c = (results.at("differing clients", m, absent) for m in ("FNMF-SK-rho", "FNMF-SK", "FedAvg"))
        yield a < b, f"at {absent}: SK-rho {a:.3f}, SK {b:.3f}, FedAvg {c:.3f}"


def subpar(results):
    ends = {m: results.last("100 local steps", m) for m in METHODS}
    baselines = min(ends[m] for m in BASELINES)
    return max(ends[m] for m in FNMF) < baselines, ", ".join(f"{m} {e:.3f}" for m, e in ends.items()) + "."


def drifts(results):
    panel = f"{STEPS} local steps in all"
    at = lambda m: f"{m} " + "/".join(f"{results.at(panel, m, t):.3f}" for t in (10, 100, 500))  # noqa: E731
    worst = max(results.at(panel, m, 500) for m in FNMF)
    ok = worst < 0.7 * min(results.at(panel, m, 500) for m in BASELINES)
    return ok, "with 10/100/500 steps between rounds " + ", ".join(at(m) for m in ("FNMF-LAP", *BASELINES)) + "."


def wins(results):
    parts, won = [], 0
    for name in SETS:
        panel = f"{name}, rmsd"
        if panel not in results.panels:
            continue
        ends = {m: results.last(panel, m) for m in SHOWN}
        best = min(ends, key=ends.get)
        won += best.startswith("FNMF")
        parts.append(f"{name}: {best} {ends[best]:.4g} (FedAvg {ends['FedAvg']:.4g})")
    return won > len(parts) / 2, f"on {won} of {len(parts)}. " + "; ".join(parts) + "."


@findings
def one_shot_loses(results):
    for name in SETS:
        panel = f"{name}, rmsd"
        if panel in results.panels:
            ends = {m: results.last(panel, m) for m in SHOWN}
            best = min(ends[m] for m in ("iPALM", "MUR"))
            yield (
                best > max(ends[m] for m in SHOWN[2:]),
                f"{name} {best:.4g}, worst federated {max(ends[m] for m in SHOWN[2:]):.4g}",
            )


@findings(prefix="above central HALS, ")
def near_central(results):
    for k in (20, 50, 100):
        above = {m: results.at("MNIST test", m, k) / results.at("MNIST test", "HALS, central", k) - 1 for m in SIZES}
        yield (
            above["FNMF, HALS steps"] <= 0.02 and above["FedAvg"] >= 0.2,
            f"k = {k}: " + ", ".join(f"{m} {e:+.1%}" for m, e in above.items()),
        )


CONVERGENCE, DRIFT = "100 local steps", f"{STEPS} local steps in all"
NUMBERS = [
    (CONVERGENCE, "FNMF-LAP", 20, 0.5834, 0.0014),
    (CONVERGENCE, "FNMF-LAP-rho", 20, 0.5828, 0.0015),
    (CONVERGENCE, "FNMF-SK", 20, 0.5839, 0.0026),
    (CONVERGENCE, "FNMF-SK-rho", 20, 0.5829, None),
    (CONVERGENCE, "FedAvg", 20, 4.0806, 0.2365),
    (CONVERGENCE, "FedProx", 20, 3.1708, 0.4747),
    (CONVERGENCE, "iPALM", 20, 4.1709, 0.2307),
    (CONVERGENCE, "MUR", 20, 4.1908, 0.2096),
    (DRIFT, "FNMF-LAP", 500, 0.583, 0.0015),
    (DRIFT, "FedAvg, no inertia", 10, 0.7261, 0.175),
    (DRIFT, "FedAvg", 50, 4.00, None),
    (DRIFT, "FedAvg", 500, 4.09, None),
    (DRIFT, "FedProx, no inertia", 10, 0.5826, 0.0014),
    (DRIFT, "FedProx", 500, 3.88, None),
]
REFERENCES = [
    Reference(
        f"{c}, {p}: {x} {'rounds' if p == CONVERGENCE else 'steps between rounds'}",
        v,
        sd,
        get=lambda r, p=p, c=c, x=x: r.at(p, c, x),
    )
    for p, c, x, v, sd in NUMBERS
]
HETERO = [
    ("FNMF-LAP", 0.3, 2.38),
    ("FNMF-LAP", 0.6, 2.46),
    ("FNMF-LAP-rho", 0.3, 0.588),
    ("FedAvg", 0.3, 2.66),
    ("FedAvg", 0.6, 1.51),
]
PRINTED = {
    "iPALM": 12.628,
    "MUR": 12.577,
    "FedAvg": 11.791,
    "FedProx": 12.522,
    "FNMF-LAP": 6.526,
    "FNMF-LAP-rho": 6.482,
}
BLOCKS_NOTE = "Blocks at random places, 10 clients x 100 rows x 200 columns, k = 10, independent initialisation."
FIGURES = [
    Figure(
        "fnmf-fig1",
        paper=PAPER + ", Figure 1",
        title="barycenters: error, orthogonality gap, time",
        data="synthetic blocks",
        minutes=3,
        panels=figure1,
        note="The paper computes barycenters of permuted copies of one matrix. Here they are the server's step "
        "in whole runs: 10 rounds of 50 local steps, 50 rows per client, without noise and with noise 0.3.",
        claims=[
            Claim("Alignments find better barycenters than k-means.", exact_wins),
            Claim("Soft alignments (SK, k-NN) improve over LAP on realistic data.", soft),
            Claim("Fuzzy c-means is much slower.", slow),
        ],
    ),
    Figure(
        "fnmf-fig2",
        paper=PAPER + ", Figure 2",
        title="error and time over the number of clients",
        data="synthetic blocks",
        minutes=3,
        panels=figure2,
        note="1024 rows divided among the clients, and 100 rows for each; 10 rounds of 50 local steps. Differing "
        "clients: 10 clients, 20 rounds of 100. The reference for LAP-rho has rows of unit norm, which is "
        "the default here.",
        claims=[
            Claim("FNMF often outperforms FedProx and FedAvg.", scale),
            Claim("Personalised alignment helps where clients differ.", personal),
        ],
        references=[
            Reference(
                f"{m}, {a} of the components absent", v, None, get=lambda r, m=m, a=a: r.at("differing clients", m, a)
            )
            for m, a, v in HETERO
        ],
    ),
    Figure(
        "fnmf-fig3",
        paper=PAPER + ", Figure 3",
        title="convergence, and client drift with rare communication",
        data="synthetic blocks",
        minutes=3,
        panels=figure3,
        note=BLOCKS_NOTE
        + " Inertia lengthens the local steps, and with them the drift of the averaging methods: with 10 "
        "steps between rounds the reference values are met without inertia (`--inertia 0`).",
        claims=[
            Claim("FedAvg and FedProx converge to a worse solution than FNMF.", subpar),
            Claim("With more local steps FedAvg and FedProx deteriorate, while FNMF stays low.", drifts),
        ],
        references=REFERENCES,
    ),
    Figure(
        "fnmf-table1",
        paper=PAPER + ", Table 1",
        title="sum of RMSD on real data, 50 clients",
        data="MNIST test, faces, digits, KOS, single cells, mushroom; Fashion MNIST if available",
        minutes=3,
        panels=table1,
        note="k = 20 (the paper does not give k), 5 rounds of 50 local steps, entries divided by the maximum.",
        claims=[
            Claim("FNMF is best in the majority of cases.", wins),
            Claim("One-shot NMF (iPALM, MUR) is outperformed by all federated methods.", one_shot_loses),
        ],
        references=[
            Reference(
                f"MNIST (here the test images), {m}",
                v,
                None,
                get=lambda r, m=m: r.last("MNIST test, rmsd", m),
                source="paper",
            )
            for m, v in PRINTED.items()
        ],
    ),
    Figure(
        "fnmf-mnist",
        paper=PAPER + ", Table 1",
        title="FNMF and FedAvg against central HALS at several k",
        data="MNIST test",
        minutes=3,
        panels=sizes,
        note="50 clients, 50 rounds of 20 of the paper's local steps, entries divided by the maximum; HALS does "
        "200 iterations. HALS steps (`--update hals --local-iters 3`, 200 rounds; FNMF with `--gamma 1`) "
        "are 600 steps instead of 1000. The paper, which does not give k, reports 6.526 for FNMF and 11.791 "
        "for FedAvg.",
        claims=[
            Claim(
                "FNMF (HALS steps) is within 2 % of central HALS, FedAvg (the paper's steps) at least 20 % above.",
                near_central,
            )
        ],
        references=[
            Reference(
                f"{m}, k = 50: sum of RMSD",
                PRINTED[p],
                None,
                get=lambda r, m=m: r.at("MNIST test, summed", m, 50),
                source="paper",
            )
            for m, p in (("FNMF", "FNMF-LAP"), ("FedAvg", "FedAvg"))
        ],
    ),
]
