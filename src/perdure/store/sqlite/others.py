"""What other connections have committed, as far as the writer can tell from the file alone.

Each batch of whatever process has the next number, so those between the last that we knew and the last in the file are
of others. Who writes without a number (a transaction of a caller's own, or of a program that is not ours) moves
`data_version` and nothing else. Used on the writer's thread.
"""

from typing import NamedTuple


class Seen(NamedTuple):
    """What others have done since it was last asked for."""

    commits: tuple[range, ...] = ()
    unnumbered: bool = False


class Others:
    """Compares what the file says with what we knew."""

    def __init__(self) -> None:
        self._number: int | None = None  # of the last commit that we know of
        self._version: int | None = None
        self._excused = False
        self._commits: list[range] = []
        self._unnumbered = False

    def saw(self, number: int, version: int) -> None:
        """The last commit in the file, and the `data_version` of the writer's connection."""
        moved = version != self._version and not self._excused
        self._version, self._excused = version, False
        if self._number == number:
            self._unnumbered |= moved
        self.saw_number(number)

    def saw_number(self, number: int) -> None:
        """The same, on another connection of ours."""
        if self._number is not None and number > self._number:
            self._commits.append(range(self._number + 1, number + 1))
        self._number = number

    def committed(self, number: int, *, elsewhere: bool = False) -> None:
        """A commit of our own; `elsewhere` than on the writer's connection, which takes it for another's."""
        self._number = number
        self._excused |= elsewhere

    def take(self) -> Seen:
        seen = Seen(tuple(self._commits), self._unnumbered)
        self._commits, self._unnumbered = [], False
        return seen
