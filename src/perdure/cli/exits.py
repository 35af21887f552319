"""What the process ends with, and which error leads to what. docs/command-line.md has the same table."""

from typing import Final

from perdure.errors import OutcomeUnknown, PerdureError, StoreRefused, Unreachable

OK: Final = 0
REFUSED: Final = 1  # the operation was refused, or failed
USAGE: Final = 2  # the command line itself is wrong; nothing was asked
NOT_FOUND: Final = 3
SOME_REFUSED: Final = 4
OUT_OF_REACH: Final = 5
FOUND_SOMETHING: Final = 6  # a check that was to find nothing did
SIGNALLED: Final = 128  # and the number of the signal that ended it at once
INTERRUPTED: Final = 130  # Ctrl-C, but for what runs until then


def code_of(error: BaseException, *, opened: bool) -> int:
    """The exit code of an error. A store that refuses to be opened is one that is out of reach, for whoever asks."""
    if isinstance(error, StoreRefused):
        return OUT_OF_REACH if error.passing or not opened else REFUSED
    if isinstance(error, Unreachable | OutcomeUnknown):
        return OUT_OF_REACH
    if isinstance(error, PerdureError) and isinstance(error, LookupError):
        return NOT_FOUND
    return REFUSED
