"""Matrices for `compare` and `loading`, in the formats of each program."""

import gzip
import os
import struct
from dataclasses import dataclass
from typing import Callable

import numpy as np

from .program import ROOT

PRECISIONS = {"f32": np.float32, "f64": np.float64}


class Sparse:
    """A matrix in compressed sparse row format."""

    def __init__(self, shape, starts, columns, values):
        self.shape, self.starts, self.columns, self.values = shape, starts, columns, values

    @staticmethod
    def from_entries(shape, rows, columns, values):
        """Builds the matrix from distinct entries in any order."""
        order = np.lexsort((columns, rows))
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=shape[0]))))
        return Sparse(shape, starts.astype(np.int64), columns[order].astype(np.int32), values[order].astype(float))

    def sum(self):
        return self.values.sum()


@dataclass
class Known:
    """What is known about a matrix: true components (n x k), and classes of its first `labels.size` rows."""

    components: np.ndarray | None = None
    labels: np.ndarray | None = None


def planted(seed, shape, k, noise):
    """Returns a matrix of rank k with noise, clipped at 0, and its right factor.

    30 % of the entries of each factor are positive; `noise` is relative to the root mean square of the product.
    """
    rng, (m, n) = np.random.default_rng(seed), shape

    def factor(rows):
        size = rng.random((rows, k))
        return size * (rng.random((rows, k)) < 0.3)

    left, right = factor(m), factor(n)
    clean = left @ right.T
    deviation = noise * np.sqrt(np.mean(clean * clean))
    return np.maximum(clean + deviation * rng.standard_normal(shape), 0.0), Known(right)


def dense_case(_):
    """20000 x 2000, rank 40, 5 % noise."""
    return planted(20260101, (20000, 2000), 40, 0.05)


def planted_case(_):
    """10000 x 1000, rank 20, 1 % noise."""
    return planted(20260103, (10000, 1000), 20, 0.01)


