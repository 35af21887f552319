"""Who asks, and what they may do: tokens and their scopes, the cookie of browsers, and who is let in without any.

A token is known by its digest only, and compared in constant time with all there are. A browser exchanges one for a
cookie that no script can read; whoever comes with a cookie must show, for whatever changes something, that the page is
ours. A server without tokens answers this machine alone, and only under a name of this machine: a page from elsewhere,
or a name that somebody has pointed at us, gets nothing. Nothing here knows what is asked for.
"""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request

from perdure.errors import NotAuthenticated, ScopeMissing
from perdure.http.routes import SCOPES, Scope
from perdure.model import limits
from perdure.model.approvals import GROUP
from perdure.model.limits import BadValue, check_person, unsaid

TOKENS_VARIABLE: Final = "PERDURE_TOKENS"
COOKIE: Final = "perdure_session"
# A page of another origin cannot send it without being asked first, which we never answer.
CSRF_HEADER: Final = "x-perdure-csrf"

_digest_mark: Final = "sha256"
_sendable: Final = re.compile(r"[!-~]+")
_safe: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_own_names: Final = frozenset({"localhost", "127.0.0.1", "::1", "testserver"})
_proxies_say: Final = ("forwarded", "via", "x-real-ip")


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a name, what they may do (`admin` is everything), and the groups they decide for."""

    name: str
    scopes: frozenset[Scope]
    groups: tuple[str, ...] = ()

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


# Who asks where nobody needs to be known: a link, a signature or nothing at all is enough there.
STRANGER: Final = Principal(name="", scopes=frozenset())

Authenticate = Callable[[Request], Principal | Awaitable[Principal | None] | None]


# --- tokens ---


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as a server keeps it: by its digest. `Token.of(text, …)` makes one; its line is `str(token)`."""

    name: str
    digest: str
    scopes: frozenset[Scope]
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_person("token name", self.name)
        if ":" in self.name or len(self.name.split()) != 1:
            raise BadValue("token name", self.name, "holds a colon or white space")
        if not _is_digest(self.digest):
            raise BadValue(
                f"token {self.name!r}", unsaid, "has no SHA-256 digest of 64 hexadecimal digits"
            )
        if not self.scopes or not self.scopes <= set(SCOPES):
            known = ", ".join(SCOPES)
            raise BadValue("scopes", sorted(self.scopes), f"must be some of: {known}")
        _check_groups(self.groups)

    @classmethod
    def of(
        cls, text: str, *, name: str, scopes: Iterable[Scope], groups: Iterable[str] = ()
    ) -> "Token":
        """The token of this text."""
        if len(text) < limits.token_chars_min:
            short = f"is {len(text)} characters; at least {limits.token_chars_min}"
            raise BadValue(
                "token", unsaid, f"{short} (token_chars_min): use what `perdure token` makes"
            )
        if not _sendable.fullmatch(text):
            raise BadValue(
                "token", unsaid, "is not printable ASCII without blanks: no header holds it"
            )
        if isinstance(groups, str):
            raise BadValue("groups", groups, "must be a list of names")
        return cls(
            name=name,
            digest=_digest(text),
            scopes=frozenset(scopes),
            groups=tuple(dict.fromkeys(map(group_name, groups))),
        )

    @property
    def principal(self) -> Principal:
        return Principal(name=self.name, scopes=self.scopes, groups=self.groups)

    def __str__(self) -> str:
        """As a configuration holds it; the token itself cannot be told from it."""
        parts = [self.name, _digest_mark, self.digest, "+".join(sorted(self.scopes))]
        return ":".join([*parts, "+".join(self.groups)] if self.groups else parts)

    def __repr__(self) -> str:
        return f"Token(name={self.name!r}, scopes={sorted(self.scopes)})"


def group_name(group: str) -> str:
    """A group by its bare name: approvals write `group:finance` among people, tokens `finance`."""
    return group.removeprefix(GROUP) if isinstance(group, str) else group


