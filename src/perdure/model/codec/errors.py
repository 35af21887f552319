"""How payloads fail: the three errors that callers see, and the words they are told in.

`BadHint` comes at registration, `Unencodable` from a value, `BadPayload` from a text; the last two
name the place in it, as `$.lines[3].sku`. `Unfit` never leaves this package. All the other
files stand on this one, so it must never import any of them, nor an engine.
"""

from perdure.model.limits import payload_errors_max, shown
from perdure.model.root import PerdureError

Place = tuple[str | int, ...]


class BadHint(PerdureError, TypeError):
    """A type that payloads cannot have, found at registration: where, and what to use instead."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}" if where else reason)


class Unencodable(PerdureError, ValueError):
    """A value that cannot be stored, or would come back as another: the place in it, and why."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"at {place}: {reason}")


class BadPayload(PerdureError, ValueError):
    """JSON text that does not fit: each of `errors` reads "at $.field: reason"."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors[:payload_errors_max]
        super().__init__("; ".join(self.errors))


class Unfit(Exception):
    """Why a hint has no codec; `codec_for` adds where it was met."""


def place_text(place: Place, root: str = "$") -> str:
    """`$.lines[3].sku`; a key that is not a plain word is quoted."""
    text = root
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if part.isidentifier() else f"[{shown(part)}]"
    return text


def told(error: Exception) -> str:
    """A msgspec error as "at $.place: reason"."""
    text = str(error) or type(error).__name__
    reason, found, place = text.rpartition(" - at `")
    return f"at {place.rstrip('`')}: {reason}" if found else f"at $: {text}"


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
