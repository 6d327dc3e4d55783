"""Edit pictures and videos through their slots: move, resize, swap, remove, transplant.

    editor = Editor.load("geoco-solids")
    scene = editor.encode("frame.png")
    edited = scene.move(2, dx=6, dy=0).resize(1, 1.5)
    edited.save("out.png")

Scenes and films are values: an edit returns a new one, and undo is keeping the old one. A scene is
a film of one frame, and both take the same edits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from pydantic import ValidationError

from geoco import drawing, media
from geoco.editing import recording, scripts
from geoco.editing.apply import apply_edit
from geoco.editing.decoded import DecodedFrames, SlotView
from geoco.editing.operations import (
    Duplicate,
    EditRequest,
    Interpolate,
    Move,
    MoveTo,
    Remove,
    Resize,
    ResizeTo,
    SetBackground,
    Swap,
    Transplant,
    convert_numpy,
    flatten_keys,
    list_donors,
    refuse_index,
)
from geoco.editing.originals import fit_picture, fit_video
from geoco.editing.origins import Provenance
from geoco.editing.own_size import OwnSize, Size
from geoco.errors import GeocoError
from geoco.metrics.rgb import psnr
from geoco.models import pretrained
from geoco.models.reconstruction_quality import MOST_PSNR, FilmQuality, Quality
from geoco.models.tracking import bind_videos, knows_videos

SEED = 42
Slot = int | np.integer  # as NumPy finds them, too
FrameRange = tuple[Slot, Slot]
Editable = TypeVar("Editable", bound="_EditableFrames")


class Editor:
    """A model that encodes pictures and videos into slots that can be edited."""

    def __init__(self, loaded: pretrained.LoadedModel) -> None:
        self.name, self.model = loaded.name, loaded.model
        self.trained_scales, self.quality_reference = loaded.trained_scales, loaded.quality
        self.device = next(loaded.model.parameters()).device
        self.knows_videos = knows_videos(loaded.config)

    @classmethod
    def load(cls, name: str | Path, device: pretrained.Device = "cpu") -> "Editor":
        """By shipped or published name, run, file of weights or Hub id."""
        return cls(pretrained.load(name, device))

    @classmethod
    def load_recorded(cls, text: str, device: pretrained.Device = "cpu") -> "Editor":
        """The model that an edit list names. It is not fetched: a list may come from anyone."""
        name = recording.read_model_name(text)
        try:
            return cls(pretrained.load(name, device, fetch=False))
        except GeocoError as error:
            raise GeocoError(
                f"{error} (the edit list names this model: give another with --model, or as the "
                "editor; one of the Hub is fetched only if you name it)"
            ) from None

    def encode(self, picture: Any, seed: int = SEED) -> "Scene":
        """Bind slots to a picture: a path, a PIL image, an array or a tensor.

        Slots start at random places; another seed may bind them better.
        """
        seed = recording.check_seed(seed)
        frames, originals = fit_picture(picture, self.model.size)
        decoded, quality = self.bind_and_decode(frames, seed)
        return Scene(self, frames, seed, decoded, psnr=quality).with_originals(originals)

    def encode_video(self, video: Any, seed: int = SEED, frames_per_second: float = 12) -> "Film":
        """Bind slots to a video and track them: a file, a folder of images or frames.

        How depends on the model, see `geoco.models.tracking`.
        """
        seed = recording.check_seed(seed)
        media.check_rate(frames_per_second)
        frames, originals = fit_video(video, self.model.size)
        decoded, quality = self.bind_and_decode(frames, seed)
        film = Film(self, frames, seed, decoded, frames_per_second=frames_per_second, psnr=quality)
        return film.with_originals(originals)

    @torch.no_grad()
    def bind_and_decode(
        self, frames: UInt8[np.ndarray, "time height width 3"], seed: int
    ) -> tuple[DecodedFrames, tuple[float, ...]]:
        """What the slots of frames decode to, and each frame's PSNR."""
        generator = torch.Generator().manual_seed(seed)
        starts = self.model.draw_positions(1, generator)
        video = media.to_tensor(frames, self.device)
        bound = bind_videos(self.model, video[None], starts, self.knows_videos)
        decoded = DecodedFrames.decode(self.model, bound.slots[0], bound.attention[0])
        return decoded, tuple(psnr(decoded.image, video).clamp(max=MOST_PSNR).tolist())


