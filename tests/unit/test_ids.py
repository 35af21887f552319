"""ULIDs that ascend whatever the clock does; and the clock's own conversions."""

import random
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from perdure.model import ids as ids_module
from perdure.model.clock import SystemClock, from_datetime, to_datetime
from perdure.model.ids import Ids, derived_ulid
from perdure.model.limits import BadValue


class SetClock:
    def __init__(self, us: int = 1_700_000_000_000_000) -> None:
        self.us = us

    def now(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self.us / 1_000_000


def is_ulid(text: str) -> bool:
    """As we write it: 26 upper-case characters of Crockford's base32."""
    return re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", text) is not None


class Ones:
    """Chance at its highest value, so that the next block overflows."""

    def getrandbits(self, k: int, /) -> int:
        return 2**k - 1


def test_an_id_is_a_real_ulid_of_its_millisecond() -> None:
    clock = SetClock(1_700_000_000_123_456)
    text = Ids(clock, random.Random(1)).ulid()
    assert is_ulid(text)
    assert ULID.from_str(text).milliseconds == 1_700_000_000_123


@given(st.lists(st.integers(-5_000, 5_000), max_size=200), st.integers())
def test_ids_ascend_strictly_whatever_the_clock_does(steps_us: list[int], seed: int) -> None:
    clock = SetClock()
    ids = Ids(clock, random.Random(seed))
    made = [ids.ulid()]
    for step in steps_us:
        clock.us += step
        made.append(ids.ulid())
    assert made == sorted(set(made))
    assert all(map(is_ulid, made))


@given(st.lists(st.integers(-3_000, 3_000), max_size=60), st.integers())
def test_ids_ascend_across_full_blocks(steps_us: list[int], seed: int) -> None:
    clock = SetClock()
    ids = Ids(clock, random.Random(seed))
    made = []
    for step in steps_us:
        clock.us += step
        made.append(ids.ulid())
        ids._used = 2**20  # as if the block were used up
    assert made == sorted(set(made))


def test_a_block_counts_through_all_its_ids() -> None:
    ids = Ids(SetClock(), random.Random(3))
    first = ids.ulid()
    assert first.endswith("0000")
    ids._used = 2**20 - 1
    last, following = ids.ulid(), ids.ulid()
    assert last == first[:22] + "ZZZZ"
    assert following.endswith("0000")
    assert first < last < following


def test_exhausted_chance_borrows_the_next_millisecond() -> None:
    clock = SetClock()
    ids = Ids(clock, Ones())
    before = ids.ulid()
    ids._used = 2**20
    after = ids.ulid()
    assert after > before
    assert ULID.from_str(after).milliseconds == clock.us // 1000 + 1


def test_two_makers_of_one_millisecond_differ() -> None:
    clock = SetClock()
    made = {Ids(clock, random.Random(seed)).ulid() for seed in range(1000)}
    assert len(made) == 1000


def test_many_ids_of_the_real_clock_ascend() -> None:
    ids = Ids(SystemClock(), random.Random())
    made = [ids.ulid() for _ in range(50_000)]
    assert made == sorted(set(made))


def test_the_table_of_pairs_sorts_as_base32_does() -> None:
    assert ids_module._pairs == sorted(ids_module._pairs)
    assert len(set(ids_module._pairs)) == 1024


def test_fences_are_positive_and_63_bits() -> None:
    ids = Ids(SetClock(), random.Random(5))
    fences = [ids.fence() for _ in range(1000)]
    assert all(0 < fence < 2**63 for fence in fences)
    assert len(set(fences)) == 1000


def test_a_derived_ulid_is_the_same_every_time_and_keeps_its_time() -> None:
    one = derived_ulid("run-1", 1_700_000_000_123_456, 3)
    assert one == derived_ulid(b"run-1", 1_700_000_000_123_999, 3)
    assert is_ulid(one)
    assert ULID.from_str(one).milliseconds == 1_700_000_000_123


def test_the_derived_ulid_never_changes() -> None:
    """Runs in flight depend on this value: a change of it is a NonDeterminism for all of them."""
    assert derived_ulid("run", 0, 0) == "0000000000WWVCZV244TQVA5HJ"


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**40)), unique=True, max_size=50),
    st.integers(0, 2**52),
)
def test_derived_ulids_differ_by_seed_and_number(keys: list[tuple[bytes, int]], at_us: int) -> None:
    assert len({derived_ulid(seed, at_us, n) for seed, n in keys}) == len(keys)


def test_a_time_outside_48_bits_is_refused() -> None:
    with pytest.raises(BadValue):
        derived_ulid("x", -1_000_000, 0)
    with pytest.raises(BadValue):
        derived_ulid("x", 2**48 * 1000, 0)


# ---------------------------------------------------------------- clock


@given(st.datetimes(timezones=st.timezones()))
def test_datetimes_become_microseconds_and_back_exactly(moment: datetime) -> None:
    try:
        at_utc = moment.astimezone(UTC)
    except OverflowError:
        return
    assert to_datetime(from_datetime(moment)) == at_utc


def test_datetimes_are_aware_and_utc() -> None:
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert from_datetime(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert from_datetime(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(BadValue, match="no time zone"):
        from_datetime(datetime(2020, 1, 1))


def test_times_beyond_the_calendar_are_refused() -> None:
    with pytest.raises(BadValue):
        to_datetime(2**62)
    with pytest.raises(BadValue):
        to_datetime(2**80)


def test_the_system_clock_reads_microseconds() -> None:
    clock = SystemClock()
    assert abs(to_datetime(clock.now()) - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.monotonic() <= clock.monotonic()
