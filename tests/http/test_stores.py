"""What a store cannot hold is refused before it is asked, and where it is nobody is told."""

import json
from typing import Any

import pytest
from asking import TOKENS, asked, scene, shop, tokens

from perdure import App
from perdure.errors import OutcomeUnknown, PerdureError, StoreRefused
from perdure.http.routes import ROUTES, Route

API = "/api/v1"
BEARER = {"authorization": f"Bearer {TOKENS['read']}"}
SECRET = "postgresql://anna@db.example/shop cannot be reached: ('10.1.2.3', 5432)"

# What `after` is to each listing: places of the form that it gives itself, with a text that is none.
PLACES: list[tuple[str, list[Any]]] = [
    ("/runs?", [1, "?"]),
    ("/waiting?signal=approve&", [1, "?", "a", 1]),
    ("/waiting?signal=approve&", [1, "a", "?", 1]),
    ("/watchers?topic=stock.arrived&", [1, "?", "a", 1]),
    ("/approvals?", [1, "?", "a", 1]),
    ("/approvals?", [1, "a", "?", 1]),
    ("/deferred?", [1, "?"]),
    ("/parked?", ["?", 1, "x"]),
    ("/parked?", ["x", 1, "?"]),
    ("/dead-letters?", ["?"]),
    ("/schedules?", ["?"]),
    ("/pools/narrow/line?", [1, "?"]),
    ("/runs/waiting/history?", [1, 1, "?"]),
]
NO_TEXTS = ["\0", "a\x1fb", "\x85", "\ud800", "x" * 5_000]


def cursor(place: list[Any], text: str) -> str:
    return json.dumps([text if one == "?" else one for one in place]).encode().hex()


async def test_a_cursor_that_no_store_gave_is_refused(
    postgres_url: str, postgres_namespace: str
) -> None:
    async with asked(shop(postgres_url, namespace=postgres_namespace)) as found:
        await scene(found.app)
        for path, place in PLACES:
            good = await found.http.get(f"{API}{path}after={cursor(place, 'run é#9')}")
            assert good.status_code == 200, (path, good.text)
            for text in NO_TEXTS:
                answer = await found.http.get(f"{API}{path}after={cursor(place, text)}")
                assert answer.status_code == 422, (path, text, answer.text)
                assert "pass page.cursor" in answer.json()["detail"]


def _with_zero_bytes(route: Route) -> str:
    """A request of this route whose every part and parameter has a zero byte."""
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", "a%00b")
    fields = route.query.__struct_fields__ if route.query is not None else ()
    texts = [
        name for name in fields if name not in ("limit", "status", "created_from", "created_before")
    ]
    return f"{path}?{'&'.join(f'{name}=a%00b' for name in texts)}"


async def test_a_zero_byte_never_comes_to_a_store(
    postgres_url: str, postgres_namespace: str
) -> None:
    async with asked(shop(postgres_url, namespace=postgres_namespace)) as found:
        await scene(found.app)
        for route in ROUTES:
            if route.method != "GET" or not (route.parameters or route.query):
                continue
            answer = await found.http.get(_with_zero_bytes(route))
            assert 400 <= answer.status_code < 500, (route.verb, answer.text)


@pytest.mark.parametrize("passing", [True, False])
@pytest.mark.parametrize("kind", [StoreRefused, OutcomeUnknown])
async def test_where_the_store_is_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[PerdureError],
    passing: bool,
) -> None:
    unknown = OutcomeUnknown(SECRET)
    unknown.__cause__ = OSError("gone")

    async def gone(*_: Any, **__: Any) -> Any:
        raise StoreRefused(SECRET, passing=passing) if kind is StoreRefused else unknown

    async with asked(shop(), client="203.0.113.9", tokens=tokens()) as found:
        await scene(found.app)
        monkeypatch.setattr(found.app._engine().store, "run", gone)
        monkeypatch.setattr(App, "runs", gone)
        for path in ("/runs", "/runs/waiting"):
            answer = await found.http.get(f"{API}{path}", headers=BEARER)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            problem = answer.json()
            assert problem["error"] == kind.__name__
            assert problem["facts"].get("passing", passing) == passing
            assert "10.1.2.3" not in answer.text and "db.example" not in answer.text
            assert "10.1.2.3" in caplog.text
            caplog.clear()


async def test_what_a_store_says_of_a_write_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lost(*_: Any, **__: Any) -> Any:
        raise OSError(SECRET)

    async with asked(shop()) as found:
        with monkeypatch.context() as patched:
            patched.setattr(found.app._engine().store, "apply", lost)
            answer = await found.http.post(f"{API}/events", json={"topic": "a"})
        assert (answer.status_code, answer.json()["error"]) == (503, "OutcomeUnknown")
        assert "10.1.2.3" not in answer.text and "same key is safe" in answer.json()["detail"]
        assert "10.1.2.3" in caplog.text
