"""Plays a script on a file, child after child, and keeps the history of what was asked and acknowledged."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crashes.fsck import Witness, copy_of, rows
from crashes.nursery import Child, Hung, Nursery
from crashes.script import Ask, Story, first_answer


class Kill(NamedTuple):
    """How a child is to die: at a failpoint of its own, or by our hand after so many seconds."""

    failpoint: tuple[str, int] | None = None
    after_s: float | None = None


@dataclass
class Figures:
    """What a play, or many, came to."""

    kills: int = 0
    stops: int = 0  # of a process, which went on later
    restarts: int = 0  # of a server that was killed
    fenced: int = 0  # writes of those who had lost a run
    refused: int = 0  # asks that the store did not take
    acknowledged: int = 0
    runs: int = 0
    resumed: int = 0
    bodies: int = 0
    again: int = 0
    resume_s: float = 0.0  # the slowest resume that was measured

    def add(self, other: "Figures") -> None:
        self.kills += other.kills
        self.stops += other.stops
        self.restarts += other.restarts
        self.fenced += other.fenced
        self.refused += other.refused
        self.acknowledged += other.acknowledged
        self.runs += other.runs
        self.resumed += other.resumed
        self.bodies += other.bodies
        self.again += other.again
        self.resume_s = max(self.resume_s, other.resume_s)

    def __str__(self) -> str:
        resume = f"; resumed in {self.resume_s * 1000:.0f} ms" if self.resume_s else ""
        return (
            f"{self.kills} kills, {self.stops} stops, {self.restarts} restarts of a server, "
            f"{self.fenced} late writes refused, {self.acknowledged} acknowledged ops, {self.runs} runs, "
            f"{self.resumed} times a living run resumed, {self.bodies} step bodies, "
            f"{self.again} of them run again: 0 lost, 0 doubled{resume}"
        )


class Play:
    """One file, one script, any number of children."""

    def __init__(
        self, nursery: Nursery, directory: Path, stories: list[Story], *, shared: bool = False
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._nursery = nursery
        self._shared = shared  # another process uses the file too
        self.db = directory / "runs.db"
        self.effects = directory / "effects.jsonl"
        self._history = directory / "history.jsonl"
        self._stories = stories
        self._asks: list[Ask] = [ask for story in stories for ask in story.asks]
        self._answers: dict[str, dict[str, Any]] = {}
        self._flying: set[str] = set()
        self._witness = Witness(self.effects)
        self._kills = 0

    @property
    def is_over(self) -> bool:
        return len(self._answers) == len(self._asks)

    # --- children ---

    def until_killed(self, kill: Kill) -> bool:
        """Let a child play until it dies as told; False when it was through, and left, before that."""
        child = self._fork(failpoint=kill.failpoint)
        kill_at = None if kill.after_s is None else time.monotonic() + kill.after_s
        while child.alive and not self.is_over:
            self._send(child)
            if self._listen(child, kill_at):
                child.kill()
                kill_at = None
        self._flying.clear()
        left = child.close() if child.alive else (child.buried(), False)[1]
        self._kills += not left
        self._look()
        return not left

    def to_the_end(self) -> None:
        """The last child is not killed: everything must come to its end, and be as the model says."""
        child = self._fork()
        try:
            while not self.is_over:
                assert child.alive, "the last child died by itself"
                self._send(child)
                self._listen(child, None)
        except Hung as error:
            error.add_note(self._what_hangs())
            raise
        self._ask_again(child)
        assert child.close()
        self._look()
        self._check_ends()

    def _fork(self, **settings: Any) -> Child:
        return self._nursery.fork(db=self.db, effects=self.effects, **settings)

    # --- asks ---

    def _send(self, child: Child) -> None:
        for ask in self._asks:
            waits = any(name not in self._answers for name in ask.after)
            if ask.name in self._answers or ask.name in self._flying or waits:
                continue
            self._flying.add(ask.name)
            self._write("invoke", ask.name, child.pid)
            child.send(ask.message())

    def _listen(self, child: Child, kill_at: float | None) -> bool:
        """Take what it tells next; True when it is time to kill it."""
        told = child.hear(kill_at)
        if told is None:
            return child.alive
        if "name" in told:
            self._flying.discard(told["name"])
            self._answers[told["name"]] = told
            self._write("ok", told["name"], child.pid, told)
        return False

    def _write(self, type_: str, name: str, pid: int, told: dict[str, Any] | None = None) -> None:
        line = {"t": time.monotonic(), "type": type_, "op": name, "proc": pid, "result": told}
        with self._history.open("a") as history:
            history.write(json.dumps(line) + "\n")

    def _acknowledged(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [
            (ask.message(), self._answers[ask.name])
            for ask in self._asks
            if ask.name in self._answers
        ]

    def _ask_again(self, child: Child) -> None:
        """Everything that was accepted is asked once more: found, and nothing happens."""
        for asked, answer in self._acknowledged():
            if "ok" not in answer or asked["do"] not in ("start", "signal"):
                continue
            again = child.ask(**{**asked, "name": "asked"})
            if asked["do"] == "start":
                assert again.get("ok") == {"created": False}, again
            else:
                expected = {"sent": "duplicate", "of": first_answer(answer)}
                assert again.get("ok") == expected, f"S4 {again} instead of {expected}"

    # --- looking ---

    def _what_hangs(self) -> str:
        with copy_of(self.db, in_use=True) as connection:
            living = rows(connection, "select * from runs where finished_at is null")
            steps = rows(connection, "select * from steps where state in ('open', 'retrying')")
            watchers = rows(connection, "select * from watchers")
        return "\n".join(
            ["unanswered:", *sorted(self._flying), *map(str, living + steps + watchers)]
        )

    def _look(self) -> None:
        self._witness.look(self.db, self._acknowledged(), in_use=self._shared)

    def _check_ends(self) -> None:
        with copy_of(self.db, in_use=self._shared) as connection:
            ends = {run["run_id"]: run for run in rows(connection, "select * from runs")}
        for story in self._stories:
            run = ends[story.run]
            assert run["status"] == story.status, f"{story.run}: {run}"
            story.check(self._answers, json.loads(run["output"] or "null"))
        living = {run["run_id"]: run["status"] for run in ends.values() if not run["finished_at"]}
        assert not living, f"C4 some runs did not come to an end: {living}"

    def figures(self) -> Figures:
        return Figures(
            kills=self._kills,
            acknowledged=len(self._answers),
            runs=self._witness.runs,
            resumed=self._witness.resumed,
            bodies=len(self._witness.bodies()),
            again=self._witness.again(),
        )


def sweep(
    nursery: Nursery, directory: Path, stories: list[Story], place: str, step: int = 1
) -> Iterator[Figures]:
    """Kill a child at its first batch, another (on a fresh file) at its second, until one gets through."""
    number = 1
    while True:
        play = Play(nursery, directory / f"{place}-{number}", stories)
        killed = play.until_killed(Kill(failpoint=(place, number)))
        play.to_the_end()
        yield play.figures()
        if not killed:
            return
        number += step


def hunt(play: Play, kills: Iterable[Kill]) -> Figures:
    """Kill child after child on one file until the script is through."""
    for kill in kills:
        if play.is_over:
            break
        play.until_killed(kill)
    play.to_the_end()
    return play.figures()
