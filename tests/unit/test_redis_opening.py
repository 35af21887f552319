"""Opening a store on Redis: what a URL may say, which servers are refused, and what a namespace says of itself."""

import re
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from servers.premises import Premises
from servers.stores import redis_store
from servers.valkey import ValkeyProcess

from perdure import App, StoreRefused
from perdure.model.limits import BadValue
from perdure.model.records import OutboxRecord
from perdure.store import open_store
from perdure.store.redis import opening
from perdure.store.redis.connecting import is_lost, parse_url, refuses_all
from perdure.store.redis.scripts import script
from perdure.store.redis.store import RedisStore

Lend = Callable[[], str]


# --- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "plain", "relaxed", "notify"),
    [
        ("redis://host:7000/2", "redis://host:7000/2", False, True),
        ("valkey://host", "redis://host", False, True),
        ("valkeys://host", "rediss://host", False, True),
        ("redis://host?durability=relaxed&notify=0", "redis://host", True, False),
        ("redis://host?durability=strict&db=3", "redis://host?db=3", False, True),
    ],
)
def test_what_a_url_says(url: str, plain: str, relaxed: bool, notify: bool) -> None:
    assert parse_url(url) == (plain, relaxed, notify)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://host?durability=maybe", "durability is strict or relaxed, not .maybe"),
        ("redis://host?notify=perhaps", "notify is 0 or 1"),
        ("redis://host:port", "no address of a Redis"),
        ("redis://host?colour=blue", "no option 'colour'.*durability="),
        ("redis://host/two", "no address of a Redis.*number of a database"),
        ("redis://host/-1", "no address of a Redis.*number of a database"),
        ("redis:///run/redis.sock", "no address of a Redis.*number of a database"),
    ],
)
def test_a_url_that_no_client_could_use_is_refused(url: str, reason: str) -> None:
    with pytest.raises(StoreRefused, match=reason):
        parse_url(url)


