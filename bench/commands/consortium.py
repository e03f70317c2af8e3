"""Gene programmes of three sites with parts of a set of cells, against those of one owner of all cells.

    bench/run consortium FILE.h5ad --labels bulk_labels

A seventh of the cells, drawn at random, is in nobody's data. The sites have a half, three tenths and two tenths of the others; each
table has its genes in an order of its own, and lacks two of them. They are prepared together, factorised by fed-kl with masked sums for
each k and several seeds, and `choose` takes k. One owner does the same with kl-mu, from the same starts and from others, which shows
how much a start matters. Compared are the number of programmes, the cosines of programmes and weights, and how well k-means on the
weights finds the labels (adjusted Rand index). The adversary attacks a run of the chosen k from the view of the largest site, with the
cells that are in nobody's data as candidates.

Counts that were divided by totals and whose logarithms are stored are restored: the least entry of a cell is a count of 1.
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
from lib.program import ONE_THREAD, add_binary_option, find_binary
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

SHARES = (0.5, 0.3, 0.2)
#: The share of cells that are in nobody's data.
OUTSIDE = 1 / 7
#: Counts that are restored from logarithms may be off by this share.
ROUNDING = 0.02


def run(words, at):
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=at, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(words)}\nexited with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


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


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run consortium", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("file", help="cells with counts, as AnnData")
    parser.add_argument("--labels", required=True, help="column of obs with the types of cells")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe", help="launcher [%(default)s]")
    parser.add_argument("--genes", type=int, default=30, help="most variable genes that are used [%(default)s]")
    parser.add_argument("--ks", type=int, nargs="+", default=[3, 4, 5, 6, 7], help="[3 to 7]")
    parser.add_argument("--runs", type=int, default=4, help="seeds for each k [%(default)s]")
    parser.add_argument("--iterations", type=int, default=100, help="of a run [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the division [%(default)s]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    adata = anndata.read_h5ad(options.file)
    genes = np.asarray((adata if adata.raw is None else adata.raw).var_names)
    counts, cells, labels = counts_of(adata), np.asarray(adata.obs_names), np.asarray(adata.obs[options.labels])
    rng = np.random.default_rng(options.seed)
    outside, order = np.split(rng.permutation(len(cells)), [round(OUTSIDE * len(cells))])
    cuts = np.cumsum([round(share * len(order)) for share in SHARES])[:-1]
    sites = np.split(order, cuts)
    each = [(k, seed) for k in options.ks for seed in range(1, options.runs + 1)]

    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch)
        common = rng.permutation(len(genes))[len(sites) :]
        alone = np.setdiff1d(np.arange(len(genes)), common)
        for party, own in enumerate(sites):
            kept = np.append(common, alone[party])
            write_table(at / f"raw-{party}.csv", counts[own], cells[own], genes, rng.permutation(kept) if party else kept)
        # Starts depend on the order of the genes.
        for name, own in (("raw", order), ("outside", outside)):
            write_table(at / f"{name}.csv", counts[own], cells[own], genes, common)
        launch = [*shlex.split(options.mpirun), "-n", len(sites), binary]
        recipe = ["--log1p", "--variable-columns", options.genes]
        began = time.monotonic()
        joint = ["raw-{party}.csv", "--common-columns", *recipe, "--output", "cells-{party}.csv"]
        run([*launch, "prepare", "counts", *joint, "--save-rules", "rules.json"], at)
        sent = []
        for k, seed in each:
            words = ["-k", k, "--seed", seed, "--max-iters", options.iterations, "--tol", 0, "--json", "--quiet"]
            private = ["--algo", "fed-kl", "--secure-sum", "--input", "cells-{party}.csv"]
            files = ["--output", f"sites-k{k}-{seed}.h5", "--record-view", f"view-k{k}-{seed}.h5"]
            found = json.loads(run([*launch, *private, *words, *files], at))
            sent.append(found["party_bytes"] / 2 / len(sites))
        seconds = time.monotonic() - began
        run([binary, "prepare", "counts", "raw.csv", *recipe, "--output", "cells.csv"], at)
        run([binary, "prepare", "counts", "outside.csv", "--rules", "rules.json", "--output", "candidates.csv"], at)
        for who, first in (("one", 0), ("other", 100)):
            for k, seed in each:
                words = ["-k", k, "--seed", first + seed, "--max-iters", options.iterations, "--tol", 0, "--quiet"]
                output = ["--input", "cells.csv", "--output", f"{who}-k{k}-{seed}.h5"]
                run([binary, "--algo", "kl-mu", "--init", "random", *output, *words], at)
        chosen, V, U = {}, {}, {}
        for who in ("sites", "one", "other"):
            names = [f"{who}-k{k}-{seed}.h5" for k, seed in each]
            consensus = f"{who}.npz"
            chosen[who] = json.loads(run([binary, "choose", *names, "--json", "--output", consensus], at))["recommended"]
            V[who] = np.load(at / consensus)["V"]
            inputs = [f"cells-{party}.csv" for party in range(len(sites))] if who == "sites" else ["cells.csv"]
            weights = []
            for number, cells_of in enumerate(inputs):
                output = f"{who}-weights-{number}.npz"
                run([binary, "project", consensus, "--input", cells_of, "--output", output, "--quiet"], at)
                weights.append(np.load(at / output)["U"])
            U[who] = np.concatenate(weights)
        used = [(at / name).read_text().split("\n", 1)[0].split(",")[1:] for name in ("cells-0.csv", "cells.csv")]
        if used[0] != used[1]:
            sys.exit("the sites chose other genes than one owner")
        view = next(at.glob(f"view-k{chosen['sites']}-1*rank-00*"))
        words = ["--truth", "cells-{party}.csv", "--candidates", "candidates.csv"]
        attacks = run([binary, "audit", "attack", view, *words], at)

    types = labels[order]
    count = len(np.unique(types))
    print(f"{len(order)} cells of {count} types, {', '.join(str(len(own)) for own in sites)} at each site, {options.genes} genes\n")
    print("| | three sites | one owner, the same starts | one owner, other starts |")
    print("| --- | --- | --- | --- |")
    rows = {
        "programmes": [str(chosen[who]) for who in U],
        "adjusted Rand index of the types": [
            f"{adjusted_rand_score(types, clusters(weights, count)):.3f}" for weights in U.values()
        ],
        "least cosine of a programme of the sites": ["", *(f"{cosines(V['sites'], V[who]).min():.6f}" for who in ("one", "other"))],
        "least cosine of weights of the sites": ["", *(f"{cosines(U['sites'], U[who]).min():.6f}" for who in ("one", "other"))],
    }
    for name, values in rows.items():
        print("| " + " | ".join([name, *values]) + " |")
    print(f"\n{len(sent)} runs of the sites: {sum(sent) / 1e6:.2f} MB sent by each, {seconds:.0f} s with the preparation")
    print(f"\nThe adversary, from the view of the largest site:\n\n```\n{attacks.rstrip()}\n```")
