"""Compare the methods for private columns: error, bytes, rounds, time, and waiting at two latencies.

    bench/run sealed                          2000 x 300, k = 10, three parties, 50 iterations
    bench/run sealed -m 400 -n 60 -k 5 --iterations 10

Three parties with a rank each. Bytes are those that a party sends, from the ledger. Rounds are the exchanges of the
iterations, as `fednmf estimate` predicts them; each waits once for the slowest connection, so waiting is their number
times the latency. Seconds are those of the run on this machine, without such waiting. The noise of --dp is for a column
(secure-hals) or for a party (syn-sd).
"""

import argparse
import json
import os
import shlex
import subprocess
import sys

from lib.program import ONE_THREAD, add_binary_option, find_binary

PARTIES = 3
RISKS = "few-rows,membership,few-values,rare-entries"
METHODS = {
    "mpc-columns": [],
    "secure-hals --secure-sum": ["--accept-risk", RISKS],
    "secure-hals --secure-sum --dp gaussian --epsilon 8": ["--eval-every", "1000000"],
    "syn-sd --secure-sum --dp gaussian --epsilon 8 --clip 0.48": ["--eval-every", "1000000"],
}


def output(words):
    """The JSON that a command prints."""
    words = [str(word) for word in words]
    done = subprocess.run(words, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(words)}\nexited with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def rounds(traffic, iterations, skipped):
    """Exchanges of the iterations: rounds between the computing parties, or one for each sum over all parties."""
    each = [row.get("rounds", row["messages"] // PARTIES) for row in traffic["by_purpose"].values()]
    return sum(each) * iterations - (sum(each) // 2 if skipped else 0)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run sealed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe", help="launcher [%(default)s]")
    parser.add_argument("-m", type=int, default=2000, help="rows [%(default)s]")
    parser.add_argument("-n", type=int, default=300, help="columns [%(default)s]")
    parser.add_argument("-k", type=int, default=10, help="components [%(default)s]")
    parser.add_argument("--iterations", type=int, default=50, metavar="N", help="at most [%(default)s]")
    options = parser.parse_args(argv)
    binary = find_binary(options.binary)
    data = f"synthetic:planted,m={options.m},n={options.n},k={options.k},noise=0.1"
    launch = [*shlex.split(options.mpirun), "-n", PARTIES, binary]
    print("| method | relative error | MB sent by each party | rounds | seconds | waiting at 1 ms | at 30 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for line, more in METHODS.items():
        name, *words = line.split()
        method = ["--algo", name, *words, "-k", options.k, "--parties", PARTIES]
        run = output([*launch, *method, *more, "--input", data, "--max-iters", options.iterations, "--json", "--quiet"])
        # No rate is needed for what is sent.
        shape = ["-m", options.m, "-n", options.n, "--ranks", PARTIES, "--json"]
        traffic = output([binary, "estimate", *method, *shape])["traffic"]
        # The first iteration of mpc-columns updates U only.
        count = rounds(traffic, run["iter"], name == "mpc-columns")
        sent = run["party_bytes"] / 2 / PARTIES / 1e6
        cells = [f"`{line}`", f"{run['rel_error']:.4f}", f"{sent:.1f}", f"{count:,}", f"{run['seconds']:.2f}"]
        print("| " + " | ".join([*cells, f"{count / 1e3:.2f} s", f"{count * 30 / 1e3:.1f} s"]) + " |", flush=True)
