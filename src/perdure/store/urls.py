"""Addresses of stores: their options, and how they are shown in messages, logs and reprs, where no password belongs."""

import re
from urllib.parse import unquote, urlsplit

from perdure.errors import StoreRefused

# In what is no URL at all: everything up to the last @, which may be part of a password.
_credentials = re.compile(r"//.*@")


def without_password(url: str) -> str:
    """A URL with stars in place of passwords, also of those in its options."""
    try:
        parts = urlsplit(url)
        hidden = parts.password is not None
    except ValueError:
        return _credentials.sub("//***@", url)
    if "@" in (parts.path + parts.fragment).partition("?")[0]:
        # A password with a / or # in it, which no parser would take for one.
        return _credentials.sub("//***@", url)
    # Cut and put together by hand: all else stays as it was written.
    before, mark, query = url.partition("?")
    if hidden:
        user, _, place = parts.netloc.rpartition("@")
        before = before.replace(parts.netloc, f"{user.partition(':')[0]}:***@{place}", 1)
    return before + mark + "&".join(map(_shown, query.split("&")))


def flag(url: str, options: dict[str, str], name: str, usual: bool) -> bool:
    """Take an option that is 0 or 1 out of those of a URL. Raises StoreRefused for anything else."""
    value = options.pop(name, None)
    if value is None:
        return usual
    if value not in ("0", "1"):
        raise StoreRefused(f"{without_password(url)}: {name} is 0 or 1, not {value!r}")
    return value == "1"


def _shown(option: str) -> str:
    name, mark, value = option.partition("=")
    if "password" in unquote(name).lower():
        return f"{name}=***"
    if "@" in unquote(value):
        # The address of somewhere else.
        return f"{name}{mark}{without_password(unquote(value))}"
    return option


def is_relaxed(url: str, options: dict[str, str]) -> bool:
    """Take the option `durability` out: whether it accepts that a crash may lose what was acknowledged last."""
    durability = options.pop("durability", "strict")
    if durability not in ("strict", "relaxed"):
        raise StoreRefused(
            f"{without_password(url)}: durability is strict or relaxed, not {durability!r}"
        )
    return durability == "relaxed"
