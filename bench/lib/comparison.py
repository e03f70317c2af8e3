"""Results of a comparison: one row per run, and the tables of summary.md and bench/README.md made from the rows."""

import csv
import itertools
from dataclasses import asdict, dataclass, fields
from statistics import median

from .report import wrap

TOLERANCE = 1.01
OURS, OUR_CLASS = "fednmf", "fednmf.NMF"

EXPLANATION = (
    "Seconds are each program's own solver time with its start, without loading and evaluation. The error is the "
    "relative error, or with `--loss kl` the Kullback-Leibler divergence; fednmf.NMF runs with its defaults to its own "
    "end, and its seconds contain its evaluations. The target is 1.01 "
    "times the lowest error that any program reached on the matrix; the time to it is interpolated linearly between "
    "evaluations. The first round runs every program. The other rounds repeat fednmf and the programs that reached "
    "the target in the first one almost as soon as the fastest other one (`--repeat-within`), and give them more "
    "time; if none reached it, the two with the lowest error, and give them three times as long, in the first round "
    "too. Each program uses its own default start, with another seed in each round, except that DSANLS in C starts "
    "at the scale of the data (its own start ignores it and does worse). Programs without MPI run with as many "
    "threads as the others have ranks. PLANC, nmf-rs and RcppML compute in f64 only; nmf-rs, nmf-torch and pyDNMFk "
    "get sparse matrices as dense ones, and are left out where that needs more than 1e8 entries. A ratio is the "
    "time of the fastest other program, by the median over rounds, divided by that of fednmf in the same round: "
    "median (range). Where no other program reached the target, > says how many times as long as fednmf the closest "
    "ran. Recovery is the mean cosine of the known components and those found, matched greedily. ARI is the "
    "adjusted Rand index of k-means on the rows of U (components weighted, rows of norm 1) and the known classes. "
    "Both belong to the last factors of a run. `setup.txt` has the machine, the versions and the command lines, "
    "`results.csv` a line per run, `curves.csv` the histories, thinned to 30 points."
)


@dataclass
class Row:
    """A run.

    Seconds to the target and quality are None where it was not reached or is not known. A run without any evaluation,
    because it failed or exceeded the time limit, has neither times nor errors.
    """

    case: str
    ranks: int
    precision: str
    program: str
    method: str
    round: int
    target: float
    to_target: float | None
    iterations_to_target: float | None
    start: float | None
    pace: float | None
    lowest_error: float | None
    seconds: float | None
    recovery: float | None
    ari: float | None

    @property
    def key(self):
        return self.program, self.method

    @property
    def name(self):
        return self.program if self.method in ("auto", "nmf") else f"{self.program} `{self.method}`"


def paces(points):
    """Returns the seconds per iteration between consecutive evaluations."""
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:]) if b[0] > a[0]]


def reached(points, target):
    """Returns (seconds, iterations) until the error is at most `target`, interpolated linearly; None if it never is."""
    before = None
    for iteration, seconds, error in points:
        if error <= target:
            if before is None or before[2] <= error:
                return seconds, iteration
            part = (before[2] - target) / (before[2] - error)
            return before[1] + (seconds - before[1]) * part, before[0] + (iteration - before[0]) * part
        before = (iteration, seconds, error)
    return None


def rows_of(results_by_case, quality):
    """Returns the rows of all runs.

    `results_by_case` maps (case, ranks, precision) to (entry, round, history) triples, `quality` a key of a run, see
    `compare`, to (recovery, ari).
    """
    best, rows = {}, []
    for (case, _, _), results in results_by_case.items():
        errors = [error for _, _, points in results for _, _, error in points]
        best[case] = min([best.get(case, float("inf")), *errors])
    for (case, ranks, precision), results in results_by_case.items():
        for entry, turn, points in results:
            target = TOLERANCE * best[case]
            measured = [None] * 6
            if points:
                pace = median(paces(points) or [points[0][1] / max(points[0][0], 1)])
                start = max(points[0][1] - points[0][0] * pace, 0.0)
                lowest = min(error for _, _, error in points)
                measured = [*(reached(points, target) or (None, None)), start, pace, lowest, points[-1][1]]
            found = quality.get((case, ranks, entry.key, turn), (None, None))
            rows.append(Row(case, ranks, precision, *entry.key[:2], turn, target, *measured, *found))
    return rows


