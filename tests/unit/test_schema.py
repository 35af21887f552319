"""What the typed codec accepts passes its schema; what a schema forbids is told with its place."""

import dataclasses
import enum
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perdure.model.codec import (
    BadPayload,
    Param,
    args_codec,
    codec_for,
    custom,
    register,
    register_type,
)
from perdure.model.schema import beyond, check_schema


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Level(enum.IntEnum):
    low = 1
    high = 2


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Options(TypedDict, total=False):
    fast: bool
    tries: int


class Cat(msgspec.Struct, tag=True):
    lives: Annotated[int, msgspec.Meta(ge=0, le=9)]


class Dog(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    tricks: list[str]


@dataclasses.dataclass
class Tree:
    name: str
    children: "list[Tree]"


@dataclasses.dataclass
class Everything:
    at: datetime
    day: date
    clock: time
    span: timedelta
    price: Decimal
    key: uuid.UUID
    colour: Colour
    level: Level
    blob: bytes
    numbers: set[int]
    pair: tuple[int, str]
    many: tuple[float, ...]
    by_name: dict[str, Line]
    by_key: dict[uuid.UUID, int]
    maybe: int | None
    options: Options
    named: Pair
    choice: Literal["a", 1]
    animal: Cat | Dog | None


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class DogModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Model(pydantic.BaseModel):
    name: str
    at: datetime
    day: date
    clock: time
    span: timedelta
    price: Decimal
    key: uuid.UUID
    level: Level
    total: Annotated[float, pydantic.Field(ge=0, lt=100)]
    code: Annotated[str, pydantic.Field(pattern=r"^[a-z]+$", min_length=1, max_length=8)]
    pair: tuple[int, str]
    by_name: dict[str, list[int]]
    maybe: int | None = None
    animal: Annotated[CatModel | DogModel, pydantic.Field(discriminator="kind")]


wide = st.integers(-(2**63), 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
trees = st.recursive(
    st.builds(Tree, st.text(), st.just([])),
    lambda inner: st.builds(Tree, st.text(), st.lists(inner, max_size=3)),
    max_leaves=8,
)
everything = st.builds(
    Everything,
    at=st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    price=decimals,
    numbers=st.sets(wide),
    pair=st.tuples(wide, st.text()),
    many=st.lists(finite).map(tuple),
    by_name=st.dictionaries(st.text(), st.builds(Line, count=wide)),
    by_key=st.dictionaries(st.uuids(), wide),
    maybe=st.none() | wide,
    options=st.sampled_from([{}, {"tries": 1}, {"fast": True, "tries": 2}]),
    named=st.builds(Pair, wide),
    choice=st.sampled_from(["a", 1]),
    animal=st.none() | st.builds(Cat, st.integers(0, 9)) | st.builds(Dog),
    clock=st.times(),
)
models = st.builds(
    Model,
    name=st.text(),
    at=st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    clock=st.times(),
    span=st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    price=st.decimals(-(10**9), 10**9, places=4),
    total=st.floats(0, 99),
    code=st.text("abcxyz", min_size=1, max_size=8),
    pair=st.tuples(wide, st.text()),
    by_name=st.dictionaries(st.text(), st.lists(wide)),
    maybe=st.none() | wide,
    animal=st.builds(CatModel, lives=wide) | st.builds(DogModel),
)


@settings(max_examples=150)
@given(everything | trees | models)
def test_what_the_codec_writes_fits_its_schema(value: Any) -> None:
    codec = codec_for(type(value))
    assert check_schema(codec.schema(), codec.encode(value)) == []


def changed(value: Any, draw: Any) -> Any:
    """The JSON value with one part of it replaced by something else."""
    other = draw(st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], {}, [None], {"sku": 1}]))
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 3)) == 0:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw(st.booleans()):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], changed(value[index], draw), *value[index + 1 :]]
    return other


@settings(max_examples=200)
@given(everything | trees, st.data())
def test_schema_and_msgspec_agree_about_damaged_text(value: Any, data: st.DataObject) -> None:
    """Formats are checked loosely, so the schema may accept more; never less."""
    codec = codec_for(type(value))
    text = json.dumps(changed(json.loads(codec.encode(value)), data.draw))
    problems = check_schema(codec.schema(), text)
    try:
        codec.decode(text)
    except BadPayload as refused:
        loose = ("Invalid RFC3339", "Invalid ISO8601", "Invalid base64", "Invalid UUID", "`key` in")
        assert problems or any(word in str(refused) for word in loose), (text, refused.errors)
    else:
        assert problems == []


