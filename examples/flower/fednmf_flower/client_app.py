"""A site's end: hands what a message brings to the site's tunnel, and answers with what the site has to send.

Flower may start a process for each message, so the tunnel is a process of its own, which the first message starts. What
it runs, the site's owner has written down: the server cannot choose it.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fednmf_flower import tunnel

app = ClientApp()


@app.query()
def carry(message: Message, context: Context) -> Message:
    site = Path(str(context.node_config["site"]))
    with connect(site) as connection:
        answer = tunnel.ask(connection, json.loads(str(message.content["tunnel"]["json"])))
    content = RecordDict({"tunnel": ConfigRecord({"json": json.dumps(answer)})})
    return Message(content=content, reply_to=message)


def connect(site: Path) -> socket.socket:
    """Connects to the site's tunnel, and starts it if there is none."""
    path = site / tunnel.SOCKET
    started = False
    for _ in range(200):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
        if not started:
            with open(site / "tunnel.log", "ab") as log:
                subprocess.Popen(
                    [sys.executable, tunnel.__file__, str(site)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            started = True
        time.sleep(0.05)
    raise RuntimeError(f"the tunnel of {site} does not start; see {site / 'tunnel.log'}")