def write_rows(rows, file):
    """Writes results.csv with four significant digits."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    for row in rows:
        values = asdict(row).values()
        writer.writerow(["" if v is None else f"{v:.5g}" if isinstance(v, float) else v for v in values])


def read_rows(path):
    """Reads results.csv."""
    with open(path, newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    for row in rows:
        row.ranks, row.round = int(row.ranks), int(row.round)
        for field in fields(Row)[6:]:
            text = getattr(row, field.name)
            setattr(row, field.name, float(text) if text else None)
    return rows


def short(value, digits=3):
    """Formats a number without exponents."""
    if value == 0 or value == float("inf"):
        return "0" if value == 0 else "∞"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and value >= 1 else f"{value:.5f}" if "e" in text else text


def spread(values):
    """Formats the median and the range."""
    low, middle, high = min(values), median(values), max(values)
    return short(middle) if len(values) == 1 else f"{short(middle)} ({short(low)}–{short(high)})"


def groups_of(rows):
    """Returns key -> rows of the rounds, in the order of first appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return groups


def is_ours(key):
    """Whether a program and method are fednmf's."""
    return key[0] in (OURS, OUR_CLASS)


@dataclass
class Comparison:
    """fednmf's `auto`, or its Python class, and the fastest other program on a matrix.

    `ratios` are by round: 0 where only the other program reached the target, infinite where only `auto` did. `baseline`
    is None if no other program reached it in most rounds; the closest ran `bound` times as long as `auto` then.
    """

    ours: list
    baseline: list | None
    ratios: list
    bound: float

    @property
    def missed(self):
        """Returns the number of rounds in which `auto` did not reach the target."""
        return sum(row.to_target is None for row in self.ours)

    @property
    def reached(self):
        return median(time(row) for row in self.ours) < float("inf")

    @property
    def ratio(self):
        """Returns the median ratio, a lower bound of it without a baseline."""
        if not self.reached:
            return 0.0
        return median(self.ratios) if self.ratios else self.bound

    def text(self):
        """Formats the ratio."""
        if not self.reached:
            return "not reached"
        text = spread(self.ratios) if self.ratios else f"> {short(self.bound, 2)}"
        return text + f", not reached in {self.missed} of {len(self.ours)} rounds" * (self.missed > 0)


def time(row):
    """Returns the seconds to the target, infinite if it was not reached."""
    return float("inf") if row.to_target is None else row.to_target


def compare_with_baselines(rows, key=(OURS, "auto")):
    """Returns the `Comparison` of the rows of a matrix, a number of ranks and a precision, or None without fednmf."""
    groups = groups_of(rows)
    ours = groups.pop(key, None)
    others = {key: runs for key, runs in groups.items() if not is_ours(key)}
    if not ours or not others:
        return None
    times = {key: median(time(row) for row in runs) for key, runs in others.items() if len(runs) == len(ours)}
    fastest = min(times, key=times.get, default=None)
    baseline = others[fastest] if fastest and times[fastest] < float("inf") else None
    ratios = []
    if baseline:
        theirs = {row.round: time(row) for row in baseline}
        pairs = [(theirs[row.round], time(row)) for row in ours if row.round in theirs]
        ratios = [other / own if own < float("inf") else 0.0 for other, own in pairs if min(other, own) < float("inf")]
    closest = min(times, key=lambda key: min(row.lowest_error or float("inf") for row in others[key]), default=None)
    seconds = [row.seconds for row in others.get(closest, []) if row.seconds is not None]
    return Comparison(ours, baseline, ratios, min(seconds, default=0.0) / median(time(row) for row in ours))


def blocks_of(rows):
    """Returns (case, ranks, precision) -> rows."""
    blocks = {}
    for row in rows:
        blocks.setdefault((row.case, row.ranks, row.precision), []).append(row)
    return blocks


def middle(runs, name):
    """Returns the median over the runs that have a value, or None."""
    values = [value for row in runs if (value := getattr(row, name)) is not None]
    return median(values) if values else None


