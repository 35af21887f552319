"""Names, ids, tags and payload text at their bounds."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model import limits
from perdure.model.limits import (
    BadValue,
    check_entity,
    check_key,
    check_name,
    check_payload,
    check_run_id,
    check_tags,
)


@pytest.mark.parametrize("name", ["a", "order.paid", "manager-approval", "größe", "a b", "x" * 256])
def test_a_good_name_is_returned_as_it_is(name: str) -> None:
    assert check_name("signal", name) == name


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is empty"),
        (None, "is a NoneType"),
        (7, "is a int"),
        (b"a", "is a bytes"),
        ("x" * 300, "is 300 bytes; at most 256 (name_bytes_max)"),
        ("ö" * 129, "is 258 bytes"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x85b", "control character"),
        ("a\u2028b", "control character"),
        ("a\ud800", "lone surrogate"),
        (" a", "white space"),
        ("a\u00a0", "white space"),
        ("a/b", "'/'"),
        ("a#1", "'#'"),
        ("!a", "'!'"),
    ],
)
def test_a_bad_name_is_refused_with_what_where_and_why(value: object, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        check_name("signal", value)
    assert str(caught.value).startswith("signal name ")
    assert words in str(caught.value)
    assert caught.value.what == "signal name"
    assert len(caught.value.value_repr) <= 80


def test_a_refusal_survives_a_value_without_repr() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(BadValue, match="<Odd>"):
        check_run_id(Odd())


def test_a_run_id_may_hold_path_marks() -> None:
    assert check_run_id("order/42#1!") == "order/42#1!"
    with pytest.raises(BadValue, match="run_id_bytes_max"):
        check_run_id("x" * 257)


@pytest.mark.parametrize("dots", [".", ".."])
def test_what_no_address_can_hold_is_no_name_and_no_run_id(dots: str) -> None:
    class Text(str): ...

    for text in (dots, Text(dots)):
        with pytest.raises(BadValue, match="means another place in every address"):
            check_run_id(text)
        with pytest.raises(BadValue, match="means another place in every address"):
            check_name("queue", text)
    for near in (f"{dots}a", f"a{dots}", "..."):
        assert check_run_id(near) == check_name("queue", near) == near


def test_a_subclass_of_str_becomes_a_plain_str() -> None:
    class Name(str): ...

    assert type(check_name("step", Name("charge"))) is str
    assert type(check_key(Name("k"))) is str


def test_tags_are_checked_one_by_one() -> None:
    assert check_tags(None) == {}
    assert check_tags({"team": "red"}) == {"team": "red"}
    with pytest.raises(BadValue, match=r"tags_max"):
        check_tags({str(index): "x" for index in range(33)})
    with pytest.raises(BadValue, match="value of tag 'a'"):
        check_tags({"a": 1})  # type: ignore[dict-item]
    with pytest.raises(BadValue, match="tag name"):
        check_tags({"": "x"})
    with pytest.raises(BadValue, match="not a mapping"):
        check_tags(["a"])  # type: ignore[arg-type]


def test_an_entity_is_split_at_its_first_slash() -> None:
    assert check_entity("order/42") == ("order", "42")
    assert check_entity("file/a/b") == ("file", "a/b")


@pytest.mark.parametrize(
    "text", ["order", "/42", "order/", "", None, "order/ 4", "a#/4", "o/" + "x" * 257]
)
def test_a_bad_entity_is_refused(text: object) -> None:
    with pytest.raises(BadValue):
        check_entity(text)


@given(st.text())
def test_check_name_returns_its_argument_or_raises_bad_value(text: str) -> None:
    try:
        assert check_name("step", text) == text
    except BadValue:
        return
    assert text
    assert not set(text) & set("/#!\x00\n")
    assert len(text.encode()) <= limits.name_bytes_max


# ---------------------------------------------------------------- payload text


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_payload_depth_is_bounded_exactly() -> None:
    check_payload(nested(64))
    check_payload(b"[" + b",".join([nested(63)] * 3) + b"]")
    for text in (nested(65), nested(5000), b"[" * 90_000, b"[" + nested(64) + b",1]"):
        with pytest.raises(BadValue, match="payload_depth_max"):
            check_payload(text)


def test_brackets_and_digits_inside_strings_do_not_count() -> None:
    check_payload(json.dumps("[{" * 1000).encode())
    check_payload(json.dumps({'a\\"': '\\"[[' * 500, "n": "9" * 30}).encode())


def test_many_shallow_containers_are_not_deep() -> None:
    check_payload(json.dumps([{}] * 1000).encode())


def test_payload_nodes_are_bounded_exactly() -> None:
    check_payload(json.dumps([0] * 99_999).encode())
    check_payload(json.dumps([[]] * 99_999).encode())
    for text in (json.dumps([0] * 100_000), json.dumps([[]] * 100_000), json.dumps([[1]] * 50_000)):
        with pytest.raises(BadValue, match="payload_nodes_max"):
            check_payload(text.encode())


def test_payload_size_is_bounded_exactly() -> None:
    check_payload(b'"' + b"x" * (limits.payload_bytes_max - 2) + b'"')
    with pytest.raises(BadValue, match="payload_bytes_max"):
        check_payload(b'"' + b"x" * (limits.payload_bytes_max - 1) + b'"')


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0, 10**18])
def test_integers_of_64_bits_pass(number: int) -> None:
    check_payload(json.dumps({"some": ["padding", number]}).encode())


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_wider_integers_are_refused(number: int) -> None:
    with pytest.raises(BadValue, match="64 bits"):
        check_payload(json.dumps({"some": ["padding", number]}).encode())


@pytest.mark.parametrize(
    "text", ["1.0000000000000000000001", "1e00000000000000000000005", "12345678901234567890.5"]
)
def test_long_digits_of_a_fraction_are_no_integer(text: str) -> None:
    check_payload(f'{{"padding": {text}}}'.encode())


def test_malformed_text_costs_no_more_than_its_bytes() -> None:
    """Each of these is quadratic for a scanner that backtracks; the pytest timeout is the judge."""
    million = limits.payload_bytes_max
    for text in (
        b'"' + b'\\"' * (million // 2 - 1),
        b'"' * million,
        b"[ " * 60 + b" " * (million - 200),
        b'[[["' * 1000 + b"\\" * (million - 5000),
        b"9" * million,
        b"-" * million,
    ):
        try:
            check_payload(text)
        except BadValue:
            pass


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(plain_json)
def test_only_wide_integers_make_small_json_refused(value: object) -> None:
    def wide(part: object) -> bool:
        if isinstance(part, dict):
            return any(map(wide, part.values()))
        if isinstance(part, list):
            return any(map(wide, part))
        return type(part) is int and not limits.int_min <= part <= limits.int_max

    text = msgspec.json.encode(value)
    try:
        check_payload(text)
    except BadValue:
        assert wide(value)
    else:
        assert not wide(value)
