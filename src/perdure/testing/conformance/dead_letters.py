"""Dead letters: signals that nobody could take any more, listed and sent again."""

from typing import Any

from perdure.model import ops
from perdure.model.outcomes import Buffered, Delivered, Finished, NotFound, Refusal
from perdure.model.records import DeadLetterRecord
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import WORKER, declared, entry, signal, wait


async def bury(d: Driver, *payloads: str, policy: str = "all", run_id: str = "dead") -> list[str]:
    """Dead letters of a failed run, by their ids."""
    await d.start(run_id)
    for payload in payloads:
        await d.signal(run_id, "go", payload, policy=policy)
    await d.fail(run_id)
    return [one.dead_letter_id for one in await d.store.dead_letters(run_id, "", 100)]


class TestDeadLetters(Subject):
    async def test_a_letter_keeps_what_was_sent(self, d: Driver) -> None:
        await d.start("r1")
        sent_at = d.clock.now()
        await d.signal("r1", "go", "1", signal_id="s1", path="w", on_end="dead_letter")
        d.advance("1h")
        await d.finish("r1")
        letter = await d.store.signal("s1")
        assert isinstance(letter, DeadLetterRecord)
        assert (letter.run_id, letter.name, letter.path, letter.payload) == ("r1", "go", "w", "1")
        assert (letter.received_at, letter.dead_at) == (sent_at, d.clock.now())
        assert "completed" in letter.reason

    async def test_a_letter_sent_again_is_delivered_under_its_new_id(self, d: Driver) -> None:
        (letter,) = await bury(d, "1")
        await d.start_waiting("r1", signal("go"))
        answer = await d.resend(letter, to="r1")
        assert isinstance(answer, Delivered) and answer.signal_id != letter
        assert (await d.step("r1", "w")).value == "1"
        assert await d.store.dead_letters(None, "", 10) == []

    async def test_a_letter_sent_again_may_be_buffered(self, d: Driver) -> None:
        (letter,) = await bury(d, "1")
        await d.start("r1")
        assert isinstance(await d.resend(letter, to="r1"), Buffered)
        assert await d.payloads("r1") == ["1"]
        assert await d.store.dead_letters(None, "", 10) == []

    async def test_a_letter_may_be_sent_again_in_the_batch_that_made_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2")
        await d.signal("r1", "go", "1", signal_id="s1", on_end="dead_letter")
        now = await d.run("r1")
        turn: dict[str, Any] = {"run_id": "r1", "fence": now.fence, "revision": now.revision}
        _, answer = await d.batch(
            ops.Finish(**turn, status="completed", output="1"),
            ops.ResendDeadLetter(dead_letter_id="s1", signal_id="s2", run_id="r2"),
        )
        assert isinstance(answer, Buffered)
        assert await d.store.dead_letters(None, "", 10) == []

    async def test_a_letter_may_be_sent_again_in_the_batch_that_forgets_its_run(
        self, d: Driver
    ) -> None:
        (letter,) = await bury(d, "1")
        await d.start("r2")
        d.advance("1h")
        answer, _ = await d.batch(
            ops.ResendDeadLetter(dead_letter_id=letter, signal_id="s2", run_id="r2"),
            ops.Prune(finished_before=d.clock.now(), limit=10),
        )
        assert isinstance(answer, Buffered)
        assert await d.payloads("r2") == ["1"]
        assert await d.store.run("dead") is None

    async def test_a_first_whose_branch_left_can_be_sent_again_and_is_still_the_first(
        self, d: Driver
    ) -> None:
        """The claim on its run is its own."""
        await d.declare(declared(go=entry("first")))
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go", "1", signal_id="s1")
        await d.record("r1", closed=("w",))
        assert isinstance(await d.resend("s1"), Buffered)
        assert await d.payloads("r1") == ["1"]
        answer = await d.signal("r1", "go", "2")
        assert isinstance(answer, Refusal) and answer.code == "taken"

    async def test_a_letter_is_sent_again_once(self, d: Driver) -> None:
        (letter,) = await bury(d, "1")
        await d.start("r1")
        await d.resend(letter, to="r1")
        again = await d.resend(letter, to="r1")
        assert isinstance(again, Refusal) and again.code == "no_dead_letter"

    async def test_a_letter_that_is_not_accepted_stays(self, d: Driver) -> None:
        (letter,) = await bury(d, "1")
        before = await dump(d.store)
        assert await d.resend(letter) == Finished("dead", "failed")
        assert await d.resend(letter, to="nobody") == NotFound("nobody")
        assert await dump(d.store) == before

    async def test_a_letter_to_another_run_forgets_the_path_it_was_addressed_to(
        self, d: Driver
    ) -> None:
        await d.start("dead")
        await d.signal("dead", "go", "1", signal_id="s1", path="elsewhere")
        await d.fail("dead")
        await d.start_waiting("r1", signal("go"))
        assert isinstance(await d.resend("s1", to="r1"), Delivered)

    async def test_a_letter_sent_again_still_becomes_one_at_the_end(self, d: Driver) -> None:
        await d.start("dead")
        await d.signal("dead", "go", "1", on_end="dead_letter", signal_id="s1")
        await d.finish("dead")
        await d.start("r1")
        await d.resend("s1", to="r1")
        await d.finish("r1")
        assert [one.payload for one in await d.store.dead_letters("r1", "", 10)] == ["1"]

    async def test_a_rejected_letter_is_sent_again_beside_others_of_its_name(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no"')
        await d.reject("r1", wait("w", signal("go"), known=True))
        (letter,) = await d.store.dead_letters("r1", "", 10)
        await d.start("r2")
        await d.signal("r2", "go", "1", policy="all")
        await d.resend(letter.dead_letter_id, to="r2")
        assert await d.payloads("r2") == ["1", '"no"']

    async def test_letters_keep_their_policy(self, d: Driver) -> None:
        """Two of a kind that is kept in a queue must not replace each other."""
        letters = await bury(d, "1", "2", policy="all")
        await d.start("r1")
        for letter in letters:
            await d.resend(letter, to="r1")
        assert await d.payloads("r1") == ["1", "2"]

    async def test_the_declared_policy_of_the_new_run_counts_before_that(self, d: Driver) -> None:
        letters = await bury(d, "1", "2", policy="all")
        await d.declare(declared(workflow="refunds", go=entry("latest")))
        await d.start("r1", workflow="refunds")
        for letter in letters:
            assert isinstance(await d.resend(letter, to="r1"), Buffered)
        assert await d.payloads("r1") == ["2"]

    async def test_letters_are_listed_by_page_and_by_run(self, d: Driver) -> None:
        first = await bury(d, "1", "2", "3", run_id="a")
        second = await bury(d, "4", run_id="b")
        listed = await d.store.dead_letters(None, "", 2)
        assert [one.dead_letter_id for one in listed] == sorted(first + second)[:2]
        rest = await d.store.dead_letters(None, listed[-1].dead_letter_id, 10)
        assert [one.dead_letter_id for one in rest] == sorted(first + second)[2:]
        assert [one.dead_letter_id for one in await d.store.dead_letters("b", "", 10)] == second
