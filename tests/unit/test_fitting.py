"""What neither our checker nor the other can decide is refused, in bounded time."""

import json
import sys
from typing import Any

import pytest

from perdure import Uncheckable, fitting
from perdure.fitting import misfits

WHAT = "the payload of signal 'go'"


def told(schema: dict[str, Any], value: Any) -> list[str]:
    return misfits(WHAT, schema, json.dumps(value))


def test_our_own_checker_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert told({"type": "integer"}, 5) == []
    assert told({"type": "integer", "not": {"const": 5}}, "x") == [
        "at $: expected integer, got string 'x'"
    ]
    with pytest.raises(Uncheckable, match="jsonschema is needed") as missing:
        told({"not": {"const": 5}}, 4)
    assert missing.value.what == WHAT


def test_the_other_checker_tells_places() -> None:
    schema = {"properties": {"odd key": {"items": {"not": {"const": 0}}}}}
    assert told(schema, {"odd key": [1]}) == []
    (problem,) = told(schema, {"odd key": [1, 0]})
    assert problem.startswith("at $['odd key'][1]: ")
    assert len(told({"items": {"not": {}}}, [1] * 1000)) == 20
    (problem,) = told({"not": {"type": "string"}}, "x" * 100_000)
    assert problem == "at $: does not fit `not`"


def test_all_keywords_count() -> None:
    either = {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 0}}
    assert told(either, {"a": 1, "b": 1}) == [] == told(either, {})
    assert told(either, {"a": 1}) and told(either, {"c": 1})
    closed = {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}
    assert told(closed, {"a": 1}) == []
    assert told(closed, {"b": 1})
    one = {"oneOf": [{"type": "integer"}, {"minimum": 5}]}
    assert told(one, 4) == []
    assert told(one, 6)
    price = {"not": {"const": 0}, "type": "string", "format": "decimal"}
    assert told(price, 1.5) == []


def test_references_stay_within() -> None:
    loop = {
        "$defs": {"A": {"not": {"const": 0}, "items": {"$ref": "#/$defs/A"}}},
        "$ref": "#/$defs/A",
    }
    assert told(loop, [[1]]) == []
    assert told(loop, [[0]])
    said = {"$schema": "https://json-schema.org/draft/2020-12/schema", "not": {"const": 0}}
    assert told(said, 1) == [] != told(said, 0)
    for reference in ("https://example.com/x", "file:///etc/passwd", "#/$defs/B"):
        with pytest.raises(Uncheckable, match="leads nowhere"):
            told({"not": {"$ref": reference}}, 1)


def test_a_schema_within_does_not_bring_its_own_rules() -> None:
    """By its dialect jsonschema would go back to Python's own patterns."""
    within = {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "^(a+)+$"}
    with pytest.raises(Uncheckable, match="of its own"):
        told({"not": {"not": within}}, "a" * 5000 + "!")


def test_patterns_are_matched_in_bounded_time() -> None:
    """Python's own matcher would take for ever; the pytest timeout is the judge."""
    slow = {"not": {"const": 0}, "pattern": "^(a+)+$"}
    assert told(slow, "a" * 500) == []
    assert "does not match" in told(slow, "a" * 500 + "!")[0]
    assert "too long" in told(slow, "a" * 900_000 + "!")[0]
    assert told({"not": {"pattern": "^(a+)+$"}}, "a" * 500 + "!") == []
    with pytest.raises(Uncheckable, match="for ever"):
        told({"not": {"pattern": r"^(a+)\1*b+$"}}, "a" * 5000)
    with pytest.raises(Uncheckable, match="`patternProperties` beside"):
        told({"patternProperties": {"^(a|a)*$": {"not": {}}}}, {"a" * 5000 + "!": 1})


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pytest timeout is the judge."""
    monkeypatch.setattr(fitting, "schema_checks_max", 50_000)
    forks = {"0": {"type": "null"}}
    for depth in range(1, 40):
        twice = {"$ref": f"#/$defs/{depth - 1}"}
        forks[str(depth)] = {"not": {"anyOf": [twice, twice]}}
    with pytest.raises(Uncheckable, match="too deep or too ambiguous"):
        told({"$defs": forks, "$ref": "#/$defs/39"}, 1)
    with pytest.raises(Uncheckable, match="too deep"):
        told({"not": {"$ref": "#"}}, 1)
    with pytest.raises(Uncheckable, match="too ambiguous"):
        told({"items": {"not": {"enum": list(range(1000))}}}, [-1] * 100)


def test_items_are_not_compared_with_each_other() -> None:
    many = [{"a": number} for number in range(30_000)]
    assert told({"not": {"const": 0}, "uniqueItems": True}, many) == []
    assert told({"not": {"uniqueItems": True}}, many) == ["at $: does not fit `not`"]
    assert told({"not": {"uniqueItems": True}}, [1, 1.0]) == []


@pytest.mark.parametrize("schema", [{"not": {"minimum": "x"}}, {"not": {"items": 5}}, {"not": 5}])
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Uncheckable):
        told(schema, 1)
