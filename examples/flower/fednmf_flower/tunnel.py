"""Both ends of a tunnel in messages of a platform: `Tunnel` at a site, `HubEnd` at the server.

`Tunnel` is the proxy (HTTP CONNECT) through which `fednmf join`, started by SITE/join.sh, dials the hub; what it sends
waits until a message fetches it. The bytes are TLS between the site and the hub; for which host they ask does not matter,
since the server's end knows where the hub is, and the hub's certificate says whether it is the right one.
"""

import os
import socket
import subprocess
import threading
import time
from pathlib import Path

# Without a message for so long nobody carries the bytes any more.
ABANDONED = 900.0
# Bytes of a connection that wait; fednmf waits for the rest.
MOST = 16 << 20


class Tunnel:
    """What waits for the next message, and the connections of fednmf."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.connections: dict[int, socket.socket] = {}
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.sent: dict[int, bytearray] = {}
        self.made = 0
        self.code = -1
        self.asked = time.monotonic()

    def serve(self, connection: socket.socket) -> None:
        """A connection of fednmf, from its first byte."""
        head = b""
        while not head.endswith(b"\r\n\r\n") and len(head) < 8192:
            byte = connection.recv(1)
            if not byte:
                return connection.close()
            head += byte
        if not head.startswith(b"CONNECT "):
            connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            return connection.close()
        with self.changed:
            number = self.made
            self.made += 1
            self.connections[number] = connection
            self.sent[number] = bytearray()
            self.opened.append(number)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        while True:
            try:
                part = connection.recv(1 << 16)
            except OSError:
                part = b""
            with self.changed:
                if not part:
                    self.closed.append(number)
                    self.connections.pop(number, None)
                    self.changed.notify_all()
                    return connection.close()
                self.sent[number] += part
                self.changed.notify_all()
                self.changed.wait_for(lambda: len(self.sent.get(number, b"")) < MOST)

    def bring(self, brought: dict) -> None:
        """Hands on what a message has brought, an answer of `HubEnd.bring`."""
        for number, data in brought["parts"]:
            with self.changed:
                connection = self.connections.get(number)
            if connection is not None:
                try:
                    connection.sendall(bytes.fromhex(data))
                except OSError:
                    pass  # Its reader notices.
        for number in brought["closed"]:
            with self.changed:
                connection = self.connections.get(number)
            if connection is not None:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def send(self, hold: float) -> dict:
        """What waits for the hub, after at most `hold` seconds."""
        with self.changed:
            self.asked = time.monotonic()
            something = lambda: self.opened or self.closed or self.code >= 0 or any(self.sent.values())
            self.changed.wait_for(something, timeout=hold)
            parts = [[number, bytes(data).hex()] for number, data in self.sent.items() if data]
            answer = {"opened": self.opened, "parts": parts, "closed": self.closed, "code": self.code}
            self.sent = {number: bytearray() for number in self.connections}
            self.opened, self.closed = [], []
            self.changed.notify_all()
            return answer

    def abandon(self) -> None:
        """Nobody carries the bytes any more: fednmf is to end."""
        with self.changed:
            self.asked = float("-inf")

    def ended(self, code: int) -> None:
        with self.changed:
            # -15, ended by a signal, is no exit code.
            self.code = code if code >= 0 else 128 - code
            self.changed.notify_all()


class HubEnd:
    """The server's end for one site: its connections to the hub, by their numbers."""

    def __init__(self, hub: str):
        host, port = hub.rsplit(":", 1)
        self.hub = (host, int(port))
        self.connections: dict[int, socket.socket] = {}
        self.code = -1

    def take(self, sent: dict) -> int:
        """Hands on what the site has sent, an answer of `Tunnel.send`; returns the number of bytes."""
        for number in sent["opened"]:
            connection = socket.create_connection(self.hub, timeout=10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections[number] = connection
        carried = 0
        for number, data in sent["parts"]:
            carried += len(data) // 2
            if number in self.connections:
                try:
                    self.connections[number].settimeout(10)
                    self.connections[number].sendall(bytes.fromhex(data))
                except OSError:
                    pass  # The hub has closed it, which the next receive tells.
        for number in sent["closed"]:
            if number in self.connections:
                self.connections.pop(number).close()
        self.code = sent["code"]
        return carried

    def bring(self) -> dict:
        """What the hub has for the site."""
        parts, closed = [], []
        for number, connection in list(self.connections.items()):
            received, is_open = b"", True
            connection.setblocking(False)
            try:
                while part := connection.recv(1 << 16):
                    received += part
                is_open = False
            except BlockingIOError:
                pass
            except OSError:
                is_open = False
            if received:
                parts.append([number, received.hex()])
            if not is_open:
                closed.append(number)
                self.connections.pop(number).close()
        return {"parts": parts, "closed": closed}


class InOrder:
    """Gives back in their order what is numbered from 0 and may come in another."""

    def __init__(self) -> None:
        self.next = 0
        self.early: dict[int, dict] = {}

    def take(self, number: int, value: dict) -> list[dict]:
        """Takes one, and returns those whose turn it is."""
        self.early[number] = value
        turn = []
        while self.next in self.early:
            turn.append(self.early.pop(self.next))
            self.next += 1
        return turn


def accept(listener: socket.socket, serve) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def join(site: Path, tunnel: Tunnel) -> None:
    """Runs SITE/join.sh to its end, with the tunnel as its proxy."""
    proxy = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(proxy, tunnel.serve), daemon=True).start()
    environment = {k: v for k, v in os.environ.items() if k.lower() not in ("https_proxy", "no_proxy")}
    environment["https_proxy"] = f"http://127.0.0.1:{proxy.getsockname()[1]}"
    with open(site / "join.log", "ab") as log:
        process = subprocess.Popen(
            ["sh", "join.sh"], cwd=site, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        while process.poll() is None:
            if time.monotonic() - tunnel.asked > ABANDONED:
                process.terminate()
            time.sleep(0.1)
    tunnel.ended(process.returncode)
