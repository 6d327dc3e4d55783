"""Who may compute now: a few threads, a short queue, and a clear answer to everyone else."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from fastapi import HTTPException

Result = TypeVar("Result")
BUSY = "the server is busy: try again in a second"
AHEAD = 1  # pieces of work that threads have at hand, so that none waits while the loop is at work
ENDING = "the server is ending: start it again to go on"


def refuse_busy(detail: str = BUSY, seconds: float = 1) -> HTTPException:
    """Not now, and when to ask again."""
    wait = str(min(max(1, math.ceil(seconds)), 60))
    return HTTPException(503, detail, headers={"Retry-After": wait})


class WorkQueue:
    """Model work runs here, off the event loop, so that pages load while it goes on."""

    def __init__(self, workers: int, waiting: int) -> None:
        threads = max(1, torch.get_num_threads() // workers)
        self._pool = ThreadPoolExecutor(
            workers, "geoco-work", initializer=lambda: torch.set_num_threads(threads)
        )
        self._workers, self._most = workers, workers + waiting
        # Of the event loop that asks: there is one, but tests take several in turns.
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._inside: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}
        self._ended = False

    def check(self) -> None:
        """503 at once when too much is waiting already."""
        if self._ended:
            raise refuse_busy(ENDING)
        if len(self._inside) >= self._most:
            raise refuse_busy()

    async def run(
        self, work: Callable[[], Result], finish: Callable[[Result | None], None] | None = None
    ) -> Result:
        """The result of the work.

        `finish` is called with it, or with None if the work failed. What is computed now and what
        is not finished are together at most `workers + AHEAD`.
        """
        self.check()
        # A client that hangs up does not stop the thread: the place is free when it has ended.
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._work(work, finish))
        self._inside[task] = answer
        task.add_done_callback(self._leave)
        return await answer

    def end(self) -> bool:
        """Refuse all that waits, and whatever comes; whether a thread is still at work."""
        self._ended = True
        for task, answer in self._inside.items():
            if not answer.done():
                answer.set_exception(refuse_busy(ENDING))
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        return bool(self._inside)

    async def _work(
        self, work: Callable[[], Result], finish: Callable[[Result | None], None] | None
    ) -> Result:
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = (loop, asyncio.Semaphore(self._workers + AHEAD))
        async with self._places[1]:
            result: Result | None = None
            try:
                result = await loop.run_in_executor(self._pool, work)
                return result
            finally:
                if finish is not None:
                    finish(result)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        answer = self._inside.pop(task)
        error = None if task.cancelled() else task.exception()
        if answer.done() or task.cancelled():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())
