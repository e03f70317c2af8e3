"""FNMF (Dalleiger and Gionis), Figures 1 to 3 and Table 1."""

from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, Test, run
from lib.verdict import Comparison

PAPER = "Dalleiger and Gionis, Creating Coherence in Federated Non-Negative Matrix Factorization"
FNMF = {
    "FNMF-LAP": dict(algo="fnmf"),
    "FNMF-LAP-rho": dict(algo="fnmf", align="lap-rho"),
    "FNMF-SK": dict(algo="fnmf", align="sinkhorn"),
    "FNMF-SK-rho": dict(algo="fnmf", align="sinkhorn-rho"),
}
BASELINES = {"FedAvg": dict(algo="fedavg"), "FedProx": dict(algo="fedprox")}
# With one start for all parties no mean of random matrices pulls FedProx in the first round.
SHARED = {f"{m}, shared start": dict(o, start="shared") for m, o in BASELINES.items()}
# Components averaged at norm 1, as FNMF does.
UNIT = {f"{m}, unit components": dict(o, normalize="unit") for m, o in BASELINES.items()}
ONE_SHOT = {"iPALM": dict(algo="ipalm"), "MUR": dict(algo="mur")}
METHODS = {**FNMF, **BASELINES, **ONE_SHOT}
SEEDS = 10


def method_run(label, data, k, local, rounds, seeds=SEEDS, **rest):
    """Returns a run with `rounds` rounds of `local` steps; the one-shot baselines do as many steps in total."""
    options = dict({**METHODS, **SHARED, **UNIT}[label])
    algo = options.pop("algo")
    if label in ONE_SHOT:
        return run(algo, data, k, local * rounds, seeds=seeds, **{**rest, **options})
    return run(algo, data, k, rounds, seeds=seeds, **{"local_iters": local, **rest, **options})