def test_no_message_shows_a_password() -> None:
    with pytest.raises(StoreRefused) as refused:
        parse_url("redis://me:secret@host?durability=maybe")
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(App("redis://me:secret@host"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:sec/ret@host:port",
        "redis://:se#cret@host",
        "redis://me:secret@[::1",
        "redis://host?ssl_password=secret&colour=blue",
        "redis://host?pass%77ord=secret&colour=blue",
    ],
)
def test_nor_a_password_that_is_no_good(url: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        parse_url(url)
    assert not re.search("sec|cret", str(refused.value))


def test_options_that_are_ours_are_not_overridden() -> None:
    with pytest.raises(StoreRefused, match="decode_responses is not yours to choose"):
        parse_url("redis://host?decode_responses=true")


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_every_scheme_leads_here(scheme: str) -> None:
    made = redis_store(f"{scheme}://host")
    found = open_store(
        f"{scheme}://host", namespace=None, clock=made._clock, ids=made._ids, lifecycle=True
    )
    assert isinstance(found, RedisStore)


# --- servers ---------------------------------------------------------------------------------------


async def reason_of(url: str) -> str:
    with pytest.raises(StoreRefused) as refused:
        await redis_store(url).open()
    return refused.value.reason


async def test_nobody_there() -> None:
    assert "cannot be reached" in await reason_of("redis://127.0.0.1:1")


async def test_a_server_that_drops_keys_is_refused_whatever_is_accepted(
    valkey_process: ValkeyProcess,
) -> None:
    with valkey_process.address.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    for url in (valkey_process.url, f"{valkey_process.url}?durability=relaxed"):
        assert "runs would vanish" in await reason_of(url)
    with valkey_process.address.client() as client:
        assert client.dbsize() == 0


async def test_a_replica_is_refused(premises: Premises, valkey_process: ValkeyProcess) -> None:
    settings = {"replicaof": f"127.0.0.1 {valkey_process.port}"}
    with ValkeyProcess(premises, {"appendonly": "no", **settings}) as replica:
        assert "is a replica" in await reason_of(f"{replica.url}?durability=relaxed")


async def test_an_app_that_is_refused_says_why(valkey_process: ValkeyProcess) -> None:
    with valkey_process.address.client() as client:
        client.config_set("appendfsync", "everysec")
    with pytest.raises(StoreRefused, match=r"once a second only .*appendfsync always"):
        async with App(valkey_process.url):
            pass


# --- users -----------------------------------------------------------------------------------------


def allow(server: ValkeyProcess, *rules: str) -> str:
    """The address of a user with these rules."""
    with server.address.client() as client:
        client.execute_command("ACL", "SETUSER", "me", "reset", "on", ">p@ss/w:rd", *rules)
    return server.url.replace("//", "//me:p%40ss%2Fw%3Ard@")


async def test_a_user_of_the_namespace_needs_no_more_than_is_said(
    valkey_process: ValkeyProcess,
) -> None:
    said = [f"+{one}" for one in opening.commands.split()]
    more = ("+eval", "+evalsha", "+config|get", "+publish", "+subscribe", "&{perdure}:hints:*")
    url = allow(valkey_process, "~{perdure}:*", *said, *more)
    app = App(url)

    @app.workflow
    async def echo(ctx: object, n: int) -> int:
        return n

    async with app:
        assert await (await app.start(echo, 1)).result("30s") == 1


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        (("~{perdure}:*", "+@all", "-xadd"), "may not use XADD with"),
        (("~{perdure}:*", "+@all", "-@sortedset"), "ZADD ZCARD"),
        (("~other:*", "+@all"), "to the keys {perdure}:*: No permissions"),
        (("~{perdure}:*", "+@all", "-evalsha"), "evalsha"),
        (("~{perdure}:*", "+@all", "-info"), "info"),
    ],
)
async def test_a_user_who_may_not_do_all_of_it_is_refused_by_name_and_nothing_is_written(
    valkey_process: ValkeyProcess, rules: tuple[str, ...], word: str
) -> None:
    reason = await reason_of(allow(valkey_process, *rules))
    assert word in reason and "p@ss" not in reason
    with valkey_process.address.client() as client:
        assert client.dbsize() == 0


def test_the_commands_that_users_need_are_those_that_scripts_use() -> None:
    texts = [
        script(one).text for one in ("apply", "ask", "beat", "disown", "greet", "let_go", "settle")
    ]
    used = {one for text in texts for one in re.findall(r"call\('([A-Z]+)'", text)}
    assert used | {"SADD", "SREM", "SET", "SCARD", "ZLEXCOUNT"} == {*opening.commands.split()}


# --- what servers say ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "within", ["", "Error running script (call to f_0a): @user_script:4: @user_script: 4: -"]
)
def test_what_a_script_is_told_is_understood_by_the_words_of_older_servers_too(within: str) -> None:
    """Redis 6.2 puts it into a sentence of its own."""
    full = ResponseError(f"{within}OOM command not allowed when used memory > 'maxmemory'.")
    assert refuses_all(full) and not is_lost(full)
    replica = ResponseError(f"{within}READONLY You can't write against a read only replica.")
    assert is_lost(replica) and not refuses_all(replica)
    ours = ResponseError("user_script:4: Script attempted to access nonexistent -OOM variable")
    assert not refuses_all(ours) and not is_lost(ours)


# --- namespaces ------------------------------------------------------------------------------------


async def test_a_key_of_somebody_else_is_left_alone(
    redis_url: str, lend_redis_namespace: Lend
) -> None:
    store = redis_store(redis_url, lend_redis_namespace())
    async with Redis.from_url(redis_url) as client:
        await client.set(store._key("meta"), "mine")
        assert "no namespace of perdure" in await reason_at(store)
        assert await client.get(store._key("meta")) == b"mine"


async def reason_at(store: RedisStore) -> str:
    with pytest.raises(StoreRefused) as refused:
        await store.open()
    return refused.value.reason