def test_arguments_are_checked_by_their_schema() -> None:
    codec = args_codec([Param("order", Line), Param("tries", int, 3)])
    schema = codec.schema()
    for args in ((Line("a"),), (Line("a"), 5)):
        assert check_schema(schema, codec.encode(args)) == []
    assert check_schema(schema, '[{"sku":"a"}]') == []
    assert check_schema(schema, "[]") == ["at $: 0 items, at least 1 wanted"]
    assert check_schema(schema, '[{"sku":"a"},1,2]') == ["at $: 3 items, at most 2 allowed"]
    assert check_schema(schema, '[{"sku":1}]') == ["at $[0].sku: expected string, got integer 1"]


@pytest.mark.parametrize(
    ("hint", "text", "problem"),
    [
        (int, '"x"', "at $: expected integer, got string 'x'"),
        (int, "true", "at $: expected integer, got boolean True"),
        (int, "1.0", "at $: expected integer, got number 1.0"),
        (bool, "1", "at $: expected boolean, got integer 1"),
        (None, "1", "at $: expected null, got integer 1"),
        (Line, "{}", "at $: 'sku' is missing"),
        (Line, '{"sku":"a","count":"x"}', "at $.count: expected integer, got string 'x'"),
        (list[Line], '[{"sku":"a"},{"sku":5}]', "at $[1].sku: expected string, got integer 5"),
        (dict[str, int], '{"odd key":"x"}', "at $['odd key']: expected integer, got string 'x'"),
        (tuple[int, str], '[1,"a",2]', "at $: 3 items, at most 2 allowed"),
        (tuple[int, str], "[1,2]", "at $[1]: expected string, got integer 2"),
        (int | None, '"x"', "at $: expected integer or null, got string 'x'"),
        (Line | None, '{"sku":5}', "at $.sku: expected string, got integer 5"),
        (Colour, '"green"', "at $: expected one of ['blue', 'red'], got 'green'"),
        (Level, "true", "at $: expected one of [1, 2], got True"),
        (Cat | Dog, '{"type":"Cat","lives":10}', "at $.lives: 10 is not at most 9"),
        (Cat | Dog, '{"type":"Dog","tricks":[],"more":1}', "at $.more: unexpected"),
        (
            Tree,
            '{"name":"a","children":[{"name":1,"children":[]}]}',
            "at $.children[0].name: expected string, got integer 1",
        ),
        (date, '"tomorrow"', "at $: 'tomorrow' is not a date"),
        (timedelta, '"1h"', "at $: '1h' is not a duration"),
        (uuid.UUID, '"x"', "at $: 'x' is not a uuid"),
        (Decimal, '"1,5"', "at $: '1,5' is not a decimal"),
        (bytes, '"***"', "at $: '***' is not base64"),
        (Annotated[str, msgspec.Meta(pattern="^a+$")], '"b"', "at $: 'b' does not match '^a+$'"),
        (
            Annotated[str, msgspec.Meta(max_length=2)],
            '"abc"',
            "at $: 3 characters, at most 2 allowed",
        ),
        (
            Annotated[list[int], msgspec.Meta(min_length=2)],
            "[1]",
            "at $: 1 items, at least 2 wanted",
        ),
        (
            Annotated[dict[str, int], msgspec.Meta(max_length=0)],
            '{"a":1}',
            "at $: 1 keys, at most 0 allowed",
        ),
        (Annotated[float, msgspec.Meta(gt=0)], "0", "at $: 0 is not more than 0"),
        (Annotated[float, msgspec.Meta(lt=1.5)], "1.5", "at $: 1.5 is not less than 1.5"),
        (Annotated[int, msgspec.Meta(multiple_of=3)], "4", "at $: 4 is not a multiple of 3"),
        (DogModel, '{"more":1}', "at $.more: unexpected"),
        (CatModel, '{"kind":"dog","lives":1}', "at $.kind: expected 'cat', got 'dog'"),
        (dict[str, Any], "[]", "at $: expected object, got array []"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(hint: Any, text: str, problem: str) -> None:
    assert problem in check_schema(codec_for(hint).schema(), text)


def test_text_that_is_no_json_or_over_a_limit() -> None:
    for text in ("{", "", "NaN", b"\xff", '"\ud800"', "[" * 100_000, "9" * 30):
        (problem,) = check_schema({}, text)
        assert problem.startswith("at $: ")


def test_no_schema_accepts_anything_and_false_nothing() -> None:
    assert check_schema({}, '{"a":[1,null]}') == []
    assert check_schema({"properties": {"a": False}}, '{"a":1}') == ["at $.a: unexpected"]
    assert check_schema({"allOf": [False]}, "1") == ["at $: nothing is allowed here"]


def test_keywords_of_the_subset() -> None:
    assert check_schema({"type": ["integer", "null"]}, "null") == []
    assert check_schema({"type": ["integer", "null"]}, '"a"') != []
    assert check_schema({"const": {"a": [1]}}, '{"a":[1]}') == []
    assert check_schema({"const": 1}, "true") != []
    assert check_schema({"allOf": [{"minimum": 1}, {"maximum": 3}]}, "5") != []
    assert check_schema({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "5") == []
    assert check_schema({"multipleOf": 0.1}, "0.3") == []
    assert check_schema({"multipleOf": 0.1}, "0.35") != []
    assert check_schema({"format": "date-time"}, '"2020-01-01T00:00:00Z"') == []
    assert check_schema({"format": "date-time"}, '"soon"') != []
    assert check_schema({"format": "time"}, '"5"') != []
    assert check_schema({"unknown": 1, "format": "unheard-of"}, '"x"') == []


def test_odd_schemas_do_no_harm() -> None:
    loop: dict[str, Any] = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}
    assert "too deep" in check_schema(loop, "1")[0]
    forks: dict[str, Any] = {"type": "null"}
    for _ in range(60):
        forks = {"anyOf": [forks, forks]}
    assert "too ambiguous" in check_schema(forks, "1")[0]
    for odd in (
        {"$ref": "https://example.com/x"},
        {"$ref": "#/nowhere/at/all"},
        {"$ref": 5},
        {"properties": 3, "required": 4, "items": "x", "enum": None} | {"enum": [1]},
        {"minItems": "x", "minimum": "y"},
        {"pattern": "(((("},
        {"x-perdure": {"reads": "date-time", "tz": "odd"}},
        {"x-perdure": {"reads": ["date"], "as": 5}},
        {"x-perdure": {"reads": "base64", "min": "x", "max": []}},
        {"x-perdure": {"reads": "decimal text", "digits": "x"}},
    ):
        assert isinstance(check_schema(odd, '"a"'), list)
        assert isinstance(check_schema(odd, '{"a":1}'), list)
        assert isinstance(check_schema(odd, "[1]"), list)


def test_a_hostile_pattern_or_text_costs_little() -> None:
    """Both would take ages if tried; the pytest timeout is the judge."""
    assert check_schema({"pattern": "^(a+)+$"}, json.dumps("a" * 200 + "!")) != []
    assert check_schema({"pattern": "^(a|a)*$"}, json.dumps("a" * 200 + "!")) != []
    assert check_schema({"pattern": "^a*a*a*$"}, json.dumps("a" * 300_000 + "!")) == []
    many = {"items": {"pattern": "^a*a*a*$"}}
    assert check_schema(many, json.dumps(["a" * 250 + "!"] * 3000)) != []
    assert check_schema({"pattern": r"^(a+)+\1$"}, json.dumps("a" * 200 + "!")) == []
    assert check_schema({"format": "decimal"}, json.dumps("1" * 1_000_000 + "x")) != []
    assert check_schema({"contentEncoding": "base64"}, json.dumps("A" * 999_999 + "!")) != []


class Node(msgspec.Struct):
    following: "Node | None" = None


class NodeModel(pydantic.BaseModel):
    following: "NodeModel | None" = None


@pytest.mark.parametrize("hint", [Node, NodeModel])
def test_the_deepest_payload_can_be_checked(hint: Any) -> None:
    text = '{"following":' * 63 + "{}" + "}" * 63
    schema = codec_for(hint).schema()
    assert check_schema(schema, text) == []
    (problem,) = check_schema(schema, text.replace("{}", "5"))
    assert "got integer 5" in problem


def test_the_largest_payload_can_be_checked() -> None:
    codec = codec_for(list[int | None])
    assert check_schema(codec.schema(), json.dumps([1, None] * 49_000)) == []


def test_problems_are_limited_in_number() -> None:
    assert len(check_schema({"items": {"type": "string"}}, json.dumps([1] * 1000))) == 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values, st.sampled_from([Everything, Model, Tree, Cat | Dog, dict[str, int]]))
def test_any_json_gives_a_list_of_problems(value: Any, hint: Any) -> None:
    problems = check_schema(codec_for(hint).schema(), json.dumps(value))
    assert all(problem.startswith("at $") for problem in problems)


# --- what we cannot decide -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "fits", "other"),
    [
        ({"uniqueItems": True}, "[1,2,true]", "[1,1.0]"),
        ({"uniqueItems": True}, '[{"a":1,"b":2}]', '[{"a":1,"b":2},{"b":2,"a":1}]'),
        ({"propertyNames": {"maxLength": 2}}, '{"ab":1}', '{"abc":1}'),
        ({"propertyNames": False}, "{}", '{"a":1}'),
        ({"patternProperties": {"^x-": {"type": "integer"}}}, '{"x-a":1,"b":"c"}', '{"x-a":"1"}'),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            '{"x-a":1}',
            '{"y-a":1}',
        ),
        ({"dependentRequired": {"a": ["b"]}}, '{"b":1}', '{"a":1}'),
        ({"contains": {"type": "integer"}}, '["a",1]', '["a"]'),
        ({"contains": {"type": "integer"}, "minContains": 2}, "[1,2]", '["a",1]'),
        ({"prefixItems": [{"type": "integer"}], "items": False}, "[1]", "[1,2]"),
        ({"format": "ipv4"}, '"10.0.0.1"', '"10.0.0.256"'),
        ({"format": "ipv6"}, '"::1"', '"10.0.0.1"'),
        ({"format": "email"}, '"a@b"', '"a"'),
    ],
)
def test_keywords_beside_those_that_the_engines_write_most(
    schema: dict[str, Any], fits: str, other: str
) -> None:
    assert not beyond(schema)
    for text, is_right in ((fits, True), (other, False)):
        assert (check_schema(schema, text) == []) is is_right
        if "format" not in schema:
            assert Draft202012Validator(schema).is_valid(json.loads(text)) is is_right


