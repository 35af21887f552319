"""Looking after a store: `schedules`, `pools`, `health`, `doctor`, `fsck`, `workflows`, `workers`, `db`, `token`."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import corner_shop
import pytest
from migrations import golden
from places import serving
from shell import Shell, rows, staying

from perdure import App
from perdure.store.sqlite import judging

# --- schedules ---


def test_schedules_are_made_paused_triggered_and_deleted(shell: Shell) -> None:
    made = shell.json("schedules", "set", "hourly", "15m", "quick", "-i", '"rum"', "--overlap", "allow")  # fmt: skip
    assert made == {"name": "hourly"}
    hourly, nightly = shell.json("schedules")["items"]
    assert (hourly["every"], nightly["every"]) == (900.0, "0 3 * * *")
    assert rows(shell.json("schedules", "list", "-n", "1")["items"], "name") == ["hourly"]
    assert "0 3 * * *" in shell("schedules").out
    assert shell.json("schedules", "pause", "hourly", "--reason", "holidays")["paused"]
    assert shell.json("schedules")["items"][0]["paused"]
    assert not shell.json("schedules", "resume", "hourly")["paused"]
    run = shell.json("schedules", "trigger", "hourly")["id"]
    assert shell.json("runs", "show", run)["run"]["workflow"] == "quick"
    assert shell.json("schedules", "drop", "hourly", "--yes") == {"name": "hourly", "dropped": True}
    assert not shell.json("schedules", "drop", "hourly", "--yes", code=3)["dropped"]
    assert "'hourly'" in shell("schedules", "trigger", "hourly", code=3).err
    assert "cron" in shell("schedules", "set", "x", "now and then", "quick", code=2).err
    assert "IANA" in shell("schedules", "set", "x", "1h", "quick", "--zone", "Nowhere", code=2).err


def test_ticks_of_a_window_are_counted_and_then_started(shell: Shell) -> None:
    shell("schedules", "set", "hourly", "15m", "quick")
    window = ("--since", "2026-01-01T00:00:00Z", "--until", "2026-01-01T01:00:00Z")
    counted = shell.json("schedules", "backfill", "hourly", *window, "--dry-run")
    assert (counted["ticks"], counted["started"]) == (4, 4)
    assert (
        "would start 4 of 4" in shell("schedules", "backfill", "hourly", *window, "--dry-run").out
    )
    assert shell.json("schedules", "backfill", "hourly", *window, "--yes")["started"] == 4
    again = shell.json("schedules", "backfill", "hourly", *window, "--yes")
    assert (again["started"], again["existing"]) == (0, 4)
    bad = shell("schedules", "backfill", "hourly", "--since", "x", "--until", "y", code=2)
    assert "is not a time" in bad.err


# --- pools ---


def test_pools_are_changed_and_set_back(shell: Shell) -> None:
    (pool,) = shell.json("pools")["items"]
    assert (pool["name"], pool["limit"]) == ("narrow", 1)
    changed = shell.json("pools", "set", "narrow", "--limit", "3", "--rate", "10/1m")
    assert (changed["limit"], changed["rate"]) == (3, "10/1m")
    changed = shell.json("pools", "set", "narrow", "--rate", "none", "--per-key", "1")
    assert (changed["limit"], changed["rate"], changed["per_key"]) == (3, None, 1)
    assert shell.json("pools", "reset", "narrow")["limit"] == 1
    assert "narrow" in shell("pools", "set", "narrow", "--limit", "none", "--rate", "1/1h").out
    assert "neither a number" in shell("pools", "set", "narrow", "--limit", "x", code=2).err
    assert "names no limit" in shell("pools", "set", "narrow", code=2).err
    assert "'nope'" in shell("pools", "line", "nope", code=3).err


def test_who_stands_in_line_is_listed(sqlite_shell: Shell) -> None:
    """A pool that was used up within its hour, as its worker left it."""
    sqlite_shell("pools", "set", "narrow", "--limit", "none", "--rate", "1/1h")

    async def story() -> None:
        app = corner_shop.app.copy()
        async with app, asyncio.timeout(20):
            await app.start("narrow", id="third")
            await app.start("narrow", id="fourth")
            while not (await app.waiting_for_slot("narrow")).items:  # noqa: ASYNC110 - workers' turns
                await asyncio.sleep(0)

    asyncio.run(story())
    (waiting,) = sqlite_shell.json("pools", "line", "narrow")["items"]
    assert waiting["run_id"] == "fourth"
    assert "fourth" in sqlite_shell("pools", "line", "narrow").out
    assert sqlite_shell.json("pools")["items"][0]["waiting"] == 1


# --- how it goes ---


def test_health_counts_what_waits_for_somebody(shell: Shell) -> None:
    found = shell.json("health")
    assert (found["status"], found["parked"], found["dead_letters"]) == ("ok", 1, 1)
    assert rows(found["consumers"], "name") == ["audit", "workflow_runner"]
    assert shell("health").out.startswith("status")


def test_health_says_that_somebody_should_look_and_why(sqlite_shell: Shell) -> None:
    sqlite_shell("start", "quick")
    with closing(sqlite3.connect("perdure.db")) as connection, connection:
        connection.execute(
            "update runs set ready_at = ready_at - 3600000000 where status = 'ready'"
        )
    found = sqlite_shell.json("health", code=6)
    assert found["status"] == "degraded"
    assert any("no worker takes it" in one for one in found["reasons"])
    assert "! a run is ready since 36" in sqlite_shell("health", code=6).out


def test_the_doctor_says_what_the_store_is_and_promises(every_shell: Shell) -> None:
    found = every_shell.json("doctor")
    assert found["kind"] in ("sqlite", "postgres")
    assert {one["fault"] for one in found["promises"]} >= {"process killed", "power loss"}
    assert found["counts"]["runs"] == 9
    assert any("no worker lives" in one for one in found["warnings"])
    said = every_shell("doctor", "--strict", code=6).out
    for words in ("promises in force", "settings that promises rest on", "! no worker lives"):
        assert words in said
    assert re.search(rf"^schema version +{found['schema']['stored']}$", said, re.MULTILINE)
    for name, value in found["facts"].items():
        assert re.search(rf"^{name} +{re.escape(value) or '$'}", said, re.MULTILINE), name


@pytest.mark.parametrize("fixed", [True, False])
def test_the_doctor_says_that_all_is_well_only_if_it_is(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fixed: bool
) -> None:
    """A setting that is not as it should be, and matters to nobody now, is no warning."""
    monkeypatch.setattr(judging, "_wal_reset_fixed", (0,) if fixed else (99,))
    with staying("worker", "corner_shop:app", cwd=tmp_path):
        said = sqlite_shell("doctor", "--strict").out
    assert ("all is as it should be" in said) == fixed
    assert ("why sqlite_version may come to matter is said above" in said) != fixed


def test_a_password_is_never_shown(postgres_url: str, lend_namespace: Any) -> None:
    """The server of these tests lets everybody in, whatever password they have."""
    user, _, rest = postgres_url.partition("@")
    place = Shell("--url", f"{user}:hunter2@{rest}", "--namespace", lend_namespace())
    for command in (("db", "migrate"), ("db", "version"), ("doctor",)):
        for said in (place(*command), place(*command, "--json")):
            assert "hunter2" not in said.out + said.err
    asked = place("db", "prune", "--older-than", "1d", code=2).err
    assert ":***@" in asked


def test_a_sound_store_holds_together(every_shell: Shell) -> None:
    report = every_shell.json("fsck")
    assert (report["ok"], report["findings"]) == (True, [])
    assert report["checked"]["runs"] == 9
    said = every_shell("fsck").out
    assert "9 runs" in said
    assert said.endswith("all holds together\n")


def test_what_is_wrong_is_found_and_set_right(sqlite_shell: Shell) -> None:
    _lose_a_signal("perdure.db")
    report = sqlite_shell.json("fsck", code=6)
    (finding,) = report["findings"]
    assert (finding["invariant"], finding["run_id"], finding["repairable"]) == ("W4", "first", True)
    assert "W4" in sqlite_shell("fsck", code=6).out
    assert "--yes" in sqlite_shell("fsck", "--repair", code=2).err
    assert sqlite_shell.json("fsck", code=6)["findings"] == [finding], "so far it only looked"
    repaired = sqlite_shell.json("fsck", "--repair", "--yes")
    assert (repaired["ok"], rows(repaired["repaired"], "invariant")) == (True, ["W4"])
    assert sqlite_shell.json("fsck")["findings"] == []


def test_warnings_are_told_and_count_only_if_that_is_asked_for(sqlite_shell: Shell) -> None:
    with closing(sqlite3.connect("perdure.db")) as connection, connection:
        connection.execute(
            "update runs set status = 'running', owner = 'ghost', fence = 7 where run_id = 'first'"
        )
    said = sqlite_shell("fsck").out
    assert "'ghost' does not live" in said
    assert said.endswith("all holds together\n")
    assert sqlite_shell.json("fsck", "--strict", code=6)["ok"]


def _lose_a_signal(file: str) -> None:
    """Somebody has written past the engine: a signal lies there, and who waits for it was not told."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "insert into signals select 'planted', 1000000, 'first', name, path, payload, policy, on_end, received_at, "
            "expires_at, codec from signals where run_id = 'waiting'"
        )


