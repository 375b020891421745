"""A server of pages in a thread, and questions for it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.ui.request_limits import Limits
from planner.ui.worker_pool import Pool

SMALL = "model=llama-7b&num_gpus=8&space=small"
LONG = "size?model=llama-65b&gpu=all&num_gpus=256,512,1024&total_tokens=1T&calendar_time=60d"
"""Many seconds of work, which soon tells how far it is."""
OWN_HOST = "host: localhost"
PATIENCE_S = 120.0
"""How long a busy machine may let anything wait; nothing waits for it to pass."""


@dataclass(frozen=True)
class Served:
    """A server that runs in a thread: its port, its workers and its connections."""

    port: int
    pool: Pool
    connections: set[Any]
    end: Callable[[], None]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connected(self, sent: bytes = b"") -> socket.socket:
        """A connection that has sent so much."""
        found = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        found.sendall(sent)
        return found

    def asked(self, path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
        """The bytes of an answer, asked for with just these headers on a connection of its own."""
        lines = [f"{method} {path} HTTP/1.1", *headers, "connection: close"]
        lines += [f"content-length: {len(body)}"] if body else []
        with self.connected("\r\n".join([*lines, "", ""]).encode() + body) as found:
            return read(found)


def read(connection: socket.socket) -> bytes:
    """What comes until the other side ends."""
    pieces = []
    try:
        while piece := connection.recv(2**16):
            pieces.append(piece)
    except ConnectionResetError:
        pass  # it ended without having read all
    return b"".join(pieces)


def until(is_so: Callable[[], object]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@contextmanager
def server(limits: Limits, token: str = "", specs: Path | None = None) -> Iterator[Served]:
    """A server that runs in a thread."""
    from planner.ui.server import make_server, open_listener

    with open_listener("127.0.0.1", 0) as listens:
        made = make_server(limits, specs, token)
        made.config.timeout_graceful_shutdown = 1
        thread = threading.Thread(target=lambda: asyncio.run(made.serve(sockets=[listens])))
        thread.start()
        until(lambda: made.started)
        app: Any = made.config.app

        def end() -> None:
            made.should_exit = True
            thread.join(timeout=PATIENCE_S)

        port = listens.getsockname()[1]
        try:
            yield Served(port, app.state.pool, made.server_state.connections, end)
        finally:
            end()
