"""Names of topics, patterns over them, and an index that finds the patterns an event matches.

A topic is segments between dots: `order.paid`. In a pattern `*` stands for exactly one segment, `**` for any
number of them, none included, and a lone `*` means `**`. Patterns come from users and over HTTP, so matching
never backtracks: it walks the segments once and carries the set of places it may be at.

The engine writes topics of its own. Anyone may read or wait for them by name; nobody else may emit them, and a
pattern that begins with a wildcard leaves them out, or `*` would answer each run that it starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from perdure.model import limits
from perdure.model.limits import BadValue, check_name

# First segments of what only the engine emits.
RESERVED = frozenset({"workflow", "signal", "ledger", "anomaly", "schedule"})
# First segments that a leading wildcard does not cover. `hitl` is open to users, who ask people by it.
ENGINE = RESERVED | {"hitl"}
# Of those the engine's own: what became of an approval.
APPROVAL_FACTS = (
    "hitl.requested",
    "hitl.reminded",
    "hitl.expired",
    "hitl.decided",
    "hitl.returned",
    "hitl.timed_out",
    "hitl.withdrawn",
)

ONE = "*"
ANY = "**"

T = TypeVar("T")


def check_topic(value: object) -> str:
    """A topic to read or to wait for, the engine's own included."""
    topic = check_name("topic", value)
    _check_segments("topic name", topic)
    if ONE in topic:
        raise BadValue("topic name", topic, "contains '*'; only patterns hold wildcards")
    return topic


def check_emitted(value: object) -> str:
    """A topic that users may emit: any but the engine's own."""
    topic = check_topic(value)
    first = topic.partition(".")[0]
    if first in RESERVED:
        raise BadValue(
            "topic name",
            topic,
            f"begins with '{first}.', which only the engine emits; choose another first segment",
        )
    if topic in APPROVAL_FACTS:
        raise BadValue("topic name", topic, "is told by the engine alone; choose another name")
    return topic


def is_engines(topic: str) -> bool:
    """Whether only the engine tells it."""
    return topic.partition(".")[0] in RESERVED or topic in APPROVAL_FACTS


def parse_pattern(text: object) -> "Pattern":
    """A pattern, checked. A text without wildcards is a pattern that matches itself only."""
    name = check_name("pattern", text)
    segments = _check_segments("pattern name", name)
    for segment in segments:
        if ONE in segment and segment not in (ONE, ANY):
            raise BadValue(
                "pattern name",
                name,
                f"holds {segment!r}; a wildcard is a whole segment: '*' for one, '**' for any number",
            )
    if segments.count(ANY) > limits.pattern_wildcards_max:
        raise BadValue(
            "pattern name",
            name,
            f"holds {segments.count(ANY)} times '**'; at most {limits.pattern_wildcards_max} "
            "(pattern_wildcards_max)",
        )
    return Pattern(name, (ANY,) if segments == (ONE,) else segments)


