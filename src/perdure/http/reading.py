"""A request, read and checked against its route: the parts of its path, its query, its body.

Everything has its bound before it is parsed, and what does not fit is refused with the place where: nothing has been
done by then. Paths are taken as they were sent: an id may hold a slash, and stands percent-encoded then.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request

from perdure.errors import BadRequest
from perdure.http import wire
from perdure.http.handling import Call
from perdure.http.routes import Route
from perdure.http.security import Principal
from perdure.model import limits
from perdure.model.limits import BadValue, check_body, shown

KEY_HEADER: Final = "idempotency-key"
_field: Final = re.compile(r"\.(\w+)")
_flags: Final = {"true": True, "false": False}


async def read(request: Request, route: Route, principal: Principal) -> Call:
    """What a request asks for; raises BadRequest."""
    headers = dict(request.headers)
    key = _key(request.headers.getlist(KEY_HEADER), route)
    raw = b"" if request.method in ("GET", "HEAD") else await _body(request, route)
    return Call(
        principal=principal,
        path=_path(request.path_params),
        query=_query(request.scope["query_string"].decode("latin-1"), route.query),
        body=None if route.body is None else _with_key(_parsed(raw, route, headers), key),
        raw=raw,
        headers=headers,
    )


def _path(parts: Mapping[str, str]) -> dict[str, str]:
    """The parts of a path, each decoded by itself."""
    try:
        return {name: unquote(part, errors="strict") for name, part in parts.items()}
    except UnicodeDecodeError:
        raise BadRequest("the path is not percent-encoded UTF-8") from None


# --- the query ---


def _query(text: str, kind: type[wire.Sent] | None) -> Any:
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=1000,
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest(f"the query cannot be read: {error}") from None
    if kind is None:
        if pairs:
            raise BadRequest(f"the query {pairs[0][0]!r} is not known here: this takes none")
        return None
    return _converted(_sorted_out(pairs, kind), kind, "the query")


def _sorted_out(pairs: list[tuple[str, str]], kind: type[wire.Sent]) -> dict[str, Any]:
    fields = {one.name: one for one in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise BadRequest(f"the query {shown(name)} is not known here; known: {known}")
        if _holds(fields[name].type, list):
            found.setdefault(name, []).append(text)
        elif name in found:
            raise BadRequest(f"the query {name!r} is given twice")
        else:
            found[name] = _scalar(name, text, fields[name].type)
    return found


def _holds(hint: Any, kind: type) -> bool:
    """Whether a field may be of this type."""
    parts = getattr(hint, "__args__", ()) if getattr(hint, "__origin__", None) is not list else ()
    return any(one is kind or getattr(one, "__origin__", None) is kind for one in (hint, *parts))


def _scalar(name: str, text: str, hint: Any) -> Any:
    """A text as the field has it; a query has no other values."""
    if _holds(hint, int):
        # int() takes more than JSON does: white space, underscores, digits of all scripts.
        if (
            not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit())
            or len(text) > 20
        ):
            raise BadRequest(f"the query {name!r} is {shown(text)}, and no whole number")
        return int(text)
    if _holds(hint, bool):
        if text not in _flags:
            raise BadRequest(f"the query {name!r} is {shown(text)}, and neither true nor false")
        return _flags[text]
    return text


# --- the body ---


async def _body(request: Request, route: Route) -> bytes:
    """The bytes of a body, counted while they come: what is too long is not read to its end."""
    most = route.body_bytes_max
    told = request.headers.get("content-length", "0")
    if told.isascii() and told.isdigit() and int(told) > most:
        raise BadRequest(f"the body is {told} bytes; at most {most} here", 413)
    try:
        async with asyncio.timeout(limits.http_body_s):
            return await _read(request, most)
    except TimeoutError:
        raise BadRequest(
            f"the body has not come within {limits.http_body_s} s (http_body_s)", 408
        ) from None
    except ClientDisconnect:
        raise BadRequest("the body broke off") from None


async def _read(request: Request, most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise BadRequest(f"the body is longer than {most} bytes", 413)
        parts.append(part)
    return b"".join(parts)


def _parsed(raw: bytes, route: Route, headers: Mapping[str, str]) -> Any:
    assert route.body is not None
    if raw:
        _check_type(headers.get("content-type", ""))
    try:
        check_body(raw, limits.http_values_max)
    except BadValue as error:
        raise BadRequest(str(error)) from None
    try:
        value = msgspec.json.decode(raw or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    return _converted(value, route.body, "the body")


def _check_type(content_type: str) -> None:
    """A form that a page of another origin can send unasked is not JSON by name."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise BadRequest(f"the body is of type {shown(media_type)}; send application/json", 415)


def _converted(value: Any, kind: type[wire.Sent], where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{where} does not fit: {error}{_choices(str(error), kind)}") from None
    except RecursionError:
        raise BadRequest(f"{where} nests too deep") from None


def _choices(words: str, kind: type[wire.Sent]) -> str:
    """What there is to choose from, where something else was given: the error names only its place."""
    if not words.startswith("Invalid enum value"):
        return ""
    hint: Any = kind
    for name in _field.findall(words.rpartition(" - at `$")[2]):
        structs = [one for one in _parts(hint) if hasattr(one, "__struct_fields__")]
        found = (one for struct in structs for one in msgspec.structs.fields(struct))
        hint = next((one.type for one in found if one.encode_name == name), None)
    listed = [
        value for one in _parts(hint) if get_origin(one) is Literal for value in get_args(one)
    ]
    return f"; it is one of: {', '.join(map(str, listed))}" if listed else ""


def _parts(hint: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield hint
    if get_origin(hint) is not Literal:
        for one in get_args(hint):
            yield from _parts(one)


# --- the key ---


def _key(given: list[str], route: Route) -> str | None:
    """The key of the header. Where one could not be heeded it is refused: its sender would rely on it."""
    if not given:
        return None
    if route.takes_no_key:
        raise BadRequest(
            "an Idempotency-Key is not heeded here: sent twice, this is done twice; leave it out"
        )
    if not route.keyed:
        return None
    if len(given) > 1:
        raise BadRequest("the Idempotency-Key is given twice")
    if not given[0].isascii():
        raise BadRequest("the Idempotency-Key is not ASCII; give such a key in the body")
    return given[0].strip().strip('"')


def _with_key(body: Any, key: str | None) -> Any:
    """The body with the key of the header: two that differ are no key."""
    if key is None:
        return body
    if body.key not in (msgspec.UNSET, None, key):
        raise BadRequest("the Idempotency-Key of the header is not the key of the body")
    return msgspec.structs.replace(body, key=key)
