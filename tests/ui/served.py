"""A server of pages in a thread, and questions for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.ui.limits import Limits

SMALL = "model=llama-7b&num_gpus=8&space=small"
LONG = (
    "model=llama-65b,llama-2-70b,gpt-3-175b,llama-7b&gpu=a100,h100,h200,b200,b300"
    "&num_gpus=256,512,1024,2048,4096,8192"
)
"""More than some seconds of work."""


@contextmanager
def server(limits: Limits, token: str = "", specs: Path | None = None) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    import uvicorn

    from planner.ui.app import make_app
    from planner.ui.serve import listening

    with listening("127.0.0.1", 0) as socket:
        config = uvicorn.Config(
            make_app(limits, specs, token), log_level="error", timeout_graceful_shutdown=1
        )
        served = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(served.serve(sockets=[socket])))
        thread.start()
        while not served.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        served.should_exit = True
        thread.join(timeout=15)
