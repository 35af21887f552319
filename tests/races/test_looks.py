"""Decisions that rest on several looks, overtaken between two of them: they are made anew, on what is there by then.

For stores that decide away from the rows (store/optimistic). One process is held between its calls, the other does
its whole part meanwhile, and what comes of both must be as if one had come after the other.
"""

from collections.abc import Iterator

import pytest
from holding import COMMIT, SECOND_LOOK, Outsider, Place, overtaken, reading
from racing import Race

from perdure.model import ops
from perdure.model.outcomes import Buffered, NotFound, Refusal, Steered
from perdure.model.records import ChannelRecord, ParkedRecord
from perdure.testing.conformance.words import (
    declared,
    entry,
    queue,
    timer,
    topic,
    wait,
)


@pytest.fixture(params=["postgres", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# On Redis a look is one script, and so is a commit: nobody comes in between.
within_a_call = pytest.mark.parametrize("kind", ["postgres"], indirect=True)


def test_a_run_that_changes_between_two_looks(race: Race) -> None:
    race.start("r")
    race.fail("r")
    with overtaken(race.b, SECOND_LOOK, race.b.d.retry("r")) as late:
        assert race.a.apply(ops.Retry(run_id="r")) == [Steered("r", "ready", True)]
    assert isinstance(late.result(), Refusal)
    assert race.run("r").revision == 1


def test_a_run_that_goes_between_two_looks(race: Race) -> None:
    race.start("r")
    race.fail("r")
    race.clock.set(race.clock.now() + 1)
    with overtaken(race.b, SECOND_LOOK, race.b.d.retry("r")) as late:
        race.a.apply(ops.Prune(finished_before=race.clock.now(), limit=1))
    assert late.result() == NotFound("r")


def test_a_catalogue_that_changes_between_two_looks(race: Race) -> None:
    """The emit asks for its topic at once, the signal for its workflow when its run is known."""
    race.start("r", workflow="strict")
    batch = (race.b.d.emit_op("tick"), race.b.d.signal_op("r", "go"))
    with overtaken(race.b, SECOND_LOOK, race.b.d.batch(*batch)) as late:
        schema = ChannelRecord(kind="topic", name="tick", schema='{"type":"string"}')
        known = declared(workflow="strict", other=entry())
        race.a.apply(ops.Declare(workflows=(known,), channels=(schema,)))
    (emitted,), sent = late.result()
    assert (emitted.code, sent.code) == ("invalid_payload", "unknown_signal")


def test_a_dead_letter_that_goes_between_two_looks(race: Race) -> None:
    """It is read before the run that it belongs to is known; by whose version it counts."""
    race.start("r", "to")
    race.a.apply(race.a.d.signal_op("r", "go", on_end="dead_letter", signal_id="letter"))
    race.complete("r")
    with overtaken(race.b, SECOND_LOOK, race.b.d.resend("letter", to="to")) as late:
        assert isinstance(race.a.do(race.a.d.resend("letter", to="to")), Buffered)
    assert late.result().code == "no_dead_letter"
    assert len(race.a.do(race.a.d.payloads("to"))) == 1


@pytest.mark.parametrize("steer", [ops.Cancel, ops.Terminate])
def test_a_child_that_is_started_while_its_parent_is_steered(
    race: Race, steer: type[ops.Cancel | ops.Terminate]
) -> None:
    """The owner's numbers are behind those of the steering process, and so cannot tell it of the child."""
    race.start("parent")
    race.b.apply(*(race.b.d.put_op("ahead") for _ in range(20)))
    start = race.a.d.start_op("child", owner="worker-a", parent_run_id="parent")
    send = race.turn(ops.RecordSend, "parent", path="s", name="s", kind="start", send=start)
    with overtaken(race.b, COMMIT, race.b.d.apply(steer(run_id="parent"))) as late:
        race.a.apply(send)
    assert late.result().changed
    now = race.run("child")
    assert now.cancel_requested or now.status == "terminated"


@pytest.mark.parametrize("place", [SECOND_LOOK, COMMIT], ids=lambda one: one.call)
def test_a_run_that_is_pruned_while_another_is_started_by_it(race: Race, place: Place) -> None:
    """That nobody refers to it is read before its version, and holds no longer."""
    race.start("parent")
    race.complete("parent")
    race.clock.set(race.clock.now() + 1)
    prune = race.b.d.prune(finished_before=race.clock.now())
    with overtaken(race.b, place, prune) as late:
        race.start("child", parent_run_id="parent")
    assert late.result().count == 0
    assert race.run("parent").status == "completed"


@within_a_call
def test_an_event_that_is_parked_while_the_ledger_is_trimmed(race: Race) -> None:
    """A consumer passes an event and parks it in one commit: retention must not see it passed and not parked."""
    race.a.apply(*(race.a.d.emit_op("tick", event_id=f"e{at}") for at in range(1, 5)))
    race.a.do(race.a.d.claim_consumer("c", "worker-a"))
    parked = ParkedRecord(
        consumer="c", position=2, event_id="e2", type="tick", reason="no", attempts=1, parked_at=0
    )
    with overtaken(race.b, reading("consumers"), race.b.d.trim(keep=0)) as late:
        race.a.do(race.a.d.advance_cursor("c", 4, parked=(parked,)))
    assert late.result().count == 1
    assert race.a.do(race.a.store.span())[0] == 2


def test_an_item_is_behind_those_that_were_put_before_by_a_process_that_counts_further(
    race: Race,
) -> None:
    """Also when the queue was empty in between, and one that was taken comes back to its place."""
    race.start("r")
    race.a.apply(*(race.a.d.put_op("ahead") for _ in range(20)))
    race.a.apply(race.a.d.put_op("q", "1"))
    take = wait("w", topic("never"), timer("1h"))
    race.a.apply(race.turn(ops.Suspend, "r", waits=(take, wait("i", queue("q"))), park=False))
    race.b.apply(race.b.d.put_op("q", "2"))
    race.a.apply(race.turn(ops.RecordStep, "r", closed=("i",)))
    assert race.a.do(race.a.d.items("q")) == ["1", "2"]


# --- inside the commit ---


@pytest.fixture
def outsider(race: Race, postgres_url: str) -> Iterator[Outsider]:
    outsider = Outsider(postgres_url, race.a.store.schema)
    yield outsider
    outsider.close()


@within_a_call
def test_an_event_in_time_against_the_deadline_of_a_wait_with_a_filter(
    race: Race, outsider: Outsider
) -> None:
    """A filter judges events outside the store, so an event does not touch the run that may wait for it.

    The event is recorded at the deadline, and waits for its commit while the deadline is found to have passed. It
    comes first on the ledger, so it is to be judged first.
    """
    race.start_waiting(["r"], wait("w", topic("tick", filter="payload > 1"), timer("1s")))
    race.clock.set(race.clock.now() + 1_000_000)
    outsider.hold_event("e")
    emitting = race.b.begin(race.b.d.emit("tick", "2", event_id="e", fresh=True))
    outsider.until_held()
    race.clock.set(race.clock.now() + 1)
    examined = race.a.do(race.a.d.head())
    ending = race.a.begin(race.a.d.resolve_wait("r", None, examined=examined))
    outsider.until_settled(ending, 2)
    outsider.release()
    emitted, ended = emitting.result(timeout=30), ending.result(timeout=30)
    assert (emitted.position, ended) == (examined + 1, 0)
    assert race.step("r").state == "open"
    assert race.a.do(race.a.d.resolve_wait("r", emitted.position)) == 1
    assert race.step("r").value == "2"
