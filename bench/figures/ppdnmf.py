"""PPDNMF (Lari, Arablouei and Werner), Figure 1: ten agents on a graph, encrypted exchange."""

from lib.datasets import generated
from lib.spec import Claim, Curve, Figure, Panel, Reference, Test, run

PAPER = "Lari, Arablouei, Werner, Privacy-Preserving Distributed Nonnegative Matrix Factorization"
LEVELS = (10, 100, 1000, 1_000_000)
SPECTRA = generated("spectra")
OWN = dict(parties=10, mu_penalty=0.1, eta=1, admm_iters=30, seeds=10)
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
    for name, data in (("digits", "digits"), ("CBCL faces", "cbcl")):
        own = dict(parties=10, transpose=name == "digits", scale="max", admm_iters=30, seeds=10, every=10)
        agents = dict(own, secret_seed=4, plain=True, g_max=0.5)
        curves = [Curve("centralised", run("admm", data, 49, 60, **own))]
        curves += [Curve(level(n), run("ppdnmf", data, 49, 60, quantization=n, **agents)) for n in (10, 1_000_000)]
        panels.append(Panel(name, curves, "iteration", "NMSE", y="nmse", log="y"))
    # Quantisation has the unit of the factors: with entries up to 16 it is four times as fine for both.
    own = dict(parties=10, transpose=True, admm_iters=30, seeds=10, every=10)
    curves = [
        Curve("centralised", run("admm", "digits", 49, 60, **own)),
        Curve(level(10), run("ppdnmf", "digits", 49, 60, quantization=10, secret_seed=4, plain=True, **own)),
    ]
    panels.append(Panel("digits, 0 to 16", curves, "iteration", "NMSE", y="nmse", log="y"))
    return panels


def encrypted():
    """Runs the first experiment encrypted: the numbers are those of --plain; measures the cost."""
    few = dict(AGENTS, seeds=2, admm_iters=3)
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


FINEST = level(1_000_000)


def approximates(results):
    for iteration in (10, 100):
        for n in LEVELS:
            yield from results.near(
                "synthetic", level(n), "centralised", 0.05, iteration, place=f"iteration {iteration}"
            )


def finer_fits(results):
    yield results.compare("synthetic", level(10), FINEST)


def finer_agrees(results):
    yield results.compare("agents' disagreement", level(10), FINEST)


def effective(curve, panel="digits"):
    def compare(results):
        yield results.compare(panel, "centralised", curve, factor=1.05)

    return compare


def same(results):
    curves = results["NMSE"]
    # with one g per message other values of g are drawn
    for c in curves:
        if c != "plain" and "one g" not in c:
            yield results.compare("NMSE", c, "plain", slack=1e-5)
            yield results.compare("NMSE", "plain", c, slack=1e-5)


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
        secret=True,
        panels=figure1a,
        note="K = 5, mu = 0.1, eta = 1, g = 0.033, 30 ADMM iterations; --plain, which reproduces an "
        "encrypted run bit by bit (see ppdnmf-keys).",
        claims=[
            Claim(
                "approximates",
                quote="closely approximates the performance of the centralized algorithm in terms of both convergence "
                "rate and steady-state NMSE",
                place="section IV, Figure 1 (a)",
                tested="NMSE within 5 % after 10 and 100 iterations, with each N_max.",
                compare=approximates,
            ),
            Claim(
                "finer",
                quote="a higher value of Nmax leads to a lower steady-state NMSE",
                place="section IV, Figure 1 (a)",
                tested="NMSE with N_max = 10 against 10^6.",
                compare=finer_fits,
            ),
            Claim(
                "finer-agree",
                quote="a higher value of Nmax brings the agents closer to each other",
                place="",
                tested="The agents' largest disagreement with N_max = 10 against 10^6.",
                compare=finer_agrees,
            ),
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
        secret=True,
        panels=figure1b,
        note="K = 49; digits are 64 x 1797, with an image per column, 30 ADMM iterations, --plain. The paper uses g = "
        "0.05 with mu = eta = 2 for its faces; on the digits the agents do not agree with these. Here mu and eta "
        "follow the data (auto) and g = 0.5, and for the centralised algorithm mu and eta are the same. 49 components "
        "of 64 rows leave little error, and all curves still decrease at their end.",
        claims=[
            Claim(
                "effective",
                quote="The results [...] underscore the effectiveness of PPDNMF",
                place="section IV, Figure 1 (b)",
                tested="NMSE on the digits with N_max = 10^6 after 60 iterations, at most 5 % above the centralised "
                "one.",
                compare=effective(FINEST),
            ),
            Claim(
                "coarse",
                quote="PPDNMF exhibits robust performance even with Nmax=10",
                place="section IV, Figure 1 (b)",
                tested="The same with N_max = 10; the digits are divided by 16.",
                compare=effective(level(10)),
                also=[
                    Test(
                        "coarse-raw",
                        tested="The same with digits from 0 to 16 and auto g: a unit in which N_max = 10 is less coarse.",
                        compare=effective(level(10), "digits, 0 to 16"),
                    ),
                ],
            ),
        ],
    ),
    Figure(
        "ppdnmf-keys",
        paper=PAPER + ", section IV",
        title="encrypted with 128 and 2048 bits",
        data="30 x 200, 10 agents with 4 to 36 columns",
        minutes=15,
        secret=True,
        panels=encrypted,
        note="As ppdnmf-fig1a, with 2 iterations of 3 ADMM steps. The seconds cover all ten agents on one core.",
        claims=[
            Claim(
                "same",
                quote="encryption does not change the result",
                place="",
                tested="NMSE after 2 iterations, encrypted and plain, within 0.00001.",
                compare=same,
            )
        ],
    ),
]
