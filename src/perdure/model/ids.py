"""Identifiers: ULIDs that sort in the order they were made, and fences.

A ULID is 10 characters of milliseconds and 16 of chance. We draw one real ULID per block, keep its
first 22 characters and count the last four up, so an id costs a clock reading and a table look-up.
Blocks ascend even when the clock steps back: the time never goes down, and within one millisecond
the chance part goes up. Ids are identity only; nothing may use them as a cursor. An `Ids` belongs
to one thread.
"""

import hashlib
import re
from typing import Protocol

from ulid import ULID

from perdure.model.clock import Clock
from perdure.model.limits import BadValue

_alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_pairs = [high + low for high in _alphabet for low in _alphabet]

_prefix_chars = 22
_chance_bits = (
    60  # of the prefix: 12 characters of 5 bits; the other 20 bits of a ULID are the count
)
_block_ids = 2**20
_ms_max = 2**48 - 1
_ulid = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class Randomness(Protocol):
    """What we need of `random.Random`."""

    def getrandbits(self, k: int, /) -> int: ...


class Ids:
    """Makes ids from an injected clock and chance. Not thread-safe: one for each thread."""

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self._now = clock.now
        self._randomness = randomness
        self._block_ms = -1
        self._chance = 0
        self._prefix = ""
        self._used = 0

    def ulid(self, now: int | None = None) -> str:
        """A new ULID, strictly greater than every one before it from this object.

        `now` is the time as the clock said it a moment ago, for those who make many at once.
        """
        now_ms = (self._now() if now is None else now) // 1000
        used = self._used
        if now_ms > self._block_ms or used == _block_ids:
            self._open_block(now_ms)
            used = 0
        self._used = used + 1
        return self._prefix + _pairs[used >> 10] + _pairs[used & 1023]

    def fence(self) -> int:
        """A random positive 63-bit integer: the unique token of a claim, compared by equality."""
        return self._randomness.getrandbits(63) or 1

    def _open_block(self, now_ms: int) -> None:
        if now_ms > self._block_ms:
            self._block_ms, self._chance = now_ms, self._randomness.getrandbits(_chance_bits)
        elif self._chance + 1 < 2**_chance_bits:
            self._chance += 1
        else:
            # All chance of this millisecond is used up: borrow the next one rather than un-sort.
            self._block_ms, self._chance = (
                self._block_ms + 1,
                self._randomness.getrandbits(_chance_bits),
            )
        self._prefix = _encode(self._block_ms, self._chance << 20)[:_prefix_chars]
        self._used = 0


def is_ulid(text: str) -> bool:
    """Whether it is spelt as one is here."""
    return _ulid.fullmatch(text) is not None


def derived_ulid(seed: bytes | str, at_us: int, n: int) -> str:
    """The same ULID on every replay: time from `at_us`, chance from sha256 of seed and n."""
    seed_bytes = seed.encode() if isinstance(seed, str) else seed
    # The length in front keeps (seed, n) pairs apart whatever the seed ends with.
    digest = hashlib.sha256(b"%d:%b:%d" % (len(seed_bytes), seed_bytes, n)).digest()
    return _encode(at_us // 1000, int.from_bytes(digest[:10]))


def _encode(ms: int, chance: int) -> str:
    if not 0 <= ms <= _ms_max:
        raise BadValue("time of an id", ms, "lies outside 1970 to 10889 (48 bits of milliseconds)")
    return str(ULID.from_bytes(ms.to_bytes(6) + chance.to_bytes(10)))
