"""Scenes and films at the size in which they were brought, one frame at a time."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from jaxtyping import UInt8

from geoco import media
from geoco.editing.decoded import DecodedFrames
from geoco.editing.layers import FrameLayers, cut_layers
from geoco.editing.operations import EditRequest, list_donors
from geoco.editing.originals import Originals
from geoco.editing.origins import Provenance, Source, SourceSlot
from geoco.editing.rendering import compose_frame
from geoco.errors import GeocoError

# Planes of 32 bits that drawing has at once at its largest, measured: of a source's layers, of the
# work on a slot of one look, and of each further look.
LAYER_PLANES, LAYER_PLANES_OF_SLOT = 6, 2
WORK_PLANES, WORK_PLANES_OF_SLOT, WORK_PLANES_OF_LOOK = 30, 2, 10

Size = Literal["model", "original"]
Unedited = TypeVar("Unedited", bound="OwnSize")
Decode = Callable[[UInt8[np.ndarray, "time height width 3"], int], DecodedFrames]


class OwnSize:
    """What scenes and films know of the size in which they were brought."""

    # Of the dataclass that has these abilities.
    editor: Any
    frames: UInt8[np.ndarray, "time height width 3"]
    seed: int
    decoded: DecodedFrames
    provenance: Provenance | None
    frames_per_second: float

    @cached_property
    def pixels(self) -> Provenance:
        """Where all slots have their pixels from."""
        if self.provenance is not None:
            return self.provenance
        source = Source(self.frames, self.seed, None)
        return Provenance.begin(source, self.decoded.present.shape[1])

    @property
    def own_side(self) -> int:
        """The side of the pictures of `size="original"`."""
        return self.pixels.source.side

    @property
    def drawing_bytes(self) -> int:
        """Memory that `render_frames("original")` takes at most, beside what is kept anyway."""
        return _count_drawing_bytes(self.pixels, self.decoded)

    def with_originals(self: Unedited, originals: Originals | None) -> Unedited:
        """The same frames before any edit, of which these larger pictures are known."""
        source = Source(self.frames, self.seed, originals)
        known = Provenance.begin(source, self.decoded.present.shape[1])
        changed: Any = replace(cast(Any, self), provenance=known)
        return changed

    def follow_pixels(self, edit: EditRequest, donors: "Mapping[str, OwnSize]") -> Provenance:
        """Where slots have their pixels from after an edit."""
        given = {
            name: (donors[name].pixels, donors[name].decoded.background)
            for name in list_donors(edit)
        }
        return self.pixels.follow(edit, self.decoded, given)

    def save(self, path: str | Path, size: Size = "model") -> None:
        """Write a picture as .png or .jpg, a video as .mp4, .gif or a folder of frames."""
        media.save_frames(Path(path), self.render_frames(size), self.frames_per_second)

    def render_frames(self, size: Size = "original") -> Iterator[UInt8[np.ndarray, "side side 3"]]:
        """The frames with all edits, one at a time, at the model's size or their own."""
        if size not in get_args(Size):
            raise GeocoError(f"size must be 'model' or 'original', not {size!r:.40}")
        if size == "model":
            return iter(media.to_bytes(self.decoded.image))

        def decode(frames: UInt8[np.ndarray, "time height width 3"], seed: int) -> DecodedFrames:
            decoded: DecodedFrames = self.editor.bind_and_decode(frames, seed)[0]
            return decoded

        return render_frames(decode, self.decoded, self.pixels)


def render_frames(
    decode: Decode, edited: DecodedFrames, provenance: Provenance
) -> Iterator[UInt8[np.ndarray, "side side 3"]]:
    """Edited frames at the size of their source; `decode` binds a source's slots once more."""
    cutter = _Cutter(decode)
    for time, slots in enumerate(provenance.frames):
        own = cutter.cut(SourceSlot(provenance.source, provenance.first + time, 0))
        yield media.to_bytes(compose_frame(own, edited.frame(time), slots, cutter.cut))
        cutter.forget_unused()


def _count_drawing_bytes(provenance: Provenance, decoded: DecodedFrames) -> int:
    slots = decoded.present.shape[1]
    used: set[tuple[Source, int]] = set()
    sources: set[Source] = set()
    most = 0
    for time, origins in enumerate(provenance.frames):
        before, used = used, {(provenance.source, provenance.first + time)}
        for origin in origins:
            places = (origin.place, *(slot for _, slot in origin.looks))
            used.update((slot.source, slot.frame) for slot in places)
        kept = used | before  # those of the frame before go when this one is drawn
        layers = (LAYER_PLANES + LAYER_PLANES_OF_SLOT * slots) * sum(
            source.side**2 for source, _ in kept
        )
        looks = max(len(origin.looks) for origin in origins)
        work = WORK_PLANES + WORK_PLANES_OF_SLOT * slots + WORK_PLANES_OF_LOOK * looks
        most = max(most, layers + work * max(source.side for source, _ in kept) ** 2)
        sources.update(source for source, _ in used)
    # Sources are bound and decoded once more, and that takes as much again while it is done.
    frames = sum(len(source.frames) for source in sources)
    return 4 * most + 2 * frames * _count_tensor_bytes(decoded) // len(decoded)


def _count_tensor_bytes(decoded: DecodedFrames) -> int:
    decoded.background  # noqa: B018 - with all that is computed for it
    holders = (decoded, decoded.slots, decoded.fields)
    values = [value for holder in holders for value in list(vars(holder).values())]
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


class _Cutter:
    """Takes the frames of sources apart when they are asked for; frames come in their order."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._readers: dict[Source, _Reader] = {}
        self._kept: dict[tuple[Source, int], FrameLayers] = {}
        self._used: set[tuple[Source, int]] = set()

    def cut(self, where: SourceSlot) -> FrameLayers:
        """The layers of the frame that a slot is of."""
        key = where.source, where.frame
        self._used.add(key)
        if key not in self._kept:
            if where.source not in self._readers:
                self._readers[where.source] = _Reader(where.source, self._decode)
            self._kept[key] = self._readers[where.source].read(where.frame)
        return self._kept[key]

    def forget_unused(self) -> None:
        """Keep only what the frame that was drawn last needed: a donor's frame may serve all."""
        self._kept = {key: layers for key, layers in self._kept.items() if key in self._used}
        self._used.clear()


class _Reader:
    """The own frames of a source, with the slots that were bound to it."""

    def __init__(self, source: Source, decode: Decode) -> None:
        self._source = source
        self._decoded = decode(source.frames, source.seed)
        self._next = 0
        self._frames = source.iterate()

    def read(self, frame: int) -> FrameLayers:
        if frame < self._next:
            self._next, self._frames = 0, self._source.iterate()
        while True:
            picture = next(self._frames)
            self._next += 1
            if self._next > frame:
                break
        device = self._decoded.present.device
        return cut_layers(
            torch.tensor(picture, device=device),
            torch.tensor(self._source.frames[frame], device=device),
            self._decoded.frame(frame),
            self._decoded.background,
        )
