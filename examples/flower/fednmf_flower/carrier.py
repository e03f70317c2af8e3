"""A site's end: a process that takes the messages of the site's SuperNode, and carries what they bring.

    PYTHONPATH=examples/flower python -m fednmf_flower.carrier SITE RUNTIME-API

SITE is the directory with join.sh, RUNTIME-API the address of a SuperNode started with `--isolation process`. It
stands in for Flower's `flower-superexec`, which starts a process for each message and takes seconds for it. It runs no
code of the server's: what runs at a site, its owner has installed and written down. It uses parts of Flower that are
not its public interface, hence the version in pyproject.toml.
"""

import json
import sys
import threading
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fednmf_flower.tunnel import InOrder, Tunnel, join

# Seconds between two questions whether there is a message.
POLL = 0.02


def runtime(address: str, *more) -> RuntimeHttpClient:
    """A client of the SuperNode on this machine."""
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *more],
        retry_invoker=make_simple_http_retry_invoker(),
    )


class Site:
    """The owner's directory, and the run of the server whose bytes are carried."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.run = None
        self.tunnel = Tunnel()
        self.brought, self.sent = InOrder(), 0

    def answer(self, client: RuntimeHttpClient) -> None:
        """Takes one message, and replies with what the site has to send."""
        message, context, _, _ = pull_task_input(client)
        if message.metadata.run_id != self.run:
            self.tunnel.abandon()
            self.run, self.tunnel = message.metadata.run_id, Tunnel()
            self.brought, self.sent = InOrder(), 0
            threading.Thread(target=join, args=(self.directory, self.tunnel), daemon=True).start()
        content = message.content["tunnel"]
        for brought in self.brought.take(int(content["number"]), json.loads(str(content["json"]))):
            self.tunnel.bring(brought)
        sent = json.dumps(self.tunnel.send(float(content["hold"])))
        reply = RecordDict({"tunnel": ConfigRecord({"number": self.sent, "json": sent})})
        self.sent += 1
        push_message(client, Message(content=reply, reply_to=message), context)
        push_task_output(client, None, SubStatus.COMPLETED, "")


def main(site: Site, address: str) -> None:
    client = runtime(address)
    question = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        task = client.AcquireTask(question)
        if not task.token:
            time.sleep(POLL)
            continue
        own = runtime(address, RuntimeTokenHttpInterceptor(task.token))
        try:
            site.answer(own)
        finally:
            own.close()


if __name__ == "__main__":
    main(Site(Path(sys.argv[1])), sys.argv[2])
