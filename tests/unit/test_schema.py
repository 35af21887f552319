"""What the typed codec accepts passes its schema; what a schema forbids is told with its place."""

import dataclasses
import enum
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.codec import BadPayload, Param, args_codec, codec_for
from perdure.model.schema import check_schema


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
