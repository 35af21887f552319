"""`perdure runs`, `start`, `waiting`: the same answers from a store and from a server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from places import TOKEN, furnished, serving
from shell import Shell, rows, terminal

from perdure import App, Context, Signal
from perdure.cli.commands.watching import _History
from perdure.http import Token
from perdure.model import limits

ALL = {"waiting", "paused", "failed", "completed", "asking", "stocked", "first", "second", "ended"}


# --- seeing ---


def test_runs_are_listed_newest_first(shell: Shell) -> None:
    found = shell.json("runs", "list")
    assert found["cursor"] is None
    assert set(rows(found["items"], "id")) == ALL
    created = rows(found["items"], "created_at")
    assert created == sorted(created, reverse=True)
    assert found["items"] == shell.json("runs")["items"], "a group lists by itself"


def test_runs_are_listed_page_by_page(shell: Shell) -> None:
    whole = shell.json("runs", "list")["items"]
    first = shell.json("runs", "list", "--limit", "2")
    rest = shell.json("runs", "list", "--after", first["cursor"])
    assert first["items"] + rest["items"] == whole
    assert shell.json("runs", "list", "--all")["items"] == whole
    said = shell("runs", "-n", "2")
    assert len(said.out.splitlines()) == 3
    assert f"--after {first['cursor']}" in said.err


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (["--status", "failed", "--status", "completed"], {"failed", "completed"}),
        (["-w", "narrow"], {"first", "second"}),
        (["--tag", "team=x"], {"waiting"}),
        (["--tag", "team"], {"waiting"}),
        (["--entity", "order/1"], {"waiting"}),
        (["--parent", "waiting"], set()),
        (["--created-from", "2020-01-01"], ALL),
        (["--created-before", "2020-01-01T00:00:00Z"], set()),
    ],
)
def test_runs_are_chosen(sqlite_shell: Shell, wanted: list[str], ids: set[str]) -> None:
    assert set(rows(sqlite_shell.json("runs", "list", *wanted)["items"], "id")) == ids


def test_a_run_is_shown_with_what_it_waits_for_and_what_is_kept_for_it(shell: Shell) -> None:
    found = shell.json("runs", "show", "waiting")
    assert (found["run"]["status"], found["run"]["tags"]) == ("waiting", {"team": "x"})
    assert rows(found["waiting"], "target") == ["approve"]
    assert rows(found["buffered"], "payload") == [1]
    assert found["streams"] == [{"name": "log", "first": 1, "last": 2}]
    said = shell("runs", "show", "waiting").out
    for words in ("order/1", "waits for", "approve", "signals that are kept for it", "publishes"):
        assert words in said


def test_a_run_is_shown_with_what_it_was_given_and_what_came_of_it(shell: Shell) -> None:
    assert shell.json("runs", "show", "completed")["contents"]["output"] == "tea reserved"
    assert '["o1"]' in shell("runs", "show", "waiting").out
    failure = shell.json("runs", "show", "failed")["contents"]["failure"]
    assert (failure["type"], failure["message"]) == ("ValueError", "no such luck")
    said = shell("runs", "show", "failed").out
    assert "failed with\nTraceback" in said and "ValueError: no such luck" in said


def test_a_history_is_shown_in_its_order(shell: Shell) -> None:
    (step,) = shell.json("runs", "history", "completed")["items"]
    assert (step["path"], step["status"], step["value"]) == ("reserve", "done", "tea reserved")
    assert '"tea reserved"' in shell("runs", "history", "completed").out
    assert shell.json("runs", "history", "completed", "--all")["items"] == [step]
    assert shell.json("runs", "history", "waiting", "--limit", "1")["cursor"]


def test_a_result_is_given_or_why_there_is_none(shell: Shell) -> None:
    assert shell("runs", "result", "completed").out == '"tea reserved"\n'
    assert shell.json("runs", "result", "completed") == {
        "id": "completed",
        "result": "tea reserved",
    }
    assert "no such luck" in shell("runs", "result", "failed", code=1).err
    told = json.loads(shell("runs", "result", "failed", "--json", code=1).err)
    assert (told["error"], told["facts"]["type"]) == ("RunFailed", "ValueError")
    told = json.loads(shell("runs", "result", "waiting", "--timeout", "1ms", "--json", code=1).err)
    assert set(told) == {"type", "title", "status", "detail", "error", "facts"}
    assert (told["type"], told["status"]) == ("urn:perdure:error:TimeoutError", 504)
    assert told["facts"] == {"run_id": "waiting"}
    late = shell("runs", "result", "waiting", "--timeout", "1ms", code=1)
    assert "has not ended" in late.err


def test_who_waits_is_found_by_run_by_signal_and_by_topic(shell: Shell) -> None:
    assert rows(shell.json("waiting", "stocked")["items"], "target") == ["stock.arrived"]
    assert rows(shell.json("waiting", "--signal", "note")["items"], "run_id") == [
        "first",
        "second",
    ]
    assert rows(shell.json("waiting", "--topic", "stock.arrived")["items"], "run_id") == ["stocked"]
    assert shell.json("waiting", "--signal", "note", "--older-than", "1h")["items"] == []
    assert "name one of" in shell("waiting", code=2).err
    assert "name one of" in shell("waiting", "stocked", "--signal", "note", code=2).err


def test_an_unknown_run_is_not_found(shell: Shell) -> None:
    seeing, steering = "show history result watch export", "cancel pause resume retry fork"
    for command in f"{seeing} {steering}".split():
        said = shell("runs", command, "nobody", code=3)
        assert said.err == "perdure: there is no run 'nobody'\n"
        assert said.out == ""
    assert "nobody" in shell("runs", "terminate", "nobody", "--yes", code=3).err
    problem = json.loads(shell("runs", "show", "nobody", "--json", code=3).err)
    assert (problem["error"], problem["status"]) == ("RunNotFound", 404)


# --- watching ---


def test_a_run_that_has_ended_is_watched_to_its_end(shell: Shell) -> None:
    said = shell("runs", "watch", "completed").out
    assert said.splitlines()[0].startswith("reserve  step  done  attempt 1")
    assert said.splitlines()[-1].endswith("completed  quick  completed")
    step, run = shell("runs", "watch", "completed", "--json").lines
    assert step["step"]["value"] == "tea reserved"
    assert run["run"]["status"] == "completed"
    assert shell("runs", "watch", "failed", code=1).out.endswith("failed\n")


async def test_what_is_decided_of_a_watched_run_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "page_rows_max", 3)
    app, go = App("memory://"), Signal("go", bool)

    @app.step
    async def number(one: int) -> int:
        return one

    @app.workflow(signals=[go])
    async def count(ctx: Context) -> None:
        for one in range(7):
            await ctx.step(number, one)
        await ctx.wait(go)

    async with app:
        run = await app.start(count)
        asked: list[str | None] = []

        class Counted:
            async def history(self, *, limit: int, after: str | None) -> Any:
                asked.append(after)
                return await run.history(limit=limit, after=after)

        async with asyncio.timeout(20):
            while not await run.waiting():  # noqa: ASYNC110 - what brings it there are its turns
                await asyncio.sleep(0)
        history = _History(Counted())
        paths = [f"number{'' if one == 0 else f'#{one + 1}'}" for one in range(7)] + ["go"]
        assert [one.path for one in await history.look()] == paths
        assert (len(asked), asked[0]) == (3, None)
        await app.signal(run.id, go, True)
        await run.result()
        asked.clear()
        assert [one.status for one in await history.look()] == ["done"] * 8
        assert len(asked) == 1 and asked[0] is not None


def test_what_a_run_publishes_is_read_and_read_along(every_shell: Shell) -> None:
    assert every_shell("runs", "stream", "waiting", "log").out == 'asked for o1\n{"asked":"o1"}\n'
    (last,) = every_shell("runs", "stream", "waiting", "log", "--after", "1", "--json").lines
    assert (last["position"], last["value"]) == (2, {"asked": "o1"})
    assert every_shell("runs", "stream", "waiting", "nothing").out == ""
    assert every_shell("runs", "stream", "ended", "log", "-f").out.startswith("asked for o3\n")
    assert "'nobody'" in every_shell("runs", "stream", "nobody", "log", "-f", code=3).err


# --- steering ---


def test_a_run_is_steered(shell: Shell) -> None:
    assert shell.json("runs", "pause", "stocked", "--reason", "later") == {
        "id": "stocked",
        "status": "paused",
    }
    assert shell.json("runs", "show", "stocked")["run"]["reason"] == "later"
    assert shell.json("runs", "resume", "stocked")["status"] == "ready"
    assert shell("runs", "cancel", "stocked", "--reason", "no").out.startswith("stocked is ")
    assert shell.json("runs", "terminate", "waiting", "--yes")["status"] == "terminated"
    assert "has already ended: terminated" in shell("runs", "cancel", "waiting", code=1).err


def test_a_failed_run_is_tried_again(shell: Shell) -> None:
    assert shell.json("runs", "retry", "failed")["status"] == "ready"
    assert "retr" in shell("runs", "retry", "failed", code=1).err


def test_a_wait_is_answered_anew(sqlite_shell: Shell) -> None:
    sqlite_shell("runs", "terminate", "first", "--yes")
    said = sqlite_shell("runs", "retry", "first", "--path", "note", "--payload", "2", code=2)
    assert "first" in said.err


# --- starting ---


def test_a_run_is_started_by_name_once(every_shell: Shell) -> None:
    order = ["start", "quick", "-i", '"coffee"', "--id", "new"]
    given = ["--tag", "team=y", "--tag", "hot=yes", "--entity", "order/9"]
    given += ["--pool", "narrow", "--pool-key", "k", "--priority", "3"]
    assert every_shell.json(*order, *given) == {"id": "new", "created": True}
    assert every_shell(*order).out == "new (it was there already)\n"
    run = every_shell.json("runs", "show", "new")["run"]
    assert (run["status"], run["tags"], run["priority"]) == (
        "ready",
        {"team": "y", "hot": "yes"},
        3,
    )
    assert (
        "another input" in every_shell("start", "quick", "-i", '"tea"', "--id", "new", code=1).err
    )


def test_a_start_is_checked_by_what_the_store_knows(shell: Shell) -> None:
    assert "expected string" in shell("start", "decide", "-i", "3", code=1).err
    assert "unknown workflow 'nope'" in shell("start", "nope", code=3).err
    assert rows(shell.json("runs")["items"], "workflow").count("decide") == 3


def test_a_start_for_later(shell: Shell) -> None:
    made = shell.json("start", "quick", "--start-at", "2h", "--deadline", "2090-01-01T00:00:00Z")
    assert shell.json("runs", "show", made["id"])["run"]["status"] == "ready"
    late = shell("start", "quick", "--wait", "--timeout", "1ms", code=1)
    assert "has not ended" in late.err
    assert "--wait" in shell("start", "quick", "--timeout", "1s", code=2).err


def test_who_waits_for_a_start_knows_its_id_whatever_comes(shell: Shell) -> None:
    """Else to repeat it would start another one."""
    wait = ("start", "decide", "-i", '"tea"', "--wait", "--timeout", "1ms")
    said = shell(*wait, code=1).err
    made = {one["id"] for one in shell.json("runs")["items"]} - ALL
    assert said.startswith(f"{made.pop()}: waiting for its end\n")
    told = json.loads(shell(*wait, "--id", "new", "--json", code=1).err)
    assert told["facts"] == {"run_id": "new"}
    assert shell(*wait, "--id", "new", code=1).err.startswith("new (it was there already): ")


def test_who_may_start_and_not_read_is_told_the_id(bare: Shell, tmp_path: Path) -> None:
    furnished(f"sqlite:///{tmp_path}/perdure.db")
    tokens = [Token.of(TOKEN, name="ci", scopes=["signal"])]
    with serving(App(f"sqlite:///{tmp_path}/perdure.db", worker=False), tokens=tokens) as url:
        there = Shell("--url", url, "--token", TOKEN)
        start = ("start", "quick", "--wait", "--id", "new")
        said = there(*start, code=1).err
        assert said.startswith("new: waiting") and "'read'" in said
        told = json.loads(there(*start, "--json", code=1).err)
    assert (told["error"], told["facts"]["run_id"]) == ("ScopeMissing", "new")


def test_who_leaves_a_start_is_told_the_id(
    sqlite_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal("start", "decide", "-i", '"x"', "--id", "new", "--wait", cwd=tmp_path) as shown:
        shown.until("new: waiting for its end")
        shown.interrupt()
        assert shown.end() == 130

    async def left(self: Any, timeout: Any = None) -> None:  # noqa: ASYNC109 (the API's word)
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.handle.RunHandle.result", left)
    told = json.loads(sqlite_shell("start", "quick", "--id", "q", "--wait", "--json", code=130).err)
    assert (told["error"], told["facts"]) == ("KeyboardInterrupt", {"run_id": "q"})


@pytest.mark.parametrize("source", ["text", "file", "stdin"])
def test_input_is_json_of_the_command_line_a_file_or_the_standard_input(
    sqlite_shell: Shell, tmp_path: Path, source: str
) -> None:
    (tmp_path / "order.json").write_text('"from afar"')
    given = {"text": '"from afar"', "file": "@order.json", "stdin": "-"}[source]
    stdin = '"from afar"' if source == "stdin" else None
    sqlite_shell("start", "decide", "-i", given, "--id", "new", stdin=stdin)
    document = json.loads(sqlite_shell("runs", "export", "new").out)
    assert "from afar" in json.dumps(document)


# --- carrying ---


def test_a_run_is_forked(shell: Shell) -> None:
    made = shell.json("runs", "fork", "completed", "--id", "again", "--tag", "of=completed")
    assert made == {"id": "again", "created": True}
    run = shell.json("runs", "show", "again")["run"]
    assert (run["workflow"], run["tags"]) == ("quick", {"of": "completed"})
    assert shell.json("runs", "history", "again")["items"] == []
    kept = shell.json("runs", "fork", "completed", "--from", "reserve", "-i", '"rum"')
    assert shell.json("runs", "show", kept["id"])["run"]["status"] == "ready"


def test_a_run_is_carried_from_one_store_to_another(every_shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert every_shell.json("runs", "export", "completed", "--out", str(file))["written"] == str(
        file
    )
    assert every_shell.json("runs", "export", "completed") == json.loads(file.read_text())
    assert "File exists" in every_shell("runs", "export", "completed", "-o", str(file), code=1).err
    assert every_shell.json("runs", "import", str(file), "--id", "twin") == {
        "id": "twin",
        "created": True,
    }
    again = every_shell("runs", "import", "-", "--id", "twin", stdin=file.read_bytes())
    assert again.out == "twin (it was there already)\n"
    assert every_shell("runs", "result", "twin").out == '"tea reserved"\n'


def test_a_document_that_is_none_is_not_imported(shell: Shell, tmp_path: Path) -> None:
    assert "not a JSON object" in shell("runs", "import", "-", stdin="[]", code=2).err
    assert shell("runs", "import", "-", stdin="{}", code=1).err.startswith("perdure: ")
    assert "cannot be read" in shell("runs", "import", str(tmp_path / "none"), code=2).err
    assert set(rows(shell.json("runs")["items"], "id")) == ALL
