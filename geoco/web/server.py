"""The server: an application around an editor, and a way to run it on this machine only."""

import asyncio
import mimetypes
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from rich.console import Console

from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.media import TooLargeError
from geoco.models import pretrained
from geoco.web.connections import Server
from geoco.web.drawing_room import DrawingRoom
from geoco.web.middleware import HEADERS, RequestGuard
from geoco.web.routes import router
from geoco.web.samples import (
    SampleMaker,
    explain_missing_store,
    make_samples,
    make_solids_samples,
)
from geoco.web.service import Service
from geoco.web.sessions import Sessions
from geoco.web.settings import Settings
from geoco.web.work_queue import WorkQueue

STATIC = Path(__file__).parent / "static"
ABOUT = """\
Encode pictures and short videos into slots, and edit them by saying what should move, grow, change
or go. Begin a session, open a sample or upload a file, and send edits to the state that this
answers with: each gives a new state, and undo is going back to an old one.
"""


def create_app(
    editor: Editor, samples: SampleMaker | None = None, settings: Settings | None = None
) -> FastAPI:
    """The application; without samples of your own, scenes of the embedded generator."""
    settings = settings or Settings()
    size = editor.model.size
    sessions = Sessions(settings)
    service = Service(
        editor,
        settings,
        sessions,
        WorkQueue(settings.workers, settings.waiting),
        samples or (lambda: make_solids_samples(size)),
        DrawingRoom(settings, sessions),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        cleaning = asyncio.create_task(_expire_sessions(service))
        yield
        cleaning.cancel()

    app = FastAPI(
        title="GeoCo editor",
        version="1",
        description=ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page comes from elsewhere, and this server works offline
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(router)
    app.add_exception_handler(GeocoError, _answer_refusal)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(Exception, _answer_failure)
    mimetypes.add_type("text/javascript", ".js")  # some systems say text/plain
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    app.add_middleware(RequestGuard, settings=settings, sessions=service.sessions)
    return app


def serve(model: str, host: str, port: int, device: str, console: Console) -> None:
    """Run until interrupted."""
    loaded = pretrained.load(model, device)
    editor, data = Editor(loaded), loaded.config.data
    problem = explain_missing_store(data)
    if problem is not None:
        console.print(
            f"the page opens on scenes of the embedded generator, which this model does not know, "
            f"for its own videos are not here: {problem}",
            highlight=False,
            soft_wrap=True,
        )
    size = editor.model.size
    settings = Settings(hosts=tuple({host, *Settings.hosts}))
    samples = None if problem is not None else lambda: make_samples(data, size)
    app = create_app(editor, samples, settings)
    with open_listener(host, port) as listener:
        address = f"http://{host}:{listener.getsockname()[1]}"
        console.print(f"the editor is at {address} (Ctrl+C ends it)", soft_wrap=True)
        Server(app, settings, app.state.service.queue).run(sockets=[listener])


def open_listener(host: str, port: int) -> socket.socket:
    """A socket for the server. Answers are sent at once: waiting for more costs 40 ms each."""
    if not 0 <= port < 2**16:
        raise GeocoError(f"port {port}: expected a number from 0 to 65535")
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        number = error.errno or 0  # below zero where a name has no address
        reason = os.strerror(number) if number > 0 else error.strerror
        raise GeocoError(
            f"port {port} of {host} cannot be used: {reason}; name another with --port"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _expire_sessions(service: Service) -> None:
    """Sessions end when their time is up, also where nobody asks any more."""
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(min(60.0, service.settings.idle_seconds))
            service.sessions.expire()


async def _answer_refusal(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 413 if isinstance(error, TooLargeError) else 422)


async def _answer_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"] if part != "body")
    named = problem["type"] == "edit"
    detail = problem["msg"] if named else f"{place or 'the request'}: {problem['msg']}"
    return JSONResponse({"detail": detail}, 422)


async def _answer_failure(_: Request, error: Exception) -> JSONResponse:
    """The reason is in the server's log; strangers need not know it."""
    detail = "something went wrong on the server: try something else"
    return JSONResponse({"detail": detail}, 500, HEADERS)
