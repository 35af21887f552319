"""Signals: delivered to the wait that is open, else kept by policy; keys, paths, time to live, and the run's end."""

import pytest

from perdure.model import limits
from perdure.model.outcomes import Buffered, Delivered, Duplicate, Finished, NotFound, Refusal
from perdure.model.records import EventRecord, SignalRecord
from perdure.testing.conformance.driver import Driver, accepted, completed, refused
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, signal, sleep, timer, wait


class TestSignals(Subject):
    # --- delivery ---

    async def test_a_signal_to_a_waiting_run_ends_the_wait_in_one_commit(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        answer = await d.signal("r1", "go", "1", signal_id="s1")
        assert answer == Delivered("r1", "w", "s1")
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.value) == ("done", 0, "1")
        assert step.recorded_at == d.clock.now() and step.seq > 0
        assert await d.watchers("r1") == []
        assert await d.payloads("r1") == []
        assert await d.status("r1") == "ready"

    async def test_a_second_signal_does_not_reach_the_wait_that_has_ended(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.signal("r1", "go", "1")
        assert isinstance(await d.signal("r1", "go", "2"), Buffered)
        assert (await d.step("r1", "w")).value == "1"
        assert await d.payloads("r1") == ["2"]

    async def test_a_signal_to_an_unknown_run_is_not_found(self, d: Driver) -> None:
        before = await dump(d.store)
        assert await d.signal("nobody", "go") == NotFound("nobody")
        assert await dump(d.store) == before

    async def test_a_signal_to_a_run_that_has_ended_stores_nothing(self, d: Driver) -> None:
        for run_id, end in zip(
            ("r1", "r2", "r3", "r4"), ("finish", "fail", "terminate", "cancelled"), strict=True
        ):
            await d.start(run_id)
            await d.end(run_id, end)
            before = await dump(d.store)
            answer = await d.signal(run_id, "go", key="k")
            assert answer == Finished(run_id, (await d.run(run_id)).status)
            assert await dump(d.store) == before

    # --- early signals ---

    @pytest.mark.parametrize("kind", ["ready", "running", "waiting", "sleeping", "paused"])
    async def test_an_early_signal_is_kept_whatever_the_run_does(
        self, d: Driver, kind: str
    ) -> None:
        await d.start("r1", owner=None if kind == "ready" else "worker-1")
        if kind == "waiting":
            await d.suspend("r1", wait("v", signal("other")))
        if kind == "sleeping":
            await d.suspend("r1", sleep("s", "1h"))
        if kind == "paused":
            await d.suspend("r1", wait("w", signal("go")))
            await d.pause("r1")
        before = await d.run("r1")
        assert before.status == kind
        answer = await d.signal("r1", "go", "1", signal_id="s1")
        assert answer == Buffered("s1")
        assert await d.run("r1") == before  # nothing is woken or replayed
        (kept,) = await d.store.buffered("r1")
        assert (kept.payload, kept.received_at) == ("1", d.clock.now())

    async def test_a_wait_takes_an_early_signal_in_its_own_commit(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        answer = await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        assert completed(answer) == [("w", 0, "1")]
        assert await d.status("r1") == "running"
        assert await d.watchers("r1") == []  # no timer was set
        assert await d.payloads("r1") == []

    async def test_an_early_signal_is_taken_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        await d.suspend("r1", wait("w#1", signal("go")))
        assert completed(await d.suspend("r1", wait("w#2", signal("go")))) == []
        assert await d.status("r1") == "waiting"

    async def test_nobody_is_told_of_a_signal_that_is_kept(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go")
        assert d.heard[-1].wakes == ()

    async def test_buffer_false_is_refused_when_nobody_waits(self, d: Driver) -> None:
        await d.start("r1")
        assert refused(await d.signal("r1", "go", buffer=False)) == "not_waiting"
        assert await d.payloads("r1") == []

    async def test_buffer_false_is_delivered_when_somebody_waits(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        assert isinstance(await d.signal("r1", "go", buffer=False), Delivered)

    async def test_a_full_buffer_refuses(self, d: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "buffered_per_run_max", 3)
        await d.start("r1")
        for _ in range(3):
            await d.signal("r1", "go", policy="all")
        assert refused(await d.signal("r1", "go", policy="all")) == "full"
        assert len(await d.payloads("r1")) == 3

    async def test_a_full_buffer_still_takes_what_replaces_another(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "buffered_per_run_max", 2)
        await d.start("r1")
        for payload in ("1", "2", "3"):
            assert isinstance(await d.signal("r1", "go", payload), Buffered)
        await d.signal("r1", "stop")
        assert isinstance(await d.signal("r1", "go", "4"), Buffered)
        assert refused(await d.signal("r1", "more")) == "full"

    async def test_a_first_that_the_full_buffer_refused_claims_nothing(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "buffered_per_run_max", 1)
        await d.start("r1")
        await d.signal("r1", "other")
        assert refused(await d.signal("r1", "go", policy="first")) == "full"
        await d.suspend("r1", wait("w", signal("other")))
        assert isinstance(await d.signal("r1", "go", policy="first"), Buffered)

    async def test_a_buffer_is_bounded_by_the_size_of_what_it_holds(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "buffered_chars_per_run_max", 10)
        await d.start("r1")
        assert isinstance(await d.signal("r1", "go", "123456"), Buffered)
        assert refused(await d.signal("r1", "more", "12345")) == "full"
        assert isinstance(await d.signal("r1", "go", "1234567890"), Buffered)  # in its place
        assert await d.payloads("r1") == ["1234567890"]

    # --- three policies ---

    async def test_latest_is_the_default_and_keeps_one_slot(self, d: Driver) -> None:
        await d.start("r1")
        assert await d.signal("r1", "go", "1", signal_id="s1") == Buffered("s1")
        assert await d.signal("r1", "go", "2", signal_id="s2") == Buffered("s2", replaced="s1")
        (kept,) = await d.store.buffered("r1")
        assert (kept.signal_id, kept.payload, kept.policy) == ("s2", "2", "latest")

    async def test_what_was_replaced_is_on_the_ledger_with_its_successor(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        await d.signal("r1", "go", "2", signal_id="s2")
        (fact,) = await d.facts("signal.replaced")
        assert fact.event_id == "s1"
        (told,) = await d.told("signal.replaced")
        assert (told["signal_id"], told["name"], told["by"]) == ("s1", "go", "s2")

    async def test_slots_of_two_names_and_of_two_paths_are_different(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        await d.signal("r1", "stop", "2")
        await d.signal("r1", "go", "3", path="a")
        await d.signal("r1", "go", "4", path="b")
        assert await d.payloads("r1") == ["1", "2", "3", "4"]

    async def test_first_refuses_the_second_while_the_first_is_buffered(self, d: Driver) -> None:
        await d.start("r1")
        assert isinstance(await d.signal("r1", "go", "1", policy="first"), Buffered)
        assert refused(await d.signal("r1", "go", "2", policy="first")) == "taken"
        assert await d.payloads("r1") == ["1"]

    async def test_first_refuses_the_second_after_the_first_was_delivered(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        assert isinstance(await d.signal("r1", "go", "1", policy="first"), Delivered)
        assert refused(await d.signal("r1", "go", "2", policy="first")) == "taken"
        await d.claim()
        await d.suspend("r1", wait("w#2", signal("go")))
        assert refused(await d.signal("r1", "go", "3", policy="first")) == "taken"

    async def test_first_counts_by_name_and_by_path_if_addressed(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", policy="first")
        for name, path in (("stop", None), ("go", "a"), ("go", "b")):
            assert isinstance(await d.signal("r1", name, policy="first", path=path), Buffered)
        assert refused(await d.signal("r1", "go", policy="first", path="a")) == "taken"

    async def test_first_counts_anew_in_the_next_generation(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.signal("r1", "go", policy="first")
        await d.claim()
        await d.continue_as("r1")
        assert isinstance(await d.signal("r1", "go", policy="first"), Buffered)

    async def test_a_first_that_expired_leaves_its_claim_to_the_next(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", policy="first", ttl_us=1_000_000)
        d.advance("2s")
        await d.fire()
        assert isinstance(await d.signal("r1", "go", policy="first"), Buffered)

    async def test_an_expired_first_frees_the_claim_of_its_own_path_only(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", policy="first")
        await d.signal("r1", "go", policy="first", path="a", ttl="1s")
        d.advance("2s")
        await d.fire()
        assert isinstance(await d.signal("r1", "go", policy="first", path="a"), Buffered)
        assert refused(await d.signal("r1", "go", policy="first")) == "taken"

    async def test_a_first_is_not_freed_by_another_that_expires(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", policy="all", ttl_us=1_000_000)
        await d.signal("r1", "go", policy="first")
        d.advance("2s")
        await d.fire()
        assert refused(await d.signal("r1", "go", policy="first")) == "taken"

    async def test_claims_of_runs_whose_ids_hold_slashes_are_apart(self, d: Driver) -> None:
        await d.start("a")
        await d.start("a/0/n/x")
        await d.signal("a", "n", policy="first", path="x/0/m/")
        assert isinstance(await d.signal("a/0/n/x", "m", policy="first"), Buffered)

    async def test_a_refused_first_claims_nothing(self, d: Driver) -> None:
        await d.start("r1")
        assert refused(await d.signal("r1", "go", policy="first", buffer=False)) == "not_waiting"
        assert isinstance(await d.signal("r1", "go", policy="first"), Buffered)

    async def test_all_keeps_every_signal_in_order(self, d: Driver) -> None:
        await d.start("r1")
        for payload in ("1", "2", "3"):
            assert isinstance(await d.signal("r1", "go", payload, policy="all"), Buffered)
        assert await d.payloads("r1") == ["1", "2", "3"]
        for number in (1, 2, 3):
            answer = await d.suspend("r1", wait(f"w#{number}", signal("go")))
            assert completed(answer) == [(f"w#{number}", 0, str(number))]

    # --- keys ---

    async def test_the_same_key_gives_the_first_answer_and_no_second_effect(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        first = accepted(await d.signal("r1", "go", "1", key="k", policy="all"))
        before = await dump(d.store)
        assert await d.signal("r1", "go", "1", key="k", policy="all") == Duplicate(first)
        assert await dump(d.store) == before

    async def test_the_same_key_gives_the_answer_of_a_delivery_too(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        first = accepted(await d.signal("r1", "go", "1", key="k"))
        assert isinstance(first, Delivered)
        assert await d.signal("r1", "go", "1", key="k") == Duplicate(first)

    async def test_the_same_key_with_another_payload_is_a_conflict(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", key="k")
        assert refused(await d.signal("r1", "go", "2", key="k")) == "conflict"
        assert await d.payloads("r1") == ["1"]

    async def test_a_key_counts_for_one_run_and_one_name(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2")
        await d.signal("r1", "go", "1", key="k")
        assert isinstance(await d.signal("r2", "go", "2", key="k"), Buffered)
        assert isinstance(await d.signal("r1", "stop", "2", key="k"), Buffered)

    async def test_a_key_is_looked_at_before_the_end_of_the_run(self, d: Driver) -> None:
        await d.start("r1")
        first = accepted(await d.signal("r1", "go", "1", key="k"))
        await d.finish("r1")
        assert await d.signal("r1", "go", "1", key="k") == Duplicate(first)
        assert refused(await d.signal("r1", "go", "2", key="k")) == "conflict"

    async def test_a_key_is_looked_at_before_the_policy(self, d: Driver) -> None:
        await d.start("r1")
        first = accepted(await d.signal("r1", "go", "1", key="k", policy="first"))
        assert await d.signal("r1", "go", "1", key="k", policy="first") == Duplicate(first)
        again = await d.signal("r1", "go", "1", key="k", buffer=False)
        assert again == Duplicate(first)

    async def test_a_key_is_looked_at_before_the_payload(self, d: Driver) -> None:
        """The sender found that it does not fit; whether the key was used before only the store knows."""
        await d.start("r1")
        first = accepted(await d.signal("r1", "go", "1", key="k"))
        wrong = ("at $: expected boolean",)
        assert refused(await d.signal("r1", "go", '"no"', key="k", errors=wrong)) == "conflict"
        assert await d.signal("r1", "go", "1", key="k", errors=wrong) == Duplicate(first)
        answer = await d.signal("r1", "go", '"no"', key="other", errors=wrong)
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.paths) == ("invalid_payload", wrong)
        assert await d.payloads("r1") == ["1"]

    async def test_a_key_lives_as_long_as_the_run_also_over_continue_as(self, d: Driver) -> None:
        await d.start("r1")
        first = accepted(await d.signal("r1", "go", "1", key="k"))
        await d.continue_as("r1")
        assert await d.signal("r1", "go", "1", key="k") == Duplicate(first)

    async def test_a_refused_send_uses_up_no_key(self, d: Driver) -> None:
        await d.start("r1")
        assert refused(await d.signal("r1", "go", "1", key="k", buffer=False)) == "not_waiting"
        assert isinstance(await d.signal("r1", "go", "2", key="k"), Buffered)

    # --- paths ---

    async def test_a_path_addresses_one_of_two_waits_of_the_same_name(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("go")), wait("b", signal("go")))
        answer = await d.signal("r1", "go", "1", path="b")
        assert isinstance(answer, Delivered) and answer.path == "b"
        assert (await d.step("r1", "a")).state == "open"

    async def test_a_name_that_two_branches_wait_for_is_ambiguous(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("b", signal("go")), wait("a", signal("go")))
        answer = await d.signal("r1", "go")
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.paths) == ("ambiguous", ("a", "b"))
        assert await d.payloads("r1") == []

    async def test_a_name_finds_the_single_wait_that_is_left(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("go")), wait("b", signal("go")))
        await d.signal("r1", "go", "1", path="b")
        answer = await d.signal("r1", "go", "2")
        assert isinstance(answer, Delivered) and answer.path == "a"

    async def test_a_path_where_nobody_waits_keeps_the_signal_for_it(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        assert isinstance(await d.signal("r1", "go", "1", path="later"), Buffered)
        assert (await d.step("r1", "w")).state == "open"

    async def test_a_wait_takes_what_is_addressed_to_it_before_what_is_older(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", policy="all")
        await d.signal("r1", "go", "2", policy="all", path="w")
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "2")]

    async def test_a_wait_does_not_take_what_is_addressed_to_another(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", path="b")
        answer = await d.suspend("r1", wait("a", signal("go")), wait("b", signal("go")))
        assert completed(answer) == [("b", 0, "1")]

    async def test_of_several_names_the_oldest_accepted_signal_wins(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "no", "1")
        await d.signal("r1", "yes", "2")
        answer = await d.suspend("r1", wait("w", signal("yes"), signal("no")))
        assert completed(answer) == [("w", 1, "1")]
        assert await d.payloads("r1") == ["2"]

    async def test_a_replaced_signal_counts_from_its_replacement(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "no", "1")
        await d.signal("r1", "yes", "2")
        await d.signal("r1", "no", "3")
        answer = await d.suspend("r1", wait("w", signal("yes"), signal("no")))
        assert completed(answer) == [("w", 0, "2")]

    # --- time to live ---

    async def test_a_signal_past_its_time_to_live_is_not_taken(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", ttl="1m", signal_id="s1")
        d.advance("1m1us")
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == []
        assert await d.payloads("r1") == []
        (fact,) = await d.facts("signal.expired")
        assert fact.event_id == "s1"

    async def test_a_signal_at_its_time_to_live_is_taken(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", ttl="1m")
        d.advance("1m")
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "1")]

    async def test_a_wait_that_skips_an_expired_signal_takes_the_next(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", policy="all", ttl="1m")
        await d.signal("r1", "go", "2", policy="all")
        d.advance("2m")
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "2")]

    async def test_timers_clear_away_what_has_expired(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", ttl="1m")
        await d.signal("r1", "stop", "2")
        assert (await d.store.look()).deadline_at == d.clock.now() + HOUR // 60
        d.advance("2m")
        fired = await d.fire()
        assert (fired.count, fired.next_at) == (1, None)
        assert await d.payloads("r1") == ["2"]
        assert len(await d.facts("signal.expired")) == 1

    async def test_a_signal_at_its_time_to_live_is_not_cleared_away(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", ttl="1m")
        d.advance("1m")
        assert (await d.fire()).count == 0
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "1")]

    async def test_a_buffered_time_to_live_is_told_to_whoever_sleeps_until_the_next(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", ttl="1m")
        assert d.deadlines_told() == [d.clock.now() + HOUR // 60]

    # --- the run's end ---

    async def test_what_was_never_taken_leaves_the_buffer_with_the_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        await d.signal("r1", "stop", "2", signal_id="s2")
        await d.finish("r1")
        assert await d.payloads("r1") == []
        assert await d.store.dead_letters("r1", "", 10) == []
        assert [one.event_id for one in await d.facts("signal.discarded")] == ["s1", "s2"]

    async def test_on_end_dead_letter_keeps_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", on_end="dead_letter", signal_id="s1")
        await d.signal("r1", "stop", "2")
        await d.finish("r1")
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.dead_letter_id, letter.name, letter.payload) == ("s1", "go", "1")
        assert len(await d.facts("signal.discarded")) == 2

    @pytest.mark.parametrize("end", ["terminate", "cancelled"])
    async def test_on_end_dead_letter_keeps_it_whatever_the_end(self, d: Driver, end: str) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", on_end="dead_letter", signal_id="s1")
        await d.end("r1", end)
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.dead_letter_id, letter.payload) == ("s1", "1")
        (told,) = await d.told("signal.discarded")
        assert (told["signal_id"], told["dead_letter"]) == ("s1", True)

    @pytest.mark.parametrize("end", ["finish", "terminate", "cancelled"])
    async def test_every_end_empties_the_buffer(self, d: Driver, end: str) -> None:
        await d.start("r1")
        await d.signal("r1", "go")
        await d.end("r1", end)
        assert await d.payloads("r1") == []
        assert len(await d.facts("signal.discarded")) == 1

    async def test_what_a_failed_run_never_took_is_a_dead_letter_always(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        await d.fail("r1")
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.payload, letter.dead_at) == ("1", d.clock.now())

    # --- where a signal is ---

    async def test_a_signal_can_be_followed_by_its_id(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        assert isinstance(await d.store.signal("s1"), SignalRecord)
        await d.suspend("r1", wait("w", signal("go")))
        fact = await d.store.signal("s1")
        assert isinstance(fact, EventRecord) and fact.type == "signal.delivered"
        assert await d.store.signal("nothing") is None