def sparse_case(_):
    """100000 x 20000 with 4,000,000 word counts: up to three of 40 topics per document, power-law word frequencies."""
    rng, (m, n, topics) = np.random.default_rng(20260102), (100_000, 20_000, 40)
    tokens, stored = 9_000_000, 4_000_000
    common = np.arange(1.0, n + 1.0) ** -0.7
    weight = rng.gamma(0.05, 1.0, (topics, n)) * common[rng.permutation(n)]
    weight = 0.95 * weight / weight.sum(axis=1, keepdims=True) + 0.05 * common / common.sum()
    weight /= weight.sum(axis=1, keepdims=True)
    length = rng.lognormal(0.0, 0.5, m)
    document = rng.choice(m, tokens, p=length / length.sum())
    mixture = rng.integers(0, topics, (m, 3))
    topic = mixture[document, np.searchsorted([0.7, 0.9, 1.0], rng.random(tokens))]
    word = np.empty(tokens, np.int64)
    for t in range(topics):
        of_topic = np.flatnonzero(topic == t)
        word[of_topic] = rng.choice(n, of_topic.size, p=weight[t])
    places, counts = np.unique(document * n + word, return_counts=True)
    kept = rng.permutation(places.size)[:stored]
    return Sparse.from_entries((m, n), places[kept] // n, places[kept] % n, counts[kept]), Known()


def cells(seed, shape, depth):
    """Poisson counts of 12 types of cells with 60 marker genes each, heavy tails, and `depth` counts in a median cell."""
    rng, (m, n), types = np.random.default_rng(seed), shape, 12
    base = rng.gamma(0.3, 1.0, n)
    profile = np.tile(base, (types, 1))
    for markers in profile:
        markers[rng.choice(n, 60, replace=False)] += rng.gamma(0.5, 4.0, 60)
    profile /= profile.sum(axis=1, keepdims=True)
    labels = rng.choice(types, m, p=rng.dirichlet(np.full(types, 3.0)))
    depths = depth * rng.lognormal(0.0, 0.5, (m, 1))
    mixture = 0.85 * profile[labels] + 0.15 * profile[rng.integers(0, types, m)]
    counts = rng.poisson(depths * mixture)
    rows, columns = np.nonzero(counts)
    return Sparse.from_entries(shape, rows, columns, counts[rows, columns]), Known(labels=labels)


def cells_case(_):
    """10000 cells x 1000 genes: Poisson counts of 12 types of cells with 60 marker genes each, heavy tails."""
    return cells(20260104, (10_000, 1000), 150)


def mnist_case(data):
    """60000 x 784 pixels of handwritten digits, divided by 255; the first 10000 rows are clustered."""
    with gzip.open(find(data, "mnist/train-images-idx3-ubyte.gz")) as file:
        _, images, height, width = struct.unpack(">iiii", file.read(16))
        matrix = np.frombuffer(file.read(), np.uint8).reshape(images, height * width) / 255.0
    with gzip.open(find(data, "mnist/train-labels-idx1-ubyte.gz")) as file:
        return matrix, Known(labels=np.frombuffer(file.read(), np.uint8, offset=8)[:10_000])


def from_market(path):
    """Reads a Matrix Market file of entries."""
    with gzip.open(path, "rt") as file:
        lines = (line for line in file if not line.startswith("%"))
        m, n, _ = map(int, next(lines).split())
        entries = np.loadtxt(lines)
    rows, columns = entries[:, 0].astype(int) - 1, entries[:, 1].astype(int) - 1
    return Sparse.from_entries((m, n), rows, columns, entries[:, 2]), Known()


def kos_case(data):
    """3430 x 6906 word counts of blog entries (UCI bag of words)."""
    return from_market(find(data, "kos/kos_3430x6906.mtx.gz"))


def digits_case(data):
    """1797 x 64 pixels of handwritten digits (UCI), 0 to 16. The matrix is bundled, its labels are not."""
    labels = os.path.join(data or "", "digits/target_1797_u8.npy")
    known = Known(labels=np.load(labels)) if os.path.exists(labels) else Known()
    return np.load(ROOT / "tests" / "data" / "digits.npy").astype(float), known


def faces_case(data):
    """400 x 10304 pixels of faces (ORL), divided by 255: ten images of each of 40 persons, in order."""
    pixels = np.load(find(data, "orl_faces/orl_400x10304_u8.npy"))
    return pixels / 255.0, Known(labels=np.repeat(np.arange(40), 10))


def mushroom_case(data):
    """8124 x 119 zeros and ones (UCI mushroom), 23 ones in each row."""
    with open(find(data, "mushroom/mushroom.dat")) as file:
        rows = [np.array(line.split(), int) - 1 for line in file]
    columns = np.concatenate(rows)
    row = np.repeat(np.arange(len(rows)), [items.size for items in rows])
    return Sparse.from_entries((len(rows), int(columns.max()) + 1), row, columns, np.ones(columns.size)), Known()


def genes_case(data):
    """507 genes x 1107 cells: counts of test data of scanpy."""
    return from_market(find(data, "sc_10x_tiny/matrix.mtx.gz"))


def mutations_case(_):
    """500 samples x 96 types of mutations: Poisson counts of 8 signatures, a median of 2000 in a sample."""
    rng = np.random.default_rng(20260105)
    signatures = rng.dirichlet(np.full(96, 0.2), 8)
    exposures = rng.dirichlet(np.full(8, 0.5), 500) * rng.lognormal(np.log(2000), 0.7, (500, 1))
    return rng.poisson(exposures @ signatures).astype(float), Known(signatures.T)


@dataclass
class Source:
    """Generates or reads a matrix from the data directory; `k` is the number of components it is factorised with."""

    make: Callable
    k: int
    losses: tuple = ("frobenius", "kl")


CASES = {
    "dense": Source(dense_case, 40, ("frobenius",)),
    "planted": Source(planted_case, 20, ("frobenius",)),
    "sparse": Source(sparse_case, 40, ("frobenius",)),
    "mnist": Source(mnist_case, 40),
    "kos": Source(kos_case, 40),
    "digits": Source(digits_case, 16),
    "faces": Source(faces_case, 40),
    "cells": Source(cells_case, 20),
    "mushroom": Source(mushroom_case, 20),
    "genes": Source(genes_case, 20, ("kl",)),
    "mutations": Source(mutations_case, 8, ("kl",)),
}


def find(directory, name):
    path = os.path.join(directory or "", name)
    if not directory or not os.path.exists(path):
        raise SystemExit(f"no {name} in {directory or 'the data directory'}: name the directory with --data")
    return path


class Case:
    """A matrix that is generated once and cached in `work`; each format is written when a program needs it."""

    def __init__(self, name, data, work):
        self.name, self.k, self.stem = name, CASES[name].k, os.path.join(work, name)
        self.native = next((path for path in (self.stem + ".npy", self.stem + ".npz") if os.path.exists(path)), None)
        self._matrix = None
        if self.native is None:
            self._matrix, known = CASES[name].make(data)
            write_atomically(self.stem + ".known", lambda file: np.savez(file, **known_arrays(known)))
            self.native = self.stem + (".npz" if isinstance(self._matrix, Sparse) else ".npy")
            write_atomically(self.native, self._write_native)
        with np.load(self.stem + ".known") as file:
            self.known = Known(**file)
        self.sparse = self.native.endswith(".npz")
        self.shape = self.matrix.shape
        self.mean = float(self.matrix.sum()) / (self.shape[0] * self.shape[1])

    @property
    def matrix(self):
        if self._matrix is None and not self.sparse:
            self._matrix = np.load(self.native)
        elif self._matrix is None:
            with np.load(self.native) as file:
                shape = tuple(int(size) for size in file["shape"])
                self._matrix = Sparse(shape, file["indptr"], file["indices"], file["data"])
        return self._matrix

    def release(self):
        """Frees the memory; the matrix is read again if it is needed."""
        self._matrix = None

    def _write_native(self, file):
        x = self._matrix
        if isinstance(x, Sparse):  # the format of scipy.sparse.save_npz
            np.savez(file, format=b"csr", shape=np.array(x.shape), indptr=x.starts, indices=x.columns, data=x.values)
        else:
            np.save(file, x)

    def by_columns(self):
        """Returns the path of the entries of a dense matrix, column by column in f64 without a header."""
        path = self.stem + ".by-columns.f64"
        if not os.path.exists(path):
            write_atomically(path, lambda file: np.asfortranarray(self.matrix).ravel(order="K").tofile(file))
        return path

    def compressed_columns(self):
        """Returns the path of a sparse matrix in CSC: the starts and the rows in i32, the values in f64, no header."""
        path, x = self.stem + ".csc", self.matrix
        if not os.path.exists(path):
            rows = np.repeat(np.arange(x.shape[0]), np.diff(x.starts))
            order = np.argsort(x.columns, kind="stable")
            starts = np.concatenate(([0], np.cumsum(np.bincount(x.columns, minlength=x.shape[1]))))

            def write(file):
                starts.astype(np.int32).tofile(file)
                rows[order].astype(np.int32).tofile(file)
                x.values[order].tofile(file)

            write_atomically(path, write)
        return path

    def planc(self, ranks):
        """Returns the path of PLANC's dense file, or the prefix of its sparse files, one block of rows per rank."""
        if not self.sparse:
            return self.by_columns()
        prefix = f"{self.stem}.blocks-of-{ranks}."
        if os.path.exists(f"{prefix}{ranks - 1}_0"):
            return prefix
        x, last = self.matrix, 0
        for block in range(ranks):
            first, last = last, last + x.shape[0] // ranks + (block < x.shape[0] % ranks)
            entries = slice(x.starts[first], x.starts[last])
            rows = np.repeat(np.arange(last - first), np.diff(x.starts[first : last + 1]))
            table = np.column_stack((rows, x.columns[entries], x.values[entries]))
            table = table[np.lexsort((table[:, 0], table[:, 1]))]
            path = f"{prefix}{block}_0"
            write_atomically(path, lambda file, table=table: np.savetxt(file, table, fmt=["%d", "%d", "%.17g"]))
        return prefix

    def dsanls_c(self, precision):
        """Returns the path of the binary file of the DSANLS reference: kind, shape, row-major entries or CSR."""
        path, number = f"{self.stem}.dsanls.{precision}", PRECISIONS[precision]

        def write(file):
            x = self.matrix
            if self.sparse:
                file.write(struct.pack("<biii", 1, *x.shape, x.values.size))
                x.starts.astype(np.int32).tofile(file)
                x.columns.astype(np.int32).tofile(file)
                x.values.astype(number).tofile(file)
            else:
                file.write(struct.pack("<bii", 0, *x.shape))
                x.astype(number).tofile(file)

        if not os.path.exists(path):
            write_atomically(path, write)
        return path


def known_arrays(known):
    return {name: value for name, value in vars(known).items() if value is not None}


def write_atomically(path, write):
    """Writes a file that appears under its name only when it is complete."""
    with open(path + ".part", "wb") as file:
        write(file)
    os.replace(path + ".part", path)
