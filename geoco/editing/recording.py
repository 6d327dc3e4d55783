"""Edit lists: what was done to a scene, as JSON that can be replayed.

A list holds the frames themselves and those of every scene that was taken from, so that it can be
replayed anywhere; the model is named, not held.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geoco import media
from geoco.editing.operations import EditRequest
from geoco.errors import GeocoError
from geoco.media import FASTEST, SLOWEST, Limits

FORMAT: Literal[1] = 1
MOST_PIXELS = 2**25  # of all frames of a list: 32 frames of 1024 x 1024
Kind = Literal["Scene", "Film"]
SEEDS = 2**63


@runtime_checkable
class Encoder(Protocol):
    """What a replay needs of an editor: it makes scenes and films."""

    name: str

    def encode(self, picture: Any, seed: int) -> Any: ...

    def encode_video(self, video: Any, seed: int, frames_per_second: float) -> Any: ...


@runtime_checkable
class Recorded(Protocol):
    """What is recorded of a scene or a film."""

    @property
    def kind(self) -> Kind: ...
    @property
    def editor(self) -> Any: ...
    @property
    def frames(self) -> np.ndarray: ...
    @property
    def seed(self) -> int: ...
    @property
    def history(self) -> tuple[EditRequest, ...]: ...
    @property
    def donors(self) -> Mapping[str, Any]: ...
    @property
    def frames_per_second(self) -> float: ...
    @property
    def film(self) -> tuple[Any, int] | None: ...
    @property
    def own_side(self) -> int: ...


class EditList(BaseModel):
    """All that a replay needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    model: str
    kind: Kind
    seed: int = Field(ge=0, lt=SEEDS)
    frames_per_second: float = Field(ge=SLOWEST, le=FASTEST, allow_inf_nan=False)
    frames: tuple[str, ...]  # PNG in base 64, at the model's size
    film: "EditList | None" = None  # of which a scene is the frame with this number
    number: int = 0
    edits: tuple[EditRequest, ...]
    donors: dict[str, "EditList"]


def to_json(edited: Recorded) -> str:
    return _build_list(edited).model_dump_json(indent=1, exclude_defaults=False)


def compute_key(edited: Recorded) -> str:
    """Twelve digits of a checksum over frames, seed and edits."""
    digest = hashlib.sha256(edited.frames.tobytes())
    digest.update(str(edited.frames.shape).encode())
    digest.update(json.dumps([edited.seed, *_dump_history(edited)]).encode())
    if edited.film is not None:
        digest.update(f"{edited.film[0].key} {edited.film[1]}".encode())
    return digest.hexdigest()[:12]


def get_key(donor: Any) -> str:
    """The name of a scene or film that an edit takes from."""
    if not isinstance(donor, Recorded):
        raise GeocoError(
            f"a donor must be a scene or a film, not {type(donor).__name__}: encode it first"
        )
    return compute_key(donor)


def check_seed(seed: Any) -> int:
    """A seed that generators take and edit lists hold."""
    if not isinstance(seed, Integral) or not 0 <= int(seed) < SEEDS:
        raise GeocoError(f"seed {seed}: expected a whole number from 0 to {SEEDS - 1}")
    return int(seed)


def read_model_name(text: str) -> str:
    """The name of the model that an edit list was made with."""
    return _parse(text).model


def read_kind(text: str) -> Kind:
    """Whether an edit list is a scene's or a film's."""
    return _parse(text).kind


def replay(kind: Kind | None, text: str, editor: Encoder, source: Any = None) -> Any:
    """The scene or film that an edit list describes; `kind` says which it must be, if any.

    A list has frames of the model's size; the file that they are from, `source`, has them larger.
    """
    edits = _parse(text)
    if kind is not None and edits.kind != kind:
        raise GeocoError(
            f"this is the edit list of a {edits.kind.lower()}: replay it with {edits.kind}.replay"
        )
    return _rebuild(edits, editor, limit_frames(edits), source)


def describe_problem(error: ValidationError, what: str) -> str:
    """The first problem of a record, as one sentence."""
    problem = error.errors()[0]
    place = ".".join(str(part)[:60] for part in problem["loc"])
    if problem["type"] == "json_invalid":
        return f"{what} {problem['msg']:.300}"
    where = f"{what} {place}:" if place else f"{what.removesuffix(':')}:"
    return f"{where} {problem['msg']:.300}, got {problem.get('input')!r:.60}"


def walk_lists(edits: EditList) -> Iterator[EditList]:
    """A list with those of its donors and of the film that it is a frame of."""
    yield edits
    for other in (*edits.donors.values(), *([edits.film] if edits.film else [])):
        yield from walk_lists(other)


def limit_frames(edits: EditList) -> Limits:
    """How large each frame of a list may be, so that all of them are not too much together."""
    count = sum(len(one.frames) for one in walk_lists(edits))
    return Limits(pixels=MOST_PIXELS // max(count, 1))


def _build_list(edited: Recorded) -> EditList:
    return EditList(
        model=edited.editor.name,
        kind=edited.kind,
        seed=edited.seed,
        frames_per_second=edited.frames_per_second,
        frames=()
        if edited.film
        else tuple(base64.b64encode(media.encode_png(frame)).decode() for frame in edited.frames),
        film=_build_list(edited.film[0]) if edited.film else None,
        number=edited.film[1] if edited.film else 0,
        edits=edited.history,
        donors={key: _build_list(donor) for key, donor in edited.donors.items()},
    )


def _dump_history(edited: Recorded) -> list[Any]:
    return [edit.model_dump(mode="json") for edit in edited.history]


def _parse(text: str) -> EditList:
    try:
        return EditList.model_validate_json(text)
    except ValidationError as error:
        raise GeocoError(describe_problem(error, "the edit list is not right:")) from None


def _rebuild(edits: EditList, editor: Encoder, limits: Limits, source: Any = None) -> Any:
    scene = _encode_start(edits, editor, limits, source)
    donors = {key: _rebuild(donor, editor, limits) for key, donor in edits.donors.items()}
    for edit in edits.edits:
        scene = scene.apply(edit, donors)
    return scene


def _encode_start(edits: EditList, editor: Encoder, limits: Limits, source: Any) -> Any:
    """The scene or film of a list before its edits."""
    if edits.film is not None:
        film = _rebuild(edits.film, editor, limits, source)
        if edits.film.kind == "Film" and edits.number < len(film.frames):
            return film.frame(edits.number)
    if len(edits.frames) != 1 and (edits.kind == "Scene" or not edits.frames):
        raise GeocoError("the edit list is not right: a scene has one frame, a film at least one")
    # One by one, as they are asked for.
    frames = (_decode_frame(text, limits) for text in edits.frames)
    if edits.kind == "Film":
        brought = frames if source is None else source
        start = editor.encode_video(brought, edits.seed, edits.frames_per_second)
    else:
        start = editor.encode(next(frames) if source is None else source, edits.seed)
    if source is not None:
        recorded = np.stack([_decode_frame(text, limits) for text in edits.frames])
        if not np.array_equal(start.frames, recorded):
            raise GeocoError(
                f"{source}: does not show the frames of this edit list: name what was edited"
            )
    return start


def _decode_frame(text: str, limits: Limits) -> np.ndarray:
    try:
        return media.decode_image(base64.b64decode(text, validate=True), ("PNG",), limits)
    except GeocoError as error:
        raise GeocoError(f"the edit list is not right: {error}") from None
    except media.DAMAGE:
        raise GeocoError("the edit list is not right: a frame is not a PNG in base 64") from None
