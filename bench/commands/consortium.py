"""Three sites with parts of a set of rows, against one owner of all of them.

    bench/run consortium FILE.h5ad --labels bulk_labels
    bench/run consortium batches
    bench/run consortium mutations
    bench/run consortium questionnaire
    bench/run consortium public

The sites have a half, three tenths and two tenths of the rows. A seventh is in nobody's data.

FILE.h5ad: cells, divided at random. Each table has its genes in an order of its own, and lacks two of them. They are prepared together,
factorised by fed-kl with masked sums for each k and several seeds, and `choose` takes k. One owner does the same with kl-mu, from the
same starts and from others, which shows how much a start matters. Rare entries are left out (--suppress-rare 3), also of what the
owner of all rows has. Compared are the number of programmes, the cosines of programmes and
weights, and how well k-means on the weights finds the labels (adjusted Rand index). The adversary attacks a run of the chosen k from
the view of the largest site, with the cells that are in nobody's data as candidates. Counts that were divided by totals and whose
logarithms are stored are restored: the least entry of a cell is a count of 1.

The others are drawn (lib/planted.py), so that what is to be found is known:

batches: counts of six types of cells. A site has a programme of its own in all of its cells, and factors of its own for the genes. inmf
with masked sums, on cells that each site scales by itself, is compared with hals and kl-mu of one owner, with as many components as
there are programmes and with one more for each site. Of several seeds the least objective counts.

mutations: 96 types of mutations, five signatures. The same as with cells: fed-kl, kl-mu, `choose`, the adversary.

questionnaire: zeros and ones, six patterns of answers, a tenth of the answers flipped. The Boolean methods with masked sums are compared
with the same methods of one owner.

public: the cells of `batches`. Those in nobody's data, whose number is that of all sites together here, are published as an atlas. The
programmes of the atlas (hals), to which each owner fits its own cells, are compared with those of hals on the cells of all sites, and
with those that the sites find with noise (secure-hals --transpose). Weights are fitted anew to each.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anndata
import numpy as np
from lib import planted
from lib.program import ONE_THREAD, add_binary_option, find_binary
from scipy.optimize import nnls
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

SHARES = (0.5, 0.3, 0.2)
#: The share of rows that are in nobody's data.
OUTSIDE = 1 / 7
#: Rows that are drawn.
ROWS = 2333
#: Weights of the penalty on the own parts (inmf): the default, and less.
OWN_PENALTIES = (5, 1, 0.1)
BOOLEAN = ("felb", "felb-mu", "elbmf", "asso", "grecond", "mebf", "zhang")
#: Entries of one or two rows of a site would give these rows away.
RARE = ("--suppress-rare", "3")
#: Budgets of runs with noise, and their numbers of iterations, of which the best counts.
EPSILONS, ROUNDS = (1, 4, 16), (3, 5, 8)
#: Counts that are restored from logarithms may be off by this share.
ROUNDING = 0.02


def run(words, at):
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=at, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(words)}\nexited with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def sizes(rows):
    """The number of rows of each site, and of those in nobody's data."""
    outside = round(OUTSIDE * rows)
    cuts = np.cumsum([round(share * (rows - outside)) for share in SHARES])[:-1]
    return [*np.diff([0, *cuts, rows - outside]), outside]


def drawings(kind, options, at, rows=None):
    """Yields data, and a directory with raw-0.npy, ... of the sites, raw.npy of one owner, and outside.npy."""
    for seed in range(options.seed, options.seed + options.drawings):
        drawn = kind(np.random.default_rng(seed), rows or sizes(ROWS))
        here = at / str(seed)
        here.mkdir()
        for party, own in enumerate(drawn.sites):
            np.save(here / f"raw-{party}.npy", own)
        np.save(here / "raw.npy", np.concatenate(drawn.sites))
        np.save(here / "outside.npy", drawn.outside)
        yield drawn, here


def counts_of(adata):
    """The counts of all cells."""
    X = adata.X if adata.raw is None else adata.raw.X
    X = np.asarray(X.todense() if hasattr(X, "todense") else X, dtype=float)
    if np.array_equal(X, np.round(X)):
        return X
    X = np.expm1(X)
    X /= np.where(X > 0, X, np.inf).min(axis=1, keepdims=True)
    counts = np.round(X)
    if (np.abs(X - counts) > ROUNDING * np.maximum(counts, 1)).any():
        sys.exit("the entries are neither counts nor logarithms of counts at a total")
    return counts