def test_of_a_tagged_union_one_form_fits() -> None:
    forms = [{"properties": {"kind": {"const": kind}}} for kind in ("a", "b")]
    tagged = {"oneOf": forms, "discriminator": {"propertyName": "kind"}}
    assert not beyond(tagged)
    assert check_schema(tagged, '{"kind":"a"}') == []
    assert "fits several" in check_schema(tagged, "{}")[0]
    assert check_schema(tagged, '{"kind":"c"}') != []
    assert check_schema({"oneOf": forms}, "{}") == [], "a codec may choose by what no schema tells"


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {"const": 1}}, "`not`"),
        ({"properties": {"a": {"items": {"if": {}, "then": False}}}}, "`if`"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"unevaluatedProperties": False}}}, "`unevaluated"),
        ({"anyOf": [{"dependentSchemas": {}}]}, "`dependentSchemas`"),
        ({"contains": {}, "maxContains": 3}, "`maxContains`"),
        ({"prefixItems": [{"oneOf": [{}, {}]}]}, "`oneOf` without a discriminator"),
    ],
)
def test_what_only_others_can_check_is_known(schema: dict[str, Any], keyword: str) -> None:
    found = beyond(schema)
    assert found.never == ()
    assert len(found.keywords) == 1 and found.keywords[0].startswith(keyword)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"pattern": r"(a+)\1*b+"}, "pattern"),
        ({"patternProperties": {"((": {}}}, "pattern"),
        ({"patternProperties": {"a": {}}, "not": {}}, "`patternProperties` beside"),
        ({"$ref": "https://example.com/x"}, "leads nowhere"),
        ({"$ref": "#/$defs/A"}, "leads nowhere"),
        ({"$ref": "#anchor"}, "leads nowhere"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
        ({"items": {"$id": "https://example.com/x"}}, "of its own"),
        ({"items": [{}]}, "as `items`"),
        ({"minItems": "x"}, "as `minItems`"),
        ({"type": "anything"}, "as `type`"),
        ({"allOf": [5]}, "where a schema should be"),
    ],
)
def test_what_nobody_can_check_is_known(schema: dict[str, Any], words: str) -> None:
    assert words in " ".join(beyond(schema).never)


