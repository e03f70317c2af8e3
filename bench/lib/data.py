"""The data: public sets below --data, and matrices that are made up here because `synthetic:` has no such kind."""

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
    what: str
    options: tuple = ()  # of fednmf, wherever this set is read
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
    "mnist-01": Set("mnist/t10k-images-idx3-ubyte.gz", "MNIST test pixels of 128 or more", (("binarize", "128"),), True),
    "digits-01": Set("digits/digits_1797x64_u8.npy", "digits, pixels of 8 or more", (("binarize", "8"),), True),
}


@dataclass(frozen=True)
class Made:
    """A matrix that is written to a file first. `kind` names one of the functions below."""

    kind: str
    keys: tuple = ()

    def write(self, folder: Path, seed: int) -> str:
        """The --input for this seed; the file is made where it is not there yet."""
        name = "-".join([self.kind, *(f"{k}{v}" for k, v in self.keys), f"seed{seed}"])
        return KINDS[self.kind](folder / name, random.Random(f"{self.kind} {seed}"), **dict(self.keys))


def made(kind: str, **keys) -> Made:
    return Made(kind, tuple(sorted(keys.items())))


def save(path: Path, rows: list) -> None:
    """Rows of numbers as .npy."""
    shape = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    head = f"{shape:<117}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        for row in rows:
            array.array("d", row).tofile(file)


def blocks(path: Path, rng, clients=10, rows=100, n=200, k=10, noise=0.1, absent=0.0) -> str:
    """Dense blocks at random places, stacked clients x rows: each component on 10 to 30 % of the rows and 5 to 20 % of
    the columns, entries of both factors from U(.5, 1.5), plus the positive part of normal noise. A component is absent
    from a client with probability `absent`. (FNMF's synthetic data.)"""
    file = path.with_name(path.name + ".npy")  # not with_suffix: a name may end in 0.3
    if file.exists():
        return str(file)
    m, data = clients * rows, []
    components = []
    for _ in range(k):
        u = dict.fromkeys(rng.sample(range(m), max(1, round(rng.uniform(0.1, 0.3) * m))), 0.0)
        v = dict.fromkeys(rng.sample(range(n), max(1, rng.randint(n // 20, n // 5))), 0.0)
        u, v = ({i: rng.uniform(0.5, 1.5) for i in sorted(x)} for x in (u, v))
        gone = {c for c in range(clients) if rng.random() < absent}
        components.append(({i: x for i, x in u.items() if i // rows not in gone}, v))
    for i in range(m):
        row = [max(0.0, rng.gauss(0.0, noise)) for _ in range(n)]
        for u, v in components:
            if i in u:
                for j, x in v.items():
                    row[j] += u[i] * x
        data.append(row)
    save(file, data)
    return str(file)


AGENTS = [4, 8, 12, 16, 20, 20, 24, 28, 32, 36]


def spectra(path: Path, rng, m=30, k=5, noise=3.6e-4) -> str:
    """PPDNMF's synthetic data: XY + N(0, noise), X of mean .033 and Y of mean .8 exponential, negatives kept; columns
    split over ten agents that hold 4 to 36 of them, one file each."""
    pattern = f"{path}-{{party}}.npy"
    if Path(pattern.replace("{party}", "9")).exists():
        return pattern
    x = [[rng.expovariate(1 / 0.033) for _ in range(k)] for _ in range(m)]
    y = [[rng.expovariate(1 / 0.8) for _ in range(k)] for _ in range(sum(AGENTS))]
    first = 0
    for party, columns in enumerate(AGENTS):
        own = y[first : first + columns]
        part = [[sum(a * b for a, b in zip(xi, yj)) + rng.gauss(0.0, noise**0.5) for yj in own] for xi in x]
        save(Path(pattern.replace("{party}", str(party))), part)
        first += columns
    return pattern


def images(path: Path, rng, count=1000) -> str:
    """The first digits that are bundled, as .npy of bytes: with --transpose, the columns that parties hold."""
    file = path.with_name(path.name + ".npy")  # not with_suffix: a name may end in 0.3
    whole = BUNDLED.read_bytes()
    head = 10 + int.from_bytes(whole[8:10], "little")
    text = whole[10:head].decode().replace("(1797, 64)", f"({count}, 64)").rstrip()
    file.parent.mkdir(parents=True, exist_ok=True)
    body = whole[head : head + 64 * count]
    file.write_bytes(whole[:10] + f"{text:<{head - 11}}\n".encode() + body)
    return str(file)


KINDS = {"images": images, "blocks": blocks, "spectra": spectra}


def resolve(data, seed: int, folder: Path, scratch: Path, smoke: bool, scaled: bool) -> tuple[str, tuple]:
    """The --input of a run and the options that belong to it. Raises Missing where the set is not there."""
    if isinstance(data, Made):
        return data.write(scratch / "made", seed), ()
    if data.startswith("synthetic:"):
        return f"{data},seed={seed + 1}", ()
    known = SETS[data]
    if smoke:
        return str(BUNDLED), (("binarize", "8"),) if known.boolean and not scaled else ()
    path = folder / known.file if folder else None
    if data in ("digits", "digits-01") and not (path and path.exists()):
        path = BUNDLED
    if not path or not path.exists():
        raise Missing(f"{known.what}: no {known.file} below --data DIR (or FEDNMF_DATA)")
    return str(path), known.options
