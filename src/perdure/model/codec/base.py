"""What a codec is: the interface that the rest of perdure holds, whatever engine is behind it.

A codec turns values of one hint into JSON text and back. What would not come back the same is
refused at encode, never stored. `decode` takes text from outside: limits come before parsing. An
implementation must never keep state between calls, for codecs are cached and shared.
"""

import abc
import inspect
from typing import Any, Final

from perdure.model.codec.errors import BadPayload, Unencodable
from perdure.model.codec.text import plain_text
from perdure.model.limits import BadValue, check_payload

codec_id: Final = "json/1"
missing: Final = inspect.Parameter.empty


class Codec(abc.ABC):
    """Values of one hint to JSON text and back. Made by `codec_for`; immutable and shared."""

    id: Final = codec_id

    def encode(self, value: Any) -> str:
        """Canonical JSON text. Raises `Unencodable` if the value would not come back as it is."""
        return self.roundtrip(value)[0]

    @abc.abstractmethod
    def roundtrip(self, value: Any) -> tuple[str, Any]:
        """The text, and what decoding it gives: a fresh value, equal to the one given."""

    def decode(self, text: str | bytes) -> Any:
        """The typed value. Limits are checked before parsing. Raises `BadPayload`."""
        raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        try:
            check_payload(raw)
        except BadValue as over:
            raise BadPayload([f"at $: {over}"]) from None
        return self._parse(raw)

    def encode_lenient(self, value: Any) -> str:
        """For senders that hold an instance of the hint, or JSON builtins as HTTP gives them."""
        try:
            return self.roundtrip(value)[0]
        except Unencodable as refused:
            text = plain_text(value)
            if text is None:
                raise
            typed = self.decode(text)
            try:
                return self.roundtrip(typed)[0]
            except Unencodable:
                raise refused from None

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema 2020-12; `{}` when there is no type."""

    @abc.abstractmethod
    def _parse(self, raw: bytes) -> Any: ...
