"""What the catalogue knows of topics and queues, and whether a payload fits what they promise."""

import functools
from typing import Any

import msgspec

from perdure.model.records import ChannelRecord
from perdure.model.schema import check_schema, schema_digest


def misfit(channel: ChannelRecord | None, payload: str, checked: str | None) -> tuple[str, ...]:
    """What is wrong with a payload, by the schema that was declared for the name.

    `checked` is the digest of the schema that the sender has checked it against: equal ones need no second look.
    """
    if channel is None or channel.schema is None or not channel.enforce:
        return ()
    schema, digest = _parsed(channel.schema)
    if digest == checked:
        return ()
    return tuple(check_schema(schema, payload))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[dict[str, Any], str]:
    schema = msgspec.json.decode(text, type=dict[str, Any])
    return schema, schema_digest(schema)
