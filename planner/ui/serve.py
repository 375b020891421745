"""The server of the pages: where it listens, who may ask, until it is ended."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import MissingDependencyError, OutputError
from planner.ui.guard import TOKEN, is_loopback
from planner.ui.limits import Limits, within_files

if TYPE_CHECKING:
    import uvicorn

_BACKLOG = 256
_GRACE_S = 3
_HEADER_BYTES = 64 * 2**10


def check_installed() -> None:
    """Check that what the server needs is installed.

    Raises
    ------
    MissingDependencyError
        Something is missing.
    """
    needed = ("fastapi", "jinja2", "plotly", "uvicorn")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"planner ui needs {', '.join(missing)}: pip install 'llm-gpu-planner[ui]'."
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises
    ------
    OutputError
        The port is in use or not allowed, or there is no such address.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OutputError(f"{host}: is no address of this machine ({error}).") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise OutputError(
            f"{host}:{port}: cannot be listened on ({error.strerror}); give another --port, or 0 "
            "for any."
        ) from error
    return found


def serve(
    host: str,
    port: int,
    *,
    token: str,
    limits: Limits,
    specs: Path | None,
    said: Callable[[str], None],
) -> None:
    """Serve pages until the program is ended; ``said`` is told where.

    Beyond this machine a token is needed, which is made where none is given.

    Raises
    ------
    OutputError
        The address cannot be listened on.
    """
    with listening(host, port) as found:
        if not token and not is_loopback(host):
            token = secrets.token_urlsafe(18)
        server = make_server(limits, specs, token)
        said(link(found, host, token))
        server.run(sockets=[found])


def make_server(limits: Limits, specs: Path | None = None, token: str = "") -> uvicorn.Server:
    """A server of the application, whose connections keep the limits."""
    import uvicorn

    from planner.ui.app import make_app
    from planner.ui.connections import Connection, Server

    app = make_app(limits, specs, token)
    config = uvicorn.Config(
        app,
        http=partial(Connection, within_files(limits)),  # type: ignore[arg-type]
        ws="none",
        h11_max_incomplete_event_size=limits.question_bytes + _HEADER_BYTES,
        log_level="error",  # what clients send that is none of HTTP is not worth a line
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
    )
    return Server(config, app.state.pool)


def link(found: socket.socket, host: str, token: str) -> str:
    """Where a browser finds it."""
    port = found.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?{TOKEN}={token}" if token else "")
