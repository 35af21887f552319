"""Documents of runs that ask people: what no run could ask or be told is refused, and what is asked can be answered."""

import json
from typing import Any

import pytest

from perdure import App, ApprovalClosed, ApprovalNotFound, BadDocument, Context, TimedOut, timer
from perdure.approvals import approval
from perdure.model.approvals import Asks, remind_at, reminders_past
from perdure.testing import World

LATE = 253_402_300_800_000_000  # the year 10000
DEEP = "[" * 200_000 + "]" * 200_000


def desk() -> App:
    app = App("memory://")

    @app.workflow
    async def refund(ctx: Context) -> str | None:
        match await ctx.wait(
            approval("refund", title="Refund?", who="anna", remind=["1h", "2h"], data={"eur": 5})
            | timer("48h")
        ):
            case TimedOut():
                return "late"
            case decision:
                await ctx.sleep("1h")
                return decision.choice

    return app


async def asked(*, decided: bool = False) -> dict[str, Any]:
    async with World(desk()) as home:
        run = await home.app.start("refund", id="a")
        await home.settle()
        if decided:
            (one,) = await home.app.approvals()
            await home.app.decide(one.id, "approve", by="anna")
            await home.settle()
        return await run.export()


def with_asks(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    step = document["history"][0]
    spec = json.loads(step["wait"])
    asks = json.loads(spec["on"][0]["asks"])
    spec["on"][0]["asks"] = json.dumps({**asks, **fields})
    changed = {**step, "wait": json.dumps(spec)}
    return {**document, "history": [changed, *document["history"][1:]]}


def with_text(document: dict[str, Any], text: str) -> dict[str, Any]:
    step = document["history"][0]
    spec = json.loads(step["wait"])
    spec["on"][0]["asks"] = text
    changed = {**step, "wait": json.dumps(spec)}
    return {**document, "history": [changed, *document["history"][1:]]}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "other"}, "asks 'other' as 'refund'"),
    ({"id": "x"}, "approval id 'x' is none"),
    ({"before": ["x"]}, "approval id 'x' is none"),
    ({"before": ["01KE6P4YM0RK2DBEP728G80004"] * 21}, "has 21 ids"),
    ({"title": "x" * 513}, "approval_title_bytes_max"),
    ({"description": "x" * 8193}, "approval_description_bytes_max"),
    ({"title": "\0"}, "zero byte"),
    ({"choices": []}, "choices .* are none"),
    ({"choices": ["a", "a"]}, "name one twice"),
    ({"choices": [""]}, "choice '' is empty"),
    ({"choices": [str(nth) for nth in range(33)]}, "choices_max"),
    ({"who": ["group:"]}, "names no group"),
    ({"who": [f"p{nth}" for nth in range(65)]}, "approvers_max"),
    ({"schema": "["}, "schema is no such JSON"),
    ({"schema": "[]"}, "schema is no such JSON"),
    ({"schema": '"' + "x" * 40_000 + '"'}, "approval_schema_bytes_max"),
    ({"data": "["}, "data is no such JSON"),
    ({"data": "[" * 70 + "]" * 70}, "payload nests"),
    ({"data": '"' + "x" * 20_000 + '"'}, "approval_data_bytes_max"),
    ({"expires_us": 0}, "expires 0 must be more than nothing"),
    ({"expires_us": 2**62}, "expires .* duration_us_max"),
    ({"expires_at": LATE}, "outside the years 1 to 9999"),
    ({"asked_at": -LATE}, "outside the years 1 to 9999"),
    ({"remind_us": [-1]}, "remind -1 must be more than nothing"),
    ({"remind_us": [2, 1]}, "must be in order"),
    ({"remind_us": list(range(1, 52))}, "reminders_max"),
    ({"every_us": 1}, "single reminders beside repeated ones"),
    ({"every_us": -1, "remind_us": []}, "remind -1 must be more than nothing"),
    ({"reminded": -(2**62)}, "reminded .*reminders_max"),
    ({"reminded": 51}, "reminded 51 .*reminders_max"),
    ({"workflow": "a/b"}, "workflow name"),
]