def write_table(path, counts, cells, genes, kept):
    lines = [",".join(["cell", *genes[kept]])]
    lines += [",".join([cell, *(f"{x:g}" for x in row)]) for cell, row in zip(cells, counts[:, kept])]
    path.write_text("\n".join(lines) + "\n")


def cosines(a, b):
    """Of each column of a with the most similar one of b."""
    a, b = (x / np.linalg.norm(x, axis=0) for x in (a, b))
    return (a.T @ b).max(axis=1)


def clusters(weights, count):
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    return KMeans(count, n_init=20, random_state=0).fit(shares).labels_


def fit(words, output, at):
    """Runs a method; returns its result, V and the rows of U of all parties."""
    found = json.loads(run([*words, "--tol", 0, "--json", "--quiet", "--output", output], at))
    shared = np.load(at / output)
    files = [output] if "U" in shared else [f"{Path(output).stem}.party-{party:02}.npz" for party in range(shared["parties"])]
    return found, shared["V"], np.concatenate([np.load(at / file)["U"] for file in files])


def sent_by_each(found):
    """Bytes, without those received."""
    return found["party_bytes"] / 2 / len(SHARES)


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def every_k(options, launch, at, private, alone):
    """Runs all k and seeds at the sites and at one owner (twice), and chooses k.

    Returns what each site sent in each run, the seconds of the runs of the sites, k, and V and the weights of all rows.
    """
    each = [(k, seed) for k in options.ks for seed in range(1, options.runs + 1)]
    binary, sent, began = launch[-1], [], time.monotonic()
    for k, seed in each:
        words = ["-k", k, "--seed", seed, "--max-iters", options.iterations, "--tol", 0, "--json", "--quiet"]
        method = ["--algo", "fed-kl", "--secure-sum", "--input", private]
        files = ["--output", f"sites-k{k}-{seed}.h5", "--record-view", f"view-k{k}-{seed}.h5"]
        sent.append(sent_by_each(json.loads(run([*launch, *method, *words, *files], at))))
    seconds = time.monotonic() - began
    for who, first in (("one", 0), ("other", 100)):
        for k, seed in each:
            words = ["-k", k, "--seed", first + seed, "--max-iters", options.iterations, "--tol", 0, "--quiet"]
            output = ["--input", alone, "--output", f"{who}-k{k}-{seed}.h5"]
            run([binary, "--algo", "kl-mu", "--init", "random", "--extrapolation", "none", *output, *words], at)
    chosen, V, U = {}, {}, {}
    for who in ("sites", "one", "other"):
        names = [f"{who}-k{k}-{seed}.h5" for k, seed in each]
        consensus = f"{who}.npz"
        chosen[who] = json.loads(run([binary, "choose", *names, "--json", "--output", consensus], at))["recommended"]
        V[who] = np.load(at / consensus)["V"]
        inputs = [private.format(party=party) for party in range(len(SHARES))] if who == "sites" else [alone]
        weights = []
        for number, rows_of in enumerate(inputs):
            output = f"{who}-weights-{number}.npz"
            run([binary, "project", consensus, "--input", rows_of, "--output", output, "--quiet"], at)
            weights.append(np.load(at / output)["U"])
        U[who] = np.concatenate(weights)
    return sent, seconds, chosen, V, U


def attacks(binary, at, k, private, candidates):
    """What the adversary finds in the view of the largest site."""
    view = next(at.glob(f"view-k{k}-1*rank-00*"))
    found = run([binary, "audit", "attack", view, "--truth", private, "--candidates", candidates], at)
    return f"The adversary, from the view of the largest site:\n\n```\n{found.rstrip()}\n```"


OWNERS = ("", "three sites", "one owner, the same starts", "one owner, other starts")


def against_sites(of_all):
    """Cells of a table: the least cosine of a column of the sites with one of an owner."""
    return ["", *(f"{cosines(of_all['sites'], of_all[who]).min():.6f}" for who in ("one", "other"))]


