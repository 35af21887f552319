"""Webhooks that go out: a consumer of the ledger that posts each event to an address, signed.

A webhook is a consumer named `webhook.<name>`, with one event a batch: events go one after the other, in the order of
the ledger, and the cursor moves past each when it is accepted. So all that is true of consumers is true of it: tries,
parking, pausing, rewinding, lag. An event is sent at least once; its id goes with every try, so that a receiver knows.

Nothing that is told here (a reason, a line of a log, a repr) holds a secret, a header or the path of the address.
"""

import asyncio
import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

from perdure.channels import Topic
from perdure.errors import Permanent, RetryAfter, WebhooksUnavailable
from perdure.inputs import checked_flag
from perdure.ledger.batches import Batch
from perdure.ledger.cloudevents import STRUCTURED_TYPE, to_json
from perdure.ledger.definitions import ConsumerDef, Start, consumer_def
from perdure.ledger.handling import StopConsumer
from perdure.ledger.rules import checked_rule
from perdure.links import Secrets
from perdure.model import limits
from perdure.model.clock import from_datetime
from perdure.model.codec.text import write_json
from perdure.model.duration import Duration, parse_duration
from perdure.model.events import Event
from perdure.model.limits import BadValue, check_name, unsaid
from perdure.model.policy import Retry
from perdure.observing.traces import parsed
from perdure.version import VERSION
from perdure.webhooks.addresses import Allowed, Target, checked_allowed, checked_url
from perdure.webhooks.signing import checked_keys, reference, signatures

if TYPE_CHECKING:
    from perdure.webhooks.wire import Answer, Line

Envelope = Literal["cloudevents", "standard"]
_types: Final = {"cloudevents": STRUCTURED_TYPE, "standard": "application/json"}

