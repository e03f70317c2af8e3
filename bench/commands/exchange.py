"""Count what an exact method sends on sparse data, and how even its blocks are, from the pattern of the nonzeros.

    bench/run exchange --data DIR                          16, 64, 256 and 1024 ranks
    bench/run exchange --data DIR --orders                 the grid that is chosen, for other orders of rows and columns
    bench/run exchange --data DIR --only kos --ranks 16 --check

Words are rows of factors times k that the busiest rank sends or receives, whichever is more, in the four exchanges of
an iteration: all of them in the dense exchange, those that blocks touch in the sparse one. Imbalance is the largest
over the mean of the ranks. Blocks have equal numbers of rows and columns, or about equal numbers of nonzeros in each row
and column of blocks, which is how fednmf cuts sparse data (`crates/data/src/layout.rs`). The last grid of a matrix is the one
that fednmf chooses by its nonzeros. No clock is involved. `--orders` sorts rows and columns by their numbers of nonzeros,
or by reverse Cuthill-McKee on the bipartite graph of rows and columns, before they are cut. `--check` compares the bytes
of all ranks, and the grid that is chosen, with runs of fednmf with that many ranks.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from lib.datasets import SETS
from lib.program import ONE_THREAD, add_binary_option, find_binary

K = 50
WORD = 8
# Bytes that a message is worth, as in `crates/methods/src/shared/row_exchange.rs`.
MESSAGE = 8192
POWER_LAW = "synthetic:sparse,law=power,m=20000,n=10000,density=0.001,seed=3"


def mesh():
    """The graph of a mesh of 150 x 150 cells and their four neighbours, row by row."""
    side = 150
    steps = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
    cells = ((y, x, y + dy, x + dx) for y in range(side) for x in range(side) for dy, dx in steps)
    places = [(y * side + x, v * side + u) for y, x, v, u in cells if 0 <= v < side and 0 <= u < side]
    return side * side, side * side, places


def shuffled():
    """The same graph with its cells in random order."""
    m, n, places = mesh()
    name = list(range(m))
    random.Random(1).shuffle(name)
    return m, n, [(name[i], name[j]) for i, j in places]


def social():
    """A graph of 2^14 vertices whose degrees follow a power law (R-MAT, Chakrabarti et al. 2004), both directions."""
    draw = random.Random(1)
    scale, edges = 14, set()
    for _ in range(8 << scale):
        i = j = 0
        for _ in range(scale):
            x = draw.random()
            i, j = 2 * i + (x >= 0.76), 2 * j + (0.57 <= x < 0.76 or x >= 0.95)
        edges |= {(i, j), (j, i)}
    return 1 << scale, 1 << scale, sorted(edges)


CASES = ("kos", "cells", "power law", "mesh", "mesh, shuffled", "R-MAT")
GRAPHS = {"mesh": mesh, "mesh, shuffled": shuffled, "R-MAT": social}


def read(path):
    """Rows, columns and places of the entries of a Matrix Market file."""
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt") as file:
        lines = (line for line in file if not line.startswith("%"))
        m, n, _ = map(int, next(lines).split())
        places = [tuple(int(word) - 1 for word in line.split()[:2]) for line in lines]
    return m, n, places


def write(path, matrix):
    m, n, places = matrix
    with open(path, "w", encoding="ascii") as out:
        out.write(f"%%MatrixMarket matrix coordinate pattern general\n{m} {n} {len(places)}\n")
        out.writelines(f"{i + 1} {j + 1}\n" for i, j in places)


def load(options, name, scratch):
    """The matrix of a case, and a file that has it."""
    path = Path(scratch) / "matrix.mtx"
    if name in SETS:
        path = Path(options.data) / SETS[name].file
    elif name in GRAPHS:
        matrix = GRAPHS[name]()
        write(path, matrix)
        return matrix, path
    else:
        command = [find_binary(options.binary), "generate", POWER_LAW, "--output", path]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return read(path), path


def even(total, parts):
    """The first item of each part, and the end."""
    length, longer = divmod(total, parts)
    return [i * length + min(i, longer) for i in range(parts + 1)]


def balanced(counts, parts):
    """As `even`, for parts of about equal weight: that of `balanced` in `crates/data/src/layout.rs`."""
    own = max(sum(counts) // (4 * max(len(counts), 1)), 1)
    whole = sum(counts) + own * len(counts)
    cuts, weight, i = [0], 0, 0
    for part in range(1, parts + 1):
        goal = whole * part // parts
        while i < len(counts) and weight + (counts[i] + own) // 2 < goal:
            weight += counts[i] + own
            i += 1
        cuts.append(i)
    return [*cuts[:-1], len(counts)]


def places_of(cuts):
    """The part of each item."""
    return [part for part in range(len(cuts) - 1) for _ in range(cuts[part], cuts[part + 1])]


def shapes(ranks):
    """All grids, the one with most rows first."""
    return [(rows, ranks // rows) for rows in range(ranks, 0, -1) if ranks % rows == 0]


def fewest_words(m, n, ranks):
    """The grid that fednmf takes for a dense matrix, from the sizes alone."""
    return min(shapes(ranks), key=lambda shape: (shape[0] - 1) * n + (shape[1] - 1) * m)


def chosen(matrix, ranks):
    """The grid that fednmf chooses by the nonzeros, see `GridChoice` in `crates/methods/src/shared/grid.rs`."""
    found = {shape: count(matrix, shape, True)["price"] for shape in shapes(ranks)}
    usual = fewest_words(*matrix[:2], ranks)
    best = min((shape for shape in found if shape != usual), key=found.get)
    return best if 4 * found[best] < 3 * found[usual] else usual


def imbalance(values):
    return max(values) * len(values) / max(sum(values), 1)


def side(lines, whos, cuts, sharers):
    """One factor: for each entry its line of the matrix, and who needs it of the ranks that share the block of lines.

    Returns rows received and sent by (part, sharer), the pairs that exchange some, and the most that a rank lacks.
    """
    received, sent, pairs, lacks = {}, {}, set(), 0
    if sharers == 1:
        return received, sent, pairs, lacks
    part_of, owner = places_of(cuts), []
    for start, end in zip(cuts, cuts[1:]):
        shares = even(end - start, sharers)
        lacks = max(lacks, end - start - min(b - a for a, b in zip(shares, shares[1:])))
        owner += places_of(shares)
    for key in {line * sharers + who for line, who in zip(lines, whos)}:
        line, who = divmod(key, sharers)
        part, source = part_of[line], owner[line]
        if source != who:
            received[part, who] = received.get((part, who), 0) + 1
            sent[part, source] = sent.get((part, source), 0) + 1
            pairs.add((part, source, who))
    return received, sent, pairs, lacks


def degree(pairs):
    """The most ranks that a rank sends to or receives from."""
    to, by = {}, {}
    for part, sender, receiver in pairs:
        to[part, sender] = to.get((part, sender), 0) + 1
        by[part, receiver] = by.get((part, receiver), 0) + 1
    return max([*to.values(), *by.values()], default=0)


def count(matrix, grid, by_nonzeros):
    """Imbalance and words of a matrix on a grid of ranks."""
    m, n, places = matrix
    pr, pc = grid
    in_rows, in_cols = [0] * m, [0] * n
    of_rows, of_cols = zip(*places)
    for i, times in Counter(of_rows).items():
        in_rows[i] = times
    for j, times in Counter(of_cols).items():
        in_cols[j] = times
    rows = balanced(in_rows, pr) if by_nonzeros else even(m, pr)
    cols = balanced(in_cols, pc) if by_nonzeros else even(n, pc)
    row_part, col_part = places_of(rows), places_of(cols)
    in_part_row, in_part_col = [row_part[i] for i in of_rows], [col_part[j] for j in of_cols]
    in_blocks = Counter(zip(in_part_row, in_part_col))
    nonzeros = [in_blocks[i, j] for i in range(pr) for j in range(pc)]
    of_v, of_u = side(of_cols, in_part_row, cols, pr), side(of_rows, in_part_col, rows, pc)
    found = {
        "nonzeros": imbalance(nonzeros),
        "rows": imbalance([b - a for a, b in zip(rows, rows[1:])]),
        "columns": imbalance([b - a for a, b in zip(cols, cols[1:])]),
        "dense": 0,
        "sparse": 0,
        "chosen": [],
        "total": {},
        # By the exchange of each factor that is chosen.
        "words": 0,
        # A product reads a row for each nonzero.
        "price": max(nonzeros) * K * WORD,
    }
    for name, sharers, (received, sent, pairs, lacks) in (("V", pr, of_v), ("U", pc, of_u)):
        busiest = max([*received.values(), *sent.values()], default=0)
        found["dense"] += 2 * lacks * K if sharers > 1 else 0
        found["sparse"] += 2 * busiest * K
        found[f"messages {name}"] = degree(pairs)
        if sharers > 1:
            dense = lacks * K * WORD + (sharers - 1).bit_length() * MESSAGE
            sparse = busiest * K * WORD + degree(pairs) * MESSAGE
            pays = 4 * sparse < 3 * dense
            found["chosen"].append(f"{name} {'sparse' if pays else 'dense'}")
            found["price"] += sparse if pays else dense
            found["words"] += 2 * (busiest if pays else lacks) * K
        # Sent and received, in a gather and in a sum.
        found["total"][name] = 2 * 2 * sum(received.values()) * K * WORD
    return found


def ledger(options, path, grid):
    """Bytes of a sparse exchange of each factor in an iteration, as fednmf counts them."""
    pr, pc = grid
    line = f"--algo hals -k {K} --init random --max-iters 2 --eval-every 0 --grid {pr}x{pc} --exchange sparse"
    command = [*options.mpirun.split(), "-n", pr * pc, find_binary(options.binary), *line.split(), "--input", path]
    command = [str(word) for word in [*command, "--quiet", "--json"]]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    wire = json.loads(done.stdout)["wire"]
    kinds = {"V": ("gather V", "sum M'U"), "U": ("gather U", "sum M V")}
    return {
        name: sum(row["mpi_bytes"] for row in wire if row["purpose"] in purposes) // 2
        for name, purposes in kinds.items()
    }


def taken(options, path, ranks):
    """The grid that a run of fednmf takes."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace.jsonl"
        line = f"--algo hals -k {K} --init random --max-iters 1 --eval-every 0 --quiet"
        command = [*options.mpirun.split(), "-n", ranks, find_binary(options.binary), *line.split(), "--input", path]
        command = [str(word) for word in [*command, "--trace", trace]]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | ONE_THREAD)
        with trace.open() as lines:
            return json.loads(next(lines))["params"]["grid"]


