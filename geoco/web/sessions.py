"""Sessions: what one page has opened and done, under a name that nobody can guess.

A state is a scene or film after some edits. It is kept as what it was made from; the tensors that
it needs are only a cache, dropped when memory runs short and made again when they are asked for.
"""

import secrets
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from fastapi import HTTPException
from jaxtyping import UInt8

from geoco.editing.editor import Editor, Film, Scene
from geoco.editing.operations import EditRequest
from geoco.editing.originals import Originals
from geoco.errors import GeocoError
from geoco.web import memory
from geoco.web.settings import MEBIBYTE, Settings
from geoco.web.work_queue import AHEAD, refuse_busy

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
    originals: Originals | None = None
    _shared: "_SharedScene" = field(default_factory=lambda: _SharedScene())

    def make_scene(self) -> SceneOrFilm:
        """A scene of one frame, a film of several; the same as long as somebody keeps it."""
        return self._shared.find_or_make(self._encode)

    def _encode(self) -> SceneOrFilm:
        if len(self.frames) == 1:
            return self.editor.encode(self.frames[0], self.seed).with_originals(self.originals)
        film = self.editor.encode_video(self.frames, self.seed, self.frames_per_second)
        return film if self.originals is None else film.with_originals(self.originals)

    @property
    def arrays(self) -> Iterator[tuple[int, int]]:
        yield self.frames.ctypes.data, self.frames.nbytes
        if self.originals is not None:
            yield id(self.originals), self.originals.nbytes


class _SharedScene:
    """A scene that sessions share. Each that keeps it counts it as its own; this one does not."""

    def __init__(self) -> None:
        self._find: Callable[[], SceneOrFilm | None] = lambda: None
        self._making = threading.Lock()  # whoever comes meanwhile waits, and has the same

    def find_or_make(self, make: Callable[[], SceneOrFilm]) -> SceneOrFilm:
        with self._making:
            scene = self._find()
            if scene is None:
                scene = make()
                self._find = weakref.ref(scene)
            return scene


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

    @property
    def sources(self) -> "list[SceneState]":
        """The states that it is made from."""
        return [state for state in (self.parent, self.donor) if state is not None]

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
        self.largest = 0  # bytes of the largest state so far
        self.working = 0  # requests that are not answered yet
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
        needed = memory.count_own_bytes(state)
        if needed > most:
            state.cached = None
            raise GeocoError(
                f"this needs {needed / MEBIBYTE:.1f} MiB, more than the {most / MEBIBYTE:.1f} MiB "
                "of a session: use fewer frames"
            )
        self.largest = max(self.largest, needed)
        self._states[state.id] = state
        while len(self._states) > self._settings.states:
            self._states.popitem(last=False)
        self.limit_memory(state)

    def limit_memory(self, newest: SceneState | None = None) -> None:
        """Count what the states hold now, and drop what is too much, but not of the newest."""
        self.held = self.bytes
        for old in self._list_oldest_first():
            if self.held <= self._settings.session_bytes:
                break
            if old is not newest and old.cached is not None:
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
        return memory.count_bytes(self._states.values())

    def _list_oldest_first(self) -> list[SceneState]:
        """All states that are held: first those that only other states still need."""
        named = list(self._states.values())
        hidden = [state for state in memory.walk_states(named) if state.id not in self._states]
        return hidden + named


class Sessions:
    """All sessions. Those that nobody uses expire; one that is being worked for never does."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._incoming = 0  # bytes of requests that are not answered yet
        self._reserved = 0  # bytes that work needs while it is done, beside what it makes

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

    @contextmanager
    def use(self, name: str) -> Iterator[Session]:
        """The session of this name, which stays while a request is being answered."""
        session = self.find(name)
        session.working += 1
        try:
            yield session
        finally:
            session.working -= 1
            session.used = self._clock()

    def close(self, name: str) -> None:
        del self._sessions[self.find(name).id]

    def expire(self) -> None:
        oldest = self._clock() - self._settings.idle_seconds
        for session in list(self._sessions.values()):
            if session.used < oldest and not session.working:
                del self._sessions[session.id]

    def _make_room(self) -> None:
        """End the session that was used longest ago, an empty one sooner than others."""
        idle = [session for session in self._sessions.values() if not session.working]
        left = {session.id: self._count_seconds_left(session) for session in idle}
        first = min(left, key=left.__getitem__, default=None)
        if first is None or left[first] > 0:
            wait = left[first] if first is not None else self._settings.empty_seconds
            raise refuse_busy(
                "too many sessions are open: close another page, or try again later", wait
            )
        del self._sessions[first]

    def _count_seconds_left(self, session: Session) -> float:
        """Until a session that nobody works for gives way to another."""
        settings = self._settings
        kept = settings.crowded_seconds if len(session) else settings.empty_seconds
        return session.used + kept - self._clock()

    # -- memory ------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Keep all sessions within the memory that is left: those used longest ago give way."""
        # What workers are making now is counted when it is finished: room for a state each, and
        # for the one that it is made from.
        largest = max((session.largest for session in self._sessions.values()), default=0)
        making = 2 * (self._settings.workers + AHEAD) * largest
        most = self._settings.all_bytes - self._incoming - self._reserved - making
        others = list(self._sessions.values())[:-1]
        for newest_too, session in product((False, True), others):
            if sum(one.held for one in self._sessions.values()) <= most:
                break
            session.drop_cached(newest_too)

    def reserve(self, count: int) -> None:
        """Count bytes that work needs from now on; fewer than zero are free again."""
        self._reserved += count
        self.trim()

    def receive(self, count: int) -> None:
        """Count bytes of a request that came in; 503 when too many wait to be answered."""
        if self._incoming + count > self._settings.incoming_bytes:
            raise refuse_busy("too much is being uploaded at once: try again in a few seconds", 5)
        self._incoming += count
        self.trim()

    def forget(self, count: int) -> None:
        """Bytes of a request that is answered now."""
        self._incoming -= count
