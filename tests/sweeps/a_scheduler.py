"""A Dask scheduler without workers, which prints its address and runs until it is ended."""

from __future__ import annotations

import asyncio

from distributed import Scheduler


async def _run() -> None:
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()


if __name__ == "__main__":
    asyncio.run(_run())
