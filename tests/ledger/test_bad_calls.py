"""Bad calls about readers of the ledger: refused with words that name what was wrong; and nothing changed.

How definitions are refused is in `test_definitions`; bad subscriptions in `test_subscriptions`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from perdure import (
    App,
    BadValue,
    Batch,
    Context,
    Event,
    PerdureError,
    UnknownConsumer,
    UnknownSubscription,
)

shop = App("memory://")
naive = datetime(2030, 1, 1)


@shop.on("order.paid", name="rule")
@shop.workflow
async def answer(ctx: Context, event: Event) -> None:
    return None


@shop.consumer("reader", "order.*")
async def reader(batch: Batch) -> None:
    if any(event.type == "order.bad" for event in batch):
        raise ValueError("a bad order")


Call = Callable[[App], Any]

# Each line: an id, a call on an open app, the error, a fragment of its text.
cases: list[tuple[str, Call, type[PerdureError], str]] = [
    ("pause nobody", lambda app: app.pause_consumer("who"), UnknownConsumer, "'who'"),
    ("pause nothing", lambda app: app.pause_consumer(""), BadValue, "consumer name '' is empty"),
    ("pause reason", lambda app: app.pause_consumer("reader", 5), BadValue, "reason 5 is a int"),
    ("resume nobody", lambda app: app.resume_consumer("who"), UnknownConsumer, "'who'"),
    ("resume number", lambda app: app.resume_consumer(5), BadValue, "is a int"),
    ("drop nobody", lambda app: app.drop_consumer("who"), UnknownConsumer, "app.consumers()"),
    ("drop number", lambda app: app.drop_consumer(5), BadValue, "is a int"),
    ("rewind nobody", lambda app: app.rewind("who", 0), UnknownConsumer, "'who'"),
    ("rewind below", lambda app: app.rewind("reader", -1), BadValue, "to -1 must be"),
    ("rewind beyond", lambda app: app.rewind("reader", 2**63), BadValue, "to 9223372036854775808"),
    ("rewind bool", lambda app: app.rewind("reader", True), BadValue, "to True"),
    ("rewind words", lambda app: app.rewind("reader", "start"), BadValue, '"beginning", "now"'),
    ("rewind naive", lambda app: app.rewind("reader", naive), BadValue, "has no time zone"),
    ("rewind nothing", lambda app: app.rewind("reader", None), BadValue, "to None"),
    ("parked whose", lambda app: app.parked(5), BadValue, "is a int"),
    ("parked limit", lambda app: app.parked(limit=0), BadValue, "page_rows_max"),
    ("parked cursor", lambda app: app.parked(after="x"), BadValue, "pass page.cursor"),
    ("parked cursor empty", lambda app: app.parked(after=""), BadValue, "pass page.cursor"),
    ("refire nobody", lambda app: app.refire("who", 1), UnknownConsumer, "'who'"),
    ("refire position", lambda app: app.refire("reader", "1"), BadValue, "position '1'"),
    ("refire rule", lambda app: app.refire("reader", 1, 5), BadValue, "subscription name 5"),
    ("drop parked whose", lambda app: app.drop_parked(None, 1), BadValue, "consumer name None"),
    ("drop parked place", lambda app: app.drop_parked("reader", -1), BadValue, "position -1"),
    ("deferred limit", lambda app: app.deferred(limit=10**6), BadValue, "page_rows_max"),
    ("deferred cursor", lambda app: app.deferred(after=5), BadValue, "pass page.cursor"),
    ("release nothing", lambda app: app.release_deferred(1, ""), UnknownSubscription, "''"),
    ("release whose", lambda app: app.release_deferred(1, "who"), UnknownSubscription, "'who'"),
    ("release where", lambda app: app.release_deferred(99, "rule"), BadValue, "not on the ledger"),
    ("release float", lambda app: app.release_deferred(1.0, "rule"), BadValue, "position 1.0"),
    ("drop deferred", lambda app: app.drop_deferred(None, "rule"), BadValue, "position None"),
    ("disable nobody", lambda app: app.enable_subscription("who"), UnknownSubscription, "'who'"),
    ("disable number", lambda app: app.enable_subscription(5), BadValue, "is a int"),
    ("disable how", lambda app: app.enable_subscription("rule", "no"), BadValue, "on 'no' must be"),
    ("unsubscribe", lambda app: app.unsubscribe(5), BadValue, "is a int"),
    ("replay nobody", lambda app: app.replay("who"), UnknownConsumer, "'who'"),
    ("replay number", lambda app: app.replay(5), BadValue, "5"),
    ("replay dry", lambda app: app.replay("reader", dry_run=None), BadValue, "dry_run None must"),
    (
        "replay only",
        lambda app: app.replay("reader", only_if_no_run="no"),
        BadValue,
        "only_if_no_run 'no' must be True or False",
    ),
    ("replay since", lambda app: app.replay("reader", since="now"), BadValue, "since 'now'"),
    (
        "replay since naive",
        lambda app: app.replay("reader", since=naive),
        BadValue,
        "since datetime",
    ),
    ("replay until", lambda app: app.replay("reader", until=-1), BadValue, "until -1"),
    (
        "replay until naive",
        lambda app: app.replay("reader", until=naive),
        BadValue,
        "until datetime",
    ),
    ("replay pattern", lambda app: app.replay("reader", pattern="a.b*"), BadValue, "whole segment"),
    ("replay rate", lambda app: app.replay("reader", rate=0), BadValue, "rate"),
    ("replay rate NaN", lambda app: app.replay("reader", rate=float("nan")), BadValue, "rate nan"),
    ("trim nothing", lambda app: app.trim_ledger(), BadValue, "this app has no keep_events="),
    ("trim age", lambda app: app.trim_ledger(older_than="old"), BadValue, "not understood"),
    ("trim keep", lambda app: app.trim_ledger(keep=-1), BadValue, "keep -1"),
    ("trim force", lambda app: app.trim_ledger(keep=0, force="no"), BadValue, "force 'no' must be"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), [pytest.param(*case[1:], id=case[0]) for case in cases]
)
async def test_a_bad_call_is_refused_and_changes_nothing(
    world: Any, call: Call, error: type[PerdureError], words: str
) -> None:
    async with world(shop) as w:
        await w.emit("order.paid", 1)
        await w.emit("order.bad", 2)
        await w.advance("1m")  # every try has failed: it is parked
        before = await _all(w)
        with pytest.raises(error) as refused:
            await call(w.app)
        assert words in str(refused.value)
        await w.settle()
        assert await _all(w) == before


async def _all(w: Any) -> list[Any]:
    app: App = w.app
    readers = [await app.consumers(), await app.subscriptions()]
    return [*readers, list(await app.parked()), await w.facts(), await w.store.counts()]


async def test_a_listing_is_followed_to_its_end(world: Any) -> None:
    """The cursor of the last page is None, and None is the beginning: whoever asks again says so."""
    async with world(shop) as w:
        for n in range(5):
            await w.app.emit("order.noted", n)
        seen, after, more = [], None, True
        while more:
            page = await w.app.events("order.noted", limit=2, after=after)
            seen += [event.payload for event in page]
            after, more = page.cursor, page.cursor is not None
        assert seen == [0, 1, 2, 3, 4]
