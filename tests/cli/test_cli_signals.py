"""`perdure signal`, `dead-letters`, `queues`, `approvals`: what is sent to runs, by name and in many ways."""

import json
from pathlib import Path

import corner_shop
import pytest
from shell import Shell, rows

from perdure.model import limits

# --- one ---


def test_a_signal_is_delivered_kept_or_refused(shell: Shell) -> None:
    assert shell("signal", "first", "note", "1").out == "delivered to first at note\n"
    kept = shell.json("signal", "waiting", "note", '{"a": 1}')
    assert kept["outcome"] == "buffered"
    assert "has already ended: completed" in shell("signal", "completed", "note", code=1).err
    assert "there is no run 'nobody'" in shell("signal", "nobody", "note", code=3).err
    assert "unknown signal 'approval'" in shell("signal", "waiting", "approval", "1", code=3).err
    assert "expected bool" in shell("signal", "waiting", "approve", "3", code=1).err


def test_a_signal_with_a_key_is_sent_once(shell: Shell) -> None:
    first = shell.json("signal", "waiting", "note", "2", "--key", "k")
    again = shell.json("signal", "waiting", "note", "2", "--key", "k")
    assert (again["outcome"], again["of"]) == ("duplicate", first)
    assert shell("signal", "waiting", "note", "2", "--key", "k").out.startswith(
        "sent before: buffered"
    )


def test_a_signal_only_for_who_waits_now(shell: Shell) -> None:
    assert shell("signal", "waiting", "note", "3", "--now", code=1).out == ""
    assert shell.json("signal", "second", "note", "--now", "--path", "note")["path"] == "note"


def test_a_run_whose_id_is_a_command(sqlite_shell: Shell) -> None:
    sqlite_shell("start", "decide", "-i", '"x"', "--id", "many")
    assert sqlite_shell.json("signal", "one", "many", "note", "1")["outcome"] == "buffered"


# --- many ---


def test_many_signals_each_have_their_answer(every_shell: Shell, tmp_path: Path) -> None:
    lines = [
        {"run_id": "first", "signal": "note", "payload": 1},
        {"run_id": "nobody", "signal": "note"},
        {"run_id": "waiting", "signal": "approve", "payload": "perhaps"},
        {"run_id": "completed", "signal": "note"},
        {"run_id": "waiting", "signal": "note", "payload": None},
    ]
    file = tmp_path / "signals.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    *answers, summary = every_shell("signal", "many", str(file), "--json", code=4).lines
    assert rows(answers, "line") == [1, 3, 5, 7, 9]
    told = rows(answers, "outcome")
    assert told == ["delivered", "not_found", "refused", "finished", "buffered"]
    assert answers[2]["problem"]["error"] == "InvalidPayload"
    assert summary["summary"]["sent"] == 2
    assert summary["summary"]["refused"] == 3
    assert summary["summary"]["outcomes"]["delivered"] == 1


def test_many_signals_are_told_of_in_words(sqlite_shell: Shell) -> None:
    lines = '{"run_id": "first", "signal": "note"}\n{"run_id": "nobody", "signal": "note"}\n'
    said = sqlite_shell("signal", "many", "-", stdin=lines, code=4).out
    assert said.splitlines() == [
        "line 2: nobody note: refused: there is no run 'nobody'",
        "2 signals: 1 delivered, 1 not found",
    ]
    lines = '{"run_id": "second", "signal": "note"}\n'
    said = sqlite_shell("signal", "many", "-", "--verbose", stdin=lines).out
    assert said.splitlines()[0] == "line 1: second note: delivered to second at note"
    assert sqlite_shell("signal", "many", "-", stdin="").out == "0 signals: nothing to send\n"


