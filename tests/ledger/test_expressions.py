"""Expressions as text: what they see, what they give, and that a hostile one is refused or ends.

No test here measures time: what would run for minutes or fill the memory is caught by the pytest timeout.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import BadExpression, ExpressionFailed, ExpressionsUnavailable, PerdureError
from perdure.ledger import expressions
from perdure.ledger.cost import Facts, facts_at_worst, facts_of, regex_places, work_of
from perdure.ledger.expressions import compile_filter, compile_key, compile_mapper
from perdure.ledger.tree import read_tree
from perdure.model import limits
from perdure.model.records import EventRecord


def record(payload: object = None, **changes: object) -> EventRecord:
    values: dict[str, object] = {
        "position": 7,
        "event_id": "01E",
        "type": "order.paid",
        "entity_type": "order",
        "entity_id": "42",
        "payload": json.dumps(payload),
        "occurred_at": 1_700_000_000_000_000,
        "recorded_at": 1_700_000_000_000_001,
        "depth": 2,
        "key": "k1",
    }
    return EventRecord(**(values | changes))  # type: ignore[arg-type]


def test(text: str, payload: object = None, **changes: object) -> bool:
    return compile_filter(text).test(record(payload, **changes))


test.__test__ = False  # type: ignore[attr-defined]


def make(text: str, payload: object = None, **changes: object) -> object:
    return compile_mapper(text).make(record(payload, **changes))


# ---------------------------------------------------------------- what an expression sees


@pytest.mark.parametrize(
    "text",
    [
        "payload.amount > 100 && entity_type == 'order'",
        "type == 'order.paid'",
        "type.startsWith('order.')",
        "entity == 'order/42' && entity_id == '42'",
        "event_id == '01E' && key == 'k1'",
        "position == 7 && depth == 2",
        "occurred_at == timestamp('2023-11-14T22:13:20Z')",
        "recorded_at > occurred_at",
        "recorded_at - occurred_at < duration('1s')",
        "occurred_at.getFullYear() == 2023",
        "event.type == type && event.payload.amount == payload.amount",
        "event.position == position && event.root_id == event_id && event.caused_by.run_id == 'r1'",
        "timestamp(event.occurred_at) == occurred_at",
        "payload.items.exists(item, item.sku == 'b')",
        "payload.items.all(item, item.count > 0) && payload.items.size() == 2",
        "payload.items.filter(item, item.count > 1).map(item, item.sku) == ['b']",
        "has(payload.amount) && !has(payload.other)",
        "payload.?other.orValue(3) == 3",
        "payload.note.lowerAscii().contains('urgent')",
        "payload.code.matches('^[A-Z]{3}-[0-9]{4}$')",
        "payload.amount in [1, 150.0]",
        "payload.missing == 1 || payload.amount == 150",
        "type(payload) == map",
        "math.greatest(payload.amount, 3) == 150",
        "dyn(true)",
    ],
)
def test_a_filter_sees_the_event(text: str) -> None:
    payload = {
        "amount": 150,
        "note": "URGENT: größe",
        "code": "ABC-1234",
        "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}],
    }
    assert test(text, payload, caused_by='{"run_id":"r1"}')


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("payload == 3", 3),
        ("payload == 'x'", "x"),
        ("payload == null", None),
        ("payload[0] == 1 && payload.size() == 2", [1, 2]),
        ("payload", True),
        ("payload > 1.4", 1.5),
    ],
)
def test_a_payload_need_not_be_an_object(text: str, payload: object) -> None:
    assert test(text, payload)


def test_what_an_event_lacks_is_empty_text() -> None:
    bare = {"entity_type": None, "entity_id": None, "key": None}
    text = "entity == '' && entity_type == '' && entity_id == '' && key == ''"
    assert test(text, {}, **bare)


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("payload.amount > 100", {}),
        ("payload.order.id == 1", {"order": {}}),
        ("payload['a'] == 1", {"b": 1}),
        ("payload.items[3] == 1", {"items": [1]}),
        ("payload.a == 1", None),
        ("payload.a == 1", "text"),
        ("payload.a.b == 1", {"a": 5}),
        ("!(payload.a == 1)", {}),
        ("event.nothing == 1", {}),
    ],
)
def test_what_is_missing_is_no_match(text: str, payload: object) -> None:
    assert compile_filter(text).test(record(payload)) is False


def test_the_words_of_a_missing_key_in_a_payload_do_not_make_a_fault_a_miss() -> None:
    with pytest.raises(ExpressionFailed):
        test("int(payload.a) == 1", {"a": "NOT_FOUND: Key not found in map"})


# ---------------------------------------------------------------- what mappers and keys give


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{'id': payload.id, 'total': payload.prices.map(p, p * 2)}",
            {"id": "a", "total": [2, 4]},
        ),
        ("payload", {"id": "a", "prices": [1, 2], "deep": {"x": [None, True, 1.5]}}),
        ("payload.deep", {"x": [None, True, 1.5]}),
        ("[type, position]", ["order.paid", 7]),
        ("{'at': occurred_at}", {"at": "2023-11-14T22:13:20Z"}),
        ("{'small': 5u}", {"small": 5}),
        ("{}", {}),
        ("event.payload.id", "a"),
        ("dyn(3)", 3),
        ("{payload.id: payload.?none.orValue(null)}", {"a": None}),
    ],
)
def test_a_mapper_gives_json(text: str, expected: object) -> None:
    payload = {"id": "a", "prices": [1, 2], "deep": {"x": [None, True, 1.5]}}
    made = make(text, payload)
    assert made == expected
    assert json.loads(json.dumps(made)) == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(limits.int_min, limits.int_max)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
)


@given(json_values)
def test_any_payload_comes_back_as_it_was(payload: object) -> None:
    assert make("payload", payload) == payload


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("payload.id", "a"),
        ("payload.number", "12"),
        ("type + ':' + entity_id", "order.paid:42"),
        ("position", "7"),
        ("payload.?none.orValue(event_id)", "01E"),
    ],
)
def test_a_key_is_text(text: str, expected: str) -> None:
    assert compile_key(text).make(record({"id": "a", "number": 12})) == expected


# ---------------------------------------------------------------- refused at registration

parentheses = "(" * 100_000 + "1" + ")" * 100_000
hundred = "[" + ",".join("1" * 100) + "]"


def doubling(first: str, levels: int, times: int = 2) -> str:
    """`[x + x].map(a0, [a0 + a0].map(a1, …))`: one iteration a level, and twice the text."""
    names = [first, *(f"a{level}" for level in range(levels))]
    opened = "".join(
        f"[{' + '.join([names[level]] * times)}].map({names[level + 1]}, "
        for level in range(levels)
    )
    return f"{opened}{names[-1]}.size(){')' * levels}"


@pytest.mark.parametrize(
    ("compile", "text", "words"),
    [
        # syntax
        (compile_filter, "1 +", "at line 1, column 4: Syntax error"),
        (compile_filter, "payload.a >", "Syntax error"),
        (compile_filter, "true &&\n  && false", "at line 2, column 3"),
        (compile_filter, "payload.a = 1", "Syntax error"),
        (compile_filter, "payload.a and payload.b", "Syntax error"),
        (compile_filter, "'open", "Syntax error"),
        (compile_filter, "__import__('os').system('x')", "undeclared reference to '__import__'"),
        (compile_filter, "", "is empty"),
        (compile_filter, " \n ", "is empty"),
        # names
        (compile_filter, "foo > 1", "column 1: undeclared reference to 'foo'"),
        (compile_filter, "foo > 1", "the variables are event, payload, type, entity,"),
        (compile_filter, "nothing(1)", "undeclared reference to 'nothing'"),
        (compile_filter, "payload.a.explode()", "undeclared reference to 'explode'"),
        (compile_filter, "cel.bind(x, 1, x > 0)", "undeclared reference"),
        (compile_filter, "lists.range(1000000).size() > 0", "undeclared reference"),
        (compile_filter, "[1].map(x, @result).size() > 0", "Syntax error"),
        (compile_filter, "[1].map(x, __result__).size() > 0", "undeclared reference"),
        # types
        (compile_filter, "1 + 'a' == 2", "no matching overload"),
        (compile_filter, "type == 1", "no matching overload"),
        (compile_filter, "position > 'a'", "no matching overload"),
        (compile_filter, "occurred_at > 5", "no matching overload"),
        (compile_filter, "position", "gives int; a filter gives true or false"),
        (compile_filter, "'true'", "gives string"),
        (compile_filter, "payload.?a", "gives optional_type<dyn>"),
        (compile_mapper, "1 + 1", "gives int; a mapper gives a map such as"),
        (compile_mapper, "payload.a > 1", "gives bool"),
        (compile_mapper, "type", "gives string"),
        (compile_mapper, "{1: 2}", "gives map<int, int>"),
        (compile_mapper, "occurred_at", "gives timestamp"),
        (compile_key, "payload.a == 1", "gives bool; a key gives a string or an int"),
        (compile_key, "1.5", "gives double"),
        (compile_key, "[type]", "gives list<string>"),
        (compile_key, "5u", "gives uint"),
        (
            compile_mapper,
            "google.protobuf.Struct{fields: payload}",
            "builds google.protobuf.Struct",
        ),
        (
            compile_filter,
            "payload.all(x, google.protobuf.ListValue{values: payload}.size() > 0)",
            "builds google.protobuf.ListValue; build maps and lists",
        ),
        (compile_filter, "google.protobuf.FileDescriptorProto{} == 1", "undeclared reference"),
        # what is no text
        (compile_filter, None, "is a NoneType; give CEL as a str"),
        (compile_filter, 7, "is a int"),
        (compile_filter, b"true", "is a bytes"),
        (compile_filter, "'\ud800' == type", "lone surrogate"),
        (compile_filter, r"'\ud800' == type", "Illegal escape"),
        (compile_filter, "type == 'a\x00b'", "NUL character"),
        (compile_filter, "type\x00", "NUL character"),
        # size and depth
        (compile_filter, parentheses, "is 200001 bytes; at most 4096 (expression_bytes_max)"),
        (compile_filter, "true || " * 600 + "true", "expression_bytes_max"),
        (compile_filter, "'" + "ö" * 2050 + "' == type", "expression_bytes_max"),
        (compile_filter, "x" * 10_000_000, "expression_bytes_max"),
        (compile_filter, "(" * 2000 + "true" + ")" * 2000, "nests too deeply; at most 32 levels"),
        (compile_filter, "[" * 2000, "nests too deeply"),
        (compile_filter, "payload" + ".a" * 1000 + " == 1", "nests too deeply"),
        (compile_filter, "1" + "+1" * 1000 + " == 1", "nests too deeply"),
        (compile_filter, "true" + "?true:true" * 300, "nests too deeply"),
        (compile_filter, "payload" + "[0]" * 1000 + " == 1", "nests too deeply"),
        # bombs that need no payload
        (compile_filter, "type.matches('(((a{1000}){1000}){1000})')", "expression_work_max"),
        (
            compile_mapper,
            "optional.of(1)" + ".optMap(v, v + 1)" * 14 + ".orValue(1)",
            "node count exceeded",
        ),
        (compile_mapper, doubling("type", 5, 20), "could copy more than one evaluation may"),
        (compile_mapper, doubling(f"'{'x' * 500}'", 13, 4), "expression_work_max"),
        (compile_mapper, doubling(hundred, 12, 4), "expression_work_max"),
        (
            compile_mapper,
            f"['{'x' * 1000}'].map(a, [a.replace('x', a)].map(b, b.replace('x', a)))",
            "expression_work_max",
        ),
        (
            compile_filter,
            "".join(f"[1,2,3,4,5,6,7,8,9,10].all(x{n}, " for n in range(10)) + "true" + ")" * 10,
            "loops over its own lists more often",
        ),
    ],
)
def test_a_bad_expression_is_refused_at_registration(
    compile: Callable[[object], object], text: object, words: str
) -> None:
    with pytest.raises(BadExpression) as caught:
        compile(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("expression ")
    assert len(str(caught.value)) < 1000
    assert isinstance(caught.value, PerdureError | ValueError)


def test_a_refusal_carries_its_facts() -> None:
    with pytest.raises(BadExpression) as caught:
        compile_filter("true &&\n  foo")
    assert caught.value.text == "true &&\n  foo"
    assert caught.value.where == "line 2, column 3"
    assert caught.value.problem.startswith("undeclared reference to 'foo'")


# ---------------------------------------------------------------- failing at run time


@pytest.mark.parametrize(
    ("text", "payload", "words"),
    [
        ("1 / 0 == 1", None, "divide by zero"),
        ("position % (position - 7) == 0", None, "modulus by zero"),
        ("payload.a / payload.b > 1", {"a": 1, "b": 0}, "divide by zero"),
        ("9223372036854775807 + position > 0", None, "integer overflow"),
        ("payload.a * payload.a > 0", {"a": 2**62}, "integer overflow"),
        ("payload.a + 1 > 0", {"a": limits.int_max}, "integer overflow"),
        ("-payload.a > 0", {"a": limits.int_min}, "integer overflow"),
        ("payload.a > 1", {"a": "text"}, "No matching overloads"),
        ("payload.a > 1", {"a": None}, "No matching overloads"),
        ("payload.a", {"a": 1}, "it gave int; a filter gives true or false"),
        ("payload.a", {"a": {}}, "it gave map"),
        ("dyn(payload.?a)", {"a": 1}, "an optional"),
        ("payload.a && true", {"a": 1}, "No matching overloads"),
        ("int(payload.a) == 1", {"a": "x"}, ""),
        ("timestamp(payload.a) < occurred_at", {"a": "yesterday"}, ""),
        ("duration(payload.a) > duration('1s')", {"a": "9" * 30 + "h"}, ""),
        ("occurred_at.getHours('Nowhere') == 1", None, "Invalid timezone"),
        ("type.matches('[')", None, "invalid regular expression"),
        ("type.matches('a{1001}')", None, "invalid repetition size"),
        ("payload.a == 1", {"a": "x\x00y"}, "NUL character"),
        ("payload.size() > 0", {"x\x00y": 1}, "NUL character"),
        ("payload.substring(5) == ''", "abc", ""),
    ],
)
def test_a_fault_at_run_time_says_its_reason(text: str, payload: object, words: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        test(text, payload)
    assert words in caught.value.reason
    assert caught.value.text == text
    assert str(caught.value).startswith("expression ")


@pytest.mark.parametrize(
    ("text", "payload", "words"),
    [
        ("{'a': payload.a}", {}, "Key not found"),
        ("{'a': 1, payload.a: 2}", {"a": "a"}, "duplicate key"),
        ("{'a': 1.0 / 0.0}", None, "inf, which JSON has not"),
        ("{'a': 18446744073709551615u}", None, "beyond 64 bits"),
        ("{'a': b'bytes'}", None, "holds bytes"),
        ("{'a': duration('1h')}", None, "holds duration"),
        ("{'a': type(1)}", None, "holds type"),
        ("{'a': payload.?a}", None, ""),
        ("{'a': payload.?a}", {"a": 1}, "an optional, which JSON has not"),
        ("dyn({1: 2})", None, "the map key 1; JSON has text only"),
        ("dyn(b'x')", None, "holds bytes"),
        ("payload.l.map(x, payload.big)", {"l": [1] * 500, "big": "x" * 9000}, "payload_bytes_max"),
        ("payload.l.map(x, payload.l)", {"l": [1] * 500}, "payload_nodes_max"),
    ],
)
def test_what_is_no_json_fails_a_mapper(text: str, payload: object, words: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        make(text, payload)
    assert words in caught.value.reason


def test_a_result_may_not_nest_deeper_than_a_payload() -> None:
    deep: object = 1
    for _ in range(limits.payload_depth_max - 1):
        deep = [deep]
    assert make("payload", deep) == deep
    with pytest.raises(ExpressionFailed, match="payload_depth_max"):
        make("[payload]", deep)


@pytest.mark.parametrize(
    ("text", "payload", "words"),
    [
        ("payload", {}, "it gave map<dyn, dyn>; a key is a string or an int"),
        ("payload", True, "it gave bool"),
        ("payload", 1.5, "it gave double"),
        ("payload", None, "it gave null"),
        ("payload.a", {}, "Key not found"),
        ("payload", "", "is empty"),
        ("payload", "x" * 513, "at most 512 (key_bytes_max)"),
        ("payload", "a\nb", "control character"),
        ("payload", " a", "white space"),
    ],
)
def test_what_is_no_key_fails(text: str, payload: object, words: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        compile_key(text).make(record(payload))
    assert words in caught.value.reason


# ---------------------------------------------------------------- bombs

numbers = list(range(9_000))
ab = "ab" * 40_000


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        # iterations: the evaluator's own budget of 10,000
        (f"payload.all(a, {hundred}.all(b, [1].all(c, true)))", list(range(101))),
        ("payload.all(a, payload.all(b, a + b >= 0))", list(range(200))),
        ("payload.all(a, a >= 0)", list(range(20_000))),
        # lists: map and filter copy what they have at each step
        ("payload.map(a, a).size() > 0", numbers),
        ("payload.filter(a, true).size() > 0", numbers),
        (f"{doubling('payload', 10, 3)} == []", numbers),
        # comparisons
        ("payload.l.all(x, payload.m == payload.m)", {"l": numbers, "m": [1] * 90_000}),
        ("payload.all(x, !(-1 - x in payload))", numbers),
        # texts
        ("payload.l.all(x, (payload.t + x).size() > 0)", {"l": ["x"] * 9_000, "t": ab}),
        (f"{doubling('payload', 6, 20)} == []", "x" * 1000),
        ("payload.replace('x', payload).size() > 0", "x" * 20_000),
        ("payload.l.join(payload.s).size() > 0", {"l": ["a"] * 50_000, "s": ab}),
        ("payload.l.all(x, payload.t.lastIndexOf('ab') < 0)", {"l": numbers, "t": "b" * 9_000}),
        ("payload.s.contains(payload.t)", {"s": "a" * 500_000, "t": "a" * 250_000 + "b"}),
        # regular expressions that a backtracking matcher never finishes, and that RE2 does slowly
        ("payload.s.matches(payload.r)", {"s": ab, "r": "(a|b)*a(a|b){400}(a|b){400}c"}),
        ("payload.matches('((a|b)*a(a|b){400}){2}c')", ab * 8),
    ],
)
def test_a_bomb_is_stopped(text: str, payload: object) -> None:
    with pytest.raises(ExpressionFailed, match=r"expression_work_max|Iteration budget exceeded"):
        test(text, payload)


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("payload.matches('(a+)+$')", "a" * 50_000 + "b", False),
        ("payload.matches('(x+x+)+y')", "x" * 100_000, False),
        ("payload.matches('^(([a-z])+.)+[A-Z]([a-z])+$')", "a" * 50_000, False),
        ("payload.matches('(a|a)*b')", "a" * 100_000, False),
        ("'%.1000f'.format([1.0]).size() == 1002", None, True),
        ("!" * 4000 + "true", None, True),
        ("true" + "||true" * 600, None, True),
        ("[1,2].exists_one(a, " * 10 + "true" + ")" * 10, None, False),
        ("payload.map(a, a).size() == 1500", list(range(1500)), True),
        ("payload.l.exists(x, x.id == payload.id)", {"id": 9, "l": [{"id": 9}] * 300}, True),
        ("payload.text.size() == 900000", {"text": "x" * 900_000}, True),
        ("payload.text.contains('y')", {"text": "x" * 900_000}, False),
        ("payload.l.size() == 90000 && payload.a == 'b'", {"a": "b", "l": [1] * 90_000}, True),
    ],
)
def test_what_only_looks_hostile_ends(text: str, payload: object, expected: bool) -> None:
    assert test(text, payload) is expected


def test_a_format_beyond_its_precision_fails() -> None:
    with pytest.raises(ExpressionFailed, match="precision"):
        test("'%.1000000000f'.format([1.0]).size() > 0")


# ---------------------------------------------------------------- the estimate


def work(text: str, facts: Facts = Facts()) -> int:  # noqa: B008
    return work_of(read_tree(expressions._environment().compile(text).serialize()), facts)


def test_the_estimate_grows_with_what_the_expression_does() -> None:
    long = facts_at_worst(10_000)
    assert work("payload.a == 1") < work("payload.a == 1", long)
    assert work("payload.a + payload.a == ''", long) > work("payload.a == ''", long) + 20_000
    assert work("payload.map(x, x).size()", long) > 5_000 * 5_000
    assert work("payload.all(x, true)", long) < 1_000_000
    assert work("payload.replace('x', payload)", long) > 10_000 * 10_000
    assert work("[1].map(payload, .payload + 'x').size()", long) > 10_000
    assert work("payload.?a.optMap(v, v.replace('x', v)).hasValue()", long) > 10_000 * 10_000


def test_the_estimate_measures_a_payload() -> None:
    payload = {"a": ["xx", {"long name": [1, 2, 3]}], "b": "yyyyy"}
    nested = 1 + 1 + (1 + 3)
    whole = 1 + 1 + (1 + 1 + nested) + 1 + 1
    assert facts_of(payload) == Facts(len("long name"), 3, (whole, 2 + nested, nested, 4))
    assert facts_of(["x" * 640]) == Facts(640, 1, (12, 11, 0, 0))
    assert facts_of(None) == Facts(0, 0, (1, 0, 0, 0))


def test_a_large_payload_of_small_parts_may_be_searched_and_joined() -> None:
    lines = [{"sku": f"s{number}", "note": "x" * 200} for number in range(900)]
    payload = {"sku": "s899", "lines": lines, "wanted": ["a", "b", "s700"]}
    assert test("payload.lines.exists(line, line.sku == payload.sku)", payload)
    assert test("payload.lines.exists(line, line.sku in payload.wanted)", payload)
    assert test("payload.wanted.exists(w, payload.lines.exists(line, line.sku == w))", payload)
    made = make("{'all': payload.lines.map(line, {'sku': line.sku, 'for': payload.sku})}", payload)
    assert made == {"all": [{"sku": line["sku"], "for": "s899"} for line in lines]}


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("abc", 3, 10),
        ("a{3}", 3, 10),
        ("(a{30}){30}", 900, 4_000),
        ("((ab{9}){9}c){9}", 9 * 9 * 9, 5_000),
        ("a{5,}b{2,7}", 12, 50),
        ("[(]{9}[)]", 9, 200),
        (r"\({500}", 500, 10_000),
        (r"\pL{100}", 10_000, 100_000),
        (r"[\p{Greek}x]{100}", 10_000, 100_000),
        (r"\Q)\E{1000}", 1000, 1 << 30),
        ("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", 32, 1000),
        ("((((", 0, 10),
        ("))))", 0, 10),
        ("a{" + "9" * 4000 + "}", 1000, 10_000),
    ],
)
def test_a_repetition_makes_a_regular_expression_large(pattern: str, least: int, most: int) -> None:
    assert least <= regex_places(pattern) <= most


# ---------------------------------------------------------------- sharing


def test_the_same_text_is_compiled_once() -> None:
    one, other = compile_filter("payload.q == 1"), compile_filter("payload.q == 1")
    assert one._compiled is other._compiled
    assert expressions._compile.cache_info().maxsize == limits.expressions_kept_max


def test_a_new_event_is_not_taken_for_the_last_one() -> None:
    asked = compile_filter("payload == 1")
    assert [asked.test(record(number)) for number in (1, 2, 1)] == [True, False, True]


def test_threads_may_share_an_expression() -> None:
    asked = compile_mapper("{'n': payload, 'l': [payload].map(x, x + 1)}")
    wrong: list[object] = []

    def work_hard(start: int) -> None:
        made = {number: asked.make(record(number)) for number in range(start, start + 300)}
        right = {number: {"n": number, "l": [number + 1]} for number in made}
        wrong.extend(made[number] for number in made if made[number] != right[number])

    threads = [threading.Thread(target=work_hard, args=(1000 * part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---------------------------------------------------------------- without the package


def test_without_the_package_a_registration_says_what_to_install() -> None:
    """In a process of its own: there the import fails, and the rest of the library works."""
    program = """
import sys
sys.modules["cel_expr_python"] = None
import perdure
from perdure.ledger.expressions import compile_filter, compile_key, compile_mapper
for compile in (compile_filter, compile_mapper, compile_key):
    try:
        compile("payload.a")
    except perdure.ExpressionsUnavailable as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.count("pip install 'perdure[cel]'") == 3


def test_unavailable_is_an_error_of_ours() -> None:
    assert issubclass(ExpressionsUnavailable, PerdureError)
