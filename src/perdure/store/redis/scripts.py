"""The scripts of lua/, each with what all of them begin with, and by which name the server knows it."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A script, and the name that a server which has seen it knows it by."""

    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of that name."""
    folder = files(__package__).joinpath("lua")
    parts = (folder.joinpath(f"{one}.lua").read_text("utf-8") for one in ("common", name))
    text = "\n".join(parts)
    return Script(text, hashlib.sha1(text.encode()).hexdigest())