def test_what_is_no_assertion_asks_for_nothing() -> None:
    loop = {"$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}, "$ref": "#/$defs/A"}
    notes = {"title": "T", "x-ui": {"not": 1}, "examples": [1], "format": "unheard-of", "then": {}}
    said = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://e.com/x"}
    for schema in (loop, notes, said, {}, {"properties": {"not": {"type": "integer"}}}):
        assert not beyond(schema)


# --- ours, jsonschema's and the codec's ----------------------------------------------------------


class Sized(msgspec.Struct):
    code: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+(-[a-z]+)*$", max_length=9)]
    count: Annotated[int, msgspec.Meta(ge=0, lt=10)] = 0
    parts: Annotated[list[int], msgspec.Meta(min_length=1)] | None = None


class SetModel(pydantic.BaseModel):
    tags: set[str] = set()
    keyed: dict[Annotated[str, pydantic.Field(pattern="^[a-z]+$")], int] = {}
    either: Annotated[CatModel | DogModel, pydantic.Field(discriminator="kind")] | None = None
    price: Annotated[Decimal, pydantic.Field(ge=0)] = Decimal(0)
    address: IPv4Address | None = None
    url: pydantic.AnyUrl | None = None


HINTS: list[Any] = [
    *(Everything, Model, Tree, Cat | Dog, Line, Pair, Options, Sized, SetModel, DogModel),
    *(set[int], dict[str, int | None], tuple[int, str], Literal["a", 1], bytes, Colour, date),
    Annotated[str, msgspec.Meta(pattern="^(a|b)+$", max_length=4)],
]
scraps = st.sampled_from(["a", "ab", "b-a", "", "cat", "dog", "Cat", "10.0.0.1", "1.5", "red"])
names = st.sampled_from(
    "sku count kind type lives tricks name children code parts tags keyed either price address url fast a B".split()
)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.sampled_from([1.5, -0.5]) | scraps,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
)