def grids(matrix, ranks):
    """Rows alone, columns alone, the grid by size and the one that fednmf chooses."""
    m, n, _ = matrix
    best = chosen(matrix, ranks)
    others = [shape for shape in ((ranks, 1), (1, ranks), fewest_words(m, n, ranks)) if shape != best]
    return dict.fromkeys([*others, best])


def by_degree(matrix):
    """Rows and columns in order of their nonzeros, most first."""
    m, n, places = matrix
    of_rows, of_cols = Counter(i for i, _ in places), Counter(j for _, j in places)
    return sorted(range(m), key=lambda i: -of_rows[i]), sorted(range(n), key=lambda j: -of_cols[j])


def cuthill_mckee(matrix):
    """Rows and columns in the order of breadth-first searches from ends of their bipartite graph, neighbours by degree."""
    m, n, places = matrix
    near = [[] for _ in range(m + n)]
    for i, j in places:
        near[i].append(m + j)
        near[m + j].append(i)
    degree_of = [len(all_near) for all_near in near]
    for all_near in near:
        all_near.sort(key=degree_of.__getitem__)

    def end(start):
        seen, level = {start}, [start]
        while True:
            following = [b for a in level for b in near[a] if b not in seen and not seen.add(b)]
            if not following:
                return min(level, key=degree_of.__getitem__)
            level = following

    order, done = [], bytearray(m + n)
    for start in sorted(range(m + n), key=degree_of.__getitem__):
        if done[start]:
            continue
        queue = [end(end(start))]
        done[queue[0]] = 1
        for a in queue:
            for b in near[a]:
                if not done[b]:
                    done[b] = 1
                    queue.append(b)
        order += queue
    order.reverse()
    return [a for a in order if a < m], [a - m for a in order if a >= m]


