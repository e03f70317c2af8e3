"""The server's end: connects to the hub whenever a site does, and sends the sites messages that carry the bytes.

It sees what the hub's network sees: TLS between each site and the hub.
"""

import json
import logging
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fednmf_flower.tunnel import HubEnd

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    while len(nodes := list(grid.get_node_ids())) < int(config["sites"]):
        log.info("fednmf: %d of %d sites are connected", len(nodes), int(config["sites"]))
        time.sleep(2)
    sites = {node: HubEnd(str(config["hub"])) for node in nodes}
    waiting: set[str] = set()
    busy: set[int] = set()
    last, messages, carried = time.monotonic(), 0, 0
    while any(site.code < 0 for site in sites.values()):
        # Each site has at most one message at a time, and none waits for another site.
        for node, site in sites.items():
            if site.code < 0 and node not in busy:
                brought = json.dumps({**site.bring(), "hold": float(config["hold"])})
                content = RecordDict({"tunnel": ConfigRecord({"json": brought})})
                message = Message(content=content, message_type="query", dst_node_id=node)
                waiting.update(grid.push_messages([message]))
                busy.add(node)
                messages += 1
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            node = reply.metadata.src_node_id
            busy.discard(node)
            if reply.has_error():
                raise RuntimeError(f"fednmf: node {node} cannot carry the connection: {reply.error}")
            moved = sites[node].take(json.loads(str(reply.content["tunnel"]["json"])))
            carried += moved
            last = time.monotonic() if moved or sites[node].code >= 0 else last
        if time.monotonic() - last > float(config["silence"]):
            raise RuntimeError("fednmf: nothing was sent for too long; see the logs of the sites")
        time.sleep(0.05)
    codes = [site.code for site in sites.values()]
    log.info("fednmf: exit codes of the sites %s; %d messages, %d bytes to the hub", codes, messages, carried)
    if any(codes):
        raise RuntimeError(f"fednmf: the sites have ended with exit codes {codes}; see their logs")