SERVERS = {
    "LAP": dict(align="lap"),
    "SK": dict(align="sinkhorn"),
    "k-NN": dict(align="knn"),
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
        data = {c: generated("blocks", clients=c, rows=50, n=100, noise=noise) for c in (4, 16)}
        for rounds in (1, 10):
            for quantity, y in (
                ("loss (4)", "barycenter_loss"),
                ("sum of RMSD", "rmsd"),
                ("orthogonality gap", "orthogonality_gap"),
                ("seconds per round", aligning),
            ):
                if rounds == 1 and "loss" not in quantity and "RMSD" not in quantity:
                    continue
                curves = [
                    Curve(
                        s,
                        points=[
                            (
                                c,
                                run(
                                    "fnmf",
                                    d,
                                    10,
                                    rounds,
                                    parties=c,
                                    local_iters=500 // rounds,
                                    seeds=SEEDS,
                                    normalize="none",
                                    **o,
                                ),
                            )
                            for c, d in data.items()
                        ],
                    )
                    for s, o in SERVERS.items()
                ]
                shown = f"{name}, {rounds} round{'s' * (rounds > 1)}: {quantity}"
                panels.append(
                    Panel(shown, curves, "clients", quantity, y=y, log="x" if quantity[:2] in ("or", "lo") else "xy")
                )
    return panels


def figure2():
    panels = []
    for name, rows in (("fixed data", lambda c: 1024 // c), ("growing data", lambda c: 100)):
        data = {c: generated("blocks", clients=c, rows=rows(c), n=100) for c in (4, 16, 64)}
        for quantity, y in (("mean RMSD", "rmsd_mean"), ("seconds", "seconds")):
            curves = [
                Curve(m, points=[(c, method_run(m, d, 10, 50, 10, parties=c)) for c, d in data.items()])
                for m in METHODS
            ]
            panels.append(Panel(f"{name}: {quantity}", curves, "clients", quantity, y=y, log="xy"))
    data = {a: generated("blocks", absent=a) for a in (0.0, 0.3, 0.6)}
    curves = [
        Curve(m, points=[(a, method_run(m, d, 10, 100, 20, parties=10)) for a, d in data.items()]) for m in METHODS
    ]
    panels.append(
        Panel("differing clients", curves, "share of components that a client lacks", "sum of RMSD", y="rmsd")
    )
    return panels


BLOCKS = generated("blocks")
STEPS = 2000
STRIDES = (1, 10, 50, 100, 500)


def figure3():
    drift = [
        Curve(m, points=[(t, method_run(m, BLOCKS, 10, t, STEPS // t, parties=10)) for t in STRIDES])
        for m in ("FNMF-LAP", "FNMF-SK", *BASELINES, *SHARED)
    ] + [
        Curve(
            f"{m}, no inertia",
            points=[(t, method_run(m, BLOCKS, 10, t, STEPS // t, parties=10, inertia=0)) for t in (10, 50)],
        )
        for m in BASELINES
    ]
    convergence = [
        Curve(
            m,
            method_run(m, BLOCKS, 10, 100, 20, parties=10, every=1 if m not in ONE_SHOT else 100),
            x=(lambda e, j: e["iter"] / 100) if m in ONE_SHOT else None,
        )
        for m in (*METHODS, *SHARED, *UNIT)
    ]
    return [
        Panel("100 local steps", convergence, "round", "sum of RMSD", y="rmsd", log="y"),
        Panel(f"{STEPS} local steps in all", drift, "local steps between rounds", "sum of RMSD", y="rmsd", log="xy"),
    ]


# Set: data, seeds, precision. MNIST is the paper's own set.
SETS = {
    "digits": ("digits", SEEDS, "f64"),
    "mushroom": ("mushroom", SEEDS, "f64"),
    "MNIST test": ("mnist-test", SEEDS, "f32"),
    "cells": ("cells", SEEDS, "f64"),
    # The others of the paper.
    "ArXiv": ("arxiv", SEEDS, "f32"),
    "CIFAR-10": ("cifar", SEEDS, "f32"),
    "Fashion MNIST": ("fashion", SEEDS, "f32"),
    "Goodreads": ("goodreads", SEEDS, "f32"),
    "HPA Brain": ("hpa", SEEDS, "f32"),
    "Movielens": ("movielens", SEEDS, "f32"),
    "Netflix": ("netflix", SEEDS, "f32"),
    "TCGA": ("tcga", SEEDS, "f32"),
}
SHOWN = ["iPALM", "MUR", "FedAvg", "FedProx", "FNMF-LAP", "FNMF-LAP-rho"]
# Local steps between two rounds, and rounds.
SCHEDULES = ((50, 5), (25, 10))


def cell(method, name, local, rounds, k=50):
    data, seeds, precision = SETS[name]
    return method_run(
        method,
        data,
        k,
        local,
        rounds,
        seeds,
        parties=50,
        scale="max",
        **({"precision": precision} if precision != "f64" else {}),
    )


def table1():
    """One panel per set, so that a missing set does not hide the others."""
    panels = []
    for name in SETS:
        for local, rounds in SCHEDULES:
            for y in ("rmsd", "rmsd_refit"):
                shown = f"{name}, {rounds} rounds of {local}, {y}"
                curves = [Curve(m, points=[(name, cell(m, name, local, rounds))]) for m in SHOWN]
                panels.append(Panel(shown, curves, "", f"{y}, {rounds} rounds of {local}", y=y, table=True))
    return panels


# The local steps of the paper, and HALS with a stronger proximal term and three sweeps per round.
SIZES = {
    "FNMF, HALS steps": ("FNMF-LAP", 3, 200, dict(update="hals", gamma=1)),
    "FNMF": ("FNMF-LAP", 20, 50, {}),
    "FedAvg": ("FedAvg", 20, 50, {}),
    "FedAvg, HALS steps": ("FedAvg", 3, 200, dict(update="hals")),
}
# As the set in Table 1. With fewer seeds: these are the longest runs of all figures.
MNIST = dict(parties=50, scale="max", precision="f32")
MNIST_SEEDS = 5


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
                    (k, method_run(m, "mnist-test", k, local, rounds, MNIST_SEEDS, **MNIST, **rest))
                    for k in (20, 50, 100)
                ],
            )
            for name, (m, local, rounds, rest) in SIZES.items()
        ]
        if y == "rel_error":
            central = [
                (k, run("hals", "mnist-test", k, 200, seeds=MNIST_SEEDS, scale="max", precision="f32"))
                for k in (20, 50, 100)
            ]
            curves.append(Curve("HALS, central", points=central))
        panels.append(Panel(panel, curves, "k", quantity, y=y, table=True))
    return panels


def soft(results, panel="noisy, 1 round: loss (4)"):
    for s in ("SK", "k-NN"):
        yield results.compare(panel, "LAP", s, place="loss (4)")


def soft_reconstructs(results):
    for s in ("SK", "k-NN"):
        yield results.compare("noisy, 1 round: sum of RMSD", "LAP", s, place="sum of RMSD")


def better_than_kmeans(results):
    for name in ("ideal", "noisy"):
        for s in ("LAP", "SK", "k-NN"):
            yield results.compare(f"{name}, 1 round: loss (4)", "KMC", s, place=f"{name}, loss (4)")


def slow(results):
    for s in ("LAP", "SK", "k-NN"):
        yield results.compare("noisy, 10 rounds: seconds per round", "FCM", s, place="seconds")


def scale(results):
    for name in ("fixed data", "growing data"):
        panel = f"{name}: mean RMSD"
        for clients in (4, 16, 64):
            baseline = results.lowest(panel, BASELINES, clients)
            yield results.compare(
                panel, baseline, results.lowest(panel, FNMF, clients), clients, place=f"{name}, {clients} clients"
            )


def personal(results):
    for absent in (0.3, 0.6):
        yield results.compare("differing clients", "FNMF-SK", "FNMF-SK-rho", absent, place=f"{absent} absent")


CONVERGENCE, DRIFT = "100 local steps", f"{STEPS} local steps in all"


def subpar(baselines):
    def compare(results):
        best = results.lowest(CONVERGENCE, baselines)
        for m in FNMF:
            yield results.compare(CONVERGENCE, best, m, place="sum of RMSD after 20 rounds")

    return compare


def drifts(baselines):
    def compare(results):
        for m in baselines:
            low, high = results.point(DRIFT, m, 10), results.point(DRIFT, m, 500)
            yield Comparison(f"{m}: with 500 steps − with 10", high.values, low.values)
            yield results.compare(DRIFT, m, "FNMF-LAP", 500, place="500 steps")

    return compare


def stays_low(results):
    few, many = results.point(DRIFT, "FNMF-LAP", 10), results.point(DRIFT, "FNMF-LAP", 500)
    yield Comparison("FNMF-LAP: 1.05 with 10 steps − with 500", tuple(1.05 * v for v in few.values), many.values)


def sets(results, schedule):
    local, rounds = schedule
    tail = f", {rounds} rounds of {local}, rmsd"
    return [(p, p.removesuffix(tail)) for p in results.present() if p.endswith(tail)]


def wins(schedule):
    def compare(results):
        for panel, name in sets(results, schedule):
            own = results.lowest(panel, ("FNMF-LAP", "FNMF-LAP-rho"))
            yield results.compare(panel, results.lowest(panel, BASELINES), own, place=name)

    return compare


def one_shot_loses(schedule):
    def compare(results):
        for panel, name in sets(results, schedule):
            once = results.lowest(panel, ONE_SHOT)
            for m in SHOWN[2:]:
                yield results.compare(panel, once, m, place=name)

    return compare


def near_central(results):
    for k in (20, 50, 100):
        for m, level, sign in (("FNMF, HALS steps", 1.02, 1), ("FedAvg", 1.2, -1)):
            values = results.point("MNIST test", m, k).values
            limit = tuple(level * v for v in results.point("MNIST test", "HALS, central", k).values)
            pair = (limit, values) if sign > 0 else (values, limit)
            label = f"{level:g} HALS − {m}" if sign > 0 else f"{m} − {level:g} HALS"
            yield Comparison(f"k = {k}: {label}", *pair)


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
MANY = tuple(SHARED)
FIGURES = [
    Figure(
        "fnmf-fig1",
        paper=PAPER + ", Figure 1",
        title="barycenters: loss (4), error, orthogonality gap, time",
        data="synthetic blocks",
        minutes=5,
        panels=figure1,
        note="The paper computes barycenters of permuted copies of one matrix, and each input of the realistic case "
        "is sampled. Here the V_j are those that clients with 50 rows of one sampled matrix each find in 500 local "
        "steps, with noise 0.3 or none: 1 round, so that the loss is that of one barycenter, and 10 rounds of 50 "
        "steps. Loss (4) takes the best permutation for every method, so that it is comparable; a soft alignment has "
        "a lower loss with its own plan, which blurs the components. `--normalize none`, as in the paper.",
        claims=[
            Claim(
                "soft",
                quote="strictly more powerful soft alignments, SK, SKρ, and k-NN, improve over exact methods like LAP",
                place="section 4, Figure 1",
                tested="Loss (4) over permutations, 1 round, 16 clients, noise 0.3.",
                compare=soft,
                also=[
                    Test(
                        "soft-error",
                        tested="Sum of RMSD with the barycenter in place of V_j, on the same runs.",
                        compare=soft_reconstructs,
                    ),
                ],
            ),
            Claim(
                "kmeans",
                quote="All methods significantly outperform KMC in quality",
                place="section 4, Figure 1",
                tested="Loss (4) of LAP, SK and k-NN, 1 round, 16 clients, with and without noise.",
                compare=better_than_kmeans,
            ),
            Claim(
                "fast",
                quote="and FCM in speed, often by several orders of magnitude",
                place="section 4, Figure 1",
                tested="Seconds of a round at the server, 16 clients; tests only which one is faster.",
                compare=slow,
                timed=True,
            ),
        ],
    ),
    Figure(
        "fnmf-fig2",
        paper=PAPER + ", Figure 2",
        title="error and time over the number of clients",
        data="synthetic blocks",
        minutes=10,
        panels=figure2,
        note="1024 rows divided among the clients, and 100 rows for each; 10 rounds of 50 local steps. Differing "
        "clients: 10 clients, 20 rounds of 100. The reference for LAP-rho has rows of unit norm, which is "
        "the default here.",
        claims=[
            Claim(
                "scale",
                quote="Our FNMF variants often outperform the similarly-performing FEDPROX and FEDAVG",
                place="section 4, Figure 2",
                tested="Mean RMSD of the best FNMF against the better baseline, 4 to 64 clients, fixed and growing "
                "data.",
                compare=scale,
                most=True,
            ),
            Claim(
                "personal",
                quote="a significant gain from personalized FNMF-SKρ when client-data are increasingly less uniform",
                place="section 4, Figure 2",
                tested="Sum of RMSD of SK-rho against SK, where clients lack 0.3 or 0.6 of the components.",
                compare=personal,
            ),
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
        minutes=10,
        panels=figure3,
        note=BLOCKS_NOTE
        + " Inertia lengthens the local steps, and with them the drift of the averaging methods: with 10 "
        "steps between rounds the reference values are met without inertia (`--inertia 0`). With independent starts "
        "FedProx is pulled to a mean of random matrices in the first round; with a shared start (`--start shared`) it "
        "is not. FNMF compares and averages components at norm 1; *unit components* are the baselines with "
        "`--normalize unit`.",
        claims=[
            Claim(
                "subpar",
                quote="FEDAVG and FEDPROX converge to a subpar solution and are outperformed by FNMF",
                place="section 4, Figure 3",
                tested="Every FNMF against the better one of both, 20 rounds of 100 local steps.",
                compare=subpar(tuple(BASELINES)),
                also=[
                    Test(
                        "subpar-shared",
                        tested="The same with FedAvg and FedProx from a start that all parties share.",
                        compare=subpar(MANY),
                    ),
                    Test(
                        "subpar-unit",
                        tested="The same with FedAvg and FedProx that average components at norm 1, as FNMF does.",
                        compare=subpar(tuple(UNIT)),
                    ),
                ],
            ),
            Claim(
                "drift",
                quote="with an increasing number of rounds, we observe that FEDAVG and FEDPROX deteriorate "
                "significantly",
                place="section 4, Figure 3",
                tested="Sum of RMSD with 500 local steps between rounds against 10, and against FNMF-LAP.",
                compare=drifts(tuple(BASELINES)),
                also=[
                    Test(
                        "drift-shared",
                        tested="The same from a start that all parties share.",
                        compare=drifts(MANY),
                    ),
                ],
            ),
            Claim(
                "low",
                quote="while FNMF stays low",
                place="section 4, Figure 3",
                tested="FNMF-LAP with 500 local steps between rounds is at most 5 % worse than with 10.",
                compare=stays_low,
            ),
        ],
        references=REFERENCES,
    ),
    Figure(
        "fnmf-table1",
        paper=PAPER + ", Table 1",
        title="sum of RMSD on real data, 50 clients",
        data="digits, mushroom, MNIST test, single cells; the paper's others if available",
        minutes=40,
        panels=table1,
        note="k = 50; the paper names no k. 250 local steps in all, as 5 rounds "
        "of 50 or 10 of 25; entries divided by the maximum. MNIST in f32.",
        claims=[
            claim
            for local, rounds in SCHEDULES
            for claim in (
                Claim(
                    f"majority-{local}",
                    quote="Both FEDPROX and FEDAVG, however, are behind FNMF in the majority of cases",
                    place="section 4, Table 1",
                    tested=f"The better one of FNMF-LAP and -LAP-rho on each set of the record, {rounds} rounds of "
                    f"{local} steps.",
                    compare=wins((local, rounds)),
                    most=True,
                ),
                Claim(
                    f"once-{local}",
                    quote="aggregated NMF algorithms, iPALM and MUR, are outperformed by federated methods FEDPROX, "
                    "FEDAVG, and FNMF",
                    place="section 4, Table 1",
                    tested=f"The better one of iPALM and MUR against each federated method, {rounds} rounds of "
                    f"{local} steps.",
                    compare=one_shot_loses((local, rounds)),
                ),
            )
        ],
        references=[
            Reference(
                f"MNIST (here the test images), {m}",
                v,
                None,
                get=lambda r, m=m: r.last("MNIST test, 5 rounds of 50, rmsd", m),
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
        minutes=30,
        panels=sizes,
        note="50 clients, 50 rounds of 20 of the paper's local steps, entries divided by the maximum; HALS does "
        "200 iterations. HALS steps (`--update hals --local-iters 3`, 200 rounds; FNMF with `--gamma 1`) "
        "are 600 steps instead of 1000. The paper, which does not give k, reports 6.526 for FNMF and 11.791 "
        "for FedAvg.",
        claims=[
            Claim(
                "central",
                quote="FNMF with HALS steps is within 2 % of central HALS, FedAvg with the paper's steps at least 20 "
                "% above",
                place="",
                tested="Relative error on MNIST's test images with k = 20, 50 and 100.",
                compare=near_central,
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
