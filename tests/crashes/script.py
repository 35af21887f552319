"""What the parent asks of its children, and what must have come of it in the end, whoever died when.

A script is a set of asks, each with the names of those that must be acknowledged before it. An ask that was not
acknowledged is asked again of the next child, with the same id or key. The expectations are the model: plain values
computed here, never read from the engine.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Answers = dict[str, dict[str, Any]]


class Ask(NamedTuple):
    """One request. `after` are the asks it waits for."""

    name: str
    do: str
    run: str
    fields: dict[str, Any]
    after: tuple[str, ...]

    def message(self) -> dict[str, Any]:
        return {"name": self.name, "do": self.do, "run": self.run, **self.fields}


class Story(NamedTuple):
    """The asks about one run, how it must end, and a closer look at that end."""

    run: str
    asks: list[Ask]
    status: str
    check: Callable[[Answers, Any], None]


class Teller:
    """Writes the asks of one story, each after the one before unless said otherwise."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.asks: list[Ask] = []

    def ask(self, do: str, *, after: Iterable[Ask] | None = None, **fields: Any) -> Ask:
        name = f"{self.run}/{len(self.asks)}-{do}"
        before = self.asks[-1:] if after is None else after
        made = Ask(name, do, self.run, fields, tuple(one.name for one in before))
        self.asks.append(made)
        return made

    def start(self, workflow: str, value: Any) -> Ask:
        return self.ask("start", workflow=workflow, input=value)

    def signal(self, name: str, payload: Any, *, after: Iterable[Ask] | None = None) -> Ask:
        key = f"key-{len(self.asks)}"
        return self.ask("signal", signal=name, payload=payload, key=key, after=after)

    def told(self, check: Callable[[Answers, Any], None], status: str = "completed") -> Story:
        # The result is asked for once everything else is acknowledged.
        self.ask("result", after=list(self.asks))
        return Story(self.run, self.asks, status, check)


def equals(expected: Any) -> Callable[[Answers, Any], None]:
    def check(answers: Answers, output: Any) -> None:
        assert output == expected, f"{output!r} instead of {expected!r}"

    return check


def order(n: int) -> Story:
    story = Teller(f"order-{n}")
    story.start("order", n)
    return story.told(equals([f"pay {n}!", "ship!", "mail!"]))


def approval(n: int) -> Story:
    """Two answer at once; whoever was accepted is the one who is heard."""
    story = Teller(f"approval-{n}")
    start = story.start("approval", n)
    voices = {story.signal("approve", who, after=[start]).name: who for who in ("ann", "bob")}

    def check(answers: Answers, output: Any) -> None:
        accepted = [who for name, who in voices.items() if "ok" in answers[name]]
        assert [output] == accepted, f"{output!r} was heard, {accepted} accepted"
        (refused,) = (answers[name] for name in voices if "ok" not in answers[name])
        assert refused["error"] in ("SignalTaken", "RunFinished"), refused

    return story.told(check)


def race(n: int) -> Story:
    """Signal against timer: what the sender was told is what happened."""
    story = Teller(f"race-{n}")
    story.start("race", n)
    sent = story.signal("nudge", n * 7)

    def check(answers: Answers, output: Any) -> None:
        won, value = output
        assert value == n * 7
        answer = first_answer(answers[sent.name])
        if answer["sent"] == "delivered":
            paths = {"signal": "nudge", "timer": "nudge#2"}
            assert answer["path"] == paths[won], (answer, output)
        # A buffered one was taken by either wait when it opened.

    return story.told(check)


def branches(n: int) -> Story:
    story = Teller(f"branches-{n}")
    story.start("branches", n)
    story.signal("go", "north")
    return story.told(equals(["went north!", "left!middle!right!"]))


def paused(n: int) -> Story:
    """Paused, signalled twice and resumed: the later one has taken the slot, unless the first was in time."""
    story = Teller(f"paused-{n}")
    story.start("branches", n)
    story.ask("pause")
    west = story.signal("go", "west")
    story.signal("go", "south")
    story.ask("resume")

    def check(answers: Answers, output: Any) -> None:
        heard = "west" if first_answer(answers[west.name])["sent"] == "delivered" else "south"
        assert output == [f"went {heard}!", "left!middle!right!"], output

    return story.told(check)


def leftover(n: int) -> Story:
    """A signal that nobody ever waits for leaves the buffer with the run."""
    story = Teller(f"leftover-{n}")
    story.start("order", n)
    story.signal("go", "unheard")
    return story.told(equals([f"pay {n}!", "ship!", "mail!"]))


def family(n: int) -> Story:
    story = Teller(f"family-{n}")
    story.start("family", n)
    return story.told(equals([n * 10, n, n + 1]))


def collector(n: int, items: int = 7) -> Story:
    """A stream with keys, some of it sent at once: `all` keeps each, in the order of acceptance."""
    story = Teller(f"collector-{n}")
    story.start("collector", [])
    for one in range(items):
        story.signal("item", one)
    story.signal("item", -1)
    return story.told(equals(list(range(items))))


def stuck(n: int) -> Story:
    story = Teller(f"stuck-{n}")
    story.start("stuck", n)
    story.ask("cancel")
    return story.told(equals(None), status="cancelled")


def show(n: int) -> Story:
    """A play, with every kind of part: its state in the end is its result."""
    story = Teller(f"show-{n}")
    story.start("show", {"n": n})
    story.signal("voice", "ann")
    encore = ["enter"] if n % 2 else []
    sides = {"left": "left ann", "right": "right ann"}
    state = {"n": n, "log": ["enter", "bow", *encore], **sides, "who": "ann", "child": n * 10}
    return story.told(equals(state))


def flop(n: int) -> Story:
    """A play that falls, and is undone from the end to the beginning; the state in the end is asked for."""
    story = Teller(f"flop-{n}")
    story.start("flop", {"n": n})
    ended = story.ask("result")
    left = story.ask("state", after=[ended])

    def check(answers: Answers, output: Any) -> None:
        state = {"n": n, "log": ["enter", "unload", "leave"], "left": "left ", "right": ""}
        assert answers[left.name]["ok"] == {**state, "who": "", "child": 0}, answers[left.name]

    return story.told(check, status="failed")


def first_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """What an accepted send was told the first time."""
    ok: dict[str, Any] = answer["ok"]
    return ok["of"] if ok["sent"] == "duplicate" else ok


tellers = (
    order,
    approval,
    race,
    branches,
    paused,
    leftover,
    family,
    collector,
    stuck,
    show,
    flop,
)
