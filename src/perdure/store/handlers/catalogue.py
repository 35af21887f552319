"""What the catalogue knows of topics and queues, and whether a payload fits what they promise."""

import functools
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Refusal
from perdure.model.records import ChannelRecord
from perdure.model.sameness import completed
from perdure.model.schema import Beyond, beyond, check_schema, schema_digest

Send = TypeVar("Send", ops.NewEvent, ops.Put)


def misfit(
    channel: ChannelRecord | None, send: ops.NewEvent | ops.Put, what: str
) -> Refusal | None:
    """Why a payload is refused: for what its sender knows already, or by the schema that was declared for the name.

    What the sender has checked against that very schema needs no second look.
    """
    if send.errors:
        return Refusal("invalid_payload", what, send.errors)
    if channel is None or channel.schema is None or not channel.enforce:
        return None
    schema, digest, more = _parsed(channel.schema)
    if digest == send.schema:
        return None
    errors = check_schema(schema, send.payload, strict=send.by_name)
    if errors:
        return Refusal("invalid_payload", what, tuple(errors))
    return unchecked(what, more) if send.by_name else None


def schema_of(channel: ChannelRecord | None) -> dict[str, Any] | None:
    """What payloads must fit."""
    if channel is None or channel.schema is None or not channel.enforce:
        return None
    return _parsed(channel.schema)[0]


def as_declared(channel: ChannelRecord | None, send: Send) -> Send:
    """A send by a mere name as one with the code would have made it."""
    schema = schema_of(channel) if send.by_name and send.schema is None else None
    return send if schema is None else replace(send, payload=completed(schema, send.payload))


def unchecked(what: str, more: Beyond) -> Refusal | None:
    """Why a payload that was sent by a mere name is not taken yet: its schema asks for what we do not check here."""
    return Refusal("unchecked", what, more.keywords + more.never) if more else None


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[dict[str, Any], str, Beyond]:
    schema = msgspec.json.decode(text, type=dict[str, Any])
    return schema, schema_digest(schema), beyond(schema)
