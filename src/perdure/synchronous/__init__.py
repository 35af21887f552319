"""The library for code that may wait: scripts, Flask, Django, threads beside a loop.

Every verb is made of the async one, and nothing is written twice. `bridge` carries a call from a plain thread into an
event loop and waits for what comes of it, and can keep a loop in a thread of its own; `face` makes a blocking method of
each verb; `faces` says which objects there are. What they are to type checkers, `faces.pyi` says, which is written by
`make faces` and never by hand.
"""

from perdure.synchronous.faces import SyncApp, SyncRun

__all__ = ["SyncApp", "SyncRun"]
