"""What the process ends with, and which error leads to what. docs/command-line.md has the same table."""

from typing import Final

from perdure.errors import (
    BadRequest,
    NotRunning,
    OutcomeUnknown,
    PerdureError,
    ServerFailed,
    StoreRefused,
    Unreachable,
)
from perdure.model.limits import BadValue

OK: Final = 0
REFUSED: Final = 1  # the operation was refused, or failed
USAGE: Final = 2  # the command line itself is wrong; nothing was changed
NOT_FOUND: Final = 3
SOME_REFUSED: Final = 4
OUT_OF_REACH: Final = 5
FOUND_SOMETHING: Final = 6  # a check that was to find nothing did
SIGNALLED: Final = 128  # and the number of the signal that ended it at once
INTERRUPTED: Final = 130  # Ctrl-C, but for what runs until then


# What stands before a server says these of a server that does not answer it.
_gateway: Final = (502, 503, 504)


class NoApp(BadValue):
    """There is no app of that name: the line is wrong, unless the code is still to be written."""


class CodeFailed(BadValue):
    """The code of an app failed while it was imported: the line may be as it should be."""


def code_of(error: BaseException, *, opened: bool) -> int:
    """The exit code of an error. `opened`: a store of ours is open; one that refuses to be, here or behind a server, is
    out of reach for whoever asks.
    """
    match error:
        case StoreRefused():
            return OUT_OF_REACH if error.passing or not opened else REFUSED
        case Unreachable() | OutcomeUnknown() | NotRunning():
            return OUT_OF_REACH
        case BadRequest() | ServerFailed() if error.status in _gateway:
            return OUT_OF_REACH
        case CodeFailed():
            return REFUSED
        case BadValue():
            # An address that the system does not give is well written.
            return OUT_OF_REACH if isinstance(error.__cause__, OSError) else USAGE
        case PerdureError() if isinstance(error, LookupError):
            return NOT_FOUND
        case _:
            return REFUSED
