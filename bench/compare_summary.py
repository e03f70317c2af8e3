"""summary.md of a comparison: what an iteration costs, and how long it takes to a good error."""
from statistics import median


def paces(course):
    """Seconds an iteration between one evaluation and the next."""
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(course, course[1:]) if b[0] > a[0]]


def reached(course, goal):
    """Seconds until the error is at most `goal`, on a straight line between evaluations; None if never."""
    before = None
    for _, seconds, error in course:
        if error <= goal:
            if before is None or before[1] <= error:
                return seconds
            return before[0] + (seconds - before[0]) * (before[1] - goal) / (before[1] - error)
        before = (seconds, error)
    return None


def grouped(results):
    """(program, method, precision) -> {round: course}, in the order of their first appearance."""
    groups = {}
    for entry, turn, course in results:
        if course:
            groups.setdefault((entry.program, entry.method, entry.precision), {})[turn] = course
    return groups


def span(values):
    """Median, least and largest."""
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:.3g}" if len(values) == 1 else f"{middle:.3g} ({low:.3g}–{high:.3g})"


def per_iteration(groups):
    """Ratios of the same method in the same round: how many times the rival's iteration takes fednmf's."""
    lines = []
    for (program, method, precision), theirs in groups.items():
        ours = groups.get(("fednmf", method, precision))
        if program == "fednmf" or not ours:
            continue
        for what, of in (("median", median), ("best", min)):
            ratios = [of(paces(theirs[t])) / of(paces(ours[t])) for t in theirs if t in ours and paces(theirs[t]) and paces(ours[t])]
            if ratios:
                lines.append(f"- `{method}`, {precision}, {what} iteration: fednmf {span(ratios)} times as fast as {program}")
    return lines


def times_to(groups, goal):
    """(program, method, precision) -> median seconds to the goal, of groups that reach it in every round."""
    found = {}
    for key, courses in groups.items():
        seconds = [reached(course, goal) for course in courses.values()]
        if None not in seconds:
            found[key] = seconds
    return found


def name(key):
    return f"{key[0]} `{key[1]}`"


def case_summary(case, ranks, results, best):
    groups = grouped(results)
    if not groups:
        return [f"## {case}, {ranks} rank(s)", "", "Nothing ran.", ""]
    goal = 1.01 * best
    to_goal = times_to(groups, goal)
    lines = [f"## {case}, {ranks} rank(s)", "", f"Best error of any program {best:.5f}; the goal is {goal:.5f}.", ""]
    lines += ["| program and method | precision | s an iteration: best | median | least error | s to the goal: median (range) |", "| --- | --- | --- | --- | --- | --- |"]
    for key in sorted(groups, key=lambda key: (median(to_goal[key]) if key in to_goal else float("inf"), key)):
        pace = [p for course in groups[key].values() for p in paces(course)]
        least = min(error for course in groups[key].values() for _, _, error in course)
        to = span(to_goal[key]) if key in to_goal else "not reached"
        speed = f"{min(pace):.4f} | {median(pace):.4f}" if pace else "– | –"
        lines.append(f"| {name(key)} | {key[2]} | {speed} | {least:.5f} | {to} |")
    lines.append("")
    lines += per_iteration(groups)
    for precision in sorted({key[2] for key in groups}, reverse=True):
        ours = {key: median(s) for key, s in to_goal.items() if key[0] == "fednmf" and key[2] == precision}
        theirs = {key: median(s) for key, s in to_goal.items() if key[0] != "fednmf" and key[2] == precision}
        if ours and theirs:
            rival = min(theirs, key=theirs.get)
            for mine in sorted(ours, key=ours.get):
                ratio = theirs[rival] / ours[mine]
                lines.append(f"- to the goal, {precision}: fednmf `{mine[1]}` {ours[mine]:.3g} s, {name(rival)} {theirs[rival]:.3g} s: {ratio:.2f} times as fast")
    return lines + [""]


def summary(setup, found):
    """The text, from what was found for each (case, ranks)."""
    best = {}
    for (case, _), results in found.items():
        errors = [error for _, _, course in results for _, _, error in course]
        best[case] = min([best.get(case, float("inf")), *errors])
    lines = ["# Comparison", "", "```", setup.rstrip(), "```", ""]
    lines += [
        "Seconds are each program's own solver time, without loading and evaluation. An iteration's cost is the time between two "
        "evaluations over the iterations between them (PLANC and scikit-learn: every one; fednmf: 40 a run; DSANLS in C: 8). "
        "The goal is 1.01 times the least error that any program reached on the matrix; times to it are on a straight line "
        "between evaluations. Each program starts as it does by itself, with another seed in each round. "
        "Ratios pair runs of the same round. The commands stand in commands.txt, all evaluations in raw.csv.",
        "",
    ]
    for (case, ranks), results in found.items():
        lines += case_summary(case, ranks, results, best[case])
    return "\n".join(lines)
