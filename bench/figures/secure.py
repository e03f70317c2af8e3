"""The secure methods of the DSANLS paper, Figures 6 to 9, and error against traffic."""

from functools import partial

from lib import model
from lib.datasets import generated
from lib.model import FAST
from lib.spec import Claim, Curve, Figure, Panel, Reference, Test, run

PAPER = "Qian et al., Fast and Secure Distributed Nonnegative Matrix Factorization"
SYN = {"Syn-SD": "syn-sd", "Syn-SSD-U": "syn-ssd-u", "Syn-SSD-V": "syn-ssd-v", "Syn-SSD-UV": "syn-ssd-uv"}
ASYN = {"Asyn-SD": "asyn-sd", "Asyn-SSD-V": "asyn-ssd-v"}
SECURE = "secure-hals"
ROUNDS, LOCAL, PARTIES = 12, 10, 10
SEEDS = 10
# Of a party's columns and of the rows. The default keeps all 40 columns of a party with 40 faces: no sketch at all.
RATIOS = "30%,20%"
# name: data, k, and whether the parties hold rows of the stored matrix (images, documents)
SETS = {
    "faces": ("faces", 20, True),
    "MNIST test": ("mnist-test", 20, True),
    "KOS": ("kos", 20, True),
    "cells": ("cells", 20, False),
    "digits": ("digits", 10, True),
}


def method_run(label, data, k, transpose, skew, rounds=ROUNDS, parties=PARTIES, every=None, sizes=RATIOS, **rest):
    """Returns a run of a method; all methods do equally many local iterations in total. `sizes` are those of sketches."""
    options = dict(parties=parties, transpose=transpose, **({"skew": 0.5} if skew else {}), **rest)
    if label.startswith(SECURE):
        return run("secure-hals", data, k, rounds * LOCAL, every=5 if every is None else every, **options)
    options["local_iters"] = LOCAL
    if "SSD" in label:
        options["sketch_size"] = sizes
    if label in SYN:
        return run(SYN[label], data, k, rounds, every=1 if every is None else every, **options)
    return run(ASYN[label], data, k, rounds * parties, every=parties if every is None else every, **options)


# The modelled time of the smallest sets is latency alone, so that they decide nothing about the paper's claims.
LARGE = ("faces", "MNIST test", "KOS")
# Beside the parameters of the figures.
DEFAULT = ", default sketches"


def over_time(skew):
    def panel(name, tail="", time=model.seconds, **sizes):
        runs = {m: method_run(m, *SETS[name], skew, seeds=SEEDS, **sizes) for m in (*SYN, *ASYN, SECURE)}
        curves = [Curve(m, r) for m, r in runs.items()]
        return Panel(name + tail, curves, "seconds (model)", "relative error", x=time, log="x")

    return lambda: [
        *(panel(name) for name in SETS),
        *(panel(name, DEFAULT, sizes="auto") for name in LARGE),
        *(panel(name, FAST, partial(model.seconds, network=model.INFINIBAND)) for name in LARGE),
    ]


def over_nodes(skew):
    return lambda: [
        Panel(
            name + tail,
            [
                Curve(m, points=[(p, method_run(m, *SETS[name], skew, 2, p, 0, seedless=True)) for p in (2, 4, 8, 16)])
                for m in (*SYN, *ASYN, SECURE)
            ],
            "nodes",
            "local iterations per second (model)",
            y=rate,
            log="xy",
        )
        for tail, rate in (
            ("", model.local_iteration_rate),
            (FAST, partial(model.local_iteration_rate, network=model.INFINIBAND)),
        )
        for name in LARGE
    ]


VARIANTS = {
    "secure-hals, 1 sweep": dict(local_iters=1),
    "secure-hals, 3 sweeps": dict(local_iters=3),
    "secure-hals, BPP": dict(update="bpp"),
    "secure-hals, sketched": dict(sketch="subsample"),
    "secure-hals, sketched, 3 sweeps": dict(sketch="subsample", local_iters=3),
}


def traffic():
    panels = []
    for name, (data, k, rows) in SETS.items():
        for x, xlabel in ((model.party_bytes, "bytes of a party"), (model.seconds, "seconds (model)")):
            curves = [Curve(label, method_run(label, data, k, rows, False, seeds=SEEDS)) for label in (*SYN, *ASYN)]
            for v, o in VARIANTS.items():
                # A sketched iteration sends a tenth of the rows, and the Gram matrix.
                iters, every = (360, 3) if "sketch" in o else (60, 2)
                options = dict(o, parties=PARTIES, transpose=rows, every=every, seeds=SEEDS)
                curves.append(Curve(v, run("secure-hals", data, k, iters, **options)))
            panels.append(Panel(f"{name}: {xlabel.split(' (')[0]}", curves, xlabel, "relative error", x=x, log="x"))
    return panels


