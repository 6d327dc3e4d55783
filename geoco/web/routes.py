"""The addresses of the server and what they do. Model work goes through the gate."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from geoco import media
from geoco.editing.editor import SEED, Editor, Film
from geoco.web import uploads
from geoco.web.exports import TYPES, Export, check_frame, export
from geoco.web.samples import Sample, Samples
from geoco.web.schema import (
    FrameAnswer,
    FramesAnswer,
    LimitsAnswer,
    ModelAnswer,
    OpenRequest,
    PreviewAnswer,
    Problem,
    SampleAnswer,
    Seed,
    SentEdit,
    SessionAnswer,
    StateAnswer,
)
from geoco.web.sessions import Imported, Opened, Session, Sessions, State, applied
from geoco.web.settings import Settings
from geoco.web.work_queue import Gate

Result = TypeVar("Result")


@dataclass(eq=False)
class Service:
    """What the routes share."""

    editor: Editor
    settings: Settings
    sessions: Sessions
    gate: Gate
    make_samples: Samples
    _samples: dict[str, Sample] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def samples(self) -> dict[str, Sample]:
        """Made when they are asked for first."""
        async with self._making:
            if not self._samples:
                made = await self.gate.run(self.make_samples)
                self._samples = {sample.id: sample for sample in made}
        return self._samples

    async def compute(self, session: Session, state: State, work: Callable[[], Result]) -> Result:
        """Do work that needs a state, remember the state and keep the memory in its limits."""
        result = await self.gate.run(work)
        session.keep(state)
        self.sessions.trim()
        return result

    async def show(self, session: Session, state: State, frame: int = 0) -> StateAnswer:
        def work() -> StateAnswer:
            check_frame(state.scene(), frame)
            return StateAnswer.of(state, frame)

        return await self.compute(session, state, work)


# Not in threads of their own, as plain functions would be: sessions are touched by the event loop
# alone.
async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _session(
    service: Annotated[Service, Depends(_service)],
    session: Annotated[str, Path(description="The secret id of a session")],
) -> Session:
    return service.sessions.find(session)


async def _state(
    session: Annotated[Session, Depends(_session)],
    state: Annotated[str, Path(description="The id of a state of this session")],
) -> State:
    return session.state(state)


TheService = Annotated[Service, Depends(_service)]
TheSession = Annotated[Session, Depends(_session)]
TheState = Annotated[State, Depends(_state)]
Frame = Annotated[int, Query(ge=0, lt=10_000, description="Which frame; 0 of a picture")]

PROBLEMS = {
    400: "Not a request that can be read",
    403: "Asked from another site",
    404: "No such session, state or sample, or no longer",
    413: "Too large",
    415: "A file of another kind",
    422: "It cannot be done",
    503: "Busy: try again",
}
_COMMON = (400, 403, 413, 422, 503)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": Problem, "description": PROBLEMS[status]}
        for status in sorted({*_COMMON, *statuses})
    }


_BINARY = {"schema": {"type": "string", "format": "binary"}}


def _file(kind: str) -> dict[str, Any]:
    """The description of a body that is a file."""
    return {"requestBody": {"required": True, "content": {kind: _content(kind)}}}


def _files(*kinds: str) -> dict[str, Any]:
    """The description of an answer that is a file."""
    return {"description": "The file", "content": {kind: _content(kind) for kind in kinds}}


def _content(kind: str) -> dict[str, Any]:
    return {"schema": {"type": "object"}} if kind == "application/json" else _BINARY


router = APIRouter(prefix="/api")


@router.post("/sessions", status_code=201, responses=_problems(), summary="Begin")
async def begin(service: TheService) -> SessionAnswer:
    """A new session; everything else happens inside one."""
    return _said(service, service.sessions.open())


@router.get("/sessions/{session}", responses=_problems(404), summary="Is a session alive?")
async def look(service: TheService, session: TheSession) -> SessionAnswer:
    return _said(service, session)


@router.delete("/sessions/{session}", status_code=204, responses=_problems(404), summary="End")
async def end(service: TheService, session: TheSession) -> None:
    """Forget a session with all that is in it."""
    service.sessions.close(session.id)


def _said(service: Service, session: Session) -> SessionAnswer:
    return SessionAnswer(
        id=session.id,
        model=ModelAnswer.of(service.editor),
        limits=LimitsAnswer.of(service.settings),
    )


# -- what to edit ----------------------------------------------------------------------------------


@router.get("/samples", responses=_problems(), summary="Scenes to begin with")
async def list_samples(service: TheService) -> list[SampleAnswer]:
    return [SampleAnswer.of(sample) for sample in (await service.samples()).values()]


@router.get(
    "/samples/{sample}/picture.png",
    response_class=Response,
    responses={**_problems(404), 200: _files("image/png")},
    summary="A sample's first frame",
)
async def sample_picture(service: TheService, sample: str) -> Response:
    found = _sample(await service.samples(), sample)
    return Response(media.encode_png(found.frames[0]), media_type="image/png")


@router.post(
    "/sessions/{session}/scenes", status_code=201, responses=_problems(404), summary="Open a sample"
)
async def open_sample(
    service: TheService, session: TheSession, request: OpenRequest
) -> StateAnswer:
    found = _sample(await service.samples(), request.sample)
    start = Opened(service.editor, found.frames, request.seed, found.frames_per_second)
    return await service.show(session, State(start))


@router.post(
    "/sessions/{session}/uploads",
    status_code=201,
    responses=_problems(404, 415),
    openapi_extra=_file("application/octet-stream"),
    summary="Open a picture or a short video",
)
async def upload(
    service: TheService,
    session: TheSession,
    request: Request,
    seed: Annotated[Seed, Query()] = SEED,
) -> StateAnswer:
    """The body is the file itself. Its kind is read from its content, not from its type or name."""
    data = await request.body()
    size, settings = service.editor.model.size, service.settings
    found = await service.gate.run(lambda: uploads.read_upload(data, size, settings))
    start = Opened(service.editor, found.frames, seed, found.frames_per_second)
    return await service.show(session, State(start, found.notes))


@router.post(
    "/sessions/{session}/imports",
    status_code=201,
    responses=_problems(404),
    openapi_extra=_file("application/json"),
    summary="Replay an edit list",
)
async def import_edits(service: TheService, session: TheSession, request: Request) -> StateAnswer:
    """The body is a file that `edits.json` gave, here or from Python."""
    data = await request.body()
    text, is_film = await service.gate.run(lambda: uploads.read_edit_list(data, service.settings))
    return await service.show(session, State(Imported(service.editor, text, is_film)))


def _sample(samples: dict[str, Sample], name: str) -> Sample:
    if name not in samples:
        raise HTTPException(404, f"there is no sample of this name: there are {', '.join(samples)}")
    return samples[name]


# -- editing ---------------------------------------------------------------------------------------

_STATE = "/sessions/{session}/states/{state}"


@router.get(_STATE, responses=_problems(404), summary="What a state shows")
async def show(
    service: TheService, session: TheSession, state: TheState, frame: Frame = 0
) -> StateAnswer:
    return await service.show(session, state, frame)


@router.post(
    _STATE + "/edits", status_code=201, responses=_problems(404), summary="Edit: a new state"
)
async def edit(
    service: TheService, session: TheSession, state: TheState, edit: SentEdit, frame: Frame = 0
) -> StateAnswer:
    """The old state stays. Where an edit takes from another scene, `donor` is a state's id."""
    return await service.show(session, session.edited(state, edit.root), frame)


