"""What goes in comes out, in the same type, or is refused with the place and the reason."""

import collections
import dataclasses
import enum
import ipaddress
import math
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NoReturn, TypedDict, TypeVar

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.codec import (
    ArgsCodec,
    BadHint,
    BadPayload,
    MsgspecCodec,
    Param,
    PydanticCodec,
    Unencodable,
    UntypedCodec,
    args_codec,
    codec_for,
    hints_of,
    place_text,
    register_type,
)
from perdure.model.codec.choose import kept_codec
from perdure.model.codec.custom import custom_by_class, custom_by_name
from perdure.model.limits import BadValue, payload_bytes_max


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Level(enum.IntEnum):
    low = 1
    high = 2


class Word(enum.StrEnum):
    yes = "yes"


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class LongLine(Line):
    note: str = ""


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Options(TypedDict, total=False):
    fast: bool
    tries: int


class Shape(msgspec.Struct, frozen=True):
    width: float
    name: str | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


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
    words: frozenset[str]
    pair: tuple[int, str]
    many: tuple[float, ...]
    by_name: dict[str, Line]
    by_key: dict[uuid.UUID, int]
    maybe: int | None
    shape: Shape
    options: Options
    named: Pair
    choice: Literal["a", "b"]
    animal: Cat | Dog


@dataclasses.dataclass
class Loose:
    anything: Any
    number: float | None = None


class Model(pydantic.BaseModel):
    name: str
    count: int = 1
    at: datetime | None = None
    blob: bytes = b""
    total: float | None = None
    anything: Any = None


class Base64Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    blob: bytes


class HalfBase64Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64")
    blob: bytes


@dataclasses.dataclass
class HoldsModel:
    model: Model
    blob: bytes = b""


@pydantic.dataclasses.dataclass
class PydanticPoint:
    x: int


T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


aware = datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=timezone(timedelta(hours=2)))


def everything() -> Everything:
    return Everything(
        at=aware,
        day=date(2026, 3, 4),
        clock=time(5, 6, 7, 8),
        span=timedelta(days=-1, microseconds=5),
        price=Decimal("1.10"),
        key=uuid.UUID(int=7),
        colour=Colour.red,
        level=Level.high,
        blob=b"\xff\x00\xfe",
        numbers={3, 1, 2},
        words=frozenset({"b", "a"}),
        pair=(1, "x"),
        many=(1.5, 2.5),
        by_name={"b": Line("s"), "a": Line("t", 2)},
        by_key={uuid.UUID(int=9): 1, uuid.UUID(int=3): 2},
        maybe=None,
        shape=Shape(1.5),
        options={"fast": True},
        named=Pair(1),
        choice="b",
        animal=Dog(["sit"]),
    )


# ---------------------------------------------------------------- the same value comes back


typed_samples: list[tuple[Any, Any]] = [
    (int, 5),
    (int, -(2**63)),
    (int, 2**63 - 1),
    (str, 'a"\\\n\x00é😀'),
    (str, ""),
    (bool, True),
    (float, -0.5),
    (float, 1e300),
    (None, None),
    (type(None), None),
    (NoReturn, None),
    (bytes, b"\xff"),
    (datetime, aware),
    (datetime, datetime(2020, 1, 1)),
    (timedelta, timedelta.max),
    (Decimal, Decimal("0.10")),
    (uuid.UUID, uuid.UUID(int=1)),
    (Colour, Colour.blue),
    (Literal["a", 1], 1),
    (list[int], [1, 2]),
    (set[Colour], {Colour.red, Colour.blue}),
    (set[int | None], {1, None, 2}),
    (dict[int, str], {2: "b", 1: "a"}),
    (dict[Colour, int], {Colour.red: 1}),
    (dict[date, int], {date(2020, 1, 1): 1}),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (int | str | None, "x"),
    (Line, Line("a")),
    (list[Line], [Line("a"), Line("b", 3)]),
    (Pair, Pair(1)),
    (Options, {"tries": 3}),
    (Shape, Shape(2.0, "x")),
    (Cat | Dog, Cat(9)),
    (Box[float], Box(1.5)),
    (Loose, Loose({"a": [1, None]})),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (Everything, everything()),
    (Model, Model(name="a", at=aware, total=1.5)),
    (list[Model], [Model(name="a")]),
    (dict[str, Model | None], {"x": Model(name="é"), "y": None}),
    (Model | Line, Line("a")),
    (Model | int, 3),
    (HoldsModel, HoldsModel(Model(name="a"), b"abc")),
    (PydanticPoint, PydanticPoint(3)),
    (Base64Model, Base64Model(blob=b"\xff\x00")),
]


def _sample_id(part: Any) -> str:
    # The text of a set differs from process to process; test ids must not.
    return "a set" if isinstance(part, set | frozenset) else str(part)[:40]


@pytest.mark.parametrize(("hint", "value"), typed_samples, ids=_sample_id)
def test_a_typed_value_comes_back_equal_and_of_its_type(hint: Any, value: Any) -> None:
    codec = codec_for(hint)
    text, back = codec.roundtrip(value)
    assert back == value
    assert type(back) is type(value)
    assert codec.encode(value) == text
    assert codec.decode(text) == value
    assert codec.decode(text.encode()) == value
    assert codec.encode_lenient(value) == text
    assert codec.encode(back) == text
    assert codec.id == "json/1"
    assert isinstance(codec.schema(), dict)


