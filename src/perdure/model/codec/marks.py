"""What a catalogue's schema says beyond JSON Schema, so that whoever has no codec can decide as the codec does.

JSON Schema has no word for what msgspec asks of a text that is a date, of the keys of a `dict[int, …]`, of a datetime
that must have a zone, of how often an item may stand in what becomes a set. It is written into the schema when it is
made: keys as `propertyNames`, all else under one keyword, `x-perdure`, which other readers skip. `model/forms.py` reads
it. Marks only add: a schema is as right without them as it was, and looser.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect as hints

from perdure.model.codec.custom import custom_of
from perdure.model.forms import FLOAT_KEY, INT_KEY, MARK

Form = dict[str, Any]


def marked(hint: Any, schema: Form) -> Form:
    """msgspec's schema of a hint, with marks."""
    root = copy.deepcopy(schema)  # a user's own schema may be part of it
    _Marking(root).visit(hints.type_info(hint), root)
    return root


_leaves: Final[dict[type, tuple[str, str | None]]] = {
    hints.DateTimeType: ("date-time", None),  # as a format it would ask for a zone
    hints.TimeType: ("time", None),
    hints.DateType: ("date", "date"),
    hints.TimeDeltaType: ("duration", "duration"),
    hints.UUIDType: ("uuid", "uuid"),
    hints.DecimalType: ("decimal", "decimal"),
    hints.BytesType: ("base64", None),
    hints.ByteArrayType: ("base64", None),
    hints.MemoryViewType: ("base64", None),
}
_empty: Final[dict[Any, Any]] = {list: [], tuple: [], set: [], frozenset: [], dict: {}}
_numbers: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"} | {
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_kinds: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((*_leaves, hints.StrType), "string"),
    ((hints.IntType,), "integer"),
    ((hints.FloatType,), "number"),
    ((hints.CollectionType, hints.TupleType, hints.NamedTupleType), "array"),
    ((hints.DictType, hints.TypedDictType, hints.DataclassType, hints.StructType), "object"),
)


class _Marking:
    """A walk over a type and its schema side by side."""

    def __init__(self, root: Form) -> None:
        self._definitions = root.get("$defs", {})
        self._visited: set[int] = set()

    def visit(self, node: hints.Type, form: Any) -> None:
        node, form = _bare(node), self._resolved(form)
        if not isinstance(form, dict) or id(form) in self._visited:
            return
        self._visited.add(id(form))
        if type(node) in _leaves:
            form[MARK] = _leaf_mark(node)
        elif isinstance(node, hints.FloatType) and node.multiple_of is not None:
            form[MARK] = {"reads": "number"}
        elif isinstance(node, hints.CustomType):
            custom = custom_of(node.cls)
            form[MARK] = {"reads": "custom", "name": custom.name if custom else ""}
        elif isinstance(node, hints.UnionType):
            self._visit_union(node, form)
        else:
            self._visit_parts(node, form)

    def _visit_parts(self, node: hints.Type, form: Form) -> None:
        if isinstance(node, hints.SetType | hints.FrozenSetType):
            form[MARK] = {"reads": "set"}
        if isinstance(node, hints.CollectionType):
            self.visit(node.item_type, form.get("items"))
        elif isinstance(node, hints.TupleType):
            for inner, part in zip(node.item_types, form.get("prefixItems", ()), strict=False):
                self.visit(inner, part)
        elif isinstance(node, hints.DictType):
            names = _key_form(node.key_type)
            if names is not None:
                form["propertyNames"] = names
            self.visit(node.value_type, form.get("additionalProperties"))
        else:
            self._visit_fields(node, form)

    def _visit_fields(self, node: Any, form: Form) -> None:
        fields: tuple[hints.Field, ...] = getattr(node, "fields", ())
        if "prefixItems" in form:
            parts = form["prefixItems"][len(form["prefixItems"]) - len(fields) :]  # after a tag
            for field, part in zip(fields, parts, strict=False):
                self.visit(field.type, part)
            return
        for field in fields:
            part = form.get("properties", {}).get(field.encode_name)
            made = empty_of(field.default_factory)
            if isinstance(part, dict) and made is not None:
                part.setdefault("default", made)  # msgspec tells this of Structs only
            self.visit(field.type, part)

    def _visit_union(self, node: hints.UnionType, form: Form) -> None:
        """Each member with its form; whichever order they stand in, no two of a kind are told apart by less."""
        forms = list(_alternatives(form))
        for member in node.types:
            for one in forms:
                if self._is_of(_bare(member), self._resolved(one)):
                    self.visit(member, one)
                    break

    def _is_of(self, node: Any, form: Any) -> bool:
        kind = _kind_of(node)
        if kind is None:
            # Only a registered leaf has neither a kind of its own nor anything in its form that would tell it.
            return isinstance(node, hints.CustomType) and form.keys() <= {"title"}
        if form.get("type") != kind:
            return False
        tag = getattr(node, "tag", None)
        if tag is None:
            return True
        tags = [*form.get("properties", {}).values(), *form.get("prefixItems", ())][:1]
        return bool(tags) and tags[0].get("enum") == [tag]

    def _resolved(self, form: Any) -> Any:
        if isinstance(form, dict) and "$ref" in form:
            return self._definitions.get(form["$ref"].rpartition("/")[2], {})
        return form


