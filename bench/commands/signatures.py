"""Planted signatures of mutations: whether `sweep` finds their number and each of them, and `project` those of each sample.

    bench/run signatures [--catalogue COSMIC_v3.5_SBS_GRCh37.txt]

A drawing has `--count` signatures of the catalogue: SBS1 and SBS5, which all samples have, and others, each in a third of the samples.
The catalogue is that of the package SigProfilerAssignment (`pip download --no-deps SigProfilerAssignment`, in
SigProfilerAssignment/data/Reference_Signatures/GRCh37); without one they are drawn from a Dirichlet distribution. The mutations of a
sample have the given median, and are Poisson numbers. A signature counts as found if one of the consensus has a cosine of 0.95 with it.
The runs factorise the counts themselves, Poisson or multinomial copies of them, or the counts with the minimum-volume penalty. Those that
are not found are named.

The catalogue of all signatures is then fitted to each sample by `project`, with `--min-gain` and without. Precision and recall are those
of the signatures that have at least a twentieth of a sample.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
from lib.program import ONE_THREAD, add_binary_option, find_binary

#: Signatures of many kinds of cancer; artefacts and those of single treatments are not drawn.
COMMON = "2 3 4 6 7a 7b 8 9 10a 10b 11 13 15 17a 17b 18 22a 26 28 30 31 35 36 44".split()
#: Possible artefacts of sequencing, which a refit leaves out.
ARTEFACTS = {f"SBS{number}" for number in (27, 43, *range(45, 61), 95)}
TYPES = 96
FOUND = 0.95
#: The standard deviation of the logarithm of the mutations in a sample, and the share from which a signature is one of a sample.
SPREAD, SHARE = 0.7, 0.05
HOW = {
    "counts": [],
    "Poisson copies": ["--resample", "poisson"],
    "multinomial copies": ["--resample", "multinomial"],
    # These updates are not extrapolated, and need more iterations.
    "minimum volume": ["--algo", "kl-mu", "--min-volume", 0.0005, "--tol", 1e-5, "--max-iters", 3000],
}


def run(words, at):
    done = subprocess.run([str(word) for word in words], cwd=at, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nexited with {done.returncode}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def catalogue(path, rng):
    """Signatures (types x signatures), their names, the places of those that all samples have, and of the others that may be drawn."""
    if path is None:
        drawn = rng.dirichlet(np.full(TYPES, 0.2), 26).T
        return drawn, [str(number) for number in range(26)], [0, 1], np.arange(2, 26)
    header = path.read_text().split("\n", 1)[0].rstrip().split("\t")
    used = [at for at, name in enumerate(header) if at > 0 and name not in ARTEFACTS]
    known, names = np.loadtxt(path, delimiter="\t", skiprows=1, usecols=used), [header[at] for at in used]
    places = lambda wanted: [names.index(f"SBS{name}") for name in wanted if f"SBS{name}" in names]  # noqa: E731
    return known / known.sum(axis=0), names, places(["1", "5"]), np.array(places(COMMON))


def drawing(options, seed):
    """The catalogue with its names, the places of the drawn signatures, and the mean number of mutations (samples x drawn)."""
    rng = np.random.default_rng(seed)
    known, names, everywhere, others = catalogue(options.catalogue, rng)
    chosen = [*everywhere, *rng.choice(others, options.count - len(everywhere), replace=False)]
    has = rng.random((options.samples, options.count)) < 1 / 3
    has[:, : len(everywhere)] = True
    shares = rng.gamma(1.0, size=has.shape) * has
    burden = rng.lognormal(np.log(options.burden), SPREAD, options.samples)
    exposures = shares / shares.sum(axis=1, keepdims=True) * burden[:, None]
    return known, names, chosen, exposures, rng.poisson(exposures @ known[:, chosen].T).astype(float)


def cosines(planted, found):
    """Of each planted signature with the most similar one of those that were found."""
    unit = lambda x: x / np.linalg.norm(x, axis=0)  # noqa: E731
    return (unit(planted).T @ unit(found)).max(axis=1)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run signatures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--catalogue", type=Path, metavar="FILE", help="signatures of COSMIC [drawn ones]")
    parser.add_argument("--count", type=int, default=6, help="signatures of a drawing [%(default)s]")
    parser.add_argument("--samples", type=int, default=300, help="[%(default)s]")
    parser.add_argument("--burden", type=float, default=3000, help="median of the mutations in a sample [%(default)s]")
    parser.add_argument("--ks", default="3..9", help="numbers of signatures that are tried [%(default)s]")
    parser.add_argument("--runs", type=int, default=20, help="for each number [%(default)s]")
    parser.add_argument("--gain", type=float, default=0.01, help="of --min-gain [%(default)s]")
    parser.add_argument("--drawings", type=int, default=10, help="[%(default)s]")
    parser.add_argument("--refits", type=int, default=3, help="of these drawings [%(default)s]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    found, refits = {how: [] for how in HOW}, {name: [] for name in ("all that fit", f"--min-gain {options.gain:g}")}
    for seed in range(options.drawings):
        known, names, chosen, exposures, counts = drawing(options, seed)
        with tempfile.TemporaryDirectory() as scratch:
            at = Path(scratch)
            np.save(at / "counts.npy", counts)
            for how, words in HOW.items():
                began = time.monotonic()
                line = [binary, "sweep", "--input", "counts.npy", "--k", options.ks, "--runs", options.runs, "--loss", "kl", *words]
                result = run([*line, "--seed", 1000 * seed, "--quiet", "--json", "--output", how.replace(" ", "-")], at)
                seconds, k = time.monotonic() - began, result["recommended"]
                V = np.zeros((TYPES, 1)) if k is None else h5py.File(at / result["consensus"]["file"])["V"][:]
                found[how].append((k or 0, cosines(known[:, chosen], V), seconds, [names[at] for at in chosen]))
            if seed >= options.refits:
                continue
            start = [binary, "--loss", "kl", "--input", "counts.npy", "-k", known.shape[1], "--max-iters", 0, "--init"]
            # A run without iterations says that the catalogue is one for the divergence.
            np.savez(at / "start.npz", U=np.ones((options.samples, known.shape[1])), V=known)
            run([*start, "start.npz", "--quiet", "--json", "--output", "known.npz"], at)
            V = np.load(at / "known.npz")["V"]
            # A run sorts components.
            order = (V / np.linalg.norm(V, axis=0)).T @ (known / np.linalg.norm(known, axis=0))
            places = order.argmax(axis=1)
            planted = np.zeros((options.samples, known.shape[1]), bool)
            planted[:, chosen] = exposures >= SHARE * exposures.sum(axis=1, keepdims=True)
            for name in refits:
                began = time.monotonic()
                words = name.split() if name.startswith("--") else []
                run([binary, "project", "known.npz", "--input", "counts.npy", *words, "--quiet", "--json", "--output", "u.npz"], at)
                seconds = time.monotonic() - began
                fitted = np.load(at / "u.npz")
                weights = np.zeros((options.samples, known.shape[1]))
                weights[:, places] = fitted["U"] * fitted["V"].sum(axis=0)
                used = weights >= SHARE * weights.sum(axis=1, keepdims=True)
                both = (used & planted).sum()
                refits[name].append((both / used.sum(), both / planted.sum(), (weights > 0).sum(axis=1).mean(), seconds))
    where = f"of {options.catalogue.name}" if options.catalogue else "drawn"
    print(f"{options.count} signatures {where}, {options.samples} samples, {options.drawings} drawings\n")
    print(f"| runs on | k | signatures found, of {options.count} | least cosine | median cosine | not found | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for how, all_of in found.items():
        ks = ", ".join(str(k) for k, *_ in all_of)
        counts_found = ", ".join(str((cosine >= FOUND).sum()) for _, cosine, *_ in all_of)
        least = ", ".join(f"{cosine.min():.3f}" for _, cosine, *_ in all_of)
        median = np.median(np.concatenate([cosine for _, cosine, *_ in all_of]))
        off = Counter(name for _, cosine, _, drawn in all_of for name, x in zip(drawn, cosine, strict=True) if x < FOUND)
        missed = ", ".join(f"{name} ({times})" for name, times in off.most_common()) or "none"
        seconds = np.median([seconds for _, _, seconds, _ in all_of])
        print(f"| {how} | {ks} | {counts_found} | {least} | {median:.3f} | {missed} | {seconds:.1f} |")
    if not options.refits:
        return
    print(f"\n| refit of {known.shape[1]} signatures | precision | recall | signatures of a sample | seconds |")
    print("| --- | --- | --- | --- | --- |")
    for name, all_of in refits.items():
        precision, recall, size, seconds = np.mean(all_of, axis=0)
        print(f"| {name} | {precision:.3f} | {recall:.3f} | {size:.1f} | {seconds:.2f} |")
