"""The API as an OpenAPI 3.1 document, made from the table of routes and the types it names."""

import functools
import re
from typing import Any, Final

import msgspec

from perdure.http import wire
from perdure.http.problems import CONTENT_TYPE, Problem
from perdure.http.reading import KEY_HEADER
from perdure.http.routes import PREFIX, ROUTES, SCOPES, Route
from perdure.ledger.cloudevents import BATCH_TYPE, STRUCTURED_TYPE
from perdure.version import VERSION

_template: Final = "#/components/schemas/{name}"
_modules = re.compile(r"(?:\w+\.)+(\w+)")
_no_name = re.compile(r"\W+")


@functools.lru_cache(8)
def document(root_path: str = "") -> bytes:
    """The document of an API that is reached under this path."""
    types = [one for route in ROUTES for one in (route.body, route.answer) if one is not None]
    hints, components = msgspec.json.schema_components([*types, Problem], ref_template=_template)
    schemas = dict(zip(map(repr, [*types, Problem]), hints, strict=True))
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": VERSION,
            "description": "Durable workflows: start runs, signal them, look at them, steer them.",
        },
        "servers": [{"url": root_path or "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": name} for name in dict.fromkeys(one.group for one in ROUTES)],
        "paths": _paths(schemas),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"A token with scopes: {', '.join(SCOPES)}. admin has all of them.",
                }
            },
        },
    }
    return msgspec.json.encode(_renamed(made, _names(components)))


def _paths(schemas: dict[str, Any]) -> dict[str, Any]:
    paths: dict[str, Any] = {
        f"{PREFIX}/openapi.json": {
            "get": {
                "operationId": "openapi",
                "tags": ["operation"],
                "summary": "This document",
                "security": [],
                "responses": {"200": _content("This document", {"type": "object"})},
            }
        }
    }
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return paths


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.verb,
        "tags": [route.group],
        "summary": route.says,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_key(route)],
        "responses": _responses(route, schemas),
    }
    if route.scope is None:
        made["security"] = []
    else:
        made["description"] = f"Needs the scope `{route.scope}`."
    if route.body is not None:
        needed = any(one.required for one in msgspec.structs.fields(route.body))
        made["requestBody"] = {
            "required": needed,
            "content": {"application/json": {"schema": schemas[repr(route.body)]}},
        }
    elif route.verb == "receive":
        anything: dict[str, Any] = {"schema": {}}
        made["requestBody"] = {"required": True, "content": {"application/json": anything}}
    elif route.verb == "emit_cloudevents":
        made["requestBody"] = {
            "required": True,
            "content": {
                STRUCTURED_TYPE: {"schema": _cloudevent},
                BATCH_TYPE: {"schema": {"type": "array", "items": _cloudevent}},
            },
        }
    return made


_cloudevent: Final = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
    },
}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
        for name in route.parameters
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = next(iter(msgspec.json.schema(route.query)["$defs"].values()))
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": form,
        }
        for name, form in schema["properties"].items()
    ]


def _key(route: Route) -> list[dict[str, Any]]:
    if not route.keyed:
        return []
    about = "The same key again gives the first answer and changes nothing; the same as `key` in the body."
    return [
        {
            "name": "-".join(part.capitalize() for part in KEY_HEADER.split("-")),
            "in": "header",
            "required": False,
            "description": about,
            "schema": {"type": "string", "minLength": 1},
        }
    ]


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    problem = {
        "description": "What went wrong",
        "content": {CONTENT_TYPE: {"schema": schemas[repr(Problem)]}},
    }
    made: dict[str, Any] = {"4XX": problem, "5XX": problem}
    if route.streams:
        made["200"] = {
            "description": "Server-sent events",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    elif route.plain:
        made["200"] = {
            "description": "Text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    elif route.answer is None:
        made["204"] = {"description": "Done"}
    else:
        done = _content("The answer", schemas[repr(route.answer)])
        if route.at_length:
            done["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        made["200"] = done
        if route.created:
            made["201"] = done
        if route.may_be_nothing:
            made["204"] = {"description": "There was nothing to do"}
        if route.answer is wire.Ready:
            made["503"] = done
    return made


def _content(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


# --- names that people read ---


def _names(components: dict[str, Any]) -> dict[str, str]:
    """Of each type: `Listing[perdure.views.RunInfo]` is `Listing_RunInfo`."""
    return {
        _template.format(name=old): _template.format(name=_readable(form.get("title", old)))
        for old, form in components.items()
    }


def _readable(title: str) -> str:
    return _no_name.sub("_", _modules.sub(r"\1", title)).strip("_")


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case dict():
            return {(_renamed_key(key, names)): _renamed(one, names) for key, one in value.items()}
        case list():
            return [_renamed(one, names) for one in value]
        case str():
            return names.get(value, value)
        case _:
            return value


def _renamed_key(key: str, names: dict[str, str]) -> str:
    reference = _template.format(name=key)
    return names[reference].rpartition("/")[2] if reference in names else key
