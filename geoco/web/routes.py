"""The addresses of the server and what they do. Model work goes through the work queue."""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from geoco import media
from geoco.editing.editor import SEED, Film
from geoco.web import uploads
from geoco.web.exports import (
    MEDIA_TYPES,
    OWN_SIZES,
    Export,
    check_frame,
    count_drawing_bytes,
    export_file,
    name_file,
)
from geoco.web.samples import Sample
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
from geoco.web.service import Service
from geoco.web.sessions import (
    ImportedEdits,
    OpenedFrames,
    SceneState,
    Session,
    apply_edit,
)


# Not in threads of their own, as plain functions would be: sessions are touched by the event loop
# alone.
async def _get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _find_session(
    service: Annotated[Service, Depends(_get_service)],
    session: Annotated[str, Path(description="The secret id of a session")],
) -> AsyncIterator[Session]:
    with service.sessions.use(session) as used:
        yield used


async def _find_state(
    session: Annotated[Session, Depends(_find_session)],
    state: Annotated[str, Path(description="The id of a state of this session")],
) -> SceneState:
    return session.find_state(state)


TheService = Annotated[Service, Depends(_get_service)]
TheSession = Annotated[Session, Depends(_find_session)]
TheState = Annotated[SceneState, Depends(_find_state)]
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


def _describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": Problem, "description": PROBLEMS[status]}
        for status in sorted({*_COMMON, *statuses})
    }


_BINARY = {"schema": {"type": "string", "format": "binary"}}


def _describe_body(kind: str) -> dict[str, Any]:
    """The description of a body that is a file."""
    return {"requestBody": {"required": True, "content": {kind: _describe_content(kind)}}}


def _describe_answer(*kinds: str) -> dict[str, Any]:
    """The description of an answer that is a file."""
    return {"description": "The file", "content": {kind: _describe_content(kind) for kind in kinds}}


def _describe_content(kind: str) -> dict[str, Any]:
    return {"schema": {"type": "object"}} if kind == "application/json" else _BINARY


router = APIRouter(prefix="/api")


@router.post("/sessions", status_code=201, responses=_describe_problems(), summary="Begin")
async def begin_session(service: TheService) -> SessionAnswer:
    """A new session; everything else happens inside one."""
    return _describe_session(service, service.sessions.open())


@router.get("/sessions/{session}", responses=_describe_problems(404), summary="Is a session alive?")
async def show_session(service: TheService, session: TheSession) -> SessionAnswer:
    return _describe_session(service, session)


@router.delete(
    "/sessions/{session}", status_code=204, responses=_describe_problems(404), summary="End"
)
async def end_session(service: TheService, session: TheSession) -> None:
    """Forget a session with all that is in it."""
    service.sessions.close(session.id)


def _describe_session(service: Service, session: Session) -> SessionAnswer:
    return SessionAnswer(
        id=session.id,
        model=ModelAnswer.from_editor(service.editor),
        limits=LimitsAnswer.from_settings(service.settings),
    )


# -- what to edit ----------------------------------------------------------------------------------


@router.get("/samples", responses=_describe_problems(), summary="Scenes to begin with")
async def list_samples(service: TheService) -> list[SampleAnswer]:
    return [SampleAnswer.from_sample(sample) for sample in (await service.load_samples()).values()]


@router.get(
    "/samples/{sample}/picture.png",
    response_class=Response,
    responses={**_describe_problems(404), 200: _describe_answer("image/png")},
    summary="A sample's first frame",
)
async def send_sample_picture(service: TheService, sample: str) -> Response:
    frames = _find_sample(await service.load_samples(), sample).frames
    return Response(media.encode_png(frames[0]), media_type="image/png")


@router.post(
    "/sessions/{session}/scenes",
    status_code=201,
    responses=_describe_problems(404),
    summary="Open a sample",
)
async def open_sample(
    service: TheService, session: TheSession, request: OpenRequest
) -> StateAnswer:
    start = service.share_start(
        _find_sample(await service.load_samples(), request.sample), request.seed
    )
    return await service.answer_state(session, SceneState(start))


@router.post(
    "/sessions/{session}/uploads",
    status_code=201,
    responses=_describe_problems(404, 415),
    openapi_extra=_describe_body("application/octet-stream"),
    summary="Open a picture or a short video",
)
async def open_upload(
    service: TheService,
    session: TheSession,
    request: Request,
    seed: Annotated[Seed, Query()] = SEED,
) -> StateAnswer:
    """The body is the file itself. Its kind is read from its content, not from its type or name."""
    service.queue.check()
    data = await request.body()
    editor = service.editor

    def make_state() -> SceneState:
        opened = uploads.read_upload(data, editor.model.size, service.settings)
        rate = opened.frames_per_second
        start = OpenedFrames(editor, opened.frames, seed, rate, opened.originals)
        return SceneState(start, opened.notes)

    return await service.answer_start(session, make_state)