def test_the_engine_follows_the_hint() -> None:
    for hint in (Model, list[Model], Line | Model, HoldsModel, PydanticPoint, Box[Model]):
        assert isinstance(codec_for(hint), PydanticCodec), hint
    for hint in (Annotated[int, pydantic.Field(gt=0)], pydantic.SecretStr):
        assert isinstance(codec_for(hint), PydanticCodec), hint
    for hint in (Line, int, Everything, Cat | Dog):
        assert isinstance(codec_for(hint), MsgspecCodec), hint
    for hint in (Any, object, dict, dict[str, Any], list, list[Any]):
        assert isinstance(codec_for(hint), UntypedCodec), hint


def test_a_codec_is_built_once() -> None:
    assert codec_for(list[Line]) is codec_for(list[Line])
    assert codec_for(Annotated[int, []]).decode("3") == 3  # an unhashable hint works too


def test_pydantic_is_not_imported_by_the_codec() -> None:
    program = (
        "import sys, dataclasses\n"
        "from perdure.model.codec import codec_for\n"
        "codec_for(list[int]).encode([1]); codec_for().encode({'a': 1})\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )


# ---------------------------------------------------------------- canonical text


def test_equal_values_have_equal_text() -> None:
    assert codec_for(dict[str, int]).encode({"b": 1, "a": 2}) == '{"a":2,"b":1}'
    assert codec_for().encode({"b": {"d": 1, "c": 2}, "a": []}) == '{"a":[],"b":{"c":2,"d":1}}'
    assert codec_for(set[int]).encode({3, 1, 2}) == "[1,2,3]"
    assert codec_for(dict[int, set[Colour]]).encode({2: {Colour.red, Colour.blue}, 1: set()}) == (
        '{"1":[],"2":["blue","red"]}'
    )
    assert codec_for(Model).encode(Model(name="a")).startswith('{"anything":null')


@dataclasses.dataclass(frozen=True)
class Member:
    tags: frozenset[Colour]


class Rows(msgspec.Struct, array_like=True, tag="rows"):
    members: set[Member]
    first: str = "x"


class Renamed(msgspec.Struct, rename="camel"):
    some_tags: set[Colour]
    other: set[Member] = msgspec.field(default_factory=set)


def test_the_order_and_the_gaps_of_a_senders_text_leave_no_trace() -> None:
    """msgspec leaves the gaps in a decoded dataclass, and would write it back so."""

    @dataclasses.dataclass(frozen=True)
    class Order:
        sku: str
        lines: list[Line]
        count: int = 1
        tags: tuple[str, ...] = ()
        by_name: dict[str, Line] = dataclasses.field(default_factory=dict)

    codec = codec_for(Order)
    text = codec.encode(Order("a", [Line("b")], by_name={"x": Line("c")}))
    sent = '{"by_name":{"x":{"sku":"c"}},"lines":[{"count":1,"sku":"b"}],"sku":"a"}'
    assert codec.encode(codec.decode(sent)) == text
    boxed = codec_for(Box[Line])
    assert boxed.encode(boxed.decode('{"inside":{"sku":"c"}}')) == boxed.encode(Box(Line("c")))


def test_an_int_in_the_place_of_a_float_or_decimal_has_the_same_text() -> None:
    assert codec_for(list[float]).encode([1]) == codec_for(list[float]).encode([1.0]) == "[1.0]"
    assert codec_for(Shape).encode(Shape(2)) == codec_for(Shape).encode(Shape(2.0))
    assert codec_for(Decimal).encode_lenient(0) == codec_for(Decimal).encode(Decimal(0)) == '"0"'


def test_a_set_whose_members_would_change_is_refused() -> None:
    odd = datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))
    for hint, value in ((set[datetime], {odd}), (frozenset[datetime], frozenset({odd}))):
        with pytest.raises(Unencodable, match="comes back as"):
            codec_for(hint).encode(value)


def test_sets_of_sets_have_one_text() -> None:
    """The order of frozensets is partial, so sorting them gives no error and no order."""
    groups = [frozenset({index, index + 1}) for index in range(20)]
    codec = codec_for(set[frozenset[int]])
    assert codec.encode(set(groups)) == codec.encode(set(reversed(groups)))
    assert codec_for().encode(set(groups)) == codec_for().encode(set(reversed(groups)))


def test_sets_that_cannot_be_compared_are_sorted_by_their_text() -> None:
    both = frozenset({Colour.red, Colour.blue})
    rows = Rows({Member(both), Member(frozenset())})
    assert codec_for(Rows).encode(rows) == '["rows",[{"tags":["blue","red"]},{"tags":[]}],"x"]'
    renamed = Renamed(set(both), {Member(both)})
    text = codec_for(Renamed).encode(renamed)
    assert text == '{"other":[{"tags":["blue","red"]}],"someTags":["blue","red"]}'
    assert codec_for(Renamed).decode(text) == renamed


