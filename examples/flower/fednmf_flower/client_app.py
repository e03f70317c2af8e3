"""What the server would run at a site, had the site's owner left that to it: nothing but this message."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def refuse(message: Message, context: Context) -> Message:
    raise RuntimeError("start the SuperNode with --isolation process, and fednmf_flower/carrier.py beside it")
