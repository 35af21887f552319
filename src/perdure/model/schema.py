"""Check JSON text against a stored JSON Schema, for senders that have only the catalogue.

Knows the part of JSON Schema 2020-12 that msgspec and pydantic write, and the marks that say how a codec reads what
the standard has no word for (`forms`); other keywords are ignored. Where a schema is marked we decide as the codec.
Elsewhere, where two disagree, we are the looser one, for the typed codec at the receiving end has the last word; but
with `strict`, for a sender that has no codec, the one that lets nothing pass. `beyond` says what of a schema we cannot
decide, so that whoever has no codec asks somebody else. Schema and text may both come from outside, so depth, work and
patterns are bounded.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from perdure.model.codec import Place, place_text
from perdure.model.forms import (
    beyond_us,
    custom_problems,
    has_digits,
    is_set,
    mark_of,
    stands_for_number,
    text_number,
    text_problems,
)
from perdure.model.limits import BadValue, check_payload, payload_errors_max, shown
from perdure.model.patterns import Work, can_tell, search

# A value 64 deep through a reference, a union and a field at each level stays below this.
schema_depth_max = 300
# `anyOf` inside `anyOf` multiplies; a payload of 100,000 values needs some checks for each.
schema_checks_max = 500_000

Schema = dict[str, Any] | bool


def check_schema(schema: dict[str, Any], text: str | bytes, *, strict: bool = False) -> list[str]:
    """What is wrong with the text, each as "at $.a.b: …"; an empty list if it fits.

    With `strict`, for one who has no codec to ask afterwards, a text that is too long for its pattern does not fit, and
    of a format only what its reader takes for sure.
    """
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    try:
        check_payload(raw)
        value = msgspec.json.decode(raw)
    except (BadValue, ValueError, RecursionError) as error:
        return [f"at $: {error}"]
    try:
        problems = _Check(schema, strict).run(schema, value, (), 0)
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
    def __init__(self, root: dict[str, Any], strict: bool) -> None:
        self._root, self._strict = root, strict
        self._checks = 0
        self._work = Work()
        self._choices: dict[int, frozenset[bytes]] = {}

    def run(self, schema: Schema, value: Any, place: Place, depth: int) -> Problems:
        self._checks += 1
        if depth > schema_depth_max or self._checks > schema_checks_max:
            raise _TooMuch
        if schema is False:
            return [(place, "nothing is allowed here")]
        if not isinstance(schema, dict):
            return []
        problems = [(place, reason) for reason in self._own_problems(schema, value)]
        # A value of the wrong kind has no parts worth talking about.
        if not problems:
            problems = [*self._combined(schema, value, place, depth + 1)]
            problems += self._inside(schema, value, place, depth + 1)
        return problems

    def _combined(self, schema: dict[str, Any], value: Any, place: Place, depth: int) -> Problems:
        problems: Problems = []
        if stands_for_number(mark := mark_of(schema)):
            number = text_number(mark, value) if isinstance(value, str) else None
            if number is None:
                problems.append((place, f"{shown(value)} does not stand for a number of its type"))
            else:
                problems += self.run(mark.get("as", True), number, place, depth)
        if self._strict and isinstance(value, str) and "contentSchema" in schema:
            problems += self._content(schema, value, place, depth)
        if isinstance(reference := schema.get("$ref"), str):
            problems += self.run(self._resolve(reference), value, place, depth)
        for one in _list(schema.get("allOf")):
            problems += self.run(one, value, place, depth)
        for name in ("anyOf", "oneOf"):
            if forms := _list(schema.get(name)):
                # Of a tagged union one fits. Elsewhere a codec may choose among several by what no schema tells.
                only_one = name == "oneOf" and "discriminator" in schema
                problems += self._any_of(forms, value, place, depth, only_one)
        return problems

    def _content(self, schema: dict[str, Any], value: str, place: Place, depth: int) -> Problems:
        """What is wrong with a text that is to be JSON itself."""
        if schema.get("contentMediaType") != "application/json":
            return []
        try:
            return self.run(schema["contentSchema"], msgspec.json.decode(value), place, depth)
        except msgspec.DecodeError as error:
            return [(place, f"its text is no JSON: {error}")]

    def _any_of(
        self, forms: list[Schema], value: Any, place: Place, depth: int, only_one: bool
    ) -> Problems:
        best: Problems | None = None
        fits = False
        for form in forms:
            problems = self.run(form, value, place, depth)
            if not problems and not only_one:
                return []
            if not problems and fits:
                return [(place, f"fits several of {len(forms)} forms, and one is wanted")]
            if not problems:
                fits = True
                continue
            # The form that was followed deepest is the one that was meant.
            if best is None or len(problems[0][0]) > len(best[0][0]):
                best = problems
        if fits:
            return []
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
            parts = self._object_parts(schema, value)
        elif isinstance(value, list):
            parts = _array_parts(schema, value)
        else:
            return problems
        if isinstance(value, list) and "contains" in schema:
            problems += self._contained(schema, value, place, depth)
        for part, form, child in parts:
            if form is False:
                problems.append(((*place, part), "unexpected"))
            else:
                problems += self.run(form, child, (*place, part), depth)
            if len(problems) >= payload_errors_max:
                break
        return problems

    def _contained(
        self, schema: dict[str, Any], value: list[Any], place: Place, depth: int
    ) -> Problems:
        wanted = schema.get("minContains", 1)
        if not isinstance(wanted, int) or wanted <= 0:
            return []
        fits = 0
        for index, child in enumerate(value):
            fits += not self.run(schema["contains"], child, (*place, index), depth)
            if fits >= wanted:
                return []
        return [(place, f"{fits} items are of the form that is wanted {wanted} times")]

    def _object_parts(
        self, schema: dict[str, Any], value: dict[str, Any]
    ) -> Iterator[tuple[str | int, Schema, Any]]:
        named, by_pattern = _dict(schema.get("properties")), _dict(schema.get("patternProperties"))
        others, names = schema.get("additionalProperties", True), schema.get("propertyNames", True)
        for key, child in value.items():
            if names is not True:
                yield key, names, key
            forms = [named[key]] if key in named else []
            forms += [form for one, form in by_pattern.items() if self._may_match(one, key)]
            for form in forms or [others]:
                yield key, form, child

    def _own_problems(self, schema: dict[str, Any], value: Any) -> Iterator[str]:
        """What the keywords that concern this value alone have against it."""
        mark = mark_of(schema)
        if mark.get("reads") == "custom":
            yield from custom_problems(mark, value)
        yield from _own_problems(schema, value, self._is_one_of, self._strict)
        pattern = schema.get("pattern")
        if not isinstance(value, str) or not isinstance(pattern, str):
            return
        found = search(pattern, value, self._work)
        if found is False:
            yield f"{shown(value)} does not match {shown(pattern)}"
        elif found is None and self._strict and can_tell(pattern):
            yield f"a text of {len(value)} characters is too long to look for {shown(pattern)}"

    def _is_one_of(self, choices: list[Any], value: Any) -> bool:
        """As JSON. A payload may have a value of few choices a hundred thousand times: each costs the same."""
        texts = self._choices.get(id(choices))
        if texts is None:
            texts = self._choices[id(choices)] = frozenset(map(_json, choices))
        return _json(value) in texts

    def _may_match(self, pattern: str, key: str) -> bool:
        """False only when a pattern was tried and failed; the receiver's codec checks the rest."""
        return search(pattern, key, self._work) is not False

    def _resolve(self, reference: str) -> Schema:
        """What a local reference points at; one that leads nowhere says nothing."""
        found = _pointed_at(self._root, reference)
        return True if found is None else found


