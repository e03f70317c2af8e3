"""Matrices for `compare` and `loading`, in the formats of each program."""

import gzip
import os
import struct

import numpy as np

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


def dense_case(_):
    """20000 x 2000, rank 40, 30 % of the entries of each factor positive, 5 % noise, clipped at 0."""
    rng, (m, n, k) = np.random.default_rng(20260101), (20000, 2000, 40)

    def factor(rows):
        size = rng.random((rows, k))
        return size * (rng.random((rows, k)) < 0.3)

    left = factor(m)
    clean = left @ factor(n).T
    noise = rng.standard_normal((m, n))
    return np.maximum(clean + 0.05 * np.sqrt(np.mean(clean * clean)) * noise, 0.0)


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
    return Sparse.from_entries((m, n), places[kept] // n, places[kept] % n, counts[kept])


def mnist_case(data):
    """60000 x 784 pixels of handwritten digits, divided by 255."""
    with gzip.open(find(data, "mnist/train-images-idx3-ubyte.gz")) as file:
        _, images, height, width = struct.unpack(">iiii", file.read(16))
        return np.frombuffer(file.read(), np.uint8).reshape(images, height * width) / 255.0


def kos_case(data):
    """3430 x 6906 word counts of blog entries (UCI bag of words)."""
    with gzip.open(find(data, "kos/kos_3430x6906.mtx.gz"), "rt") as file:
        lines = (line for line in file if not line.startswith("%"))
        m, n, _ = map(int, next(lines).split())
        entries = np.loadtxt(lines)
    return Sparse.from_entries((m, n), entries[:, 0].astype(int) - 1, entries[:, 1].astype(int) - 1, entries[:, 2])


CASES = {"dense": dense_case, "sparse": sparse_case, "mnist": mnist_case, "kos": kos_case}


def find(directory, name):
    path = os.path.join(directory or "", name)
    if not directory or not os.path.exists(path):
        raise SystemExit(f"no {name} in {directory or 'the data directory'}: name the directory with --data")
    return path


class Case:
    """A matrix that is generated once and cached in `work`; each format is written when a program needs it."""

    def __init__(self, name, data, work):
        self.name, self.stem = name, os.path.join(work, name)
        self.native = next((path for path in (self.stem + ".npy", self.stem + ".npz") if os.path.exists(path)), None)
        self._matrix = None
        if self.native is None:
            self._matrix = CASES[name](data)
            self.native = self.stem + (".npz" if isinstance(self._matrix, Sparse) else ".npy")
            write_atomically(self.native, self._write_native)
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

    def planc(self, ranks):
        """Returns the path of PLANC's dense file, or the prefix of its sparse files, one block of rows per rank."""
        if not self.sparse:
            path = self.stem + ".by-columns.f64"
            if not os.path.exists(path):
                write_atomically(path, lambda file: np.asfortranarray(self.matrix).ravel(order="K").tofile(file))
            return path
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


def write_atomically(path, write):
    """Writes a file that appears under its name only when it is complete."""
    with open(path + ".part", "wb") as file:
        write(file)
    os.replace(path + ".part", path)
