from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from served import PATIENCE_S, Served, server

from planner.ui.request_limits import Limits


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A server with a worker."""
    with server(Limits(workers=1, seconds=PATIENCE_S)) as found:
        yield found


@pytest.fixture(scope="session")
def address(served: Served) -> str:
    """Where it is."""
    return served.address


@pytest.fixture(scope="session")
def client(address: str) -> Iterator[Any]:
    """What asks the server."""
    import httpx

    with httpx.Client(base_url=address, timeout=PATIENCE_S) as found:
        yield found
