"""Topics, patterns and the index over patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.model.topics import (
    ENGINE,
    PatternIndex,
    check_emitted,
    check_topic,
    parse_pattern,
)

# ---------------------------------------------------------------- topics


@pytest.mark.parametrize(
    "topic", ["order", "order.paid", "a.b.c", "größe.geändert", "workflow.run_started", "x" * 256]
)
def test_a_good_topic_is_returned_as_it_is(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is empty"),
        (None, "is a NoneType"),
        (7, "is a int"),
        (".", "another place"),
        ("order.", "empty segment"),
        (".order", "empty segment"),
        ("order..paid", "empty segment"),
        ("order.*", "contains '*'"),
        ("ord*", "contains '*'"),
        ("order/paid", "'/'"),
        ("order\x00", "control character"),
        ("order.\ud800", "lone surrogate"),
        ("a." * 16 + "a", "has 17 segments; at most 16 (topic_segments_max)"),
        ("x" * 257, "name_bytes_max"),
    ],
)
def test_a_bad_topic_is_refused_with_the_reason(value: object, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        check_topic(value)
    assert str(caught.value).startswith("topic name ")
    assert words in str(caught.value)


@pytest.mark.parametrize("first", ["workflow", "signal", "ledger", "anomaly"])
def test_what_the_engine_writes_can_be_read_but_not_emitted(first: str) -> None:
    assert check_topic(f"{first}.x") == f"{first}.x"
    for topic in (first, f"{first}.x"):
        with pytest.raises(BadValue, match=f"begins with '{first}.', which only the engine emits"):
            check_emitted(topic)


def test_what_only_looks_like_the_engine_can_be_emitted() -> None:
    for topic in ("hitl.asked", "workflows.x", "order.workflow", "signals"):
        assert check_emitted(topic) == topic


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("order.paid", ["order.paid"], ["order", "order.paid.late", "order.placed"]),
        ("order.*", ["order.paid"], ["order", "order.paid.late", "orders.paid"]),
        ("order.**", ["order", "order.paid", "order.paid.late"], ["orders", "my.order"]),
        ("*.paid", ["order.paid", "bill.paid"], ["paid", "a.b.paid", "workflow.paid"]),
        ("**.paid", ["paid", "order.paid", "a.b.paid"], ["paid.x", "signal.paid"]),
        ("a.**.z", ["a.z", "a.b.z", "a.b.c.z", "a.z.z"], ["a", "z", "a.b", "a.z.b"]),
        ("a.**.*", ["a.b", "a.b.c"], ["a"]),
        ("**.**", ["a", "a.b"], ["workflow"]),
        ("*", ["a", "a.b", "a.b.c"], ["hitl.asked", "workflow.run_started", "signal"]),
        ("**", ["a", "a.b"], ["ledger.x", "anomaly.x"]),
        ("workflow.*", ["workflow.run_started"], ["workflow"]),
        ("hitl.**", ["hitl", "hitl.asked"], ["a"]),
        ("a.*.*", ["a.b.c"], ["a.b", "a.b.c.d"]),
    ],
)
def test_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    parsed = parse_pattern(pattern)
    index: PatternIndex[str] = PatternIndex()
    index.add(parsed, pattern)
    for topic in matching:
        assert parsed.matches(topic)
        assert index.matching(topic) == [pattern]
    for topic in others:
        assert not parsed.matches(topic)
        assert index.matching(topic) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is empty"),
        (None, "is a NoneType"),
        (["*"], "is a list"),
        ("ord*", "holds 'ord*'; a wildcard is a whole segment: '*' for one, '**' for any number"),
        ("order.*paid", "whole segment"),
        ("order.***", "holds '***'"),
        ("order..*", "empty segment"),
        ("*.", "empty segment"),
        ("**.a.**.a.**.a.**", "holds 4 times '**'; at most 3 (pattern_wildcards_max)"),
        (".".join(["**"] * 80), "topic_segments_max"),
        ("**." * 15 + "z", "pattern_wildcards_max"),
        (".".join(["*"] * 17), "topic_segments_max"),
        ("*/a", "'/'"),
        ("a.*\x00", "control character"),
        ("\udfff.*", "lone surrogate"),
        ("*" * 300, "name_bytes_max"),
    ],
)
def test_a_bad_pattern_is_refused_with_what_is_allowed(value: object, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_pattern(value)
    assert str(caught.value).startswith("pattern name ")
    assert words in str(caught.value)


def test_a_pattern_without_wildcards_is_a_literal() -> None:
    assert parse_pattern("order.paid").literal == "order.paid"
    assert parse_pattern("order.*").literal is None
    assert parse_pattern("**.a").literal is None
    assert str(parse_pattern("*")) == "*"


def test_a_hostile_pattern_ends_on_a_hostile_type() -> None:
    """A matcher that backtracks tries binomially many ways here; the pytest timeout is the judge."""
    pattern = parse_pattern("**.a.**.a.**.a.a.a.a.a.a.a.b")
    assert not pattern.matches(".".join(["a"] * 100_000))


def naive(segments: list[str], names: list[str]) -> bool:
    if not segments:
        return not names
    if segments[0] == "**":
        return naive(segments[1:], names) or (bool(names) and naive(segments, names[1:]))
    return bool(names) and segments[0] in ("*", names[0]) and naive(segments[1:], names[1:])


def expected(pattern: str, topic: str) -> bool:
    segments, names = pattern.split("."), topic.split(".")
    if segments[0].startswith("*") and names[0] in ENGINE:
        return False
    return naive(["**"] if segments == ["*"] else segments, names)


patterns = (
    st.lists(st.sampled_from(["a", "b", "signal", "*", "**"]), min_size=1, max_size=6)
    .filter(lambda segments: segments.count("**") <= limits.pattern_wildcards_max)
    .map(".".join)
)
topics = st.lists(st.sampled_from(["a", "b", "signal"]), min_size=1, max_size=6).map(".".join)


@given(patterns, topics)
def test_the_matcher_agrees_with_the_naive_one(pattern: str, topic: str) -> None:
    assert parse_pattern(pattern).matches(topic) == expected(pattern, topic)


@given(st.lists(patterns, max_size=12), st.sets(st.integers(0, 11)), topics)
def test_the_index_agrees_with_asking_each_pattern(
    texts: list[str], removed: set[int], topic: str
) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, text in enumerate(texts):
        index.add(parse_pattern(text), number)
    for number in removed:
        if number < len(texts):
            assert index.remove(parse_pattern(texts[number]), number)
    left = [number for number in range(len(texts)) if number not in removed]
    assert index.matching(topic) == [n for n in left if expected(texts[n], topic)]
    assert [value for _, value in index] == left
    assert len(index) == len(left)


# ---------------------------------------------------------------- the index


def test_an_event_visits_few_nodes_among_a_thousand_patterns() -> None:
    index: PatternIndex[int] = PatternIndex()
    for number in range(1000):
        index.add(parse_pattern(f"topic{number}.*"), number)
    index.add(parse_pattern("*"), -1)
    assert index.matching("topic500.paid") == [500, -1]
    assert index.visited <= 8
    assert index.matching("other") == [-1]
    assert index.visited <= 4


def test_many_wildcards_over_a_long_type_visit_each_node_once_a_segment() -> None:
    index: PatternIndex[str] = PatternIndex()
    for text in ("**.a.**.a.**.b", "**.a.*.**.a", "**.a.a.**"):
        index.add(parse_pattern(text), text)
    assert index.matching(".".join(["a"] * 1000)) == ["**.a.*.**.a", "**.a.a.**"]
    nodes = 6 + 4 + 2
    assert index.visited <= 1 + nodes * 1000 * 2


def test_a_removed_pattern_leaves_nothing_behind() -> None:
    index: PatternIndex[str] = PatternIndex()
    kept, gone = parse_pattern("a.b"), parse_pattern("a.b.**.c")
    index.add(kept, "kept")
    index.add(gone, "gone")
    assert not index.remove(gone, "other")
    assert not index.remove(parse_pattern("a.z"), "kept")
    assert not index.remove(parse_pattern("a"), "kept")
    assert index.remove(gone, "gone")
    assert not index.remove(gone, "gone")
    assert index.matching("a.b.c") == []
    assert index.matching("a.b") == ["kept"]
    assert index._root.children["a"].children["b"].children == {}
    assert index.remove(kept, "kept")
    assert index._root.children == {}


def test_the_same_pair_twice_is_found_twice() -> None:
    index: PatternIndex[str] = PatternIndex()
    for _ in range(2):
        index.add(parse_pattern("a"), "x")
    assert index.matching("a") == ["x", "x"]
    index.remove(parse_pattern("a"), "x")
    assert index.matching("a") == ["x"]