def real_cells(options, launch, at):
    binary = launch[-1]
    adata = anndata.read_h5ad(options.data)
    genes = np.asarray((adata if adata.raw is None else adata.raw).var_names)
    counts, cells, labels = counts_of(adata), np.asarray(adata.obs_names), np.asarray(adata.obs[options.labels])
    rng = np.random.default_rng(options.seed)
    outside, order = np.split(rng.permutation(len(cells)), [round(OUTSIDE * len(cells))])
    sites = np.split(order, np.cumsum(sizes(len(cells))[:-2]))
    common = rng.permutation(len(genes))[len(sites) :]
    alone = np.setdiff1d(np.arange(len(genes)), common)
    for party, own in enumerate(sites):
        kept = np.append(common, alone[party])
        write_table(at / f"raw-{party}.csv", counts[own], cells[own], genes, rng.permutation(kept) if party else kept)
    # Starts depend on the order of the genes.
    for name, own in (("raw", order), ("outside", outside)):
        write_table(at / f"{name}.csv", counts[own], cells[own], genes, common)
    recipe = ["--keep-counts", "--variable-columns", options.genes]
    began = time.monotonic()
    joint = ["raw-{party}.csv", "--common-columns", *RARE, *recipe, "--output", "cells-{party}.csv"]
    run([*launch, "prepare", "counts", *joint, "--save-rules", "rules.json"], at)
    seconds = time.monotonic() - began
    tables = [(at / f"cells-{party}.csv").read_text().split("\n", 1) for party in range(len(sites))]
    (at / "cells.csv").write_text("\n".join([tables[0][0], *(rows.rstrip("\n") for _, rows in tables)]) + "\n")
    run([binary, "prepare", "counts", "outside.csv", "--rules", "rules.json", "--output", "candidates.csv"], at)
    sent, more, chosen, V, U = every_k(options, launch, at, "cells-{party}.csv", "cells.csv")
    found = attacks(binary, at, chosen["sites"], "cells-{party}.csv", "candidates.csv")

    types = labels[order]
    count = len(np.unique(types))
    print(f"{len(order)} cells of {count} types, {', '.join(str(len(own)) for own in sites)} at each site, {options.genes} genes\n")
    agreement = [f"{adjusted_rand_score(types, clusters(weights, count)):.3f}" for weights in U.values()]
    rows = [
        ["programmes", *(str(k) for k in chosen.values())],
        ["adjusted Rand index of the types", *agreement],
        ["least cosine of a programme of the sites", *against_sites(V)],
        ["least cosine of weights of the sites", *against_sites(U)],
    ]
    table(OWNERS, rows)
    print(f"{len(sent)} runs of the sites: {sum(sent) / 1e6:.2f} MB sent by each, {seconds + more:.0f} s with the preparation\n")
    print(found)


def at_each(drawn):
    return f"{', '.join(str(len(rows)) for rows in drawn.sites)} at each site"


def batches(options, launch, at):
    binary, (k, more) = launch[-1], (planted.TYPES, planted.TYPES + len(SHARES))
    sites, owner = [*launch, "--secure-sum"], [binary, "--init", "random"]
    scaled, raw = ["--input", "scaled-raw-{party}.npy"], ["--input", "raw-{party}.npy"]
    inmf = [(f"`inmf`, λ = {x:g}", [*sites, "--algo", "inmf", "--own-penalty", x, *scaled], "objective") for x in OWN_PENALTIES]
    others = [
        ("`fed-kl`", [*sites, "--algo", "fed-kl", *raw], "kl_divergence"),
        ("`hals`", [*owner, "--algo", "hals", "--input", "scaled-raw.npy"], "rel_error"),
        ("`kl-mu`", [*owner, "--algo", "kl-mu", "--input", "raw.npy"], "kl_divergence"),
    ]
    values = {(case[0], k): [] for case in inmf} | {(case[0], count): [] for case in others for count in (k, more)}
    of_name = {name: (words, objective) for name, words, objective in inmf + others}
    for drawn, here in drawings(planted.cells, options, at):
        for name in (*(f"raw-{party}" for party in range(len(SHARES))), "raw"):
            recipe = ["--row-total", planted.DEPTH, "--unit-variance", "--output", f"scaled-{name}.npy"]
            run([binary, "prepare", "counts", f"{name}.npy", *recipe], here)
        # Programmes are compared in counts, so what the scaling divided by is undone.
        *own, joint = [
            (rows / rows.sum(axis=1, keepdims=True)).std(axis=0)[:, None] for rows in (*drawn.sites, np.concatenate(drawn.sites))
        ]
        undo = {"objective": np.mean(own, axis=0), "rel_error": joint, "kl_divergence": 1}
        for name, count in values:
            words, objective = of_name[name]
            began, fits = time.monotonic(), []
            for seed in range(1, options.runs + 1):
                fits.append(fit([*words, "-k", count, "--seed", seed, "--max-iters", options.iterations], "fit.npz", here))
            seconds = time.monotonic() - began
            _, V, U = min(fits, key=lambda x: x[0][objective])
            agreement = adjusted_rand_score(drawn.known, clusters(U * np.linalg.norm(V, axis=0), planted.TYPES))
            cosine = cosines(drawn.parts, V * undo[objective])
            sent = sum(sent_by_each(found) for found, *_ in fits)
            values[name, count].append([cosine.min(), cosine.mean(), agreement, sent / 1e6, seconds])
    print(f"{len(drawn.known)} cells of {planted.TYPES} types, {at_each(drawn)}, {planted.GENES} genes; ", end="")
    print(f"{options.drawings} drawings, of each the best of {options.runs} runs\n")
    rows = []
    for (name, count), of_drawings in values.items():
        least, mean, agreement, sent, seconds = np.transpose(of_drawings)
        at_sites = of_name[name][0][: len(launch)] == launch
        figures = [", ".join(f"{x:.2f}" for x in least), f"{mean.mean():.3f}", ", ".join(f"{x:.2f}" for x in agreement)]
        costs = [f"{sent.mean():.1f} MB" if at_sites else "", f"{seconds.mean():.1f} s"]
        rows.append([name, "three sites" if at_sites else "one owner", str(count), *figures, *costs])
    header = ["", "", "k", "least cosine of a planted programme", "mean of all", "ARI of the types"]
    table([*header, f"sent by each in {options.runs} runs", "time of these"], rows)


