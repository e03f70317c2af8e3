"""The server's end: connects to the hub whenever a site does, and sends the sites messages that carry the bytes.

It sees what the hub's network sees: TLS between each site and the hub.
"""

import json
import logging
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fednmf_flower.tunnel import HubEnd, InOrder

app = ServerApp()
log = logging.getLogger("flwr")


# Messages under way to a site. A SuperNode that finds none waiting sleeps for three seconds.
AHEAD = 2


class Site:
    """The messages of one site."""

    def __init__(self, node: int, hub: str):
        self.node = node
        self.end = HubEnd(hub)
        self.replies = InOrder()
        self.made, self.under_way = 0, 0

    def message(self, hold: float) -> Message:
        """The next one, with what the hub has for the site."""
        tunnel = {"number": self.made, "hold": hold, "json": json.dumps(self.end.bring())}
        self.made += 1
        self.under_way += 1
        content = RecordDict({"tunnel": ConfigRecord(tunnel)})
        return Message(content=content, message_type="query", dst_node_id=self.node)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    while len(nodes := list(grid.get_node_ids())) < int(config["sites"]):
        log.info("fednmf: %d of %d sites are connected", len(nodes), int(config["sites"]))
        time.sleep(2)
    sites = {node: Site(node, str(config["hub"])) for node in nodes}
    of_message: dict[str, Site] = {}
    last, messages, carried = time.monotonic(), 0, 0
    while any(site.end.code < 0 for site in sites.values()):
        # No site waits for another one.
        for site in sites.values():
            while site.end.code < 0 and site.under_way < AHEAD:
                (message,) = grid.push_messages([site.message(float(config["hold"]))])
                of_message[message] = site
                messages += 1
        for reply in grid.pull_messages(list(of_message)):
            site = of_message.pop(reply.metadata.reply_to_message_id)
            site.under_way -= 1
            if reply.has_error():
                raise RuntimeError(f"fednmf: node {site.node} cannot carry the connection: {reply.error}")
            content = reply.content["tunnel"]
            for sent in site.replies.take(int(content["number"]), json.loads(str(content["json"]))):
                moved = site.end.take(sent)
                carried += moved
                last = time.monotonic() if moved or site.end.code >= 0 else last
        if time.monotonic() - last > float(config["silence"]):
            raise RuntimeError("fednmf: nothing was sent for too long; see the logs of the sites")
        time.sleep(0.05)
    codes = [site.end.code for site in sites.values()]
    log.info("fednmf: exit codes of the sites %s; %d messages, %d bytes to the hub", codes, messages, carried)
    if any(codes):
        raise RuntimeError(f"fednmf: the sites have ended with exit codes {codes}; see their logs")
