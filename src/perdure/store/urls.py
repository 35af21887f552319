"""Addresses of stores as they may be shown: in messages, logs and reprs, where no password belongs."""

import re
from typing import Final
from urllib.parse import unquote, urlsplit

_secret_options: Final = frozenset({"password", "sslpassword"})
# In what is no URL at all: everything up to the last @, which may be part of a password.
_credentials = re.compile(r"//.*@")


def without_password(url: str) -> str:
    """A URL with stars in place of passwords, also of those in its options."""
    try:
        parts = urlsplit(url)
        hidden = parts.password is not None
    except ValueError:
        return _credentials.sub("//***@", url)
    # Cut and put together by hand: all else stays as it was written.
    before, mark, query = url.partition("?")
    if hidden:
        user, _, place = parts.netloc.rpartition("@")
        before = before.replace(parts.netloc, f"{user.partition(':')[0]}:***@{place}", 1)
    return before + mark + "&".join(map(_shown, query.split("&")))


def _shown(option: str) -> str:
    name, mark, value = option.partition("=")
    if name in _secret_options:
        return f"{name}=***"
    if "@" in unquote(value):
        # The address of somewhere else.
        return f"{name}{mark}{without_password(unquote(value))}"
    return option