async def test_newer_code_shuts_this_code_out(redis_url: str, lend_redis_namespace: Lend) -> None:
    namespace = lend_redis_namespace()
    store = redis_store(redis_url, namespace)
    await store.open()
    await store.close()
    async with Redis.from_url(redis_url) as client:
        await client.hset(store._key("meta"), "min_code", str(opening.schema_known + 1))  # type: ignore[misc]
    assert "upgrade perdure" in await reason_at(redis_store(redis_url, namespace))


async def test_namespaces_do_not_see_each_other(redis_url: str, lend_redis_namespace: Lend) -> None:
    one, other = (redis_store(redis_url, lend_redis_namespace()) for _ in range(2))
    assert one._layout.tag != other._layout.tag
    await one.open()
    await one.close()
    async with Redis.from_url(redis_url) as client:
        assert await client.exists(one._key("meta")) == 1
        assert await client.exists(other._key("meta")) == 0


async def test_nor_do_processes_in_two_databases_hear_each_other(
    redis_url: str, lend_redis_namespace: Lend
) -> None:
    namespace = lend_redis_namespace()
    here, there = redis_store(redis_url, namespace), redis_store(f"{redis_url}/1", namespace)
    await here.open()
    try:
        assert here._hints is not None
        async with Redis.from_url(redis_url) as client:
            mine = here._hints._channel
            assert await client.pubsub_numsub(mine) == [(mine.encode(), 1)]
            await there.open()
            assert await client.pubsub_numsub(mine) == [(mine.encode(), 1)]
    finally:
        await here.close()
        await there.close()
        async with Redis.from_url(f"{redis_url}/1") as other:
            await other.delete(there._layout.meta)


async def test_scripts_that_the_server_has_forgotten_are_sent_again(
    valkey_process: ValkeyProcess,
) -> None:
    """A server of its own: on the shared one other tests send the scripts again at any moment."""
    store = redis_store(valkey_process.url)
    await store.open()
    try:
        async with Redis.from_url(valkey_process.url) as client:
            await client.script_flush()
            assert await client.script_exists(script("ask").sha) == [False]
        assert await store.span() == (1, 0)
    finally:
        await store.close()


async def test_nothing_has_a_time_to_live(redis_url: str, lend_redis_namespace: Lend) -> None:
    """A server that drops keys by their age would drop ours."""
    app = App(redis_url, namespace=lend_redis_namespace())

    @app.workflow
    async def echo(ctx: object, n: int) -> int:
        return n

    async with app:
        run = await app.start(echo, 1, tags={"a": "b"}, entity="order/1")
        assert await run.result("30s") == 1
        store = app._engine().store
        assert isinstance(store, RedisStore)
        async with Redis.from_url(redis_url) as client:
            keys = [one async for one in client.scan_iter(f"{store._layout.prefix}*")]
            assert keys and {await client.ttl(one) for one in keys} == {-1}


# --- pipelines of callers --------------------------------------------------------------------------


async def test_pipelines_that_are_no_transaction_here_are_refused(
    redis_url: str, lend_redis_namespace: Lend
) -> None:
    store = redis_store(redis_url, lend_redis_namespace())
    row = OutboxRecord(outbox_id="o1", op="{}", created_at=1)
    async with Redis.from_url(redis_url) as client, Redis.from_url(f"{redis_url}?db=1") as other:
        for connection, problem in (
            (client, "is no pipeline"),
            (client.pipeline(transaction=False), "in no transaction"),
            (other.pipeline(), "leads to"),
        ):
            with pytest.raises(BadValue, match=problem):
                await store.write_outbox(connection, row)
        watching = client.pipeline()
        await watching.watch("x")
        with pytest.raises(BadValue, match="multi"):
            await store.write_outbox(watching, row)
        watching.multi()
        await store.write_outbox(watching, row)
        await watching.reset()
        assert await client.exists(store._key("outbox")) == 0
