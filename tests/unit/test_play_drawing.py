"""A play drawn: its tree, its flowchart, what becomes of its parts; and states put together from the record."""

import random
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Signal
from perdure.model.records import StepRecord
from perdure.play import Act, Chorus, Cue, Play, Scene, Sleep, mermaid
from perdure.play.drawing import with_position
from perdure.play.states import merged, state_after


@dataclass
class State:
    n: int = 0


def fine(ctx: Any, state: State) -> None: ...


def is_big(state: State) -> bool:
    return state.n > 1


play = Play(
    "order",
    State,
    [
        Act("reserve", fine, compensate=fine),
        Signal("ok", int, condition=is_big, timeout="1h"),
        Scene("ship", [Act("pack", fine), Chorus("tell", [Act("mail", fine), Act("sms", fine)])]),
        Sleep("rest", "1h"),
        Cue("tier", lambda state: "gold", {"gold": Act("gift", fine), "else": None}),
    ],
)


def test_a_tree_is_plain_values() -> None:
    graph = play.graph()
    assert msgspec.json.decode(msgspec.json.encode(graph)) == graph
    assert (graph["play"], graph["version"], graph["saga"]) == ("order", 1, True)
    reserve, ok, ship, rest, tier = graph["parts"]
    assert reserve == {"name": "reserve", "kind": "act", "path": "reserve", "compensate": "fine"}
    assert (ok["condition"], ok["timeout_us"]) == ("is_big", 3_600_000_000)
    assert [one["path"] for one in ship["parts"][1]["parts"]] == [
        "ship/tell[0]/mail",
        "ship/tell[1]/sms",
    ]
    assert rest["kind"] == "sleep"
    assert list(tier["ways"]) == ["gold", "else"]


def test_a_flowchart() -> None:
    lines = play.mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    for line in (
        '  start(["order"])',
        '  p1["reserve"]',
        '  p2[/"ok"/]',
        '  subgraph p3["ship"]',
        '  p9{"tier"}',
        "  start --> p1",
        "  p2 --> p4",
        '  p1 -->|"not is_big"| p4',
        "  p4 --> p6",
        "  p4 --> p7",
        '  p9 -->|"gold"| p10',
        '  p9 -->|"else"| finish',
    ):
        assert line in lines, line
    assert lines.index("  end") < lines.index("  start --> p1")  # arrows after all frames
    assert mermaid(play.graph()) == play.mermaid()


def test_names_are_text_and_never_marks_of_the_chart() -> None:
    odd = Play("odd", State, [Act('a"b<c>&d', fine), Sleep("é`x`", "1h")])
    text = odd.mermaid()
    assert 'p1["a#quot;b#lt;c#gt;#amp;d"]' in text


def step(path: str, state: str = "done", **fields: Any) -> StepRecord:
    known = {"kind": "act", "name": path.rpartition("/")[2], "seq": 1}
    return StepRecord(run_id="r", generation=0, path=path, state=state, **{**known, **fields})  # type: ignore[arg-type]


def status_of(name: str, steps: list[StepRecord], status: str) -> str:
    def find(parts: list[dict[str, Any]]) -> str | None:
        for part in parts:
            inside = [
                *part.get("parts", []),
                *(x for way in part.get("ways", {}).values() for x in way),
            ]
            found = part["status"] if part["name"] == name else find(inside)
            if found is not None:
                return str(found)
        return None

    found = find(with_position(play.graph(), steps, status)["parts"])
    assert found is not None
    return found


reserved = step("reserve")
yes, no = (step("ok.condition", kind="cue", value=one) for one in ("true", "false"))
chosen = step("tier", kind="cue", value='"gold"')
undone = step("reserve.compensate")
rolled_back = [reserved, step("pack", "failed"), undone]


