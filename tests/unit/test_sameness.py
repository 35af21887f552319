"""A payload in other words is the same payload, and by its schema it is what the codec would have stored."""

import dataclasses
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.codec import Param, args_codec, codec_for
from perdure.model.keys import digest
from perdure.model.sameness import completed, is_same, plain, used_for, was_used_for


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1
    weight: float = 0.5
    notes: list[str] = dataclasses.field(default_factory=list)


class Order(msgspec.Struct):
    lines: list[Line]
    due: datetime | None = None
    tags: set[int] = set()
    rates: dict[date, float] = {}
    price: Decimal | None = None


class Model(pydantic.BaseModel):
    name: str
    weight: float = 1.0
    line: Line | None = None


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Order, '{"lines":[{"weight":2,"sku":"a"}]}'),
        (Order, '{"tags":[3,10,3],"lines":[],"due":"2024-01-01 10:00:00z"}'),
        (Order, '{"lines":[],"rates":{"2024-02-01":1,"2024-01-01":2},"price":1.5}'),
        (list[float], "[1,2.5]"),
        (Annotated[float, msgspec.Meta(ge=0)], "3"),
        (Model, '{"weight":2,"name":"x","line":{"sku":"a"}}'),
    ],
)
def test_a_schema_completes_as_the_codec_does(hint: Any, text: str) -> None:
    codec = codec_for(hint)
    stored = codec.encode(codec.decode(text))
    by_name = completed(codec.schema(), text)
    assert json.loads(by_name) == json.loads(stored)
    assert plain(by_name) == plain(stored)
    assert is_same(text, stored, codec.schema()) and is_same(stored, text, codec.schema())


def test_parameters_that_were_left_out_are_filled_in() -> None:
    codec = args_codec([Param("line", Line), Param("fast", bool, False), Param("day", date, None)])
    schema = codec.schema()
    assert completed(schema, '[{"sku":"a"}]') == (
        '[{"count":1,"notes":[],"sku":"a","weight":0.5},false]'
        if next(iter(schema["$defs"]["Line"]["properties"])) == "count"
        else '[{"sku":"a","count":1,"weight":0.5,"notes":[]},false]'
    )


def test_values_count_and_not_their_spelling() -> None:
    assert is_same('{"a":1,"b":[1.0]}', '{"b":[1],"a":1.0}')
    for one, other in (("1", "true"), ("1", '"1"'), ("[1,2]", "[2,1]"), ("null", "{}"), ("", "1")):
        assert not is_same(one, other)
    schema = codec_for(Line).schema()
    assert is_same('{"sku":"a","more":1}', '{"sku":"a"}', schema), "a codec does not see it"
    assert not is_same('{"sku":"a","count":2}', '{"sku":"a"}', schema)


def test_a_key_knows_what_it_was_used_for() -> None:
    known = used_for('{"b":1,"a":2.0}', "about")
    assert was_used_for(known, '{"a":2,"b":1}', "about")
    assert not was_used_for(known, '{"a":2,"b":1}', "another")
    assert was_used_for(digest('{"b":1}', ""), '{"b":1}', ""), "as it was stored once"


def test_what_cannot_be_completed_is_left_as_it_is() -> None:
    forks: dict[str, Any] = {"type": "null"}
    for _ in range(60):
        forks = {"anyOf": [forks, forks]}
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert completed(forks, "[1]") == "[1]"
    assert isinstance(plain("{", forks), str)
    for schema in (loop, {"properties": 5, "prefixItems": "x"}, {"properties": {"a": True}}):
        for text in ("1", '{"a":1}', "[1]", "{", ""):
            assert completed(schema, text) == text
            assert isinstance(plain(text, schema), str)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(values, values)
def test_the_same_is_the_same_and_nothing_else(one: Any, other: Any) -> None:
    text = json.dumps(one, allow_nan=False) if _is_finite(one) else "null"
    assert is_same(text, text) and is_same(text, plain(text))
    if _is_finite(one) and _is_finite(other) and one != other:
        assert not is_same(text, json.dumps(other))


def _is_finite(value: Any) -> bool:
    return "Infinity" not in json.dumps(value)
