"""A copy of the file, from one moment, while others write: by SQLite itself, never by copying bytes.

`VACUUM INTO` reads within one snapshot and writes a new, compact database with nothing beside it. Nobody waits for it;
only the log cannot be emptied meanwhile. What it has made is on the disk before anybody is told, and what it could not
finish is taken away again.
"""

import os
import sqlite3

from perdure.errors import StoreRefused
from perdure.store.sqlite import beside, opening


def copy(path: str, target: str) -> int:
    """Copy the database into a new file; gives its size. Raises StoreRefused, and leaves nothing then. Blocks."""
    real = _claimed(path, target)
    try:
        connection = opening.connect(path, synchronous=None)
        try:
            # Of this connection only: what it writes is another file.
            connection.execute("pragma query_only = 0").close()
            connection.execute("vacuum into ?", (real,)).close()
        finally:
            connection.close()
        _keep(real)
        beside.match(real, path)
        return os.path.getsize(real)
    except (sqlite3.Error, OSError) as error:
        os.unlink(real)
        raise StoreRefused(f"the backup to {real} failed: {error}") from error
    except BaseException:
        os.unlink(real)
        raise


def _claimed(path: str, target: str) -> str:
    """Make the file, empty: of two who want the same name one is refused, and nothing is ever written over."""
    real = os.path.realpath(target)
    if real == path:
        raise StoreRefused(f"{real} is the store itself: give the path of a new file")
    try:
        os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreRefused(
            f"{real} exists: a backup is a new file, and nothing is written over"
        ) from None
    except OSError as error:
        raise StoreRefused(f"{real} cannot be made: {error.strerror}") from error
    return real


def _keep(real: str) -> None:
    """The file, and that it is there, survive the power from now on."""
    for one in (real, os.path.dirname(real)):
        try:
            descriptor = os.open(one, os.O_RDONLY)
        except OSError:
            continue  # a system that opens no directories
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