@settings(max_examples=600)
@given(st.sampled_from(HINTS), plain_values, st.data())
def test_ours_stands_between_the_codec_and_the_standard(
    hint: Any, value: Any, data: st.DataObject
) -> None:
    """What ours refuses, the codec or the standard refuses; what it takes, it is not alone in taking.

    Whole numbers with a fraction of nothing are left out: 1.0 is an integer for the standard and for pydantic, not for
    msgspec, nor for us.
    """
    codec = codec_for(hint)
    schema = codec.schema()
    assert not beyond(schema)
    if hint in (Everything, Model) or data.draw(st.booleans()):
        sample = {Everything: everything, Model: models, Tree: trees}.get(hint)
        if sample is not None:
            value = changed(json.loads(codec.encode(data.draw(sample))), data.draw)
    text = json.dumps(value)
    ours = check_schema(schema, text, strict=True) == []
    standard = Draft202012Validator(schema).is_valid(value)
    try:
        codec.decode(text)
        typed = True
    except BadPayload:
        typed = False
    assert ours or not (typed and standard), "ours refused what both take"
    assert not ours or typed or standard, "ours alone took it"


def test_many_choices_for_many_values_are_a_look_each() -> None:
    """The pytest timeout is the judge."""
    schema = {"items": {"enum": [f"p{number}" for number in range(5_000)]}}
    places = ["p4999"] * 90_000
    assert check_schema(schema, json.dumps(places)) == []
    assert "at $[90000]" in check_schema(schema, json.dumps([*places, "nowhere"]))[0]


# --- without a codec: as the codec would ---------------------------------------------------------


class Zoned(msgspec.Struct):
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None = None
    opens: Annotated[time, msgspec.Meta(tz=True)] | None = None


class Row(msgspec.Struct, array_like=True, tag="row"):
    day: date
    keys: dict[int, uuid.UUID] = {}


class Other(msgspec.Struct, array_like=True, tag="other"):
    span: timedelta


@dataclasses.dataclass
class Loop:
    days: dict[date, "Loop"]
    blob: Annotated[bytes, msgspec.Meta(min_length=2, max_length=4)] | None = None
    either: "Zoned | list[Decimal] | date | int | None" = None


