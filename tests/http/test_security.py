"""Who is let in, to what, from where; and what a browser may do with an answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from asking import TOKENS, Asked, asked, scene, shop, tokens
from starlette.requests import Request

from perdure import Context
from perdure.approvals import approval
from perdure.http import Principal, Token, new_token
from perdure.http.routes import ROUTES, SCOPES, Route
from perdure.http.security import COOKIE, parse_token, tokens_of_environment
from perdure.http.server import HEADERS
from perdure.model.limits import BadValue, session_us
from perdure.testing import VirtualClock

API = "/api/v1"
_scoped = [one for one in ROUTES if one.scope is not None]


def bearer(scope: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[scope]}"}


def filled(route: Route) -> str:
    """The path of a route, about things that are not there."""
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", "nothing")
    return path


# --- scopes ---


@pytest.mark.parametrize("route", _scoped, ids=lambda one: one.verb)
async def test_each_route_asks_for_its_scope(route: Route) -> None:
    async with asked(shop(), tokens=tokens()) as found:
        for scope in SCOPES:
            if route.streams and scope in (route.scope, "admin"):
                continue  # would stream
            answer = await found.http.request(route.method, filled(route), headers=bearer(scope))
            refused = answer.status_code in (401, 403) and answer.json().get("error") in (
                "NotAuthenticated",
                "ScopeMissing",
            )
            assert refused == (scope not in (route.scope, "admin")), (scope, answer.text)
            if refused:
                assert answer.status_code == 403
                assert answer.json()["facts"]["scope"] == route.scope
        stranger = await found.http.request(route.method, filled(route))
        assert stranger.status_code == 401
        assert stranger.headers["www-authenticate"] == "Bearer"


async def test_what_needs_nobody_answers_strangers(locked_shop: Asked) -> None:
    for path in ("/health", "/health/ready", f"{API}/openapi.json"):
        assert (await locked_shop.http.get(path)).status_code == 200


# --- tokens ---


def test_a_token_is_kept_by_its_digest_alone() -> None:
    text = new_token()
    token = Token.of(text, name="ci", scopes=["read", "signal"], groups=["finance"])
    assert text not in str(token) + repr(token)
    assert parse_token(str(token)) == token
    assert tokens_of_environment({"PERDURE_TOKENS": f" {token}\n"}) == (token,)


def in_groups(*groups: str) -> Token:
    return Token.of(new_token(), name="a", scopes=["signal"], groups=groups)


@pytest.mark.parametrize("groups", [[], ["finance"], ["r&d", "größe", "a.b/c"], ["group:finance"]])
def test_groups_come_back_from_a_line_as_they_were(groups: list[str]) -> None:
    token = in_groups(*groups)
    assert tokens_of_environment({"PERDURE_TOKENS": str(token)}) == (token,)
    assert token.groups == tuple(one.removeprefix("group:") for one in groups)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Token.of("short", name="a", scopes=["read"]), "token_chars_min"),
        (lambda: Token.of("a text with blanks, as it were", name="a", scopes=["read"]), "blanks"),
        (lambda: Token.of(new_token(), name="a b", scopes=["read"]), "white space"),
        (lambda: Token.of(new_token(), name="a:b", scopes=["read"]), "colon"),
        (lambda: Token.of(new_token(), name="a", scopes=[]), "some of"),
        (lambda: Token.of(new_token(), name="a", scopes=["root"]), "some of"),  # type: ignore[list-item]
        (lambda: in_groups("r+d"), "plus"),
        (lambda: in_groups("finance team"), "white space"),
        (lambda: in_groups("a\u2003b"), "white space"),
        (lambda: in_groups("a:b"), "colon"),
        (lambda: in_groups("tab\tx"), "control"),
        (lambda: in_groups(""), "empty"),
        (lambda: in_groups("group:"), "empty"),
        (lambda: in_groups(*map(str, range(257))), "groups_max"),
        (lambda: Token.of(new_token(), name="a", scopes=["read"], groups="finance"), "a list"),
        (lambda: parse_token(f"{in_groups('a')}++b"), "empty"),
        (lambda: parse_token("ci:plain:secret:read"), "perdure token"),
        (lambda: parse_token("ci:sha256:abc:read"), "64 hexadecimal"),
    ],
)
def test_a_token_that_is_none_is_refused(make: Callable[[], Token], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        make()


def test_a_token_in_place_of_its_line_is_not_repeated() -> None:
    text = new_token()
    with pytest.raises(BadValue, match="as `perdure token` prints it") as refused:
        tokens_of_environment({"PERDURE_TOKENS": text})
    assert text not in str(refused.value)


def test_two_tokens_of_one_name_are_refused() -> None:
    twice = [Token.of(new_token(), name="ci", scopes=["read"]) for _ in range(2)]
    with pytest.raises(BadValue, match="given twice"):
        asyncio.run(_made(tokens=twice))


async def _made(**options: Any) -> None:
    async with asked(shop(), **options):
        raise AssertionError("an app was made")


async def test_who_asks_is_known_to_the_server(locked_shop: Asked) -> None:
    answer = await locked_shop.http.get(f"{API}/me", headers=bearer("signal"))
    assert answer.json() == {"name": "signal", "scopes": ["signal"], "groups": ["finance"]}


async def test_two_tokens_are_none(locked_shop: Asked) -> None:
    """Something before us may have looked at the other one."""
    both = [("authorization", f"Bearer {TOKENS[one]}") for one in ("admin", "read")]
    answer = await locked_shop.http.get(f"{API}/me", headers=both)
    assert answer.status_code == 401
    assert "several" in answer.json()["detail"]


# --- an authentication of one's own ---


async def test_a_host_may_say_who_asks() -> None:
    async def who(request: Any) -> Principal | None:
        name = request.headers.get("x-user")
        return None if name is None else Principal(name=name, scopes=frozenset({"read"}))

    async with asked(shop(), client="203.0.113.9", authenticate=who) as found:
        anna = {"x-user": "anna"}
        assert (await found.http.get(f"{API}/runs", headers=anna)).status_code == 200
        start = await found.http.post(f"{API}/runs", headers=anna, json={"workflow": "fail"})
        assert (start.status_code, start.json()["error"]) == (403, "ScopeMissing")
        assert (await found.http.get(f"{API}/runs")).status_code == 401


# --- without tokens ---


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("203.0.113.9", {}),
        ("10.0.0.4", {}),
        ("127.0.0.1", {"x-forwarded-for": "203.0.113.9"}),
        ("127.0.0.1", {"forwarded": "for=203.0.113.9"}),
        ("127.0.0.1", {"x-real-ip": "203.0.113.9"}),
        ("127.0.0.1", {"x-forwarded-proto": "https"}),
        ("127.0.0.1", {"via": "1.1 proxy"}),
        ("127.0.0.1", {"host": "evil.example"}),
        ("127.0.0.1", {"host": "evil.example:8000"}),
        ("127.0.0.1", {"host": "localhost.evil.example"}),
        ("127.0.0.1", {"host": "[fe80::1]"}),
    ],
)
async def test_without_tokens_only_this_machine_is_answered(
    client: str, headers: dict[str, str]
) -> None:
    async with asked(shop(), client=client) as found:
        answer = await found.http.get(f"{API}/runs", headers=headers)
        assert answer.status_code == 401
        assert "no tokens" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:80"])
async def test_this_machine_has_several_names(host: str) -> None:
    async with asked(shop()) as found:
        assert (await found.http.get(f"{API}/runs", headers={"host": host})).status_code == 200


async def test_insecure_answers_everybody_but_pages_from_elsewhere() -> None:
    async with asked(shop(), client="203.0.113.9", insecure=True) as found:
        assert (await found.http.get(f"{API}/runs")).status_code == 200
        page = {"origin": "https://evil.example"}
        start = await found.http.post(f"{API}/runs", json={"workflow": "fail"}, headers=page)
        assert start.status_code == 401
        assert not (await found.app.runs()).items


# --- the cookie of browsers ---


async def _signed_in(found: Asked, scope: str = "operate") -> httpx2.Response:
    return await found.http.post(f"{API}/session", json={"token": TOKENS[scope]})


async def test_a_token_is_exchanged_for_a_cookie(locked_shop: Asked) -> None:
    answer = await _signed_in(locked_shop)
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    for part in (COOKIE, "HttpOnly", "SameSite=strict", "Secure", "Path=/"):
        assert part in cookie
    assert TOKENS["operate"] not in cookie
    assert (await locked_shop.http.get(f"{API}/me")).json()["name"] == "operate"
    assert (await locked_shop.http.delete(f"{API}/session")).status_code == 204
    assert (await locked_shop.http.get(f"{API}/me")).status_code == 401


OURS = {"x-perdure-csrf": "1", "origin": "https://shop.example"}
CROSS_SITE: list[tuple[dict[str, str], str]] = [
    ({}, "x-perdure-csrf"),
    ({"origin": "https://shop.example"}, "x-perdure-csrf"),
    ({**OURS, "origin": "https://evil.example"}, "evil.example"),
    ({**OURS, "origin": "null"}, "may not ask"),
    ({**OURS, "origin": "https://shop.example.evil.example"}, "may not ask"),
    ({**OURS, "sec-fetch-site": "cross-site"}, "another origin"),
    ({**OURS, "sec-fetch-site": "same-site"}, "another origin"),
]


@pytest.mark.parametrize(("headers", "says"), CROSS_SITE)
async def test_a_cookie_alone_changes_nothing(
    locked_shop: Asked, headers: dict[str, str], says: str
) -> None:
    await _signed_in(locked_shop)
    cancel = f"{API}/runs/waiting/cancel"
    answer = await locked_shop.http.post(cancel, headers=headers)
    assert answer.status_code == 401
    assert says in answer.json()["detail"]
    assert await locked_shop.app.run("waiting").status() == "waiting"
    answer = await locked_shop.http.post(cancel, headers=OURS)
    assert answer.status_code < 300, answer.text


@pytest.mark.parametrize(
    "forge",
    [
        lambda cookie: cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
        lambda cookie: cookie.replace("operate:", "admin:"),
        lambda cookie: ":".join([cookie.split(":")[0], "9" * 18, cookie.split(":")[2]]),
        lambda _: "operate",
        lambda _: "::",
        lambda _: "a:b:c:d",
        lambda _: "operate:notanumber:00",
    ],
)
async def test_a_forged_cookie_is_no_session(
    locked_shop: Asked, forge: Callable[[str], str]
) -> None:
    good = (await _signed_in(locked_shop)).cookies[COOKIE].strip('"')
    locked_shop.http.cookies.clear()
    answer = await locked_shop.http.get(
        f"{API}/runs", headers={"cookie": f"{COOKIE}={forge(good)}"}
    )
    assert answer.status_code == 401
    assert (
        await locked_shop.http.get(f"{API}/runs", headers={"cookie": f"{COOKIE}={good}"})
    ).status_code == 403  # it may operate, not read: the session is good


async def test_a_session_ends() -> None:
    clock = VirtualClock()
    async with asked(shop(clock=clock), tokens=tokens()) as found:
        await _signed_in(found)
        cookie = {"cookie": f"{COOKIE}={found.http.cookies[COOKIE]}"}
        found.http.cookies.clear()
        assert (await found.http.get(f"{API}/me", headers=cookie)).status_code == 200
        clock.set(clock.now() + session_us + 1)
        answer = await found.http.get(f"{API}/me", headers=cookie)
        assert (answer.status_code, answer.json()["detail"]) == (
            401,
            "the session has ended: sign in again",
        )


async def test_a_session_ends_with_its_token() -> None:
    app = shop()
    async with asked(app, tokens=tokens()) as found:
        await _signed_in(found)
        cookie = {"cookie": f"{COOKIE}={found.http.cookies[COOKIE]}"}
    others = [Token.of(new_token(), name=one.name, scopes=one.scopes) for one in tokens()]
    async with asked(shop(), tokens=others) as found:
        assert (await found.http.get(f"{API}/me", headers=cookie)).status_code == 401


async def test_a_restart_keeps_sessions() -> None:
    async with asked(shop(), tokens=tokens()) as found:
        await _signed_in(found)
        cookie = {"cookie": f"{COOKIE}={found.http.cookies[COOKIE]}"}
    async with asked(shop(), tokens=tokens()) as found:
        assert (await found.http.get(f"{API}/me", headers=cookie)).status_code == 200


# --- what a browser may do with an answer ---


@pytest.mark.parametrize("path", [f"{API}/runs", "/nowhere", f"{API}/runs/none", "/health"])
async def test_answers_are_not_for_pages(open_shop: Asked, path: str) -> None:
    answer = await open_shop.http.get(path, headers={"origin": "https://evil.example"})
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_page_from_elsewhere_is_not_told_that_it_may(open_shop: Asked) -> None:
    answer = await open_shop.http.options(
        f"{API}/runs",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_form_of_a_page_is_no_request(open_shop: Asked) -> None:
    """Pages send forms and plain text anywhere without being asked; neither is taken."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await open_shop.http.post(
            f"{API}/runs", content=b'{"workflow":"fail"}', headers={"content-type": kind}
        )
        assert answer.status_code == 415
    assert len((await open_shop.app.runs(workflow="fail")).items) == 1  # that of the scene