PLANTED = ("synthetic:planted,m=300,n=200,k=10", 10, False)
DIGITS = (generated("images"), 10, True)


EQUAL = ", equal weights"


def rounds():
    def curves(given, skew):
        for label in (*SYN, *ASYN):
            yield Curve(label, method_run(label, *given, skew, 20, seeds=SEEDS))
            if skew and label in SYN:
                yield Curve(label + EQUAL, method_run(label, *given, skew, 20, seeds=SEEDS, weights="equal"))

    return [
        Panel(
            f"{name}, {'skewed' if skew else 'uniform'}",
            list(curves(given, skew)),
            "local iterations of a party",
            "relative error",
            x=lambda e, j: e["iter"] * LOCAL / (PARTIES if j.run.algo.startswith("asyn") else 1),
            y="rel_error_unfitted",
            log="y",
        )
        for name, given in (("planted", PLANTED), ("digits", DIGITS))
        for skew in (False, True)
    ]


# Independent prototypes, 3 seeds: error of the averaged U after 20 rounds of 10 local iterations, V first.
NUMBERS = {
    "planted, uniform": {
        "Syn-SD": (0.1235, 0.0106),
        "Syn-SSD-U": (0.0412, 0.0004),
        "Syn-SSD-V": (0.0702, 0.0166),
        "Syn-SSD-UV": (0.0425, 0.0013),
    },
    "planted, skewed": {
        "Syn-SD": (0.1489, 0.0101),
        # The median of 14 seeds of another prototype, where two minima (0.068, 0.080) occur; three seeds had 0.0424.
        "Syn-SSD-U": (0.0442, None),
        "Syn-SSD-V": (0.1127, 0.0104),
        "Syn-SSD-UV": (0.0447, 0.0025),
    },
    "digits, uniform": {
        "Syn-SD": (0.3526, 0.0045),
        "Syn-SSD-U": (0.3540, 0.0024),
        "Syn-SSD-V": (0.3562, 0.0017),
        "Syn-SSD-UV": (0.3485, 0.0003),
    },
    "digits, skewed": {
        "Syn-SD": (0.3633, 0.0034),
        "Syn-SSD-U": (0.3614, 0.0067),
        "Syn-SSD-V": (0.3675, 0.0107),
        "Syn-SSD-UV": (0.3648, 0.0025),
    },
}
REFERENCES = [
    # From some starts a run ends in a local minimum far above the other, so that a mean says little.
    Reference(f"{panel}, {curve}, median", *pair, get=lambda r, p=panel, c=curve: r.point(p, c).median)
    for panel, curves in NUMBERS.items()
    # With skew the prototypes weighted all copies equally.
    for curve, pair in ((c + EQUAL * ("skewed" in panel), pair) for c, pair in curves.items())
]
PAPER_METHODS = (*SYN, *ASYN)


def among(results, names, tail=""):
    """Returns the panels of some sets that have data, with the figure's parameters or others."""
    return [name + tail for name in names if name + tail in results.present()]


def first_is(wanted, candidates=PAPER_METHODS, names=tuple(SETS), tail=""):
    """Says that one of some methods is the best when the first of the curves ends, on some sets."""

    def compare(results):
        for panel in among(results, names, tail):
            stop = min(results[panel][c][-1].x for c in candidates)
            baseline = results.lowest(panel, [c for c in candidates if c not in wanted], stop)
            yield results.compare(panel, baseline, results.lowest(panel, wanted, stop), stop)

    return compare


def poor(results):
    """Says that each of the rest is better than Syn-SD and Asyn-SD."""
    for panel in among(results, LARGE):
        best = results.lowest(panel, ("Syn-SD", "Asyn-SD"))
        worst = results.highest(panel, [c for c in PAPER_METHODS if not c.endswith("-SD")])
        yield results.compare(panel, best, worst)


def asyn_v(tail=""):
    def compare(results):
        for panel in among(results, LARGE, tail):
            for other in ("Syn-SD", "Asyn-SD"):
                yield results.compare(panel, other, "Asyn-SSD-V")

    return compare


def scales(tail=""):
    def compare(results):
        for panel in among(results, LARGE, tail):
            for curve in PAPER_METHODS:
                yield results.grows(panel, curve, 2, 16, 4)

    return compare


def fastest(tail=""):
    def compare(results):
        for panel in among(results, LARGE, tail):
            baseline = results.highest(panel, [c for c in PAPER_METHODS if c != "Syn-SSD-UV"], 16)
            yield results.compare(panel, "Syn-SSD-UV", baseline, 16)

    return compare


