"""Carries the connections of fednmf's sites to their hub in auxiliary messages of NVFlare.

The server sees TLS between each site and the hub. What a site runs is in DIRECTORY/CLIENT/join.sh, which its owner has
written; `tunnel.py` of the Flower example has both ends of the tunnel.
"""

import json
import os
import threading
import time
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tunnel import HubEnd, Tunnel, join

TOPIC = "fednmf.tunnel"
# Seconds that the server waits for bytes of the hub before it answers.
HOLD = 0.1


class Carry(Controller):
    """The server: lets the clients join, and connects them to the hub."""

    def __init__(self, hub: str, sites: int):
        super().__init__()
        self.hub, self.sites = hub, sites
        self.ends: dict[str, HubEnd] = {}
        self.lock = threading.Lock()

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_aux_message_handler(TOPIC, self.carry)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        pass

    def carry(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        name = fl_ctx.get_peer_context().get_identity_name()
        with self.lock:
            end = self.ends.setdefault(name, HubEnd(self.hub))
        end.take(json.loads(request["json"]))
        until = time.monotonic() + HOLD
        while not any((brought := end.bring()).values()) and time.monotonic() < until:
            time.sleep(0.002)
        reply = make_reply(ReturnCode.OK)
        reply["json"] = json.dumps(brought)
        return reply

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        task = Task(name="join", data=Shareable())
        self.broadcast_and_wait(task, fl_ctx, min_responses=self.sites, abort_signal=abort_signal)
        codes = {name: end.code for name, end in self.ends.items()}
        self.log_info(fl_ctx, f"fednmf: exit codes {codes}")
        if any(codes.values()) or len(codes) < self.sites:
            self.system_panic(f"fednmf: the sites have ended with exit codes {codes}; see their join.log", fl_ctx)


class Join(Executor):
    """A client: runs join.sh, whose connections the tunnel takes to the server."""

    def __init__(self, directory: str):
        super().__init__()
        self.directory = os.environ.get("FEDNMF_SITES", directory)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        site = Path(self.directory) / fl_ctx.get_identity_name()
        engine, tunnel = fl_ctx.get_engine(), Tunnel()
        threading.Thread(target=join, args=(site, tunnel), daemon=True).start()
        brought: dict = {"parts": [], "closed": []}
        while not abort_signal.triggered:
            tunnel.bring(brought)
            sent = tunnel.send(hold=0.005)
            request = Shareable()
            request["json"] = json.dumps(sent)
            replies = engine.send_aux_request(None, TOPIC, request, 60.0, fl_ctx)
            reply = next(iter(replies.values()), None)
            if reply is None or reply.get_return_code() != ReturnCode.OK:
                return make_reply(ReturnCode.EXECUTION_EXCEPTION)
            if sent["code"] >= 0:
                return make_reply(ReturnCode.OK)
            brought = json.loads(reply["json"])
        return make_reply(ReturnCode.TASK_ABORTED)
