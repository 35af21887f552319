"""The client, of its parts: runs, signals and approvals; events and queues; what is operated."""

from perdure.client.operating import Operating
from perdure.client.running import Running
from perdure.client.telling import Telling


class Client(Running, Telling, Operating):
    """The verbs of an App over HTTP. Use it as `async with Client(url, token) as client:`."""
