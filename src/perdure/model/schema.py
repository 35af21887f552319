"""Check JSON text against a stored JSON Schema, for senders that have only the catalogue.

Knows the part of JSON Schema 2020-12 that msgspec and pydantic write; other keywords are ignored,
and where the two disagree we are the looser one: the typed codec at the receiving end has the last
word. Schema and text may both come from outside, so depth, work and patterns are bounded.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from perdure.model.codec import Place, place_text
from perdure.model.limits import BadValue, check_payload, payload_errors_max, shown

# A value 64 deep through a reference, a union and a field at each level stays below this.
schema_depth_max = 300
# `anyOf` inside `anyOf` multiplies; a payload of 100,000 values needs some checks for each.
schema_checks_max = 500_000
# Python's regular expressions backtrack, so only short ones over short texts are tried.
pattern_chars_max = 256
pattern_subject_chars_max = 256

Schema = dict[str, Any] | bool


def check_schema(schema: dict[str, Any], text: str | bytes) -> list[str]:
    """What is wrong with the text, each as "at $.a.b: …"; an empty list if it fits."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    try:
        check_payload(raw)
        value = msgspec.json.decode(raw)
    except (BadValue, ValueError, RecursionError) as error:
        return [f"at $: {error}"]
    try:
        problems = _Check(schema).run(schema, value, (), 0)
    except (_TooMuch, RecursionError):
        return ["at $: the schema is too deep or too ambiguous to check"]
    return [f"at {place_text(place)}: {reason}" for place, reason in problems[:payload_errors_max]]


def schema_digest(schema: dict[str, Any]) -> str:
    """A fingerprint: what was checked against a schema of the same one needs no second look."""
    text = msgspec.json.encode(schema, order="deterministic")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class _TooMuch(Exception):
    """The bound on depth or work was reached."""


Problems = list[tuple[Place, str]]


