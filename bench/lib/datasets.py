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


SETS = {
    "mnist": Set("mnist/train-images-idx3-ubyte.gz", "MNIST train images, 60000 x 784"),
    "mnist-test": Set("mnist/t10k-images-idx3-ubyte.gz", "MNIST test images, 10000 x 784"),
    "faces": Set("orl_faces/orl_400x10304_u8.npy", "ORL faces (AT&T Laboratories Cambridge), 400 x 10304"),
    "digits": Set("digits/digits_1797x64_u8.npy", "UCI optical digits, 1797 x 64"),
    "kos": Set("kos/kos_3430x6906.mtx.gz", "UCI bag of words: KOS, 3430 x 6906, sparse"),
    "cells": Set("sc_10x_tiny/matrix.mtx.gz", "single-cell counts (scanpy's 10x test data), 507 x 1107, sparse"),
    "mushroom": Set("mushroom/mushroom.dat", "UCI mushroom as FIMI transactions, 8124 x 119", boolean=True),
    "fashion": Set("fashion/train-images-idx3-ubyte.gz", "Fashion MNIST train images, 60000 x 784"),
    "cbcl": Set("cbcl/cbcl_361x2429.npy", "MIT-CBCL faces, one in each column, 361 x 2429"),
    "rcv1": Set("rcv1/rcv1.mtx.gz", "RCV1 documents, 804414 x 47236, sparse"),
    "kos-01": Set("kos/kos_3430x6906.mtx.gz", "KOS, words that occur", (("binarize", "1"),), True),
    "cells-01": Set("sc_10x_tiny/matrix.mtx.gz", "single-cell counts, genes that occur", (("binarize", "1"),), True),
    "mnist-01": Set(
        "mnist/t10k-images-idx3-ubyte.gz", "MNIST test pixels of 128 or more", (("binarize", "128"),), True
    ),
    "digits-01": Set("digits/digits_1797x64_u8.npy", "digits, pixels of 8 or more", (("binarize", "8"),), True),
}


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
