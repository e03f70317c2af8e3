"""The secure methods of the DSANLS paper, Figures 6 to 9, and error against traffic."""

from lib import model
from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, findings, run

PAPER = "Qian et al., Fast and Secure Distributed Nonnegative Matrix Factorization"
SYN = {"Syn-SD": "syn-sd", "Syn-SSD-U": "syn-ssd-u", "Syn-SSD-V": "syn-ssd-v", "Syn-SSD-UV": "syn-ssd-uv"}
ASYN = {"Asyn-SD": "asyn-sd", "Asyn-SSD-V": "asyn-ssd-v"}
SECURE = "secure-hals"
ROUNDS, LOCAL, PARTIES = 12, 10, 10
# name: data, k, and whether the parties hold rows of the stored matrix (images, documents)
SETS = {
    "faces": ("faces", 20, True),
    "MNIST test": ("mnist-test", 20, True),
    "KOS": ("kos", 20, True),
    "cells": ("cells", 20, False),
    "digits": ("digits", 10, True),
}


def method_run(label, data, k, transpose, skew, rounds=ROUNDS, parties=PARTIES, every=None, **rest):
    """Returns a run of a method; all methods do equally many local iterations in total."""
    options = dict(parties=parties, transpose=transpose, **({"skew": 0.5} if skew else {}), **rest)
    if label.startswith(SECURE):
        return run("secure-hals", data, k, rounds * LOCAL, every=5 if every is None else every, **options)
    options["local_iters"] = LOCAL
    if label in SYN:
        return run(SYN[label], data, k, rounds, every=1 if every is None else every, **options)
    return run(ASYN[label], data, k, rounds * parties, every=parties if every is None else every, **options)


def over_time(skew):
    return lambda: [
        Panel(
            name,
            [Curve(label, method_run(label, *given, skew)) for label in (*SYN, *ASYN, SECURE)],
            "seconds (model)",
            "relative error",
            x=model.seconds,
            log="x",
        )
        for name, given in SETS.items()
    ]


def over_nodes(skew):
    return lambda: [
        Panel(
            name,
            [
                Curve(label, points=[(p, method_run(label, *given, skew, 2, p, 0)) for p in (2, 4, 8, 16)])
                for label in (*SYN, *ASYN, SECURE)
            ],
            "nodes",
            "local iterations per second (model)",
            y=model.local_iteration_rate,
            log="xy",
        )
        for name, given in SETS.items()
        if name not in ("digits", "cells")
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
            curves = [Curve(label, method_run(label, data, k, rows, False)) for label in (*SYN, *ASYN)]
            for v, o in VARIANTS.items():
                # A sketched iteration sends a tenth of the rows, and the Gram matrix.
                iters, every = (360, 3) if "sketch" in o else (60, 2)
                options = dict(o, parties=PARTIES, transpose=rows, every=every)
                curves.append(Curve(v, run("secure-hals", data, k, iters, **options)))
            panels.append(Panel(f"{name}: {xlabel.split(' (')[0]}", curves, xlabel, "relative error", x=x, log="x"))
    return panels


PLANTED = ("synthetic:planted,m=300,n=200,k=10", 10, False)
DIGITS = (generated("images"), 10, True)


EQUAL = ", equal weights"


def rounds():
    def curves(given, skew):
        for label in (*SYN, *ASYN):
            sizes = dict(sketch_size="30%,20%") if "SSD" in label else {}
            yield Curve(label, method_run(label, *given, skew, 20, seeds=5, **sizes))
            if skew and label in SYN:
                yield Curve(label + EQUAL, method_run(label, *given, skew, 20, seeds=5, weights="equal", **sizes))

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
        "Syn-SSD-U": (0.0424, 0.0005),
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
    Reference(f"{panel}, {curve}", *pair, get=lambda r, p=panel, c=curve: r.last(p, c))
    for panel, curves in NUMBERS.items()
    # With skew the prototypes weighted all copies equally.
    for curve, pair in ((c + EQUAL * ("skewed" in panel), pair) for c, pair in curves.items())
]
PAPER_METHODS = (*SYN, *ASYN)


def ranking(results, panel, candidates):
    """Returns (error, curve), sorted, at the time at which the first of the curves ends."""
    stop = min(results[panel][c][-1].x for c in candidates)
    return sorted((results.at(panel, c, stop), c) for c in candidates)


def first_is(wanted, candidates=PAPER_METHODS):
    @findings
    def check(results):
        for panel in results.present():
            order = ranking(results, panel, candidates)
            yield order[0][1] in wanted, f"{panel}: " + ", ".join(f"{c} {e:.4f}" for e, c in order[:3])

    return check


@findings
def last_is(results):
    for panel in results.present():
        ends = sorted((results.last(panel, c), c) for c in PAPER_METHODS)
        yield (
            {c for _, c in ends[-2:]} == {"Syn-SD", "Asyn-SD"},
            f"{panel}: " + ", ".join(f"{c} {e:.4f}" for e, c in ends[-2:]),
        )


@findings
def asyn_v(results):
    for panel in results.present():
        a = results.last(panel, "Asyn-SSD-V")
        others = [results.last(panel, c) for c in ("Syn-SD", "Asyn-SD")]
        yield a < min(others), f"{panel}: {a:.4f} against {others[0]:.4f} and {others[1]:.4f}"


