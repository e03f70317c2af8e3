"""Measure strong and weak scaling on this machine, or tabulate the runs of jobs/scaling.slurm.

    bench/run scaling --ranks 1 2 -- --algo hals --input dense.npy -k 40          strong, on this machine
    bench/run scaling --weak --ranks 1 2 -- --algo dsanls -k 40                   weak, on this machine
    bench/run scaling --table scaling-7/*.json --plot scaling.svg                 from a cluster

Options after -- go to fednmf. Each number of ranks is run --repeats times, and the fastest run counts. Prints CSV:
ranks, seconds per iteration, speedup, efficiency, bytes and messages of all ranks per iteration, and, with --rates
(the JSON output of `fednmf estimate`), the seconds per iteration that `fednmf estimate` predicts.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys

from lib.program import add_binary_option, find_binary


def run(options, ranks, rest):
    """Runs fednmf and returns its summary."""
    words = [
        find_binary(options.binary),
        "--max-iters",
        str(options.iterations),
        "--eval-every",
        "0",
        "--json",
        "--quiet",
    ]
    if options.weak:
        words += ["--input", f"synthetic:planted,m={ranks * options.rows},n={options.cols},k=20"]
    launch = shlex.split(options.mpirun) + ["-n", str(ranks)]
    done = subprocess.run(launch + words + rest, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"fednmf exited with {done.returncode} on {ranks} ranks")
    return json.loads(done.stdout)


def predicted(options, ranks, first):
    """Returns the seconds per iteration that the model predicts, or None without --rates."""
    if not options.rates:
        return None
    m = first["m"] // first["ranks"] * ranks if options.weak else first["m"]
    words = [
        find_binary(options.binary),
        "estimate",
        "--algo",
        first["algo"],
        "-m",
        m,
        "-n",
        first["n"],
        "-k",
        first["k"],
    ]
    words += ["--ranks", ranks, "--rates", options.rates, "--json"]
    if first["nnz"] < first["m"] * first["n"] / 2:
        words += ["--nnz", first["nnz"]]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["seconds"]


def table(summaries, options):
    """Returns a row for each number of ranks, from its fastest run."""
    fastest = {}
    for summary in summaries:
        per_iteration = {
            "seconds": summary["seconds"] / max(summary["iter"], 1),
            "bytes": summary["bytes_sent"] // max(summary["iter"], 1),
            "messages": summary["messages"] // max(summary["iter"], 1),
        }
        row = {**summary, **per_iteration}
        best = fastest.setdefault(row["ranks"], row)
        if row["seconds"] < best["seconds"]:
            fastest[row["ranks"]] = row
    rows = [fastest[ranks] for ranks in sorted(fastest)]
    for row in rows:
        growth = row["ranks"] / rows[0]["ranks"]
        row["speedup"] = rows[0]["seconds"] / row["seconds"] * (growth if options.weak else 1)
        row["efficiency"] = row["speedup"] / growth
        row["predicted"] = predicted(options, row["ranks"], rows[0])
    return rows


def print_csv(rows):
    names = ["ranks", "seconds", "speedup", "efficiency", "bytes", "messages", "predicted"]
    print(",".join(names))
    for row in rows:
        values = [row[name] for name in names]
        print(",".join("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values))


def plot(rows, weak, path):
    """Writes speedup over ranks as SVG, both axes logarithmic, with the ideal dashed."""
    width, height, edge = 480, 360, 56
    lowest, highest = rows[0]["ranks"], max(rows[-1]["ranks"], 2)
    tallest = max(highest / lowest, max(row["speedup"] for row in rows), 2)

    def x(ranks):
        return edge + (width - 2 * edge) * math.log(ranks / lowest) / math.log(max(highest / lowest, 2))

    def y(speedup):
        return height - edge - (height - 2 * edge) * max(math.log(speedup), 0) / math.log(tallest)

    def line(points, style):
        return f'<polyline fill="none" {style} points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'

    def text(a, b, words, anchor="middle"):
        return f'<text x="{a:.1f}" y="{b:.1f}" text-anchor="{anchor}">{words}</text>'

    kind = "weak" if weak else "strong"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(width / 2, 24, f"{rows[0]['algo']}: {kind} scaling, k = {rows[0]['k']}"),
        line([(edge, edge), (edge, height - edge), (width - edge, height - edge)], 'stroke="black"'),
        line([(x(lowest), y(1)), (x(highest), y(highest / lowest))], 'stroke="gray" stroke-dasharray="4"'),
        line([(x(row["ranks"]), y(row["speedup"])) for row in rows], 'stroke="#0066aa" stroke-width="2"'),
        text(width / 2, height - 12, "ranks"),
        text(edge, edge - 10, "speedup (dashed: ideal)", "start"),
    ]
    for row in rows:
        at = x(row["ranks"]), y(row["speedup"])
        parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="#0066aa"/>')
        parts.append(text(at[0], height - edge + 16, row["ranks"]))
        parts.append(text(at[0] + 6, at[1] + 16, f"{row['speedup']:.2f}", "start"))
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join([*parts, "</svg>", ""]))


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--weak", action="store_true", help="rows grow with the ranks")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], metavar="N", help="numbers of ranks [1 2]")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="runs for each number of ranks [%(default)s]"
    )
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="iterations of a run [%(default)s]")
    parser.add_argument("--rows", type=int, default=20000, metavar="N", help="rows per rank, with --weak [%(default)s]")
    parser.add_argument("--cols", type=int, default=5000, metavar="N", help="columns, with --weak [%(default)s]")
    parser.add_argument("--table", nargs="+", metavar="JSON", help="summaries of finished runs, instead of running")
    parser.add_argument("--plot", metavar="SVG", help="also plot the speedup")
    parser.add_argument("--rates", metavar="JSON", help="output of `fednmf estimate --json`; adds a prediction")
    parser.add_argument("--mpirun", default="mpirun --bind-to none", help="launcher with its options [%(default)s]")
    split = argv.index("--") if "--" in argv else len(argv)
    options, rest = parser.parse_args(argv[:split]), argv[split + 1 :]
    if options.table:
        summaries = []
        for path in options.table:
            with open(path, encoding="utf-8") as file:
                summaries.append(json.load(file))
        options.weak = options.weak or any(os.path.basename(path).startswith("weak-") for path in options.table)
    else:
        summaries = [run(options, ranks, rest) for ranks in options.ranks for _ in range(options.repeats)]
    rows = table(summaries, options)
    print_csv(rows)
    if options.plot:
        plot(rows, options.weak, options.plot)
