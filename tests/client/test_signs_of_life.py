"""What takes as long as there is to do is waited for, for as long as the server shows that it is at it."""

import httpx2
import pytest

from perdure import BadValue, Client, OutcomeUnknown

SIGNS = b": ping - 1\r\n\r\n: ping - 2\r\n\r\n"
STREAM = {"content-type": "text/event-stream; charset=utf-8"}


def streaming(content: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers=STREAM, content=SIGNS + content)


async def pruned(response: httpx2.Response) -> tuple[int, httpx2.Request]:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return response

    transport = httpx2.MockTransport(answer)
    async with Client("http://localhost", timeout="5s", transport=transport) as client:
        return await client.prune("1d"), asked[0]


async def test_it_is_waited_for_while_there_are_signs_of_life() -> None:
    count, request = await pruned(streaming(b'event: answer\r\ndata: {"value":3}\r\n\r\n'))
    assert count == 3
    assert request.extensions["timeout"] == {"connect": 5, "read": 60, "write": 5, "pool": 5}
    assert request.headers["accept"] == "application/json, text/event-stream"
    assert request.headers["content-type"] == "application/json"
    plain, _ = await pruned(httpx2.Response(200, json={"value": 4}))
    assert plain == 4


PROBLEM = (
    b'{"type":"","title":"","status":422,"detail":"older_than is no","error":"BadValue",'
    b'"facts":{"what":"older_than"}}'
)


async def test_a_problem_is_raised() -> None:
    with pytest.raises(BadValue, match="older_than is no"):
        await pruned(streaming(b"event: problem\r\ndata: " + PROBLEM + b"\r\n\r\n"))


@pytest.mark.parametrize(
    "response",
    [
        streaming(b""),
        streaming(b"event: answer\r\ndata: {}\r\n\r\n"),
        streaming(b"event: answer\r\ndata: <html>\r\n\r\n"),
        streaming(b"event: problem\r\ndata: oops\r\n\r\n"),
        httpx2.Response(200, html="<html>"),
        httpx2.Response(504, html="<html>"),
        httpx2.Response(302),
    ],
    ids="ended no-value no-json no-problem page late elsewhere".split(),
)
async def test_an_end_that_is_none_is_not_known(response: httpx2.Response) -> None:
    with pytest.raises(OutcomeUnknown, match="or a part; look before you repeat it"):
        await pruned(response)


async def test_a_key_is_spoken_of_only_where_there_is_one() -> None:
    """To repeat a replay fires all twice."""

    def lose(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("too slow")

    async with Client("http://localhost", transport=httpx2.MockTransport(lose)) as client:
        for write in (client.replay("c", dry_run=False), client.fsck(True), client.trigger("s")):
            with pytest.raises(OutcomeUnknown, match="look before you repeat it") as lost:
                await write
            assert "key" not in str(lost.value)
        for write in (client.start("w", key="k"), client.put("q", 1), client.emit("a.b")):
            with pytest.raises(OutcomeUnknown, match="with the same key is safe"):
                await write