def _check_groups(groups: tuple[str, ...]) -> None:
    """Raises BadValue for what would not come back from the line of a token as it was."""
    if len(groups) > limits.groups_max:
        problem = f"are {len(groups)}; at most {limits.groups_max} (groups_max)"
        raise BadValue("groups", unsaid, problem)
    for one in groups:
        name = check_person("group", one)
        if any(each in ":+" or each.isspace() for each in name):
            raise BadValue("group", name, "holds a colon, a plus or white space")


def new_token() -> str:
    """A token that nobody guesses."""
    return f"pdr_{secrets.token_urlsafe(32)}"


def parse_token(line: str) -> Token:
    """The inverse of `str(token)`: `name:sha256:<digest>:read+signal`, with groups behind if there are any."""
    parts = line.strip().split(":")
    if len(parts) not in (4, 5) or parts[1] != _digest_mark:
        # Without a colon it may be the token itself, which is not repeated.
        named = f"line {parts[0]!r}" if len(parts) > 1 else "a line"
        form = f"`name:{_digest_mark}:<digest>:scope+scope`, as `perdure token` prints it"
        raise BadValue("token", unsaid, f"{named} is not {form}")
    groups = tuple(parts[4].split("+")) if len(parts) == 5 and parts[4] else ()
    scopes: Any = frozenset(filter(None, parts[3].split("+")))
    return Token(name=parts[0], digest=parts[2].lower(), scopes=scopes, groups=groups)


def tokens_of_environment(environment: Mapping[str, str] = os.environ) -> tuple[Token, ...]:
    """Those that PERDURE_TOKENS names, separated by white space."""
    return tuple(map(parse_token, environment.get(TOKENS_VARIABLE, "").split()))


def _digest(text: str) -> str:
    # Ours are random and long, so that a plain digest tells nothing; a slow one would be paid for each request.
    return hashlib.sha256(text.encode()).hexdigest()


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(one in "0123456789abcdef" for one in text)


# --- who asks ---


