"""Calls that code has made and never awaited: where that was, and what is said of it.

Each call knows its place in the code, as two words; only when one is found to be forgotten is it worked out what line
that is.
"""

import dis
import linecache
from collections.abc import Sequence
from itertools import islice

from perdure.errors import NotAwaited
from perdure.runtime.calls import Durable

_named_max = 5


def not_awaited(calls: Sequence[Durable[object]]) -> NotAwaited:
    """What a workflow fails with that ends so."""
    places = "; ".join(map(_place, calls[:_named_max]))
    more = len(calls) - _named_max
    more_of_them = f" and {more} more" if more > 0 else ""
    return NotAwaited(
        f"the workflow has ended with calls that were made and never awaited, so that they did nothing: "
        f"{places}{more_of_them}. Write `await` before each, or hand it to `await ctx.gather(…)`"
    )


def is_dropped(call: Durable[object]) -> bool:
    """Whether the code lets go of the call where it makes it, as a statement of its own: nobody can await that."""
    later = (one for one in dis.get_instructions(call.made_in) if one.offset > call.made_at)
    following = next((one for one in later if one.opname != "CACHE"), None)
    return following is not None and following.opname == "POP_TOP"


def _place(call: Durable[object]) -> str:
    code = call.made_in
    positions = next(islice(code.co_positions(), call.made_at // 2, None), (None,) * 4)
    line, last, begin, end = positions
    if line is None:
        return f"{code.co_filename}: the {call.kind} at {call.path!r}"
    text = linecache.getline(code.co_filename, line)
    if line == last and begin is not None:
        # Columns are counted in bytes.
        text = text.encode()[begin:end].decode(errors="replace")
    shown = text.strip() or f"the {call.kind} at {call.path!r}"
    return f"{code.co_filename}:{line}: `{shown}`"
