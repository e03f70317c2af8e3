"""Find the matrix sizes at which DSANLS overtakes exact HALS.

Runs extrapolated HALS, as `--algo auto` configures it, and DSANLS with a sketch size of --per-component times k on
square matrices: planted ones of rank k with 5 % noise, or, below density 1, random entries in power-law columns.
Prints CSV: size, size over sketch size, density, ranks, and for each method the iterations and seconds to 1.01 times
the lowest error that either reached (empty if not reached) and its seconds per iteration.
"""

import argparse
import shlex

from lib.program import add_binary_option, find_binary, history, run_traced


def time_to(points, target):
    """Returns the CSV cells of the iterations and seconds to the target error."""
    hit = next(((i, s) for i, s, error in points if error <= target), None)
    return [str(hit[0]), f"{hit[1]:.3f}"] if hit else ["", ""]


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run regime", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to core", help="launcher [%(default)s]")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[2000, 4000, 8000],
        metavar="N",
        help="rows and columns [2000 4000 8000]",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], metavar="N", help="numbers of ranks [1 2]")
    parser.add_argument(
        "--density", type=float, nargs="+", default=[1.0], metavar="D", help="shares of stored entries [1]"
    )
    parser.add_argument("-k", type=int, default=20, metavar="K", help="components [%(default)s]")
    parser.add_argument("--per-component", type=int, default=10, metavar="N", help="sketch size over k [%(default)s]")
    parser.add_argument("--precision", default="f32", help="f32 or f64 [%(default)s]")
    parser.add_argument(
        "--iterations", type=int, nargs=2, default=[30, 500], metavar=("HALS", "DSANLS"), help="[30 500]"
    )
    options = parser.parse_args(argv)
    binary, sketch_size = find_binary(options.binary), options.per_component * options.k
    methods = [
        (["hals", "--init", "random", "--inner-sweeps", "auto", "--extrapolation", "restart"], options.iterations[0], 1),
        (["dsanls", "--sketch-size", sketch_size], options.iterations[1], 10),
    ]
    print(
        "size,n/d,density,ranks,hals iterations,hals seconds,hals s/iteration,"
        "dsanls iterations,dsanls seconds,dsanls s/iteration,best error"
    )
    for size in options.sizes:
        for density in options.density:
            kind = f"planted,k={options.k},noise=0.05" if density == 1 else f"sparse,law=power,density={density}"
            common = [
                "-k",
                options.k,
                "--precision",
                options.precision,
                "--input",
                f"synthetic:{kind},m={size},n={size},seed=3",
            ]
            for ranks in options.ranks:
                launch = [*shlex.split(options.mpirun), "-n", ranks, binary]
                histories = [
                    history(
                        run_traced([*launch, "--algo", *algo, *common, "--max-iters", iters, "--eval-every", every])
                    )
                    for algo, iters, every in methods
                ]
                best = min(error for points in histories for _, _, error in points)
                cells = [str(size), f"{size / sketch_size:.3g}", f"{density:g}", str(ranks)]
                for points in histories:
                    cells += time_to(points, 1.01 * best) + [f"{points[-1][1] / points[-1][0]:.4f}"]
                print(",".join([*cells, f"{best:.5f}"]), flush=True)