async def test_what_no_run_could_ask_is_refused() -> None:
    document = await asked()
    async with World(desk()) as w:
        before = await w.app._engine().store.counts()
        for fields, problem in WRONG:
            with pytest.raises(BadDocument, match=rf"history\[0\].*{problem}"):
                await w.app.import_run(with_asks(document, **fields))
                pytest.fail(f"{fields} was taken")
        for text in ("", "[]", "{}", '{"name":"refund","x":' + DEEP + "}"):
            with pytest.raises(BadDocument, match=r"history\[0\]"):
                await w.app.import_run(with_text(document, text))
        assert await w.app._engine().store.counts() == before
        await w.app.import_run(with_asks(document))  # as it is it is good


async def test_what_no_decision_leaves_behind_is_refused() -> None:
    document = await asked(decided=True)
    step = document["history"][0]
    told = json.loads(step["value"])
    wrong: list[str | None] = [
        None,
        "7",
        "{}",
        json.dumps({**told, "decided_at": LATE}),
        json.dumps({**told, "by": ""}),
        json.dumps({**told, "choice": "\0"}),
        json.dumps({**told, "comment": "x" * 5000}),
        step["value"].replace('"payload":null', f'"payload":{DEEP}'),
    ]
    async with World(desk()) as w:
        for value in wrong:
            with pytest.raises(BadDocument, match=r"history\[0\]"):
                await w.app.import_run(
                    {**document, "history": [{**step, "value": value}, *document["history"][1:]]}
                )
                pytest.fail(f"{value!r:.80} was taken")
        run = await w.app.import_run(document)
        await w.advance("1h")
        assert await run.result() == "approve"


def test_reminders_that_are_past_are_counted_at_once() -> None:
    def by_looking(asks: Asks, now: int) -> int:
        number = asks.reminded
        while (at := remind_at(asks, number + 1)) is not None and at <= now:
            number += 1
        return number

    for spans in ({"every_us": 7}, {"remind_us": (3, 7, 20)}, {}):
        for expires_at in (None, 100, 114, 121, 900):
            asks = Asks(name="a", asked_at=100, expires_at=expires_at, **spans)  # type: ignore[arg-type]
            for now in range(90, 600):
                assert reminders_past(asks, now) == by_looking(asks, now), (asks, now)
    far_behind = Asks(name="a", asked_at=100, every_us=7, reminded=-(2**62))
    assert reminders_past(far_behind, 121) == 3


async def test_an_approval_of_a_run_that_nobody_has_taken_is_not_called_late(world: Any) -> None:
    document = await asked()
    async with world(desk()) as w:
        run = await w.app.import_run(document)
        asks = json.loads(json.loads(document["history"][0]["wait"])["on"][0]["asks"])
        id = f"{asks['id']}.a"
        with pytest.raises(ApprovalNotFound, match="does not ask yet") as told:
            await w.app.decide(id, "approve", by="anna")
        assert told.value.approval_id == id
        await w.settle()
        await w.app.decide(id, "approve", by="anna")
        await w.advance("1h")
        assert await run.result() == "approve"


async def test_its_time_may_have_run_out_before_anybody_takes_it(world: Any) -> None:
    document = await asked()
    step = document["history"][0]
    spec = {**json.loads(step["wait"]), "deadline_at": 5}
    late = {**document, "history": [{**step, "wait": json.dumps(spec)}]}
    async with world(desk()) as w:
        run = await w.app.import_run(late, id="b")
        id = json.loads(spec["on"][0]["asks"])["id"]
        with pytest.raises(ApprovalClosed, match="its time ran out"):
            await w.app.decide(f"{id}.b", "approve", by="anna")
        await w.settle()
        assert await run.result() == "late"