# ---------------------------------------------------------------- hints that cannot travel


class Plain: ...


class TwoModels(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    plain: Plain


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (complex, "register_type"),
        (pathlib.PurePath, "register_type"),
        (ipaddress.IPv4Address, "ipaddress.IPv4Address has no JSON form"),
        (Plain, "Plain has no JSON form"),
        (list[Plain], "Plain has no JSON form"),
        (Box[Plain], "Plain has no JSON form"),
        (Callable[[], int], "has no JSON form"),
        (Iterator[int], "has no JSON form"),
        (collections.deque[int], "has no JSON form"),
        (Line | LongLine, "tag=True"),
        (str | datetime, "tell them apart"),
        (list[int] | set[int], "tell them apart"),
        ("Line", "not supported"),
        (dict[tuple[int, int], int], "list of pairs"),
        (dict[bool, int], "list of pairs"),
        (Annotated[int, annotated_types.Gt(0)], "msgspec.Meta"),
        (Model | Shape, "pydantic cannot handle"),
        (TwoModels, "pydantic cannot handle"),
        (tuple[Model, Plain], "pydantic cannot handle"),
    ],
)
def test_a_hint_that_cannot_travel_is_refused_at_registration(hint: Any, words: str) -> None:
    with pytest.raises(BadHint) as caught:
        codec_for(hint, "input 'order' of workflow 'fulfil'")
    assert str(caught.value).startswith("input 'order' of workflow 'fulfil': ")
    assert words in str(caught.value)
    assert isinstance(caught.value, TypeError)


# ---------------------------------------------------------------- values that are refused


@dataclasses.dataclass
class SameById:
    """A dataclass may define equality itself, and overlook a field."""

    id: int
    score: float | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameById) and self.id == other.id

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class NotCompared:
    score: float | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass
class Computed:
    x: int
    y: int = dataclasses.field(init=False, default=0)


nan = float("nan")


@pytest.mark.parametrize(
    ("hint", "value", "place", "words"),
    [
        # NaN and infinities, which msgspec writes as null
        (float, nan, "$", "nan is not a JSON number"),
        (float | None, nan, "$", "nan"),
        (list[float], [1.0, math.inf], "$[1]", "inf"),
        (list[float | None], [None, -math.inf], "$[1]", "-inf"),
        (Loose, Loose(None, nan), "$.number", "nan"),
        (Loose, Loose({"a": [nan]}), "$.anything.a[0]", "nan"),
        (SameById, SameById(1, nan), "$.score", "nan"),
        (NotCompared, NotCompared(nan), "$.score", "nan"),
        (Decimal, Decimal("NaN"), "$", "NaN"),
        (list[Decimal], [Decimal("-Infinity")], "$[0]", "Infinity"),
        (dict[float, int], {nan: 1}, "$[0]", "nan"),
        (Model, Model(name="a", total=nan), "$.total", "nan"),
        (Model, Model(name="a", anything=[nan]), "$.anything[0]", "nan"),
        (Any, nan, "$", "nan"),
        (Any, {"a": [1, math.inf]}, "$.a[1]", "inf"),
        (Any, Decimal("NaN"), "$", "NaN"),
        # integers beyond 64 bits
        (int, 2**63, "$", "64 bits"),
        (list[int], [0, -(2**63) - 1], "$[1]", "64 bits"),
        (Model, Model(name="a", count=10**40), "$.count", "64 bits"),
        (Any, 2**63, "$", "64 bits"),
        (Any, {"a": {"b": 2**70}}, "$.a.b", "64 bits"),
        (Any, (2**70,), "$[0]", "64 bits"),
        # lone surrogates
        (str, "a\ud800", "$", "lone surrogate"),
        (Line, Line("a\udfff"), "$", "lone surrogate"),
        (Model, Model.model_construct(name="a\udfff"), "$", "surrogate"),
        (Any, {"a\ud800": 1}, "$", "lone surrogate"),
        (Any, ("a\ud800",), "$", "lone surrogate"),
        # values that are not of their type
        (int, "x", "$", "int"),
        (int, True, "$", "int"),
        (int, 1.5, "$", "int"),
        (int, None, "$", "int"),
        (bool, 1, "$", "bool"),
        (str, 1, "$", "str"),
        (str, aware, "$", "a datetime comes back as str"),
        (None, 1, "$", "null"),
        (list[int], {"a": 1}, "$", "array"),
        (list[int], {1, 2}, "$", "a set comes back as list"),
        (list[Line], [Line("a"), Line(3)], "$[1].sku", "str"),  # type: ignore[arg-type]
        (Line, {"sku": "a"}, "$", "a dict comes back as Line"),
        (Line, LongLine("a", 1, "lost"), "$", "a LongLine comes back as Line"),
        (list[Line], [LongLine("a")], "$[0]", "LongLine"),
        (Options, {"fast": True, "extra": 1}, "$", "'extra' would be lost"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "$", ">= 0"),
        (Model, {"name": "a"}, "$", "Expected `Model`"),
        (Model, Model.model_construct(name=3), "$", "str"),
        (Model | int, "x", "$", "Expected"),
        # what JSON would change without a word
        (Loose, Loose(aware), "$.anything", "a datetime comes back as str"),
        (Loose, Loose([b"x"]), "$.anything[0]", "a bytes comes back as str"),
        (Loose, Loose({"a": {1, 2}}), "$.anything.a", "a set comes back as list"),
        (Loose, Loose({1: "a"}), "$.anything", "the key 1 would be lost"),
        (Loose, Loose(Line("a")), "$.anything", "a Line comes back as dict"),
        (Model, Model(name="a", anything=aware), "$.anything", "a datetime comes back as str"),
        (
            datetime,
            datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=3601))),
            "$",
            "comes back as",
        ),
        (HalfBase64Model, HalfBase64Model(blob=b"\xff"), "$.blob", "comes back as"),
        (pydantic.SecretStr, pydantic.SecretStr("x"), "$", "comes back as"),
        # pydantic's bytes
        (
            Model,
            Model(name="a", blob=b"\xff"),
            "$",
            "ser_json_bytes='base64' and val_json_bytes='base64'",
        ),
        (HoldsModel, HoldsModel(Model(name="a"), b"\xff"), "$", "ser_json_bytes"),
        # no type at all
        (Any, Line("a"), "$", "annotate this place with Line"),
        (Any, {"a": [Cat(9)]}, "$.a[0]", "annotate this place with Cat"),
        (Any, Model(name="a"), "$", "Model"),
        (Any, Pair(1), "$", "annotate this place with Pair"),
        (Any, Colour.red, "$", "annotate this place with Colour"),
        (Any, {"a": {1: 2}}, "$.a", "the key 1 is a int; JSON keys are str"),
        (Any, {("a",): 2}, "$", "JSON keys are str"),
        (Any, Plain(), "$", "register_type"),
        (Any, [1j], "$[0]", "complex"),
        (Any, bytearray(b"a"), "$", "bytearray"),
        (dict[str, Any], [1], "$", "not a dict"),
        (list, {"a": 1}, "$", "not a list"),
    ],
)
def test_what_would_not_come_back_the_same_is_refused(
    hint: Any, value: Any, place: str, words: str
) -> None:
    codec = codec_for(hint)
    for encode in (codec.encode, codec.roundtrip):
        with pytest.raises(Unencodable) as caught:
            encode(value)
        assert caught.value.place == place
        assert words in caught.value.reason
        assert str(caught.value) == f"at {place}: {caught.value.reason}"


