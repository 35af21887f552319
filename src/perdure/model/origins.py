"""From whom a run has its history, if not all of it is its own: a fork, or a copy under another id.

Chance is derived from a run's id. What code drew while the copied part was recorded must come out the same when it is
replayed, so a run remembers whose id was drawn with, and up to which place of its history.
"""

import msgspec


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Up to `seq`, chance is drawn as `run_id` drew it: also before calls that were `open` when it was copied.

    `created_at` is when that run began, if this one has taken anything over from it: its time counts from there.
    """

    run_id: str
    seq: int
    created_at: int | None = None
    open: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(tuple[Origin, ...]).decode


def origins_of(forked: str | None) -> tuple[Origin, ...]:
    """From the oldest on, as `RunRecord.forked` tells them."""
    return () if forked is None else _decode(forked)


def origins_text(origins: tuple[Origin, ...]) -> str | None:
    return msgspec.json.encode(origins).decode() if origins else None
