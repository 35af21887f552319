"""Typed JSON for every payload: inputs, results, signals, events.

A hint goes in once, at registration, and gives a `Codec`: msgspec owns the hint, or pydantic when
its tree mentions a pydantic type (never both: mixing them corrupts bytes silently), or the tagged
codec when there is no type. All type errors surface there. Text comes out canonical, so that equal
payloads are equal texts. What would not come back the same is refused at encode, never stored: the
workflow always works with decode(encode(value)). Nothing is pickled and no class is ever looked up
by a name found in data, except in the closed table of registered leaf types.

Start at `choose.py`. The rest of perdure imports from here only, never from a file inside.
"""

from perdure.model.codec.arguments import ArgsCodec, Param, args_codec, hints_of
from perdure.model.codec.base import Codec, codec_id, missing
from perdure.model.codec.choose import codec_for
from perdure.model.codec.errors import BadHint, BadPayload, Place, Unencodable, place_text
from perdure.model.codec.models import PydanticCodec
from perdure.model.codec.own import own_text
from perdure.model.codec.register import register_type
from perdure.model.codec.typed import MsgspecCodec, ScalarCodec
from perdure.model.codec.untyped import UntypedCodec

__all__ = [
    "ArgsCodec",
    "BadHint",
    "BadPayload",
    "Codec",
    "MsgspecCodec",
    "Param",
    "Place",
    "PydanticCodec",
    "ScalarCodec",
    "Unencodable",
    "UntypedCodec",
    "args_codec",
    "codec_for",
    "codec_id",
    "hints_of",
    "missing",
    "own_text",
    "place_text",
    "register_type",
]
