"""Who may ask, and how much: at once, and in one request, so that no other user is slowed down."""

from __future__ import annotations

import hmac
import ipaddress
import re
import resource
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from planner.base.records import record
from planner.base.worker_processes import num_cores
from planner.errors import PlannerError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "token"
_LOCAL_NAMES = ("localhost",)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:(?P<port>\d*))?", re.ASCII)
_SAME_SITE = (b"same-origin", b"none")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("Localhost."), is_loopback("0.0.0.0")
    (True, True, False)
    """
    name = host.lower().removesuffix(".")
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name in _LOCAL_NAMES


@record()
class RequestGuard:
    """Lets pass what may be asked; ``token`` is empty where this machine's programs may ask all.

    Pages of other sites may ask nothing, whatever name they found for this machine.
    """

    app: App
    token: str
    question_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _say(send, *refusal)
        elif self.token and (link := self._link_without_token(scope)) is not None:
            cookie = f"{_cookie(scope, headers)}={quote(self.token, safe='')}"
            kept = f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
            await _say(send, 303, "", ((b"location", link), (b"set-cookie", kept.encode())))
        else:
            await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Mapping[str, bytes]) -> tuple[int, str] | None:
        """The status and the reason why a request is refused; None where it is not."""
        if len(scope["query_string"]) > self.question_bytes:
            return 413, f"A question has at most {self.question_bytes:,} bytes."
        if _is_of_another_site(scope, headers):
            return 403, "Requests from other sites are refused."
        if self.token:
            return None if self._has_token(scope, headers) else (401, _ASK_FOR_TOKEN)
        host = _HOST.fullmatch(_host(headers))
        if host is None or not is_loopback(host["name"]):
            return 421, "The Host header is not a name of this server."
        return None

    def _has_token(self, scope: Scope, headers: Mapping[str, bytes]) -> bool:
        given = [value for name, value in _query(scope) if name == TOKEN]
        given.append(headers.get("authorization", b"").decode("latin-1").removeprefix("Bearer "))
        for one in headers.get("cookie", b"").decode("latin-1").split(";"):
            name, _, value = one.strip().partition("=")
            given += [unquote(value)] if name == _cookie(scope, headers) else []
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)

    def _link_without_token(self, scope: Scope) -> bytes | None:
        """Where a browser goes on that came with the token in its link: a path of this server.

        What browsers read as the name of another server, or leave out, is quoted.
        """
        query = _query(scope)
        if scope["method"] != "GET" or not any(name == TOKEN for name, _ in query):
            return None
        left = urlencode([(name, value) for name, value in query if name != TOKEN])
        path = "/" + quote(scope["path"].lstrip("/"))
        return f"{path}{'?' * bool(left)}{left}".encode("ascii")


def _host(headers: Mapping[str, bytes]) -> str:
    return headers.get("host", b"").decode("latin-1").lower()


def _is_of_another_site(scope: Scope, headers: Mapping[str, bytes]) -> bool:
    """Whether a page of another site or port asks; a link may be followed from anywhere.

    Browsers tell the site; where they do not, as over plain HTTP beyond this machine, the origin.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        is_followed = scope["method"] == "GET" and headers.get("sec-fetch-mode") == b"navigate"
        return site not in _SAME_SITE and not is_followed
    origin = headers["origin"].decode("latin-1").lower() if "origin" in headers else None
    return origin is not None and origin.partition("://")[2] != _host(headers)


def _cookie(scope: Scope, headers: Mapping[str, bytes]) -> str:
    """The name of the cookie: browsers send one server's to those on other ports of its host."""
    host = _HOST.fullmatch(_host(headers))
    return f"planner_token_{(host and host['port']) or scope['server'][1]}"


_ASK_FOR_TOKEN = (
    "A token is needed: the link that planner ui printed has it; programs send it as "
    "Authorization: Bearer TOKEN."
)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sent


async def _say(
    send: Send, status: int, words: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    every = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS, *headers]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": words.encode()})


class RequestRefused(PlannerError):
    """A request is beyond a limit, or was ended; ``status`` is that of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[RequestRefused], tuple[str, int]]:
        return type(self), (str(self), self.status)


@record(kw_only=True)
class Limits:
    """Limits of a request, and of all together.

    Parameters
    ----------
    workers : processes that answer
    seconds : of work on one request
    rows : configurations of one search
    scenarios : of one sweep
    waiting : requests that wait for a worker
    question_bytes : of a query or a body
    upload_bytes : of what one client uploads at once
    uploads_bytes : of all that was uploaded and is kept
    answer_bytes : of one answer
    kept_bytes : of all answers that are kept for those who come again
    memory_bytes : of a worker's address space
    tasks : answers after which a worker is replaced
    connections : open ones of all clients
    client_connections : those of one client that is not of this machine
    client_seconds : in which a whole request has come, and in which an answer is taken further
    """

    workers: int = num_cores()
    seconds: float = 60.0
    rows: int = 200_000_000
    scenarios: int = 1_000
    waiting: int = 100
    question_bytes: int = 16 * 2**10
    upload_bytes: int = 2**20
    uploads_bytes: int = 32 * 2**20
    answer_bytes: int = 32 * 2**20
    kept_bytes: int = 64 * 2**20
    memory_bytes: int = 8 * 2**30
    tasks: int = 200
    connections: int = 500
    client_connections: int = 64
    client_seconds: float = 10.0


def within_files(limits: Limits) -> Limits:
    """Limits with no more connections than half of the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=min(limits.connections, files // 2))
