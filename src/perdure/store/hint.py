"""A hint: what a commit means for other processes, as one short text.

It holds names and marks, never results: whoever hears it looks at what is stored. It may be lost, doubled or late, and
is bounded: what does not fit is found by looking. How it travels is each store's own affair.
"""

from collections.abc import Iterable

import msgspec

from perdure.model import limits
from perdure.model.outcomes import Wake
from perdure.store.base import Applied


class Hint(msgspec.Struct, omit_defaults=True):
    """What others may want to know; with nothing in it, only that the sender is there."""

    sender: str
    head: int = 0  # where the ledger ends
    ready: bool = False
    fan_out: bool = False
    match: bool = False
    # By owner, runs that it should look at.
    called: dict[str, list[str]] = {}
    ended: list[str] = []
    consumers: list[str] = []
    schedule_at: int = 0  # when the first of the schedules that were changed is due
    lines: list[str] = []  # pools in whose line something may move
    streams: list[str] = []  # runs that have published something, and signals that were answered
    # The numbers of the commits that it tells of, where a store counts them: so a loss is noticed.
    commits: list[int] = []

    def note_all(self, applied: Iterable[Applied], mine: str | None, now: int) -> None:
        """Add what a batch means for processes whose worker is not `mine`."""
        for one in applied:
            for wake in one.wakes:
                self.note(wake, mine, now)

    def note(self, wake: Wake, mine: str | None, now: int) -> None:
        """Add what a wake means for processes whose worker is not `mine`."""
        match wake.kind:
            case "news" | "control":
                self._call(wake, mine)
            # One whose time is still to come is found by looking.
            case "ready" if wake.at <= now:
                self.ready = True
            case "fan_out":
                self.fan_out = True
            case "match":
                self.match = True
            case "ended":
                if len(self.ended) < limits.hint_names_max:
                    self.ended.append(wake.run_id)
                self._call(wake, mine)
            case "consumer" if len(self.consumers) < limits.hint_names_max:
                self.consumers.append(wake.run_id)
            case "schedule":
                self.schedule_at = min(self.schedule_at or wake.at, wake.at)
            # One whose time is still to come is found by looking.
            case "line" if wake.at <= now and wake.run_id not in self.lines:
                if len(self.lines) < limits.hint_names_max:
                    self.lines.append(wake.run_id)
            case "stream" if wake.run_id not in self.streams:
                if len(self.streams) < limits.hint_names_max:
                    self.streams.append(wake.run_id)

    def _call(self, wake: Wake, mine: str | None) -> None:
        if wake.owner is not None and wake.owner != mine:
            if sum(map(len, self.called.values())) < limits.hint_names_max:
                self.called.setdefault(wake.owner, []).append(wake.run_id)

    def wakes(self, mine: str | None) -> Iterable[Wake]:
        """What it means for the process whose worker is `mine`."""
        for run_id in dict.fromkeys(self.called.get(mine or "", ())):
            yield Wake("news", run_id, mine)
        for run_id in dict.fromkeys(self.ended):
            yield Wake("ended", run_id)
        for name in dict.fromkeys(self.consumers):
            yield Wake("consumer", name)
        if self.ready:
            yield Wake("ready")
        if self.fan_out:
            yield Wake("fan_out")
        if self.match:
            yield Wake("match")
        if self.schedule_at:
            yield Wake("schedule", at=self.schedule_at)
        for name in self.lines:
            yield Wake("line", name)
        for run_id in self.streams:
            yield Wake("stream", run_id)
        if self.head:
            yield Wake("events", at=self.head)

    def texts(self) -> list[bytes]:
        """As one text that a store can pass on, or in as many parts as it needs."""
        text = msgspec.json.encode(self)
        if len(text) <= limits.hint_bytes_max:
            return [text]
        return [text for part in self._halved() for text in part.texts()]

    def _halved(self) -> "tuple[Hint, Hint]":
        """The names in two hints; all that is no name is in the first. One name alone is never too long."""
        names = [("called", owner, one) for owner, ones in self.called.items() for one in ones]
        names += [("ended", "", one) for one in self.ended]
        names += [("consumers", "", one) for one in self.consumers]
        names += [("lines", "", one) for one in self.lines]
        names += [("streams", "", one) for one in self.streams]
        first = msgspec.structs.replace(
            self, called={}, ended=[], consumers=[], lines=[], streams=[], commits=[]
        )
        # The commits in the last part: who has heard of them has mostly heard the rest too.
        second = Hint(self.sender, commits=self.commits)
        for nth, (kind, owner, name) in enumerate(names):
            half = first if nth < len(names) // 2 else second
            if kind == "called":
                half.called.setdefault(owner, []).append(name)
            else:
                getattr(half, kind).append(name)
        return first, second


_decode = msgspec.json.Decoder(Hint).decode


def heard(text: bytes | str) -> Hint | None:
    """The hint in a text; None if it is of other code. What that says is found by looking."""
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return None
