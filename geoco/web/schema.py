"""What goes over the wire: requests, answers and errors."""

import base64
import json
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from geoco import media
from geoco.editing import recording
from geoco.editing.advice import describe_doubt
from geoco.editing.decoded import SlotView
from geoco.editing.editor import SEED, Editor, Film, Scene
from geoco.editing.operations import EditRequest
from geoco.models.slots import LARGEST_SCALE, SMALLEST_SCALE
from geoco.web.exports import check_frame
from geoco.web.samples import Sample
from geoco.web.sessions import SceneOrFilm, SceneState
from geoco.web.settings import Settings

_EDIT: TypeAdapter[EditRequest] = TypeAdapter(EditRequest)


class SentEdit(RootModel[EditRequest]):
    """An edit as it comes in. Edits are strict: only JSON may give lists for their tuples."""

    @model_validator(mode="before")
    @classmethod
    def _parse_json(cls, value: Any) -> Any:
        if isinstance(value, bytes):  # what a body of another type comes as
            raise PydanticCustomError("edit", "an edit must be sent as application/json")
        try:
            return _EDIT.validate_json(json.dumps(value))
        except ValidationError as error:
            problem = recording.describe_problem(error, "the edit")
            raise PydanticCustomError("edit", "{problem}", {"problem": problem}) from None


Seed = Annotated[
    int, Field(ge=0, lt=2**31, description="Where slots start: another may bind better")
]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(_Answer):
    """What went wrong, and what would be right, in a sentence."""

    detail: str = Field(examples=["there is no slot 9: the scene has slots 0 to 5"])


class ModelAnswer(_Answer):
    """The model that all scenes are encoded with."""

    name: str
    size: int
    slots: int
    trained_scales: tuple[float, float]
    smallest_scale: float = SMALLEST_SCALE
    largest_scale: float = LARGEST_SCALE

    @classmethod
    def from_editor(cls, editor: Editor) -> "ModelAnswer":
        model = editor.model
        return cls(
            name=editor.name,
            size=model.size,
            slots=model.slot_count,
            trained_scales=editor.trained_scales,
        )


class LimitsAnswer(_Answer):
    """What the server takes."""

    upload_bytes: int
    pixels: int
    video_frames: int
    video_pixels: int
    film_frames: int
    idle_seconds: float

    @classmethod
    def from_settings(cls, settings: Settings) -> "LimitsAnswer":
        return cls(
            upload_bytes=settings.upload_bytes,
            pixels=settings.reading.pixels,
            video_frames=settings.reading.frames,
            video_pixels=settings.reading.video_pixels,
            film_frames=settings.film_frames,
            idle_seconds=settings.idle_seconds,
        )


class SessionAnswer(_Answer):
    """A session. Its id is a secret: whoever knows it sees and edits all that is in it."""

    id: str
    model: ModelAnswer
    limits: LimitsAnswer


class SampleAnswer(_Answer):
    """A scene that comes with the server; its picture is at `samples/{id}/picture.png`."""

    id: str
    title: str
    frames: int

    @classmethod
    def from_sample(cls, sample: Sample) -> "SampleAnswer":
        return cls(id=sample.id, title=sample.title, frames=len(sample.frames))


class OpenRequest(BaseModel):
    """Which sample to open."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra={"examples": [{"sample": "scene-1"}]}
    )

    sample: str
    seed: Seed = SEED


class SlotAnswer(_Answer):
    """What a slot holds in a frame: place and scale on the grid [-1, 1], area and box in pixels."""

    index: int
    x: float
    y: float
    scale: float
    area: int
    is_background: bool
    is_present: bool
    box: tuple[int, int, int, int] | None = Field(description="left, top, right, bottom")

    @classmethod
    def from_slot(cls, slot: SlotView) -> "SlotAnswer":
        (x, y), values = slot.position, vars(slot)
        return cls(x=x, y=y, **{key: values[key] for key in values if key != "position"})


class QualityAnswer(_Answer):
    """How well the model redraws what came in, before any edit; of a video its median frame."""

    psnr: float = Field(description="dB")
    is_known: bool | None = Field(
        description="whether it is as good as for the model's own kind; null if not measured"
    )
    doubt: str | None = Field(
        description="what to say of a picture that the model does not know, and what fits better; "
        "only of states that nothing was done to yet"
    )

    @classmethod
    def from_state(cls, state: SceneState) -> "QualityAnswer":
        scene = state.compute_scene()
        quality = scene.quality.median if isinstance(scene, Film) else scene.quality
        doubt = describe_doubt(scene) if state.parent is None else None
        return cls(psnr=quality.psnr, is_known=quality.is_known, doubt=doubt)


class FrameAnswer(_Answer):
    """One frame as the model draws it."""

    number: int
    picture: str = Field(description="PNG in base 64")
    runs: list[int] = Field(
        description="Which slot owns each pixel, row by row: length, slot, length, slot, ..."
    )
    slots: list[SlotAnswer]

    @classmethod
    def from_scene(cls, scene: SceneOrFilm, number: int) -> "FrameAnswer":
        if isinstance(scene, Film):
            image, masks, slots = scene.images[number], scene.masks[number], scene.slots_at(number)
        else:
            image, masks, slots = scene.image, scene.masks, scene.slots
        return cls(
            number=number,
            picture=base64.b64encode(media.encode_png(image)).decode(),
            runs=encode_run_lengths(masks.argmax(0)),
            slots=[SlotAnswer.from_slot(slot) for slot in slots],
        )


class PreviewAnswer(_Answer):
    """One frame after an edit that is not kept."""

    frame: FrameAnswer
    warnings: list[str]

    @classmethod
    def from_scene(cls, scene: Scene, number: int) -> "PreviewAnswer":
        frame = FrameAnswer.from_scene(scene, 0).model_copy(update={"number": number})
        return cls(frame=frame, warnings=list(scene.new_warnings))


class StateAnswer(_Answer):
    """A scene or film after some edits. A state never changes: undo is going back to an old id."""

    id: str
    kind: Literal["picture", "video"]
    size: int
    own_size: int = Field(description="the side of the picture at its own size, larger or the same")
    frames: int
    frames_per_second: float
    background: int = Field(description="the slot that owns most")
    edits: list[EditRequest]
    warnings: list[str] = Field(description="of all edits so far, each once")
    new_warnings: list[str] = Field(description="of the last edit")
    quality: QualityAnswer
    notes: list[str] = Field(description="what was done to the file that came in")
    frame: FrameAnswer

    @classmethod
    def from_state(cls, state: SceneState, number: int) -> "StateAnswer":
        scene = state.compute_scene()
        check_frame(scene, number)
        return cls(
            id=state.id,
            kind="video" if isinstance(scene, Film) else "picture",
            size=scene.editor.model.size,
            own_size=scene.own_side,
            frames=len(scene.decoded),
            frames_per_second=scene.frames_per_second,
            background=scene.decoded.background,
            edits=list(scene.history),
            warnings=list(scene.warnings),
            new_warnings=list(scene.new_warnings),
            quality=QualityAnswer.from_state(state),
            notes=list(state.notes),
            frame=FrameAnswer.from_scene(scene, number),
        )


class FramesAnswer(_Answer):
    """All frames of a state."""

    frames: list[FrameAnswer]


def encode_run_lengths(owner: np.ndarray) -> list[int]:
    """An array of slot numbers as length, slot, length, slot, ..."""
    flat = owner.reshape(-1)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(starts, append=flat.size)
    return np.stack((lengths, flat[starts]), axis=1).reshape(-1).tolist()
