"""Compare the CPU time of encrypted exchanges in fednmf and python-paillier.

Measured is the exchange of one matrix entry between two neighbours, both ways. python-paillier, on gmpy2, encrypts -u,
adds v and multiplies by g on the ciphertext, re-randomises it and decrypts it, with one entry per ciphertext. For
fednmf it is the difference of two runs of two parties that differ only in the number of ADMM iterations, so that keys,
tables, loading and initialisation cancel. Prints CSV: key bits, milliseconds of both, their ratio, entries per
ciphertext.

    python3 -m venv VENV && VENV/bin/pip install phe gmpy2
    VENV/bin/python bench/run paillier
"""

import argparse
import json
import os
import random
import subprocess
import time

from phe import paillier, util

from lib.program import add_binary_option, find_binary

M, N, K, PARTIES = 20, 40, 5, 2
FEW, MANY = 2, 12  # ADMM iterations


def python_paillier(bits, entries=12):
    """Returns the CPU seconds per entry of python-paillier."""
    public, private = paillier.generate_paillier_keypair(n_length=bits)
    own = [random.randrange(-(10**6), 10**6) for _ in range(entries)]
    theirs = [random.randrange(-(10**6), 10**6) for _ in range(entries)]
    weights = [random.randrange(17_000, 34_000) for _ in range(entries)]
    start = time.process_time()
    encrypted = [public.encrypt(-u) for u in own]
    answers = [(c + v) * g for c, v, g in zip(encrypted, theirs, weights)]
    for answer in answers:
        answer.obfuscate()
    decrypted = [private.decrypt(answer) for answer in answers]
    seconds = time.process_time() - start
    assert decrypted == [g * (v - u) for u, v, g in zip(own, theirs, weights)]
    return seconds / entries


def child_seconds():
    times = os.times()
    return times.children_user + times.children_system


def fednmf(binary, bits, admm_iters):
    """Returns the CPU seconds of a run and its summary."""
    command = (
        f"--algo ppdnmf --input synthetic:exponential,m={M},n={N},k={K} -k {K} --parties {PARTIES} --secret-seed 1 "
        f"--max-iters 1 --eval-every 0 --key-bits {bits} --admm-iters {admm_iters} --json --quiet"
    )
    before = child_seconds()
    output = subprocess.run([binary, *command.split()], check=True, capture_output=True, text=True).stdout
    return child_seconds() - before, json.loads(output)


def main(argv):
    parser = argparse.ArgumentParser(
        prog="bench/run paillier", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_binary_option(parser)
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[2048, 3072], metavar="N", help="key lengths [2048 3072]"
    )
    options = parser.parse_args(argv)
    if not util.HAVE_GMP:
        raise SystemExit("python-paillier runs without gmpy2, which slows it down: install gmpy2")
    binary = find_binary(options.binary)
    entries = PARTIES * M * K * (MANY - FEW)  # both parties exchange every entry
    print("key_bits,python_paillier_ms,fednmf_ms,ratio,slots")
    for bits in options.bits:
        baseline = min(python_paillier(bits) for _ in range(3))
        seconds = []
        for _ in range(3):
            long, summary = fednmf(binary, bits, MANY)
            seconds.append((long - fednmf(binary, bits, FEW)[0]) / entries)
        best = min(seconds)
        slots = summary["params"]["slots"]
        print(f"{bits},{baseline * 1e3:.3f},{best * 1e3:.3f},{baseline / best:.1f},{slots}")
