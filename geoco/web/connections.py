"""Connections of the server: closed where nothing comes, and ended soon when the server ends."""

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from geoco.web.settings import Settings
from geoco.web.work_queue import WorkQueue


class PatientProtocol(H11Protocol):
    """HTTP, but a connection that sends no whole head of a request in time is closed."""

    seconds = Settings.silent_seconds
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        """Bodies have a time limit of their own, see `middleware`."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._close)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self.transport.abort()


class Server(uvicorn.Server):
    """Ends within seconds: whoever waits is told, and work that goes on is left."""

    def __init__(self, app: FastAPI, settings: Settings, queue: WorkQueue) -> None:
        # Addresses hold the ids of sessions: they are not written to a log.
        super().__init__(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                ws="none",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=settings.ending_seconds,
            )
        )
        self.queue = queue
        self.works_on = False  # a thread, which cannot be stopped

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.works_on = self.queue.end()
        await super().shutdown(sockets)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Until a signal; Python would wait for threads that still work, so the process is left."""
        try:
            super().run(sockets)
        except KeyboardInterrupt:
            if not self.works_on:
                raise
            print("interrupted", file=sys.stderr, flush=True)
            os._exit(130)
