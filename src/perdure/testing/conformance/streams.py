"""Streams: what a run publishes has dense positions in the order of commits, is bounded, and goes with the run."""

from typing import Any

import msgspec
import pytest

from perdure.model import limits, ops
from perdure.model.keys import reply_scope
from perdure.model.outcomes import Advanced, Counted, Fenced, Refusal, TurnOutcome
from perdure.model.streams import REPLIES
from perdure.testing.conformance.driver import Driver, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import done, signal, wait


def told(d: Driver) -> list[str]:
    """The runs whose readers the last op has told."""
    return [one.run_id for one in d.heard[-1].wakes if one.kind == "stream"]


async def reply(d: Driver, path: str, signal_id: str, value: str) -> TurnOutcome:
    text = f'{{"signal_id":"{signal_id}","value":{value}}}'
    return await d.add_to_stream("r1", path, REPLIES, text)


async def said(d: Driver, signal_id: str) -> str | None:
    found = await d.store.used_key(reply_scope("r1"), signal_id, d.clock.now())
    return None if found is None else msgspec.json.decode(found.answer, type=str)


class TestStreams(Subject):
    # --- publishing ---

    async def test_what_a_step_publishes_is_there_before_its_end(self, d: Driver) -> None:
        await d.start("r1")
        answer = await d.publish_items("r1", ("a", "1"), ("a", "2"), path="p", attempt=3)
        assert answer == Counted(2)
        first, second = await d.store.stream_items("r1", "a", 0, 10)
        assert (first.position, first.item, first.path, first.attempt) == (1, "1", "p", 3)
        assert (second.position, second.item) == (2, "2")
        assert first.published_at == d.clock.now()

    async def test_what_code_publishes_is_a_step_of_the_run(self, d: Driver) -> None:
        await d.start("r1")
        answer = await d.add_to_stream("r1", "publish.a", "a", '"x"')
        assert isinstance(answer, Advanced)
        (completion,) = answer.completions
        assert (completion.kind, completion.state, completion.value) == ("publish", "done", "1")
        (item,) = await d.store.stream_items("r1", "a", 0, 10)
        assert (item.item, item.path, item.attempt) == ('"x"', "publish.a", 1)

    async def test_it_brings_along_what_the_turn_has_produced(self, d: Driver) -> None:
        await d.start("r1")
        await d.add_to_stream("r1", "p", "a", "1", steps=(done("s", "7"),))
        assert (await d.step("r1", "s")).value == "7"

    async def test_positions_are_dense_for_each_stream_of_each_run(self, d: Driver) -> None:
        for run_id in ("r1", "r2"):
            await d.start(run_id)
            await d.publish_items(run_id, ("a", "1"), ("b", "2"), ("a", "3"))
            await d.add_to_stream(run_id, "p", "b", "4")
            assert await d.published(run_id, "a") == [(1, "1"), (2, "3")]
            assert await d.published(run_id, "b") == [(1, "2"), (2, "4")]

    async def test_branches_and_steps_that_publish_in_one_commit_follow_each_other(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        sends = [
            await d.turn_op(
                ops.RecordSend,
                "r1",
                path=f"p{n}",
                kind="publish",
                name="a",
                send=None,
                value=f"{n}",
            )
            for n in range(2)
        ]
        steps = [
            await d.publish_op("r1", ("a", f"{n}0"), ("a", f"{n}1"), path=f"s{n}") for n in range(2)
        ]
        await d.batch(sends[0], steps[0], steps[1], sends[1])
        items = ["0", "00", "01", "10", "11", "1"]
        assert await d.published("r1", "a") == list(enumerate(items, 1))
        await d.publish_items("r1", ("a", "9"))
        assert await d.published("r1", "a", after=6) == [(7, "9")]

    async def test_readers_are_told(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"), ("b", "1"))
        assert told(d) == ["r1"]
        await d.add_to_stream("r1", "p", "a", "1")
        assert told(d) == ["r1"]

    async def test_it_changes_nothing_else_about_the_run(self, d: Driver) -> None:
        """Whoever sends to a run that publishes all the time is not overtaken by that."""
        await d.start("r1")
        before = await d.run("r1")
        await d.publish_items("r1", ("a", "1"))
        await d.add_to_stream("r1", "p", "a", "2")
        assert await d.run("r1") == before

    async def test_nothing_is_published_by_nothing(self, d: Driver) -> None:
        await d.start("r1")
        assert await d.publish_items("r1") == Counted(0)
        assert (await d.store.streams("r1"), told(d)) == ([], [])

    # --- who may ---

    async def test_a_stale_worker_is_refused(self, d: Driver) -> None:
        await d.start("r1")
        old = (await d.run("r1")).fence
        await d.release("r1")
        await d.claim("other")
        assert await d.publish_items("r1", ("a", "1"), fence=old) == Fenced("r1", "running")
        answer = await d.add_to_stream("r1", "p", "a", "1", fence=old)
        assert answer == Fenced("r1", "running")
        assert (await d.published("r1", "a"), told(d)) == ([], [])
        await d.publish_items("r1", ("a", "2"))
        assert await d.published("r1", "a") == [(1, "2")]

    @pytest.mark.parametrize("how", ["finish", "fail", "terminate", "cancelled"])
    async def test_a_run_that_has_ended_takes_nothing(self, d: Driver, how: str) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"))
        fence = (await d.run("r1")).fence
        await d.end("r1", how)
        answer = await d.publish_items("r1", ("a", "2"), fence=fence)
        assert answer == Fenced("r1", (await d.run("r1")).status)
        assert await d.published("r1", "a") == [(1, "1")]

    async def test_a_run_that_nobody_owns_takes_nothing(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        assert await d.publish_items("r1", ("a", "1"), fence=0) == Fenced("r1", "ready")

    async def test_so_does_one_that_there_is_not(self, d: Driver) -> None:
        assert await d.publish_items("r1", ("a", "1"), fence=7) == Fenced("r1", None)

    async def test_a_run_that_is_changed_by_others_goes_on_publishing(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"))
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        await d.pause("r1")
        await d.publish_items("r1", ("a", "2"))
        assert await d.published("r1", "a") == [(1, "1"), (2, "2")]

    async def test_the_next_owner_goes_on_where_the_last_one_stopped(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"))
        await d.release("r1")
        await d.claim("other")
        await d.publish_items("r1", ("a", "2"))
        await d.add_to_stream("r1", "p", "a", "3")
        assert await d.published("r1", "a") == [(1, "1"), (2, "2"), (3, "3")]

    # --- bounds ---

    async def test_the_oldest_items_go(self, d: Driver, monkeypatch: Any) -> None:
        monkeypatch.setattr(limits, "stream_items_max", 3)
        await d.start("r1")
        for n in range(1, 6):
            await d.publish_items("r1", ("a", str(n)), ("b", str(n)))
        assert await d.published("r1", "a") == [(3, "3"), (4, "4"), (5, "5")]
        assert await d.published("r1", "b", after=3) == [(4, "4"), (5, "5")]
        await d.publish_items("r1", *(("a", str(n)) for n in range(6, 20)))
        assert await d.published("r1", "a") == [(17, "17"), (18, "18"), (19, "19")]
        assert len(await d.published("r1", "b")) == 3

    async def test_so_they_do_when_they_are_too_large(self, d: Driver, monkeypatch: Any) -> None:
        monkeypatch.setattr(limits, "stream_bytes_max", 10)
        await d.start("r1")
        for n in range(5):
            await d.publish_items("r1", ("a", f'"{n}"'))
        assert [position for position, _ in await d.published("r1", "a")] == [3, 4, 5]
        await d.publish_items("r1", ("a", '"123456"'))
        assert await d.published("r1", "a") == [(6, '"123456"')]
        await d.publish_items("r1", ("a", '"ééé"'))  # bytes, not characters
        assert [position for position, _ in await d.published("r1", "a")] == [7]

    async def test_one_large_item_takes_the_place_of_many(self, d: Driver) -> None:
        await d.start("r1")
        small = [("a", str(n)) for n in range(500)]
        for _ in range(3):
            await d.publish_items("r1", *small)
        large = '"' + "x" * (limits.payload_bytes_max - 2) + '"'
        for _ in range(5):
            await d.publish_items("r1", ("a", large))
        kept = [position for position, _ in await d.published("r1", "a")]
        assert kept == [1502, 1503, 1504, 1505]

    async def test_a_reader_that_is_late_goes_on_with_what_is_kept(
        self, d: Driver, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(limits, "stream_items_max", 2)
        await d.start("r1")
        await d.publish_items("r1", *(("a", str(n)) for n in range(1, 10)))
        assert await d.published("r1", "a", after=3) == [(8, "8"), (9, "9")]
        (span,) = await d.store.streams("r1")
        assert (span.stream, span.first, span.last) == ("a", 8, 9)

    async def test_a_run_has_so_many_streams_and_no_more(self, d: Driver, monkeypatch: Any) -> None:
        monkeypatch.setattr(limits, "streams_per_run_max", 2)
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"), ("b", "1"))
        answer = await d.publish_items("r1", ("c", "2"), ("a", "2"))
        assert refused(answer) == "too_many_streams"
        assert isinstance(answer, Refusal)
        assert "streams_per_run_max" in answer.detail
        assert "'c'" in answer.detail
        assert await d.published("r1", "a") == [(1, "1")]
        assert await d.publish_items("r1", ("b", "3")) == Counted(1)
        assert await d.publish_items("r1", ("b", "4"), ("a", "5"), ("c", "6")) == Counted(2)
        assert len(await d.store.streams("r1")) == 2

    async def test_what_comes_before_a_stream_too_many_is_stored(
        self, d: Driver, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(limits, "streams_per_run_max", 2)
        await d.start("r1")
        items = (("a", "1"), ("b", "3"), ("a", "4"), ("c", "5"), ("a", "6"))
        assert await d.publish_items("r1", *items) == Counted(3)
        assert refused(await d.publish_items("r1", *items[3:])) == "too_many_streams"
        assert await d.published("r1", "a") == [(1, "1"), (2, "4")]
        assert [one.stream for one in await d.store.streams("r1")] == ["a", "b"]

    async def test_code_that_wants_one_more_is_told_so_on_every_replay(
        self, d: Driver, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(limits, "streams_per_run_max", 1)
        await d.start("r1")
        await d.add_to_stream("r1", "p1", "a", "1")
        answer = await d.add_to_stream("r1", "p2", "b", "1")
        assert isinstance(answer, Advanced)
        assert answer.completions[0].state == "failed"
        step = await d.step("r1", "p2")
        assert step.state == "failed"
        assert "too_many_streams" in (step.error or "")

    # --- reading ---

    async def test_a_stream_is_read_in_pages(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", *(("a", str(n)) for n in range(1, 11)))
        pages = [await d.store.stream_items("r1", "a", after, 4) for after in (0, 4, 8, 10)]
        assert [[one.position for one in page] for page in pages] == [
            [1, 2, 3, 4],
            [5, 6, 7, 8],
            [9, 10],
            [],
        ]

    async def test_where_there_is_nothing_there_is_nothing_to_read(self, d: Driver) -> None:
        await d.start("r1")
        assert await d.store.stream_items("r1", "a", 0, 10) == []
        assert await d.store.stream_items("nobody", "a", 0, 10) == []
        assert await d.store.streams("nobody") == []

    async def test_streams_are_listed_by_name(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("b", "1"), ("é", "1"), ("a", "1"), ("b", "2"))
        spans = await d.store.streams("r1")
        shown = [(one.stream, one.first, one.last) for one in spans]
        assert shown == [("a", 1, 1), ("b", 1, 2), ("é", 1, 1)]

    async def test_names_that_begin_alike_are_apart(self, d: Driver) -> None:
        await d.start("r")
        await d.start("r:a")
        await d.publish_items("r", ("a:b", "1"), ("a", "2"))
        await d.publish_items("r:a", ("b", "3"))
        assert await d.published("r", "a:b") == [(1, "1")]
        assert await d.published("r:a", "b") == [(1, "3")]

    # --- how long ---

    async def test_they_survive_a_new_generation(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"))
        await d.continue_as("r1")
        await d.continue_as("r1")
        await d.publish_items("r1", ("a", "2"))
        assert await d.published("r1", "a") == [(1, "1"), (2, "2")]

    async def test_a_run_that_is_retried_goes_on(self, d: Driver) -> None:
        await d.start("r1")
        await d.add_to_stream("r1", "p", "a", "1")
        await d.fail("r1", "x")
        await d.retry("r1")
        await d.claim()
        await d.publish_items("r1", ("a", "2"))
        assert await d.published("r1", "a") == [(1, "1"), (2, "2")]

    async def test_they_go_with_their_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2")
        for run_id in ("r1", "r2"):
            await d.publish_items(run_id, ("a", "1"), ("b", "1"))
        await d.finish("r1")
        d.advance("1h")
        assert (await d.prune(finished_before=d.clock.now())).count == 1
        assert (await d.store.streams("r1"), await d.published("r1", "a")) == ([], [])
        assert await d.published("r2", "a") == [(1, "1")]

    # --- answers to signals ---

    async def test_an_answer_is_found_by_its_signal(self, d: Driver) -> None:
        await d.start("r1")
        answer = await reply(d, "reply", "s1", '{"position":4611686018427387904}')
        assert isinstance(answer, Advanced)
        assert [(one.state, one.value) for one in answer.completions] == [("done", '"s1"')]
        assert told(d) == ["s1"]
        assert await said(d, "s1") == '{"position":4611686018427387904}'
        assert await said(d, "s2") is None
        assert await d.store.streams("r1") == []

    async def test_the_first_answer_counts(self, d: Driver) -> None:
        await d.start("r1")
        await reply(d, "reply", "s1", "1")
        await reply(d, "reply#2", "s1", "2")
        assert told(d) == []
        assert await said(d, "s1") == "1"

    async def test_answers_are_kept_for_a_day_and_then_deleted(
        self, d: Driver, monkeypatch: Any
    ) -> None:
        """Not all at once, where they are read for it: each may be large."""
        monkeypatch.setattr(limits, "expired_keys_bytes_max", 1_000)
        await d.start("r1")
        for nth in range(5):
            await reply(d, f"reply#{nth + 1}", f"s{nth}", f'"{600 * "x"}"')
        d.clock.set(d.clock.now() + limits.reply_us - 1)
        assert await said(d, "s0") is not None
        before = (await d.store.counts())["keys"]
        d.clock.set(d.clock.now() + 1)
        assert await said(d, "s0") is None
        for _ in range(5):
            await d.prune(finished_before=None)
        assert (await d.store.counts())["keys"] == before - 5

    async def test_a_run_of_the_same_id_begins_anew(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish_items("r1", ("a", "1"), ("b", "1"))
        await d.finish("r1")
        d.advance("1h")
        start = d.start_op("r1")
        again = ops.Publish(
            run_id="r1", fence=start.fence, path="s", attempt=1, items=(("a", "9"),)
        )
        prune = ops.Prune(finished_before=d.clock.now(), limit=10)
        await d.batch(prune, start, again)
        assert await d.published("r1", "a") == [(1, "9")]
        assert [one.stream for one in await d.store.streams("r1")] == ["a"]
