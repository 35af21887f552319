"""From a hint to its codec: here is decided which engine gets it, once, at registration.

No type: `untyped.py`. A pydantic type anywhere in the tree: `models.py`. All else: `typed.py`. A
hint is never split between engines. Every problem with a type must surface here, as `BadHint`, and
never when the first payload arrives.
"""

import collections.abc
import functools
import typing
from typing import Any

from perdure.model.codec.base import Codec, missing
from perdure.model.codec.errors import BadHint, Unfit
from perdure.model.codec.models import PydanticCodec
from perdure.model.codec.trees import mentions
from perdure.model.codec.typed import MsgspecCodec, ScalarCodec, scalar_hints
from perdure.model.codec.untyped import UntypedCodec
from perdure.model.limits import codecs_kept_max


def codec_for(hint: Any = Any, where: str = "") -> Codec:
    """The codec of a hint, built once. Raises `BadHint`, naming `where`."""
    try:
        return kept_codec(hint)
    except Unfit as unfit:
        raise BadHint(where, str(unfit)) from unfit.__cause__
    except TypeError as unhashable:
        if "unhashable" not in str(unhashable):
            raise
    try:
        return _build(hint)
    except Unfit as unfit:
        raise BadHint(where, str(unfit)) from unfit.__cause__


@functools.lru_cache(maxsize=codecs_kept_max)
def kept_codec(hint: Any) -> Codec:
    return _build(hint)


def _build(hint: Any) -> Codec:
    if hint is typing.NoReturn or hint is typing.Never:
        hint = None
    if hint is Any or hint is missing or hint is object:
        return UntypedCodec(None)
    if (container := _open_container(hint)) is not None:
        return UntypedCodec(container)
    mentioned = mentions(hint)
    if "pydantic" in mentioned:
        return PydanticCodec(hint)
    if "annotated_types" in mentioned:
        raise Unfit("constraints of annotated_types work in pydantic models only; use msgspec.Meta")
    return ScalarCodec(hint) if any(hint is one for one in scalar_hints) else MsgspecCodec(hint)


def _open_container(hint: Any) -> type | None:
    """dict or list, when the hint says nothing about what is inside."""
    if hint is dict or hint is list:
        return typing.cast(type, hint)
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (dict, collections.abc.Mapping) and inside in ((str, Any), (str, object)):
        return dict
    return list if origin is list and inside in ((Any,), (object,)) else None
