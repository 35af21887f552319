"""Whether this process is a fork of one that had something open: loops, threads and connections do not survive that.

The system tells of forks; nobody asks it for each call.
"""

import os


class Forks:
    """How often this process is a fork of one that had this module, and what it has of its parents."""

    count = 0
    # Kept, so that nothing of a parent's is finalized: its files and sockets are shared with it.
    inherited: list[object] = []  # noqa: RUF012 (of the process, as the count is)

    @classmethod
    def add(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Forks.add)
