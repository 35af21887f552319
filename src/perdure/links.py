"""Links that answer one approval: who has one may answer, as the person it was made for. Nothing of them is stored.

A link carries what it is for and a signature of that (HMAC with SHA-256), made with a secret of the app. It names one
approval, so it is used up with it: the first decision closes the approval for all. Of several secrets the first signs,
and all are good: so a secret can be replaced while links of the old one are under way.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit, urlunsplit

import msgspec

from perdure.errors import BadLink
from perdure.model import limits
from perdure.model.limits import BadValue

SECRET_VARIABLE: Final = "PERDURE_SECRET"
_parameter: Final = "token"
# What else may once be signed with these secrets must not be taken for a link.
_purpose: Final = b"perdure approval link 1\0"


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a link says."""

    link_id: str
    approval_id: str
    by: str
    choice: str | None
    expires_at: int


_decode_link = msgspec.json.Decoder(Link).decode


class Secrets:
    """What links are signed with; never shown."""

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"Secrets({len(self.keys)})"


def checked_secrets(given: Secrets | str | bytes | Sequence[str | bytes]) -> Secrets:
    """One secret, or several with the newest first."""
    if isinstance(given, Secrets):
        return given
    listed: Any = (given,) if isinstance(given, str | bytes) else given
    if not isinstance(listed, Sequence) or not listed:
        raise BadValue("secret", limits.unsaid, "must be text or bytes, or a list of such")
    return Secrets(tuple(map(_key, listed)))


def _key(secret: Any) -> bytes:
    if not isinstance(secret, str | bytes):
        raise BadValue("secret", limits.unsaid, f"is a {type(secret).__name__}; give str or bytes")
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raise BadValue(
            "secret", limits.unsaid, "holds a lone surrogate, which is no text"
        ) from None
    if len(key) < limits.secret_bytes_min:
        short = f"is {len(key)} bytes; at least {limits.secret_bytes_min} (secret_bytes_min)"
        raise BadValue(
            "secret",
            limits.unsaid,
            f'{short}, such as `python -c "import secrets; print(secrets.token_hex())"` gives',
        )
    return key


# --- making ---


def made_link(secrets: Secrets, link: Link, url: str | None) -> str:
    """The token, or the page at `url` with it."""
    body = _text(msgspec.json.encode(link))
    token = f"{body}.{_signed(secrets.keys[0], body)}"
    return token if url is None else _with_token(url, token)


def _with_token(url: object, token: str) -> str:
    """Another token in it would make it no link: that one gives way."""
    if not isinstance(url, str):
        raise BadValue("url", url, f"is a {type(url).__name__}; give the address of a page")
    try:
        url.encode()
        parts = urlsplit(str.__str__(url).strip())
        asked = [one for one in parts.query.split("&") if one and not _is_token(one)]
        query = "&".join((*asked, urlencode({_parameter: token})))
        link = urlunsplit(parts._replace(query=query))
    except ValueError as error:
        raise BadValue("url", url, f"is no address: {error}") from error
    if len(link) > limits.link_chars_max:
        problem = f"makes a link of {len(link)} characters; at most {limits.link_chars_max}"
        raise BadValue("url", url, f"{problem} (link_chars_max)")
    return link


def _is_token(part: str) -> bool:
    """Whether a part of a query is the token, however it is spelt."""
    return unquote_plus(part.partition("=")[0]) == _parameter


def _signed(key: bytes, body: str) -> str:
    return _text(hmac.new(key, _purpose + body.encode(), hashlib.sha256).digest())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# --- reading ---


def read_link(secrets: Secrets, given: object) -> Link:
    """What a link or its token says; raises BadLink unless a secret of ours has signed just that."""
    token = _token_of(given)
    if not token.isascii():
        raise _bad("is no link that was made here")
    body, _, signed = token.partition(".")
    # All of them, each in constant time: how long it takes tells nothing.
    good = [hmac.compare_digest(_signed(key, body), signed) for key in secrets.keys]
    if not any(good):
        raise _bad("was not signed with a secret of this app, or was changed or cut off on its way")
    try:
        return _decode_link(_raw(body))
    except (ValueError, msgspec.MsgspecError) as error:  # signed by us, by other code than this
        raise _bad("was made by other code than this") from error


def _token_of(given: object) -> str:
    if not isinstance(given, str):
        raise _bad(f"is a {type(given).__name__}; give the link, or its token")
    if len(given) > limits.link_chars_max:
        raise _bad(f"is longer than {limits.link_chars_max} characters (link_chars_max)")
    # Of a template's kind of text too: its methods would escape what they touch.
    link = str.__str__(given).strip()
    if "?" not in link:
        return link
    try:
        found = parse_qs(urlsplit(link).query).get(_parameter, [])
    except ValueError:
        found = []
    if len(found) != 1:
        raise _bad(f"has no {_parameter}=…")
    return found[0]


def _raw(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _bad(problem: str) -> BadLink:
    return BadLink(f"this link {problem}: use it whole and unchanged, or ask for a new one")
