"""Where the calls of workflow code stand: a path for each, the same on every replay.

A path is a prefix, a name, and how often the name was used under that prefix. Branches of a gather and scopes that code
opens have prefixes of their own, so what one of them does never renames the calls of another.
"""

from typing import TYPE_CHECKING

from perdure.model import limits
from perdure.model.limits import BadValue

if TYPE_CHECKING:
    from perdure.runtime.turn import Execution

_prefix_bytes_max = limits.path_bytes_max - limits.name_bytes_max


def check_prefix(prefix: str) -> str:
    """Refuse what nests so deep that a name under it would be no path any more."""
    if len(prefix) > _prefix_bytes_max or not prefix.isascii():
        size = len(prefix.encode())
        if size > _prefix_bytes_max:
            bound = f"at most {_prefix_bytes_max} bytes"
            raise BadValue("path", prefix, f"nests too deep: {size} bytes; {bound}")
    return prefix


class Scope:
    """Where paths are allocated: a prefix, and how often each name was used under it."""

    __slots__ = ("chance", "counts", "prefix")

    def enter(self, prefix: str) -> None:
        """Count anew, under this prefix."""
        self.prefix = check_prefix(prefix)
        self.counts: dict[str, int] = {}
        self.chance = 0

    def allocate(self, name: str) -> str:
        nth = self.counts.get(name, 0) + 1
        self.counts[name] = nth
        return f"{self.prefix}{name}" if nth == 1 else f"{self.prefix}{name}#{nth}"


class Within:
    """`with ctx.scope(name)`: the branch counts under the name, and goes on outside as before.

    Not a generator of contextlib: that sets the traceback of the error that leaves it, which an error that
    is frozen does not allow.
    """

    __slots__ = ("_branch", "_execution", "_name", "_outer")

    def __init__(self, execution: "Execution", name: str) -> None:
        self._execution = execution
        self._name = name
        self._outer: tuple[str, dict[str, int], int] | None = None

    def __enter__(self) -> None:
        if self._outer is not None:
            raise RuntimeError(f"the scope {self._name!r} is open; call ctx.scope for each `with`")
        self._branch: Scope = self._execution.current_branch()
        path = self._branch.allocate(self._name)
        outer = (self._branch.prefix, self._branch.counts, self._branch.chance)
        self._branch.enter(path + "/")
        self._outer = outer

    def __exit__(self, *error: object) -> None:
        outer, self._outer = self._outer, None
        assert outer is not None
        self._branch.prefix, self._branch.counts, self._branch.chance = outer
