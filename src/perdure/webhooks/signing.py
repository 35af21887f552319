"""Signatures of deliveries: how ours are signed, and the schemes by which those of others are verified.

Standard Webhooks is signed and verified by its reference package. GitHub's and Stripe's schemes are a line each, and
here. All work on the very bytes that travel, compare in constant time, and try all secrets whatever the first one says.
A secret is never shown: not by a repr, not by an error.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import msgspec

from perdure.errors import WebhooksUnavailable
from perdure.links import Secrets
from perdure.model import limits
from perdure.model.clock import to_datetime
from perdure.model.limits import BadValue, unsaid

Scheme = Literal["standard", "github", "stripe"]
SCHEMES: Final = ("standard", "github", "stripe")

_prefix: Final = "whsec_"
_seconds = re.compile(r"[0-9]{1,11}")


class Unsigned(Exception):
    """A delivery is not verified: why, as far as its sender may know."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A delivery that is its sender's. By its `id` a second one of the same is recognised; without, each one counts."""

    id: str | None = None


# --- secrets ---------------------------------------------------------------------------------------


def checked_keys(given: Any, scheme: str) -> Secrets:
    """One secret or several, newest first, as the keys that a scheme signs with."""
    listed: Any = (given,) if isinstance(given, str | bytes) else given
    if not isinstance(listed, Sequence) or not listed:
        raise BadValue("secret", unsaid, "must be a secret, or a list of secrets, newest first")
    if len(listed) > limits.webhook_secrets_max:
        bound = f"{limits.webhook_secrets_max} (webhook_secrets_max)"
        raise BadValue("secret", unsaid, f"is a list of {len(listed)}; at most {bound}")
    key_of = _standard_key if scheme == "standard" else _plain_key
    return Secrets(tuple([_long_enough(key_of(one)) for one in listed]))


def _standard_key(secret: Any) -> bytes:
    """Bytes are a key as they are; text is one in base64, which must say that it is: any word may look like base64."""
    if isinstance(secret, bytes):
        return secret
    if not isinstance(secret, str) or not secret.startswith(_prefix):
        made = '"whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()'
        raise BadValue("secret", unsaid, f"must begin with whsec_, or be bytes: {made}")
    encoded = secret.removeprefix(_prefix)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadValue("secret", unsaid, "is not base64 after whsec_") from None


def _plain_key(secret: Any) -> bytes:
    """As the sender's page shows it, whatever it begins with."""
    if not isinstance(secret, str | bytes):
        raise BadValue("secret", unsaid, f"is a {type(secret).__name__}; give str or bytes")
    try:
        return secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raise BadValue("secret", unsaid, "holds a lone surrogate, which is no text") from None


def _long_enough(key: bytes) -> bytes:
    if len(key) < limits.secret_bytes_min:
        bound = f"{limits.secret_bytes_min} (secret_bytes_min)"
        raise BadValue("secret", unsaid, f"is {len(key)} bytes; at least {bound}")
    return key


@cache
def reference() -> Any:
    """The class that signs by Standard Webhooks."""
    try:
        from standardwebhooks import Webhook
    except ImportError as error:
        raise WebhooksUnavailable(str(error)) from error
    return Webhook


# --- ours ------------------------------------------------------------------------------------------


def signatures(secrets: Secrets, message_id: str, now_us: int, body: str) -> str:
    """What `webhook-signature` says: one for each secret, so that a receiver may have the new one or the old."""
    return " ".join(_signed(secrets, message_id, now_us, body))


def _signed(secrets: Secrets, message_id: str, now_us: int, body: str) -> list[str]:
    moment = to_datetime(now_us)
    return [reference()(key).sign(message_id, moment, body) for key in secrets.keys]


# --- those of others -------------------------------------------------------------------------------


def verify(
    scheme: str, secrets: Secrets, raw: bytes, headers: Mapping[str, str], now_us: int
) -> Verified:
    """Raises Unsigned unless one of the secrets has signed just this, and just now. Names of headers are lower case."""
    match scheme:
        case "github":
            return _github(secrets, raw, headers)
        case "stripe":
            return _stripe(secrets, raw, headers, now_us)
    return _standard(secrets, raw, headers, now_us)


def _standard(secrets: Secrets, raw: bytes, headers: Mapping[str, str], now_us: int) -> Verified:
    message_id = header(headers, "webhook-id")
    signed_us = _time(header(headers, "webhook-timestamp"), now_us)
    given = header(headers, "webhook-signature").split(" ")
    try:
        body = raw.decode()
    except UnicodeDecodeError:
        raise Unsigned("the body is no text in UTF-8") from None
    _compare(_signed(secrets, message_id, signed_us, body), given)
    return Verified(message_id)


def _github(secrets: Secrets, raw: bytes, headers: Mapping[str, str]) -> Verified:
    given = header(headers, "x-hub-signature-256")
    expected = [f"sha256={_hmac(key, raw)}" for key in secrets.keys]
    _compare(expected, [given])
    return Verified(header(headers, "x-github-delivery"))


def _stripe(secrets: Secrets, raw: bytes, headers: Mapping[str, str], now_us: int) -> Verified:
    parts = [one.strip().partition("=") for one in header(headers, "stripe-signature").split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1:
        raise Unsigned("stripe-signature has no t=…, or several")
    _time(times[0], now_us)
    expected = [_hmac(key, times[0].encode() + b"." + raw) for key in secrets.keys]
    _compare(expected, [value for name, _, value in parts if name == "v1"])
    return Verified(_id_within(raw))


def header(headers: Mapping[str, str], name: str) -> str:
    """A header that a delivery must have."""
    value = headers.get(name)
    if not value:
        raise Unsigned(f"the header {name} is missing")
    if len(value) > limits.webhook_header_bytes_max:
        bound = f"{limits.webhook_header_bytes_max} characters (webhook_header_bytes_max)"
        raise Unsigned(f"the header {name} has more than {bound}")
    return value


def _time(text: str, now_us: int) -> int:
    """When it was signed, if that is not long ago nor far ahead."""
    if not _seconds.fullmatch(text):
        raise Unsigned("its time is no whole number of seconds since 1970")
    signed_us = int(text) * 1_000_000
    if signed_us < now_us - limits.webhook_tolerance_us:
        raise Unsigned("it was signed too long ago (webhook_tolerance_us)")
    if signed_us > now_us + limits.webhook_tolerance_us:
        raise Unsigned("it was signed in the future (webhook_tolerance_us); compare the clocks")
    return signed_us


def _compare(expected: list[str], given: list[str]) -> None:
    if len(given) > limits.webhook_signatures_max:
        bound = f"{limits.webhook_signatures_max} (webhook_signatures_max)"
        raise Unsigned(f"it has {len(given)} signatures; at most {bound}")
    # All with all, each in constant time: how long it takes tells nothing.
    good = [_same(one, other) for one in expected for other in given]
    if not any(good):
        raise Unsigned("no signature is one of ours: another secret, or it was changed on its way")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode(errors="replace"))


def _hmac(key: bytes, signed: bytes) -> str:
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


class _Named(msgspec.Struct):
    id: str | None = None


def _id_within(raw: bytes) -> str | None:
    """The id of an event of Stripe, which is signed with the rest of its body."""
    try:
        limits.check_payload(raw)
        return msgspec.json.decode(raw, type=_Named).id
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # reading the body will say what is wrong with it
