"""DSANLS (Qian et al.), Figures 2 to 5: sketched ANLS against MU, HALS and BPP."""

from functools import partial

from lib import model
from lib.model import FAST
from lib.spec import Claim, Curve, Figure, Panel, Reference, Test, run

PAPER = "Qian et al., Fast and Secure Distributed Nonnegative Matrix Factorization"
METHODS = {
    "DSANLS/S": dict(algo="dsanls", sketch="subsample"),
    "DSANLS/G": dict(algo="dsanls", sketch="gaussian"),
    "MU": dict(algo="mu"),
    "HALS": dict(algo="hals"),
    "ANLS/BPP": dict(algo="bpp"),
}
# Not in the paper: columns drawn by their weight, and sketches of what has changed since an exact product.
OURS = {"DSANLS/W": dict(algo="dsanls", sketch="weighted"), "VR-DSANLS": dict(algo="vr-dsanls")}
SEEDS = 10
# Of runs on sixteen ranks, which take long on a few cores.
FEWER_SEEDS = 5
AT_NODES = ", 16 nodes"
GRID = [(a, b) for a in (0.1, 1, 10) for b in (0.1, 1, 10)]


def method_run(method, data, k, iters, **rest):
    options = dict({**METHODS, **OURS}[method])
    return run(options.pop("algo"), data, k, iters, **{**options, **rest})


def timed(method, data, k, iters):
    """Two ranks for at most four seconds; methods that sample columns get five times as many of their cheap iterations."""
    more, every = (5, 5) if method in ("DSANLS/S", "DSANLS/W") else (1, 2)
    return method_run(method, data, k, iters * more, ranks=2, time_limit=4, every=every, seeds=SEEDS)


def counted(method, data, k, ranks):
    """A run whose multiplications and bytes are counted; only the pivoting of BPP depends on the seed."""
    drawn = dict(seeds=SEEDS) if method == "ANLS/BPP" else dict(seedless=True)
    return method_run(method, data, k, 2, ranks=ranks, every=0, **drawn)


def figure2():
    sets = [("faces", 100, 60), ("mnist-test", 100, 60), ("mnist", 20, 40), ("kos", 100, 60), ("cells", 40, 100)]
    return [
        Panel(
            f"{name}, k = {k}",
            [Curve(m, timed(m, name, k, iters)) for m in (*METHODS, *OURS)],
            "seconds",
            "relative error",
            x="seconds",
            log="x",
        )
        for name, k, iters in sets + [("rcv1", 100, 60)]
    ]


def on_nodes(method, data, k):
    """A run on sixteen ranks, whose counts give the time of its iterations."""
    every = 10 if method in ("DSANLS/S", "DSANLS/W") else 2
    return method_run(method, data, k, 10 * every, ranks=16, every=every, seeds=FEWER_SEEDS)


def iteration_rate(end, job, network=model.ETHERNET):
    return 1 / model.seconds_per_iteration(end, job, network)


def figure3():
    sets = [("faces", 100), ("mnist-test", 40), ("kos", 40)]
    rates = [
        Panel(
            f"{name}, k = {k}{tail}",
            [Curve(m, points=[(p, counted(m, name, k, p)) for p in (2, 4, 8, 16)]) for m in (*METHODS, *OURS)],
            "nodes",
            "iterations per second (model)",
            y=rate,
            log="xy",
        )
        for tail, rate in (("", iteration_rate), (FAST, partial(iteration_rate, network=model.INFINIBAND)))
        for name, k in sets
    ]
    # An iteration of one method is not worth one of another.
    errors = [
        Panel(
            f"{name}, k = {k}{AT_NODES}",
            [Curve(m, on_nodes(m, name, k)) for m in (*METHODS, *OURS)],
            "seconds (model)",
            "relative error",
            x=model.seconds_on_nodes,
            log="x",
        )
        for name, k in sets
    ]
    return rates + errors


def figure4():
    # BPP solves a system of k unknowns per row, which takes too long beyond k = 100.
    return [
        Panel(
            f"{name}, k = {k}",
            [
                Curve(m, timed(m, name, k, 40))
                for m in (*METHODS, "DSANLS/W")
                if m != "DSANLS/G" and (m != "ANLS/BPP" or k <= 100)
            ],
            "seconds",
            "relative error",
            x="seconds",
            log="x",
        )
        for name, ks in [("kos", (20, 50, 200, 500)), ("rcv1", (20, 50, 200, 500))]
        for k in ks
    ]


