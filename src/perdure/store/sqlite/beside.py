"""Files beside the database: whoever may use it may use them, and nobody else.

SQLite gives its log the mode and the group of the database, whatever the umask of the process that makes it. So do we
with locks, life signs and sockets: a database that is a group's works for the group, and a private one stays private.
Whoever owns a file that is older than a change of the mode mends it at the next opening.
"""

import os
import stat
from contextlib import suppress

_has_modes = hasattr(os, "fchmod")


def match(made: int | str, database: str, *, directory: bool = False) -> None:
    """Give a file (its descriptor, or path) the mode and group of the database, as far as we may."""
    if not _has_modes:
        return
    try:
        of, is_now = os.stat(database), os.stat(made)
    except OSError:
        return  # there is none yet: what SQLite makes then has our own
    mode = stat.S_IMODE(of.st_mode) & 0o666
    if directory:
        mode |= (mode & 0o444) >> 2  # who may read it may enter
    with suppress(OSError):
        if is_now.st_gid != of.st_gid:
            os.chown(made, -1, of.st_gid)
    with suppress(OSError):
        if stat.S_IMODE(is_now.st_mode) != mode:
            os.chmod(made, mode)


def make_directory(path: str, database: str) -> None:
    """A directory for such files; there already is all right."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    match(path, database, directory=True)


def is_trusted(path: str, database: str) -> bool:
    """Whether a directory is one that users of this database have made: a link, or a stranger's, is not.

    In a place where anybody may make files, a stranger could have been first, to hear what is told.
    """
    found, of = os.lstat(path), os.stat(database)
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not _has_modes or found.st_uid in (os.geteuid(), of.st_uid, 0):
        return True
    return bool(of.st_mode & stat.S_IWGRP) and found.st_gid == of.st_gid
