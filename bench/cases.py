"""The matrices of the comparison, and the form in which each program wants them. Needs numpy."""
import gzip
import os
import struct

import numpy as np

PRECISIONS = {"f32": np.float32, "f64": np.float64}


class Sparse:
    """A matrix by rows: the CSR arrays."""

    def __init__(self, shape, starts, columns, values):
        self.shape, self.starts, self.columns, self.values = shape, starts, columns, values

    @staticmethod
    def of_entries(shape, rows, columns, values):
        """From distinct entries in any order."""
        order = np.lexsort((columns, rows))
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=shape[0]))))
        return Sparse(shape, starts.astype(np.int64), columns[order].astype(np.int32), values[order].astype(float))

    @property
    def total(self):
        return float(self.values.sum())


def dense_case(_):
    """20000 × 2000 of rank 40, three entries in ten of each factor positive, with 5 % noise, cut off at 0."""
    rng, (m, n, k) = np.random.default_rng(20260101), (20000, 2000, 40)

    def factor(rows):
        size = rng.random((rows, k))
        return size * (rng.random((rows, k)) < 0.3)

    left = factor(m)
    clean = left @ factor(n).T
    noise = rng.standard_normal((m, n))
    return np.maximum(clean + 0.05 * np.sqrt(np.mean(clean * clean)) * noise, 0.0)


def sparse_case(_):
    """100000 × 20000 with 4,000,000 word counts: documents of up to three of 40 topics, words by a power law."""
    rng, (m, n, topics) = np.random.default_rng(20260102), (100_000, 20_000, 40)
    tokens, stored = 9_000_000, 4_000_000
    common = np.arange(1.0, n + 1.0) ** -0.7
    weight = rng.gamma(0.05, 1.0, (topics, n)) * common[rng.permutation(n)]
    weight = 0.95 * weight / weight.sum(axis=1, keepdims=True) + 0.05 * common / common.sum()
    weight /= weight.sum(axis=1, keepdims=True)
    length = rng.lognormal(0.0, 0.5, m)
    document = rng.choice(m, tokens, p=length / length.sum())
    about = rng.integers(0, topics, (m, 3))
    topic = about[document, np.searchsorted([0.7, 0.9, 1.0], rng.random(tokens))]
    word = np.empty(tokens, np.int64)
    for t in range(topics):
        mine = np.flatnonzero(topic == t)
        word[mine] = rng.choice(n, mine.size, p=weight[t])
    places, counts = np.unique(document * n + word, return_counts=True)
    kept = rng.permutation(places.size)[:stored]
    return Sparse.of_entries((m, n), places[kept] // n, places[kept] % n, counts[kept])


def mnist_case(data):
    """60000 × 784 pixels of handwritten digits, divided by 255."""
    with gzip.open(find(data, ["train-images-idx3-ubyte.gz", "mnist/train-images-idx3-ubyte.gz"])) as file:
        _, images, height, width = struct.unpack(">iiii", file.read(16))
        return np.frombuffer(file.read(), np.uint8).reshape(images, height * width) / 255.0


def kos_case(data):
    """3430 × 6906 word counts of blog entries (UCI bag of words), MatrixMarket."""
    with gzip.open(find(data, ["kos_3430x6906.mtx.gz", "kos/kos_3430x6906.mtx.gz"]), "rt") as file:
        lines = (line for line in file if not line.startswith("%"))
        m, n, _ = map(int, next(lines).split())
        table = np.loadtxt(lines)
    return Sparse.of_entries((m, n), table[:, 0].astype(int) - 1, table[:, 1].astype(int) - 1, table[:, 2])


CASES = {"dense": dense_case, "sparse": sparse_case, "mnist": mnist_case, "kos": kos_case}


def find(directory, names):
    for name in names:
        if directory and os.path.exists(os.path.join(directory, name)):
            return os.path.join(directory, name)
    raise SystemExit(f"compare: none of {', '.join(names)} in {directory or 'the data directory'}; give it by --data DIR")


class Case:
    """A matrix, made once and kept in `work`; its files are written when a program asks for them."""

    def __init__(self, name, data, work):
        self.name, self.stem = name, os.path.join(work, name)
        self.native = next((p for p in (self.stem + ".npy", self.stem + ".npz") if os.path.exists(p)), None)
        self._matrix = None
        if self.native is None:
            self._matrix = CASES[name](data)
            self.native = self.stem + (".npz" if isinstance(self._matrix, Sparse) else ".npy")
            self._write(self.native, self._write_native)
        shape, total = self._figures()
        self.shape, self.mean = shape, total / (shape[0] * shape[1])
        self.sparse = self.native.endswith(".npz")

    @property
    def matrix(self):
        if self._matrix is None and self.native.endswith(".npy"):
            self._matrix = np.load(self.native)
        elif self._matrix is None:
            with np.load(self.native) as file:
                shape = tuple(int(x) for x in file["shape"])
                self._matrix = Sparse(shape, file["indptr"], file["indices"], file["data"])
        return self._matrix

    def _figures(self):
        x = self.matrix
        return x.shape, x.total if isinstance(x, Sparse) else float(x.sum())

    def forget(self):
        """Frees the memory; what is needed again is read again."""
        self._matrix = None

    @staticmethod
    def _write(path, write):
        """Whole or not at all."""
        with open(path + ".part", "wb") as file:
            write(file)
        os.replace(path + ".part", path)

    def _write_native(self, file):
        x = self._matrix
        if isinstance(x, Sparse):  # SciPy's form
            np.savez(file, format=b"csr", shape=np.array(x.shape), indptr=x.starts, indices=x.columns, data=x.values)
        else:
            np.save(file, x)

    def planc(self, ranks):
        """PLANC's file, or the common beginning of the names of its files: blocks of rows."""
        if not self.sparse:
            path = self.stem + ".by-columns.f64"
            if not os.path.exists(path):
                self._write(path, lambda file: np.asfortranarray(self.matrix).ravel(order="K").tofile(file))
            return path
        prefix = f"{self.stem}.blocks-of-{ranks}."
        x = self.matrix if not os.path.exists(f"{prefix}{ranks - 1}_0") else None
        for block in range(ranks if x else 0):
            first, last = (sum(x.shape[0] // ranks + (r < x.shape[0] % ranks) for r in range(b)) for b in (block, block + 1))
            entries = slice(x.starts[first], x.starts[last])
            rows = np.repeat(np.arange(last - first), np.diff(x.starts[first : last + 1]))
            table = np.column_stack((rows, x.columns[entries], x.values[entries]))
            table = table[np.lexsort((table[:, 0], table[:, 1]))]
            self._write(f"{prefix}{block}_0", lambda file: np.savetxt(file, table, fmt=["%d", "%d", "%.17g"]))
        return prefix

    def dsanls_c(self, precision):
        """The binary form of the DSANLS reference: kind, shape, then row-major numbers or CSR."""
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
            self._write(path, write)
        return path
