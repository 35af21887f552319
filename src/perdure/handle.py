"""A handle on one run: see it, wait for it, steer it."""

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from perdure.channels import RunEnd
from perdure.coordinator.wake import RunEnding, too_late
from perdure.errors import (
    RunCancelled,
    RunFailed,
    RunNotFound,
    Undecodable,
    refusal_error,
)
from perdure.model import ops
from perdure.model.codec import BadPayload, Codec
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import check_reason
from perdure.model.outcomes import Steered, SteerOutcome
from perdure.model.records import ErrorRecord, RunRecord
from perdure.model.status import TERMINAL, Status
from perdure.views import (
    BufferedSignal,
    HistoryEntry,
    RunInfo,
    Waiting,
    history_entry,
    run_info,
)

if TYPE_CHECKING:
    from perdure.app import App

R_co = TypeVar("R_co", covariant=True)


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

    async def history(self) -> list[HistoryEntry]:
        """What the run has done, in the order it was recorded; what is still open comes last."""
        await self._record()
        return [history_entry(one) for one in await self._app._engine().store.history(self.run_id)]

    async def waiting(self) -> list[Waiting]:
        """What it waits for now."""
        return await self._app.waiting(self.run_id)

    async def buffered(self) -> list[BufferedSignal]:
        """The signals kept for it."""
        return await self._app.buffered(self.run_id)

    async def get(self, key: str, default: Any = None) -> Any:
        """What the workflow published with `ctx.set(key, …)`."""
        published = (await self._record()).published
        if published is None:
            return default
        raw = msgspec.json.decode(published, type=dict[str, msgspec.Raw]).get(key)
        return default if raw is None else self._app._untyped.decode(bytes(raw))

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

    async def retry(self) -> Status:
        """Reopen a failed run at the step it failed at."""
        status = await self._steer(ops.Retry(run_id=self.run_id))
        self._ending.run = None
        self._fresh = False
        return status

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
