"""No way into private networks: by odd addresses, by names that stand for them, by names that change their mind."""

import asyncio
import base64
import ipaddress
from typing import Any

import httpcore2
import pytest
from receiver import Receiver

from perdure import App, BadValue, Retry
from perdure.webhooks import wire
from perdure.webhooks.addresses import Allowed, checked_allowed, checked_url, is_public

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes length").decode()
NOTHING = Allowed()
ANYTHING = Allowed(everything=True)

# --- addresses as text ---

PRIVATE = [
    "https://127.0.0.1/",
    "https://127.8.9.10:8443/",
    "https://0.0.0.0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://100.100.100.200/latest/meta-data/",
    "https://168.63.129.16/machine",
    "https://192.0.0.192/opc/v2/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://198.51.100.7/",
    "https://203.0.113.7/",
    "https://192.88.99.1/",
    "https://224.0.0.1/",
    "https://239.255.255.250/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::a00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001::1]/",
    "https://[2001:db8::1]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/latest/meta-data/",
    "https://[fe80::1]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[3fff::1]/",
    "https://localhost/",
    "https://LOCALHOST:443/",
    "https://api.localhost/",
]

ODD = [
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.01/",
    "https://1.2.3.4.5/",
    "https://256.0.0.1/",
    "https://example.com./",
    "https://127.0.0.1./",
    "https://localhost./",
    "https://user@127.0.0.1/",
    "https://example.com@127.0.0.1/",
    "https://example.com:pass@10.0.0.1:80/",
    "https://127.0.0.1%2f.example.com/",
    "https://%31%32%37.0.0.1/",
    "https://loc%61lhost/",
    "https://①②⑦.0.0.1/",
    "https://\uff4cocalhost/",
    "https://127。0。0。1/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com\\.evil.com/",
    "https://exam ple.com/",
    "https://example.com\r\nhost: internal/",
    "https://example.com/\n",
    "\thttps://example.com/",
    "https://[::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[::1]:0/",
    "https://[::1].example.com/",
    "https://[127.0.0.1]/",
    "https://[v1.fe80]/",
    "https://[::1/",
    "https://example.com:99999/",
    "https://example.com:0/",
    "https://example.com:8 0/",
    "https://example.com:/80:90/",
    "https://:443/",
    "https:///hook",
    "https:example.com",
    "//example.com/",
    "example.com",
    "",
    "https://example.com/#there",
    "https://-example.com/",
    "https://a..b/",
    f"https://{'a' * 64}.com/",
    f"https://{'a.' * 130}com/",
    f"https://example.com/{'a' * 3000}",
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "unix:///var/run/docker.sock",
    "javascript:alert(1)",
    "httpss://example.com/",
]


@pytest.mark.parametrize("url", PRIVATE + ODD)
def test_what_is_private_or_odd_is_refused_where_it_is_declared(app: App, url: str) -> None:
    with pytest.raises(BadValue):
        app.webhook("w", url, "order.*", secret=SECRET)
    assert app.readers.consumers == {}


@pytest.mark.parametrize("url", [7, None, b"https://example.com/"])
def test_an_address_is_text(app: App, url: Any) -> None:
    with pytest.raises(BadValue, match="url"):
        app.webhook("w", url, "order.*", secret=SECRET)


@pytest.mark.parametrize("url", [one for one in ODD if not one.startswith("http://")])
def test_an_odd_address_is_refused_even_if_anything_is_allowed(url: str) -> None:
    with pytest.raises(BadValue):
        checked_url(url, ANYTHING, True)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://example.com", "example.com", "/"),
        ("HTTPS://Example.COM:443/a?b=c", "example.com", "/a?b=c"),
        ("https://example.com:8443/a%20b", "example.com:8443", "/a%20b"),
        ("https://xn--bcher-kva.example/?q", "xn--bcher-kva.example", "/?q"),
        ("https://8.8.8.8/", "8.8.8.8", "/"),
        ("https://[2606:4700:4700::1111]:8443/x", "[2606:4700:4700::1111]:8443", "/x"),
        ("https://7.example.com/", "7.example.com", "/"),
    ],
)
def test_a_public_address_is_taken_as_it_stands(url: str, authority: str, path: str) -> None:
    target = checked_url(url, NOTHING, False)
    assert (target.authority, target.path) == (authority, path)


