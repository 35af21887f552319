"""Redaction: values without what few are to see. Pure.

A name is a key (`password`), or keys one right inside the other (`card.number`), however deep they are; lists in
between do not count, nor does case. The whole value under such a key is hidden, whatever it is. Names are checked and
bounded here, once, when an App is made. What texts say of such values is the business of quoting.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from perdure.model import limits
from perdure.model.limits import BadValue, check_words
from perdure.observing.quoting import Quoting

HIDDEN: Final = "[redacted]"
# Names of fields, for who has no code to say them in: separated by white space.
REDACT_VARIABLE: Final = "PERDURE_REDACT"

# Deeper than any payload: what goes on below this, such as an object of a log line that holds itself, is not looked at.
_depth_max: Final = limits.payload_depth_max + 8
# What a schema says of values.
_said: Final = frozenset({"default", "examples", "example", "enum", "const"})
# What holds schemas by names, which are no keywords.
_maps: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})


class Redaction:
    """The fields of an app that are to be seen by few."""

    __slots__ = ("__weakref__", "_before", "_quoting", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = _checked(names)
        # By the last key of a name, in small letters: the keys that must stand before it.
        self._before: dict[str, list[tuple[str, ...]]] = {}
        for name in self.names:
            *before, last = name.lower().split(".")
            self._before.setdefault(last, []).append(tuple(before))
        self._quoting = Quoting(self._before, self.hides_within, HIDDEN)

    def __repr__(self) -> str:
        return f"Redaction({list(self.names)!r})"

    # --- which ---

    def hides(self, path: tuple[str, ...]) -> bool:
        """Whether what stands under these keys is hidden; they are in small letters."""
        asked = self._before.get(path[-1])
        if asked is None:
            return False
        return any(not one or path[-1 - len(one) : -1] == one for one in asked)

    def hides_within(self, keys: Iterable[str]) -> bool:
        """Whether a place is hidden, by itself or as part of what is."""
        path = tuple(one.lower() for one in keys)
        return any(self.hides(path[:end]) for end in range(1, len(path) + 1))

    # --- values ---

    def of(self, value: Any, under: tuple[str, ...] = ()) -> Any:
        """A value of JSON without what is hidden: a copy, where anything is; `under` are the keys it stands under."""
        path = tuple(one.lower() for one in under)
        if path and self.hides_within(path):
            return HIDDEN
        return self._of(value, path, _depth_max)

    def _of(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, Mapping):
            if not depth:
                return HIDDEN
            return {key: self._under(key, one, path, depth - 1) for key, one in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._of(one, path, depth - 1) for one in value] if depth else HIDDEN
        return value

    def _under(self, key: Any, value: Any, path: tuple[str, ...], depth: int) -> Any:
        inner = (*path, str(key).lower())
        return HIDDEN if self.hides(inner) else self._of(value, inner, depth)

    def hidden_in(self, value: Any) -> set[str]:
        """What is hidden of a value of JSON, each leaf as text: for texts that may quote it."""
        return {str(one) for one in self._hidden(value, ()) if not isinstance(one, bool)}

    def _hidden(self, value: Any, path: tuple[str, ...]) -> Iterator[Any]:
        if isinstance(value, Mapping):
            for key, one in value.items():
                inner = (*path, str(key).lower())
                yield from _leaves(one) if self.hides(inner) else self._hidden(one, inner)
        elif isinstance(value, list | tuple):
            for one in value:
                yield from self._hidden(one, path)

    # --- texts ---

    def text(self, text: str, hidden: Iterable[str] = ()) -> str:
        """A text without what it says of hidden fields, as far as it shows; and without these values."""
        return self._quoting.without(text, hidden)

    # --- schemas ---

    def schema(self, schema: Any) -> Any:
        """A JSON schema without the values that it gives for hidden fields. The fields themselves stay: forms need
        them. Of a name only the last key counts here, for a schema says by references what stands in what."""
        if not isinstance(schema, dict):
            return schema
        return self._schema(schema, _with_targets(schema, self._hidden_parts(schema)), hidden=False)

    def _hidden_parts(self, schema: Any) -> Iterator[Any]:
        for part in _parts(schema):
            for key, one in _named(part, "properties"):
                if key.lower() in self._before:
                    yield one
            # An argument of a workflow stands in a list, and its title is its name.
            title = part.get("title")
            if isinstance(title, str) and title.lower() in self._before:
                yield part

    def _schema(self, schema: Any, hidden_ids: set[int], *, hidden: bool) -> Any:
        if isinstance(schema, list):
            return [self._schema(one, hidden_ids, hidden=hidden) for one in schema]
        if not isinstance(schema, dict):
            return schema
        hidden = hidden or id(schema) in hidden_ids
        shown: dict[str, Any] = {}
        for key, one in schema.items():
            if key in _said:
                if not hidden:
                    shown[key] = self._example(one)
            elif key in _maps and isinstance(one, dict):
                parts = one.items()
                shown[key] = {
                    name: self._schema(each, hidden_ids, hidden=hidden) for name, each in parts
                }
            else:
                shown[key] = self._schema(one, hidden_ids, hidden=hidden)
        return shown

    def _example(self, value: Any) -> Any:
        """A value that a schema gives."""
        if isinstance(value, dict):
            return {
                key: HIDDEN if key.lower() in self._before else self._example(one)
                for key, one in value.items()
            }
        return [self._example(one) for one in value] if isinstance(value, list) else value


def _checked(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadValue("redact", names, 'is no list of names: redact=["password", "card.number"]')
    checked = tuple(dict.fromkeys(_checked_name(one) for one in names))
    if len(checked) > limits.redacted_names_max:
        most = f"at most {limits.redacted_names_max} (redacted_names_max)"
        raise BadValue("redact", limits.unsaid, f"names {len(checked)} fields; {most}")
    return checked


def _checked_name(value: object) -> str:
    name = check_words("redacted name", value, limits.name_bytes_max, "name_bytes_max")
    keys = name.split(".")
    if "" in keys or name != name.strip():
        problem = "has an empty key; write keys between single dots, as 'card.number'"
        raise BadValue("redacted name", name, problem)
    if len(keys) > limits.redacted_keys_max:
        most = f"at most {limits.redacted_keys_max} (redacted_keys_max)"
        raise BadValue("redacted name", name, f"has {len(keys)} keys; {most}")
    return name


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    elif value is not None:
        yield value


# --- parts of schemas ---


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all schemas in it."""
    if isinstance(schema, list):
        for one in schema:
            yield from _parts(one)
    elif isinstance(schema, dict):
        yield schema
        for key, one in schema.items():
            if key in _maps:
                for _, each in _named(schema, key):
                    yield from _parts(each)
            elif key not in _said:
                yield from _parts(one)


def _named(schema: dict[str, Any], key: str) -> Iterable[tuple[str, Any]]:
    found = schema.get(key)
    return found.items() if isinstance(found, dict) else ()


def _with_targets(schema: dict[str, Any], parts: Iterable[Any]) -> set[int]:
    """These parts, and those that they refer to, wherever those are defined; by identity."""
    definitions = dict(_named(schema, "$defs"))
    found: set[int] = set()
    ahead = list(parts)
    while ahead:
        part = ahead.pop()
        if id(part) in found:
            continue
        found.add(id(part))
        references = [inner.get("$ref") for inner in _parts(part)]
        names = [one.removeprefix("#/$defs/") for one in references if isinstance(one, str)]
        ahead += [definitions[name] for name in names if name in definitions]
    return found
