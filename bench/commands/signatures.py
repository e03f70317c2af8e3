"""Planted signatures of mutations: whether `sweep` finds their number and each of them, and `project` those of each sample.

    bench/run signatures [--catalogue COSMIC_v3.5_SBS_GRCh37.txt] [--beside PYTHON]

A drawing has `--count` signatures of the catalogue: SBS1 and SBS5, which all samples have, and others, each in a third of the samples.
The catalogue is that of the package SigProfilerAssignment (`pip download --no-deps SigProfilerAssignment`, in
SigProfilerAssignment/data/Reference_Signatures/GRCh37); without one they are drawn from a Dirichlet distribution. The mutations of a
sample have the given median, and are Poisson numbers. A signature counts as found if one of the consensus has a cosine of 0.95 with it.
The runs factorise the counts themselves, Poisson or multinomial copies of them, or the counts with the minimum-volume penalty. Those that
are not found are named.

`--beside` names a Python that has SigProfilerExtractor, which then gets the same tables, the numbers from 1 and the same number of
runs, and iterates at least 2,000 times, at most 20,000 times and to a tolerance of 1e-8: the defaults of its class NMF, where those of
its main function take hours. Seconds are those of the processor, of one thread.

The catalogue of all signatures is then fitted to each sample by `project`, with `--min-gain` and without. Precision and recall are those
of the signatures that have at least a twentieth of a sample.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
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
    "multinomial copies, criterion sigprofiler": ["--resample", "multinomial", "--criterion", "sigprofiler"],
    # These updates are not extrapolated, and need more iterations.
    "minimum volume": ["--algo", "kl-mu", "--min-volume", 0.0005, "--tol", 1e-5, "--max-iters", 3000],
}


BESIDE = "SigProfilerExtractor"
EXTRACT = """
import sys
from SigProfilerExtractor import sigpro
if __name__ == "__main__":
    sigpro.sigProfilerExtractor("matrix", "beside", "samples.txt", minimum_signatures=1, maximum_signatures=int(sys.argv[1]),
        nmf_replicates=int(sys.argv[2]), min_nmf_iterations=2000, max_nmf_iterations=20000, nmf_test_conv=1000, nmf_tolerance=1e-8,
        cpu=1, assignment_cpu=1, stop_after_extraction=True, make_decomposition_plots=False)
"""


def processor_seconds():
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def extracted(options, types, counts, at):
    """The number and the signatures that SigProfilerExtractor suggests, and the seconds of its processors."""
    samples = [f"Sample{i}" for i in range(len(counts))]
    rows = [[name, *map(int, row)] for name, row in zip(types, counts.T, strict=True)]
    with open(at / "samples.txt", "w") as file:
        csv.writer(file, delimiter="\t").writerows([["MutationType", *samples], *rows])
    (at / "extract.py").write_text(EXTRACT)
    words = [options.beside, "extract.py", int(options.ks.rpartition(".")[2]), options.runs]
    began = processor_seconds()
    done = subprocess.run(list(map(str, words)), cwd=at, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    seconds = processor_seconds() - began
    [suggested] = (at / "beside").glob("*/All_solutions_stat.csv") if done.returncode == 0 else [None]
    if suggested is None:
        sys.exit(f"{BESIDE} exited with {done.returncode}: {done.stderr[-2000:]}")
    [k] = [row[0].rstrip("*") for row in csv.reader(suggested.open()) if row[0].endswith("*")]
    [found] = suggested.parent.glob(f"All_Solutions/*_{k}_Signatures/Signatures/*_Signatures.txt")
    return int(k), np.loadtxt(found, delimiter="\t", skiprows=1, usecols=range(1, int(k) + 1), ndmin=2), seconds


def run(words, at):
    done = subprocess.run([str(word) for word in words], cwd=at, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nexited with {done.returncode}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def catalogue(path, rng):
    """Signatures (types x signatures), the names of types and of signatures, the places of those that all samples have, and of the
    others that may be drawn."""
    if path is None:
        drawn = rng.dirichlet(np.full(TYPES, 0.2), 26).T
        types = [f"{a}[{change}]{b}" for change in ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G") for a in "ACGT" for b in "ACGT"]
        return drawn, types, [str(number) for number in range(26)], [0, 1], np.arange(2, 26)
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    used = [at for at, name in enumerate(header) if at > 0 and name not in ARTEFACTS]
    known, names = np.loadtxt(path, delimiter="\t", skiprows=1, usecols=used), [header[at] for at in used]
    places = lambda wanted: [names.index(f"SBS{name}") for name in wanted if f"SBS{name}" in names]  # noqa: E731
    return known / known.sum(axis=0), [row[0] for row in rows], names, places(["1", "5"]), np.array(places(COMMON))


def drawing(options, seed):
    """The catalogue with the names of types and signatures, the places of the drawn signatures, and the mean number of mutations (samples x drawn)."""
    rng = np.random.default_rng(seed)
    known, types, names, everywhere, others = catalogue(options.catalogue, rng)
    chosen = [*everywhere, *rng.choice(others, options.count - len(everywhere), replace=False)]
    has = rng.random((options.samples, options.count)) < 1 / 3
    has[:, : len(everywhere)] = True
    shares = rng.gamma(1.0, size=has.shape) * has
    burden = rng.lognormal(np.log(options.burden), SPREAD, options.samples)
    exposures = shares / shares.sum(axis=1, keepdims=True) * burden[:, None]
    return known, types, names, chosen, exposures, rng.poisson(exposures @ known[:, chosen].T).astype(float)


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
    parser.add_argument("--beside", metavar="PYTHON", help="a Python that has SigProfilerExtractor [none]")
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
    found, refits = {how: [] for how in [*HOW, *([BESIDE] if options.beside else [])]}, {name: [] for name in ("all that fit", f"--min-gain {options.gain:g}")}
    for seed in range(options.drawings):
        known, types, names, chosen, exposures, counts = drawing(options, seed)
        drawn = [names[at] for at in chosen]
        with tempfile.TemporaryDirectory() as scratch:
            at = Path(scratch)
            np.save(at / "counts.npy", counts)
            for how, words in HOW.items():
                began = processor_seconds()
                line = [binary, "sweep", "--input", "counts.npy", "--k", options.ks, "--runs", options.runs, "--loss", "kl", *words]
                result = run([*line, "--seed", 1000 * seed, "--quiet", "--json", "--output", how.replace(" ", "-").replace(",", "")], at)
                seconds, k = processor_seconds() - began, result["recommended"]
                V = np.zeros((TYPES, 1)) if k is None else h5py.File(at / result["consensus"]["file"])["V"][:]
                found[how].append((k or 0, cosines(known[:, chosen], V), seconds, drawn))
            if options.beside:
                k, V, seconds = extracted(options, types, counts, at)
                found[BESIDE].append((k, cosines(known[:, chosen], V), seconds, drawn))
            if seed >= options.refits:
                continue
            np.savez(at / "known.npz", U=np.ones((1, known.shape[1])), V=known, algo="kl-mu")
            planted = np.zeros((options.samples, known.shape[1]), bool)
            planted[:, chosen] = exposures >= SHARE * exposures.sum(axis=1, keepdims=True)
            for name in refits:
                began = processor_seconds()
                words = name.split() if name.startswith("--") else []
                run([binary, "project", "known.npz", "--input", "counts.npy", *words, "--quiet", "--json", "--output", "u.npz"], at)
                seconds = processor_seconds() - began
                weights = np.load(at / "u.npz")["U"]
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