def test_workflows_are_listed_with_what_they_listen_to(shell: Shell) -> None:
    found = {one["name"]: one for one in shell.json("workflows")["items"]}
    assert set(found) == {"ask", "decide", "fail", "narrow", "quick", "recount", "stocked"}
    assert rows(found["decide"]["signals"], "name") == ["approve", "claim", "note"]
    assert "approve, claim, note" in shell("workflows").out
    assert shell.json("workers") == {"items": [], "cursor": None}
    channels = [(one["kind"], one["name"]) for one in shell.json("channels")["items"]]
    assert channels == [("queue", "jobs"), ("topic", "stock.arrived")]
    assert '{"type":"integer"}' in shell("channels").out


def test_workers_that_live_are_listed(bare: Shell) -> None:
    async def story() -> tuple[Any, str]:
        async with corner_shop.app.copy():
            return await asyncio.to_thread(lambda: (bare.json("workers"), bare("workers").out))

    found, said = asyncio.run(story())
    (worker,) = found["items"]
    assert ["quick", 1] in worker["workflows"]
    assert "quick v1" in said


# --- the store itself ---


def test_the_version_of_a_schema_is_told(every_shell: Shell) -> None:
    found = every_shell.json("db", "version")
    assert found["stored"] == found["known"]
    assert (found["migrates"], found["refused"]) == (False, False)
    assert f"schema {found['known']}" in every_shell("db", "version").out