@router.post(
    "/sessions/{session}/imports",
    status_code=201,
    responses=_describe_problems(404),
    openapi_extra=_describe_body("application/json"),
    summary="Replay an edit list",
)
async def import_edits(service: TheService, session: TheSession, request: Request) -> StateAnswer:
    """The body is a file that `edits.json` gave, here or from Python."""
    service.queue.check()
    data = await request.body()

    def make_state() -> SceneState:
        text, is_film = uploads.read_edit_list(data, service.settings)
        return SceneState(ImportedEdits(service.editor, text, is_film))

    return await service.answer_start(session, make_state)


def _find_sample(samples: dict[str, Sample], name: str) -> Sample:
    if name not in samples:
        raise HTTPException(404, f"there is no sample of this name: there are {', '.join(samples)}")
    return samples[name]


# -- editing ---------------------------------------------------------------------------------------

_STATE = "/sessions/{session}/states/{state}"


@router.get(_STATE, responses=_describe_problems(404), summary="What a state shows")
async def show_state(
    service: TheService, session: TheSession, state: TheState, frame: Frame = 0
) -> StateAnswer:
    return await service.answer_state(session, state, frame)


@router.post(
    _STATE + "/edits",
    status_code=201,
    responses=_describe_problems(404),
    summary="Edit: a new state",
)
async def edit_state(
    service: TheService, session: TheSession, state: TheState, edit: SentEdit, frame: Frame = 0
) -> StateAnswer:
    """The old state stays. Where an edit takes from another scene, `donor` is a state's id."""
    return await service.answer_state(session, session.derive_state(state, edit.root), frame)


@router.post(
    _STATE + "/previews", responses=_describe_problems(404), summary="Edit one frame, keep nothing"
)
async def preview_edit(
    service: TheService, session: TheSession, state: TheState, edit: SentEdit, frame: Frame = 0
) -> PreviewAnswer:
    """For dragging: an edit without `frames` and `keys`, shown in one frame."""
    donor = session.find_donor(edit.root)

    def work() -> PreviewAnswer:
        whole = state.compute_scene()
        check_frame(whole, frame)
        scene = whole.frame(frame) if isinstance(whole, Film) else whole
        edited = apply_edit(scene, edit.root, donor)
        assert not isinstance(edited, Film)
        return PreviewAnswer.from_scene(edited, frame)

    return await service.compute(session, state, work)


@router.get(_STATE + "/frames", responses=_describe_problems(404), summary="All frames of a state")
async def list_frames(service: TheService, session: TheSession, state: TheState) -> FramesAnswer:
    def work() -> FramesAnswer:
        scene = state.compute_scene()
        numbers = range(len(scene.decoded))
        return FramesAnswer(frames=[FrameAnswer.from_scene(scene, number) for number in numbers])

    return await service.compute(session, state, work)


@router.get(
    _STATE + "/export/{file}",
    response_class=Response,
    responses={**_describe_problems(404), 200: _describe_answer(*MEDIA_TYPES.values())},
    summary="Take away a picture, a video, the edit list or the code",
)
async def send_export(
    service: TheService,
    session: TheSession,
    state: TheState,
    file: Export,
    frame: Frame = 0,
    zoom: Annotated[int, Query(ge=1, le=64, description="Each pixel as a square so wide")] = 1,
    name: Annotated[str, Query(pattern=r"^[\w-]{0,80}$", description="Of what was opened")] = "",
) -> Response:
    def work() -> tuple[bytes, str]:
        scene = state.compute_scene()
        data = export_file(scene, file, frame, zoom, name)
        return data, name_file(scene, file, name, frame, zoom)

    if file in OWN_SIZES:
        needed = await service.compute(
            session, state, lambda: count_drawing_bytes(state.compute_scene(), file, frame)
        )
        data, title = await service.draw(session, state, needed, work)
    else:
        data, title = await service.compute(session, state, work)
    quoted = quote(title)
    saved = f'filename="{title}"' if quoted == title else f"filename*=UTF-8''{quoted}"
    headers = {"Content-Disposition": f"attachment; {saved}"}
    return Response(data, media_type=MEDIA_TYPES[file], headers=headers)