@dataclass(frozen=True, eq=False, repr=False)
class _EditableFrames(OwnSize):
    """Frames with the slots bound to them, and the edits that were made since."""

    kind: ClassVar[recording.Kind]

    editor: Editor
    frames: UInt8[np.ndarray, "time height width 3"]  # as they were encoded
    seed: int
    decoded: DecodedFrames
    history: tuple[EditRequest, ...] = ()
    donors: Mapping[str, "_EditableFrames"] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # of all edits so far, each once
    new_warnings: tuple[str, ...] = ()  # of the last edit
    frames_per_second: float = 12
    film: "tuple[Film, int] | None" = None  # of which this is a frame
    psnr: tuple[float, ...] = ()  # of every frame as it was redrawn before any edit
    provenance: Provenance | None = None  # `pixels`, where it is not simply what was encoded

    def __repr__(self) -> str:
        time, slots = self.decoded.slots.scale.shape
        return (
            f"{type(self).__name__}(model={self.editor.name!r}, frames={time}, slots={slots}, "
            f"edits={len(self.history)})"
        )

    # -- edits -------------------------------------------------------------------------------------

    def apply(
        self: Editable, edit: EditRequest, donors: Mapping[str, "_EditableFrames"] | None = None
    ) -> Editable:
        """Carry out a recorded edit; scenes that it takes from are found in `donors` by name."""
        known = {**self.donors, **(donors or {})}
        decoded = {name: donor.decoded for name, donor in known.items()}
        result = apply_edit(self.decoded, edit, decoded, self.editor.trained_scales)
        used = {name: known[name] for name in (*self.donors, *list_donors(edit))}
        return replace(
            self,
            decoded=result.decoded,
            history=(*self.history, edit),
            donors=used,
            warnings=tuple(dict.fromkeys((*self.warnings, *result.warnings))),
            new_warnings=result.warnings,
            provenance=self.follow_pixels(edit, known),
        )

    def move(
        self: Editable,
        slot: Slot,
        dx: float = 0,
        dy: float = 0,
        frames: FrameRange | None = None,
        keys: Mapping[Slot, tuple[float, float]] | None = None,
    ) -> Editable:
        """By pixels, x to the right and y down; `keys` are shifts at key frames."""
        flat = flatten_keys(keys)
        return self._request_edit(Move, slot=slot, dx=dx, dy=dy, frames=frames, keys=flat)

    def move_to(
        self: Editable, slot: Slot, x: float, y: float, frames: FrameRange | None = None
    ) -> Editable:
        """To a place of the grid [-1, 1]."""
        return self._request_edit(MoveTo, slot=slot, x=x, y=y, frames=frames)

    def resize(
        self: Editable,
        slot: Slot,
        factor: float = 1,
        frames: FrameRange | None = None,
        keys: Mapping[Slot, float] | None = None,
    ) -> Editable:
        """By a factor about the slot's position; `keys` are factors at key frames."""
        flat = flatten_keys(keys)
        return self._request_edit(Resize, slot=slot, factor=factor, frames=frames, keys=flat)

    def resize_to(
        self: Editable, slot: Slot, scale: float, frames: FrameRange | None = None
    ) -> Editable:
        """To a scale, in units of the grid."""
        return self._request_edit(ResizeTo, slot=slot, scale=scale, frames=frames)

    @refuse_index
    def transplant(
        self: Editable,
        slot: Slot,
        donor: "_EditableFrames",
        donor_slot: Slot,
        frames: FrameRange | None = None,
    ) -> Editable:
        """Give a slot the appearance of a slot of another scene; place and size stay."""
        return self._request_edit(
            Transplant, donor, slot=slot, donor_slot=donor_slot, frames=frames
        )

    def swap(self: Editable, slot: Slot, other: Slot, frames: FrameRange | None = None) -> Editable:
        """Exchange two slots' appearances."""
        return self._request_edit(Swap, slot=slot, other=other, frames=frames)

    def duplicate(
        self: Editable,
        slot: Slot,
        into: Slot | None = None,
        dx: float = 0,
        dy: float = 0,
        frames: FrameRange | None = None,
    ) -> Editable:
        """Draw a slot once more, shifted by pixels, with a slot that is empty."""
        return self._request_edit(Duplicate, slot=slot, into=into, dx=dx, dy=dy, frames=frames)

    def set_background(
        self: Editable, donor: "_EditableFrames", frames: FrameRange | None = None
    ) -> Editable:
        """Take the background of another scene."""
        return self._request_edit(SetBackground, donor, frames=frames)

    def remove(self: Editable, slot: Slot, frames: FrameRange | None = None) -> Editable:
        """Take a slot away."""
        return self._request_edit(Remove, slot=slot, frames=frames)

    def interpolate(self: Editable, other: "_EditableFrames", share: float) -> Editable:
        """A share of the way from this state to another of the same slots."""
        return self._request_edit(Interpolate, other, share=share)

    def _request_edit(
        self: Editable, kind: Any, source: "_EditableFrames | None" = None, /, **values: Any
    ) -> Editable:
        if "donor" in kind.model_fields:
            values["donor"] = recording.get_key(source)
        try:
            edit = kind(**convert_numpy(values))
        except ValidationError as error:
            raise GeocoError(recording.describe_problem(error, kind.__name__.lower())) from None
        return self.apply(edit, None if source is None else {source.key: source})

    # -- what there is to see ----------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        """A name that says which frames were encoded and how they were edited since."""
        return recording.compute_key(self)

    def to_json(self) -> str:
        """Frames, edits and the scenes taken from: all that `replay` needs."""
        return recording.to_json(self)

    def to_python(self, picture: str = "frame.png") -> str:
        """The edits as lines of Python."""
        return scripts.to_python(self, picture)

    def save_python(self, path: str | Path, picture: str | Path | None = None) -> None:
        """Write a script that runs, and its files; `picture` is that which was edited, if any."""
        scripts.save_python(self, Path(path), None if picture is None else Path(picture))

    @classmethod
    def replay(
        cls: type[Editable], text: str, editor: Editor | None = None, source: Any = None
    ) -> Editable:
        """Do again what `to_json` recorded; with the file, `source`, also at its own size."""
        editor = editor or Editor.load_recorded(text)
        replayed = recording.replay(cls.kind, text, editor, source)
        assert isinstance(replayed, cls)
        return replayed


