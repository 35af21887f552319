"""A play drawn: as a tree of plain values, as a Mermaid flowchart, and where a run stands in it.

The tree is in the catalogue, so whoever has only the store can draw it too. Where a run stands is read from its steps;
nothing is kept for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.channels import Signal
from perdure.model.records import HANDLING, StepRecord
from perdure.model.status import TERMINAL
from perdure.play.checking import ASKED, COMPENSATE, CONDITION, RESULT
from perdure.play.parts import Act, Call, Chorus, Cue, Scene, way_parts

# What becomes of a part. Of those that hold others: active while they are under way.
STATUSES: Final = (
    "pending",
    "active",
    "running",
    "waiting",
    "retrying",
    "done",
    "skipped",
    "failed",
    "compensated",
)
_settled = frozenset({"done", "skipped", "compensated"})
# Of an act, by what became of the step that undoes it.
_undone: Final = {"done": "compensated", "failed": "failed"}

Graph = dict[str, Any]


# --- the tree ---


def graph_of(
    name: str, version: int, saga: bool, parts: Iterable[Any], places: Mapping[str, Any]
) -> Graph:
    listed = [_part(one, places) for one in parts]
    return {"play": name, "version": version, "saga": saga, "parts": listed}


def _part(part: Any, places: Mapping[str, Any]) -> Graph:
    kind = "signal" if isinstance(part, Signal) else part.kind
    drawn: Graph = {"name": part.name, "kind": kind, "path": places[part.name].path}
    if part.condition is not None:
        drawn["condition"] = _name_of(part.condition)
    match part:
        case Act():
            if part.compensate is not None:
                drawn["compensate"] = _name_of(part.compensate)
        case Signal():
            if part.timeout_us is not None:
                drawn["timeout_us"] = part.timeout_us
        case Scene():
            drawn["saga"] = part.saga
            drawn["parts"] = [_part(one, places) for one in part.parts]
        case Chorus():
            drawn["parts"] = [_part(one, places) for one in part.parts]
        case Cue():
            drawn["ways"] = {
                answer: [_part(one, places) for one in way_parts(way)]
                for answer, way in part.ways.items()
            }
        case Call():
            drawn["workflow"] = part.workflow.name
            if part.on_result is not None:
                drawn["on_result"] = _name_of(part.on_result)
    return drawn


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


# --- where a run stands ---


def with_position(
    graph: Graph, steps: Sequence[StepRecord], status: str, failed_at: str | None = None
) -> Graph:
    """The tree with what became of each part: `status` is the run's, `steps` the living ones of its generation, and
    `failed_at` the path that it has failed at."""
    by_path = {one.path: one for one in steps if one.state != "superseded"}
    undone = {
        one.name.removesuffix(COMPENSATE): _undone[one.state]
        for one in by_path.values()
        if one.kind == "act" and one.name.endswith(COMPENSATE) and one.state in _undone
    }
    marker = _Marker(by_path, undone, status, failed_at)
    parts, _ = marker.sequence(graph["parts"], status not in TERMINAL)
    return {**graph, "status": status, "parts": parts}


class _Marker:
    """Walks the tree as a run does: `here` says that the run comes to this part now, if it has not yet passed it."""

    def __init__(
        self,
        by_path: dict[str, StepRecord],
        undone: dict[str, str],
        status: str,
        failed_at: str | None,
    ) -> None:
        self._by_path = by_path
        self._undone = undone
        self._status = status
        self._failed_at = failed_at

    def sequence(self, parts: Sequence[Graph], here: bool) -> tuple[list[Graph], bool]:
        """The parts, and whether the run has come through all of them."""
        marked = []
        for part in parts:
            one = self._mark(part, here)
            marked.append(one)
            here = here and one["status"] in _settled
        return marked, all(one["status"] in _settled for one in marked)

    def _mark(self, part: Graph, here: bool) -> Graph:
        marked = self._marked(part, here)
        failed = part["path"] == self._failed_at and marked["status"] != "compensated"
        return {**marked, "status": "failed"} if failed else marked

    def _marked(self, part: Graph, here: bool) -> Graph:
        condition = self._by_path.get(part["path"] + CONDITION)
        if condition is not None and condition.value == "false":
            return {**part, **self._inside(part, False), "status": "skipped"}
        if condition is not None and condition.state != "done":
            return {**part, **self._inside(part, False), "status": condition.state}
        if "parts" in part or "ways" in part:
            return self._mark_holder(part, here)
        return {**part, "status": self._leaf(part, here)}

    def _inside(self, part: Graph, here: bool) -> Graph:
        if "parts" in part:
            return {"parts": [self._mark(one, here) for one in part["parts"]]}
        if "ways" in part:
            ways = part["ways"].items()
            return {"ways": {way: [self._mark(one, here) for one in each] for way, each in ways}}
        return {}

    def _mark_holder(self, part: Graph, here: bool) -> Graph:
        if "ways" in part:
            return self._mark_cue(part, here)
        if part["kind"] == "chorus":
            inside = [self._mark(one, here) for one in part["parts"]]
            through = all(one["status"] in _settled for one in inside)
        else:
            inside, through = self.sequence(part["parts"], here)
        return {**part, "parts": inside, "status": _of_holder(inside, through)}

    def _mark_cue(self, part: Graph, here: bool) -> Graph:
        chosen = self._by_path.get(part["path"])
        if chosen is None or chosen.state != "done":
            status = "running" if here else "pending"
            status = status if chosen is None else chosen.state
            return {**part, **self._inside(part, False), "status": status}
        way = msgspec.json.decode(chosen.value or '""')
        marked, through = self.sequence(part["ways"].get(way, []), here)
        others = self._inside(part, False)["ways"]
        return {
            **part,
            "ways": {**others, way: marked},
            "way": way,
            "status": "done" if through else _of_holder(marked, through),
        }

    def _leaf(self, part: Graph, here: bool) -> str:
        if part["name"] in self._undone:
            return self._undone[part["name"]]
        path = part["path"]
        own = [*(path + one for one in ASKED), path, *(path + one for one in (RESULT, *HANDLING))]
        steps = [self._by_path[one] for one in own if one in self._by_path]
        if not steps:
            return self._now("running") if here else "pending"
        last = steps[-1]
        if last.state == "failed":
            return "failed"
        if last.state == "abandoned" or (last.state != "done" and self._status in TERMINAL):
            return "skipped"
        if last.state in ("open", "retrying"):
            return "waiting" if last.state == "open" else "retrying"
        return "done" if _is_last(part, last) or not here else self._now("running")

    def _now(self, status: str) -> str:
        return "pending" if self._status in ("ready", "paused") else status


def _is_last(part: Graph, step: StepRecord) -> bool:
    """Whether nothing more is to come of a part after this step."""
    if part["kind"] == "signal":
        return step.kind == "act"
    if step.path.endswith(ASKED):
        return False
    if part["kind"] == "call":
        return step.path.endswith(HANDLING if "on_result" in part else RESULT)
    return True


def _of_holder(inside: Sequence[Graph], through: bool) -> str:
    statuses = {one["status"] for one in inside}
    if "failed" in statuses:
        return "failed"
    if through:
        return "compensated" if "compensated" in statuses else "done"
    return "pending" if statuses <= {"pending"} else "active"


# --- Mermaid ---

_shapes: Final = {
    "act": '["{}"]',
    "signal": '[/"{}"/]',
    "cue": '{{"{}"}}',
    "sleep": '(["{}"])',
    "call": '[["{}"]]',
}
_looks: Final = {
    "running": "fill:#dbeafe,stroke:#1d4ed8,stroke-width:3px,color:#111",
    "waiting": "fill:#fef3c7,stroke:#b45309,stroke-width:3px,color:#111",
    "retrying": "fill:#fef3c7,stroke:#b91c1c,stroke-width:3px,color:#111",
    "done": "fill:#dcfce7,stroke:#15803d,color:#111",
    "skipped": "fill:#f3f4f6,stroke:#9ca3af,stroke-dasharray:4 3,color:#6b7280",
    "failed": "fill:#fee2e2,stroke:#b91c1c,stroke-width:3px,color:#111",
    "compensated": "fill:#ede9fe,stroke:#6d28d9,color:#111",
}

Exit = tuple[str, str]  # where an arrow comes from, and what is written on it


def mermaid(graph: Graph) -> str:
    """A Mermaid flowchart of the tree that `play.graph()` or `run.graph()` gives."""
    chart = _Chart()
    chart.lines.append(f'start(["{_label(graph["play"])}"])')
    exits = chart.sequence(graph["parts"], [("start", "")])
    chart.lines.append('finish(["end"])')
    chart.join(exits, "finish")
    lines = ["flowchart TD", *("  " + one for one in (*chart.lines, *chart.arrows))]
    for status, ids in chart.ids_by_status.items():
        if status in _looks:
            lines += [f"  classDef {status} {_looks[status]}", f"  class {','.join(ids)} {status}"]
    return "\n".join(lines) + "\n"


class _Chart:
    """The lines of a flowchart as it is walked through.

    Arrows come after all boxes: one that is drawn inside a frame would pull what it comes from into the frame.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arrows: list[str] = []
        self.ids_by_status: dict[str, list[str]] = {}
        self._count = 0

    def sequence(self, parts: Sequence[Graph], exits: list[Exit]) -> list[Exit]:
        for part in parts:
            before = exits
            exits = self._part(part, exits)
            if "condition" in part:
                exits = exits + [(one, _unless(part["condition"])) for one, _ in before]
        return exits

    def join(self, exits: list[Exit], to: str) -> None:
        for one, words in dict.fromkeys(exits):
            self.arrows.append(f'{one} -->|"{words}"| {to}' if words else f"{one} --> {to}")

    def _part(self, part: Graph, exits: list[Exit]) -> list[Exit]:
        own = self._new_id(part)
        if part["kind"] in ("scene", "chorus"):
            return self._holder(part, own, exits)
        self.lines.append(own + _shapes[part["kind"]].format(_label(part["name"])))
        self.join(exits, own)
        if part["kind"] != "cue":
            return [(own, "")]
        left: list[Exit] = []
        for answer, way in part["ways"].items():
            left += self.sequence(way, [(own, _label(answer))])
        return left

    def _holder(self, part: Graph, own: str, exits: list[Exit]) -> list[Exit]:
        saga = " (saga)" if part.get("saga") else ""
        self.lines.append(f'subgraph {own}["{_label(part["name"] + saga)}"]')
        if part["kind"] == "scene":
            left = self.sequence(part["parts"], exits)
        else:
            left = [one for each in part["parts"] for one in self.sequence([each], exits)]
        self.lines.append("end")
        return left

    def _new_id(self, part: Graph) -> str:
        self._count += 1
        own = f"p{self._count}"
        self.ids_by_status.setdefault(part.get("status", "pending"), []).append(own)
        return own


def _unless(condition: str) -> str:
    return "skip" if condition == "<lambda>" else f"not {_label(condition)}"


def _label(text: str) -> str:
    """Nothing of it is taken for a mark of the chart."""
    for mark, code in (
        ("#", "#35;"),
        ("&", "#amp;"),
        ('"', "#quot;"),
        ("<", "#lt;"),
        (">", "#gt;"),
    ):
        text = text.replace(mark, code)
    return text