def _bare(node: hints.Type) -> Any:
    while isinstance(node, hints.Metadata):
        node = node.type
    return node


def _alternatives(form: Form) -> Iterator[Form]:
    for one in form.get("anyOf", ()):
        if "anyOf" in one:
            yield from _alternatives(one)
        else:
            yield one


def _kind_of(node: Any) -> str | None:
    if getattr(node, "array_like", False):
        return "array"
    return next((kind for classes, kind in _kinds if isinstance(node, classes)), None)


def _leaf_mark(node: Any) -> Form:
    reads, _ = _leaves[type(node)]
    mark: Form = {"reads": reads}
    if getattr(node, "tz", None) is not None:
        mark["tz"] = node.tz
    for name, bound in (("min", "min_length"), ("max", "max_length")):
        if getattr(node, bound, None) is not None:
            mark[name] = getattr(node, bound)
    return mark


def empty_of(factory: Any) -> Any:
    """What a factory of defaults makes, if it is an empty container; what others would make nobody knows."""
    return next((made for kind, made in _empty.items() if kind is factory), None)


# --- keys ---


def _key_form(node: hints.Type) -> Form | None:
    """What the names of an object's members must be to be read as keys of that type; None if any text is."""
    key = _bare(node)
    if isinstance(key, hints.AnyType | hints.StrType):
        return None  # what is asked of texts msgspec writes itself
    if isinstance(key, hints.UnionType):
        return {"anyOf": [_key_form(one) or _text_form(_bare(one)) for one in key.types]}
    if isinstance(key, hints.IntType | hints.FloatType):
        return number_key(_number_form(key))
    if isinstance(key, hints.EnumType):
        return {"enum": sorted(str(one.value) for one in key.cls)}
    if isinstance(key, hints.LiteralType):
        return {"enum": sorted(map(str, key.values))}
    _, format = _leaves[type(key)]
    is_decimal = isinstance(key, hints.DecimalType)
    mark = {"reads": "decimal key"} if is_decimal else _leaf_mark(key)
    form: Form = {"type": "string", MARK: mark}
    return form if format is None else {**form, "format": format}


def number_key(form: Form) -> Form:
    """The name of a member that is read as a number of this form."""
    is_whole = form.get("type") == "integer"
    mark = {"reads": "integer key" if is_whole else "number key", "as": form}
    return {"type": "string", "pattern": INT_KEY if is_whole else FLOAT_KEY, MARK: mark}


def _number_form(key: Any) -> Form:
    form: Form = {"type": "integer" if isinstance(key, hints.IntType) else "number"}
    if isinstance(key, hints.FloatType) and key.multiple_of is not None:
        form[MARK] = {"reads": "number"}
    bounds = {word: getattr(key, name) for name, word in _numbers.items()}
    return form | {word: bound for word, bound in bounds.items() if bound is not None}


def _text_form(key: Any) -> Form:
    names = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
    bounds = {word: getattr(key, name, None) for name, word in names.items()}
    return {"type": "string", **{word: one for word, one in bounds.items() if one is not None}}
