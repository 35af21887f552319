"""The verbs of an App from another machine, over HTTP: same names, arguments, answers and errors.

A call is one line of the table of routes: what it was given is sorted into path, query and body, the answer is read as
the type that the table names, and a problem is raised as the error it tells of. Signals, topics, queues and workflows
may be given as in a program that has the store: payloads are written by their types before they are sent. What could
not be sent is `Unreachable`; a write whose answer was lost is `OutcomeUnknown`: what has a key may be repeated with it.

Needs `perdure[client]`.
"""

from perdure.client.client import Client
from perdure.client.runs import RemoteRun
from perdure.client.synchronous import SyncClient

__all__ = ["Client", "RemoteRun", "SyncClient"]
