"""`perdure events`, `consumers`, `subscriptions`: the ledger, and who reads it."""

import asyncio
import json
from pathlib import Path

import pytest
from shell import Shell, piped, rows

from perdure import App, Context, Event
from perdure.model import limits

# --- events ---


def test_events_are_listed_by_pattern_and_entity(shell: Shell) -> None:
    every = shell.json("events", "list", "--all")["items"]
    assert rows(every, "position") == sorted(rows(every, "position"))
    assert rows(shell.json("events", "list", "stock.*")["items"], "payload") == [3]
    assert rows(shell.json("events", "list", "--entity", "sku/7")["items"], "payload") == [3]
    first = shell.json("events", "-n", "3")
    rest = shell.json("events", "list", "--after", first["cursor"])
    assert first["items"] + rest["items"] == every
    by_time = shell.json("events", "list", "--by-time")["items"]
    assert rows(by_time, "occurred_at") == sorted(rows(by_time, "occurred_at"))
    assert "empty segment" in shell("events", "list", "a..b", code=2).err


def test_an_event_is_emitted_and_resumes_who_waits(every_shell: Shell) -> None:
    told = every_shell.json(
        "events", "emit", "stock.arrived", "5", "--entity", "sku/7", "--key", "k"
    )
    assert (told["outcome"], told["resumed"]) == ("emitted", 1)
    again = ("events", "emit", "stock.arrived", "5", "--entity", "sku/7", "--key", "k")
    assert every_shell(*again).out.startswith(
        f"told before: {told['event_id']} at {told['position']}; "
    )
    late = ["--at", "2020-01-31T09:00:00Z", "--caused-by", told["event_id"], "--id"]
    every_shell("events", "emit", "stock.counted", "1", "--entity", "sku/7", *late, f"{'0' * 25}1")
    timeline = every_shell.json("events", "timeline", "sku/7")["items"]
    assert rows(timeline, "payload") == [1, 3, 5]
    assert timeline[0]["event_id"] == f"{'0' * 25}1"
    assert "sku/7" in every_shell("events", "timeline", "sku/7").out
    assert "only the engine" in every_shell("events", "emit", "workflow.done", code=2).err
    assert "expected integer" in every_shell("events", "emit", "stock.arrived", '"x"', code=1).err


def test_the_newest_events_are_told_a_line_each(every_shell: Shell) -> None:
    every = every_shell.json("events", "list", "--all")["items"]
    assert every_shell("events", "tail", "-n", "3", "--json").lines == every[-3:]
    assert every_shell("events", "tail", "stock.*", "--json").lines == [
        one for one in every if one["type"].startswith("stock.")
    ]
    assert every_shell("events", "tail", "-n", "0").out == ""
    said = every_shell("events", "tail", "--entity", "sku/7").out
    assert "stock.counted  sku/7  3" in said


def test_what_terminals_obey_is_shown_as_text(shell: Shell) -> None:
    for said in (
        shell("events", "list", "audit.*").out,
        shell("events", "tail", "audit.*").out,
        shell("events", "list", "audit.*", "--json").out,
        shell("events", "tail", "audit.*", "--json").out,
    ):
        assert "mallory" in said
        assert "\x1b" not in said
        assert "\x9b" not in said
    (event,) = shell.json("events", "list", "audit.*")["items"]
    assert event["payload"] == {"by": "\x1b[31mmallory\x9b"}, "JSON says what is stored"


# --- consumers ---


def test_consumers_are_listed_paused_and_moved(shell: Shell) -> None:
    assert rows(shell.json("consumers")["items"], "name") == ["audit", "workflow_runner"]
    shell("consumers", "pause", "audit", "--reason", "look at it")
    audit = shell.json("consumers")["items"][0]
    assert (audit["paused"], audit["reason"]) == (True, "look at it")
    assert "look at it" in shell("consumers").out
    assert shell.json("consumers", "resume", "audit") == {"name": "audit", "paused": False}
    moved = shell.json("consumers", "rewind", "audit", "beginning", "--yes")
    assert moved == {"name": "audit", "position": 0}
    assert shell.json("consumers")["items"][0]["position"] == 0
    assert shell.json("consumers", "rewind", "audit", "5", "--yes")["position"] == 5
    end = shell.json("consumers", "rewind", "audit", "2090-01-01T00:00:00Z", "--yes")
    assert end == shell.json("consumers", "rewind", "audit", "now", "--yes")
    assert "neither a position" in shell("consumers", "rewind", "audit", "x", "-y", code=2).err
    shell("consumers", "drop", "audit", "--yes")
    assert rows(shell.json("consumers")["items"], "name") == ["workflow_runner"]
    for verb in ("pause", "resume", "drop"):
        yes = ["--yes"] if verb == "drop" else []
        assert "no consumer 'nobody'" in shell("consumers", verb, "nobody", *yes, code=3).err


def test_parked_events_are_listed_and_forgotten(shell: Shell) -> None:
    (parked,) = shell.json("consumers", "parked")["items"]
    assert (parked["consumer"], parked["type"]) == ("audit", "audit.due")
    assert "cannot be audited" in shell("consumers", "parked", "audit").out
    position = str(parked["position"])
    elsewhere = shell("consumers", "refire", "audit", position, code=3).err
    assert "no handler of consumer 'audit'" in elsewhere
    assert shell.json("consumers", "drop-parked", "audit", position, "--yes")["dropped"]
    assert not shell.json("consumers", "drop-parked", "audit", position, "-y", code=3)["dropped"]
    assert shell.json("consumers", "parked")["items"] == []


