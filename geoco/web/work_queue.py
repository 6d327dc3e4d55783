"""Who may compute now: a few threads, a short queue, and a clear answer to everyone else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from fastapi import HTTPException

Result = TypeVar("Result")
BUSY = "the server is busy: try again in a second"


class WorkQueue:
    """Model work runs here, off the event loop, so that pages load while it goes on."""

    def __init__(self, workers: int, waiting: int) -> None:
        threads = max(1, torch.get_num_threads() // workers)
        self._pool = ThreadPoolExecutor(
            workers, "geoco-work", initializer=lambda: torch.set_num_threads(threads)
        )
        self._most = workers + waiting
        self._inside: set[asyncio.Future[Any]] = set()

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of the work; 503 at once when too much is waiting already."""
        if len(self._inside) >= self._most:
            raise HTTPException(503, BUSY, headers={"Retry-After": "1"})
        # A client that hangs up does not stop the thread: the place is free when it has ended.
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self._inside.add(future)
        future.add_done_callback(self._leave)
        return await asyncio.shield(future)

    def _leave(self, future: "asyncio.Future[Any]") -> None:
        self._inside.discard(future)
        if not future.cancelled():
            future.exception()  # seen, even where nobody waits for it any more
