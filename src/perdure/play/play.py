"""A play: the definition. It is a workflow whose code is `performing`, over a tree of parts.

Everything is worked out when it is made: what is wrong with it, its steps, where each of its signals stands. So the
catalogue can tell a sender that a signal's place was passed, and anybody can draw it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.channels import Signal
from perdure.errors import BadPlay
from perdure.model.codec import BadHint, Codec, codec_for
from perdure.model.limits import BadValue, check_name, shown
from perdure.model.records import SignalEntry, WorkflowRecord
from perdure.play import drawing
from perdure.play.checking import CONDITION, problems
from perdure.play.parts import Call, Chorus, Cue, Part, Scene, walk, way_parts
from perdure.play.performing import Performance, steps_of
from perdure.pools import Pool
from perdure.registry import Canceller, Workflow
from perdure.runtime.context import Context
from perdure.runtime.paths import check_prefix

S = TypeVar("S")


class Place(NamedTuple):
    """Where a part stands: its path, and the steps that decide whether a run comes there, with the value that does."""

    path: str
    gates: tuple[tuple[str, str], ...]


class Play(Workflow[S, S]):
    """A workflow as data: a typed state, and parts that change it. Its input is the state, and so is its result.

    The play itself is a saga, unless `saga=False`: if it fails, is cancelled or times out, the acts that were done and
    have a `compensate` are undone, the last first.
    """

    def __init__(
        self,
        name: str,
        state: type[S],
        parts: Sequence[Part[S] | Signal[Any]],
        *,
        version: int = 1,
        saga: bool = True,
        cancel_on: Canceller | Iterable[Canceller] = (),
        pool: Pool | str = "",
    ) -> None:
        check_name("play", name)
        codec = _codec_of(name, state)
        found = problems(parts, state, codec, saga)
        if found or isinstance(codec, BadHint):
            raise BadPlay(name, found)
        self.state = state
        self.parts = tuple(parts)
        self.saga = saga
        self.places = dict(_places(self.parts, "", ()))
        too_deep = [one.path for one in self.places.values() if _is_too_deep(one.path)]
        if too_deep:
            raise BadPlay(
                name, [f"{one!r} nests too deep: its path is too long" for one in too_deep]
            )
        self.steps = steps_of(name, self.parts, codec)
        signals = [one for one in walk(self.parts) if isinstance(one, Signal)]
        super().__init__(
            self._code(name, state),
            name=name,
            version=version,
            signals=signals,
            cancel_on=cancel_on,
            pool=pool,
        )
        self.needs = tuple(one.workflow for one in walk(self.parts) if isinstance(one, Call))

    def _code(self, name: str, state: type[S]) -> Any:
        async def perform(ctx: Context, state: Any) -> Any:
            performance = Performance(self, ctx, self.codec.encode(state))
            await performance.perform(self.parts, saga=self.saga)
            return self.codec.decode(performance.text)

        perform.__name__ = perform.__qualname__ = name
        perform.__annotations__ = {"ctx": Context, "state": state, "return": state}
        return perform

    def entry(self, signal: Signal[Any]) -> SignalEntry:
        place = self.places[signal.name]
        return replace(signal.entry(), path=place.path, gates=place.gates)

    def record(self, waited: Iterable[Signal[Any]] = ()) -> WorkflowRecord:
        """The catalogue's line, with the graph."""
        graph = msgspec.json.encode(self.graph()).decode()
        return replace(super().record(waited), play=graph)

    def graph(self) -> dict[str, Any]:
        """The play as a tree of plain values, for whoever draws it. `run.graph()` has a run's position on it."""
        return drawing.graph_of(self.name, self.version, self.saga, self.parts, self.places)

    def mermaid(self, graph: dict[str, Any] | None = None) -> str:
        """The play as a Mermaid flowchart; with `await run.graph()` where that run stands."""
        return drawing.mermaid(self.graph() if graph is None else graph)

    def __repr__(self) -> str:
        version = "" if self.version == 1 else f", version={self.version}"
        return f"Play({self.name!r}{version})"


def _is_too_deep(path: str) -> bool:
    try:
        check_prefix(path.rpartition("/")[0] + "/")
    except BadValue:
        return True
    return False


def _codec_of(name: str, state: Any) -> Codec | BadHint:
    try:
        return codec_for(state, where=f"the state of play {name!r}")
    except BadHint as bad:
        return bad
    except TypeError as error:
        return BadHint(f"the state of play {name!r}", f"{shown(state)} is no type ({error})")


def _places(
    parts: Iterable[Any], prefix: str, gates: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, Place]]:
    for part in parts:
        path = prefix + part.name
        inside = gates
        if part.condition is not None:
            inside = (*gates, (path + CONDITION, "true"))
        yield part.name, Place(path, inside)
        match part:
            case Scene():
                yield from _places(part.parts, f"{path}/", inside)
            case Chorus():
                for ix, one in enumerate(part.parts):
                    yield from _places([one], f"{path}[{ix}]/", inside)
            case Cue():
                for answer, way in part.ways.items():
                    gate = (path, msgspec.json.encode(answer).decode())
                    yield from _places(way_parts(way), prefix, (*inside, gate))
