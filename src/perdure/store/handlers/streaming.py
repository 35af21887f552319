"""Streams of a run: what its code and its steps publish, in the order of commits.

Only the owner of the run publishes, so its fence is all that is asked for: a stale worker is refused, and a run that
has ended takes nothing. Positions are dense, whoever of the run publishes.
"""

from collections.abc import Iterable

from perdure.model import limits, ops
from perdure.model.outcomes import Counted, Fenced, Refusal, Wake
from perdure.model.records import StreamItemRecord, StreamRecord
from perdure.model.status import TERMINAL
from perdure.store.tables import Tables

Items = Iterable[tuple[str, str]]  # stream, JSON


def publish(tables: Tables, op: ops.Publish) -> Counted | Fenced | Refusal:
    run = tables.run(op.run_id)
    # A run that nobody owns has fence 0; that opens nothing.
    if run is None or run.fence != op.fence or not op.fence or run.status in TERMINAL:
        return Fenced(op.run_id, None if run is None else run.status)
    items = _fitting(tables, op)
    if not items and op.items:
        refused = one_too_many(tables, op.run_id, op.items[:1])
        assert refused is not None, "the first one does not fit"
        return refused
    append(tables, op.run_id, items, op.path, op.attempt)
    return Counted(len(items))


def _fitting(tables: Tables, op: ops.Publish) -> tuple[tuple[str, str], ...]:
    """The items before the first one of a stream too many: who is told of fewer than it sent sends the others again."""
    names = {*tables.streams(op.run_id)}
    for nth, (stream, _) in enumerate(op.items):
        if stream not in names and len(names) >= limits.streams_per_run_max:
            return op.items[:nth]
        names.add(stream)
    return op.items


def one_too_many(tables: Tables, run_id: str, items: Items) -> Refusal | None:
    """Why these cannot be published: the run would have too many streams."""
    known = tables.streams(run_id)
    names = {*known, *(stream for stream, _ in items)}
    new = sorted(names - known.keys())
    if not new or len(names) <= limits.streams_per_run_max:
        return None
    bound = f"at most {limits.streams_per_run_max} (streams_per_run_max)"
    return Refusal(
        "too_many_streams",
        f"run {run_id!r} would have {len(names)} streams with {new[-1]!r}; {bound}: put what differs into the items",
    )


def append(tables: Tables, run_id: str, items: Items, path: str, attempt: int) -> int:
    """Add items to streams of a run; gives the position of the last one."""
    known = tables.streams(run_id)
    moved: dict[str, StreamRecord] = {}
    added: dict[str, list[StreamItemRecord]] = {}
    position = 0
    for stream, item in items:
        before = moved.get(stream) or known.get(stream)
        position = 1 if before is None else before.last + 1
        published = 0 if before is None else before.bytes_all
        row = StreamItemRecord(
            run_id=run_id,
            stream=stream,
            position=position,
            item=item,
            path=path,
            attempt=attempt,
            published_at=tables.now,
            bytes_before=published,
        )
        added.setdefault(stream, []).append(row)
        total = published + len(item.encode())
        moved[stream] = StreamRecord(run_id=run_id, stream=stream, last=position, bytes_all=total)
    for stream, now in moved.items():
        tables.append_to_stream(now, added[stream])
    if moved:
        tables.wakes.append(Wake("stream", run_id))
    return position
