"""Data of the figures: public sets below --data, and generated matrices that `synthetic:` does not offer."""

from __future__ import annotations

import array
import random
from dataclasses import dataclass
from pathlib import Path

from .spec import Missing

BUNDLED = Path(__file__).resolve().parents[2] / "tests" / "data" / "digits.npy"


@dataclass(frozen=True)
class Set:
    file: str  # below --data
    description: str
    options: tuple = ()  # options of fednmf whenever it reads this set
    boolean: bool = False
    source: str = ""  # who distributes it
    prepare: tuple = ()  # commands that make the file of what is distributed
    sha256: str = ""  # of the file that the stored records used, after gunzip


MNIST_SOURCE = "LeCun et al., http://yann.lecun.com/exdb/mnist/"
MOVIELENS = "MovieLens 25M, https://grouplens.org/datasets/movielens/25m/: ratings.csv"
TRIPLES = ("format", "triples")
SETS = {
    "mnist": Set(
        "mnist/train-images-idx3-ubyte.gz",
        "MNIST train images, 60000 x 784",
        source=MNIST_SOURCE,
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "mnist-test": Set(
        "mnist/t10k-images-idx3-ubyte.gz",
        "MNIST test images, 10000 x 784",
        source=MNIST_SOURCE,
        sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "faces": Set(
        "orl_faces/orl_400x10304_u8.npy",
        "ORL faces, 400 x 10304: 400 images of 112 x 92 pixels, one per row, bytes",
        source="AT&T Laboratories Cambridge, The Database of Faces (PGM files)",
        sha256="9996ff9d1a66863b8ad4f1b1f26a696ea718e1a97e07ce02e0f3b4a60a0691e1",
    ),
    "digits": Set(
        "digits/digits_1797x64_u8.npy",
        "UCI optical digits, 1797 x 64",
        source="UCI, CC BY 4.0; bundled as tests/data/digits.npy",
        sha256="06622382efae4888481a982e2eb3ac77ac3e5b64ef0da69168b7943041fbebe0",
    ),
    "kos": Set(
        "kos/kos_3430x6906.mtx.gz",
        "UCI bag of words: KOS, 3430 x 6906, sparse",
        source="https://archive.ics.uci.edu/dataset/164/bag+of+words: docword.kos.txt.gz",
        prepare=(
            "(echo '%%MatrixMarket matrix coordinate integer general'; gzip -dc docword.kos.txt.gz | head -3 | paste "
            "-sd' '; gzip -dc docword.kos.txt.gz | tail -n +4) | gzip >kos_3430x6906.mtx.gz",
        ),
        sha256="3c359132d0cf39e71a12b7e6588b08059c7728019ef705edb6872f28b8575560",
    ),
    "cells": Set(
        "sc_10x_tiny/matrix.mtx.gz",
        "single-cell counts, 507 genes x 1107 cells, sparse",
        source="test data of scanpy, BSD-3; as written by 10x",
        sha256="8aa358d254db9ba21089688e7ade23dc1ddbe9179a3b1ab3f184743429cd07d0",
    ),
    "mushroom": Set(
        "mushroom/mushroom.dat",
        "UCI mushroom as FIMI transactions, items from 1, 8124 x 119",
        boolean=True,
        source="FIMI repository, http://fimi.uantwerpen.be/data/",
        sha256="06206c73983251a9488414c4379a030e836bbeb6fe9eff1b5624a0193a811640",
    ),
    "fashion": Set(
        "fashion/train-images-idx3-ubyte.gz",
        "Fashion MNIST train images, 60000 x 784",
        source="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar": Set(
        "cifar/cifar10_50000x3072.npy",
        "CIFAR-10 train images, 50000 x 3072, one per row, bytes",
        source="https://www.cs.toronto.edu/~kriz/cifar.html (Python version: the arrays `data` of the batches, "
        "stacked)",
    ),
    "cbcl": Set(
        "cbcl/cbcl_361x2429.npy",
        "MIT-CBCL faces (FACE), 361 x 2429: images of 19 x 19 pixels, one per column",
        source="MIT Center for Biological and Computation Learning, face database 1, training set (PGM files)",
    ),
    "boats": Set(
        "boats/boats.npy",
        "BOATS, a video: one frame per column, grey levels",
        source="http://changedetection.net, 2014, dynamicBackground/boats",
    ),
    "gisette": Set(
        "gisette/gisette.txt",
        "GISETTE, one sample per row, 5000 columns",
        source="https://archive.ics.uci.edu/dataset/170/gisette",
        prepare=("cat gisette_train.data gisette_valid.data gisette_test.data >gisette.txt",),
    ),
    "rcv1": Set(
        "rcv1/rcv1.mtx.gz",
        "RCV1-v2 documents x terms, MatrixMarket, sparse",
        source="Lewis et al., http://www.jmlr.org/papers/volume5/lewis04a/ (appendix B.13: lyrl2004_vectors_*.dat, "
        "weighted there)",
        prepare=(
            'cat lyrl2004_vectors_*.dat | awk \'{for (i = 2; i <= NF; i++) {split($i, e, ":"); print NR, e[1], '
            "e[2]}}' >entries",
            "(echo '%%MatrixMarket matrix coordinate real general'; awk '$1 > m {m = $1} $2 > n {n = $2} "
            "END {print m, n, NR}' entries; cat entries) | gzip >rcv1.mtx.gz",
        ),
    ),
    "dblp": Set(
        "dblp/dblp.mtx.gz",
        "DBLP collaborations, adjacency matrix as MatrixMarket, sparse",
        source="https://snap.stanford.edu/data/com-DBLP.html (nodes renumbered without gaps)",
    ),
    "movielens": Set(
        "movielens/ratings.csv", "MovieLens 25M, 162541 users x movies, sparse", (TRIPLES,), source=MOVIELENS
    ),
    "netflix": Set(
        "netflix/ratings.csv",
        "Netflix prize, 480189 users x 17770 movies, sparse",
        (TRIPLES,),
        source="https://archive.org/download/nf_prize_dataset.tar",
        prepare=(
            'for f in mv_*.txt; do awk -F, \'NR == 1 {sub(/:/, ""); m = $0; next} {print $1 "," m "," $2}\' $f; done '
            ">ratings.csv",
        ),
    ),
    "goodreads": Set(
        "goodreads/ratings.csv",
        "Goodreads, 350332 users x 9374 books, sparse: user, book, rating",
        (TRIPLES,),
        source="Kotkov et al. 2022, the Tag Genome Dataset for Books",
    ),
    "tcga": Set(
        "tcga/tcga.npy",
        "TCGA gene expression, 10459 samples x 20530 genes",
        source="National Cancer Institute, The Cancer Genome Atlas (Xena: pan-cancer expression)",
    ),
    "hpa": Set(
        "hpa/hpa.mtx.gz",
        "HPA brain, 76533 cells x 20082 genes, sparse counts",
        source="Human Protein Atlas, https://www.proteinatlas.org",
    ),
    "arxiv": Set(
        "arxiv/arxiv.mtx",
        "arXiv abstracts, 200000 random rows, tf-idf, sparse",
        source="arXiv dataset; counts of lemmatised words without stop words",
        prepare=("fednmf prepare tf-idf counts.mtx --output arxiv.mtx",),
    ),
    # Boolean
    "kos-01": Set("kos/kos_3430x6906.mtx.gz", "KOS, words that occur", (("binarize", "1"),), True),
    "cells-01": Set("sc_10x_tiny/matrix.mtx.gz", "single-cell counts, genes that occur", (("binarize", "1"),), True),
    "mnist-01": Set(
        "mnist/t10k-images-idx3-ubyte.gz", "MNIST test pixels of 128 or more", (("binarize", "128"),), True
    ),
    "digits-01": Set("digits/digits_1797x64_u8.npy", "digits, pixels of 8 or more", (("binarize", "8"),), True),
    "acs-income": Set(
        "acs/income.mtx",
        "ACS income, 1630167 x 998",
        (),
        True,
        source="U.S. Census Bureau by folktables (ACSIncome), https://github.com/socialfoundations/folktables",
        prepare=("fednmf prepare one-hot income.csv --output income.mtx",),
    ),
    "acs-poverty": Set(
        "acs/poverty.mtx",
        "ACS poverty, 3271346 x 836",
        (),
        True,
        source="the same (features recommended for poverty)",
        prepare=("fednmf prepare one-hot poverty.csv --output poverty.mtx",),
    ),
    "cslg-01": Set(
        "arxiv/cslg.mtx.gz",
        "cs.LG abstracts, 145981 x 14570, words that occur",
        (("binarize", "1"),),
        True,
        source="arXiv dataset; counts of lemmatised words without stop words, of 1 per mille of the abstracts or more",
    ),
    "goodreads-01": Set(
        "goodreads/ratings.csv", "Goodreads, ratings of 3.5 or more", (TRIPLES, ("binarize", "3.5")), True
    ),
    "hpa-01": Set("hpa/hpa.mtx.gz", "HPA brain, genes that occur", (("binarize", "1"),), True),
    "movielens-01": Set(
        "movielens/ratings.csv", "MovieLens, ratings of 3.5 or more", (TRIPLES, ("binarize", "3.5")), True
    ),
    "netflix-01": Set("netflix/ratings.csv", "Netflix, ratings of 3.5 or more", (TRIPLES, ("binarize", "3.5")), True),
    "tcga-01": Set(
        "tcga/tcga-01.mtx",
        "TCGA, the upper 5 % of each gene",
        (),
        True,
        source="see tcga",
        prepare=("fednmf prepare quantile tcga.npy --quantile 0.95 --output tcga-01.mtx",),
    ),
}


def describe() -> str:
    """Returns for each file below --data what it is, where it comes from, how it is made, and its checksum."""
    lines = []
    for known in SETS.values():
        if known.source:
            lines.append(f"{known.file}\n    {known.description}\n    source: {known.source}")
            lines += [f"    make:   {command}" for command in known.prepare]
            if known.sha256:
                lines.append(f"    sha256: {known.sha256}" + " (after gunzip)" * known.file.endswith(".gz"))
    return "\n".join(lines)


@dataclass(frozen=True)
class Generated:
    """A matrix that is first written to a file. `kind` names one of the functions below."""

    kind: str
    parameters: tuple = ()

    def write(self, folder: Path, seed: int) -> str:
        """Returns the --input for this seed, generating the file if necessary."""
        name = "-".join([self.kind, *(f"{k}{v}" for k, v in self.parameters), f"seed{seed}"])
        return KINDS[self.kind](folder / name, random.Random(f"{self.kind} {seed}"), **dict(self.parameters))


def generated(kind: str, **parameters) -> Generated:
    return Generated(kind, tuple(sorted(parameters.items())))


def npy(path: Path) -> Path:
    """Appends the suffix; `with_suffix` would cut a name that ends in 0.3."""
    return path.with_name(path.name + ".npy")


def save(path: Path, rows: list) -> None:
    """Writes rows of numbers as .npy."""
    shape = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    head = f"{shape:<117}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        for row in rows:
            array.array("d", row).tofile(file)


def blocks(path: Path, rng, clients=10, rows=100, n=200, k=10, noise=0.1, absent=0.0) -> str:
    """Generates the synthetic data of FNMF: dense blocks at random places, stacked clients x rows.

    Each component covers 10 to 30 % of the rows and 5 to 20 % of the columns, with entries of both factors from
    U(0.5, 1.5). The positive part of normal noise is added. A client lacks a component with probability `absent`.
    """
    file = npy(path)
    if file.exists():
        return str(file)
    m, data, components = clients * rows, [], []
    for _ in range(k):
        u = dict.fromkeys(rng.sample(range(m), max(1, round(rng.uniform(0.1, 0.3) * m))), 0.0)
        v = dict.fromkeys(rng.sample(range(n), max(1, rng.randint(n // 20, n // 5))), 0.0)
        u, v = ({i: rng.uniform(0.5, 1.5) for i in sorted(x)} for x in (u, v))
        lacking = {c for c in range(clients) if rng.random() < absent}
        components.append(({i: x for i, x in u.items() if i // rows not in lacking}, v))
    for i in range(m):
        row = [max(0.0, rng.gauss(0.0, noise)) for _ in range(n)]
        for u, v in components:
            if i in u:
                for j, x in v.items():
                    row[j] += u[i] * x
        data.append(row)
    save(file, data)
    return str(file)


AGENT_COLUMNS = [4, 8, 12, 16, 20, 20, 24, 28, 32, 36]


def spectra(path: Path, rng, m=30, k=5, noise=3.6e-4) -> str:
    """Generates the synthetic data of PPDNMF, one file for each of ten agents with 4 to 36 columns.

    XY + N(0, noise) with exponential entries, of mean 0.033 in X and 0.8 in Y; negative entries are kept.
    """
    pattern = f"{path}-{{party}}.npy"
    if Path(pattern.replace("{party}", "9")).exists():
        return pattern
    x = [[rng.expovariate(1 / 0.033) for _ in range(k)] for _ in range(m)]
    y = [[rng.expovariate(1 / 0.8) for _ in range(k)] for _ in range(sum(AGENT_COLUMNS))]
    first = 0
    for party, columns in enumerate(AGENT_COLUMNS):
        own = y[first : first + columns]
        part = [[sum(a * b for a, b in zip(xi, yj)) + rng.gauss(0.0, noise**0.5) for yj in own] for xi in x]
        save(Path(pattern.replace("{party}", str(party))), part)
        first += columns
    return pattern


def images(path: Path, rng, count=1000) -> str:
    """Extracts the first of the bundled digits, as .npy of bytes."""
    file = npy(path)
    whole = BUNDLED.read_bytes()
    head = 10 + int.from_bytes(whole[8:10], "little")
    text = whole[10:head].decode().replace("(1797, 64)", f"({count}, 64)").rstrip()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(whole[:10] + f"{text:<{head - 11}}\n".encode() + whole[head : head + 64 * count])
    return str(file)


KINDS = {"images": images, "blocks": blocks, "spectra": spectra}


def resolve(data, seed: int, folder: Path, scratch: Path, smoke: bool, scaled: bool) -> tuple[str, tuple]:
    """Returns the --input of a run and the options of its data set.

    A smoke test reads the bundled digits instead of any public set. Raises Missing if the set is not available.
    """
    if isinstance(data, Generated):
        return data.write(scratch / "generated", seed), ()
    if data.startswith("synthetic:"):
        return f"{data},seed={seed + 1}", ()
    known = SETS[data]
    if smoke:
        return str(BUNDLED), (("binarize", "8"),) if known.boolean and not scaled else ()
    path = folder / known.file if folder else None
    if data in ("digits", "digits-01") and not (path and path.exists()):
        path = BUNDLED
    if not path or not path.exists():
        raise Missing(f"{known.description}: no {known.file} below --data DIR (or FEDNMF_DATA)")
    return str(path), known.options
