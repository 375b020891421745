"""Access control and limits of requests, so that one user cannot slow down the others."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from planner.base.records import record
from planner.base.worker_processes import num_cores
from planner.errors import PlannerError

Scope: TypeAlias = MutableMapping[str, Any]
"""A connection as ASGI describes it."""
Message: TypeAlias = MutableMapping[str, Any]
"""A message of ASGI on a connection."""
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
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
    """Whether an address can be reached only from this machine.

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
    """Passes allowed requests on; an empty ``token`` allows all programs of this machine.

    Pages of other sites are refused, whatever host name they use for this machine.
    """

    app: App
    token: str
    question_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request with the application, unless it is refused.

        A link with a valid token is redirected to the same address; the token becomes a cookie.
        """
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _send_text(send, *refusal)
        elif self.token and (link := self._link_without_token(scope)) is not None:
            cookie = f"{_cookie(scope, headers)}={quote(self.token, safe='')}"
            cookie_header = f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
            await _send_text(
                send, 303, "", ((b"location", link), (b"set-cookie", cookie_header.encode()))
            )
        else:
            await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Mapping[str, bytes]) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal; None if the request is allowed."""
        if len(scope["query_string"]) > self.question_bytes:
            return 413, f"A question has at most {self.question_bytes:,} bytes."
        if _is_of_another_site(scope, headers):
            return 403, "Requests from other sites are refused."
        if self.token:
            return None if self._has_token(scope, headers) else (401, _TOKEN_MESSAGE)
        host = _HOST.fullmatch(_host(headers))
        if host is None or not is_loopback(host["name"]):
            return 421, "The Host header is not a name of this server."
        return None

    def _has_token(self, scope: Scope, headers: Mapping[str, bytes]) -> bool:
        """Whether the query, the Authorization header or a cookie of a request has the token."""
        tokens = [value for name, value in _query(scope) if name == TOKEN]
        tokens.append(headers.get("authorization", b"").decode("latin-1").removeprefix("Bearer "))
        for pair in headers.get("cookie", b"").decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            tokens += [unquote(value)] if name == _cookie(scope, headers) else []
        return any(
            hmac.compare_digest(candidate.encode(), self.token.encode()) for candidate in tokens
        )

    def _link_without_token(self, scope: Scope) -> bytes | None:
        """Return where to redirect a link with the token: its path and query without the token.

        Returns None if the request is no such link.

        The path is quoted, so that browsers cannot read it as the name of another server.
        """
        query = _query(scope)
        if scope["method"] != "GET" or not any(name == TOKEN for name, _ in query):
            return None
        remaining = urlencode([(name, value) for name, value in query if name != TOKEN])
        path = "/" + quote(scope["path"].lstrip("/"))
        return f"{path}{'?' * bool(remaining)}{remaining}".encode("ascii")


def _host(headers: Mapping[str, bytes]) -> str:
    return headers.get("host", b"").decode("latin-1").lower()


def _is_of_another_site(scope: Scope, headers: Mapping[str, bytes]) -> bool:
    """Whether a request comes from a page of another site or port; links may be followed.

    Browsers send the site, or the origin over plain HTTP to other machines.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        is_followed = scope["method"] == "GET" and headers.get("sec-fetch-mode") == b"navigate"
        return site not in _SAME_SITE and not is_followed
    origin = headers["origin"].decode("latin-1").lower() if "origin" in headers else None
    return origin is not None and origin.partition("://")[2] != _host(headers)


def _cookie(scope: Scope, headers: Mapping[str, bytes]) -> str:
    """The name of the cookie, with the port: browsers send cookies to all ports of a host."""
    host = _HOST.fullmatch(_host(headers))
    return f"planner_token_{(host and host['port']) or scope['server'][1]}"


_TOKEN_MESSAGE = (
    "A token is needed: use the link that planner ui printed; programs send "
    "Authorization: Bearer TOKEN."
)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _with_headers(send: Send) -> Send:
    """Return a ``send`` function that adds the security headers to every response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return send_with_headers


async def _send_text(
    send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a plain-text response with a status and the security headers."""
    all_headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS, *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": text.encode()})


class RequestRefused(PlannerError):
    """A request exceeds a limit, or was cancelled; ``status`` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[RequestRefused], tuple[str, int]]:
        return type(self), (str(self), self.status)


@record(kw_only=True)
class Limits:
    """Limits of one request, and of all requests together.

    Parameters
    ----------
    workers : number of worker processes
    seconds : work on one request [s]
    rows : configurations of one search
    scenarios : scenarios of one sweep
    waiting : requests that wait for a worker
    question_bytes : size of a query or a body
    upload_bytes : size of one upload
    uploads_bytes : size of all stored uploads
    answer_bytes : size of one answer
    kept_bytes : size of all cached answers
    memory_bytes : address space of a worker
    tasks : answers after which a worker is replaced
    connections : open connections of all clients
    client_connections : open connections of one client on another machine
    client_seconds : time for a complete request, and for progress in reading an answer [s]
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
    """Return the limits with at most half as many connections as this process may open files."""
    try:
        import resource
    except ImportError:  # Windows
        return limits
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=min(limits.connections, files // 2))


def late_error(limits: Limits) -> RequestRefused:
    """Return the error of a question that takes too long."""
    message = f"It takes more than {limits.seconds:g} s: narrow the question, or use the command"
    return RequestRefused(f"{message} line.", 504)
