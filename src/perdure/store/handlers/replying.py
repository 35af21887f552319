"""Answers to signals: what a run's code says to one is kept for a while where whoever asked looks for it.

Not in a stream: those are trimmed, and who asks would have to read what all others were answered. Under the id of its
signal an answer is one look away, for any process, and also for one that asks again later with the same key.
"""

from typing import Final

import msgspec

from perdure.model import limits
from perdure.model.keys import reply_scope
from perdure.model.outcomes import Wake
from perdure.model.streams import Reply
from perdure.store.handlers.keys import keep_key, used_key
from perdure.store.tables import Tables

_decode: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.encode


def reply(tables: Tables, run_id: str, text: str) -> str:
    """Keep an answer, unless there is one; gives what the step records: which signal it was."""
    said = _decode(text)
    scope = reply_scope(run_id)
    if used_key(tables, scope, said.signal_id) is None:
        # As a text within a text: stores look for positions in the answers of keys, and this one is a user's.
        answer = _encode(bytes(said.value).decode()).decode()
        keep_key(tables, scope, said.signal_id, limits.reply_us, answer=answer)
        tables.wakes.append(Wake("stream", said.signal_id))
    return _encode(said.signal_id).decode()