def mutations(options, launch, at):
    what = {
        "signatures": lambda drawn, k, V, U, who: f"{k[who]}",
        "least cosine of a planted signature": lambda drawn, k, V, U, who: f"{cosines(drawn.parts, V[who]).min():.3f}",
        "least cosine of planted weights": lambda drawn, k, V, U, who: f"{cosines(drawn.known, U[who]).min():.3f}",
        "least cosine of a signature of the sites": lambda drawn, k, V, U, who: f"{cosines(V['sites'], V[who]).min():.6f}",
        "least cosine of weights of the sites": lambda drawn, k, V, U, who: f"{cosines(U['sites'], U[who]).min():.6f}",
    }
    found, costs = [], []
    for drawn, here in drawings(planted.mutations, options, at):
        # As --suppress-rare, of which one owner has no need.
        tables = [np.load(here / f"raw-{party}.npy") for party in range(len(drawn.sites))]
        tables = [own * (np.count_nonzero(own, axis=0) >= int(RARE[1])) for own in tables]
        for party, kept in enumerate(tables):
            np.save(here / f"kept-{party}.npy", kept)
        np.save(here / "kept.npy", np.vstack(tables))
        sent, seconds, k, V, U = every_k(options, launch, here, "kept-{party}.npy", "kept.npy")
        report = attacks(launch[-1], here, k["sites"], "kept-{party}.npy", "outside.npy")
        found.append({(name, who): of(drawn, k, V, U, who) for name, of in what.items() for who in k})
        costs.append([sum(sent) / 1e6, seconds])
    print(f"{len(drawn.known)} samples, {at_each(drawn)}, {planted.MUTATIONS} types of mutations, ", end="")
    print(f"{planted.SIGNATURES} signatures; {options.drawings} drawings\n")
    table(OWNERS, [[name, *(", ".join(x[name, who] for x in found) for who in k)] for name in what])
    megabytes, seconds = np.mean(costs, axis=0)
    print(f"{len(sent)} runs of the sites with one drawing: {megabytes:.2f} MB sent by each, {seconds:.0f} s\n")
    print(report)