SOLVERS = {
    "RCD, subsampling": dict(),
    "RCD, Gaussian": dict(sketch="gaussian"),
    "PGD, subsampling": dict(solver="pgd"),
    "PGD, Gaussian": dict(solver="pgd", sketch="gaussian"),
}


def figure5():
    return [
        Panel(
            name,
            [Curve(s, run("dsanls", name, k, iters, every=4, seeds=SEEDS, **o)) for s, o in SOLVERS.items()],
            "iteration",
            "relative error",
        )
        for name, k, iters in [("digits", 10, 100), ("faces", 20, 100), ("kos", 20, 40)]
    ]


PLANTED = "synthetic:planted,m=300,n=200,k=10"
TABLE = {
    "MU": dict(algo="mu"),
    "HALS": dict(algo="hals"),
    "ANLS/BPP": dict(algo="bpp"),
    **{f"DSANLS {s}": dict(algo="dsanls", sketch=s) for s in ("subsample", "gaussian", "count", "srht")},
}


def iterations():
    panels = []
    for name, data, size in [("planted", PLANTED, "20%,20%"), ("digits", "digits", "50%,10%")]:
        curves = []
        for label, options in TABLE.items():
            own = dict(options, sketch_size=size) if "sketch" in options else dict(options)
            curves.append(Curve(label, run(own.pop("algo"), data, 10, 100, every=10, seeds=SEEDS, **own)))
        panels.append(Panel(name, curves, "iteration", "relative error", log="y"))
    return panels


def grid():
    panels = []
    for name, data, k in [
        ("planted", PLANTED, 10),
        ("digits", "digits", 10),
        ("faces", "faces", 20),
        ("kos", "kos", 20),
    ]:
        runs = {f"absolute {a:g}, {b:g}": dict(mu="absolute", mu_alpha=a, mu_beta=b) for a, b in GRID}
        runs = {"scaled (default)": {}, **runs}
        curves = [Curve(label, run("dsanls", data, k, 100, every=5, seeds=SEEDS, **o)) for label, o in runs.items()]
        panels.append(Panel(name, curves, "iteration", "relative error", log="y"))
    return panels


def shortest(results, panel):
    """Returns the time at which the first method of the paper ends."""
    return min(points[-1].x for curve, points in results[panel].items() if curve in METHODS)


def leads(own, others):
    """Says that a method is ahead of the best of others when the first method of the paper ends."""

    def compare(results):
        for panel in results.present():
            stop = shortest(results, panel)
            baseline = results.lowest(panel, others, stop)
            yield results.compare(panel, baseline, own, stop, place=f"{panel}, {stop:.2g} s")

    return compare


UNSAMPLED = [m for m in METHODS if m != "DSANLS/S"]


def weighted_leads(results):
    for panel in results.present():
        stop = shortest(results, panel)
        yield results.compare(panel, "DSANLS/S", "DSANLS/W", stop, place=f"{panel}, {stop:.2g} s")


def slow_multiplicative(results):
    for panel in results.present():
        stop = shortest(results, panel)
        yield results.compare(panel, "MU", "HALS", stop, place=f"{panel}, {stop:.2g} s")


def early(own):
    def compare(results):
        for panel in results.present():
            hals = results[panel]["HALS"]
            at = hals[min(2, len(hals) - 1)].x
            yield results.compare(panel, "HALS", own, at, place=f"{panel}, {at:.2g} s")

    return compare


def rates(results, fast=False):
    return [p for p in results.present() if not p.endswith(AT_NODES) and p.endswith(FAST) == fast]


def leads_on_nodes(results):
    for panel in results.present():
        if not panel.endswith(AT_NODES):
            continue
        stop = shortest(results, panel)
        baseline = results.lowest(panel, METHODS, stop)
        yield results.compare(panel, baseline, "VR-DSANLS", stop, place=f"{panel}, {stop:.2g} s")


def scales_linearly(fast):
    def compare(results):
        for panel in rates(results, fast):
            for curve in METHODS:
                yield results.grows(panel, curve, 2, 16, 4)

    return compare


def cheapest(results):
    for panel in rates(results):
        baseline = results.highest(panel, UNSAMPLED, 16)
        yield results.compare(panel, "DSANLS/S", baseline, 16, place=f"{panel}, 16 nodes")


def solver(results):
    for panel in results.present():
        for kind in ("subsampling", "Gaussian"):
            yield results.compare(panel, f"PGD, {kind}", f"RCD, {kind}", 20, place=f"{panel}, iteration 20")