def gain(results, panel, curve):
    return results.at(panel, curve, 16) / results.at(panel, curve, 2)


def scales(results):
    parts = [f"{p} {c} {gain(results, p, c):.1f}" for p in results.present() for c in PAPER_METHODS]
    ok = all(gain(results, p, c) > 4 for p in results.present() for c in PAPER_METHODS)
    return ok, "Speedup of 16 nodes over 2, at most 8: " + ", ".join(parts) + "."


@findings
def fastest(results):
    for panel in results.present():
        rates = {c: results.at(panel, c, 16) for c in PAPER_METHODS}
        best = max(rates, key=rates.get)
        yield best == "Syn-SSD-UV", f"{panel}: {best} {rates[best]:.3g}/s, Syn-SSD-UV {rates['Syn-SSD-UV']:.3g}/s"


@findings(prefix="Speedup of 16 nodes over 2: ")
def flat(results):
    for panel in results.present():
        syn, asyn = (max(gain(results, panel, c) for c in group) for group in (SYN, ASYN))
        yield (
            syn < 2 < min(gain(results, panel, c) for c in ASYN),
            f"{panel}: synchronous at most {syn:.1f}, asynchronous up to {asyn:.1f}",
        )


def ahead(results):
    """Checks that some secure-hals has a lower error than each other method at the same x; names the exceptions."""
    lost, points = [], 0
    for panel in results.present():
        for other in PAPER_METHODS:
            for point in results[panel][other][1:]:
                points += 1
                own = [results.at(panel, v, point.x) for v in VARIANTS if results[panel][v][0].x <= point.x]
                if not own or min(own) > point.y:
                    lost.append((panel, other))
    worst = [f"{p} against {o} ({lost.count((p, o))})" for p, o in dict.fromkeys(lost)]
    behind = "; behind at " + ", ".join(worst) if worst else ""
    return not lost, f"ahead at {points - len(lost)} of {points} points{behind}."


NAMES = "faces, MNIST test, KOS, single cells, digits"
NODES = "faces, MNIST test, KOS"
MODEL = (
    "10 parties. Modelled seconds: counted multiplications and the ledger's bytes "
    f"({model.DESCRIPTION}), one node per party."
)
FIGURES = [
    Figure(
        "dsanls-fig6",
        paper=PAPER + ", Figure 6",
        title="secure: relative error over time, uniform",
        data=NAMES,
        minutes=4,
        panels=over_time(False),
        note=MODEL + " k = 20 (digits 10), T2 = 10. secure-hals is not in the paper.",
        claims=[
            Claim(
                "Syn-SSD-UV performs best (on MNIST: Syn-SSD-U and Syn-SSD-V).",
                first_is(("Syn-SSD-UV", "Syn-SSD-U", "Syn-SSD-V")),
            ),
            Claim("Syn-SD and Asyn-SD converge slowly, to a poor result.", last_is),
            Claim("Asyn-SSD-V gives better results than Syn-SD and Asyn-SD.", asyn_v),
            Claim("Beyond the paper: secure-hals beats all of them.", first_is((SECURE,), (*PAPER_METHODS, SECURE))),
        ],
    ),
    Figure(
        "dsanls-fig7",
        paper=PAPER + ", Figure 7",
        title="secure: relative error over time, half of the columns at party 0",
        data=NAMES,
        minutes=4,
        panels=over_time(True),
        note=MODEL + " k = 20 (digits 10), T2 = 10. secure-hals is not in the paper.",
        claims=[
            Claim(
                "Asyn-SSD-V gives the best result over time (on FACE: Asyn-SD).", first_is(("Asyn-SSD-V", "Asyn-SD"))
            ),
            Claim("Beyond the paper: secure-hals beats all of them.", first_is((SECURE,), (*PAPER_METHODS, SECURE))),
        ],
    ),
    Figure(
        "dsanls-fig8",
        paper=PAPER + ", Figure 8",
        title="secure: iterations per second over nodes, uniform",
        data=NODES,
        minutes=2,
        panels=over_nodes(False),
        note=MODEL.replace("10 parties", "2 to 16 parties") + " Rate of local iterations, averaged over parties.",
        claims=[
            Claim("All algorithms scale nearly linearly, except on the smallest set.", scales),
            Claim("Syn-SSD-UV has the lowest time per iteration.", fastest),
        ],
    ),
    Figure(
        "dsanls-fig9",
        paper=PAPER + ", Figure 9",
        title="secure: iterations per second over nodes, skewed",
        data=NODES,
        minutes=2,
        panels=over_nodes(True),
        note=MODEL.replace("10 parties", "2 to 16 parties") + " Rate of local iterations, averaged over parties.",
        claims=[Claim("Synchronous curves are nearly flat, asynchronous ones keep rising.", flat)],
    ),
    Figure(
        "secure-rounds",
        paper=PAPER + ", section 5.3",
        title="secure: error per local iteration against reference values",
        data="planted 300 x 200, the first 1000 digits",
        minutes=2,
        panels=rounds,
        note="Not a figure of the paper. k = 10, 10 parties, 5 seeds; sketches of 30 % of a party's columns and "
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
        panels=traffic,
        note=MODEL,
        claims=[Claim("Some secure-hals is ahead at every point.", ahead)],
    ),
]
