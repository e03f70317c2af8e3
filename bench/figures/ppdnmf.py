"""PPDNMF (Lari, Arablouei and Werner), Figure 1: ten agents on a graph, encrypted exchange."""

from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, run

PAPER = "Lari, Arablouei, Werner, Privacy-Preserving Distributed Nonnegative Matrix Factorization"
LEVELS = (10, 100, 1000, 1_000_000)
SPECTRA = generated("spectra")
OWN = dict(parties=10, mu_penalty=0.1, eta=1, admm_iters=30, seeds=5)
AGENTS = dict(OWN, g_max=0.033, secret_seed=4, plain=True)


def level(n):
    return f"N_max = 10^{len(str(n)) - 1}"


def figure1a():
    curves = [Curve("centralised", run("admm", SPECTRA, 5, 100, every=2, **OWN))]
    curves += [Curve(level(n), run("ppdnmf", SPECTRA, 5, 100, every=2, quantization=n, **AGENTS)) for n in LEVELS]
    return [
        Panel("synthetic", curves, "iteration", "NMSE", y="nmse", log="y"),
        Panel("agents' disagreement", curves[1:], "iteration", "largest, over max X", y="disagreement", log="y"),
    ]


def figure1b():
    panels = []
    for name, data, iters in (("digits", "digits", 200), ("CBCL faces", "cbcl", 60)):
        own = dict(parties=10, mu_penalty=2, eta=2, transpose=name == "digits", scale="max", admm_iters=30)
        agents = dict(own, secret_seed=4, plain=True)
        curves = [Curve("centralised", run("admm", data, 49, iters, **own))]
        for g, weight in ((0.05, 2), (0.5, 0.5)):
            weights = dict(agents, g_max=g, mu_penalty=weight, eta=weight)
            curves += [
                Curve(f"{level(n)}, g = {g}", run("ppdnmf", data, 49, iters, quantization=n, **weights))
                for n in LEVELS[::3]
            ]
        panels.append(Panel(name, curves, "iteration", "NMSE", y="nmse", log="y"))
    return panels


def encrypted():
    """Runs the first experiment encrypted: the numbers are those of --plain; measures the cost."""
    few = dict(AGENTS, seeds=1, admm_iters=3)
    runs = {
        "plain": run("ppdnmf", SPECTRA, 5, 2, every=1, **few),
        "128 bits, as printed": run(
            "ppdnmf", SPECTRA, 5, 2, every=1, **dict(few, plain=False, insecure_key=True, key_bits=128)
        ),
        "2048 bits": run("ppdnmf", SPECTRA, 5, 2, every=1, **dict(few, plain=False)),
        "2048 bits, one g for a message": run(
            "ppdnmf", SPECTRA, 5, 2, every=1, **dict(few, plain=False, scalar_g=True)
        ),
    }
    panels = [Panel("NMSE", [Curve(name, r) for name, r in runs.items()], "iteration", "NMSE", y="nmse")]
    for quantity, y in (("seconds", "seconds"), ("bytes of an agent", lambda e, j: j.sent() / j.start["parties"])):
        panels.append(
            Panel(
                quantity,
                [Curve(name, points=[(quantity, r)]) for name, r in runs.items()],
                "",
                "2 x 3 steps",
                y=y,
                table=True,
            )
        )
    return panels


def reaches_centralised(panel):
    def check(results):
        goal = results.last(panel, "centralised")
        levels = [c for c in results[panel] if c != "centralised"]
        ends = {c: results.last(panel, c) for c in levels}
        ok = abs(ends[levels[-1]] / goal - 1) < 0.05
        return ok, f"centralised {goal:.4f}, " + ", ".join(f"{c} {e:.4f}" for c, e in ends.items()) + "."

    return check


def finer(results):
    own = {c: results.last("agents' disagreement", c) for c in results["agents' disagreement"]}
    ok = own[level(10)] >= own[level(1_000_000)]
    return ok, "largest disagreement " + ", ".join(f"{c} {e:.2g}" for c, e in own.items()) + "."


def same(results):
    curves = results["NMSE"]
    # with one g per message other values of g are drawn
    gap = max(abs(a.y - b.y) for c in curves if "one g" not in c for a, b in zip(curves["plain"], curves[c]))
    keys = {c: results.last("seconds", c) for c in curves}
    return gap == 0, f"largest difference of NMSE {gap:g}; seconds " + ", ".join(
        f"{c} {s:.3g}" for c, s in keys.items()
    ) + "."


NUMBERS = [
    ("centralised", 100, 0.0972, 0.0071),
    ("centralised", 10, 0.1033, 0.0071),
    (level(10), 100, 0.0969, 0.0072),
    (level(100), 100, 0.0971, 0.0071),
    (level(1000), 100, 0.0972, 0.0071),
    (level(1_000_000), 100, 0.0972, 0.0071),
    (level(1_000_000), 10, 0.1017, 0.0071),
]
FIGURES = [
    Figure(
        "ppdnmf-fig1a",
        paper=PAPER + ", Figure 1 (a)",
        title="NMSE over iterations, synthetic",
        data="30 x 200, 10 agents with 4 to 36 columns",
        minutes=2,
        panels=figure1a,
        note="K = 5, mu = 0.1, eta = 1, g = 0.033, 30 ADMM iterations, 5 seeds; --plain, which reproduces an "
        "encrypted run bit by bit (see ppdnmf-keys).",
        claims=[
            Claim("PPDNMF reaches the error of the centralised algorithm.", reaches_centralised("synthetic")),
            Claim("A finer quantisation comes closer.", finer),
        ],
        references=[
            Reference(f"NMSE, {c}, iteration {x}", v, sd, get=lambda r, c=c, x=x: r.at("synthetic", c, x))
            for c, x, v, sd in NUMBERS
        ]
        + [
            Reference(f"disagreement, {level(n)}", v, None, get=lambda r, n=n: r.last("agents' disagreement", level(n)))
            for n, v in zip(LEVELS, (0.020, 0.004, 0.004, 0.004))
        ],
    ),
    Figure(
        "ppdnmf-fig1b",
        paper=PAPER + ", Figure 1 (b)",
        title="NMSE over iterations, images",
        data="digits; MIT-CBCL faces if available",
        minutes=3,
        panels=figure1b,
        note="K = 49; digits are 64 x 1797, with an image per column, 30 ADMM iterations, --plain. The paper "
        "uses g = 0.05 with mu = eta = 2 for its faces. On the digits this g is too small for the agents to "
        "reach consensus, so g = 0.5 with mu = eta = 0.5 is also run. 49 components of 64 rows leave little "
        "error, and all curves still decrease at their end.",
        claims=[Claim("PPDNMF reaches the error of the centralised algorithm.", reaches_centralised("digits"))],
    ),
    Figure(
        "ppdnmf-keys",
        paper=PAPER + ", section IV",
        title="encrypted with 128 and 2048 bits",
        data="30 x 200, 10 agents with 4 to 36 columns",
        minutes=2,
        panels=encrypted,
        note="As ppdnmf-fig1a, with 2 iterations of 3 ADMM steps. The seconds cover all ten agents on one core.",
        claims=[Claim("Encryption does not change the result.", same)],
    ),
]