class Chooser:
    """Which of several forms of a schema a value has."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._check = _Check(root, strict=False)

    def chosen(self, form: dict[str, Any], value: Any) -> Schema:
        """The form that says more about the value, behind a reference or among alternatives; or the same."""
        if isinstance(reference := form.get("$ref"), str):
            found = _pointed_at(self._root, reference)
            return form if found is None else found
        for one in (*_list(form.get("anyOf")), *_list(form.get("oneOf"))):
            try:
                if not self._check.run(one, value, (), 0):
                    return one if isinstance(one, dict) else form
            except _TooMuch:
                raise RecursionError from None
        return form


def _pointed_at(root: dict[str, Any], reference: str) -> Schema | None:
    found: Any = root
    if not reference.startswith("#"):
        return None
    for part in filter(None, reference[1:].split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, dict | bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _array_parts(
    schema: dict[str, Any], value: list[Any]
) -> Iterator[tuple[str | int, Schema, Any]]:
    first = _list(schema.get("prefixItems"))
    others = schema.get("items", True)
    for index, child in enumerate(value):
        yield index, first[index] if index < len(first) else others, child


# ------------------------------------------------------------------------------ one value


def _own_problems(
    schema: dict[str, Any],
    value: Any,
    is_one_of: Callable[[list[Any], Any], bool],
    strict: bool,
) -> Iterator[str]:
    """What the keywords that concern this value alone have against it."""
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    # msgspec writes a Decimal as text but reads a number as well.
    if schema.get("format") == "decimal":
        kinds = [*kinds, "number"]
    if wanted is not None and not any(_is_kind(kind, value) for kind in kinds):
        yield f"expected {' or '.join(map(str, kinds))}, got {_kind(value)} {shown(value)}"
        return
    if "const" in schema and _json(schema["const"]) != _json(value):
        yield f"expected {shown(schema['const'])}, got {shown(value)}"
    if "enum" in schema and not is_one_of(_list(schema["enum"]), value):
        yield f"expected one of {shown(schema['enum'])}, got {shown(value)}"
    if isinstance(value, str):
        yield from _text_problems(schema, value, strict)
    elif isinstance(value, list):
        as_set = is_set(schema)
        size = len(_members(value)) if as_set else len(value)
        yield from _size_problems(schema, size, "Items", "items")
        if schema.get("uniqueItems") is True and not as_set and has_twins(value):
            yield "an item is there twice"
    elif isinstance(value, dict):
        yield from _size_problems(schema, len(value), "Properties", "keys")
        missing = [name for name in _list(schema.get("required")) if name not in value]
        yield from (f"{shown(name)} is missing" for name in missing)
        for name, others in _dict(schema.get("dependentRequired")).items():
            lacking = [one for one in _list(others) if name in value and one not in value]
            yield from (f"{shown(one)} is missing beside {shown(name)}" for one in lacking)
    elif _is_kind("number", value):
        yield from _number_problems(schema, value)


def _kind(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return "null" if value is None else kinds.get(type(value), "object")


def _is_kind(kind: Any, value: Any) -> bool:
    # Unlike the standard, 1.0 is no integer: msgspec refuses it, and neither engine writes it.
    return kind == _kind(value) or (kind == "number" and type(value) is int)


def _json(value: Any) -> bytes:
    """The same for what is equal as JSON: 1 is not true."""
    return msgspec.json.encode(value, order="sorted")


def has_twins(items: list[Any]) -> bool:
    """Whether an item is there twice, as JSON Schema has it."""
    return len(_members(items)) < len(items)


def _members(items: list[Any]) -> set[bytes]:
    """Each of them once."""
    return {_json(whole(one)) for one in items}


def whole(value: Any) -> Any:
    """The value with 1 for 1.0: they are the same number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(one) for one in value]
    return {key: whole(one) for key, one in value.items()} if isinstance(value, dict) else value