def test_what_follows_the_host_is_never_shown() -> None:
    target = checked_url("https://example.com/services/T000/sesame", NOTHING, False)
    assert repr(target) == "Target('https://example.com')"
    for url in ("https://u:sesame@example.com/", "http://example.com/sesame"):
        with pytest.raises(BadValue) as caught:
            checked_url(url, NOTHING, False)
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1"])
def test_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def test_hosts_and_networks_can_be_allowed_one_by_one() -> None:
    allowed = checked_allowed(["10.1.0.0/16", "192.168.7.7", "fd00::/8", "Hub.internal"])
    for url in ("https://10.1.2.3/", "https://192.168.7.7/", "https://[fd00::1]/"):
        checked_url(url, allowed, False)
    for url in ("https://10.2.0.1/", "https://127.0.0.1/", "http://10.1.2.3/"):
        with pytest.raises(BadValue):
            checked_url(url, allowed, False)
    ten = ipaddress.ip_address("10.9.9.9")
    assert allowed.permits("hub.internal", ten) and not allowed.permits("other.internal", ten)


# --- connections ---

ADDRESSES = sorted({url.split("//")[1].split("/")[0].strip("[]").split("]")[0] for url in PRIVATE})
ADDRESSES = [one.split(":")[0] if one.count(":") == 1 else one for one in ADDRESSES]
ADDRESSES = [one for one in ADDRESSES if "localhost" not in one.lower()]


class Connector(httpcore2.AnyIOBackend):
    """Notes what it is to connect to, and connects to a receiver on this machine instead."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, int]] = []
        self._port = port

    async def connect_tcp(self, host: str, port: int, *rest: Any) -> Any:
        self.asked.append((host, port))
        return await super().connect_tcp("127.0.0.1", self._port, *rest)


class Names:
    """A resolver that gives these answers, one after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0)


def a_line(url: str, names: Names, port: int, allowed: Allowed = NOTHING) -> tuple[Any, Connector]:
    line = wire.Line(checked_url(url, allowed, True), allowed, names, 5.0)
    connector = Connector(port)
    line._pool._network_backend._connector = connector
    return line, connector


async def post(line: wire.Line) -> wire.Answer:
    answer = wire.Answer()
    await line.post([("host", "example.com"), ("connection", "close")], b"{}", answer)
    return answer


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_name_that_stands_for_a_private_address_is_not_connected_to(
    receiver: Receiver, address: str
) -> None:
    names = Names([address])
    line, connector = a_line("http://innocent.example.com/", names, receiver.port)
    with pytest.raises(wire.Forbidden, match="no public address"):
        await post(line)
    assert names.asked == ["innocent.example.com"]
    assert connector.asked == [] and receiver.connections == 0
    await line.aclose()


def test_the_table_is_long_enough() -> None:
    assert len(ADDRESSES) >= 25 and len(PRIVATE + ODD) >= 25


async def test_one_private_address_among_public_ones_is_enough(receiver: Receiver) -> None:
    names = Names(["93.184.216.34", "10.0.0.1"])
    line, connector = a_line("http://example.com/", names, receiver.port)
    with pytest.raises(wire.Forbidden, match=r"10\.0\.0\.1"):
        await post(line)
    assert connector.asked == [] and receiver.connections == 0


