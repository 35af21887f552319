"""The command line: `perdure …`. Needs `perdure[cli]`.

Whatever the library's verbs do, from a shell: on a store by its URL, with no code of yours at hand, or on a server over
HTTP. A command is a small function that is handed open verbs and something to write to (`commands/`); how it is found,
opened, told and ended is the same for all of them (`calling`). Nothing of typer or rich is imported before `main`.
"""

import io
import os
import sys

_needed = ("typer", "rich")


def main() -> None:
    """The console script."""
    try:
        from perdure.cli.program import program
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _needed:
            raise
        print(
            f"perdure: the command line needs the extra `cli`: pip install 'perdure[cli]' ({error})",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    _open_streams()
    program(prog_name="perdure")


def _open_streams() -> None:
    """What cannot be written in this locale is escaped, and what was closed before we began takes what it is given."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