def _size_problems(schema: dict[str, Any], size: int, suffix: str, unit: str) -> Iterator[str]:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if isinstance(least, int) and size < least:
        yield f"{size} {unit}, at least {least} wanted"
    if isinstance(most, int) and size > most:
        yield f"{size} {unit}, at most {most} allowed"


def _number_problems(schema: dict[str, Any], value: int | float) -> Iterator[str]:
    mark = mark_of(schema)
    if mark.get("reads") == "decimal number" and not has_digits(mark, Decimal(repr(value))):
        yield f"{value} has too many digits"
    exactly = mark.get("reads") == "number"
    bounds: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
        ("minimum", "at least", lambda bound: value >= bound),
        ("exclusiveMinimum", "more than", lambda bound: value > bound),
        ("maximum", "at most", lambda bound: value <= bound),
        ("exclusiveMaximum", "less than", lambda bound: value < bound),
        ("multipleOf", "a multiple of", lambda bound: _is_multiple(value, bound, exactly)),
    )
    for keyword, words, fits in bounds:
        bound = schema.get(keyword)
        if _is_kind("number", bound) and not fits(bound):
            yield f"{value} is not {words} {bound}"


def _is_multiple(value: int | float, step: int | float, exactly: bool) -> bool:
    if step == 0:
        return True
    if exactly:
        return math.fmod(value, step) == 0
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return math.isclose(math.remainder(value, step), 0.0, abs_tol=abs(step) * 1e-9)


def _text_problems(schema: dict[str, Any], value: str, strict: bool) -> Iterator[str]:
    # Of a text that stands for bytes the bytes are counted.
    if mark_of(schema).get("reads") != "base64":
        yield from _size_problems(schema, len(value), "Length", "characters")
    yield from text_problems(schema, value, strict)


# --------------------------------------------------------------------- what we cannot decide


