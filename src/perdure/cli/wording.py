"""The library's words as a person at a shell can follow them.

Errors say what to do next in Python, as most who meet them write Python. Here each such piece of advice has its
counterpart on the command line; facts and JSON are left alone. What is not in the table is told as it is.
"""

from typing import Final

from perdure.errors import BadRequest

ADVICE: Final = (
    (" Decorate it with @app.workflow, or app.add() it", " `perdure workflows` lists all"),
    ("`await app.consumers()`", "`perdure consumers`"),
    ("`await app.subscriptions()`", "`perdure subscriptions`"),
    ("`await app.schedules()`", "`perdure schedules`"),
    ("`await app.approvals()`", "`perdure approvals`"),
    (" with app.decide", " with `perdure approvals decide`"),
    ("`await app.pools()`", "`perdure pools`"),
    (
        "Declare it in code, with @app.workflow(pool=…) or App(pools=[…]), or make it with app.set_pool",
        "`perdure pools set` makes one",
    ),
    ("such as '15m' or a timedelta", "such as '15m'"),
    ("see app.parked()", "`perdure consumers parked` lists those that are"),
    ("that app.approvals() or hitl.requested shows", "that `perdure approvals` shows"),
    (
        "ask one that declares it",
        "name the app that declares it by --app, as in --app shop:app",
    ),
    (
        "older_than None is needed: this app has no keep=",
        "--older-than is needed: no App(keep=…) was named by --app",
    ),
    ("give a timedelta, seconds, or text such as", "give a span such as"),
    ("memory://  sqlite:///path", "http://host  sqlite:///path"),
)
_astray: Final = 404


def for_shell(error: BaseException, words: str) -> str:
    """What an error says, to somebody at a shell."""
    for python, shell in ADVICE:
        words = words.replace(python, shell)
    if isinstance(error, BadRequest) and error.status == _astray:
        words += (
            "; --url names a server with the path that it is mounted under, as in http://host/path"
        )
    return words