# Ten tries within a quarter of an hour: a receiver that is deployed anew, or fails over, costs no event. What follows
# waits meanwhile, for it is to come in order.
RETRY_DEFAULT: Final = Retry(attempts=10, backoff="2s", max_backoff="5m")
# Refused for now: they may be taken later. Of other answers of 4xx the sender is to blame, and stays so.
_passing: Final = frozenset({408, 425, 429})
_may_put_off: Final = frozenset({429, 503})
# Ours, or the connection's.
_reserved: Final = frozenset(
    {"host", "content-type", "content-length", "transfer-encoding", "connection", "traceparent"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature", "accept-encoding", "expect", "te"}
    | {"upgrade", "trailer", "keep-alive", "proxy-connection"}
)
_header_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_header_value = re.compile(r"[!-~\xa1-\xff](?:[ \t!-~\xa1-\xff]*[!-~\xa1-\xff])?")
# Shorter words are found everywhere; hiding them would hide the answer.
_hidden_chars_min = 6


class NotDelivered(Exception):
    """There was no answer, or one that may be another the next time."""


class NotAccepted(Permanent):
    """The receiver does not take this event, and will not."""


class PutOff(RetryAfter):
    """The receiver has said when to try again."""


class Gone(StopConsumer):
    """The receiver wants no more of it."""


# --- the definition --------------------------------------------------------------------------------


def webhook_def(
    name: str,
    url: str,
    patterns: Sequence[str | Topic[Any]],
    *,
    secret: Any,
    where: Any,
    retry: Retry | None,
    timeout: Duration,
    headers: Mapping[str, str] | None,
    start: Start,
    allow_private: bool | Sequence[str],
    insecure: bool,
    envelope: Envelope,
) -> ConsumerDef:
    """A webhook, checked: the consumer that it is."""
    name = check_name("webhook", name)
    allowed = checked_allowed(allow_private)
    if envelope not in _types:
        raise BadValue("envelope", envelope, 'must be "cloudevents" or "standard"')
    sender = Sender(
        name,
        checked_url(url, allowed, checked_flag("insecure", insecure)),
        allowed,
        checked_keys(secret, "standard"),
        _checked_headers(headers),
        _checked_timeout(timeout),
        envelope,
        _hidden(url, secret, headers),
    )
    _check_installed()
    definition = consumer_def(
        f"webhook.{name}",
        patterns,
        sender.deliver,
        every=None,
        zone="UTC",
        catch_up="one",
        batch=1,
        dedupe=False,
        start=start,
        retry=RETRY_DEFAULT if retry is None else retry,
    )
    return dataclasses.replace(definition, where=checked_rule(where, None, None).where)


def _check_installed() -> None:
    """Where it is declared, not when the first event comes."""
    reference()
    try:
        import_module("perdure.webhooks.wire")
    except ImportError as error:
        raise WebhooksUnavailable(str(error)) from error


def _checked_timeout(timeout: Duration) -> float:
    timeout_us = parse_duration(timeout, "timeout")
    if not 0 < timeout_us <= limits.webhook_timeout_us_max:
        longest = f"{limits.webhook_timeout_us_max // 1_000_000} s (webhook_timeout_us_max)"
        raise BadValue("timeout", timeout, f"must be more than nothing, and at most {longest}")
    return timeout_us / 1_000_000


def _checked_headers(headers: Any) -> tuple[tuple[str, str], ...]:
    """Values are never told: most are there to let us in."""
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise BadValue("headers", unsaid, "are not a mapping; give a dict of str to str")
    if len(headers) > limits.webhook_headers_max:
        bound = f"{limits.webhook_headers_max} (webhook_headers_max)"
        raise BadValue("headers", unsaid, f"are {len(headers)}; at most {bound}")
    return tuple([_checked_header(name, value) for name, value in headers.items()])


def _checked_header(name: Any, value: Any) -> tuple[str, str]:
    if not isinstance(name, str) or not _header_name.fullmatch(name):
        raise BadValue("header", name, "is no name of a header")
    if name.lower() in _reserved:
        raise BadValue("header", name, "is set by the webhook itself; leave it out")
    if not isinstance(value, str) or not _header_value.fullmatch(value):
        raise BadValue(f"the value of header {name!r}", unsaid, "is no text that a header can hold")
    if len(name) + len(value) > limits.webhook_header_bytes_max:
        bound = f"{limits.webhook_header_bytes_max} bytes (webhook_header_bytes_max)"
        raise BadValue("header", name, f"is too long, with its value: at most {bound}")
    return name, value


def _hidden(url: str, secret: Any, headers: Mapping[str, str] | None) -> tuple[str, ...]:
    """What must not come back in what is told of an answer, should a receiver repeat it; the longest first."""
    listed = [secret] if isinstance(secret, str | bytes) else list(secret)
    texts = [one for one in listed if isinstance(one, str)]
    texts += [one.removeprefix("whsec_") for one in texts]
    texts += [word for value in (headers or {}).values() for word in (value, *value.split())]
    texts += re.split(r"[/?&=]", url.partition("://")[2])[1:]
    texts += [unquote(one) for one in texts]  # as receivers read them
    texts += [one.replace("/", "\\/") for one in texts]  # as some write them in JSON
    found = {one for one in texts if len(one) >= _hidden_chars_min}
    return tuple(sorted(found, key=len, reverse=True))


# --- sending ---------------------------------------------------------------------------------------


class Sender:
    """Sends events to one address. Shared by all apps that have its definition, so it keeps nothing itself."""

    def __init__(
        self,
        name: str,
        target: Target,
        allowed: Allowed,
        secrets: Secrets,
        headers: tuple[tuple[str, str], ...],
        timeout_s: float,
        envelope: Envelope,
        hidden: tuple[str, ...],
    ) -> None:
        self.name = name
        self._target = target
        self._allowed = allowed
        self._secrets = secrets
        self._headers = headers
        self._timeout_s = timeout_s
        self._envelope = envelope
        self._hidden = hidden

    def __repr__(self) -> str:
        return f"Webhook({self.name!r}, {str(self._target)!r})"

    async def deliver(self, batch: Batch) -> None:
        """Send these events, in their order."""
        line = self._line(batch)
        for event in batch:
            now_us = batch.outside.clock.now()
            body = self._body(event, batch.outside.source)
            answer = await self._post(line, self._signed(event, now_us, body), body)
            self._judge(answer, now_us)

    def _line(self, batch: Batch) -> "Line":
        """Our connections for the app that calls: made when they are first needed, closed with the app."""
        from perdure.webhooks import wire

        kept = batch.outside.kept.get(self)
        if not isinstance(kept, wire.Line):
            resolve = wire.system_resolve
            kept = wire.Line(self._target, self._allowed, resolve, self._timeout_s)
            batch.outside.kept[self] = kept
        return kept

    def _body(self, event: Event, source: str) -> str:
        if self._envelope == "cloudevents":
            return to_json(event, source)
        told = {
            "type": event.type,
            "timestamp": event.occurred_at.isoformat(),
            "data": event.payload,
        }
        return write_json(told).decode()

    def _signed(self, event: Event, now_us: int, body: str) -> list[tuple[str, str]]:
        headers = [
            ("host", self._target.authority),
            ("content-type", _types[self._envelope]),
            ("accept-encoding", "identity"),
            ("webhook-id", event.event_id),
            ("webhook-timestamp", str(now_us // 1_000_000)),
            ("webhook-signature", signatures(self._secrets, event.event_id, now_us, body)),
            *self._headers,
        ]
        if not any(name.lower() == "user-agent" for name, _ in self._headers):
            headers.append(("user-agent", f"perdure/{VERSION}"))
        if event.trace is not None and parsed(event.trace):
            headers.append(("traceparent", event.trace))
        return headers

    async def _post(self, line: "Line", headers: list[tuple[str, str]], body: str) -> "Answer":
        from perdure.webhooks.wire import Answer, Forbidden, Unreachable

        answer = Answer()
        try:
            async with asyncio.timeout(self._timeout_s):
                await line.post(headers, body.encode(), answer)
        except Forbidden as error:
            raise NotDelivered(f"{error}: nothing was sent; see allow_private=") from None
        except (TimeoutError, Unreachable) as error:
            # Once the status is there it counts, whatever becomes of the rest.
            if answer.status is None:
                words = str(error) or f"no answer within {self._timeout_s:g} s"
                raise NotDelivered(f"{self._target}: {self._plain(words)}") from None
        return answer

    def _judge(self, answer: "Answer", now_us: int) -> None:
        """What an answer means: returns if the event was accepted."""
        status = answer.status or 0
        if 200 <= status < 300:
            return
        told = f"{self._target} answered {status}"
        if 300 <= status < 400:
            raise NotAccepted(f"{told}, a redirect, which is not followed: give the final address")
        said = self._plain(bytes(answer.body).decode(errors="replace"))
        told = f"{told}: {said}" if said else told
        if status == 410:
            raise Gone(
                f"{told} (410 Gone: the receiver wants no more; resume it when that is mended)"
            )
        if status not in _passing and status < 500:
            raise NotAccepted(told)
        delay_us = _put_off(answer.headers, now_us) if status in _may_put_off else None
        if delay_us is None:
            raise NotDelivered(told)
        raise PutOff(timedelta(microseconds=delay_us), f"{told} (retry-after)")

    def _plain(self, text: str) -> str:
        """A short part of what others say, without what is ours to keep."""
        for one in self._hidden:
            text = text.replace(one, "…")
        words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        shown = limits.webhook_response_chars_shown
        return words if len(words) <= shown else words[: shown - 1] + "…"


def _put_off(headers: Mapping[str, str], now_us: int) -> int | None:
    """For how long a receiver asks us to wait: seconds or a date, and a bound."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,10}", text):
        delay_us = int(text) * 1_000_000
    else:
        try:
            delay_us = from_datetime(parsedate_to_datetime(text)) - now_us
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(delay_us, limits.webhook_retry_after_us_max) if delay_us > 0 else None