class Beyond(NamedTuple):
    """What of a schema `check_schema` does not decide: for whoever knows all keywords, and for nobody."""

    keywords: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keywords or self.never)


def beyond(schema: dict[str, Any]) -> Beyond:
    """What a schema asks for that `check_schema` does not decide. Unknown keywords ask for nothing."""
    survey = _Survey(schema)
    try:
        survey.visit(schema)
    except RecursionError:
        return Beyond(never=("parts that are nested too deep",))
    if survey.keywords and survey.has_patterns_of_names:
        # Others look for such patterns themselves, and may do so for ages.
        survey.never["`patternProperties` beside what only others can check"] = None
    return Beyond(tuple(survey.keywords), tuple(survey.never))


_others_know: Final = (
    *("not", "if", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties"),
    *("maxContains", "$dynamicRef"),
)
_one_form: Final = ("items", "additionalProperties", "contains", "propertyNames")
_many_forms: Final = ("prefixItems", "allOf", "anyOf", "oneOf")
_named_forms: Final = ("properties", "patternProperties", "dependentSchemas")
_kinds: Final = ("string", "boolean", "integer", "number", "array", "object", "null")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_type(value: Any) -> bool:
    return all(one in _kinds for one in (value if isinstance(value, list) else [value]))


# What stands under a keyword, where it counts for us: of another shape we would not see it.
_shapes: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list),
    "required": _is_names,
    "dependentRequired": lambda value: (
        isinstance(value, dict) and all(map(_is_names, value.values()))
    ),
    "uniqueItems": lambda value: isinstance(value, bool),
    "pattern": lambda value: isinstance(value, str),
    "$ref": lambda value: isinstance(value, str),
    **{
        f"{end}{what}": _is_size
        for end in ("min", "max")
        for what in ("Length", "Items", "Properties", "Contains")
    },
    **{
        name: lambda value: _is_kind("number", value)
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    },
    **{name: lambda value: isinstance(value, dict | bool) for name in _one_form},
    **{name: lambda value: isinstance(value, list) for name in _many_forms},
    **{name: lambda value: isinstance(value, dict) for name in _named_forms},
}


class _Survey:
    """A walk over all forms of a schema that a value can meet."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._visited: set[int] = set()
        self.keywords: dict[str, None] = {}  # in the order of finding
        self.never: dict[str, None] = {}
        self.has_patterns_of_names = False

    def visit(self, form: Any) -> None:
        if isinstance(form, bool) or id(form) in self._visited:
            return
        self._visited.add(id(form))
        if not isinstance(form, dict):
            self.never[f"{shown(form)} where a schema should be"] = None
            return
        self._look(form)
        for name in _one_form:
            if name in form:
                self.visit(form[name])
        for name in _many_forms:
            for one in _list(form.get(name)):
                self.visit(one)
        for name in _named_forms:
            for one in _dict(form.get(name)).values():
                self.visit(one)
        for name in ("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"):
            if name in form:
                self.visit(form[name])

    def _look(self, form: dict[str, Any]) -> None:
        self.keywords.update((f"`{name}`", None) for name in _others_know if name in form)
        if "oneOf" in form and "discriminator" not in form:
            self.keywords["`oneOf` without a discriminator"] = None
        for name, fits in _shapes.items():
            if name in form and not fits(form[name]):
                self.never[f"{shown(form[name])} as `{name}`"] = None
        if (who := beyond_us(form)) is not None:
            self.never[f"the type {who}, which only its code can read"] = None
        self._look_at_patterns(form)
        self._look_at_links(form)

    def _look_at_patterns(self, form: dict[str, Any]) -> None:
        names = list(_dict(form.get("patternProperties")))
        self.has_patterns_of_names |= bool(names)
        pattern = form.get("pattern")
        for one in [*names, *([pattern] if isinstance(pattern, str) else [])]:
            if not can_tell(one):
                self.never[f"the pattern {shown(one)}, which might take for ever"] = None

    def _look_at_links(self, form: dict[str, Any]) -> None:
        if form is self._root:
            if "2020-12" not in str(form.get("$schema", "2020-12")):
                self.never[f"another dialect, {shown(form['$schema'])}"] = None
        elif "$schema" in form or "$id" in form:
            self.never["a schema within, with an `$id` or `$schema` of its own"] = None
        if isinstance(reference := form.get("$ref"), str):
            target = None if "%" in reference else _pointed_at(self._root, reference)
            if target is None:
                self.never[f"a reference that leads nowhere here, {shown(reference)}"] = None
            else:
                self.visit(target)
