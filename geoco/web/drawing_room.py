"""Memory for drawing at the pictures' own size: counted while it is used, and given in turns."""

import asyncio
from collections import deque

from geoco.errors import GeocoError
from geoco.web.sessions import Sessions
from geoco.web.settings import MEBIBYTE, Settings
from geoco.web.work_queue import refuse_busy


class DrawingRoom:
    """Who does not fit beside those who draw waits, first come first served, and in no thread."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._most, self._longest = settings.drawing_bytes, settings.waiting
        self._sessions = sessions
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> None:
        """Room for so many bytes, to be given back; refused where it is too much for anyone."""
        if count > self._most:
            raise GeocoError(
                f"to draw this at its own size needs {count / MEBIBYTE:.0f} MiB, more than the "
                f"{self._most / MEBIBYTE:.0f} MiB there are: take looks from fewer pictures, or "
                "smaller ones"
            )
        if not self._waiting and self._fits(count):
            self._add(count)
            return
        if len(self._waiting) >= self._longest:
            raise refuse_busy()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was its turn in the same moment
                self.give_back(count)
            else:
                self._waiting.remove((count, turn))
                self._admit()
            raise

    def give_back(self, count: int) -> None:
        self._add(-count)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            count, turn = self._waiting.popleft()
            self._add(count)
            turn.set_result(None)

    def _fits(self, count: int) -> bool:
        return self._taken + count <= self._most

    def _add(self, count: int) -> None:
        self._taken += count
        self._sessions.reserve(count)