class Scene(_EditableFrames):
    """One picture."""

    kind = "Scene"

    @cached_property
    def slots(self) -> tuple[SlotView, ...]:
        """What each slot holds."""
        return self.decoded.view_slots(0)

    @property
    def quality(self) -> Quality:
        """How well the model redraws the picture: whether it is of a kind that it knows."""
        return Quality(self.psnr[0], self.editor.quality_reference)

    @cached_property
    def image(self) -> UInt8[np.ndarray, "height width 3"]:
        """The picture as the model draws it, with all edits."""
        return media.to_bytes(self.decoded.image)[0]

    @cached_property
    def masks(self) -> Bool[np.ndarray, "slot height width"]:
        """Which slot owns each pixel."""
        return self.decoded.masks[0].cpu().numpy()

    @cached_property
    def alpha(self) -> Float32[np.ndarray, "slot height width"]:
        """How much of each pixel each slot owns."""
        return self.decoded.alpha[0].float().cpu().numpy()

    @property
    def source(self) -> UInt8[np.ndarray, "height width 3"]:
        """The picture that was encoded, at the model's size."""
        return self.frames[0]

    def render(self, size: Size = "original") -> UInt8[np.ndarray, "side side 3"]:
        """The picture with all edits, at the model's size or, of its own pixels, at its own."""
        return next(self.render_frames(size))

    def _repr_png_(self) -> bytes:  # for notebooks
        return media.encode_png(self.draw_outlines())

    def draw_outlines(self, zoom: int = 4) -> UInt8[np.ndarray, "_height _width 3"]:
        """The picture, enlarged, with numbered outlines of the objects."""
        return drawing.draw_outlines(self.image, self.labels, zoom)

    def compare(self, edited: "Scene", zoom: int = 4) -> UInt8[np.ndarray, "_height _width 3"]:
        """Before and after, side by side, with outlines."""
        return drawing.compose_sheet([[self.draw_outlines(zoom), edited.draw_outlines(zoom)]])

    @cached_property
    def labels(self) -> UInt8[np.ndarray, "height width"]:
        """The number of the slot that owns each pixel, counted from 1; 0 for the background."""
        labels = self.masks.argmax(0).astype(np.uint8) + 1
        labels[self.masks[self.decoded.background]] = 0
        return labels

    def animate(self, goal: "Scene", frames: int = 24) -> list[UInt8[np.ndarray, "h w 3"]]:
        """Pictures on the way from this state to another, both ends included."""
        if frames < 2:
            raise GeocoError(f"an animation needs at least two frames, got {frames}")
        return [self.interpolate(goal, k / (frames - 1)).image for k in range(frames)]


class Film(_EditableFrames):
    """A video. Edits are for all frames, or for a range, or follow key frames."""

    kind = "Film"

    def __len__(self) -> int:
        return len(self.decoded)

    @cached_property
    def images(self) -> UInt8[np.ndarray, "time height width 3"]:
        """The frames as the model draws them, with all edits."""
        return media.to_bytes(self.decoded.image)

    @cached_property
    def masks(self) -> Bool[np.ndarray, "time slot height width"]:
        return self.decoded.masks.cpu().numpy()

    @property
    def quality(self) -> FilmQuality:
        """How well the model redraws the frames: the median one and the worst."""
        return FilmQuality.from_psnr(self.psnr, self.editor.quality_reference)

    def slots_at(self, frame: int) -> tuple[SlotView, ...]:
        """What each slot holds in a frame."""
        self._check_frame(frame)
        return self.decoded.view_slots(frame)

    @property
    def slots(self) -> NoReturn:
        """Refused: what slots hold differs by frame."""
        raise GeocoError("a film has no `slots`: write film.slots_at(frame), or film.frame(number)")

    def frame(self, number: int) -> Scene:
        """One frame as a scene of its own, as edited so far; it can give its slots to others."""
        self._check_frame(number)
        return Scene(
            self.editor,
            self.frames[number : number + 1],
            self.seed,
            self.decoded.frame(number),
            film=(self, number),
            psnr=self.psnr[number : number + 1],
            provenance=self.pixels.frame(number),
        )

    render = OwnSize.render_frames

    def _repr_html_(self) -> str:  # for notebooks
        return scripts.to_html(self.images, self.frames_per_second, repr(self))

    def _check_frame(self, frame: int) -> None:
        if not 0 <= frame < len(self):
            raise GeocoError(f"there is no frame {frame}: frames go from 0 to {len(self) - 1}")