def test_a_parked_event_is_fired_anew_by_the_code(sqlite_shell: Shell, tmp_path: Path) -> None:
    (parked,) = sqlite_shell.json("consumers", "parked")["items"]
    refire = ("consumers", "refire", "audit", str(parked["position"]), "--json")
    said = piped("--app", "corner_shop:app", *refire, cwd=tmp_path)
    assert said.code == 1
    assert said.json == {"consumer": "audit", "position": parked["position"], "done": False}


# --- subscriptions ---


def test_subscriptions_are_made_switched_and_deleted(shell: Shell) -> None:
    given = ("--where", "payload > 100", "--map", "{'pieces': payload}", "--key", "entity")
    made = shell.json("subscriptions", "set", "rule", "stock.*", "recount", *given)
    assert made == {"name": "rule"}
    (rule,) = shell.json("subscriptions")["items"]
    assert (rule["pattern"], rule["where"], rule["enabled"]) == ("stock.*", "payload > 100", True)
    shell("subscriptions", "disable", "rule")
    assert not shell.json("subscriptions")["items"][0]["enabled"]
    assert shell.json("subscriptions", "enable", "rule")["enabled"]
    assert "payload > 100" in shell("subscriptions").out
    bad = shell(
        "subscriptions", "set", "rule", "stock.*", "recount", "--where", "payload >", code=1
    )
    assert "line 1" in bad.err
    assert "'nope'" in shell("subscriptions", "enable", "nope", code=3).err
    assert shell.json("subscriptions", "drop", "rule", "--yes")["dropped"]
    assert not shell.json("subscriptions", "drop", "rule", "--yes", code=3)["dropped"]
    assert shell.json("subscriptions")["items"] == []


def test_starts_that_are_not_put_off_are_not_found(shell: Shell) -> None:
    assert shell.json("subscriptions", "deferred") == {"items": [], "cursor": None}
    assert "'rule'" in shell("subscriptions", "release", "1", "rule", code=3).err
    assert not shell.json("subscriptions", "drop-deferred", "1", "rule", "-y", code=3)["dropped"]


def test_what_a_bound_has_put_off_is_released_or_forgotten(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "event_depth_max", 1)

    async def story() -> None:
        """Two chains that go on for ever."""
        app = App("sqlite:///perdure.db")

        @app.on("chain.link")
        @app.workflow
        async def link(ctx: Context, event: Event) -> None:
            await ctx.emit("chain.link")

        async with app, asyncio.timeout(20):
            await app.emit("chain.link")
            await app.emit("chain.link")
            while len((await app.deferred()).items) < 2:  # noqa: ASYNC110 - what ends it are workers' turns
                await asyncio.sleep(0)

    asyncio.run(story())
    first, second = sqlite_shell.json("subscriptions", "deferred")["items"]
    assert str(first["position"]) in sqlite_shell("subscriptions", "deferred").out
    at = (str(first["position"]), first["subscription"])
    assert sqlite_shell.json("subscriptions", "release", *at)["started"]
    at = (str(second["position"]), second["subscription"])
    assert sqlite_shell("subscriptions", "drop-deferred", *at, "--yes").out.endswith("forgotten\n")
    assert sqlite_shell.json("subscriptions", "deferred")["items"] == []


# --- replay ---


def test_a_window_is_counted_and_then_fired_anew(every_shell: Shell) -> None:
    every_shell(
        "subscriptions", "set", "rule", "stock.*", "recount", "--map", "{'pieces': payload}"
    )
    window = ("events", "replay", "workflow_runner", "--pattern", "stock.*", "--since", "1")
    counted = every_shell.json(*window, "--dry-run")
    assert (counted["dry_run"], counted["events"], counted["starts"]) == (True, 1, 1)
    assert every_shell(*window, "--dry-run").out.startswith(
        "would fire 1 events (1 stock.counted); 1 st"
    )
    before = len(every_shell.json("runs")["items"])
    fired = every_shell.json(*window, "--until", "2090-01-01", "--rate", "1000", "--yes")
    assert (fired["events"], fired["starts"], fired["failed"]) == (1, 1, 0)
    assert len(every_shell.json("runs")["items"]) == before + 1
    assert every_shell.json(*window, "--yes")["starts"] == 0, "there is a run already"
    assert every_shell.json(*window, "--yes", "--again")["starts"] == 1
    assert "consumer 'nobody'" in every_shell("events", "replay", "nobody", "--dry-run", code=3).err


def test_a_replay_says_what_it_would_do_before_it_is_agreed_to(sqlite_shell: Shell) -> None:
    said = sqlite_shell("events", "replay", "workflow_runner", code=2)
    assert said.out == ""
    assert "would fire" in said.err
    assert "--yes" in said.err


def test_events_of_a_replay_that_cannot_be_dealt_with_are_counted(
    sqlite_shell: Shell, tmp_path: Path
) -> None:
    replay = ("events", "replay", "audit", "--pattern", "audit.*", "--yes", "--json")
    said = piped("--app", "corner_shop:app", *replay, cwd=tmp_path)
    assert said.code == 4, said
    assert json.loads(said.out)["failed"] == 1
