"""The codec of hints that mention a pydantic model, anywhere in their tree.

The whole hint is then pydantic's, never shared with msgspec: mixing them corrupts bytes silently.
pydantic is not a dependency, so it must never be imported at module level: users who have no model
pay nothing. What pydantic accepts beyond JSON (NaN, 1e400) is refused here.
"""

import functools
from typing import Any

from perdure.model.codec.errors import BadPayload, Unencodable, Unfit, first_line, place_text, told
from perdure.model.codec.marks import empty_of, number_key
from perdure.model.codec.text import read_json, write_json
from perdure.model.codec.typed import TypedCodec
from perdure.model.codec.values import unsound_number
from perdure.model.forms import MARK
from perdure.model.limits import payload_errors_max


class PydanticCodec(TypedCodec):
    """The whole hint is pydantic's: a model in it would not survive msgspec's hooks unharmed."""

    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter

        try:
            self._adapter = TypeAdapter(hint)
            self._schema = self._adapter.json_schema(schema_generator=_marking())
            written = self._adapter.json_schema(mode="serialization")
        except Exception as error:
            raise Unfit(f"pydantic cannot handle this type: {first_line(error)}") from error
        # Aliases on the wire, unless pydantic would write other names than it reads.
        self._by_alias = _property_names(self._schema) <= _property_names(written)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def _write(self, value: Any) -> bytes:
        return write_json(
            self._adapter.dump_python(
                value, mode="json", warnings="error", round_trip=True, by_alias=self._by_alias
            )
        )

    def _parse(self, raw: bytes) -> Any:
        return self._read_back(raw)

    def _read_back(self, raw: bytes) -> Any:
        try:
            # pydantic reads NaN and 1e400, which are not JSON; msgspec refuses them.
            read_json(raw)
            value = self._adapter.validate_json(raw, by_alias=True, by_name=True)
        except Exception as error:
            raise BadPayload(_pydantic_errors(error)) from error
        lowered = raw.lower()
        if (b"nan" in lowered or b"inf" in lowered) and (found := unsound_number(value)):
            raise BadPayload([f"at {place_text(found[0])}: {found[1]}"])
        return value

    def _refused(self, value: Any, error: Exception) -> Unencodable:
        if isinstance(error, UnicodeDecodeError):
            advice = "set ser_json_bytes='base64' and val_json_bytes='base64' in its model_config"
            return Unencodable(
                "$", f"pydantic writes bytes as UTF-8 text, and these are not: {advice}"
            )
        if type(error).__name__ == "PydanticSerializationError":
            # The first line only announces the list of warnings.
            lines = [line.strip() for line in str(error).splitlines()]
            return Unencodable("$", lines[1] if len(lines) > 1 else lines[0])
        return super()._refused(value, error)


@functools.cache
def _marking() -> Any:
    """pydantic's own way to write schemas, with marks (see `marks.py`)."""
    from pydantic.json_schema import GenerateJsonSchema

    class Marking(GenerateJsonSchema):
        def datetime_schema(self, schema: Any) -> Any:
            return {**super().datetime_schema(schema), **_zone(schema)}

        def time_schema(self, schema: Any) -> Any:
            return {**super().time_schema(schema), **_zone(schema)}

        def set_schema(self, schema: Any) -> Any:
            return {**super().set_schema(schema), MARK: {"reads": "set"}}

        def frozenset_schema(self, schema: Any) -> Any:
            return {**super().frozenset_schema(schema), MARK: {"reads": "set"}}

        def decimal_schema(self, schema: Any) -> Any:
            return _with_digits(super().decimal_schema(schema), schema)

        def bytes_schema(self, schema: Any) -> Any:
            form = super().bytes_schema(schema)
            if self._config.val_json_bytes == "base64":
                form[MARK] = {"reads": "base64url"}
            return form

        def default_schema(self, schema: Any) -> Any:
            form = super().default_schema(schema)
            made = empty_of(schema.get("default_factory"))
            return form if made is None or "default" in form else {**form, "default": made}

        def dict_schema(self, schema: Any) -> Any:
            form, keys = super().dict_schema(schema), schema.get("keys_schema")
            if keys is None or "patternProperties" in form:
                return form
            if keys["type"] == "enum":
                return {**form, "propertyNames": _texts([one.value for one in keys["members"]])}
            names = None if "propertyNames" in form else _names(self.generate_inner(keys))
            return form if names is None else {**form, "propertyNames": names}

    return Marking


def _zone(schema: Any) -> dict[str, Any]:
    wanted = schema.get("tz_constraint")
    return {} if wanted is None else {MARK: {"reads": "zone", "tz": wanted != "naive"}}


def _with_digits(form: Any, schema: Any) -> Any:
    if len(form.get("anyOf", ())) != 2:
        return form
    number, text = form["anyOf"]
    words = {"digits": "max_digits", "places": "decimal_places"}
    bounds = {word: schema[name] for word, name in words.items() if schema.get(name) is not None}
    if bounds:
        number = {**number, MARK: {"reads": "decimal number", **bounds}}
    return {
        **form,
        "anyOf": [number, {**text, MARK: {"reads": "decimal text", "as": number, **bounds}}],
    }


def _names(keys: Any) -> Any:
    """What the names of an object's members must be to be read as keys of this form; None: pydantic has said it."""
    if "enum" in keys or "const" in keys:
        return keys  # no text is the number of a Literal, as pydantic reads keys
    if keys.get("type") in ("integer", "number"):
        return number_key({name: part for name, part in keys.items() if name != "title"})
    if keys.get("type") == "boolean":
        return _texts([True, False])
    if "anyOf" in keys:
        return {"anyOf": [_names(one) or one for one in keys["anyOf"]]}
    return None


def _texts(values: list[Any]) -> dict[str, Any]:
    return {"enum": [str(one).lower() if isinstance(one, bool) else str(one) for one in values]}


def _pydantic_errors(error: Exception) -> list[str]:
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return [told(error)]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"at {place_text(one['loc'])}: {one['msg']}" for one in found[:payload_errors_max]]


def _property_names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_property_names, schema))
    if not isinstance(schema, dict):
        return set()
    named = schema.get("properties")
    own = set(named) if isinstance(named, dict) else set()
    return own.union(*map(_property_names, schema.values()))
