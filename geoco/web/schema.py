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
from geoco.editing.decoded import SlotView
from geoco.editing.editor import SEED, Editor, Film, Scene
from geoco.editing.operations import EditRequest
from geoco.models.slots import LARGEST_SCALE, SMALLEST_SCALE
from geoco.web.samples import Sample
from geoco.web.sessions import Edited, State
from geoco.web.settings import Settings

_EDIT: TypeAdapter[EditRequest] = TypeAdapter(EditRequest)


class SentEdit(RootModel[EditRequest]):
    """An edit as it comes in. Edits are strict: only JSON may give lists for their tuples."""

    @model_validator(mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        if isinstance(value, bytes):  # what a body of another type comes as
            raise PydanticCustomError("edit", "an edit must be sent as application/json")
        try:
            return _EDIT.validate_json(json.dumps(value))
        except ValidationError as error:
            said = recording.describe_problem(error, "the edit")
            raise PydanticCustomError("edit", "{said}", {"said": said}) from None


Seed = Annotated[
    int, Field(ge=0, lt=2**31, description="Where slots start: another may bind better")
]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(_Answer):
    """What went wrong, and what would be right, in a sentence."""

    detail: str = Field(examples=["there is no slot 9: the scene has slots 0 to 5"])


class ModelAnswer(_Answer):
    """The model that all scenes are taken apart with."""

    name: str
    size: int
    slots: int
    trained_scales: tuple[float, float]
    smallest_scale: float = SMALLEST_SCALE
    largest_scale: float = LARGEST_SCALE

    @classmethod
    def of(cls, editor: Editor) -> "ModelAnswer":
        model = editor.model
        return cls(
            name=editor.name,
            size=model.size,
            slots=model.settings.slots.count,
            trained_scales=editor.trained_scales,
        )


class LimitsAnswer(_Answer):
    """What the server takes."""

    upload_bytes: int
    pixels: int
    video_frames: int
    film_frames: int
    idle_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> "LimitsAnswer":
        return cls(**{name: getattr(settings, name) for name in cls.model_fields})


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
    def of(cls, sample: Sample) -> "SampleAnswer":
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
    def of(cls, slot: SlotView) -> "SlotAnswer":
        (x, y), values = slot.position, vars(slot)
        return cls(x=x, y=y, **{key: values[key] for key in values if key != "position"})


class FrameAnswer(_Answer):
    """One frame as the model draws it."""

    number: int
    picture: str = Field(description="PNG in base 64")
    runs: list[int] = Field(
        description="Which slot owns each pixel, row by row: length, slot, length, slot, ..."
    )
    slots: list[SlotAnswer]

    @classmethod
    def of(cls, made: Edited, number: int) -> "FrameAnswer":
        if isinstance(made, Film):
            image, masks, slots = made.images[number], made.masks[number], made.slots_at(number)
        else:
            image, masks, slots = made.image, made.masks, made.slots
        return cls(
            number=number,
            picture=base64.b64encode(media.encode_png(image)).decode(),
            runs=run_lengths(masks.argmax(0)),
            slots=[SlotAnswer.of(slot) for slot in slots],
        )


class PreviewAnswer(_Answer):
    """One frame after an edit that is not kept."""

    frame: FrameAnswer
    warnings: list[str]

    @classmethod
    def of(cls, made: Scene, number: int) -> "PreviewAnswer":
        frame = FrameAnswer.of(made, 0).model_copy(update={"number": number})
        return cls(frame=frame, warnings=list(made.warnings))


class StateAnswer(_Answer):
    """A scene or film after some edits. A state never changes: undo is going back to an old id."""

    id: str
    kind: Literal["picture", "video"]
    size: int
    frames: int
    frames_per_second: float
    background: int = Field(description="the slot that owns most")
    edits: list[EditRequest]
    warnings: list[str] = Field(description="of the last edit")
    notes: list[str] = Field(description="what was done to the file that came in")
    frame: FrameAnswer

    @classmethod
    def of(cls, state: State, number: int) -> "StateAnswer":
        made = state.scene()
        return cls(
            id=state.id,
            kind="video" if isinstance(made, Film) else "picture",
            size=made.editor.model.size,
            frames=len(made.decoded),
            frames_per_second=made.frames_per_second,
            background=made.decoded.background,
            edits=list(made.history),
            warnings=list(made.warnings),
            notes=list(state.notes),
            frame=FrameAnswer.of(made, number),
        )


class FramesAnswer(_Answer):
    """All frames of a state."""

    frames: list[FrameAnswer]


def run_lengths(owner: np.ndarray) -> list[int]:
    """An array of slot numbers as length, slot, length, slot, ..."""
    flat = owner.reshape(-1)
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    lengths = np.diff(starts, append=flat.size)
    return np.stack((lengths, flat[starts]), axis=1).reshape(-1).tolist()