class Guard:
    """Says who asks, or why nobody is let in."""

    def __init__(
        self,
        tokens: Sequence[Token],
        authenticate: Authenticate | None,
        secret: bytes | None,
        now: Callable[[], int],
        *,
        insecure: bool = False,
    ) -> None:
        self._tokens = _checked_tokens(tokens)
        self._authenticate = authenticate
        # Without a secret of its app a process signs by chance: browsers sign in again after a restart.
        self._secret = secret or secrets.token_bytes(32)
        self._now = now
        self._insecure = insecure

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a token."""
        return not self._tokens and self._authenticate is None

    async def principal(self, request: Request) -> Principal | None:
        """Who asks; None for a stranger. Raises NotAuthenticated for one who pretends, or comes from elsewhere."""
        if self._authenticate is not None:
            found = self._authenticate(request)
            if isinstance(found, Awaitable):
                found = await found
            if found is not None:
                _check_origin(request)
                return found
        given = request.headers.getlist("authorization")
        if given:
            return self._by_token(_bearer(given))
        cookie = request.cookies.get(COOKIE)
        if cookie is not None and not self.is_open:
            _check_page(request)
            return self._by_cookie(cookie)
        return self._unknown(request) if self.is_open else None

    async def known(self, request: Request) -> Principal:
        """Who asks; raises NotAuthenticated for a stranger too."""
        found = await self.principal(request)
        if found is None:
            raise NotAuthenticated(
                "this server wants to know who asks: send `Authorization: Bearer <token>`"
            )
        return found

    async def require(self, request: Request, scope: Scope) -> Principal:
        """Who asks, if they may."""
        found = await self.known(request)
        if not found.may(scope):
            raise ScopeMissing(found.name, scope, sorted(found.scopes))
        return found

    def _by_token(self, text: str) -> Principal:
        digest = _digest(text)
        # All of them, each in constant time: how long it takes tells nothing.
        good = [one for one in self._tokens if hmac.compare_digest(one.digest, digest)]
        if not good:
            raise NotAuthenticated("this server has no such token; it may have been replaced")
        return good[0].principal

    def _unknown(self, request: Request) -> Principal:
        """A server without tokens is for this machine, and for pages that it serves itself."""
        if not self._insecure:
            _check_local(request)
        _check_origin(request)
        return Principal(name="anonymous", scopes=frozenset(SCOPES))

    # --- the cookie ---

    def sign_in(self, text: str) -> tuple[str, Principal]:
        """The cookie of a browser that has shown this token."""
        principal = self._by_token(text)
        expires_at = self._now() + limits.session_us
        body = f"{principal.name}:{expires_at}"
        return f"{body}:{self._signed(body, _digest(text))}", principal

    def _by_cookie(self, cookie: str) -> Principal:
        name, _, rest = cookie.partition(":")
        expires, _, signed = rest.partition(":")
        for token in self._tokens:
            mine = self._signed(f"{name}:{expires}", token.digest)
            # The token that it was made from is part of the key: with it goes the session.
            if hmac.compare_digest(mine.encode(), signed.encode()) and token.name == name:
                if int(expires) > self._now():
                    return token.principal
        raise NotAuthenticated("the session has ended: sign in again")

    def _signed(self, body: str, digest: str) -> str:
        key = hmac.digest(self._secret, b"perdure session 1\0" + digest.encode(), "sha256")
        return hmac.digest(key, body.encode(), "sha256").hex()


def _checked_tokens(tokens: Sequence[Token]) -> tuple[Token, ...]:
    names = [one.name for one in tokens]
    for name in names:
        if names.count(name) > 1:
            raise BadValue("token name", name, "is given twice: each token has a name of its own")
    return tuple(tokens)


def _bearer(headers: list[str]) -> str:
    if len(headers) > 1:
        raise NotAuthenticated("there are several Authorization headers; send one")
    scheme, _, text = headers[0].partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not text:
        raise NotAuthenticated("the Authorization header is not `Bearer <token>`")
    if len(text) > limits.token_bytes_max:
        raise NotAuthenticated(
            f"the token is longer than {limits.token_bytes_max} bytes (token_bytes_max)"
        )
    return text


# --- where a request comes from ---


def _check_page(request: Request) -> None:
    """A cookie is sent by browsers on their own: what changes something must come from a page of ours."""
    if request.method not in _safe and CSRF_HEADER not in request.headers:
        raise NotAuthenticated(
            f"a request by cookie that changes something needs the header {CSRF_HEADER}"
        )
    _check_origin(request)


def _check_origin(request: Request) -> None:
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and (
        request.method not in _safe
    ):
        raise NotAuthenticated("a page of another origin may not ask this server for anything")
    origin = request.headers.get("origin")
    if origin is None or request.method in _safe:
        return
    if origin.partition("://")[2].lower() != request.headers.get("host", "").lower():
        raise NotAuthenticated(f"a page of {origin} may not ask this server for anything")


def _check_local(request: Request) -> None:
    """Without tokens: from this machine, under a name of this machine, and not through a proxy."""
    client = request.client
    if client is not None and not is_loopback(client.host):
        raise NotAuthenticated(
            "this server has no tokens, so it answers only its own machine; give it some "
            f"({TOKENS_VARIABLE}, or create_app(tokens=…))"
        )
    if any(one in _proxies_say or one.startswith("x-forwarded-") for one in request.headers):
        raise NotAuthenticated(
            "this server has no tokens, so it answers nobody through a proxy; give it some "
            f"({TOKENS_VARIABLE}, or create_app(tokens=…))"
        )
    host = _host_name(request.headers.get("host", ""))
    if host not in _own_names and not is_loopback(host):
        raise NotAuthenticated(
            f"this server has no tokens, so it answers only as localhost, and not as {host!r}"
        )


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own; a test client has a name for one."""
    if host in _own_names or host == "testclient":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