async def test_who_decides_is_who_asks() -> None:
    """A name in a request is no proof: the decision is of the token's name and groups."""
    async with asked(shop(), tokens=tokens()) as found:
        await scene(found.app)
        (asking,) = await found.app.approvals()
        body = {"choice": "yes"}
        route = next(one for one in ROUTES if one.verb == "decide")
        path = route.path
        for name in route.parameters:
            path = path.replace(f"{{{name}}}", asking.id)
        answer = await found.http.request(route.method, path, json=body, headers=bearer("signal"))
        assert answer.status_code == 403
        assert answer.json()["error"] == "NotAllowed"
        for others, whom in (
            ({"by": "anna"}, "to answer for 'anna'"),
            ({"groups": ["board"]}, "to answer for groups of others"),
        ):
            answer = await found.http.request(
                route.method, path, json={**body, **others}, headers=bearer("signal")
            )
            assert answer.status_code == 403
            problem = answer.json()
            assert problem["error"] == "ScopeMissing" and problem["facts"]["scope"] == "operate"
            assert problem["detail"] == f"{whom} needs the scope 'operate'; 'signal' has: signal"
        assert await found.app.run("asking").status() == "waiting"


@pytest.mark.parametrize("named", [["group:finance"], ["finance"], None])
@pytest.mark.parametrize("own", ["finance", "group:finance"])
async def test_a_group_is_the_same_with_its_mark_and_without(
    named: list[str] | None, own: str
) -> None:
    """Approvals say `group:finance`, tokens `finance`; a host may say either."""

    def who(_: Request) -> Principal:
        return Principal(name="anna", scopes=frozenset({"signal"}), groups=(own,))

    app = shop()

    @app.workflow
    async def pay(ctx: Context) -> None:
        await ctx.wait(approval("agreed", choices=["yes", "no"], who=["group:finance"]))

    async with asked(app, authenticate=who) as found:
        await app.start(pay, id="pay")
        while not (open_ones := await app.approvals()):  # noqa: ASYNC110 (rows, not objects)
            await asyncio.sleep(0)
        path = f"/api/v1/approvals/{open_ones[0].id}/decide"
        body: dict[str, Any] = {"choice": "yes"} | ({} if named is None else {"groups": named})
        other = await found.http.post(path, json=body | {"groups": ["group:sales"]})
        assert other.status_code == 403
        answer = await found.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
