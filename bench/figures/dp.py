"""Differential privacy: FELB's Figures 4, 10 and 11, FNMF's Figure 4, and noise on the sum against per-party noise."""

import math

from figures.felb import FELB, PAPER, tiles
from figures.fnmf import PAPER as FNMF_PAPER
from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, Test, run

PRINTED = (0.5, 1, 2, 5, 10)
SEEDS = 10


def noise(kind, epsilon):
    """Returns the noise of the papers: sensitivity 1 per entry, delta 0.05, each message on its own."""
    if kind == "xor":
        return 1 / (1 + math.exp(epsilon))
    return math.sqrt(2 * math.log(25)) / epsilon if kind == "gaussian" else 1 / epsilon


def noised(kind, epsilon, **rest):
    return dict(dp=kind, dp_noise=f"{noise(kind, epsilon):.9g}", **rest)


MECHANISMS = {
    "Gauss": dict(kind="gaussian"),
    "Gauss, clipped": dict(kind="gaussian", clamp=True),
    "Laplace": dict(kind="laplace"),
    "Laplace, clipped": dict(kind="laplace", clamp=True),
    "xor": dict(kind="xor"),
}


def spent(end, job):
    return end["privacy"]["epsilon_spent"]


def rmsd_per_party(end, job):
    return end["rmsd_refit"] / job.start["parties"]


WHOLE, ONE_ROUND = "epsilon of the run", "epsilon of a run of one round"


def felb4():
    def points(method, mechanism_name, rounds=100):
        options = dict(FELB[method])
        algo, mechanism = options.pop("algo"), dict(MECHANISMS[mechanism_name])
        kind = mechanism.pop("kind")
        common = dict(parties=10, seeds=SEEDS)
        data = tiles(1000, 0.1)
        return [(e, run(algo, data, 10, rounds, **common, **noised(kind, e, **mechanism))) for e in PRINTED]

    panels = [
        Panel(
            quantity,
            [Curve(f"{m}, {how}", points=points(m, how)) for m in FELB for how in MECHANISMS],
            "epsilon as printed",
            quantity,
            y=y,
            log="x" + ("y" if "run" in quantity else ""),
        )
        for quantity, y in (("F1*", "f1_signal"), ("RMSD", rmsd_per_party), (WHOLE, spent))
    ]
    curves = [Curve(f"FELB, {how}", points=points("FELB", how, rounds=1)) for how in MECHANISMS]
    return [*panels, Panel(ONE_ROUND, curves, "epsilon as printed", ONE_ROUND, y=spent, log="xy")]


# Independent prototypes, 5 seeds, F1* with refitted U.
F1_SIGNAL = {
    "FELB": {
        "Gauss": {1: (0.1503, 0.0343), 2: (0.4676, 0.041), 5: (0.9651, 0.0173), 10: (0.9937, 0.0023)},
        "Gauss, clipped": {1: (0.1444, 0.0498), 2: (0.2607, 0.0324), 5: (0.9261, 0.0493), 10: (0.9954, 0.0021)},
        "Laplace": {1: (0.423, 0.0151), 2: (0.8382, 0.0215), 5: (0.993, 0.0031), 10: (0.9955, 0.0012)},
        "xor": {1: (0.6423, 0.0531), 2: (0.9764, 0.0094), 5: (0.9731, 0.0216), 10: (0.9746, 0.0216)},
    },
    "FELB-MU": {
        "Gauss": {1: (0.1826, 0.0443), 2: (0.5482, 0.0256), 5: (0.9787, 0.0061), 10: (0.9819, 0.0112)},
        "Gauss, clipped": {1: (0.2022, 0.0373), 2: (0.4276, 0.0446), 5: (0.9043, 0.0586), 10: (0.9759, 0.0219)},
        "Laplace": {1: (0.4868, 0.0361), 2: (0.9047, 0.0127), 5: (0.9923, 0.0035), 10: (0.9935, 0.0026)},
        "xor": {1: (0.7963, 0.0371), 2: (0.9872, 0.0063), 5: (0.9814, 0.0139)},
    },
}
REFERENCES = [
    Reference(f"F1*, {m}, {how}, epsilon {e}", *pair, get=lambda r, m=m, how=how, e=e: r.at("F1*", f"{m}, {how}", e))
    for m, ways in F1_SIGNAL.items()
    for how, values in ways.items()
    for e, pair in values.items()
]


