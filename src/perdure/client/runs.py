"""A handle on one run over HTTP: see it, wait for it, steer it."""

# ruff: noqa: ASYNC109 (timeout is the API's word)

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec import UNSET

from perdure.client.transport import Patience, Transport, held_s
from perdure.client.wording import decoded, decoded_published, name_of, own_field, path_of, untyped
from perdure.errors import (
    PerdureError,
    RunCancelled,
    RunFailed,
)
from perdure.http import wire
from perdure.http.routes import BY_VERB
from perdure.inputs import checked_flag, checked_position
from perdure.model import limits
from perdure.model.codec import Codec, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import check_name
from perdure.model.records import ErrorRecord
from perdure.model.status import Status
from perdure.pools import Pool
from perdure.views import (
    BufferedSignal,
    HistoryEntry,
    Page,
    RunContents,
    RunInfo,
    StreamInfo,
    StreamItem,
    Waiting,
)

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class RemoteRun(Generic[R_co]):
    """One run, by its id, over HTTP: see it, wait for it, steer it, as with a `RunHandle`."""

    __slots__ = ("_client", "_codec", "created", "run_id")

    def __init__(
        self, client: Transport, run_id: str, codec: Codec, *, created: bool = False
    ) -> None:
        self._client, self.run_id, self._codec = client, run_id, codec
        self.created = created

    @property
    def id(self) -> str:
        return self.run_id

    def __repr__(self) -> str:
        return f"RemoteRun({self.run_id!r})"

    # --- seeing ---

    async def info(self) -> RunInfo:
        """Workflow, status, times, tags."""
        found: RunInfo = await self._client._call("info", run_id=self.run_id)
        return found

    async def status(self) -> Status:
        return (await self.info()).status

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and give the result; raises RunFailed, RunCancelled, or TimeoutError.

        A server that goes away for a while meanwhile is waited for.
        """
        left_s = None if timeout is None else parse_duration(timeout, "timeout") / 1_000_000
        loop = asyncio.get_running_loop()
        until = None if left_s is None else loop.time() + left_s
        patience = Patience()
        while True:
            wait_s = held_s if until is None else min(held_s, max(0.0, until - loop.time()))
            try:
                ended: wire.Ended = await self._client._call(
                    "result", run_id=self.run_id, wait=f"{wait_s:.3f}"
                )
            except (PerdureError, TimeoutError) as error:
                await patience.outlast(error)
            else:
                patience.met()
                if ended.ended:
                    return self._result_of(ended)
            if until is not None and loop.time() >= until:
                raise TimeoutError(
                    f"run {self.run_id!r} has not ended within {timeout}; it goes on: ask for its status, or wait "
                    "longer"
                )

    def _result_of(self, ended: wire.Ended) -> R_co:
        if ended.status == "completed":
            value: R_co = decoded(self._codec, ended.output, "the result")
            return value
        if ended.status == "failed":
            why = msgspec.convert(ended.failure or {}, ErrorRecord)
            raise RunFailed(self.run_id, why.type, why.message, why.traceback, why.path)
        raise RunCancelled(self.run_id, ended.status, ended.reason or "")

    async def contents(self) -> RunContents:
        """What the run was given, what it shows, and what came of it, as JSON has them."""
        found: RunContents = await self._client._call("contents", run_id=self.run_id)
        return found

    async def history(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[HistoryEntry]:
        """What the run has done, in the order it was recorded. What is open stands behind, on the last page, all of it.

        A step that is decided while pages are read is on a later one, though it was never on one, or open, before.
        """
        return await self._client._page("history", run_id=self.run_id, limit=limit, after=after)

    async def waiting(self) -> list[Waiting]:
        """What it waits for now."""
        return await self._client._list("waiting", run_id=self.run_id)

    async def buffered(self) -> list[BufferedSignal]:
        """The signals kept for it."""
        return await self._client._list("buffered", run_id=self.run_id)

    async def get(self, key: str, default: Any = None) -> Any:
        """What the workflow published with `ctx.set(key, …)`; of a play, `"state"` is its state as it is now."""
        published = await self._client._value("published", run_id=self.run_id)
        if key in published:
            return decoded(untyped, published[key], f"what is published as {key!r}")
        if key == "state":
            state = await self._client._value("state_at", run_id=self.run_id)
            return default if state is None else decoded(self._codec, state, "the state")
        return default

    async def state_at(self, path: str) -> Any:
        """The state of a play right after the part at this path."""
        state = await self._client._value("state_at", run_id=self.run_id, path=path)
        return decoded(self._codec, state, "the state")

    async def graph(self) -> dict[str, Any]:
        """The play that this run performs, with what became of each part (`status`)."""
        found: dict[str, Any] = await self._client._value("graph", run_id=self.run_id)
        return found

    async def streams(self) -> list[StreamInfo]:
        """The streams that it has published to, by name."""
        return await self._client._list("streams", run_id=self.run_id)

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

        A connection that breaks is made anew, where this one ended: no item is missed, and none comes twice.
        """
        check_name("stream", name)
        after = checked_position(after)
        codec = codec_for(type, where=f"the items of stream {name!r}")
        read = self._followed if checked_flag("follow", follow) else self._there
        return self._items(name, codec, read(name, after))

    async def _items(
        self, name: str, codec: Codec, read: AsyncGenerator[StreamItem[Any], None]
    ) -> AsyncGenerator[StreamItem[Any], None]:
        async with aclosing(read) as items:
            async for one in items:
                what = f"item {one.position} of stream {name!r}"
                yield msgspec.structs.replace(one, value=decoded_published(codec, one.value, what))

    async def _followed(self, name: str, after: int) -> AsyncGenerator[StreamItem[Any], None]:
        route = BY_VERB["stream"]
        path = path_of(route, {"run_id": self.run_id, "name": name})
        messages = self._client._messages(route, path, {}, after or None)
        async with aclosing(messages) as found:
            async for kind, data in found:
                if kind == "item":
                    yield msgspec.json.decode(data, type=StreamItem[Any])

    async def _there(self, name: str, after: int) -> AsyncGenerator[StreamItem[Any], None]:
        while items := await self._client._list(
            "stream_items", run_id=self.run_id, name=name, after=after, limit=limits.page_rows_max
        ):
            for one in items:
                yield one
            after = items[-1].position

    # --- steering ---

    async def cancel(self, reason: str | None = None) -> Status:
        """Ask it, and its children, to stop: CancelledError where its code stands, so it may clean up."""
        return await self._steer("cancel", reason=reason)

    async def terminate(self, reason: str | None = None) -> Status:
        """End it, and its children, at once; no code runs."""
        return await self._steer("terminate", reason=reason)

    async def pause(self, reason: str | None = None) -> Status:
        """Hold it: the step in flight is still recorded, then nothing advances; signals are buffered."""
        return await self._steer("pause", reason=reason)

    async def resume(self) -> Status:
        """Let a paused run go on."""
        return await self._steer("resume")

    async def retry(self, path: str | None = None, *, payload: Any = UNSET) -> Status:
        """Reopen a failed run at the step it failed at; or from the step at `path` on."""
        answer = payload if payload is UNSET else own_field("the payload", payload)
        return await self._steer("retry", path=path, payload=answer)

    async def _steer(self, verb: str, **given: Any) -> Status:
        status: Status = await self._client._value(verb, run_id=self.run_id, **given)
        return status

    async def export(self) -> dict[str, Any]:
        """The run as a plain dict that JSON carries, for `import_run`, or tests."""
        found: dict[str, Any] = await self._client._value("export", run_id=self.run_id)
        return found

    async def fork(
        self,
        from_path: str | None = None,
        *,
        input: Any = UNSET,
        id: str | None = None,
        version: int | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str | None = None,
        priority: int | None = None,
    ) -> "RemoteRun[R_co]":
        """Make another run that goes on from a place of this one's history, whatever has become of it."""
        args: Any = UNSET
        if input is not UNSET:
            given = input if isinstance(input, tuple) else (input,)
            args = [own_field("the input", one) for one in given]
        found: wire.Started = await self._client._call(
            "fork",
            run_id=self.run_id,
            from_path=from_path,
            input=args,
            id=id,
            version=version,
            tags=tags,
            entity=entity,
            deadline=deadline,
            pool=name_of(pool),
            pool_key=pool_key,
            priority=priority,
        )
        return RemoteRun(self._client, found.id, self._codec, created=found.created)
