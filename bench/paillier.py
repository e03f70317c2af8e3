#!/usr/bin/env python3
"""CPU time of one matrix entry's exchange between two neighbours, both ways: fednmf beside python-paillier.

    python3 -m venv /tmp/phe && /tmp/phe/bin/pip install phe gmpy2
    /tmp/phe/bin/python bench/paillier.py [--fednmf target/release/fednmf] [--bits 2048 3072]

python-paillier (on gmpy2): encrypt -u, add v and multiply by g on the ciphertext, refresh, decrypt; one ciphertext each.
fednmf: CPU time of two runs of two parties that differ in the number of ADMM iterations only, so that keys, tables,
loading and the start cancel out, over the entries exchanged. Prints one line of CSV for each key length.
"""
import argparse
import json
import os
import random
import subprocess
import time

from phe import paillier, util

M, N, K, PARTIES = 20, 40, 5, 2


def python_paillier(bits, entries=12):
    public, private = paillier.generate_paillier_keypair(n_length=bits)
    own = [random.randrange(-10**6, 10**6) for _ in range(entries)]
    theirs = [random.randrange(-10**6, 10**6) for _ in range(entries)]
    weights = [random.randrange(17_000, 34_000) for _ in range(entries)]
    start = time.process_time()
    sealed = [public.encrypt(-u) for u in own]
    answers = [(c + v) * g for c, v, g in zip(sealed, theirs, weights)]
    for answer in answers:
        answer.obfuscate()
    found = [private.decrypt(answer) for answer in answers]
    seconds = time.process_time() - start
    assert found == [g * (v - u) for u, v, g in zip(own, theirs, weights)]
    return seconds / entries


def children():
    t = os.times()
    return t.children_user + t.children_system


def run(fednmf, bits, admm_iters):
    line = (f"--algo ppdnmf --input synthetic:exponential,m={M},n={N},k={K} -k {K} --parties {PARTIES} --secret-seed 1 "
            f"--max-iters 1 --eval-every 0 --key-bits {bits} --admm-iters {admm_iters} --json --quiet")
    before = children()
    out = subprocess.run([fednmf, *line.split()], check=True, capture_output=True, text=True).stdout
    return children() - before, json.loads(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fednmf", default="target/release/fednmf")
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072])
    args = parser.parse_args()
    if not util.HAVE_GMP:
        raise SystemExit("python-paillier has no gmpy2: the comparison would not be fair")
    print("key_bits,python_paillier_ms,fednmf_ms,ratio,slots")
    for bits in args.bits:
        theirs = min(python_paillier(bits) for _ in range(3))
        # Each of the two parties exchanges every entry with the other.
        few, many = 2, 12
        entries = PARTIES * M * K * (many - few)
        ours, slots = [], 0
        for _ in range(3):
            long, summary = run(args.fednmf, bits, many)
            ours.append((long - run(args.fednmf, bits, few)[0]) / entries)
            slots = summary["params"]["slots"]
        best = min(ours)
        print(f"{bits},{theirs * 1e3:.3f},{best * 1e3:.3f},{theirs / best:.1f},{slots}")


if __name__ == "__main__":
    main()