def f1(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def questionnaire(options, launch, at):
    sites, owner = [*launch, "--secure-sum", "--input", "raw-{party}.npy"], [launch[-1], "--parties", 1, "--input", "raw.npy"]
    values = {(method, who): [] for method in BOOLEAN for who in ("three sites", "one owner")}
    flipped = []
    for drawn, here in drawings(planted.answers, options, at):
        flipped.append(f1(np.concatenate(drawn.sites) > 0, drawn.known))
        for method, who in values:
            words = [*(owner if who == "one owner" else sites), "--algo", method, "-k", planted.PATTERNS]
            began = time.monotonic()
            found, V, U = fit([*words, "--max-iters", options.iterations], "fit.npz", here)
            seconds = time.monotonic() - began
            V, U = V > 0.5, U > 0.5
            same = (drawn.parts[:, :, None] == V[:, None]).all(axis=0).any(axis=1)
            score = f1((U[:, None] & V).any(axis=2), drawn.known)
            values[method, who].append([score, same.sum(), sent_by_each(found) / 1e3, seconds])
    print(f"{len(drawn.known)} persons, {at_each(drawn)}, {planted.QUESTIONS} questions, ", end="")
    print(f"{planted.PATTERNS} patterns; {options.drawings} drawings\n")
    rows = []
    for (method, who), of_drawings in values.items():
        score, same, sent, seconds = np.transpose(of_drawings)
        costs = [f"{sent.mean():.0f} kB" if who == "three sites" else "", f"{seconds.mean():.1f} s"]
        rows.append([f"`{method}`", who, f"{score.mean():.3f}", f"{score.min():.3f}", ", ".join(f"{x:.0f}" for x in same), *costs])
    found = f"patterns found exactly, of {planted.PATTERNS}"
    table(["", "", "F1, mean", "least", found, "sent by each", "a run"], rows)
    print(f"F1 is that with the answers before a tenth was flipped, to which the flipped ones have {np.mean(flipped):.3f}.")


def refitted(X, V):
    """Relative error of X with the best nonnegative weights of V."""
    return np.linalg.norm([nnls(V, row)[1] for row in X]) / np.linalg.norm(X)


def public(options, launch, at):
    owner = [launch[-1], "-k", planted.TYPES, "--max-iters", options.iterations, "--algo", "hals"]
    sites = [*launch, "--algo", "secure-hals", "--transpose", "--secure-sum", "--dp", "gaussian", "-k", planted.TYPES]
    *of_sites, _ = sizes(ROWS)
    found = {name: [] for name in ("the cells themselves", "the atlas", *(f"all sites, ε = {e}" for e in EPSILONS))}
    for drawn, here in drawings(planted.cells, options, at, [*of_sites, sum(of_sites)]):
        for name in (*(f"raw-{party}" for party in range(len(SHARES))), "raw", "outside"):
            run([launch[-1], "prepare", "counts", f"{name}.npy", "--log1p", "--output", f"cells-{name}.npy"], here)
        X = np.load(here / "cells-raw.npy")
        for name, cells in (("the cells themselves", "raw"), ("the atlas", "outside")):
            found[name].append(refitted(X, fit([*owner, "--input", f"cells-{cells}.npy"], "fit.npz", here)[1]))
        for epsilon in EPSILONS:
            errors = []
            for rounds in ROUNDS:
                noised = ["--epsilon", epsilon, "--max-iters", rounds, "--input", "cells-raw-{party}.npy", "--output", "noised.npz"]
                run([*sites, "--quiet", *noised], here)
                errors.append(refitted(X, np.load(here / "noised.npz")["U"]))
            found[f"all sites, ε = {epsilon}"].append(min(errors))
    print(f"{sum(of_sites)} cells of {planted.TYPES} types, {at_each(drawn)}, as many in the atlas, {planted.GENES} genes; ", end="")
    print(f"{options.drawings} drawings\n")
    table(["programmes of", "relative error"], [[name, ", ".join(f"{x:.3f}" for x in errors)] for name, errors in found.items()])


CASES = {"batches": batches, "mutations": mutations, "questionnaire": questionnaire, "public": public}


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run consortium", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("data", help=f"cells with counts, as AnnData, or what to draw: {', '.join(CASES)}")
    parser.add_argument("--labels", help="column of obs with the types of cells")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe", help="launcher [%(default)s]")
    parser.add_argument("--genes", type=int, default=30, help="most variable genes that are used, of AnnData [%(default)s]")
    parser.add_argument("--ks", type=int, nargs="+", default=[3, 4, 5, 6, 7], help="of which choose takes one [3 to 7]")
    parser.add_argument("--runs", type=int, default=4, help="seeds for each k [%(default)s]")
    parser.add_argument("--drawings", type=int, default=3, help="of data that are drawn [%(default)s]")
    parser.add_argument("--iterations", type=int, default=100, help="of a run [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the division, or of the first drawing [%(default)s]")
    options = parser.parse_args(argv)
    if options.data not in CASES and options.labels is None:
        parser.error("cells need --labels")
    launch = [*shlex.split(options.mpirun), "-n", str(len(SHARES)), str(find_binary(options.binary))]
    with tempfile.TemporaryDirectory() as scratch:
        CASES.get(options.data, real_cells)(options, launch, Path(scratch))