# Each with texts, as JSON has them, that are nearly right.
NEARLY: dict[str, list[Any]] = {
    "date": ["2024-02-29", "2023-02-29", "2024-99-99", "0000-01-01", "2024-1-1", "20240101"],
    "datetime": [
        *("2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 10:00:00.123456789+01:00"),
        *("2024-01-01", "2024-01-01T25:00:00Z", "2024-01-01T10:00Z", "2024-01-01_00:00:00"),
        *(
            "2024-02-30T00:00:00",
            "2024-01-01T00:00:00+0100",
            "2024-01-01T00:00:60Z",
            "0001-01-01t00:00:00+23:59",
        ),
    ],
    "time": ["10:00:00", "10:00", "99:99", "10:00:00Z", "10:00:00.5+01:00", "24:00:00", "10:00:60"],
    "span": [
        "PT",
        "P",
        "P1D",
        "PT1.5S",
        "-PT1H",
        "P1W",
        "P1DT",
        "P99999999999D",
        "pt1s",
        "1:00:00",
        "PT1S1H",
    ],
    "uuid": [
        *("12345678-1234-5678-1234-567812345678", "12345678123456781234567812345678"),
        *("{12345678-1234-5678-1234-567812345678", "{12345678-1234-5678-1234-567812345678}"),
        *("urn:uuid:12345678-1234-5678-1234-567812345678", "12345678-12345678-1234-567812345678"),
        "12345678-1234-4678-8234-567812345678",
    ],
    "decimal": [
        "_",
        "1_0",
        "1__0",
        "1e",
        "1e5",
        " 1",
        "nan",
        "inf",
        ".",
        "1.",
        "\u0661",
        "",
        "-0",
        1,
        1.5,
        True,
        "12345.678",
    ],
    "base64": ["", "YQ==", "YWI=", "YWJj", "YWJjZGVm", "YQ", "Y===", "====", "YWI", "-_==", "Y Q="],
    "key": [
        "1",
        "01",
        "-1",
        "+1",
        "1.0",
        "1e5",
        "1.",
        "abc",
        "",
        "1_0",
        "a",
        "b",
        "true",
        "99999999999999999999",
        "-0",
    ],
    "plain": [None, True, 0, 1, 2.5, "x", "a", [], [1, 1], [1, 2], {}, 1.0],
}
leaves = st.sampled_from([one for found in NEARLY.values() for one in found])
texts = leaves.filter(lambda one: isinstance(one, str))
fields = st.sampled_from("at local opens days blob either type day".split())
near = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | fields, inner, max_size=3)
        | st.fixed_dictionaries({"at": inner}, optional={"local": inner, "opens": inner})
        | st.fixed_dictionaries(
            {"days": st.dictionaries(texts, inner, max_size=2)},
            optional={"blob": inner, "either": inner},
        )
        | st.tuples(st.sampled_from(["row", "other"]), inner, inner).map(list)
        | st.tuples(st.sampled_from(["row", "other"]), inner).map(list)
    ),
    max_leaves=6,
)
Tz = Annotated[datetime, msgspec.Meta(tz=True)]
EXACT: list[Any] = [
    *(date, datetime, Tz, Annotated[datetime, msgspec.Meta(tz=False)], time, timedelta, uuid.UUID),
    *(Annotated[time, msgspec.Meta(tz=True)], Decimal, bytes, bytearray, Colour, Level, float, int),
    Annotated[bytes, msgspec.Meta(min_length=2, max_length=3)],
    Annotated[float, msgspec.Meta(multiple_of=0.1)],
    *(set[int], frozenset[str], set[date], Annotated[set[int], msgspec.Meta(min_length=2)]),
    *(dict[int, int], dict[date, int], dict[uuid.UUID, Any], dict[Decimal, Any], dict[bytes, Any]),
    *(dict[datetime, Any], dict[Tz, Any], dict[time, Any], dict[timedelta, Any], dict[Level, Any]),
    *(
        dict[Colour, Any],
        dict[Literal[1, 2], Any],
        dict[Literal["a", "b"], Any],
        dict[int | str, int],
    ),
    *(dict[int | date, Any], dict[Annotated[int, msgspec.Meta(ge=0)], Any]),
    *(dict[Annotated[str, msgspec.Meta(min_length=2)], Any], dict[str, dict[int, date]]),
    *(Zoned, Row, Row | Other, Loop, list[Zoned | int], date | int | None, tuple[date, Decimal]),
    *(list[Tz | int | None], Zoned | date | None, Row | Other | date, dict[str, Row | None]),
]


def takes(codec: Any, text: str) -> bool:
    try:
        codec.decode(text)
    except BadPayload:
        return False
    return True