@router.post(_STATE + "/previews", responses=_problems(404), summary="Edit one frame, keep nothing")
async def preview(
    service: TheService, session: TheSession, state: TheState, edit: SentEdit, frame: Frame = 0
) -> PreviewAnswer:
    """For dragging: an edit without `frames` and `keys`, shown in one frame."""
    donor = session.donor(edit.root)

    def work() -> PreviewAnswer:
        made = state.scene()
        check_frame(made, frame)
        one = made.frame(frame) if isinstance(made, Film) else made
        shown = applied(one, edit.root, donor)
        assert not isinstance(shown, Film)
        return PreviewAnswer.of(shown, frame)

    return await service.gate.run(work)


@router.get(_STATE + "/frames", responses=_problems(404), summary="All frames of a state")
async def frames(service: TheService, session: TheSession, state: TheState) -> FramesAnswer:
    def work() -> FramesAnswer:
        made = state.scene()
        return FramesAnswer(frames=[FrameAnswer.of(made, k) for k in range(len(made.decoded))])

    return await service.compute(session, state, work)


@router.get(
    _STATE + "/export/{file}",
    response_class=Response,
    responses={**_problems(404), 200: _files(*TYPES.values())},
    summary="Take away a picture, a video, the edit list or the code",
)
async def take_away(
    service: TheService,
    session: TheSession,
    state: TheState,
    file: Export,
    frame: Frame = 0,
    zoom: Annotated[int, Query(ge=1, le=64, description="Each pixel as a square so wide")] = 1,
) -> Response:
    data = await service.compute(session, state, lambda: export(state.scene(), file, frame, zoom))
    headers = {"Content-Disposition": f'attachment; filename="{file.value}"'}
    return Response(data, media_type=TYPES[file], headers=headers)