def test_a_file_with_a_line_that_is_none_is_refused_whole(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ['{"run_id": "first", "signal": "note"}', "{", '{"run_id": "first"}', '{"\x9b": 1}']
    said = sqlite_shell("signal", "many", "-", stdin="\n".join(lines), code=2)
    for words in ("nothing was sent", "line 2: ", "line 3: ", "missing required field", "line 4: "):
        assert words in said.err
    assert "\x9b" not in said.err
    many = "\n".join(["{"] * 30)
    assert "and 10 more" in sqlite_shell("signal", "many", "-", stdin=many, code=2).err
    monkeypatch.setattr(limits, "signals_per_file_max", 2)
    assert "signals_per_file_max" in sqlite_shell("signal", "many", "-", stdin=many, code=2).err
    assert "cannot be read" in sqlite_shell("signal", "many", "nowhere", code=2).err
    assert rows(sqlite_shell.json("waiting", "first")["items"], "target") == ["note"]


# --- dead letters, queues ---


def test_dead_letters_are_listed_and_sent_again(shell: Shell) -> None:
    (letter,) = shell.json("dead-letters")["items"]
    assert (letter["run_id"], letter["name"], letter["payload"]) == ("ended", "note", 2)
    assert shell.json("dead-letters", "list", "--run", "waiting")["items"] == []
    assert "the run ended as terminated" in shell("dead-letters").out
    assert "ended" in shell("dead-letters", "resend", letter["id"], code=1).err
    sent = shell.json("dead-letters", "resend", letter["id"], "--run", "waiting")
    assert sent["outcome"] == "buffered"
    assert shell.json("dead-letters")["items"] == []


def test_queues_are_filled_looked_into_and_emptied(shell: Shell) -> None:
    assert shell.json("queues") == {"items": [{"queue": "jobs", "items": 1}], "cursor": None}
    assert shell("queues", "put", "jobs", "7", "--key", "k").out.startswith("queued as ")
    assert shell("queues", "put", "jobs", "7", "--key", "k").out.startswith("put before: queued")
    assert "expected integer" in shell("queues", "put", "jobs", '"x"', code=1).err
    first = shell.json("queues", "items", "jobs", "--limit", "1")
    assert rows(first["items"], "payload") == [1]
    assert rows(shell.json("queues", "items", "jobs", "--all")["items"], "payload") == [1, 7]
    old = shell.json("queues", "purge", "jobs", "--older-than", "1d", "--yes")
    assert old == {"queue": "jobs", "deleted": 0}
    assert shell("queues", "purge", "jobs", "--yes").out == "deleted 2 items\n"
    assert shell.json("queues")["items"] == []


# --- approvals ---


def test_approvals_are_listed_and_decided(shell: Shell) -> None:
    (asked,) = shell.json("approvals")["items"]
    assert (asked["run_id"], asked["name"], asked["choices"]) == ("asking", "agreed", ["yes", "no"])
    assert shell.json("approvals", "list", "--who", "bob")["items"] == []
    found = shell.json("approvals", "list", "--who", "anna", "--run", "asking", "-w", "ask")
    assert rows(found["items"], "id") == [asked["id"]]
    decide = ("approvals", "decide", asked["id"])
    assert "may not answer this" in shell(*decide, "yes", "--by", "bob", code=1).err
    assert "maybe" in shell(*decide, "maybe", "--by", "anna", code=1).err
    assert shell.json(*decide, "yes", "--by", "anna", "--key", "k")["outcome"] == "decided"
    assert shell(*decide, "yes", "--by", "anna", "--key", "k").out.startswith("decided before")
    assert "anna" in shell(*decide, "no", "--by", "anna", code=1).err
    assert shell("approvals", "decide", "nothing", "yes", "--by", "anna", code=2).err


def test_one_decides_in_ones_own_name(shell: Shell) -> None:
    """Over HTTP that is the token's, anna; on a store who is logged in here."""
    (asked,) = shell.json("approvals")["items"]
    over_http = "PERDURE_URL" in shell.env
    said = shell("approvals", "decide", asked["id"], "no", code=0 if over_http else 1)
    assert ("decided: run asking" in said.out) == over_http


def test_a_link_answers_for_somebody(shell: Shell) -> None:
    (asked,) = shell.json("approvals")["items"]
    order = ["approvals", "link", asked["id"], "--by", "anna", "--choice", "yes", "--to"]
    shell.env["PERDURE_SECRET"] = corner_shop.SECRET
    made = shell.json(*order, "https://shop.example/decide")["link"]
    assert made.startswith("https://shop.example/decide?")
    maybe = ["maybe" if one == "yes" else one for one in order[:-1]]
    assert "none of its choices: yes, no" in shell(*maybe, code=2).err
    assert "expires" in shell(*order, "https://x.example", "--expires", "soon", code=2).err
