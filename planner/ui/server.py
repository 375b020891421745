"""The HTTP server of the pages: its address, its connections, and its shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.errors import OutputError
from planner.ui.request_limits import TOKEN, Limits, is_loopback, within_files
from planner.ui.worker_pool import Pool

_MIN_BYTES = 16 * 2**10
"""Bytes of an answer that a client must read in `Limits.client_seconds`."""

_CAN_ANSWER = (h11.IDLE, h11.SEND_RESPONSE)
_TOO_LATE = (b"408 Request Timeout", b"The request did not come in time.")
_TOO_MANY_CONNECTIONS = (
    b"503 Service Unavailable",
    b"There are too many connections: try again in some seconds.",
)


def client_network(host: str) -> str:
    """Return the network of a client: an IPv4 address or an IPv6 /64; "" for this machine.

    >>> (client_network("192.0.2.7"), client_network("2001:db8::1:2"),
    ... client_network("::ffff:127.0.0.1"))
    ('192.0.2.7', '2001:db8::/64', '')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if is_loopback(str(address)):
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Server(uvicorn.Server):
    """A server that closes its workers first, so that no client waits for answers."""

    def __init__(self, config: uvicorn.Config, pool: Pool) -> None:
        super().__init__(config)
        self._pool = pool

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._pool.close)
        await super().shutdown(sockets)


class Connection(H11Protocol):
    """A connection that is closed if its client keeps the server waiting.

    The clock runs until a request is complete, and while the client does not read the answer. If
    one client or all clients have too many connections, the client with the most loses the
    connection that waited longest, or else the new one. Programs of this machine, which may be a
    proxy, have no limit per client.
    """

    def __init__(self, limits: Limits, **options: Any) -> None:
        """Create the connection of a client, with the limits of the server."""
        super().__init__(**options)
        self._limits = limits
        self._network = ""
        self._clock: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._network = client_network(self.client[0]) if self.client else ""
        self._watch()
        self._limit_connections()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    @property
    def _is_waiting_for_client(self) -> bool:
        """Whether the server waits for the client."""
        cycle = self.cycle
        has_request = cycle is not None and not cycle.more_body and not cycle.response_complete
        return not has_request or self.flow.write_paused

    def _watch(self) -> None:
        """Start the timer of a connection that waits for its client; stop the timer otherwise."""
        if not self._is_waiting_for_client or self not in self.connections:
            self._stop()
        elif self._clock is None:
            self._since = self.loop.time()
            self._unsent = self.transport.get_write_buffer_size()
            self._clock = self.loop.call_later(self._limits.client_seconds, self._check_progress)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _check_progress(self) -> None:
        """Close the connection if its client made no progress within the time limit."""
        self._clock = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._unsent - unsent >= _MIN_BYTES:
            self._watch()
        else:
            self._end(*_TOO_LATE)

    def _limit_connections(self) -> None:
        """Close one connection if there are too many."""
        connections = [
            connection for connection in self.connections if isinstance(connection, Connection)
        ]
        same_network = [
            connection for connection in connections if connection._network == self._network
        ]
        if self._network and len(same_network) > self._limits.client_connections:
            connections = same_network
        elif len(connections) <= self._limits.connections:
            return
        counts = Counter(connection._network for connection in connections)
        waiting = [connection for connection in connections if connection._clock is not None]
        closed = min(
            waiting, key=lambda connection: (-counts[connection._network], connection._since)
        )
        closed._end(*_TOO_MANY_CONNECTIONS, sends_reason=closed is self)

    def _end(self, status: bytes, text: bytes, sends_reason: bool = False) -> None:
        """Close the connection; a client that began a request gets the reason as response."""
        self._stop()
        self.connections.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # a client that does not read gets no reason
            return
        has_begun = self.conn.trailing_data[0] or (self.cycle is not None and self.cycle.more_body)
        if (sends_reason or has_begun) and self.conn.our_state in _CAN_ANSWER:
            head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: text/plain\r\n" % status
            self.transport.write(head + b"content-length: %d\r\n\r\n%b" % (len(text), text))
        self.transport.close()


_BACKLOG = 256
_GRACE_S = 3
_HEADER_BYTES = 64 * 2**10


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address.

    Raises OutputError if the address does not exist, or the port is in use or not allowed.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OutputError(f"{host}: is not an address of this machine ({error}).") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise OutputError(
            f"{host}:{port}: cannot listen ({error.strerror}); give another --port, or 0 for any."
        ) from error
    return listener


def serve(
    host: str,
    port: int,
    *,
    token: str,
    limits: Limits,
    specs: Path | None,
    report_address: Callable[[str], None],
) -> None:
    """Report the link of the pages and serve them until the program ends.

    A server that other machines can reach needs a token; without one, a token is generated.
    Raises OutputError if it cannot listen at the address.
    """
    with open_listener(host, port) as listener:
        if not token and not is_loopback(host):
            token = secrets.token_urlsafe(18)
        server = make_server(limits, specs, token)
        report_address(link(listener, host, token))
        server.run(sockets=[listener])


def make_server(limits: Limits, specs: Path | None = None, token: str = "") -> uvicorn.Server:
    """Return the HTTP server of the application, with limits of connections."""
    import uvicorn

    from planner.ui.app import make_app

    app = make_app(limits, specs, token)
    config = uvicorn.Config(
        app,
        http=partial(Connection, within_files(limits)),  # type: ignore[arg-type]
        ws="none",
        h11_max_incomplete_event_size=limits.question_bytes + _HEADER_BYTES,
        log_level="error",  # no lines about invalid requests
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
    )
    return Server(config, app.state.pool)


def link(listener: socket.socket, host: str, token: str) -> str:
    """The link for a browser."""
    port = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?{TOKEN}={token}" if token else "")