@settings(max_examples=1500)
@given(st.sampled_from(EXACT), near)
def test_a_schema_takes_what_its_codec_takes_and_nothing_else(hint: Any, value: Any) -> None:
    codec, text = codec_for(hint), json.dumps(value)
    assert not beyond(codec.schema())
    for strict in (True, False):
        problems = check_schema(codec.schema(), text, strict=strict)
        assert (problems == []) is takes(codec, text), (text, problems)


@pytest.mark.parametrize("hint", EXACT, ids=str)
def test_of_every_nearly_right_text_too(hint: Any) -> None:
    codec = codec_for(hint)
    for one in [one for found in NEARLY.values() for one in found]:
        for value in (
            one,
            {one: 1} if isinstance(one, str) else one,
            [one],
            {"at": one},
            [one, one],
        ):
            text = json.dumps(value)
            problems = check_schema(codec.schema(), text, strict=True)
            assert (problems == []) is takes(codec, text), (text, problems)


class Temporal(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    day: date | None = None
    moment: datetime | None = None
    aware: pydantic.AwareDatetime | None = None
    naive: pydantic.NaiveDatetime | None = None
    clock: time | None = None
    span: timedelta | None = None
    name: uuid.UUID | None = None
    uuid4: pydantic.UUID4 | None = None
    price: Decimal | None = None
    money: Annotated[Decimal, pydantic.Field(max_digits=6, decimal_places=2, ge=0)] | None = None
    members: Annotated[set[int], pydantic.Field(min_length=2)] | None = None
    by_number: dict[int, Any] | None = None
    by_level: dict[Level, Any] | None = None
    by_colour: dict[Colour, Any] | None = None
    by_flag: dict[bool, Any] | None = None
    by_date: dict[date, Any] | None = None
    by_price: dict[Decimal, Any] | None = None
    by_choice: dict[Literal[1, 2], Any] | None = None
    json_text: pydantic.Json[list[int]] | None = None
    number: int | None = None
    real: float | None = None


class Bytes(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    blob: bytes


def test_nothing_passes_a_schema_of_pydantics_that_its_codec_refuses() -> None:
    """It takes more than its schema says, numbers as texts for one; a sender without it need not."""
    codec = codec_for(Temporal)
    moreover = ["[1]", "{", "[]", "1.10", "1.234", "-1", "99999.99", "12345.6"]
    values = [one for found in NEARLY.values() for one in found] + moreover
    for name in Temporal.model_fields:
        fitting = 0
        for one in [*values, *({one: 1} for one in values if isinstance(one, str))]:
            text = json.dumps({name: one})
            fits = check_schema(codec.schema(), text, strict=True) == []
            assert not fits or takes(codec, text), text
            fitting += fits
        assert fitting > 1 or name == "by_choice", f"{name} takes nothing but null"
    for one in NEARLY["base64"]:
        text = json.dumps({"blob": one})
        fits = check_schema(codec_for(Bytes).schema(), text, strict=True) == []
        assert not fits or takes(codec_for(Bytes), text), text


def test_a_loose_check_leaves_formats_without_a_mark_to_the_codec() -> None:
    for format, value in (("date", "2024-99-99"), ("duration", "PT"), ("uuid", "{" + "1" * 32)):
        assert check_schema({"format": format}, json.dumps(value)) == []
        assert check_schema({"format": format}, json.dumps(value), strict=True) != []
    assert "which only its code can read" in str(beyond({"x-perdure": {"reads": "by-tomorrow"}}))
    assert not beyond({"x-perdure": 5})


class Celsius:
    def __init__(self, degrees: float) -> None:
        if degrees < -273:
            raise ValueError("colder than cold")
        self.degrees = degrees


def test_a_registered_type_is_read_where_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "custom_by_name", {})
    monkeypatch.setattr(register, "custom_by_name", custom.custom_by_name)
    monkeypatch.setattr(register, "custom_by_class", by_class := dict(custom.custom_by_class))
    monkeypatch.setattr(custom, "custom_by_class", by_class)
    register_type("test.celsius", Celsius, lambda one: one.degrees, lambda plain: Celsius(plain))
    for hint, text in ((Celsius, "{}"), (list[Celsius | None], "[null,{}]")):
        schema = codec_for(hint).schema()
        assert not beyond(schema)
        assert check_schema(schema, text.replace("{}", "20.5")) == []
        assert check_schema(schema, text.replace("{}", "-300")) != []
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(custom, "custom_by_name", {})
            assert "'test.celsius', which only its code can read" in str(beyond(schema).never)
