"""A handle on one run: see it, wait for it, steer it."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from perdure.channels import RunEnd
from perdure.coordinator.wake import RunEnding, too_late
from perdure.errors import (
    RunCancelled,
    RunFailed,
    RunNotFound,
    Undecodable,
    refusal_error,
)
from perdure.following import infos, items
from perdure.inputs import checked_flag, checked_limit, checked_position
from perdure.model import limits, ops
from perdure.model.codec import BadPayload, Codec, Unencodable, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, check_name, check_path, check_reason
from perdure.model.outcomes import Steered, SteerOutcome
from perdure.model.records import (
    ErrorRecord,
    RunRecord,
    StepRecord,
    history_place,
)
from perdure.model.status import TERMINAL, Status
from perdure.play import Play
from perdure.play.drawing import with_position
from perdure.play.states import in_order, state_after
from perdure.views import (
    BufferedSignal,
    HistoryEntry,
    Page,
    RunContents,
    RunInfo,
    StreamInfo,
    StreamItem,
    Waiting,
    decode_cursor,
    history_entry,
    page,
    run_contents,
    run_info,
)

if TYPE_CHECKING:
    from perdure.app import App
    from perdure.pools import Pool

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class RunHandle(RunEnd[R_co], Generic[R_co]):
    """One run, by its id. In a workflow it can be waited for like a signal."""

    __slots__ = ("_app", "_ending", "_fresh", "created")

    def __init__(
        self,
        app: "App",
        run_id: str,
        codec: Codec,
        ending: RunEnding,
        *,
        created: bool = False,
        fresh: bool = False,
    ) -> None:
        self.run_id = run_id
        self._codec = codec
        self._app = app
        self._ending = ending
        self._fresh = fresh  # started just now by this process: its end cannot have been missed
        self.created = created

    @property
    def id(self) -> str:
        return self.run_id

    # --- seeing ---

    async def info(self) -> RunInfo:
        """Workflow, status, times, tags."""
        return run_info(await self._record())

    async def status(self) -> Status:
        return (await self._record()).status

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 (the API's word)
        """Wait for the end and give the result; raises RunFailed, RunCancelled, or TimeoutError."""
        if timeout is not None:
            return await self._result_within(timeout)
        hub = self._app._engine().coordinator.hub
        if self._ending.closed:  # the app was closed, and opened again since
            self._ending, self._fresh = hub.ending(self.run_id), False
            if self._ending.closed:
                raise too_late()
        run = self._ending.run
        if not self._fresh or (run is not None and run.status == "failed"):
            await self._look()
            run = self._ending.run
        if run is None:
            run = await hub.waiter(self.run_id, self._ending)
        return self._result_of(run)

    async def _result_within(self, timeout: Duration) -> R_co:  # noqa: ASYNC109
        bound = asyncio.timeout(parse_duration(timeout, "timeout") / 1_000_000)
        try:
            async with bound:
                return await self.result()
        except TimeoutError:
            if not bound.expired():  # the store's, not ours
                raise
            raise TimeoutError(
                f"run {self.run_id!r} has not ended within {timeout}; it goes on: ask for its status, or wait longer"
            ) from None

    async def _look(self) -> None:
        """It may have ended where nobody told us, or have been retried since we were told."""
        told = self._ending.run
        run = await self._record()
        if run.status in TERMINAL:
            self._ending.tell(run)
        elif self._ending.run is told:
            self._ending.run = None

    def _result_of(self, run: RunRecord) -> R_co:
        if run.status == "completed":
            try:
                value: R_co = self._codec.decode(run.output or "null")
            except BadPayload as error:
                raise Undecodable("the result", str(error)) from error
            return value
        if run.status == "failed":
            why = msgspec.json.decode(run.error or "", type=ErrorRecord)
            raise RunFailed(run.run_id, why.type, why.message, why.traceback, why.path)
        raise RunCancelled(run.run_id, run.status, run.reason or "")

    async def contents(self) -> RunContents:
        """What the run was given, what it shows, and what came of it, as JSON has them."""
        return run_contents(await self._record())

    async def history(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[HistoryEntry]:
        """What the run has done, in the order it was recorded. What is open stands behind, on the last page, all of it.

        A step that is decided while pages are read is on a later one, though it was never on one, or open, before.
        """
        limit = checked_limit(limit)
        seen = None if after is None else decode_cursor(after, tuple[int, int, str])
        await self._record()
        rows = await self._app._engine().store.history_page(self.run_id, seen, limit + 1)
        decided = [one for one in rows if one.seq]
        if len(decided) > limit:
            return page(decided, limit, history_entry, history_place)
        return Page([history_entry(one) for one in rows], None)

    async def waiting(self) -> list[Waiting]:
        """What it waits for now."""
        return await self._app.waiting(self.run_id)

    async def buffered(self) -> list[BufferedSignal]:
        """The signals kept for it."""
        return await self._app.buffered(self.run_id)

    async def get(self, key: str, default: Any = None) -> Any:
        """What the workflow published with `ctx.set(key, …)`; of a play, `"state"` is its state as it is now."""
        run = await self._record()
        published = msgspec.json.decode(run.published or "{}", type=dict[str, msgspec.Raw])
        raw = published.get(key)
        if raw is not None:
            return self._app._untyped.decode(bytes(raw))
        if key == "state" and await self._graph(run) is not None:
            return self._codec.decode(state_after(*await self._states(run)) or "null")
        return default

    async def state_at(self, path: str) -> Any:
        """The state of a play right after the part at this path: an act, a signal, a scene or a chorus."""
        check_path(path)
        run = await self._record()
        await self._require_graph(run)
        start, steps = await self._states(run)
        text = state_after(start, steps, path)
        if text is None:
            known = (
                ", ".join(dict.fromkeys(one.path for one in steps if one.kind == "act")) or "none"
            )
            raise BadValue(
                "path", path, f"has no state on record in run {self.run_id!r}; known: {known}"
            )
        return self._codec.decode(text)

    async def _states(self, run: RunRecord) -> tuple[str, list[StepRecord]]:
        """The state that a play began with, and its steps in order; as its type has them by now, if that is here.

        So fields that came or went with new code are not taken for what a branch of a chorus has changed.
        """
        start, steps = _first_input(run), in_order(await self._steps())
        play = self._app._engine().registry.find(run.workflow, run.version)
        if not isinstance(play, Play):
            return start, steps
        now = [
            replace(one, value=_as_now(play.codec, one.value))
            if one.kind == "act" and one.value is not None
            else one
            for one in steps
        ]
        return _as_now(play.codec, start), now

    async def graph(self) -> dict[str, Any]:
        """The play that this run performs, as `play.graph()` gives it, with what became of each part (`status`)."""
        run = await self._record()
        graph = await self._require_graph(run)
        steps = [one for one in await self._steps() if one.generation == run.generation]
        error = msgspec.json.decode(run.error, type=ErrorRecord) if run.error else None
        return with_position(graph, steps, run.status, None if error is None else error.path)

    async def _graph(self, run: RunRecord) -> dict[str, Any] | None:
        """From the code, if it is here, else from the catalogue."""
        engine = self._app._engine()
        workflow = engine.registry.find(run.workflow, run.version)
        if workflow is not None:
            return workflow.graph() if isinstance(workflow, Play) else None
        for line in await engine.store.catalogue():
            if (line.name, line.version) == (run.workflow, run.version) and line.play is not None:
                found: dict[str, Any] = msgspec.json.decode(line.play)
                return found
        return None

    async def _require_graph(self, run: RunRecord) -> dict[str, Any]:
        graph = await self._graph(run)
        if graph is None:
            raise BadValue("run", self.run_id, f"is one of {run.workflow!r}, which is no play")
        return graph

    async def _steps(self) -> list[StepRecord]:
        return await self._app._engine().store.history(self.run_id)

    @overload
    def stream(
        self, name: str, *, after: int = 0, type: type[T], follow: bool = True
    ) -> AsyncGenerator[StreamItem[T], None]: ...
    @overload
    def stream(
        self, name: str, *, after: int = 0, type: Any = Any, follow: bool = True
    ) -> AsyncGenerator[StreamItem[Any], None]: ...
    def stream(
        self, name: str, *, after: int = 0, type: Any = Any, follow: bool = True
    ) -> AsyncGenerator[StreamItem[Any], None]:
        """What the run publishes: items after a position, those that are there and then those that come.

        Ends when the run has ended and all was given; with `follow=False` at what is there now. Whoever comes back
        gives the last position that was seen as `after=`; if that has gone by now, the oldest that is kept comes first.
        """
        engine = self._app._engine()
        return items(
            engine.store,
            engine.coordinator.hub,
            self.run_id,
            check_name("stream", name),
            checked_position(after),
            codec_for(type, where=f"the items of stream {name!r}"),
            follow=checked_flag("follow", follow),
        )

    async def streams(self) -> list[StreamInfo]:
        """The streams that it has published to, by name."""
        return await infos(self._app._engine().store, self.run_id)

    # --- steering ---

    async def cancel(self, reason: str | None = None) -> Status:
        """Ask it, and its children, to stop: CancelledError where its code stands, so it may clean up."""
        return await self._steer(ops.Cancel(run_id=self.run_id, reason=check_reason(reason)))

    async def terminate(self, reason: str | None = None) -> Status:
        """End it, and its children, at once; no code runs."""
        return await self._steer(ops.Terminate(run_id=self.run_id, reason=check_reason(reason)))

    async def pause(self, reason: str | None = None) -> Status:
        """Hold it: the step in flight is still recorded, then nothing advances; signals are buffered."""
        return await self._steer(ops.Pause(run_id=self.run_id, reason=check_reason(reason)))

    async def resume(self) -> Status:
        """Let a paused run go on."""
        return await self._steer(ops.Resume(run_id=self.run_id))

    async def retry(self, path: str | None = None, *, payload: Any = msgspec.UNSET) -> Status:
        """Reopen a failed run at the step it failed at; or from the step at `path` on.

        With a `payload` the wait at `path`, which a signal had ended, ends with this one instead: both are on the
        ledger. What a saga had rolled back is done anew.
        """
        status = await self._steer(await self._app._retry_op(self.run_id, path, payload))
        self._ending.run = None
        self._fresh = False
        return status

    # --- carrying ---

    async def export(self) -> dict[str, Any]:
        """The run as a plain dict that JSON carries, of the format `perdure.run/1`: for `app.import_run`, or tests."""
        return await self._app._export(self.run_id)

    async def fork(
        self,
        from_path: str | None = None,
        *,
        input: Any = msgspec.UNSET,
        id: str | None = None,
        version: int | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: "Pool | str | None" = None,
        pool_key: str | None = None,
        priority: int | None = None,
    ) -> "RunHandle[R_co]":
        """Make another run that goes on from a place of this one's history, whatever has become of it.

        All that was recorded before the step at `from_path` is taken over (nothing, if no path is named); from there on
        the fork is on its own. `input` replaces the input: a tuple is all arguments of the workflow, anything else its
        only one. With `version` it goes on with other code. Tags, entity and pool are those of this run unless given.
        """
        return await self._app._fork(
            self.run_id,
            from_path,
            input=input,
            id=id,
            version=version,
            tags=tags,
            entity=entity,
            deadline=deadline,
            pool=pool,
            pool_key=pool_key,
            priority=priority,
        )

    async def _steer(self, op: ops.Op[SteerOutcome]) -> Status:
        outcome = await self._app._engine().coordinator.submit(op)
        if isinstance(outcome, Steered):
            return outcome.status
        raise refusal_error(outcome, self.run_id, self.run_id)

    async def _record(self) -> RunRecord:
        run = await self._app._engine().store.run(self.run_id)
        if run is None:
            raise RunNotFound(self.run_id)
        return run

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"


def _as_now(codec: Codec, text: str) -> str:
    """A state as its type writes it by now; one of older code that no longer fits is left as it stands."""
    try:
        return codec.encode(codec.decode(text))
    except (BadPayload, Unencodable):
        return text


def _first_input(run: RunRecord) -> str:
    """The state that a play began with."""
    (first,) = msgspec.json.decode(run.input, type=list[msgspec.Raw])
    return bytes(first).decode()
