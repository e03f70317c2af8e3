"""The summary of a comparison: time per iteration, and time to a target error."""

from statistics import median

from .report import wrap

EXPLANATION = (
    "Seconds are each program's own solver time, without loading and evaluation. The time per iteration is the time "
    "between two evaluations divided by the iterations between them; PLANC and scikit-learn evaluate every iteration, "
    "fednmf 40 times per run, DSANLS in C 8 times. The target is 1.01 times the lowest error that any program reached "
    "on the matrix; times to it are interpolated linearly between evaluations. Each program uses its own "
    "initialisation, with another seed in each round. Ratios pair runs of the same round. `setup.txt` has the machine, "
    "the versions and the command lines, `curves.csv` the histories, thinned to 30 points."
)


def paces(points):
    """Returns the seconds per iteration between consecutive evaluations."""
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:]) if b[0] > a[0]]


def time_to(points, target):
    """Returns the seconds until the error is at most `target`, interpolated linearly; None if it never is."""
    before = None
    for _, seconds, error in points:
        if error <= target:
            if before is None or before[1] <= error:
                return seconds
            return before[0] + (seconds - before[0]) * (before[1] - target) / (before[1] - error)
        before = (seconds, error)
    return None


def by_entry(results):
    """Returns (program, method, precision) -> {round: history}, in the order of first appearance."""
    groups = {}
    for entry, turn, points in results:
        if points:
            groups.setdefault((entry.program, entry.method, entry.precision), {})[turn] = points
    return groups


def spread(values):
    """Formats the median and the range."""
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:.3g}" if len(values) == 1 else f"{middle:.3g} ({low:.3g}–{high:.3g})"


def iteration_speedups(groups):
    """Returns a line per baseline that runs a method of fednmf: the ratio of iteration times in the same round."""
    lines = []
    for (program, method, precision), histories in groups.items():
        ours = groups.get(("fednmf", method, precision))
        if program == "fednmf" or not ours:
            continue
        pairs = [(paces(ours[turn]), paces(points)) for turn, points in histories.items() if turn in ours]
        for name, statistic in (("median", median), ("best", min)):
            ratios = [statistic(theirs) / statistic(own) for own, theirs in pairs if own and theirs]
            if ratios:
                lines.append(
                    f"- `{method}`, {precision}, {name} iteration: fednmf is {spread(ratios)} times as fast as "
                    f"{program}"
                )
    return lines


def times_to_target(groups, target):
    """Returns the seconds to the target in each round, of the entries that reach it in every round."""
    times = {key: [time_to(points, target) for points in histories.values()] for key, histories in groups.items()}
    return {key: seconds for key, seconds in times.items() if None not in seconds}


def target_speedups(times):
    """Returns a line per fednmf method: its time to the target against the fastest baseline of that precision."""
    lines = []
    middle = {key: median(seconds) for key, seconds in times.items()}
    for precision in ("f64", "f32"):
        ours = {key: seconds for key, seconds in middle.items() if key[0] == "fednmf" and key[2] == precision}
        others = {key: seconds for key, seconds in middle.items() if key[0] != "fednmf" and key[2] == precision}
        if not ours or not others:
            continue
        program, method, _ = baseline = min(others, key=others.get)
        for key in sorted(ours, key=ours.get):
            lines.append(
                f"- to the target, {precision}: fednmf `{key[1]}` {ours[key]:.3g} s, {program} `{method}` "
                f"{others[baseline]:.3g} s: {others[baseline] / ours[key]:.2f} times as fast"
            )
    return lines


def case_summary(case, ranks, results, best):
    groups = by_entry(results)
    if not groups:
        return [f"## {case}, {ranks} ranks", "", "No program ran.", ""]
    target = 1.01 * best
    times = times_to_target(groups, target)
    lines = [f"## {case}, {ranks} ranks", "", f"Lowest error of any program: {best:.5f}; target: {target:.5f}.", ""]
    lines += [
        "| program and method | precision | s/iteration, best | median | lowest error | s to the target (range) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key in sorted(groups, key=lambda key: (median(times.get(key, [float("inf")])), key)):
        pace = [p for points in groups[key].values() for p in paces(points)]
        lowest = min(error for points in groups[key].values() for _, _, error in points)
        speed = f"{min(pace):.4f} | {median(pace):.4f}" if pace else "– | –"
        to_target = spread(times[key]) if key in times else "not reached"
        lines.append(f"| {key[0]} `{key[1]}` | {key[2]} | {speed} | {lowest:.5f} | {to_target} |")
    return [*lines, "", *iteration_speedups(groups), *target_speedups(times), ""]


def summary(command, setup, results_by_case):
    """Returns summary.md; `results_by_case` maps (case, ranks) to (entry, round, history) triples."""
    best = {}
    for (case, _), results in results_by_case.items():
        errors = [error for _, _, points in results for _, _, error in points]
        best[case] = min([best.get(case, float("inf")), *errors])
    lines = ["# Comparison with other programs", "", "```sh", command, "```", "", *setup, "", wrap(EXPLANATION), ""]
    for (case, ranks), results in results_by_case.items():
        lines += case_summary(case, ranks, results, best[case])
    return "\n".join(lines)
