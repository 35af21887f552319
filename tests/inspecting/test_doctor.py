"""What `doctor` says is so: promises follow from settings, and nothing is made, changed or given away by asking."""

import os
from pathlib import Path
from typing import Any

import pytest
from worlds import Worlds

from perdure import App, BadValue, StoreRefused
from perdure.inspecting.doctor import promises
from perdure.store.base import Described, Versions
from perdure.store.postgres import judging as postgres
from perdure.store.redis import judging as redis

FAULTS = ["process killed", "server killed", "power loss", "failover", "disk full"]


def described(kind: Any, settings: Any, **facts: str) -> Described:
    versions = Versions(stored=1, min_code=1, known=1)
    return Described(
        kind=kind,
        product=kind,
        version="1",
        versions=versions,
        namespace=None,
        bytes=None,
        settings=tuple(settings),
        facts=facts,
    )


def kept(found: Described) -> list[bool]:
    told = promises(found)
    assert [one.fault for one in told] == FAULTS
    return [one.kept for one in told]


_sound = {
    "fsync": "on",
    "synchronous_commit": "on",
    "server_encoding": "UTF8",
    "full_page_writes": "on",
    "in_recovery": "false",
}


@pytest.mark.parametrize(
    ("changed", "standbys", "expected"),
    [
        ({}, "", [True, True, True, False, True]),
        ({}, "one", [True, True, True, True, True]),
        ({"synchronous_commit": "remote_write"}, "one", [True, True, True, True, True]),
        ({"synchronous_commit": "local"}, "one", [True, True, True, False, True]),
        ({"synchronous_commit": "off"}, "one", [True, False, False, False, True]),
        ({"fsync": "off"}, "one", [True, False, False, False, True]),
        ({"full_page_writes": "off"}, "", [True, True, False, False, True]),
    ],
)
def test_promises_of_postgres(changed: dict[str, str], standbys: str, expected: list[bool]) -> None:
    facts = _sound | changed
    settings = (*postgres.judged(facts), *postgres.judged_besides(facts))
    found = described("postgres", settings, synchronous_standby_names=standbys)
    assert kept(found) == expected


_logged = {
    "maxmemory_policy": "noeviction",
    "appendonly": "yes",
    "no-appendfsync-on-rewrite": "no",
    "appendfsync": "always",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [True, True, True, False, True]),
        ({"appendfsync": "everysec"}, [True, False, False, False, True]),
        ({"appendfsync": "unknown"}, [True, False, False, False, True]),
        ({"no-appendfsync-on-rewrite": "yes"}, [True, False, False, False, True]),
        ({"appendonly": "no"}, [True, False, False, False, True]),
    ],
)
def test_promises_of_redis(changed: dict[str, str], expected: list[bool]) -> None:
    assert kept(described("redis", redis.judged(_logged | changed))) == expected


async def test_a_store_is_described_as_it_is(world: Worlds) -> None:
    app = App("memory://")
    async with world(app) as stage:
        found = await stage.app.doctor()
        assert found.schema == await stage.app.schema_version()
        assert not found.schema.migrates and not found.schema.refused
        (worker,) = found.workers
        assert (worker.lease_until is not None) == stage.app._engine().store.needs_beats
        assert await stage.app.workers() == [worker]
        assert found.counts == await stage.app.counts()
        assert [one.fault for one in found.promises] == FAULTS
        assert all(one.ok for one in found.settings if one.name != "sqlite_version")
        assert [one for one in found.warnings if "keeps nothing" not in one] == []
    async with world(app, worker=False) as stage:
        assert any("no worker lives" in one for one in (await stage.app.doctor()).warnings)


async def test_to_ask_for_the_schema_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    found = await App(f"sqlite:///{path}").schema_version()
    assert (found.stored, found.migrates) == (None, True)
    assert os.listdir(tmp_path) == []
    path.write_text("nothing of ours" * 100)
    with pytest.raises(StoreRefused, match="not a database"):
        await App(f"sqlite:///{path}").schema_version()


@pytest.mark.parametrize(
    "url", ["postgresql://anna:sekret@127.0.0.1:1/x", "redis://:sekret@127.0.0.1:1"]
)
async def test_no_password_is_told(url: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        await App(url).schema_version()
    assert "sekret" not in str(refused.value)


# --- copies ---


async def test_a_copy_is_of_one_moment_and_can_be_opened(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    async with App(f"sqlite:///{tmp_path}/shop.db") as app:
        await app.emit_many([("news", nth) for nth in range(100)])
        assert await app.backup(copy) == copy.stat().st_size
        assert copy.stat().st_mode == (tmp_path / "shop.db").stat().st_mode
        await app.emit("news", 100)
    async with App(f"sqlite:///{copy}", worker=False) as app:
        assert (await app.counts())["events"] == 100
        assert (await app.fsck()).findings == []


async def test_nothing_is_written_over(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.write_text("of somebody else")
    (tmp_path / "link.db").symlink_to(tmp_path / "shop.db")
    async with App(f"sqlite:///{tmp_path}/shop.db") as app:
        for path in (there, tmp_path, tmp_path / "shop.db", tmp_path / "link.db"):
            with pytest.raises(StoreRefused):
                await app.backup(path)
        with pytest.raises(StoreRefused, match="cannot be made"):
            await app.backup(tmp_path / "nowhere" / "copy.db")
        assert there.read_text() == "of somebody else"


@pytest.mark.parametrize("path", ["", 5, b"copy.db", "a\0b", "a\ud800"])
async def test_what_is_no_path_is_refused(tmp_path: Path, path: Any) -> None:
    async with App(f"sqlite:///{tmp_path}/shop.db") as app:
        with pytest.raises(BadValue, match="path of a new file"):
            await app.backup(path)


@pytest.mark.parametrize("world", ["memory", "postgres", "redis"], indirect=True)
async def test_other_stores_are_backed_up_otherwise(world: Worlds, tmp_path: Path) -> None:
    async with world(App("memory://"), worker=False) as stage:
        with pytest.raises(StoreRefused, match="back"):
            await stage.app.backup(tmp_path / "copy.db")
    assert "copy.db" not in os.listdir(tmp_path)