def most_robust(results):
    for how in MECHANISMS:
        for e in PRINTED:
            yield results.compare("F1*", f"FELB-MU, {how}", f"FELB, {how}", e, place=f"{how}, epsilon {e}")


def honest(panel):
    def compare(results):
        for how in MECHANISMS:
            for e in PRINTED:
                yield results.below(panel, f"FELB, {how}", e, e, place=f"{how}, epsilon {e}")

    return compare


LEVELS = (1, 10, 100, 1000)
ROUNDS = {"FNMF": dict(algo="fnmf"), "FedAvg": dict(algo="fedavg"), "FedProx": dict(algo="fedprox")}
# The scale at which components are released, alike for all methods: as printed, and at norm 1.
SCALES = {"none": "", "unit": ", norm 1"}


def fnmf4():
    data = generated("blocks", clients=10, rows=50, n=100, noise=0.1)

    def points(kind, options, iters):
        algo, common = options["algo"], dict(parties=10, seeds=SEEDS, clip=1e4)
        rest = {name: value for name, value in options.items() if name != "algo"}
        return [(e, run(algo, data, 10, iters, **common, **rest, **noised(kind, e))) for e in LEVELS]

    panels = []
    for scale, tail in SCALES.items():
        for name, kind in (("Gauss", "gaussian"), ("Laplace", "laplace")):
            curves = [
                Curve(m, points=points(kind, dict(options, local_iters=50, normalize=scale), 20))
                for m, options in ROUNDS.items()
            ]
            if scale == "none":
                curves.append(Curve("iPALM", points=points(kind, dict(algo="ipalm"), 1000)))
            shown = f"{name}{tail}: sum of RMSD"
            panels.append(Panel(shown, curves, "epsilon as printed", "sum of RMSD", y="rmsd", log="xy"))
    return panels


def resilient(levels=LEVELS, scale="none"):
    def compare(results):
        for name in ("Gauss", "Laplace"):
            panel = f"{name}{SCALES[scale]}: sum of RMSD"
            for e in levels:
                for baseline in ("FedAvg", "FedProx"):
                    place = f"{name}, epsilon {e}"
                    yield results.compare(panel, baseline, "FNMF", e, place=place, factor=1.05)

    return compare


def earlier(results):
    for name in ("Gauss", "Laplace"):
        for e in LEVELS:
            yield results.compare(f"{name}: sum of RMSD", "iPALM", "FNMF", e, place=f"{name}, epsilon {e}")


BUDGETS = (1, 2, 4, 8, 16, 64)


def gain():
    data = "synthetic:tiles,m=4000,n=40,k=3,density=0.9,noise=0.05"

    def method_run(**rest):
        return run("felb-mu", data, 3, 8, parties=200, seeds=SEEDS, **rest)

    private = dict(dp="gaussian", delta="1e-5")
    curves = [
        Curve("each party its own noise", points=[(e, method_run(epsilon=e, **private)) for e in BUDGETS]),
        Curve("noise on the sum", points=[(e, method_run(epsilon=e, secure_sum=True, **private)) for e in BUDGETS]),
        Curve("no noise", points=[(e, method_run()) for e in BUDGETS]),
    ]
    return [Panel("F1*", curves, "epsilon of the run", "F1*", y="f1_signal", log="x")]


