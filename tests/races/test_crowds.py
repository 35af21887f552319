"""Many processes at the same few rows: all get on, nothing is lost, whatever the order was."""

import asyncio
from typing import Any

from racing import Process, Race

from perdure.model.outcomes import Buffered, Delivered
from perdure.testing.conformance.words import queue, signal, wait


def crowd(race: Race) -> None:
    race.join("worker-c")
    race.join("worker-d")


def at_once(race: Race, act: Any) -> None:
    """Have all processes do their whole part at the same time."""
    for one in [process.begin(act(process)) for process in race.processes]:
        one.result(timeout=600)


def test_many_that_put_into_one_queue(race: Race) -> None:
    crowd(race)
    count = race.rounds // 4

    async def put_all(process: Process) -> None:
        for number in range(count):
            await process.d.put("q", f'"{process.worker_id}-{number}"')

    at_once(race, put_all)
    items = race.a.do(race.a.store.queue_items("q", 0, 10_000))
    assert len({one.position for one in items}) == len(items) == 4 * count
    for process in race.processes:
        mine = [one.payload for one in items if process.worker_id in one.payload]
        assert mine == [f'"{process.worker_id}-{number}"' for number in range(count)]


def test_many_that_take_from_one_queue_while_others_put(race: Race) -> None:
    """Two put and two take: as many as were put are taken, each once."""
    crowd(race)
    count = race.rounds // 4

    async def act(process: Process) -> None:
        for number in range(count):
            name = f"{process.worker_id}-{number}"
            if process in race.processes[:2]:
                await process.d.put("q", f'"{name}"', item_id=name)
            else:
                await process.d.start_waiting(name, queue("q"), owner=process.worker_id)

    at_once(race, act)
    takers = [f"{one.worker_id}-{at}" for one in race.processes[2:] for at in range(count)]
    taken = [race.step(one).taken_id for one in takers]
    puts = {f"{one.worker_id}-{at}" for one in race.processes[:2] for at in range(count)}
    assert set(taken) == puts and len(taken) == len(puts)


def test_many_that_signal_one_run(race: Race) -> None:
    """A buffer that keeps all has them all; each sender's in the order they were sent."""
    crowd(race)
    count = min(race.rounds // 8, 50)
    race.start("r")

    async def send_all(process: Process) -> None:
        for number in range(count):
            await process.d.signal("r", "go", f'"{process.worker_id}-{number}"', policy="all")

    at_once(race, send_all)
    kept = race.a.do(race.a.d.payloads("r"))
    assert len(kept) == 4 * count
    for process in race.processes:
        mine = [one for one in kept if process.worker_id in one]
        assert mine == [f'"{process.worker_id}-{number}"' for number in range(count)]


def test_a_run_that_works_while_many_signal_it(race: Race) -> None:
    """Its owner records and waits, the others send: each signal ends one wait, in the order of the history."""
    crowd(race)
    count = race.rounds // 8
    race.start("r")
    expected = 3 * count

    async def work(process: Process) -> None:
        for number in range(expected):
            path = f"w{number}"
            await process.d.suspend("r", wait(path, signal("go")), park=False)
            while (await process.d.step("r", path)).state == "open":  # noqa: ASYNC110 (a row, not an object)
                await asyncio.sleep(0)

    async def act(process: Process) -> None:
        if process is race.a:
            await work(process)
            return
        for _ in range(count):
            sent = await process.d.signal("r", "go", policy="all")
            assert isinstance(sent, Delivered | Buffered)

    at_once(race, act)
    steps = [race.step("r", f"w{number}") for number in range(expected)]
    assert [one.seq for one in steps] == sorted({one.seq for one in steps})
    assert len({one.taken_id for one in steps}) == expected
    assert race.a.do(race.a.d.payloads("r")) == []


def test_readers_begin_at_the_end_while_many_append(race: Race) -> None:
    """What needs to know where the ledger ends is decided on an end that is moving all the time, and gets on."""
    crowd(race)
    count = max(race.rounds // 4, 1)
    ends: list[int] = []
    over = []
    race.a.do(
        race.a.d.emit("tick")
    )  # the others may come late, and the end is to be after the beginning

    async def act(process: Process) -> None:
        if process is not race.a:
            while not over:
                await process.d.emit("tick")
            return
        try:
            for number in range(count):
                claimed: Any = await process.d.claim_consumer(f"c{number}", "worker-a", start=None)
                steered: Any = await process.d.steer_consumer(f"c{number}", position=10**9)
                assert claimed.position <= steered.position
                ends.append(steered.position)
                await process.d.subscribe(f"s{number}", start=0)
                await process.d.switch(f"s{number}", False)
                await process.d.switch(f"s{number}", True)
                rule = await process.d.subscription(f"s{number}")
                assert (rule.behind, steered.position <= rule.until <= rule.position) == (0, True)
        finally:
            over.append(True)

    at_once(race, act)
    assert len(race.a.do(race.a.store.consumers())) == len(ends) == count
    assert ends == sorted(ends)


def test_a_wait_and_many_that_deliver(race: Race) -> None:
    """Of many who send at once one ends the wait, and the others are kept."""
    crowd(race)
    for number in range(race.rounds // 4):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", signal("go")))
        answers = race.meet(
            *(one.d.signal_op(run_id, "go", policy="all") for one in race.processes)
        )
        assert sum(isinstance(one, Delivered) for one in answers) == 1
        assert len(race.a.do(race.a.d.payloads(run_id))) == 3