class _Check:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._checks = 0

    def run(self, schema: Schema, value: Any, place: Place, depth: int) -> Problems:
        self._checks += 1
        if depth > schema_depth_max or self._checks > schema_checks_max:
            raise _TooMuch
        if schema is False:
            return [(place, "nothing is allowed here")]
        if not isinstance(schema, dict):
            return []
        problems = [(place, reason) for reason in _own_problems(schema, value)]
        # A value of the wrong kind has no parts worth talking about.
        if not problems:
            problems = [*self._combined(schema, value, place, depth + 1)]
            problems += self._inside(schema, value, place, depth + 1)
        return problems

    def _combined(self, schema: dict[str, Any], value: Any, place: Place, depth: int) -> Problems:
        problems: Problems = []
        if isinstance(reference := schema.get("$ref"), str):
            problems += self.run(self._resolve(reference), value, place, depth)
        for one in _list(schema.get("allOf")):
            problems += self.run(one, value, place, depth)
        # pydantic writes oneOf for tagged unions only, where at most one can fit anyway.
        for name in ("anyOf", "oneOf"):
            if forms := _list(schema.get(name)):
                problems += self._any_of(forms, value, place, depth)
        return problems

    def _any_of(self, forms: list[Schema], value: Any, place: Place, depth: int) -> Problems:
        best: Problems | None = None
        for form in forms:
            problems = self.run(form, value, place, depth)
            if not problems:
                return []
            # The form that was followed deepest is the one that was meant.
            if best is None or len(problems[0][0]) > len(best[0][0]):
                best = problems
        if best is None or len(best[0][0]) > len(place):
            return best or []
        kinds = " or ".join(dict.fromkeys(self._kind_of(form) for form in forms))
        return [(place, f"expected {kinds}, got {_kind(value)} {shown(value)}")]

    def _kind_of(self, form: Schema) -> str:
        if not isinstance(form, dict):
            return "nothing"
        name = form.get("title") or str(form.get("$ref", "")).rpartition("/")[2]
        return str(
            name or form.get("type") or ("one of its values" if "enum" in form else "a form")
        )

    def _inside(self, schema: dict[str, Any], value: Any, place: Place, depth: int) -> Problems:
        problems: Problems = []
        parts: Iterator[tuple[str | int, Schema, Any]]
        if isinstance(value, dict):
            parts = _object_parts(schema, value)
        elif isinstance(value, list):
            parts = _array_parts(schema, value)
        else:
            return problems
        for part, form, child in parts:
            if form is False:
                problems.append(((*place, part), "unexpected"))
            else:
                problems += self.run(form, child, (*place, part), depth)
            if len(problems) >= payload_errors_max:
                break
        return problems

    def _resolve(self, reference: str) -> Schema:
        """What a local reference points at; one that leads nowhere says nothing."""
        found: Any = self._root
        if not reference.startswith("#"):
            return True
        for part in filter(None, reference[1:].split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                return True
            found = found[key]
        return found if isinstance(found, dict | bool) else True


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object_parts(
    schema: dict[str, Any], value: dict[str, Any]
) -> Iterator[tuple[str | int, Schema, Any]]:
    properties = schema.get("properties")
    named: dict[str, Any] = properties if isinstance(properties, dict) else {}
    others = schema.get("additionalProperties", True)
    for key, child in value.items():
        yield key, named.get(key, others), child


def _array_parts(
    schema: dict[str, Any], value: list[Any]
) -> Iterator[tuple[str | int, Schema, Any]]:
    first = _list(schema.get("prefixItems"))
    others = schema.get("items", True)
    for index, child in enumerate(value):
        yield index, first[index] if index < len(first) else others, child


# ------------------------------------------------------------------------------ one value


def _own_problems(schema: dict[str, Any], value: Any) -> Iterator[str]:
    """What the keywords that concern this value alone have against it."""
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    # msgspec writes a Decimal as text but reads a number as well.
    if schema.get("format") == "decimal":
        kinds = [*kinds, "number"]
    if wanted is not None and not any(_is_kind(kind, value) for kind in kinds):
        yield f"expected {' or '.join(map(str, kinds))}, got {_kind(value)} {shown(value)}"
        return
    if "const" in schema and not _same(schema["const"], value):
        yield f"expected {shown(schema['const'])}, got {shown(value)}"
    if "enum" in schema and not any(_same(one, value) for one in _list(schema["enum"])):
        yield f"expected one of {shown(schema['enum'])}, got {shown(value)}"
    if isinstance(value, str):
        yield from _text_problems(schema, value)
    elif isinstance(value, list):
        yield from _size_problems(schema, len(value), "Items", "items")
    elif isinstance(value, dict):
        yield from _size_problems(schema, len(value), "Properties", "keys")
        missing = [name for name in _list(schema.get("required")) if name not in value]
        yield from (f"{shown(name)} is missing" for name in missing)
    elif _is_kind("number", value):
        yield from _number_problems(schema, value)


def _kind(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return "null" if value is None else kinds.get(type(value), "object")


def _is_kind(kind: Any, value: Any) -> bool:
    # Unlike the standard, 1.0 is no integer: msgspec refuses it, and neither engine writes it.
    return kind == _kind(value) or (kind == "number" and type(value) is int)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is not true."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _size_problems(schema: dict[str, Any], size: int, suffix: str, unit: str) -> Iterator[str]:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if isinstance(least, int) and size < least:
        yield f"{size} {unit}, at least {least} wanted"
    if isinstance(most, int) and size > most:
        yield f"{size} {unit}, at most {most} allowed"


def _number_problems(schema: dict[str, Any], value: int | float) -> Iterator[str]:
    bounds: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
        ("minimum", "at least", lambda bound: value >= bound),
        ("exclusiveMinimum", "more than", lambda bound: value > bound),
        ("maximum", "at most", lambda bound: value <= bound),
        ("exclusiveMaximum", "less than", lambda bound: value < bound),
        ("multipleOf", "a multiple of", lambda bound: _is_multiple(value, bound)),
    )
    for keyword, words, fits in bounds:
        bound = schema.get(keyword)
        if _is_kind("number", bound) and not fits(bound):
            yield f"{value} is not {words} {bound}"


def _is_multiple(value: int | float, step: int | float) -> bool:
    if step == 0:
        return True
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return math.isclose(math.remainder(value, step), 0.0, abs_tol=abs(step) * 1e-9)


def _text_problems(schema: dict[str, Any], value: str) -> Iterator[str]:
    yield from _size_problems(schema, len(value), "Length", "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _may_match(pattern, value):
        yield f"{shown(value)} does not match {shown(pattern)}"
    form = _formats.get(str(schema.get("format")))
    if form is not None and not form.fullmatch(value):
        yield f"{shown(value)} is not a {schema['format']}"
    if schema.get("contentEncoding") == "base64" and not _is_base64(value):
        yield f"{shown(value)} is not base64"


# A repeated group, or two repeats in a row, may backtrack without end.
_risky_pattern: Final = re.compile(r"\)[*+{]|[*+}][*+{]")


def _may_match(pattern: str, value: str) -> bool:
    """False only when a safe pattern was tried and failed; the receiver's codec checks the rest."""
    if len(pattern) > pattern_chars_max or len(value) > pattern_subject_chars_max:
        return True
    if _risky_pattern.search(pattern):
        return True
    try:
        return re.search(pattern, value) is not None
    except (re.error, RecursionError, OverflowError):
        return True


# Loose on purpose, and possessive where a text may be long.
_formats: Final = {
    "date-time": re.compile(r"\d{4}-\d\d-\d\d([Tt _]\d\d:?\d\d.{0,40})?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d([Tt ].{0,40})?"),
    "time": re.compile(r"\d\d:\d\d.{0,40}"),
    "duration": re.compile(r"[+-]?[Pp][0-9DTHMSWYdthmswy.,+-]{1,80}"),
    "uuid": re.compile(r"(urn:uuid:)?\{?[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\}?"),
    "decimal": re.compile(r"[+-]?(?:[0-9_]++\.?[0-9_]*+|\.[0-9_]++)(?:[eE][+-]?[0-9]++)?"),
}
_base64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")


def _is_base64(value: str) -> bool:
    return len(value) % 4 == 0 and _base64.fullmatch(value) is not None