def grid_wins(results):
    for panel in results.present():
        best = results.lowest(panel, [c for c in results[panel] if c.startswith("abs")])
        yield results.compare(panel, "scaled (default)", best)


# Independent prototypes, 5 seeds: relative error after 10, 30 and 100 iterations.
NUMBERS = {
    "planted": {
        "MU": [(0.3119, 0.0024), (0.2328, 0.0022), (0.1202, 0.0101)],
        "HALS": [(0.1544, 0.0031), (0.0830, 0.0174), (0.0402, 0.0004)],
        "ANLS/BPP": [(0.0755, 0.0149), (0.0402, 0.0004), (0.0402, 0.0004)],
        "DSANLS subsample": [(0.162, 0.004), (0.104, 0.010), (0.0472, 0.0093)],
        "DSANLS gaussian": [(0.159, 0.005), (0.101, 0.008), (0.0521, 0.0120)],
        "DSANLS count": [(0.157, 0.009), (0.100, 0.016), (0.0464, 0.0064)],
        "DSANLS srht": [(0.163, 0.006), (0.105, 0.008), (0.0434, 0.0010)],
    },
    "digits": {
        "MU": [(0.480, 0.002), (0.371, 0.002), (0.339, 0.002)],
        "HALS": [(0.349, 0.002), (0.334, 0.002), (0.328, 0.002)],
        "ANLS/BPP": [(0.339, 0.002), (0.333, 0.002), (0.327, 0.002)],
        "DSANLS subsample": [(0.377, 0.002), (0.360, 0.002), (0.345, 0.002)],
        "DSANLS gaussian": [(0.383, 0.002), (0.359, 0.002), (0.343, 0.002)],
        "DSANLS count": [(0.378, 0.002), (0.357, 0.002), (0.341, 0.002)],
        "DSANLS srht": [(0.369, 0.002), (0.351, 0.002), (0.338, 0.002)],
    },
}
REFERENCES = [
    Reference(f"{panel}, {curve}, iteration {at}", *pair, get=lambda r, p=panel, c=curve, a=at: r.at(p, c, a))
    for panel, curves in NUMBERS.items()
    for curve, pairs in curves.items()
    for at, pair in zip((10, 30, 100), pairs)
]

