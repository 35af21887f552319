"""How gunicorn runs it: four processes that are forked from one which has imported everything.

gunicorn -c python:examples.web.gunicorn_conf examples.web.wsgi:application
"""

from typing import Any

from .shop import app

workers = 4
threads = 8
preload_app = True


def post_worker_init(worker: Any) -> None:
    app.sync.open()


def worker_exit(server: Any, worker: Any) -> None:
    app.sync.close()