def _check_segments(what: str, name: str) -> tuple[str, ...]:
    segments = tuple(name.split("."))
    if "" in segments:
        raise BadValue(
            what, name, "has an empty segment; write segments between single dots, as 'order.paid'"
        )
    if len(segments) > limits.topic_segments_max:
        raise BadValue(
            what,
            name,
            f"has {len(segments)} segments; at most {limits.topic_segments_max} "
            "(topic_segments_max)",
        )
    return segments


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern; make one with `parse_pattern`."""

    text: str
    segments: tuple[str, ...]

    @property
    def literal(self) -> str | None:
        """The one topic it matches, when it holds no wildcard."""
        return None if ONE in self.segments or ANY in self.segments else self.text

    def matches(self, type: str) -> bool:
        """Whether an event of this type matches, in time of at most segments times segments."""
        names = type.split(".")
        if self.segments[0] in (ONE, ANY) and names[0] in ENGINE:
            return False
        places = self._past_any({0})
        for name in names:
            places = self._past_any(self._step(places, name))
            if not places:
                return False
        return len(self.segments) in places

    def _step(self, places: set[int], name: str) -> set[int]:
        """Where it may be after taking one more segment. A place is how much of the pattern is used up."""
        after = set()
        for place in places:
            wanted = self.segments[place] if place < len(self.segments) else None
            if wanted == ANY:
                after.add(place)
            elif wanted in (ONE, name):
                after.add(place + 1)
        return after

    def _past_any(self, places: set[int]) -> set[int]:
        """`**` may stand for nothing, so standing before it is also standing behind it."""
        reached = set(places)
        for place in places:
            while place < len(self.segments) and self.segments[place] == ANY:
                place += 1
                reached.add(place)
        return reached

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False, slots=True)
class _Node(Generic[T]):
    """One place in the trie: what ends here, in the order of adding, and where each segment leads."""

    ends: dict[int, tuple[Pattern, T]] = field(default_factory=dict)
    children: "dict[str, _Node[T]]" = field(default_factory=dict)


class PatternIndex(Generic[T]):
    """Values under patterns. Looking up visits the nodes that the type can reach, not the patterns there are."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._added = 0
        self._size = 0
        # How many nodes the last look-up visited: the tests hold it small.
        self.visited = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Pattern, T]]:
        """All pairs, in the order of adding."""
        found: dict[int, tuple[Pattern, T]] = {}
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            found.update(node.ends)
            nodes.extend(node.children.values())
        return iter([found[number] for number in sorted(found)])

    def add(self, pattern: Pattern, value: T) -> None:
        """The same pair may be added twice; it is then found twice."""
        node = self._root
        for segment in pattern.segments:
            node = node.children.setdefault(segment, _Node())
        node.ends[self._added] = (pattern, value)
        self._added += 1
        self._size += 1

    def remove(self, pattern: Pattern, value: T) -> bool:
        """Takes out the pair that was added first; False when there is none."""
        path = [self._root]
        for segment in pattern.segments:
            child = path[-1].children.get(segment)
            if child is None:
                return False
            path.append(child)
        ends = path[-1].ends
        for number, (_, held) in ends.items():
            if held == value:
                del ends[number]
                self._size -= 1
                self._prune(path, pattern.segments)
                return True
        return False

    @staticmethod
    def _prune(path: list[_Node[T]], segments: tuple[str, ...]) -> None:
        # Subscriptions come and go for as long as the process lives: branches must not stay behind.
        for parent, segment in zip(reversed(path[:-1]), reversed(segments), strict=True):
            child = parent.children[segment]
            if child.ends or child.children:
                return
            del parent.children[segment]

    def matching(self, type: str) -> list[T]:
        """The values of all patterns that match, in the order of adding."""
        names = type.split(".")
        level = self._first_level(names[0])
        for name in names[1:]:
            level = self._next_level(level, name)
        found: dict[int, tuple[Pattern, T]] = {}
        for node, _ in level.values():
            found.update(node.ends)
        return [found[number][1] for number in sorted(found)]

    def _first_level(self, name: str) -> "dict[int, tuple[_Node[T], bool]]":
        self.visited = 1
        root = self._root
        if name not in ENGINE:
            return self._next_level(self._past_any({id(root): (root, False)}), name)
        child = root.children.get(name)
        return {} if child is None else self._past_any(self._visit({id(child): (child, False)}))

    def _next_level(
        self, level: "dict[int, tuple[_Node[T], bool]]", name: str
    ) -> "dict[int, tuple[_Node[T], bool]]":
        """The nodes after one more segment. Keyed by identity: a node reached twice is walked once.

        The flag says that the node stands behind `**`, so that it may also stay where it is.
        """
        after: dict[int, tuple[_Node[T], bool]] = {}
        for node, stays in level.values():
            if stays:
                after[id(node)] = (node, True)
            for segment in (name, ONE):
                child = node.children.get(segment)
                if child is not None:
                    after.setdefault(id(child), (child, False))
        return self._past_any(self._visit(after))

    def _past_any(
        self, level: "dict[int, tuple[_Node[T], bool]]"
    ) -> "dict[int, tuple[_Node[T], bool]]":
        waiting = [node for node, _ in level.values()]
        while waiting:
            child = waiting.pop().children.get(ANY)
            if child is not None and not level.get(id(child), (child, False))[1]:
                level[id(child)] = (child, True)
                waiting.append(child)
                self.visited += 1
        return level

    def _visit(
        self, level: "dict[int, tuple[_Node[T], bool]]"
    ) -> "dict[int, tuple[_Node[T], bool]]":
        self.visited += len(level)
        return level
