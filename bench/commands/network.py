"""Run parties as sites (fednmf serve, join) over slow networks, here on one machine.

    bench/run network                                   all methods and networks
    bench/run network --sites 3 --only fnmf --rounds 20

Each site reaches the hub through a relay in this program that delays and paces its bytes: half the round-trip time and the
bandwidth in each direction. Prints a table: seconds, rounds per minute, bytes of all sites by their ledger (party bytes
sent and received), and bytes that passed the relays in both directions. asyn-sd runs on the real clock, so its work and
messages overlap; a round is a turn of each party.
"""

import argparse
import json
import os
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from lib.program import ONE_THREAD, add_binary_option, find_binary

# Round-trip time in seconds, bits per second.
NETWORKS = {
    "loopback": (0, 0),
    "10 ms, 1 Gbit/s": (0.010, 1e9),
    "50 ms, 100 Mbit/s": (0.050, 1e8),
    "150 ms, 10 Mbit/s": (0.150, 1e7),
}

METHODS = {
    "fnmf": "--algo fnmf --update hals",
    "fnmf, masked": "--algo fnmf --update hals --secure-sum",
    "felb-mu": "--algo felb-mu --binarize 0.5",
    "secure-hals": "--algo secure-hals --transpose",
    "syn-sd": "--algo syn-sd --transpose",
    "mpc-columns": "--algo mpc-columns --transpose",
    "syn-ssd-uv": "--algo syn-ssd-uv --transpose",
    "asyn-sd, real clock": "--algo asyn-sd --clock real --transpose",
}

PIECE = 16 << 10


class Relay:
    """Forwards connections to a port, slowly, and counts their bytes."""

    def __init__(self, port, round_trip, bandwidth):
        self.to, self.delay, self.bandwidth = port, round_trip / 2, bandwidth
        self.bytes = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                hub = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            for one in (client, hub):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((client, hub), (hub, client)):
                line = queue.Queue(maxsize=1024)
                threading.Thread(target=self.read, args=(source, line), daemon=True).start()
                threading.Thread(target=self.write, args=(sink, line), daemon=True).start()

    def read(self, source, line):
        free = 0.0
        while True:
            try:
                piece = source.recv(PIECE)
            except OSError:
                piece = b""
            now = time.monotonic()
            free = max(now, free) + (8 * len(piece) / self.bandwidth if self.bandwidth else 0)
            line.put((free + self.delay, piece))
            with self.lock:
                self.bytes += len(piece)
            # The line is busy until then; more waits in the socket.
            time.sleep(max(0.0, free - time.monotonic()))
            if not piece:
                return

    def write(self, sink, line):
        while True:
            due, piece = line.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not piece:
                    return sink.shutdown(socket.SHUT_WR)
                sink.sendall(piece)
            except OSError:
                return None


def start_hub(binary, folder, names):
    keys = folder / "keys"
    log = open(folder / "hub.log", "w+")
    words = [binary, "serve", "--listen", "127.0.0.1:0", "--sites", ",".join(names)]
    words += ["--cert", keys / "hub.pem", "--key", keys / "hub.key", "--ca", keys / "ca.pem"]
    hub = subprocess.Popen(words, stderr=log)
    for _ in range(200):
        time.sleep(0.02)
        if found := re.search(r"127\.0\.0\.1:(\d+)", (folder / "hub.log").read_text()):
            return hub, int(found[1])
    sys.exit("the hub does not start")


def measure(binary, folder, names, words, network):
    """Returns the summary of site 0 and the bytes that passed all relays."""
    hub, port = start_hub(binary, folder, names)
    relays = [Relay(port, *network) for _ in names]
    sites = []
    for site, (name, relay) in enumerate(zip(names, relays)):
        keys = folder / "keys"
        line = [binary, "join", "--hub", f"localhost:{relay.port}", "--input", folder / f"rows-{site}.npy"]
        line += ["--cert", keys / f"{name}.pem", "--key", keys / f"{name}.key", "--ca", keys / "ca.pem"]
        line += [*words, "--no-policy", "--json", "--quiet"]
        pipe = subprocess.PIPE if site == 0 else subprocess.DEVNULL
        sites.append(subprocess.Popen(line, stdout=pipe, env=os.environ | ONE_THREAD))
    summary = sites[0].communicate()[0]
    codes = [one.wait() for one in (*sites, hub)]
    for relay in relays:
        relay.listener.close()
    if any(codes):
        sys.exit(f"{' '.join(words)}: exit codes {codes}\n{(folder / 'hub.log').read_text()}")
    return json.loads(summary), sum(relay.bytes for relay in relays)


def main(words):
    parser = argparse.ArgumentParser(
        prog="bench/run network", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rows", type=int, default=500, help="of each site [500]")
    parser.add_argument("--cols", type=int, default=1000, help="common columns [1000]")
    parser.add_argument("-k", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NETWORK")
    add_binary_option(parser)
    options = parser.parse_args(words)
    binary = find_binary(options.binary)
    names = [f"site-{i}" for i in range(options.sites)]
    print("| method | network | seconds | rounds/min | ledger MB | relays MB |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = [binary, "keygen", folder / "keys", "--sites", ",".join(names), "--hub", "localhost"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        for i in range(options.sites):
            spec = f"planted,m={options.rows},n={options.cols},k={options.k},seed={i}"
            generate = [binary, "generate", spec, "--output", folder / f"rows-{i}.npy"]
            subprocess.run(generate, check=True, capture_output=True)
        for method in options.only:
            turns = options.rounds * (options.sites if method.startswith("asyn") else 1)
            run = [*METHODS[method].split(), "-k", str(options.k), "--max-iters", str(turns), "--eval-every", "0"]
            for network in options.networks:
                summary, passed = measure(binary, folder, names, run, NETWORKS[network])
                seconds, ledger = summary["seconds"], summary["party_bytes"]
                print(
                    f"| {method} | {network} | {seconds:.2f} | {60 * options.rounds / seconds:.0f} "
                    f"| {ledger / 1e6:.2f} | {passed / 1e6:.2f} |",
                    flush=True,
                )