async def test_a_name_that_changes_its_mind_is_judged_each_time_and_asked_once(
    receiver: Receiver,
) -> None:
    names = Names(["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34"])
    line, connector = a_line("http://rebinding.example.com/", names, receiver.port)
    assert (await post(line)).status == 204
    # To the very address that was judged; a second question would have got the second answer.
    assert connector.asked == [("93.184.216.34", 80)] and len(names.asked) == 1
    await receiver.all_closed.wait()
    with pytest.raises(wire.Forbidden):
        await post(line)
    assert len(connector.asked) == 1 and receiver.connections == 1
    assert (await post(line)).status == 204
    await line.aclose()


async def test_the_next_address_is_tried_when_one_does_not_answer(receiver: Receiver) -> None:
    names = Names(["93.184.216.34", "93.184.216.35", "93.184.216.34"])
    line, connector = a_line("http://example.com/", names, receiver.port)
    connect = connector.connect_tcp

    async def first_is_dead(host: str, *rest: Any) -> Any:
        stream = await connect(host, *rest)
        if host.endswith(".34"):
            await stream.aclose()
            raise httpcore2.ConnectError("refused")
        return stream

    connector.connect_tcp = first_is_dead  # type: ignore[method-assign]
    assert (await post(line)).status == 204
    assert connector.asked == [("93.184.216.34", 80), ("93.184.216.35", 80)]
    await line.aclose()


async def test_a_name_that_nobody_knows(receiver: Receiver) -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    line = wire.Line(checked_url("http://example.com/", NOTHING, True), NOTHING, unknown, 5.0)
    with pytest.raises(wire.Unreachable, match="cannot be resolved"):
        await post(line)
    line = wire.Line(checked_url("http://example.com/", NOTHING, True), NOTHING, Names([]), 5.0)
    with pytest.raises(wire.Unreachable, match="has no address"):
        await post(line)


async def test_a_host_that_is_an_address_is_not_resolved(receiver: Receiver) -> None:
    names = Names()
    line, connector = a_line("http://[2606:4700:4700::1111]:8080/", names, receiver.port)
    assert (await post(line)).status == 204
    assert connector.asked == [("2606:4700:4700::1111", 8080)] and names.asked == []
    await line.aclose()


async def test_no_socket_of_this_machine() -> None:
    network = wire.Network(ANYTHING, Names())
    with pytest.raises(wire.Forbidden):
        await network.connect_unix_socket("/var/run/docker.sock")


async def test_tls_and_host_have_the_name_though_the_connection_has_the_address() -> None:
    """The greeting of TLS is in the clear, so any listener can read whom it is meant for."""
    greeting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting.set_result(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        line, connector = a_line("https://hooks.example.com/x", Names(["93.184.216.34"]), port)
        with pytest.raises(wire.Unreachable):
            await post(line)
        assert b"hooks.example.com" in await greeting
        assert b"93.184" not in await greeting
        assert connector.asked == [("93.184.216.34", 443)]
        await line.aclose()


# --- a webhook as a whole ---


async def test_a_webhook_to_such_a_name_sends_nothing_and_says_why(
    world: Any, app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(wire, "system_resolve", here)
    url = f"http://evil.example.com:{receiver.port}/"
    app.webhook("w", url, "order.*", secret=SECRET, insecure=True, retry=Retry(attempts=2))
    app.webhook(
        "v", url, "order.*", secret=SECRET, insecure=True, allow_private=["evil.example.com"]
    )
    async with world(app) as w:
        await w.emit("order.paid", 1)
        await w.advance("1m")
        (one,) = await w.app.parked("webhook.w")
        assert "evil.example.com is 127.0.0.1, which is no public address" in one.reason
        assert "nothing was sent" in one.reason and one.attempts == 2
    assert receiver.payloads == [1]  # of the one that is allowed to
    assert receiver.deliveries[0].headers["host"] == f"evil.example.com:{receiver.port}"


async def test_proxies_of_the_environment_do_not_count(
    world: Any, app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        app.webhook("w", receiver.url, "order.*", secret=SECRET, allow_private=True)
        async with world(app) as w:
            await w.emit("order.paid", 1)
        assert receiver.payloads == [1] and proxy.connections == 0
