"""Redaction by itself: which fields are hidden, in values, in schemas, and in texts that quote them."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import App, BadValue
from perdure.observing.redaction import HIDDEN, REDACT_VARIABLE, Redaction

RED = Redaction(["password", "card.number", "a.b.c"])
SECRET = "hunter2"

# --- names ---


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("password", "no list of names"),
        (7, "no list of names"),
        ([7], "is a int"),
        ([""], "empty"),
        (["a..b"], "empty key"),
        ([".a"], "empty key"),
        ([" a"], "empty key"),
        (["x" * 300], "name_bytes_max"),
        ([".".join("abcdefghi")], "redacted_keys_max"),
        ([f"n{one}" for one in range(257)], "redacted_names_max"),
    ],
)
def test_bad_names_are_refused_when_the_app_is_made(names: Any, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        App("memory://", redact=names)


def test_names_are_given_to_the_app_or_by_the_environment(monkeypatch: Any) -> None:
    assert App("memory://")._settings.redact is None
    assert App("memory://", redact=[])._settings.redact is None
    monkeypatch.setenv(REDACT_VARIABLE, "password card.number\n")
    assert str(App("memory://")._settings.redact) == "Redaction(['password', 'card.number'])"
    app = App("memory://", redact=["token"])
    assert str(app.copy()._settings.redact) == "Redaction(['token'])"


# --- values ---


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"password": SECRET, "user": "anna"}, {"password": HIDDEN, "user": "anna"}),
        ({"PassWord": {"old": 1, "new": [2]}}, {"PassWord": HIDDEN}),
        ({"passwords": 1, "my_password": 2}, {"passwords": 1, "my_password": 2}),
        ([[{"x": [{"password": 1}]}]], [[{"x": [{"password": HIDDEN}]}]]),
        ({"number": 1, "card": {"number": 2}}, {"number": 1, "card": {"number": HIDDEN}}),
        ({"x": {"card": [{"number": 2}]}}, {"x": {"card": [{"number": HIDDEN}]}}),
        ({"card": {"x": {"number": 2}}}, {"card": {"x": {"number": 2}}}),
        ({"a": {"b": {"c": 1}}, "b": {"c": 2}}, {"a": {"b": {"c": HIDDEN}}, "b": {"c": 2}}),
        ({"password": None}, {"password": HIDDEN}),
        *(("text", "text"), (7, 7), (None, None), ([], []), ({}, {})),
    ],
)
def test_what_stands_under_a_name_is_hidden(value: Any, left: Any) -> None:
    before = json.dumps(value)
    assert RED.of(value) == left
    assert json.dumps(value) == before


def test_a_value_may_stand_under_keys_that_are_given() -> None:
    assert RED.of(SECRET, ("Password",)) == HIDDEN
    assert RED.of({"number": 1}, ("card",)) == {"number": HIDDEN}
    assert RED.of({"number": 1}, ("name",)) == {"number": 1}


def test_what_holds_itself_comes_to_an_end() -> None:
    round_: dict[str, Any] = {"password": SECRET}
    round_["again"] = [round_]
    assert SECRET not in str(RED.of(round_))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "card", "number", "Password"]), inner)
    ),
    max_leaves=20,
)


@given(_json)
def test_nothing_but_what_is_named_is_changed(value: Any) -> None:
    def check(was: Any, now: Any, path: tuple[str, ...]) -> None:
        if path and RED.hides(path):
            assert now == HIDDEN
        elif isinstance(was, dict):
            assert list(was) == list(now)
            for key in was:
                check(was[key], now[key], (*path, key.lower()))
        elif isinstance(was, list):
            assert len(was) == len(now)
            for one, other in zip(was, now, strict=True):
                check_in_list(one, other, path)
        else:
            assert now == was

    def check_in_list(was: Any, now: Any, path: tuple[str, ...]) -> None:
        if isinstance(was, dict | list):
            check(was, now, path if not (path and RED.hides(path)) else ())
        else:
            assert now == was

    check(value, RED.of(value), ())


# --- schemas ---


def test_a_schema_keeps_its_fields_and_loses_their_values() -> None:
    number = {"type": "string", "default": SECRET, "examples": [SECRET]}
    schema = {
        "type": "array",
        "prefixItems": [
            {"title": "password", "type": "string", "enum": [SECRET]},
            {"title": "order", "$ref": "#/$defs/Order"},
        ],
        "$defs": {
            "Order": {
                "type": "object",
                "default": {"password": SECRET, "note": "n"},
                "properties": {
                    "password": {"$ref": "#/$defs/Hidden"},
                    "card": {"type": "object", "properties": {"number": number}},
                    "note": {"type": "string", "default": "n"},
                    "default": {"type": "integer", "default": 3},
                },
                "required": ["password"],
            },
            "Hidden": {"anyOf": [{"const": SECRET}, {"$ref": "#/$defs/Deep"}]},
            "Deep": {"type": "object", "properties": {"x": {"enum": [SECRET]}}},
        },
    }
    left = RED.schema(schema)
    assert SECRET not in json.dumps(left)
    order = left["$defs"]["Order"]
    assert order["required"] == ["password"]
    assert order["default"] == {"password": HIDDEN, "note": "n"}
    assert order["properties"]["note"] == {"type": "string", "default": "n"}
    assert order["properties"]["default"] == {"type": "integer", "default": 3}
    assert order["properties"]["card"]["properties"]["number"] == {"type": "string"}
    assert RED.schema(True) is True and RED.schema(None) is None


# --- texts ---

ODD = 'it\'s "quoted", \\ and {odd'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password='hunter2', user='anna'", "password=[redacted], user='anna'"),
        ("Password: hunter2 hunter2, user", "Password: [redacted], user"),
        ("password=hunter2 user=anna", "password=[redacted] user=anna"),
        ('{"password": "hunter2", "n": 1}', '{"password": [redacted], "n": 1}'),
        ("{'password': ['hunter2', {'x': 1}], 'n': 1}", "{'password': [redacted], 'n': 1}"),
        ("Login(password=Secret('hunter2'), n=1)", "Login(password=[redacted], n=1)"),
        ("payload.password == 'hunter2' && n > 3", "payload.password == [redacted] && n > 3"),
        ('payload["password"] == "hunter2"', 'payload["password"] == [redacted]'),
        ("password='hunter2", "password=[redacted]"),  # cut off
        ("Card(number='hunter2')", "Card(number=[redacted])"),
        ("number='77' of a card", "number='77' of a card"),
        ("at $.password: 'hunter2' is bad; at $.n: 3", "at $.password: [redacted]; at $.n: 3"),
        ("at $.x.card[3].number: is hunter2", "at $.x.card[3].number: [redacted]"),
        ("at password: hunter2 is bad; at n: 3", "at password: [redacted]; at n: 3"),
        ("at $.password.x: hunter2", "at $.password.x: [redacted]"),
        ("Invalid 'hunter2' - at `$.password`", "[redacted] - at `$.password`"),
        ("Invalid 'a' - at `$.n`", "Invalid 'a' - at `$.n`"),
        (
            "1 error\ncard.0.number\n  Bad [input_value='hunter2']\n  more",
            "1 error\ncard.0.number\n  [redacted]\n  more",
        ),
        ("the password is wrong", "the password is wrong"),
        ("nothing at all", "nothing at all"),
    ],
)
def test_what_a_text_quotes_of_a_field_is_hidden(text: str, left: str) -> None:
    assert RED.text(text) == left


def test_quoted_json_is_seen_through_at_any_depth() -> None:
    text = json.dumps({"password": ODD, "n": 1})
    for _ in range(4):
        assert "odd" not in RED.text(text) and "n" in RED.text(text)
        assert "odd" not in RED.text(f"Op(payload={text!r}, x=1)")
        text = json.dumps({"body": text})


def test_a_known_value_is_hidden_wherever_it_stands() -> None:
    assert RED.text("it was hunter2, not hunter22", {SECRET}) == "it was [redacted], not hunter22"
    assert RED.text("t is a letter", {"t"}) == "t is a letter"
    assert RED.hidden_in({"password": [SECRET, {"x": 7}], "card": [{"number": True}]}) == {
        SECRET,
        "7",
    }


@given(st.text(), st.text())
def test_the_value_of_a_pair_of_json_is_gone_whatever_is_around(value: str, note: str) -> None:
    marked = f"<<{value}>>SECRET"
    for text in (json.dumps({"note": 1, "password": marked}), repr({"password": marked})):
        assert "SECRET" not in RED.text(text)


@pytest.mark.parametrize(
    "hostile",
    [
        "password=" * 20_000,
        "password='" + "\\'" * 50_000,
        "at $.password: x; " * 10_000,
        "password" + " " * 100_000,
        "card number=(" * 10_000,
        "- at `$.password" * 10_000,
        "password: " + '"\\' * 50_000,
    ],
    ids=lambda text: text[:10],
)
def test_a_hostile_text_costs_no_more_than_its_length(hostile: str) -> None:
    began = time.process_time()
    RED.text(hostile)
    assert time.process_time() - began < 2.0  # quadratic would be minutes
