"""Barycenters of permuted copies of one matrix, Figure 1 of the FNMF paper, with a verdict on its claims."""

from __future__ import annotations

import argparse
import csv
import subprocess
import time
from pathlib import Path

from commands.reproduce import SCRATCH, write
from figures.fnmf import PAPER
from lib.plot import plot
from lib.program import ROOT, machine_name
from lib.results import Point, Results
from lib.spec import Claim, Figure, Panel, Test

QUANTITIES = {
    "loss": "loss (4), own alignment",
    "permutation_loss": "loss (4), permutations",
    "distance": "distance to the truth",
    "gap": "orthogonality gap",
    "seconds": "seconds",
}
ALIGNED = ("LAP", "SK", "k-NN")
CLIENTS = 16  # with which the claims are tested


def panel_name(case: str, quantity: str) -> str:
    return f"{case}: {QUANTITIES[quantity]}"


def panels() -> list[Panel]:
    return [
        Panel(panel_name(case, quantity), [], "clients", label, log="xy" if quantity == "seconds" else "x")
        for case in ("ideal", "realistic", "noisy")
        for quantity, label in QUANTITIES.items()
    ]


def improves(quantity, case="realistic"):
    def compare(results):
        for server in ("SK", "k-NN"):
            yield results.compare(panel_name(case, quantity), "LAP", server, CLIENTS)

    return compare


def outdone(baseline, quantity, servers, cases=("realistic",)):
    def compare(results):
        for case in cases:
            for server in servers:
                yield results.compare(panel_name(case, quantity), baseline, server, CLIENTS)

    return compare


def identifies(results):
    for server in (*ALIGNED, "FCM"):
        yield results.below(panel_name("ideal", "loss"), server, 1e-6, CLIENTS)


def misses(results):
    yield results.above(panel_name("ideal", "loss"), "KMC", 1e-6, CLIENTS)


FIGURE = Figure(
    "fnmf-barycenters",
    paper=PAPER + ", Figure 1",
    title="barycenters of permuted copies of one matrix",
    data="10 dense blocks over 100 columns",
    minutes=0.5,
    panels=panels,
    note="Each client has the components of one matrix in an order of its own: as they are (ideal), or with the "
    "positive part of normal noise with standard deviation 0.3 (realistic) or 1 (noisy). SK is Sinkhorn with a "
    "regularisation of 0.03 of the mean cost, k-NN takes the nearest three. Loss (4), Σ ½‖V̄ − P V_j‖², is taken with "
    "the method's own P, as in the paper, and with the best permutation; a soft P fits V̄ better because it blurs "
    "both.",
    claims=[
        Claim(
            "ideal",
            quote="all algorithms except KMC identify the ideal barycenter for their respective alignment constraints",
            place="section 4, Figure 1",
            tested="Loss (4) of LAP, SK, k-NN and FCM with their own alignment is below 1e-6; 16 exact copies.",
            compare=identifies,
        ),
        Claim(
            "ideal-kmeans",
            quote="all algorithms except KMC",
            place="section 4, Figure 1",
            tested="Loss (4) of KMC is above 1e-6; 16 exact copies.",
            compare=misses,
        ),
        Claim(
            "soft",
            quote="strictly more powerful soft alignments, SK, SKρ, and k-NN, improve over exact methods like LAP",
            place="section 4, Figure 1",
            tested="Loss (4) of SK and k-NN with their own alignment; 16 noisy copies.",
            compare=improves("loss"),
            also=[
                Test(
                    "soft-noisy",
                    tested="The same with noise of 1, which mixes up the components of the copies.",
                    compare=improves("loss", "noisy"),
                ),
                Test(
                    "soft-permutation",
                    tested="Loss (4) over permutations; 16 noisy copies.",
                    compare=improves("permutation_loss"),
                ),
                Test(
                    "soft-truth",
                    tested="Distance to the matrix that was copied; 16 noisy copies.",
                    compare=improves("distance"),
                ),
                Test(
                    "soft-truth-noisy",
                    tested="The same with noise of 1.",
                    compare=improves("distance", "noisy"),
                ),
            ],
        ),
        Claim(
            "kmeans",
            quote="All methods significantly outperform KMC in quality",
            place="section 4, Figure 1",
            tested="Loss (4) of LAP, SK and k-NN with their own alignment; 16 noisy copies.",
            compare=outdone("KMC", "loss", ALIGNED),
        ),
        Claim(
            "fuzzy",
            quote="and FCM in speed, often by several orders of magnitude",
            place="section 4, Figure 1",
            tested="Seconds of LAP, SK and k-NN; 16 noisy copies. Tests only which one is faster.",
            compare=outdone("FCM", "seconds", ALIGNED),
            timed=True,
        ),
    ],
    command="bench/run barycenters",
)


def collect(text: str) -> Results:
    """Returns the curves of the table that the benchmark prints."""
    values: dict = {}
    for row in csv.DictReader(text.splitlines()):
        for quantity in QUANTITIES:
            curve = values.setdefault(panel_name(row["case"], quantity), {}).setdefault(row["server"], {})
            curve.setdefault(float(row["clients"]), []).append(float(row[quantity]))
    results = Results()
    results.panels = {
        panel: {server: [Point(x, tuple(y)) for x, y in points.items()] for server, points in curves.items()}
        for panel, curves in values.items()
    }
    return results


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/run barycenters", description=__doc__)
    parser.add_argument(
        "--program", metavar="FILE", help="the built benchmark [that of `cargo bench --bench barycenters`]"
    )
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--out", metavar="DIR", help="directory of the results [bench/runs/<date>-<machine>]")
    parser.add_argument("--busy", action="store_true", help="other programs run here: decide no claim about time")
    parser.add_argument("--machine", metavar="NAME", help="name of this machine in the results")
    options = parser.parse_args(argv)
    program = [options.program] if options.program else ["cargo", "bench", "--quiet", "--bench", "barycenters", "--"]
    done = subprocess.run([*program, str(options.seeds)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    version = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    machine, date = options.machine or machine_name(), time.strftime("%Y-%m-%d")
    version = f"{package_version()} ({version.strip()})"
    setup = {"machine": machine, "date": date, "version": version, "note": "", "busy": options.busy}
    out = Path(options.out) if options.out else ROOT / "bench" / "runs" / f"{date}-{machine}"
    write(out / FIGURE.name, FIGURE, panels(), collect(done.stdout), setup)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    plot(FIGURE, out / FIGURE.name, SCRATCH)
    print(out / FIGURE.name)
    return 0


def package_version() -> str:
    lines = (ROOT / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version"))