NAMES = "faces, MNIST, KOS, single cells; RCV1 if available"
FIGURES = [
    Figure(
        "dsanls-fig2",
        paper=PAPER + ", Figure 2",
        title="relative error over time",
        data=NAMES,
        minutes=25,
        panels=figure2,
        note="Two ranks on one machine. The seconds exclude evaluation. --mu scaled, the default, replaces the "
        "paper's grid search, which is in dsanls-mu. DSANLS/S draws columns uniformly, DSANLS/G is Gaussian. DSANLS/W "
        "(--sketch weighted, the default on sparse data) and VR-DSANLS (--algo vr-dsanls) are not in the paper.",
        claims=[
            Claim(
                "best",
                quote="DSANLS/S performs best in all 6 datasets",
                place="section 5.2.1, Figure 2",
                tested="Relative error against the best of the others when the first of them ends, on each set of the "
                "record.",
                compare=leads("DSANLS/S", UNSAMPLED),
                timed=True,
                also=[
                    Test(
                        "best-weighted",
                        tested="The same with columns drawn by their weight (DSANLS/W).",
                        compare=leads("DSANLS/W", UNSAMPLED),
                    ),
                ],
            ),
            Claim(
                "variance-reduced",
                quote="VR-DSANLS performs better than all methods of the paper on most sets",
                place="",
                tested="Relative error against the best of them when the first of them ends.",
                compare=leads("VR-DSANLS", METHODS),
                most=True,
                timed=True,
            ),
            Claim(
                "weighted",
                quote="DSANLS performs better with columns drawn by their weight than uniformly, on most sets",
                place="",
                tested="Relative error with --sketch weighted and subsample when the first method of the paper ends.",
                compare=weighted_leads,
                most=True,
                timed=True,
            ),
            Claim(
                "early",
                quote="DSANLS/S is ahead of HALS in its first iterations",
                place="",
                tested="Relative error at the third evaluation of HALS.",
                compare=early("DSANLS/S"),
                timed=True,
            ),
            Claim(
                "early-weighted",
                quote="DSANLS/W is ahead of HALS in its first iterations",
                place="",
                tested="Relative error at the third evaluation of HALS.",
                compare=early("DSANLS/W"),
                timed=True,
            ),
            Claim(
                "mu",
                quote="MU converges relatively slowly and usually has a bad convergence result",
                place="section 5.2.1, Figure 2",
                tested="Relative error of MU against HALS on most sets of the record.",
                compare=slow_multiplicative,
                most=True,
                timed=True,
            ),
        ],
    ),
    Figure(
        "dsanls-fig3",
        paper=PAPER + ", Figure 3",
        title="iterations per second over nodes",
        data="faces, MNIST test, KOS",
        minutes=15,
        panels=figure3,
        note="Modelled: flops, bytes and messages counted in runs with that many ranks "
        f"({model.DESCRIPTION}). The cost of BPP's pivoting is the ratio of times in its run on two ranks. Drawing Gaussian "
        "numbers is not counted. DSANLS/W and VR-DSANLS are not in the paper, and the panels of errors are not either. The "
        f"fast network: {model.INFINIBAND}.",
        claims=[
            Claim(
                "scales",
                quote="All algorithms exhibit good scalability for all datasets (nearly a straight line), except for "
                "FACE",
                place="section 5.2.2, Figure 3",
                tested="16 nodes are more than four times as fast as 2, in the model, for most methods and sets.",
                compare=scales_linearly(fast=False),
                most=True,
                also=[
                    Test(
                        "scales-fast",
                        tested="The same with the fast network.",
                        compare=scales_linearly(fast=True),
                        most=True,
                    ),
                ],
            ),
            Claim(
                "cheapest",
                quote="DSANLS/Subsampling has the lowest per-iteration cost compared to all other algorithms",
                place="section 5.2.2, Figure 3",
                tested="Iterations per second with 16 nodes, in the model.",
                compare=cheapest,
            ),
            Claim(
                "variance-reduced",
                quote="VR-DSANLS performs better than all methods of the paper on most sets with 16 nodes",
                place="",
                tested="Relative error against the best of them over modelled time, when the first of them ends.",
                compare=leads_on_nodes,
                most=True,
            ),
        ],
    ),
    Figure(
        "dsanls-fig4",
        paper=PAPER + ", Figure 4",
        title="relative error over time, k = 20 to 500",
        data="KOS; RCV1 if available",
        minutes=12,
        panels=figure4,
        note="Two ranks on one machine, KOS instead of RCV1; k = 100 is in dsanls-fig2.",
        claims=[
            Claim(
                "all-k",
                quote="DSANLS outperforms the state-of-art algorithms for all values of k",
                place="section 5.2.3, Figure 4",
                tested="Relative error against the best of the others when the first of them ends, for each k.",
                compare=leads("DSANLS/S", UNSAMPLED),
                timed=True,
                also=[
                    Test(
                        "all-k-weighted",
                        tested="The same with columns drawn by their weight (DSANLS/W).",
                        compare=leads("DSANLS/W", UNSAMPLED),
                    ),
                ],
            ),
        ],
    ),
    Figure(
        "dsanls-fig5",
        paper=PAPER + ", Figure 5",
        title="solvers of the sketched subproblem",
        data="digits, faces, KOS",
        minutes=3,
        panels=figure5,
        note="RCD is --solver pcd.",
        claims=[
            Claim(
                "solver",
                quote="our proximal coordinate descent approach (denoted as DSANLS-RCD) is faster than projected "
                "gradient descent",
                place="section 5.2.4, Figure 5",
                tested="Relative error after 20 iterations, with either sketch, on each set of the record.",
                compare=solver,
            )
        ],
    ),
    Figure(
        "dsanls-iterations",
        paper=PAPER + ", section 5.2",
        title="relative error per iteration against reference values",
        data="planted 300 x 200, digits",
        minutes=0.5,
        panels=iterations,
        note="Not a figure of the paper. k = 10; sketches of 20 % (planted), of 50 % of the columns and "
        "10 % of the rows (digits).",
        claims=[],
        references=REFERENCES,
    ),
    Figure(
        "dsanls-mu",
        paper=PAPER + ", section 5.1",
        title="the grid of absolute mu",
        data="planted 300 x 200, digits, faces, KOS",
        minutes=2,
        panels=grid,
        note="mu_t = alpha + beta t with alpha and beta in {0.1, 1, 10}, as printed, against the default, which "
        "scales with the data.",
        claims=[
            Claim(
                "grid",
                quote="the best absolute mu of the paper's grid is better than the default",
                place="",
                tested="Relative error after the last iteration, on each set of the record.",
                compare=grid_wins,
            )
        ],
    ),
]
