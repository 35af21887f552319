"""For a server that forks and speaks WSGI, such as gunicorn; how it is run says gunicorn_conf.py.

The module is imported once, before the processes are forked; each of them opens the app for itself, after the fork.
Requests are handled in other threads, which may wait: they use `app.sync`.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from .shop import app, approved, order


def handle(method: str, path: str) -> dict[str, Any]:
    """What `shop.handle` does, in code that may wait."""
    if path == "/":
        return {"process": os.getpid()}
    _, order_id, *verb = path.strip("/").split("/")
    match method, verb:
        case "POST", []:
            app.sync.start(order, order_id, id=order_id)
            return {"process": os.getpid()}
        case "POST", ["approve"]:
            outcome = app.sync.signal(order_id, approved, "ada", key="ada")
            return {"process": os.getpid(), "outcome": type(outcome).__name__}
        case _:
            return {"process": os.getpid(), "result": app.sync.run(order_id).result("20s")}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    found = handle(environ["REQUEST_METHOD"], environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
