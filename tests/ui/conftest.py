from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from served import server

from planner.ui.limits import Limits


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A server with two workers."""
    with server(Limits(workers=2, seconds=30.0)) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    """What asks the server."""
    import httpx

    with httpx.Client(base_url=address, timeout=60) as found:
        yield found