def reordered(matrix, order):
    if order is None:
        return matrix
    m, n, places = matrix
    rows, cols = order(matrix)
    row_at, col_at = [0] * m, [0] * n
    for place, i in enumerate(rows):
        row_at[i] = place
    for place, j in enumerate(cols):
        col_at[j] = place
    return m, n, [(row_at[i], col_at[j]) for i, j in places]


ORDERS = {"of the file": None, "by nonzeros": by_degree, "Cuthill-McKee": cuthill_mckee}


def compare_orders(name, matrix, ranks_of_runs):
    """Prints, for each order, what the grid that is chosen then sends."""
    for order, function in ORDERS.items():
        again = reordered(matrix, function)
        for ranks in ranks_of_runs:
            grid = chosen(again, ranks)
            found = count(again, grid, True)
            cells = [name, ranks, order, f"{grid[0]}x{grid[1]}", ", ".join(found["chosen"]), f"{found['nonzeros']:.2f}"]
            cells += [found["words"], found["price"]]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run exchange", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--data", metavar="DIR", required=True, help="where the public sets are")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, help="matrices")
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", default=[16, 64, 256, 1024])
    parser.add_argument("--orders", action="store_true", help="compare orders of rows and columns")
    parser.add_argument("--check", action="store_true", help="run fednmf with so many ranks, and compare bytes")
    parser.add_argument("--mpirun", default="mpirun --bind-to none --oversubscribe", help="launcher [%(default)s]")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        if options.orders:
            print("| matrix | ranks | order | grid | exchange | nonzeros | words | bytes with computing |")
            print("| --- | ---: | --- | --- | --- | ---: | ---: | ---: |")
        elif options.check:
            print("| matrix | grid | factor | bytes of the pattern | bytes of the ledger |")
            print("| --- | --- | --- | ---: | ---: |")
        else:
            print("| matrix | ranks | grid | cut by | nonzeros | rows | columns | dense words | sparse words ", end="")
            print("| ratio | most messages V, U | auto |")
            print("| --- | ---: | --- | --- |" + " ---: |" * 7 + " --- |")
        for name in options.only:
            matrix, path = load(options, name, scratch)
            if options.orders:
                compare_orders(name, matrix, options.ranks)
                continue
            for ranks in options.ranks:
                shape = "{}x{}".format(*chosen(matrix, ranks))
                if options.check and taken(options, path, ranks) != shape:
                    sys.exit(f"bench/run exchange: {name} on {ranks} ranks: fednmf does not take {shape}")
                for grid in grids(matrix, ranks):
                    shape = f"{grid[0]}x{grid[1]}"
                    if options.check:
                        computed, counted = count(matrix, grid, True)["total"], ledger(options, path, grid)
                        for factor, size in computed.items():
                            print(f"| {name} | {shape} | {factor} | {size} | {counted[factor]} |", flush=True)
                        if computed != counted:
                            sys.exit(f"bench/run exchange: {name} on {shape}: the ledger counts other bytes")
                        continue
                    for by in ("lines", "nonzeros"):
                        found = count(matrix, grid, by == "nonzeros")
                        ratio = found["dense"] / max(found["sparse"], 1)
                        cells = [name, ranks, shape, by, f"{found['nonzeros']:.2f}", f"{found['rows']:.2f}"]
                        cells += [f"{found['columns']:.2f}", found["dense"], found["sparse"], f"{ratio:.1f}"]
                        cells += [f"{found['messages V']}, {found['messages U']}", ", ".join(found["chosen"])]
                        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