@pytest.mark.parametrize(
    ("name", "steps", "status", "expected"),
    [
        ("reserve", [], "running", "running"),
        ("reserve", [], "ready", "pending"),
        ("reserve", [step("reserve", "retrying")], "sleeping", "retrying"),
        ("reserve", [step("reserve", "failed")], "failed", "failed"),
        ("ok", [reserved], "running", "running"),
        ("ok", [reserved, yes, step("ok", "open", kind="wait")], "waiting", "waiting"),
        ("ok", [reserved, yes, step("ok", kind="wait")], "running", "running"),
        ("ok", [reserved, yes, step("ok", kind="wait"), step("ok.receive")], "running", "done"),
        (
            "ok",
            [reserved, yes, step("ok", kind="wait"), step("ok.receive", "failed")],
            "failed",
            "failed",
        ),
        ("ok", [reserved, yes, step("ok", "abandoned", kind="wait")], "cancelled", "skipped"),
        ("ok", [reserved, no], "running", "skipped"),
        ("pack", [reserved, no], "running", "running"),
        ("ship", [reserved, no], "running", "active"),
        ("ship", [reserved, no, step("ship/pack")], "running", "active"),
        ("mail", [reserved, no, step("ship/pack")], "running", "running"),
        ("sms", [reserved, no, step("ship/pack"), step("ship/tell[0]/mail")], "running", "running"),
        ("tell", [step("ship/tell[0]/mail"), step("ship/tell[1]/sms")], "running", "done"),
        ("gift", [chosen], "running", "pending"),
        ("tier", [chosen, step("gift")], "completed", "done"),
        ("reserve", rolled_back, "failed", "compensated"),
        ("pack", [reserved], "completed", "pending"),
    ],
)
def test_what_became_of_a_part(
    name: str, steps: list[StepRecord], status: str, expected: str
) -> None:
    assert status_of(name, steps, status) == expected


def test_an_answer_of_a_cue_is_read_as_it_was_written() -> None:
    odd = Play(
        "odd", State, [Cue("q", lambda state: 'a"b', {'a"b': Signal("x", str), "else": None})]
    )
    steps = [step("q", kind="cue", value=r'"a\"b"'), step("x", "open", kind="wait")]
    (cue,) = with_position(odd.graph(), steps, "waiting")["parts"]
    assert (cue["way"], cue["status"], list(cue["ways"])) == ('a"b', "active", ['a"b', "else"])


# --- states ---


def text(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


def test_states_of_branches_are_put_together() -> None:
    base = text(a=1, b=1, c=1)
    assert merged(base, [text(a=2, b=1, c=1), text(a=1, b=2, c=1)]) == (text(a=2, b=2, c=1), None)
    assert merged(base, [text(a=2, b=1, c=1), text(a=3, b=1, c=1)])[1] == ("a", [0, 1])
    assert merged(base, [text(a=1, b=1), base])[0] == text(a=1, b=1)  # what is gone is gone
    assert merged(base, [])[0] == base


def test_a_state_in_the_midst_of_a_chorus_has_what_each_branch_has_done_so_far() -> None:
    start = text(a=0, b=0, log=[])
    steps = [
        step("first", value=text(a=0, b=0, log=["first"]), seq=1),
        step("both[0]/x", value=text(a=1, b=0, log=["first"]), seq=2),
        step("both[1]/y", value=text(a=0, b=1, log=["first"]), seq=3),
        step("both[0]/z", value=text(a=2, b=0, log=["first"]), seq=4),
    ]
    assert state_after(start, []) == start
    assert state_after(start, steps, "first") == text(a=0, b=0, log=["first"])
    assert state_after(start, steps, "both[0]/x") == text(a=1, b=0, log=["first"])
    assert state_after(start, steps, "both[1]/y") == text(a=1, b=1, log=["first"])
    assert (
        state_after(start, steps)
        == state_after(start, steps, "both")
        == text(a=2, b=1, log=["first"])
    )
    assert state_after(start, steps, "nowhere") is None


@given(st.integers(0, 2**32))
def test_the_order_of_branches_does_not_matter_to_the_whole(seed: int) -> None:
    """Branches own distinct fields: however their steps interleave, the whole is that of one after the other."""
    chance = random.Random(seed)
    fields = [f"f{n}" for n in range(6)]
    start = {name: 0 for name in fields}
    # Of each branch the steps that it records, one after the other: the state that it sees with its own changes in it.
    branches = {f"c[{ix}]/": [fields[2 * ix], fields[2 * ix + 1]] for ix in range(3)}
    waiting = {}
    for prefix, own in branches.items():
        state, made = dict(start), []
        for nth in range(chance.randint(0, 4)):
            state[chance.choice(own)] = chance.randint(1, 99)
            made.append((f"{prefix}s{nth}", dict(state)))
        waiting[prefix] = made
    expected = dict(start)
    for prefix, own in branches.items():
        if waiting[prefix]:
            expected |= {name: waiting[prefix][-1][1][name] for name in own}
    steps, seq = [], 0
    while any(waiting.values()):
        prefix = chance.choice([one for one, left in waiting.items() if left])
        path, state = waiting[prefix].pop(0)
        seq += 1
        steps.append(step(path, value=msgspec.json.encode(state).decode(), seq=seq))
    assert state_after(text(**start), steps) == text(**expected)