def test_a_store_is_made_and_brought_up(bare: Shell) -> None:
    assert "no schema yet" in bare("db", "version").out
    assert not Path("perdure.db").exists()
    made = bare.json("db", "migrate")
    assert made["before"] is None
    assert bare("db", "migrate").out == f"the store has schema {made['after']} already\n"
    assert bare.json("runs")["items"] == []

    golden.load(golden.directory / "0001.sql", Path("old.db"))
    old = Shell("--url", "sqlite:///old.db")
    assert old.json("db", "version")["migrates"]
    assert "bring it up with `perdure db migrate`" in old("runs", code=5).err
    assert old("db", "migrate").out == f"brought the schema from 1 to {made['after']}\n"
    assert "approval" in rows(old.json("runs")["items"], "id")


def test_a_store_that_is_too_new_is_told(sqlite_shell: Shell) -> None:
    known = sqlite_shell.json("db", "version")["known"]
    with closing(sqlite3.connect("perdure.db")) as connection, connection:
        for name in ("schema", "min_code"):
            connection.execute("update meta set value = ? where name = ?", (known + 1, name))
    assert "too old for it" in sqlite_shell("db", "version").out
    assert sqlite_shell("runs", code=5).err.startswith("perdure: ")


def test_a_store_that_is_a_file_is_copied(every_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    if every_shell.where or every_shell.env:
        said = every_shell("db", "backup", str(file), code=2 if every_shell.env else 1).err
        assert "URL of the store itself" in said or "pg_dump" in said
        assert not file.exists()
        return
    told = every_shell.json("db", "backup", str(file))
    assert told["bytes"] == file.stat().st_size
    copy = Shell("--url", f"sqlite:///{file}")
    assert len(copy.json("runs")["items"]) == 9
    assert copy.json("fsck")["ok"]
    assert "exists" in every_shell("db", "backup", str(file), code=1).err


def test_ended_runs_are_deleted(every_shell: Shell) -> None:
    assert "keep=" in every_shell("db", "prune", "--yes", code=2).err
    assert every_shell.json("db", "prune", "--older-than", "1h", "--yes") == {"deleted": 0}
    assert every_shell("db", "prune", "--older-than", "0s", "--yes").out == "deleted 3 runs\n"
    left = set(rows(every_shell.json("runs")["items"], "id"))
    assert left.isdisjoint({"completed", "failed", "ended"})
    assert (
        "is no span of time" in every_shell("db", "prune", "--older-than", "old", "-y", code=2).err
    )


def test_old_events_are_deleted_but_for_what_is_still_to_be_read(every_shell: Shell) -> None:
    every = every_shell.json("events", "list", "--all")["items"]
    trimmed = every_shell.json("db", "trim", "--keep", "2", "--yes")
    assert trimmed["held_by"] == "workflow_runner"
    said = every_shell("db", "trim", "--keep", "2", "--yes")
    assert said.out == "deleted 0 events; consumer workflow_runner holds the rest\n"
    assert said.err == "", "what the answer says the log need not say again"
    forced = every_shell.json("db", "trim", "--keep", "2", "--force", "--yes")
    assert trimmed["count"] + forced["count"] == len(every) - 2
    assert every_shell.json("db", "trim", "--older-than", "30d", "--yes")["count"] == 0
    assert "keep" in every_shell("db", "trim", "--yes", code=2).err


# --- tokens ---


def test_a_token_is_made_and_known_to_the_server_by_its_line(
    bare: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bare.json("token", "new", "--name", "ci", "--scope", "read", "--scope", "signal")
    assert made["line"].startswith("ci:sha256:")
    assert made["token"] not in made["line"]
    said = bare("token", "new", "--name", "boss", "--scope", "admin", "--group", "finance")
    assert said.out.startswith("pdr_")
    assert "PERDURE_TOKENS='boss:sha256:" in said.err
    assert said.out.strip() not in said.err
    assert "must be some of" in bare("token", "new", "--name", "x", "--scope", "all", code=2).err
    assert bare("token", "new", "--name", "x", code=2).out == ""

    monkeypatch.setenv("PERDURE_TOKENS", made["line"])
    with serving(App("sqlite:///perdure.db", worker=False), tokens=None) as url:
        known = Shell("--url", url, "--token", made["token"])
        assert known.json("runs")["items"] == []
        told = json.loads(known("db", "prune", "--older-than", "1d", "-y", "--json", code=1).err)
        assert told["error"] == "ScopeMissing"
        assert Shell("--url", url, "--token", "guessed")("runs", code=1).err.startswith("perdure: ")
        assert Shell("--url", url)("runs", code=1).err.startswith("perdure: ")
