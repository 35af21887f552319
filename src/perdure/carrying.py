"""The verbs of an app that carry runs from place to place: export, import, fork.

`Carrying` is the part of App that holds them. There is one road: a run is read as a document (documents.py), perhaps
cut at a place (forking.py), and made anew by one op, whole or not at all.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure import forking
from perdure.documents import (
    Document,
    check_document,
    claims_of,
    digest_of,
    document_of,
    in_order,
    read_document,
    run_of,
    signals_of,
    steps_of,
)
from perdure.engine import Engine
from perdure.errors import Overloaded, RunNotFound, UnknownWorkflow, refusal_error
from perdure.handle import RunHandle
from perdure.inputs import (
    cancellers,
    checked_deadline,
    encoded_tags,
    pool_name,
)
from perdure.model import ops
from perdure.model.codec import Codec
from perdure.model.duration import Duration
from perdure.model.keys import claim_on, claim_scope
from perdure.model.limits import (
    BadValue,
    check_entity,
    check_path,
    check_pool_key,
    check_priority,
    check_run_id,
)
from perdure.model.origins import Origin, origins_of, origins_text
from perdure.model.outcomes import Refusal
from perdure.model.records import (
    RunRecord,
    SignalRecord,
    StepRecord,
    WaitSpec,
    WorkflowRecord,
    entity_text,
)
from perdure.model.status import TERMINAL
from perdure.named import called
from perdure.pools import Pool
from perdure.registry import Registry, Workflow
from perdure.store.base import Store

KEPT: Final[Any] = msgspec.UNSET  # stands for what a fork takes over from its original

_decode_spec = msgspec.json.Decoder(WaitSpec).decode
# A run that changes all the time is read again, for what is buffered must fit its history.
_reads_max = 20


class Carrying:
    """What an App can do with runs as documents."""

    registry: Registry
    _engine: Callable[[], Engine]
    _untyped: Codec

    async def import_run(
        self, document: dict[str, Any], *, id: str | None = None
    ) -> RunHandle[Any]:
        """Make the run that a document of `run.export()` tells of, under its own id or another.

        One that had ended has ended here too; one that was paused is; any other goes on by replay, with the deadlines
        it had. A run of that id that was made of the same document is found (`created` is False); any other is a
        Conflict. Raises BadDocument for what is none; nothing is stored then.
        """
        read = read_document(document)
        engine = self._engine()
        run_id = read.run.id if id is None else check_run_id(id)
        new_ids = [engine.ids.ulid() for _ in read.signals]
        signals = signals_of(read, run_id, new_ids)
        op = ops.ImportRun(
            run=_imported(read, run_id),
            steps=tuple(steps_of(read)),
            digest=digest_of(read),
            signals=tuple(signals),
            claims=tuple(claims_of(read, signals)),
        )
        return await self._make_run(engine, op)

    async def _export(self, run_id: str) -> dict[str, Any]:
        engine = self._engine()
        run, steps, signals = await _whole(engine.store, run_id)
        answered = await _answered(engine.store, run, steps, engine.clock.now())
        # As it comes out of a file: nothing but what JSON has.
        text = msgspec.json.encode(document_of(run, steps, signals, answered))
        return msgspec.json.decode(text, type=dict[str, Any])

    async def _fork(
        self,
        run_id: str,
        from_path: str | None,
        *,
        input: Any,
        id: str | None,
        version: int | None,
        tags: dict[str, str] | None,
        entity: str | None,
        deadline: datetime | Duration | None,
        pool: Pool | str | None,
        pool_key: str | None,
        priority: int | None,
    ) -> RunHandle[Any]:
        engine = self._engine()
        if from_path is not None:
            check_path(from_path)
        run, steps, _ = await _whole(engine.store, run_id)
        taken = forking.copied(steps, from_path)
        workflow, text = await self._fork_of(engine.store, run, version, input)
        deadline_at, deadline_us = (None, None) if deadline is None else checked_deadline(deadline)
        fork = replace(
            run,
            run_id=engine.ids.ulid() if id is None else check_run_id(id),
            version=run.version if version is None else version,
            status="ready",
            input=text,
            ready_at=None,
            finished_at=None,
            output=None,
            error=None,
            reason=None,
            cancel_requested=False,
            parent_run_id=None,
            parent_path=None,
            key=None,
            tags=run.tags if tags is None else encoded_tags(tags),
            published=forking.published(run, steps, taken),
            origin=None,
            deadline_at=deadline_at,
            replaced=None,
            forked=forking.origins(run, taken),
            **_about(run, entity),
            **_place(run, pool, pool_key, priority),
        )
        if workflow is not None and workflow.cancel_on:  # as its own input and entity say
            about = entity_text(fork.entity_type, fork.entity_id)
            fork = replace(fork, cancel_on=cancellers(workflow, fork.input, about))
        answered = await _answered(engine.store, run, taken, engine.clock.now())
        document = document_of(fork, taken, (), answered)
        check_document(document)
        op = ops.ImportRun(
            run=fork,
            steps=tuple(taken),
            # What the original does meanwhile makes no other fork of it.
            digest=digest_of(run_id, from_path, document.run.input, fork.version, document.history),
            claims=tuple(claims_of(document, ())),
            forked_from=run.run_id,
            from_path=from_path,
            deadline_us=deadline_us,
        )
        return await self._make_run(engine, op)

    async def _make_run(self, engine: Engine, op: ops.ImportRun) -> RunHandle[Any]:
        run_id = op.run.run_id
        outcome = await engine.coordinator.submit(op)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, op.run.workflow, run_id)
        found = self.registry.find(op.run.workflow, op.run.version)
        codec = self._untyped if found is None else found.codec
        ending = engine.coordinator.hub.ending(run_id)
        app: Any = self
        return RunHandle(app, run_id, codec, ending, created=outcome.created)

    async def _fork_of(
        self, store: Store, run: RunRecord, version: int | None, input: Any
    ) -> tuple[Workflow[Any, *tuple[Any, ...]] | WorkflowRecord | None, str]:
        """The workflow of a fork, as far as it is known here, and its input.

        A version that nobody ever had is refused. Another input (a tuple is all arguments, anything else the only one)
        is checked by the code or, if that is elsewhere, by the catalogue.
        """
        wanted = run.version if version is None else version
        if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
            raise BadValue("version", version, "must be a whole number from 1")
        if input is not KEPT:
            args = input if isinstance(input, tuple) else (input,)
            asked = await called(self.registry, store, run.workflow, args, wanted)
            return asked.workflow, asked.input
        found = self.registry.find(run.workflow, wanted)
        if found is None and version is not None:
            known = await store.catalogue()
            if not any((one.name, one.version) == (run.workflow, version) for one in known):
                names = [f"{one.name} version {one.version}" for one in known]
                raise UnknownWorkflow(f"{run.workflow} version {version}", names)
        return found, run.input


def _imported(document: Document, run_id: str) -> RunRecord:
    run = run_of(document.run)
    if run_id == run.run_id:
        return run
    # A copy: nobody's child, and what it drew so far was drawn with the other id.
    last = max((one.seq for one in document.history), default=0)
    open = tuple(one.path for one in document.history if not one.seq)
    chain = (*origins_of(run.forked), Origin(run.run_id, last, open=open))
    return replace(
        run, run_id=run_id, parent_run_id=None, parent_path=None, forked=origins_text(chain)
    )


async def _whole(
    store: Store, run_id: str
) -> tuple[RunRecord, list[StepRecord], list[SignalRecord]]:
    """A run with its history and its buffer as of one moment."""
    loaded = await _load(store, run_id)
    for _ in range(_reads_max):
        signals = await store.buffered(run_id)
        again = await _load(store, run_id)
        if again == loaded:
            run, steps = loaded
            return run, steps, [] if run.status in TERMINAL else signals
        loaded = again
    raise Overloaded(
        f"run {run_id!r} changes faster than it can be read: pause it, or try again later"
    )


async def _load(store: Store, run_id: str) -> tuple[RunRecord, list[StepRecord]]:
    found = await store.load([run_id])
    if not found:
        raise RunNotFound(run_id)
    run, steps = found[0]
    return run, in_order(steps)


async def _answered(
    store: Store, run: RunRecord, steps: Sequence[StepRecord], now: int
) -> list[tuple[str, str | None]]:
    """Which of the signals that ended its waits can be answered only once, and were."""
    asked: dict[str, tuple[str, str | None]] = {}
    for step in steps:
        if step.wait is None or step.winner is None or step.state != "done":
            continue
        won = _decode_spec(step.wait).on[step.winner]
        if won.kind == "signal":
            for path in (None, step.path):
                _, key = claim_on(run.run_id, run.generation, won.target, path)
                asked[key] = (won.target, path)
    if not asked:
        return []
    known = await store.known_keys(claim_scope(run.run_id), list(asked), now)
    return [at for key, at in asked.items() if key in known]


def _about(run: RunRecord, entity: str | None) -> dict[str, Any]:
    if entity is None:
        return {}
    entity_type, entity_id = check_entity(entity)
    return {"entity_type": entity_type, "entity_id": entity_id}


def _place(
    run: RunRecord, pool: Pool | str | None, pool_key: str | None, priority: int | None
) -> dict[str, Any]:
    """Its pool: the original's unless another is named; a key and a priority count in it."""
    name = run.pool if pool is None else pool_name(pool)
    kept = name == run.pool
    key = check_pool_key(pool_key) if pool_key is not None else run.pool_key if kept else ""
    rank = check_priority(priority) if priority is not None else run.priority if kept else 0
    if not name and (key or rank):
        raise BadValue("pool", pool, "is none, so neither pool_key nor priority says anything")
    return {"pool": name, "pool_key": key, "priority": rank, "line_at": None, "admitted": True}
