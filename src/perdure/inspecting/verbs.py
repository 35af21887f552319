"""The verbs of an app for who looks after its store: what it is, whether it is sound, what it knows, a copy of it.

`Inspecting` is the part of App that holds them. Nothing here changes anything, but `fsck(repair=True)`, which writes
through ops like everybody else, and `backup`, which writes another file.
"""

import os
from collections.abc import Callable

from perdure.engine import Engine
from perdure.inspecting.catalogue import (
    ChannelInfo,
    WorkerInfo,
    WorkflowInfo,
    channel_info,
    worker_info,
    workflow_infos,
)
from perdure.inspecting.doctor import Diagnosis, SchemaVersion, diagnose, schema_version
from perdure.inspecting.findings import Progress, Report
from perdure.inspecting.mending import check, check_and_repair
from perdure.model.ids import Ids
from perdure.model.limits import BadValue
from perdure.store.base import Store
from perdure.store.urls import without_password


class Inspecting:
    """What an App can tell of its store."""

    url: str
    namespace: str | None
    _engine: Callable[[], Engine]
    _make_store: Callable[[Ids], Store]
    _make_ids: Callable[[], Ids]

    async def doctor(self) -> Diagnosis:
        """What the store is, which promises it keeps as it is set up, who works on it, and what to see to."""
        store = self._engine().store
        return diagnose(
            await store.describe(),
            without_password(self.url),
            self.namespace,
            await self.workers(),
            await store.counts(),
        )

    async def fsck(self, repair: bool = False, progress: Progress | None = None) -> Report:
        """Check that all in the store holds together, in pages, while others work; writes nothing.

        With `repair` what ops can set right is set right, and all is checked again. `progress` is called with the name
        of a table and how many rows of it were looked at. `perdure.inspecting.checking` says what is checked.
        """
        engine = self._engine()
        now = engine.clock.now
        if progress is not None and not callable(progress):
            raise BadValue("progress", progress, "must be a function of a name and a number")
        if repair:
            return await check_and_repair(engine.store, now, engine.coordinator, progress)
        return await check(engine.store, now, progress)

    async def schema_version(self) -> SchemaVersion:
        """Which schema is stored, and whether to open the store would bring it up. The app need not be open.

        Raises StoreRefused if the store is out of reach or not one of perdure.
        """
        return schema_version(await self._make_store(self._make_ids()).versions())

    async def backup(self, path: str | os.PathLike[str]) -> int:
        """Copy a store on SQLite into a new file, from one moment, while workers run; gives its size in bytes.

        Raises StoreRefused if the file exists or cannot be made, and on other stores: Postgres and Redis have tools of
        their own.
        """
        return await self._engine().store.backup(_checked_path(path))

    async def catalogue(self) -> list[WorkflowInfo]:
        """Every version of every workflow that some app has declared: what it takes, gives and listens to."""
        store = self._engine().store
        return workflow_infos(await store.catalogue(), await store.workers())

    async def channels(self) -> list[ChannelInfo]:
        """Every topic and queue that some app has declared."""
        return [channel_info(one) for one in await self._engine().store.channels()]

    async def workers(self) -> list[WorkerInfo]:
        """The workers that live, and what they execute."""
        store = self._engine().store
        return [worker_info(one, by_lease=store.needs_beats) for one in await store.workers()]

    async def counts(self) -> dict[str, int]:
        """How many rows of each kind there are: `runs`, `runs.waiting`, `steps`, `events`, …"""
        return await self._engine().store.counts()


def _checked_path(path: str | os.PathLike[str]) -> str:
    try:
        target = os.fspath(path)
        if isinstance(target, str) and target and b"\0" not in os.fsencode(target):
            return target
    except (TypeError, UnicodeEncodeError):
        pass
    raise BadValue("path", path, "must be the path of a new file, as text")
