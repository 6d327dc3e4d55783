"""Sessions: what one page has opened and done, under a name that nobody can guess.

A state is a scene or film after some edits. It is kept as what it was made from; the tensors that
it needs are only a cache, dropped when memory runs short and made again when they are asked for.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from fastapi import HTTPException
from jaxtyping import UInt8
from torch import Tensor

from geoco.editing.editor import Editor, Film, Scene
from geoco.editing.operations import EditRequest
from geoco.errors import GeocoError
from geoco.web.settings import MEBIBYTE, Settings

SceneOrFilm = Scene | Film
SECRET_BYTES = 24


def draw_id() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


@dataclass(frozen=True, eq=False)
class OpenedFrames:
    """Frames that a history begins with."""

    editor: Editor
    frames: UInt8[np.ndarray, "time height width 3"]
    seed: int
    frames_per_second: float

    def make_scene(self) -> SceneOrFilm:
        """A scene of one frame, a film of several."""
        if len(self.frames) == 1:
            return self.editor.encode(self.frames[0], self.seed)
        return self.editor.encode_video(self.frames, self.seed, self.frames_per_second)

    @property
    def arrays(self) -> Iterator[tuple[int, int]]:
        yield self.frames.ctypes.data, self.frames.nbytes


@dataclass(frozen=True, eq=False)
class ImportedEdits:
    """An edit list that a history begins with."""

    editor: Editor
    text: str
    is_film: bool

    def make_scene(self) -> SceneOrFilm:
        kind = Film if self.is_film else Scene
        return kind.replay(self.text, self.editor)

    @property
    def arrays(self) -> Iterator[tuple[int, int]]:
        yield id(self.text), len(self.text)


@dataclass(eq=False)
class SceneState:
    """A scene or film at one moment of its history; never changed once it is made."""

    start: OpenedFrames | ImportedEdits
    notes: tuple[str, ...] = ()  # what was done to the file that came in
    parent: "SceneState | None" = None
    edit: EditRequest | None = None
    donor: "SceneState | None" = None
    id: str = field(default_factory=draw_id)
    cached: SceneOrFilm | None = None
    count: int = 0  # of edits since the start

    def derive(self, edit: EditRequest, donor: "SceneState | None" = None) -> "SceneState":
        return SceneState(self.start, self.notes, self, edit, donor, count=self.count + 1)

    def compute_scene(self) -> SceneOrFilm:
        """Its scene or film, from the nearest state that is still in memory."""
        steps: list[SceneState] = []
        state = self
        while (scene := state.cached) is None and state.parent is not None:
            steps.append(state)
            state = state.parent
        scene = state.start.make_scene() if scene is None else scene
        for step in reversed(steps):
            scene = apply_edit(scene, step.edit, step.donor)
        self.cached = scene
        return scene


def apply_edit(
    scene: SceneOrFilm, edit: EditRequest | None, donor: SceneState | None
) -> SceneOrFilm:
    """The scene after an edit; its donor goes by a checksum of what it shows, not by a state id."""
    assert edit is not None
    if donor is None:
        return scene.apply(edit)
    source = donor.compute_scene()
    return scene.apply(edit.model_copy(update={"donor": source.key}), {source.key: source})


class Session:
    """The states of one page."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.id = draw_id()
        self.used = now
        self.held = 0  # bytes, when they were counted last
        self._settings = settings
        self._states: OrderedDict[str, SceneState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def find_state(self, name: str) -> SceneState:
        """By its name; 404 if there is none, or no longer."""
        if name not in self._states:
            raise HTTPException(
                404, "this session has no such state: it was dropped, or it never was"
            )
        self._states.move_to_end(name)
        return self._states[name]

    def find_donor(self, edit: EditRequest) -> SceneState | None:
        """The state that an edit takes from, if it does."""
        name = getattr(edit, "donor", None)
        if name is None:
            return None
        if name not in self._states:
            raise HTTPException(
                404, "this session has no such state to take from: open the other scene first"
            )
        return self.find_state(name)

    def derive_state(self, state: SceneState, edit: EditRequest) -> SceneState:
        """A new state, not computed yet."""
        if state.count >= self._settings.edits:
            raise GeocoError(
                f"a scene takes at most {self._settings.edits} edits: export it and go on from that"
            )
        return state.derive(edit, self.find_donor(edit))

    def keep_state(self, state: SceneState) -> None:
        """Remember a state; the oldest are forgotten and the memory is kept within its limit."""
        most = self._settings.session_bytes
        needed = _count_own_bytes(state)
        if needed > most:
            raise GeocoError(
                f"this needs {needed / MEBIBYTE:.1f} MiB, more than the {most / MEBIBYTE:.1f} MiB "
                "of a session: use fewer frames"
            )
        self._states[state.id] = state
        while len(self._states) > self._settings.states:
            self._states.popitem(last=False)
        self.held = self.bytes
        for old in self._list_oldest_first():
            if self.held <= most:
                break
            if old is not state and old.cached is not None:
                old.cached = None
                self.held = self.bytes

    def drop_cached(self, newest_too: bool) -> None:
        """Drop what can be made again; the state used last is the likeliest to be asked for."""
        states = self._list_oldest_first()
        for state in states if newest_too else states[:-1]:
            state.cached = None
        self.held = self.bytes

    @property
    def bytes(self) -> int:
        """Memory that the states hold, each tensor counted once."""
        return _count_bytes(self._states.values())

    def _list_oldest_first(self) -> list[SceneState]:
        """All states that are held: first those that only other states still need."""
        named = list(self._states.values())
        hidden = [state for state in _walk_states(named) if state.id not in self._states]
        return hidden + named


class Sessions:
    """All sessions. Those that nobody uses expire."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self) -> Session:
        """A new session; 503 when there are too many that are in use."""
        self.expire()
        if len(self._sessions) >= self._settings.sessions:
            self._make_room()
        session = Session(self._settings, self._clock())
        self._sessions[session.id] = session
        return session

    def find(self, name: str) -> Session:
        """By its secret name, of 192 random bits; 404 if there is none, or no longer."""
        self.expire()
        if name not in self._sessions:
            raise HTTPException(404, "there is no such session: it expired, or it never was")
        self._sessions.move_to_end(name)
        session = self._sessions[name]
        session.used = self._clock()
        return session

    def close(self, name: str) -> None:
        del self._sessions[self.find(name).id]

    def expire(self) -> None:
        oldest = self._clock() - self._settings.idle_seconds
        for session in list(self._sessions.values()):
            if session.used < oldest:
                del self._sessions[session.id]

    def _make_room(self) -> None:
        """End a session that holds nothing, or the one that was used longest ago."""
        oldest_first = list(self._sessions.values())
        spare = next((session for session in oldest_first if not len(session)), oldest_first[0])
        if len(spare) and spare.used > self._clock() - self._settings.crowded_seconds:
            raise HTTPException(
                503,
                "too many sessions are open: close another page, or try again later",
                headers={"Retry-After": "60"},
            )
        del self._sessions[spare.id]

    def trim(self) -> None:
        """Keep all sessions together within their memory: those used longest ago give way."""
        others = list(self._sessions.values())[:-1]
        for newest_too, session in product((False, True), others):
            if sum(one.held for one in self._sessions.values()) <= self._settings.all_bytes:
                break
            session.drop_cached(newest_too)


def _count_own_bytes(state: SceneState) -> int:
    """What a state needs when all others are dropped."""
    sizes = dict(state.start.arrays)
    sizes.update(_list_arrays(state.cached) if state.cached is not None else ())
    return sum(sizes.values())


def _count_bytes(states: Iterable[SceneState]) -> int:
    sizes: dict[int, int] = {}
    for state in _walk_states(states):
        sizes.update(state.start.arrays)
        if state.cached is not None:
            sizes.update(_list_arrays(state.cached))
    return sum(sizes.values())


def _walk_states(states: Iterable[SceneState]) -> list[SceneState]:
    """States with their ancestors and donors, each once."""
    reached: dict[int, SceneState] = {}
    waiting = list(states)
    while waiting:
        one = waiting.pop()
        if id(one) not in reached:
            reached[id(one)] = one
            waiting += [other for other in (one.parent, one.donor) if other is not None]
    return list(reached.values())


def _list_arrays(scene: Any) -> Iterator[tuple[int, int]]:
    """Address and bytes of all that a scene or film holds."""
    decoded = scene.decoded
    holders = (scene, decoded, decoded.slots, decoded.fields)
    # Copied at once: a thread may be computing more of it.
    for value in [value for holder in holders for value in list(vars(holder).values())]:
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
        elif isinstance(value, np.ndarray):
            yield value.ctypes.data, value.nbytes
    for source in (*scene.donors.values(), *(scene.film or ())[:1]):
        yield from _list_arrays(source)