def gained(results):
    for e in BUDGETS:
        place = f"F1*, epsilon {e}"
        yield results.compare("F1*", "noise on the sum", "each party its own noise", e, place=place, slack=0.02)
    # At some budget the gain is large.
    yield results.compare("F1*", "noise on the sum", "each party its own noise", 4, place="F1*, epsilon 4", slack=-0.2)


FIGURES = [
    Figure(
        "felb-fig4",
        paper=PAPER + ", Figures 4, 10 and 11",
        title="noise on the messages of FELB's parties",
        data="synthetic tiles, 200 columns, k = 10",
        minutes=6,
        secret=True,
        panels=felb4,
        note=f"Noise 0.1, 10 clients of 100 rows, 100 rounds, {SEEDS} seeds. The axis is the printed epsilon: "
        "sensitivity 1 per entry, each message on its own. Clipped: noisy entries are clipped to [0, 1] "
        "before they are sent.",
        claims=[
            Claim(
                "robust",
                quote="both FELB and FELBMU exhibit similar performance across various noise models, while FELBMU is "
                "most robust",
                place="section 4.1.3, Figures 4, 10 and 11",
                tested="F1* of FELB-MU against FELB at most of the printed epsilon, for all mechanisms.",
                compare=most_robust,
                most=True,
            ),
            Claim(
                "guarantee",
                quote="achieve accurate yet differentially-private reconstructions",
                place="Figure 4",
                tested="The epsilon of the whole run, for a party's whole data, is at most the printed one.",
                compare=honest(WHOLE),
                also=[
                    Test(
                        "guarantee-round",
                        tested="The same for a run of one round.",
                        compare=honest(ONE_ROUND),
                    ),
                ],
            ),
        ],
        references=REFERENCES,
    ),
    Figure(
        "fnmf-fig4",
        paper=FNMF_PAPER + ", Figure 4",
        title="noise on the messages of FNMF's parties",
        data="synthetic blocks, 10 clients",
        minutes=4,
        secret=True,
        panels=fnmf4,
        note="The axis is the printed epsilon, as in felb-fig4. `--normalize none`, so that the same noise meets "
        "components of the same norm in all methods; *norm 1*: `--normalize unit` for all. With --dp, U is refitted to the released V. At epsilon 1 the "
        "noise is larger than the components; FedAvg, which averages without aligning, suffers least.",
        claims=[
            Claim(
                "on-par",
                quote="exhibits resilience at least on par with the differentially-private FEDPROX and FEDAVG",
                place="section 4, Figure 4",
                tested="Sum of RMSD at most 5 % above that of FedAvg and of FedProx, at each epsilon.",
                compare=resilient(),
                also=[
                    Test(
                        "on-par-moderate",
                        tested="The same at epsilon 10, 100 and 1000 alone.",
                        compare=resilient(LEVELS[1:]),
                    ),
                    Test(
                        "on-par-unit",
                        tested="The same at each epsilon with components released at norm 1 by all methods.",
                        compare=resilient(scale="unit"),
                    ),
                ],
            ),
            Claim(
                "earlier",
                quote="FNMF achieves low deviation, much earlier than iPALM",
                place="section 4, Figure 4",
                tested="Sum of RMSD against iPALM at most of the printed epsilon.",
                compare=earlier,
                most=True,
            ),
        ],
    ),
    Figure(
        "dp-gain",
        paper="Not in a paper",
        title="noise on the sum against per-party noise",
        data="synthetic tiles, 40 columns, k = 3",
        minutes=3,
        secret=True,
        panels=gain,
        note=f"FELB-MU with --secure-sum and --dp, 200 parties of 20 rows, 8 rounds, delta 1e-5, {SEEDS} seeds. "
        "The unit of privacy is a party's whole data.",
        claims=[
            Claim(
                "gain",
                quote="at equal epsilon, noise on the sum costs less accuracy",
                place="",
                tested="F1* at each budget is at most 0.02 lower, and at epsilon 4 at least 0.2 higher.",
                compare=gained,
            )
        ],
    ),
]
