"""What texts say of hidden fields: messages of errors, log lines, expressions. Pure.

A text has no fields, so this goes by how values are quoted: `password='x'`, `"password": "x"`, also inside of quoted
JSON; reasons with their place, as our codecs, msgspec and pydantic tell them (`at $.card.number: 'x' is not …`). Where
it cannot tell where a value ends it hides the rest: too much rather than too little. A value that stands there without
the name of its field is only found if the caller knows it. Takes time in proportion to the text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Final

# Between two words that may be a value: shorter ones would tear texts apart.
_chars_min: Final = 3
# A place as our codecs have it: `$.card.number`, `order.lines[3]`, `$["a key"]`.
_place = r"(?:\$|[A-Za-z_]\w*)(?:\.\w+|\[[^\[\]\n]*\])*"
_reason = re.compile(rf"\bat ({_place}): ")
_msgspec_place = re.compile(r" - at `(\$[^`\n]*)`")
_pydantic = re.compile(r"^([\w.\-]+)\n([ \t]+\S.*)$", re.MULTILINE)
_keys = re.compile(r"[A-Za-z_][\w\-]*")
_separator = r"\s{0,8}(:=|==|=>|=|:)[ \t]{0,8}"
_openers: Final = "([{<"
_closers: Final = ")]}>"


class Quoting:
    """Finds hidden fields in texts. `before` has, by the last key of a name, the keys that stand before it."""

    def __init__(
        self,
        before: Mapping[str, list[tuple[str, ...]]],
        hides: Callable[[Iterable[str]], bool],
        instead: str,
    ) -> None:
        self._before = before
        self._hides = hides
        self._instead = instead
        longest_first = sorted(before, key=len, reverse=True)
        keys = "|".join(re.escape(one) for one in longest_first) or r"(?!)"
        self._pair = re.compile(
            rf"(?<![\w\-])(?:\\*[\"'])?({keys})(?:\\*[\"'])?(?:\])?{_separator}", re.IGNORECASE
        )

    def without(self, text: str, hidden: Iterable[str] = ()) -> str:
        small = text.lower()
        if any(key in small for key in self._before):
            text = self._without_reasons(text)
            text = self._without_pairs(text)
        known = [re.escape(one) for one in hidden if len(one) >= _chars_min and one in text]
        if known:
            known.sort(key=len, reverse=True)
            text = re.sub(rf"(?<!\w)(?:{'|'.join(known)})(?!\w)", self._hidden, text)
        return text

    def _hidden(self, _: re.Match[str]) -> str:
        return self._instead

    # --- reasons with a place ---

    def _without_reasons(self, text: str) -> str:
        text = self._without_our_reasons(text)
        text = self._without_msgspecs(text)
        return _pydantic.sub(self._without_pydantics, text)

    def _is_hidden(self, place: str) -> bool:
        return self._hides(_keys.findall(place))

    def _without_our_reasons(self, text: str) -> str:
        """`at $.card.number: reason`; several are joined by semicolons."""
        found = list(_reason.finditer(text))
        parts, since = [], 0
        for place, following in zip_longest(found, found[1:]):
            if self._is_hidden(place[1]):
                until = len(text) if following is None else following.start()
                joins = "; " if text.endswith("; ", place.end(), until) else ""
                parts += [text[since : place.end()], self._instead, joins]
                since = until
        return "".join([*parts, text[since:]])

    def _without_msgspecs(self, text: str) -> str:
        """The place comes behind the reason: ``reason - at `$.card.number` ``."""
        parts, since = [], 0
        for place in _msgspec_place.finditer(text):
            if self._is_hidden(place[1]):
                line = max(since, text.rfind("\n", since, place.start()) + 1)
                parts += [text[since:line], self._instead]
            else:
                parts.append(text[since : place.start()])
            parts.append(place[0])
            since = place.end()
        return "".join([*parts, text[since:]])

    def _without_pydantics(self, told: re.Match[str]) -> str:
        if "input_value=" in told[2] and self._is_hidden(told[1]):
            return f"{told[1]}\n  {self._instead}"
        return told[0]

    # --- keys with values ---

    def _without_pairs(self, text: str) -> str:
        firsts = self._firsts(text.lower())
        parts, since = [], 0
        while (pair := self._pair.search(text, since)) is not None:
            end = pair.end()
            parts.append(text[since:end])
            # What is to stand before it stands somewhere before it: nothing tells how deep a text nests.
            if firsts[pair[1].lower()] <= pair.start():
                end = _value_end(text, pair.end(), pair[2])
                parts.append(self._instead if end > pair.end() else "")
            since = end
        return "".join([*parts, text[since:]])

    def _firsts(self, small: str) -> dict[str, int]:
        """From where on a key counts: all that is to stand before it, by one of its names, has come by there."""
        return {
            last: min(
                max((_first(small, one) for one in keys), default=0) for keys in self._before[last]
            )
            for last in self._before
        }


def _first(small: str, key: str) -> int:
    found = small.find(key)
    return len(small) + 1 if found == -1 else found


def _value_end(text: str, at: int, separator: str) -> int:
    """Where the value that begins here ends: a quoted one at its quote, one in brackets with them, a bare one with its
    word, or after a colon with its phrase."""
    end = _quoted_end(text, at)
    if end is not None:
        return end
    open_ = 0
    while at < len(text):
        char = text[at]
        if char in _openers:
            open_ += 1
        elif char in _closers:
            if not open_:
                return at
            open_ -= 1
        elif char == "\n" and not open_:
            return at
        elif not open_ and (char in ",;" or (char.isspace() and separator != ":")):
            return at
        end = _quoted_end(text, at) if char in "\\\"'" else None
        at = at + 1 if end is None else end
    return at


def _quoted_end(text: str, at: int) -> int | None:
    """Where a quoted text ends that begins here; None if none does.

    Quotes within quotes have backslashes before them, the more the deeper: one with the same number as at the beginning
    is the end, one with more belongs to the text. A text that ends with a backslash is taken to be longer than it is.
    """
    quote_at = at
    while quote_at < len(text) and text[quote_at] == "\\":
        quote_at += 1
    if quote_at == len(text) or text[quote_at] not in "\"'":
        return None
    depth, quote = quote_at - at, text[quote_at]
    end = quote_at
    while (end := text.find(quote, end + 1)) != -1:
        count = 0
        while text[end - 1 - count] == "\\":
            count += 1
        if count == depth:
            return end + 1
    return len(text)
