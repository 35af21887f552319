"""Whether JSON text fits a schema of the catalogue, for senders that have only a name: no code, so no codec.

Our own checker goes first, and mostly decides. What a schema asks for beyond it is asked of `jsonschema`, which comes
with the extras `server` and `cli`. Whatever neither can decide is refused: nothing unchecked goes on from here. Schemas
come from users' types and texts from anybody, so nothing is fetched, patterns are matched by our own matcher, and the
work is bounded.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from perdure.errors import Uncheckable
from perdure.model.codec import place_text
from perdure.model.forms import is_set
from perdure.model.limits import payload_errors_max, shown
from perdure.model.patterns import Work, search
from perdure.model.schema import beyond, check_schema, has_twins, schema_checks_max

_with_the_code = "send it from an app that has the code, or change the type"


def is_slow(schema: dict[str, Any]) -> bool:
    """Whether it takes more than our own checker, so that others should not have to wait for it."""
    return bool(beyond(schema).keywords)


def misfits(what: str, schema: dict[str, Any], text: str) -> list[str]:
    """What is wrong with the text, each as "at $.a.b: …". Raises Uncheckable if that cannot be told."""
    errors = check_schema(schema, text, strict=True)
    if errors:
        return errors
    more = beyond(schema)
    if more.never:
        raise Uncheckable(what, f"its schema has {', '.join(more.never)}; {_with_the_code}")
    if not more.keywords:
        return []
    return _Judge(what, schema, more.keywords).errors(json.loads(text))


class _TooMuch(Exception):
    """The bound on work was reached."""


class _Judge:
    """jsonschema, with bounds."""

    def __init__(self, what: str, schema: dict[str, Any], keywords: tuple[str, ...]) -> None:
        self._what = what
        # Without the name of its dialect, by which jsonschema would go back to its own rules.
        self._schema = {name: part for name, part in schema.items() if name != "$schema"}
        self._keywords = keywords
        self._checks = 0
        self._work = Work()

    def errors(self, value: Any) -> list[str]:
        try:
            import jsonschema
            import referencing.exceptions
        except ImportError as error:
            has = f"its schema has {', '.join(self._keywords)}, for which jsonschema is needed"
            cure = "pip install 'perdure[server]' or 'perdure[cli]', or send it from an app that has the code"
            raise Uncheckable(self._what, f"{has}: {cure}") from error
        kind = jsonschema.Draft202012Validator
        try:
            kind.check_schema(self._schema)
            extend: Any = jsonschema.validators.extend
            bounded = extend(kind, self._rules(kind.VALIDATORS))
            # An empty registry: a reference that leads out of the schema leads nowhere, and nothing is fetched.
            validator = bounded(self._schema, registry=referencing.Registry())
            return [_told(error) for error in _first(validator.iter_errors(value))]
        except jsonschema.SchemaError as error:
            why = f"its schema is none: {error.message}; {_with_the_code}"
        except referencing.exceptions.Unresolvable as error:
            why = f"its schema has a reference that leads nowhere, {shown(error.ref)}; {_with_the_code}"
        except (_TooMuch, RecursionError):
            why = f"its schema is too deep or too ambiguous; {_with_the_code}"
        raise Uncheckable(self._what, why)

    def _rules(self, known: Any) -> dict[str, Any]:
        own = {
            "pattern": self._pattern,
            "type": _type_or_decimal(known["type"]),
            "uniqueItems": _unique,  # that of jsonschema compares all with all
        }
        return {name: self._counted(rule) for name, rule in {**known, **own}.items()}

    def _counted(self, rule: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def counted(validator: Any, said: Any, value: Any, schema: Any) -> Iterator[Any]:
            self._checks += len(said) if isinstance(said, list) else 1
            if self._checks > schema_checks_max:
                raise _TooMuch
            yield from rule(validator, said, value, schema) or ()

        return counted

    def _pattern(self, validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
        from jsonschema import ValidationError

        if isinstance(value, str) and search(pattern, value, self._work) is not True:
            yield ValidationError(f"{shown(value)} does not match {shown(pattern)}")


def _unique(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if wanted and isinstance(value, list) and not is_set(schema) and has_twins(value):
        yield ValidationError("an item is there twice")


def _type_or_decimal(rule: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """msgspec writes a Decimal as text but reads a number as well."""

    def ruled(validator: Any, kinds: Any, value: Any, schema: Any) -> Iterator[Any]:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and schema.get("format") == "decimal"):
            yield from rule(validator, kinds, value, schema) or ()

    return ruled


def _first(errors: Iterator[Any]) -> list[Any]:
    return [error for error, _ in zip(errors, range(payload_errors_max), strict=False)]


def _told(error: Any) -> str:
    message = error.message if len(error.message) <= 200 else f"does not fit `{error.validator}`"
    return f"at {place_text(tuple(error.absolute_path))}: {message}"