def breakdown(runs):
    """Describes where the time to the target goes."""
    iterations = round(middle(runs, "iterations_to_target"))
    parts = [f"start {short(middle(runs, 'start'))} s"]
    if iterations:
        parts.append(f"{iterations} iteration{'s' * (iterations > 1)} of {short(middle(runs, 'pace'))} s")
    return f"{runs[0].name} needs {short(middle(runs, 'to_target'))} s ({', '.join(parts)})"


def block_summary(key, rows):
    case, ranks, precision = key
    lines = [f"## {case}, {precision}, {ranks} rank{'s' * (ranks > 1)}", "", f"Target: {rows[0].target:.5f}.", ""]
    lines += [
        "| program and method | s to the target (range) | start, s | iterations | s/iteration | lowest error | "
        "recovery | ARI |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups = groups_of(row for row in rows if row.seconds is not None)

    def order(key):
        return median(map(time, groups[key])), min(row.lowest_error for row in groups[key])

    for key in sorted(groups, key=order):
        runs = groups[key]
        times, iterations = [row.to_target for row in runs], middle(runs, "iterations_to_target")
        missed = times.count(None)
        reached_in = spread(times) if not missed else f"not reached in {spread([row.seconds for row in runs])} s"
        if 0 < missed < len(times):
            reached_in = f"{short(middle(runs, 'to_target'))}, not reached in {missed} of {len(times)} rounds"
        found = [middle(runs, name) for name in ("recovery", "ari")]
        lines.append(
            f"| {runs[0].name} | {reached_in} | {short(middle(runs, 'start'))} | "
            f"{'–' if iterations is None else f'{iterations:.0f}'} | {short(middle(runs, 'pace'))} | "
            f"{min(row.lowest_error for row in runs):.5f} | "
            + " | ".join("–" if value is None else f"{value:.3f}" for value in found)
            + " |"
        )
    lines.append("")
    if failed := list(dict.fromkeys(row.name for row in rows if row.seconds is None)):
        lines += [wrap(f"No evaluation within the time limit of a run: {', '.join(failed)}."), ""]
    result = compare_with_baselines(rows)
    if result and result.baseline and result.reached:
        lines += [wrap(f"{breakdown(result.ours)}; {breakdown(result.baseline)}. Ratio: {result.text()}."), ""]
    elif result:
        lines += [f"Ratio of `auto` to the fastest other program: {result.text()}.", ""]
    return lines


def ratio_table(rows, precision):
    """Returns the lines of a table: seconds of `auto` and of the fastest other program on each matrix."""
    blocks = {key: block for key, block in blocks_of(rows).items() if key[2] == precision}
    ranks = sorted({key[1] for key in blocks})
    head = ["matrix"]
    for r in ranks:
        head += [f"`auto`, {r} rank{'s' * (r > 1)}", "fastest other program", "ratio"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    has_class = any(row.program == OUR_CLASS for row in rows)
    doors = [("", (OURS, "auto")), (f", {OUR_CLASS}", (OUR_CLASS, "nmf"))][: 1 + has_class]
    for case, (door, ours) in itertools.product(dict.fromkeys(key[0] for key in blocks), doors):
        cells = [case + door]
        for r in ranks:
            result = compare_with_baselines(blocks.get((case, r, precision), []), ours)
            if result is None:
                cells += ["–", "–", "–"]
                continue
            own = f"{short(middle(result.ours, 'to_target'))} s" if result.reached else "not reached"
            baseline = result.baseline
            other = f"{short(middle(baseline, 'to_target'))} s, {baseline[0].name}" if baseline else "none"
            cells += [own, other, result.text()]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def quality_table(rows):
    """Returns the lines of a table: recovery or ARI of each program, from its runs in f64 on all numbers of ranks."""
    table, programs = {}, {}
    for row in rows:
        for name in ("recovery", "ari"):
            if getattr(row, name) is not None and row.precision == "f64":
                programs[row.name] = None
                measure = "recovery" if name == "recovery" else "ARI"
                table.setdefault(f"{row.case}, {measure}", {}).setdefault(row.name, []).append(getattr(row, name))
    if not table:
        return []
    lines = ["| program | " + " | ".join(table) + " |", "| --- " * (len(table) + 1) + "|"]
    for program in programs:
        cells = [f"{median(found[program]):.2f}" if program in found else "–" for found in table.values()]
        lines.append(f"| {program} | " + " | ".join(cells) + " |")
    return lines


def tables(rows):
    """Returns the overview: ratios for each precision, then quality."""
    lines = []
    for precision in dict.fromkeys(row.precision for row in rows):
        lines += [f"Seconds to the target in {precision}:", "", *ratio_table(rows, precision), ""]
    if quality := quality_table(rows):
        lines += [
            wrap(
                "Recovery of known components and agreement with known classes (ARI), medians over runs in f64, by the "
                "last factors of a run, which may be unfinished:"
            ),
            "",
        ]
        lines += [*quality, ""]
    return lines


def summary(commands, setup, rows):
    """Returns summary.md; `commands` are the command lines of the comparison, of several for several matrices."""
    lines = ["# Comparison with other programs", "", "```sh", "\n\n".join(commands), "```", ""]
    lines += [*setup, "", wrap(EXPLANATION), ""]
    lines += tables(rows)
    for key, block in blocks_of(rows).items():
        lines += block_summary(key, block)
    return "\n".join(lines)


def shortfalls(rows, factor=3.0):
    """Returns a sentence per matrix, precision and number of ranks where `auto` is not `factor` times as fast."""
    lines = []
    for (case, ranks, precision), block in blocks_of(rows).items():
        result = compare_with_baselines(block)
        if result is None or result.ratio >= factor:
            continue
        where = f"- {case}, {precision}, {ranks} rank{'s' * (ranks > 1)}: "
        errors = [short(row.lowest_error, 4) for row in result.ours if row.to_target is None]
        target, rounds = short(block[0].target, 4), f"{len(errors)} of {len(result.ours)} rounds"
        missed = f"`auto` ended above the target {target} in {rounds}, at {', '.join(errors)}. " if errors else ""
        if not result.reached:
            lines.append(wrap(where + missed))
        elif result.baseline:
            parts = f"{breakdown(result.ours)}; {breakdown(result.baseline)}. "
            lines.append(wrap(f"{where}{short(result.ratio)} times as fast. {parts}{missed}"))
        else:
            longer = f"the closest ran {short(result.bound, 2)} times as long as `auto` took"
            lines.append(wrap(f"{where}no other program reached the target, but {longer}. {missed}"))
    return lines


def stopped_early(rows, factor=3.0):
    """Returns a sentence for each case with programs that ended above the target before `factor` times `auto`'s time.

    Their runs leave open whether they would have been slower than `factor` times `auto`.
    """
    lines = []
    for (case, ranks, precision), block in blocks_of(rows).items():
        result = compare_with_baselines(block)
        if result is None or not result.reached:
            continue
        own, names = median(time(row) for row in result.ours), []
        for (program, _), runs in groups_of(block).items():
            longest = max((row.seconds for row in runs if row.seconds is not None), default=0.0)
            if not is_ours((program, None)) and all(row.to_target is None for row in runs) and longest < factor * own:
                names.append(
                    f"{runs[0].name} ({short(longest / own, 2)})" if longest else f"{runs[0].name} (no result)"
                )
        if names:
            lines.append(wrap(f"- {case}, {precision}, {ranks} rank{'s' * (ranks > 1)}: {', '.join(names)}"))
    return lines


def overview_lines(rows, path):
    """Returns the section of bench/README.md: overview and shortfalls, with a link to the record at `path`."""
    count = max(row.round for row in rows) + 1
    lines = [
        "",
        wrap(
            "Time to 1.01 times the lowest error that any program reached on the matrix. It includes the start, but "
            f"neither loading nor evaluation. Medians of {count} alternating rounds, each program with its default start "
            "and another seed in each round. A ratio is the time of the fastest other program divided by that of `auto`: median "
            f"and range over rounds ([setup, all programs and curves]({path}))."
        ),
        "",
        *tables(rows),
    ]
    if behind := shortfalls(rows):
        lines += ["Where `auto` is not three times as fast as every other program:", "", *behind, ""]
    if early := stopped_early(rows):
        lines += [
            wrap(
                "These runs ended above the target within three times the time of `auto`. The time of the program is "
                "not known (in brackets: how many times as long as `auto` it ran):"
            ),
            "",
            *early,
            "",
        ]
    return lines
