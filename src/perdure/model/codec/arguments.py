"""The arguments of a workflow or step: from a signature to parameters, from a call to a JSON array.

`hints_of` reads a function's annotations, and `ArgsCodec` gives each parameter its codec. Defaults
are stored with the rest: a run must never change its input because the code changed a default.
Errors name the parameter, not its index. Only what travels is resolved, never the hint of ctx.
"""

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from perdure.model.codec.base import Codec, codec_id, missing
from perdure.model.codec.choose import codec_for
from perdure.model.codec.errors import BadHint, BadPayload, Unencodable, told
from perdure.model.codec.text import plain_text
from perdure.model.limits import BadValue, check_payload, payload_depth_max


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter that travels: its name, its hint (`Any` if none), its default if any."""

    name: str
    hint: Any = Any
    default: Any = missing


_read: Final = msgspec.json.Decoder().decode
_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ArgsCodec:
    """Positional arguments as one JSON array. Made by `args_codec`."""

    id: Final = codec_id

    def __init__(self, params: Sequence[Param], where: str) -> None:
        self.params = tuple(params)
        self.where = where
        self._codecs = [codec_for(one.hint, _of(one.name, where)) for one in params]
        self._required = sum(1 for one in params if one.default is missing)
        self._default_texts = list(map(_default_text, params, self._codecs))

    def encode(self, args: tuple[Any, ...]) -> str:
        """The text of these arguments and of the defaults of those left out."""
        return self.roundtrip(args)[0]

    def roundtrip(self, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The text, and the arguments as a run will get them."""
        self._check_count(len(args))
        texts: list[str] = []
        values: list[Any] = []
        try:
            for codec, value in zip(self._codecs, args, strict=False):
                text, back = codec.roundtrip(value)
                texts.append(text)
                values.append(back)
        except Unencodable as refused:
            place = self.params[len(texts)].name + refused.place.removeprefix("$")
            raise Unencodable(place, refused.reason) from refused
        if len(texts) < len(self._codecs):
            self._add_defaults(texts, values)
        whole = "[" + ",".join(texts) + "]"
        if len(whole) > payload_depth_max:  # a shorter one is under every bound
            _check_whole(whole)
        return whole, tuple(values)

    def roundtrip_lenient(self, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The same for callers that hold values of the hints, or JSON builtins as HTTP gives them."""
        try:
            return self.roundtrip(args)
        except Unencodable:
            return self.roundtrip(tuple(map(self._typed, range(len(args)), args)))

    def _typed(self, index: int, value: Any) -> Any:
        """A plain value as its hint has it; one that is not plain as it is."""
        text = plain_text(value)
        return value if text is None else self._decode_one(index, msgspec.Raw(text))

    def decode(self, text: str | bytes) -> tuple[Any, ...]:
        """Typed arguments; those missing at the end get their defaults. Raises `BadPayload`."""
        raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        try:
            check_payload(raw)
            items = _read_items(raw)
        except (ValueError, RecursionError) as error:
            raise BadPayload([told(error)]) from error
        self._check_count(len(items))
        return self._filled([self._decode_one(index, item) for index, item in enumerate(items)])

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the array, one `prefixItems` entry for each parameter."""
        definitions: dict[str, Any] = {}
        items = []
        parts = zip(self.params, self._codecs, self._default_texts, strict=True)
        for param, codec, default in parts:
            item = {"title": param.name, **_hoisted(codec.schema(), param.name, definitions)}
            items.append(item if default is None else {**item, "default": _read(default)})
        schema: dict[str, Any] = {
            "type": "array",
            "minItems": self._required,
            "maxItems": len(items),
        }
        if items:
            schema["prefixItems"] = items
        return schema | {"items": False} | ({"$defs": definitions} if definitions else {})

    def _add_defaults(self, texts: list[str], values: list[Any]) -> None:
        # Stored too: a run must not change its input because the code changed a default.
        values.extend(one.default for one in self.params[len(values) :])
        for text in self._default_texts[len(texts) :]:
            if text is None:
                break
            texts.append(text)

    def _decode_one(self, index: int, item: msgspec.Raw) -> Any:
        try:
            return self._codecs[index]._parse(bytes(item))
        except BadPayload as bad:
            name = self.params[index].name
            raise BadPayload(
                [f"at {name}{text.removeprefix('at $')}" for text in bad.errors]
            ) from bad

    def _filled(self, values: list[Any]) -> tuple[Any, ...]:
        if len(values) == len(self.params):
            return tuple(values)
        return (*values, *(one.default for one in self.params[len(values) :]))

    def _check_count(self, given: int) -> None:
        if self._required <= given <= len(self.params):
            return
        names = ", ".join(one.name for one in self.params) or "none"
        most = len(self.params)
        wanted = str(most) if most == self._required else f"{self._required} to {most}"
        raise BadPayload(
            [f"at $: {_count(given)} given, {wanted} wanted ({names}){self._suffix()}"]
        )

    def _suffix(self) -> str:
        return f" by {self.where}" if self.where else ""


def _check_whole(text: str) -> None:
    """Each argument fits alone; together they may not, and what is stored must be readable again."""
    try:
        check_payload(text.encode())
    except BadValue as over:
        raise Unencodable("$", str(over)) from None


def args_codec(params: Sequence[Param], where: str = "") -> ArgsCodec:
    """The codec of a function's arguments; `where` is told in errors, e.g. "workflow 'fulfil'"."""
    return ArgsCodec(params, where)


def _default_text(param: Param, codec: Codec) -> str | None:
    """Text of a default; None without one, or if it is not of its type (`n: int = None`)."""
    try:
        return None if param.default is missing else codec.encode(param.default)
    except Unencodable:
        return None


def _of(name: str, where: str) -> str:
    return f"{name!r} of {where}" if where else f"{name!r}"


def _count(given: int) -> str:
    return f"{given} argument" if given == 1 else f"{given} arguments"


def hints_of(
    function: Callable[..., Any],
    skip: int = 0,
    where: str = "",
    localns: dict[str, Any] | None = None,
) -> tuple[list[Param], Any]:
    """Parameters after the first `skip` (ctx), and the return hint, annotations resolved."""
    where = where or f"{getattr(function, '__qualname__', function)}()"
    signature = inspect.signature(function)
    taken = list(signature.parameters.values())[skip:]
    for one in taken:
        if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            raise BadHint(
                _of(str(one), where), "inputs are positional; make it an ordinary parameter"
            )
    names = [one.name for one in taken]
    resolved = _resolved(function, signature, [*names, "return"], where, localns)
    return [
        Param(one.name, resolved.get(one.name, Any), one.default) for one in taken
    ], resolved.get("return", Any)


def _resolved(
    function: Callable[..., Any],
    signature: inspect.Signature,
    names: list[str],
    where: str,
    localns: dict[str, Any] | None,
) -> dict[str, Any]:
    # Only what travels: the annotation of ctx may name what is imported for type checkers alone.
    annotations = {one.name: one.annotation for one in signature.parameters.values()}
    annotations["return"] = signature.return_annotation
    wanted = {name: annotations[name] for name in names if annotations[name] is not missing}
    holder = types.SimpleNamespace(__annotations__=wanted)
    inner = inspect.unwrap(getattr(function, "func", function))
    globalns = getattr(inner, "__globals__", None) or vars(sys.modules[type(inner).__module__])
    try:
        return typing.get_type_hints(holder, globalns, localns, include_extras=True)
    except Exception as error:
        reason = f"{error}; its type must be defined, at module level, when it is registered"
        raise BadHint(where, f"cannot resolve the annotations: {reason}") from error


def _hoisted(schema: dict[str, Any], owner: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its `$defs`: they move to `definitions`, renamed if two clash."""
    renamed = {}
    for name, one in schema.get("$defs", {}).items():
        clash = name in definitions and definitions[name] != one
        renamed[name] = f"{owner}.{name}" if clash else name
    for name, one in schema.get("$defs", {}).items():
        definitions[renamed[name]] = _repointed(one, renamed)
    body = {key: part for key, part in schema.items() if key not in ("$defs", "title")}
    return typing.cast(dict[str, Any], _repointed(body, renamed))


def _repointed(schema: Any, renamed: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_repointed(one, renamed) for one in schema]
    if isinstance(schema, dict):
        return {key: _repointed(one, renamed) for key, one in schema.items()}
    if isinstance(schema, str) and schema.startswith("#/$defs/"):
        name = schema.removeprefix("#/$defs/")
        return f"#/$defs/{renamed.get(name, name)}"
    return schema
