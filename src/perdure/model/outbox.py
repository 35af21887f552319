"""Sends as data: what a row of the outbox says.

A caller's own transaction carries a send as one row of JSON, `{"kind": "start", "op": {…}}`, and whoever applies it may
be older or newer code than wrote it: fields that are missing have their defaults, fields that are not known are passed
over. What cannot be read is an error that says why, never a guess.
"""

from typing import Final, Literal

import msgspec

from perdure.model.ops import Emit, Put, Send, SendSignal, StartRun

SendKind = Literal["start", "signal", "emit", "put"]

_kinds: Final[dict[str, type[Send]]] = {
    "start": StartRun,
    "signal": SendSignal,
    "emit": Emit,
    "put": Put,
}
_names: Final[dict[type[Send], SendKind]] = {
    StartRun: "start",
    SendSignal: "signal",
    Emit: "emit",
    Put: "put",
}


class BadRow(ValueError):
    """The text of a row that is no send, or none that this code knows."""


class _Envelope(msgspec.Struct, frozen=True):
    kind: str
    op: msgspec.Raw


def kind_of(send: Send) -> SendKind:
    return _names[type(send)]


def encode_send(send: Send) -> str:
    """A send as the text of its row."""
    op = msgspec.Raw(msgspec.json.encode(send))
    return msgspec.json.encode(_Envelope(kind_of(send), op)).decode()


def decode_send(text: str) -> Send:
    """The inverse of `encode_send`; raises BadRow."""
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
        kind = _kinds.get(envelope.kind)
        if kind is None:
            raise BadRow(f"this code knows no send of kind {envelope.kind!r:.100}")
        return msgspec.json.decode(envelope.op, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadRow(str(error)) from error