def test_a_field_without_init_travels_too() -> None:
    value = Computed(1)
    value.y = 5
    assert codec_for(Computed).roundtrip(value)[1].y == 5


@pytest.mark.parametrize("hint", [Any, list, list[list[Any]], Loose, Model, tuple[Any, ...]])
def test_values_that_hold_themselves_or_nest_too_deep_are_refused(hint: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    deeper: Any = ()
    for _ in range(5000):
        deeper = (deeper,)
    wrap: Callable[[Any], Any] = {
        Loose: Loose,
        Model: lambda inner: Model(name="a", anything=inner),
    }.get(hint, lambda inner: inner)
    for value in (loop, deep, deeper):
        with pytest.raises(Unencodable):
            codec_for(hint).encode(wrap(value))


@pytest.mark.parametrize("hint", [Any, str, list[str], Model])
def test_too_large_a_value_is_refused(hint: Any) -> None:
    text = "x" * payload_bytes_max
    value = {str: text, Model: Model(name=text), Any: text}.get(hint, [text])
    with pytest.raises(Unencodable, match="payload_bytes_max"):
        codec_for(hint).encode(value)
    fits = "x" * (payload_bytes_max - 2)
    assert codec_for(str).decode(codec_for(str).encode(fits)) == fits
    assert codec_for().decode(codec_for().encode(fits)) == fits


def test_objects_without_equality_are_accepted_by_their_fields() -> None:
    @dataclasses.dataclass(eq=False)
    class Bare:
        x: int
        inner: Any = None

    codec = codec_for(Bare)
    assert codec.roundtrip(Bare(1, {"a": [1]}))[1].inner == {"a": [1]}
    with pytest.raises(Unencodable, match=r"\$\.inner"):
        codec.encode(Bare(1, aware))


def test_an_exception_of_the_users_own_code_is_a_refusal() -> None:
    @dataclasses.dataclass
    class Picky:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise KeyError("negative")

    with pytest.raises(BadPayload, match="negative"):
        codec_for(Picky).decode('{"x":-1}')
    value = Picky(1)
    value.x = -1
    with pytest.raises(Unencodable, match="negative"):
        codec_for(Picky).encode(value)


def test_plain_subclasses_that_equal_their_base_are_stored_as_the_base() -> None:
    class Text(str): ...

    class Number(float): ...

    class Moment(datetime): ...

    assert codec_for(str).roundtrip(Text("a")) == ('"a"', "a")
    assert codec_for(float).roundtrip(Number(1.5)) == ("1.5", 1.5)
    assert codec_for(datetime).roundtrip(Moment(2020, 1, 1))[1] == datetime(2020, 1, 1)
    assert codec_for().roundtrip({"w": Word.yes, "l": Level.low, "t": Text("a")}) == (
        '{"l":1,"t":"a","w":"yes"}',
        {"w": "yes", "l": 1, "t": "a"},
    )
    assert codec_for().roundtrip((Word.yes, Text("a")))[1] == ("yes", "a")
    ordered = collections.OrderedDict(b=1, a=2)
    assert codec_for().roundtrip(ordered)[1] == {"a": 2, "b": 1}


def test_an_int_fits_a_float_and_a_tuple_fits_a_sequence() -> None:
    assert codec_for(float).roundtrip(1) == ("1.0", 1.0)
    assert type(codec_for(float).roundtrip(1)[1]) is float
    assert codec_for(Sequence[int]).roundtrip((1, 2))[1] == [1, 2]


def test_what_comes_back_is_not_the_object_that_went_in() -> None:
    inner = [1]
    for hint, value in ((Any, {"a": inner}), (Loose, Loose(inner)), (list[Any], [inner])):
        text, back = codec_for(hint).roundtrip(value)
        inner.append(2)
        assert codec_for(hint).decode(text) == back
        inner.pop()


# ---------------------------------------------------------------- text that is refused


@pytest.mark.parametrize(
    ("hint", "text", "error"),
    [
        (int, '"x"', "at $: Expected `int`, got `str`"),
        (Line, '{"sku":1}', "at $.sku: Expected `str`, got `int`"),
        (list[Line], '[{"sku":"a"},{}]', "at $[1]: Object missing required field `sku`"),
        (Line, "{", "at $: Input data was truncated"),
        (Any, "{", "at $: Input data was truncated"),
        (Any, "", "at $: Input data was truncated"),
        (Any, "NaN", "at $: JSON is malformed: invalid character (byte 0)"),
        (Model, '{"name":"a","total":NaN}', "at $: JSON is malformed"),
        (Model, '{"name":"a","total":"NaN"}', "at $.total: nan is not a JSON number"),
        (Model, '{"name":"a","total":1e999}', "at $[...]: Number out of range"),
        (Model, '{"name":"a","count":"x"}', "at $.count: Input should be a valid integer"),
        (Any, '"\\ud800"', "at $: "),
        (Any, '"\ud800"', "at $: "),
        (str, b'"\xff"', "at $: "),
        (int, "9223372036854775808", "at $: payload holds the integer"),
        (Any, "[" * 65 + "]" * 65, "at $: payload nests 65"),
        (Line, "[" * 100_000, "at $: payload"),
        (Any, '"' + "x" * payload_bytes_max + '"', "at $: payload is 1048578 bytes"),
        (Any, "[" + "0," * 100_000 + "0]", "at $: payload has 100002 values"),
        (dict[str, Any], "[1]", "at $: expected dict, got list"),
        (list, '{"a":1}', "at $: expected list, got dict"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_its_place(
    hint: Any, text: str | bytes, error: str
) -> None:
    with pytest.raises(BadPayload) as caught:
        codec_for(hint).decode(text)
    assert caught.value.errors[0].startswith(error)
    assert str(caught.value) == "; ".join(caught.value.errors)


def test_pydantic_tells_all_its_errors() -> None:
    with pytest.raises(BadPayload) as caught:
        codec_for(list[Model]).decode('[{"count":"x"}]')
    assert [error.partition(":")[0] for error in caught.value.errors] == [
        "at $[0].name",
        "at $[0].count",
    ]


@given(
    st.text() | st.binary(), st.sampled_from([Any, int, Line, Everything, Model, dict[str, Any]])
)
def test_any_text_decodes_or_is_a_bad_payload(text: str | bytes, hint: Any) -> None:
    try:
        codec_for(hint).decode(text)
    except BadPayload as bad:
        assert bad.errors


# ---------------------------------------------------------------- untyped values


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
# Offsets of whole minutes; finer ones do not exist in the wild, and untyped keeps them anyway.
leaves = (
    scalars
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary()
)
keys = st.text() | st.sampled_from(["$pd", "v"])
untyped = st.recursive(
    leaves | st.sets(leaves, max_size=3) | st.frozensets(leaves, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return one == other and sorted(map(repr, map(type, one))) == sorted(
            map(repr, map(type, other))
        )
    return bool(one == other)


@settings(max_examples=400)
@given(untyped)
def test_an_untyped_value_comes_back_in_its_very_types(value: Any) -> None:
    codec = codec_for(Any)
    text, back = codec.roundtrip(value)
    assert same(back, value)
    assert same(codec.decode(text), value)
    assert codec.encode(back) == text


def test_tags_are_readable_json() -> None:
    codec = codec_for()
    assert codec.encode(date(2020, 1, 2)) == '{"$pd":"date","v":"2020-01-02"}'
    assert codec.encode((1, "a")) == '{"$pd":"tuple","v":[1,"a"]}'
    assert codec.encode({2, 1}) == '{"$pd":"set","v":[1,2]}'
    assert codec.encode({"$pd": "dt"}) == '{"$pd":"map","v":{"$pd":"dt"}}'
    assert codec.encode(timedelta(seconds=1)) == '{"$pd":"td","v":"PT1S"}'
    assert codec.schema() == {}
    assert codec_for(dict[str, Any]).schema() == {"type": "object"}


@pytest.mark.parametrize(
    "text",
    [
        '{"$pd":"nosuch","v":1}',
        '{"$pd":"os.system","v":"ls"}',
        '{"$pd":5,"v":1}',
        '{"$pd":[],"v":1}',
        '{"$pd":"dt"}',
        '{"$pd":"dt","v":"2020-01-01","more":1}',
        '{"$pd":"dt","v":5}',
        '{"$pd":"dt","v":"soon"}',
        '{"$pd":"td","v":"1"}',
        '{"$pd":"td","v":9223372036854775807}',
        '{"$pd":"dec","v":"NaN"}',
        '{"$pd":"dec","v":"x"}',
        '{"$pd":"uuid","v":"x"}',
        '{"$pd":"b64","v":"***"}',
        '{"$pd":"set","v":[[1]]}',
        '{"$pd":"tuple","v":"ab"}',
        '{"$pd":"map","v":[1]}',
        '{"a":[{"$pd":"nosuch","v":1}]}',
        '{"\\u0024pd":"nosuch","v":1}',
    ],
)
def test_an_unknown_or_broken_tag_is_refused(text: str) -> None:
    with pytest.raises(BadPayload, match=r"at \$"):
        codec_for().decode(text)


# ---------------------------------------------------------------- senders with plain builtins


def test_lenient_encoding_takes_instances_and_builtins_alike() -> None:
    for hint, instance, builtins in (
        (Line, Line("a", 1), {"sku": "a"}),
        (list[Line], [Line("a")], [{"sku": "a", "count": 1}]),
        (Model, Model(name="a", at=aware), {"name": "a", "at": aware.isoformat()}),
        (datetime, aware, aware.isoformat()),
        (set[int], {1, 2}, [2, 1]),
        (Cat | Dog, Dog(["sit"]), {"type": "Dog", "tricks": ["sit"]}),
        (float, 1.0, 1.0),
        (Any, {"a": 1}, {"a": 1}),
    ):
        codec = codec_for(hint)
        assert codec.encode_lenient(builtins) == codec.encode(instance), hint


def test_lenient_encoding_of_builtins_that_do_not_fit_is_a_bad_payload() -> None:
    for hint in (Line, Model):
        with pytest.raises(BadPayload, match=r"at \$"):
            codec_for(hint).encode_lenient({"nothing": 1})
    with pytest.raises(BadPayload, match="Expected `int`"):
        codec_for(int).encode_lenient("5")


def test_lenient_encoding_of_a_wrong_object_is_unencodable() -> None:
    with pytest.raises(Unencodable):
        codec_for(Line).encode_lenient(Shape(1.0))
    with pytest.raises(Unencodable, match="nan"):
        codec_for(float).encode_lenient(nan)
    with pytest.raises(Unencodable, match="nan"):
        codec_for(Loose).encode_lenient({"anything": 1, "number": nan})


def test_a_tag_in_a_senders_builtins_is_data() -> None:
    codec = codec_for(Any)
    payload = {"$pd": "dt", "v": "2020-01-01"}
    assert codec.decode(codec.encode_lenient(payload)) == payload


# ---------------------------------------------------------------- pydantic's names


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    some_name: int = pydantic.Field(alias="someName")


class TwoNames(pydantic.BaseModel):
    value: int = pydantic.Field(validation_alias="read", serialization_alias="written")


class WithComputed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int
    _cache: int = pydantic.PrivateAttr(default=0)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.x * 2


def test_pydantic_aliases_and_computed_fields_come_back() -> None:
    assert codec_for(Aliased).encode(Aliased(someName=3)) == '{"someName":3}'
    assert codec_for(Aliased).decode('{"some_name":3}') == Aliased(someName=3)
    assert codec_for(TwoNames).roundtrip(TwoNames(read=3)) == ('{"value":3}', TwoNames(read=3))
    assert codec_for(TwoNames).decode('{"read":3}') == TwoNames(read=3)
    value = WithComputed(x=2)
    value._cache = 5
    assert codec_for(WithComputed).roundtrip(value)[0] == '{"x":2}'


# ---------------------------------------------------------------- registered types


@dataclasses.dataclass
class Host:
    address: ipaddress.IPv6Address
    path: pathlib.PurePosixPath | None = None


@pytest.fixture
def registered() -> Iterator[None]:
    by_name, by_class = dict(custom_by_name), dict(custom_by_class)
    register_type("ip6", ipaddress.IPv6Address, str, ipaddress.IPv6Address)
    register_type("path", pathlib.PurePath, str, pathlib.PurePosixPath)
    yield
    custom_by_name.clear()
    custom_by_class.clear()
    custom_by_name.update(by_name)
    custom_by_class.update(by_class)
    kept_codec.cache_clear()


@pytest.mark.usefixtures("registered")
def test_a_registered_type_is_a_leaf_with_and_without_hint() -> None:
    value = Host(ipaddress.IPv6Address("::1"), pathlib.PurePosixPath("/a"))
    text, back = codec_for(Host).roundtrip(value)
    assert text == '{"address":"::1","path":"/a"}'
    assert back == value
    assert codec_for(Host).schema()["$defs"]["Host"]["required"] == ["address"]
    loose = {"a": [ipaddress.IPv6Address("::1")], "p": pathlib.PurePosixPath("x")}
    text, back = codec_for().roundtrip(loose)
    assert text == '{"a":[{"$pd":"ip6","v":"::1"}],"p":{"$pd":"path","v":"x"}}'
    assert back == loose
    for hint, bad in ((Host, '{"address":"x"}'), (Any, '{"$pd":"ip6","v":"x"}')):
        with pytest.raises(BadPayload, match="not a ip6"):
            codec_for(hint).decode(bad)


@pytest.mark.usefixtures("registered")
def test_registration_is_guarded() -> None:
    register_type("ip6", ipaddress.IPv6Address, str, ipaddress.IPv6Address)  # again: the same
    for name, cls in (
        ("dt", Plain),
        ("ip6", Plain),
        ("a/b", Plain),
        ("line", Line),
        ("number", int),
    ):
        with pytest.raises(BadValue):
            register_type(name, cls, str, lambda plain: plain)


def test_a_type_is_known_only_once_registered(request: pytest.FixtureRequest) -> None:
    with pytest.raises(BadHint):
        codec_for(Host)
    request.getfixturevalue("registered")
    codec_for(Host)


@pytest.mark.usefixtures("registered")
def test_a_lossy_registration_is_found_out() -> None:
    register_type("number", complex, lambda value: value.real, complex)
    with pytest.raises(Unencodable, match="comes back as"):
        codec_for(complex).encode(1 + 2j)
    with pytest.raises(Unencodable, match="comes back as"):
        codec_for().encode([1 + 2j])


# ---------------------------------------------------------------- arguments


def args() -> ArgsCodec:
    return args_codec(
        [Param("order", Line), Param("tries", int, 3), Param("extra", default=None)],
        "workflow 'fulfil'",
    )


def test_arguments_travel_as_an_array_with_their_defaults() -> None:
    codec = args()
    text = codec.encode((Line("a"),))
    assert text == '[{"sku":"a","count":1},3,null]'
    assert codec.decode(text) == (Line("a"), 3, None)
    assert codec.decode('[{"sku":"a"}]') == (Line("a"), 3, None)
    assert codec.roundtrip((Line("a"), 5)) == (
        '[{"sku":"a","count":1},5,null]',
        (Line("a"), 5, None),
    )
    moment = codec.decode(codec.encode((Line("a"), 1, aware)))[2]
    assert moment == aware


def test_a_default_that_does_not_fit_its_type_is_left_out_of_the_text() -> None:
    codec = args_codec([Param("n", int, None), Param("m", int, 4)])
    assert codec.encode(()) == "[]"
    assert codec.decode("[]") == (None, 4)
    assert codec.encode((1,)) == "[1,4]"


def test_no_parameters() -> None:
    codec = args_codec([])
    assert codec.encode(()) == "[]"
    assert codec.decode("[]") == ()
    assert codec.schema() == {"type": "array", "minItems": 0, "maxItems": 0, "items": False}


def test_too_many_or_too_few_arguments() -> None:
    message = r"4 arguments given, 1 to 3 wanted \(order, tries, extra\) by workflow 'fulfil'"
    with pytest.raises(BadPayload, match=message):
        args().encode((1, 2, 3, 4))
    with pytest.raises(BadPayload, match="0 arguments given, 1 to 3 wanted"):
        args().encode(())
    with pytest.raises(BadPayload, match="0 arguments given"):
        args().decode("[]")
    with pytest.raises(BadPayload, match=r"1 argument given, 0 wanted \(none\)"):
        args_codec([]).decode("[1]")


def test_errors_name_the_parameter() -> None:
    with pytest.raises(Unencodable, match=r"^at order\.sku: "):
        args().encode((Line(3),))  # type: ignore[arg-type]
    with pytest.raises(Unencodable, match=r"^at extra\.a: a Line"):
        args().encode((Line("a"), 1, {"a": Line("b")}))
    with pytest.raises(BadPayload, match=r"^at order\.sku: Expected `str`"):
        args().decode('[{"sku":3}]')
    with pytest.raises(BadPayload, match=r"^at tries: Expected `int`"):
        args().decode('[{"sku":"a"},"x"]')
    for text in ("{}", "5", "[1", "", "[" * 100_000, "[" + "1," * 200_000 + "1]"):
        with pytest.raises(BadPayload, match=r"^at \$: "):
            args().decode(text)
    with pytest.raises(BadHint, match="'order' of workflow 'fulfil'"):
        args_codec([Param("order", Plain)], "workflow 'fulfil'")


def test_all_arguments_together_are_bounded() -> None:
    half = "x" * (payload_bytes_max // 2)
    codec = args_codec([Param("a", str), Param("b", str)])
    with pytest.raises(Unencodable, match="payload_bytes_max"):
        codec.encode((half, half))


def test_arguments_that_fit_alone_but_not_together_are_refused_before_they_are_stored() -> None:
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    codec = args_codec([Param("a"), Param("b")])
    codec_for().encode(deep)
    with pytest.raises(Unencodable, match="payload_depth_max"):
        codec.encode((deep, 1))
    with pytest.raises(Unencodable, match="payload_nodes_max"):
        codec.encode(([1] * 60_000, [1] * 60_000))


def other_line() -> type:
    @dataclasses.dataclass
    class Line:
        other: int

    return Line


def test_the_schema_of_arguments_keeps_like_named_types_apart() -> None:
    schema = args_codec(
        [Param("a", Line), Param("b", other_line()), Param("c", list[Model])]
    ).schema()
    assert [item["title"] for item in schema["prefixItems"]] == ["a", "b", "c"]
    assert schema["prefixItems"][0]["$ref"] == "#/$defs/Line"
    assert schema["prefixItems"][1]["$ref"] == "#/$defs/b.Line"
    assert set(schema["$defs"]) == {"Line", "b.Line", "Model"}


async def workflow(  # type: ignore[no-untyped-def]
    ctx: "NotImported",  # type: ignore[name-defined]  # noqa: F821
    order: Line,
    /,
    note: "str | None" = None,
    any=1,
) -> list[Line]:
    return [order]


def test_hints_are_resolved_without_the_context() -> None:
    params, returned = hints_of(workflow, skip=1)
    assert params == [Param("order", Line), Param("note", str | None, None), Param("any", Any, 1)]
    assert returned == list[Line]


def test_missing_annotations_are_any() -> None:
    params, returned = hints_of(lambda a, b=2: None)
    assert params == [Param("a"), Param("b", Any, 2)]
    assert returned is Any


def test_annotated_hints_keep_their_constraints() -> None:
    def function(n: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...

    params, returned = hints_of(function)
    with pytest.raises(BadPayload, match=">= 0"):
        args_codec(params).decode("[-1]")
    assert codec_for(returned).encode(None) == "null"


def test_parameters_that_are_not_positional_are_refused() -> None:
    def by_keyword(ctx: object, *, a: int) -> None: ...
    def many(ctx: object, *a: int) -> None: ...
    def named(ctx: object, **a: int) -> None: ...

    for function in (by_keyword, many, named):
        with pytest.raises(BadHint, match="positional"):
            hints_of(function, skip=1)


def test_an_unresolvable_annotation_says_what_to_do() -> None:
    def function(a: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(BadHint, match=r"Nowhere.*module level"):
        hints_of(function)
    assert hints_of(function, localns={"Nowhere": int})[0] == [Param("a", int)]


def test_callable_objects_have_hints_too() -> None:
    import functools

    class Doer:
        def __call__(self, a: int) -> str:
            return str(a)

    assert hints_of(Doer()) == ([Param("a", int)], str)
    assert hints_of(functools.partial(workflow, None), 0)[0][0] == Param("order", Line)


def test_places_are_readable() -> None:
    assert place_text(()) == "$"
    assert place_text(("a", 3, "b c")) == "$.a[3]['b c']"


# ---------------------------------------------------------------- hypothesis over types


@settings(max_examples=200)
@given(
    st.from_type(Line) | st.from_type(Pair),
    st.lists(st.builds(Shape, st.floats(allow_nan=False, allow_infinity=False))),
)
def test_random_typed_values(one: Any, shapes: list[Shape]) -> None:
    ints = one.count if isinstance(one, Line) else one.left
    codec = codec_for(type(one))
    if not -(2**63) <= ints < 2**63:
        with pytest.raises(Unencodable, match="64 bits"):
            codec.encode(one)
        return
    assert codec.roundtrip(one)[1] == one
    assert codec_for(list[Shape]).roundtrip(shapes)[1] == shapes


@settings(max_examples=200)
@given(
    st.builds(
        Everything,
        at=st.datetimes(timezones=st.just(UTC)),
        price=st.decimals(allow_nan=False, allow_infinity=False),
        numbers=st.sets(st.integers(-(2**63), 2**63 - 1)),
        pair=st.tuples(st.integers(-(2**63), 2**63 - 1), st.text()),
        many=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
        by_name=st.dictionaries(st.text(), st.builds(Line, count=st.integers(0, 9))),
        by_key=st.dictionaries(st.uuids(), st.integers(-(2**63), 2**63 - 1)),
        maybe=st.none() | st.integers(-(2**63), 2**63 - 1),
        shape=st.builds(Shape, st.floats(allow_nan=False, allow_infinity=False)),
        options=st.just({"tries": 1}),
        named=st.builds(Pair, st.integers(0, 9)),
        animal=st.builds(Cat, st.integers(0, 9)) | st.builds(Dog),
        clock=st.times(),
    )
)
def test_random_values_of_every_type(value: Everything) -> None:
    codec = codec_for(Everything)
    text, back = codec.roundtrip(value)
    assert back == value
    assert codec.encode(back) == text