def flat(tail=""):
    def compare(results):
        for panel in among(results, LARGE, tail):
            for curve in SYN:
                yield results.grows(panel, curve, 2, 16, 2, more=False)
            for curve in ASYN:
                yield results.grows(panel, curve, 2, 16, 2)

    return compare


def ahead(results):
    """Says that some secure-hals is below each other method where that ends."""
    for panel in results.present():
        for other in PAPER_METHODS:
            x = results[panel][other][-1].x
            started = [v for v in VARIANTS if results[panel][v][0].x <= x]
            if started:
                yield results.compare(panel, other, results.lowest(panel, started, x), x)


NAMES = "faces, MNIST test, KOS, single cells, digits"
NODES = "faces, MNIST test, KOS"
MODEL = (
    "10 parties. Modelled seconds: counted multiplications and the ledger's bytes "
    f"({model.DESCRIPTION}), one node per party."
)
OTHERS = f" The fast network: {model.INFINIBAND}."
OVER_TIME = (
    MODEL
    + f" k = 20 (digits 10), T2 = 10, sketches of {RATIOS} of columns and rows, *default sketches*: --sketch-size auto."
    + OTHERS
    + " secure-hals is not in the paper."
)
FIGURES = [
    Figure(
        "dsanls-fig6",
        paper=PAPER + ", Figure 6",
        title="secure: relative error over time, uniform",
        data=NAMES,
        minutes=4,
        secret=True,
        panels=over_time(False),
        note=OVER_TIME,
        claims=[
            Claim(
                "uv",
                quote="Syn-SSD-UV performs best in BOAT, FACE and GISETTE",
                place="section 5.3.1, Figure 6",
                tested="Relative error when the first method ends, on the larger sets of the record but MNIST.",
                compare=first_is(("Syn-SSD-UV",), names=("faces", "KOS")),
                also=[
                    Test(
                        "uv-default",
                        tested="The same with sketches of the default sizes.",
                        compare=first_is(("Syn-SSD-UV",), names=("faces", "KOS"), tail=DEFAULT),
                    ),
                    Test(
                        "uv-fast",
                        tested="The same over the time of the fast network.",
                        compare=first_is(("Syn-SSD-UV",), names=("faces", "KOS"), tail=FAST),
                    ),
                ],
            ),
            Claim(
                "mnist",
                quote="On MNIST, Syn-SSD-U and Syn-SSD-V has a better convergence",
                place="section 5.3.1, Figure 6",
                tested="The better one of them against the rest on MNIST's test images.",
                compare=first_is(("Syn-SSD-U", "Syn-SSD-V"), names=("MNIST test",)),
            ),
            Claim(
                "sd",
                quote="Syn-SD and Asyn-SD converge relatively slowly and usually have a bad convergence result",
                place="section 5.3.1, Figure 6",
                tested="The better one of them ends above the worst of the rest, on most sets of the record.",
                compare=poor,
                most=True,
            ),
            Claim(
                "asyn",
                quote="Asyn-SSD-V converges slowly but consistently generates better results than Syn-SD and Asyn-SD",
                place="section 5.3.1, Figure 6",
                tested="Relative error at the end, on each set of the record.",
                compare=asyn_v(),
                also=[
                    Test(
                        "asyn-default",
                        tested="The same with sketches of the default sizes.",
                        compare=asyn_v(DEFAULT),
                    ),
                ],
            ),
            Claim(
                "secure-hals",
                quote="secure-hals beats all methods of the paper",
                place="",
                tested="Relative error when the first method ends, on each set of the record.",
                compare=first_is((SECURE,), (*PAPER_METHODS, SECURE)),
            ),
        ],
    ),
    Figure(
        "dsanls-fig7",
        paper=PAPER + ", Figure 7",
        title="secure: relative error over time, half of the columns at party 0",
        data=NAMES,
        minutes=4,
        secret=True,
        panels=over_time(True),
        note=OVER_TIME,
        claims=[
            Claim(
                "asyn-v",
                quote="Asyn-SSD-V gives the best result in terms of relative error over time, except dataset FACE",
                place="section 5.3.2, Figure 7",
                tested="Relative error when the first method ends, on the larger sets of the record but the faces.",
                compare=first_is(("Asyn-SSD-V",), names=("MNIST test", "KOS")),
                also=[
                    Test(
                        "asyn-v-default",
                        tested="The same with sketches of the default sizes.",
                        compare=first_is(("Asyn-SSD-V",), names=("MNIST test", "KOS"), tail=DEFAULT),
                    ),
                    Test(
                        "asyn-v-fast",
                        tested="The same over the time of the fast network.",
                        compare=first_is(("Asyn-SSD-V",), names=("MNIST test", "KOS"), tail=FAST),
                    ),
                ],
            ),
            Claim(
                "asyn",
                quote="in imbalanced workload, asynchronous algorithms generally outperform synchronous algorithms",
                place="section 5.3.2, Figure 7",
                tested="The best asynchronous method against the best synchronous one when the first method ends, on "
                "most sets.",
                compare=first_is(tuple(ASYN), names=LARGE),
                most=True,
                also=[
                    Test(
                        "asyn-default",
                        tested="The same with sketches of the default sizes.",
                        compare=first_is(tuple(ASYN), names=LARGE, tail=DEFAULT),
                        most=True,
                    ),
                    Test(
                        "asyn-fast",
                        tested="The same over the time of the fast network.",
                        compare=first_is(tuple(ASYN), names=LARGE, tail=FAST),
                        most=True,
                    ),
                ],
            ),
            Claim(
                "secure-hals",
                quote="secure-hals beats all methods of the paper",
                place="",
                tested="Relative error when the first method ends, on each set of the record.",
                compare=first_is((SECURE,), (*PAPER_METHODS, SECURE)),
            ),
        ],
    ),
    Figure(
        "dsanls-fig8",
        paper=PAPER + ", Figure 8",
        title="secure: iterations per second over nodes, uniform",
        data=NODES,
        minutes=2,
        panels=over_nodes(False),
        note=MODEL.replace("10 parties", "2 to 16 parties")
        + " Rate of local iterations, averaged over parties."
        + OTHERS,
        claims=[
            Claim(
                "scales",
                quote="All algorithms exhibit good scalability for all datasets (nearly a straight line), except for "
                "FACE",
                place="section 5.3.3, Figure 8",
                tested="16 nodes are more than four times as fast as 2, in the model, for most methods and sets.",
                compare=scales(),
                most=True,
                also=[
                    Test(
                        "scales-fast",
                        tested="The same with the fast network.",
                        compare=scales(FAST),
                        most=True,
                    ),
                ],
            ),
            Claim(
                "fastest",
                quote="Syn-SSD-UV has the lowest per-iteration time compared to all other algorithms",
                place="section 5.3.3, Figure 8",
                tested="Local iterations per second with 16 nodes, in the model.",
                compare=fastest(),
                also=[
                    Test(
                        "fastest-fast",
                        tested="The same with the fast network.",
                        compare=fastest(FAST),
                    ),
                ],
            ),
        ],
    ),
    Figure(
        "dsanls-fig9",
        paper=PAPER + ", Figure 9",
        title="secure: iterations per second over nodes, skewed",
        data=NODES,
        minutes=2,
        panels=over_nodes(True),
        note=MODEL.replace("10 parties", "2 to 16 parties")
        + " Rate of local iterations, averaged over parties."
        + OTHERS,
        claims=[
            Claim(
                "flat",
                quote="asynchronous algorithms outperform synchronous algorithms with respect to scalability",
                place="section 5.3.3, Figure 9",
                tested="From 2 to 16 nodes synchronous methods gain less than a factor of two in the model, "
                "asynchronous ones more.",
                compare=flat(),
                also=[
                    Test(
                        "flat-fast",
                        tested="The same with the fast network.",
                        compare=flat(FAST),
                    ),
                ],
            ),
        ],
    ),
    Figure(
        "secure-rounds",
        paper=PAPER + ", section 5.3",
        title="secure: error per local iteration against reference values",
        data="planted 300 x 200, the first 1000 digits",
        minutes=2,
        panels=rounds,
        note="Not a figure of the paper. k = 10, 10 parties; sketches of 30 % of a party's columns and "
        "20 % of the rows. Measured is the error of the averaged U with the current V, before the final "
        "local refit. The prototypes weighted all copies of U equally in the skewed runs; weighted by the "
        "parties' columns, the default, Syn-SD and Syn-SSD-V end far lower. The standard deviations of the "
        "prototypes are of three seeds; those of eight seeds of another prototype, with either weighting, "
        "are 0.003 to 0.009 on the digits and up to 0.03 on the planted matrix, around the same means.",
        claims=[],
        references=REFERENCES,
    ),
    Figure(
        "secure-bytes",
        paper="Not in the paper",
        title="secure-hals: error over bytes of a party, and over time",
        data=NAMES,
        minutes=4,
        secret=True,
        panels=traffic,
        note=MODEL,
        claims=[
            Claim(
                "ahead",
                quote="some secure-hals is ahead of each method of the paper",
                place="",
                tested="Relative error where the other method ends, over bytes and over modelled time.",
                compare=ahead,
            )
        ],
    ),
]
