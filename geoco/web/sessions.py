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

Edited = Scene | Film
SECRET_BYTES = 24


def new_id() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


@dataclass(frozen=True, eq=False)
class Opened:
    """Frames that a history begins with."""

    editor: Editor
    frames: UInt8[np.ndarray, "time height width 3"]
    seed: int
    frames_per_second: float

    def make(self) -> Edited:
        """A scene of one frame, a film of several."""
        if len(self.frames) == 1:
            return self.editor.encode(self.frames[0], self.seed)
        return self.editor.encode_video(self.frames, self.seed, self.frames_per_second)

    @property
    def arrays(self) -> Iterator[tuple[int, int]]:
        yield self.frames.ctypes.data, self.frames.nbytes


@dataclass(frozen=True, eq=False)
class Imported:
    """An edit list that a history begins with."""

    editor: Editor
    text: str
    is_film: bool

    def make(self) -> Edited:
        kind = Film if self.is_film else Scene
        return kind.replay(self.text, self.editor)

    @property
    def arrays(self) -> Iterator[tuple[int, int]]:
        yield id(self.text), len(self.text)


@dataclass(eq=False)
class State:
    """A scene or film at one moment of its history; never changed once it is made."""

    start: Opened | Imported
    notes: tuple[str, ...] = ()  # what was done to the file that came in
    parent: "State | None" = None
    edit: EditRequest | None = None
    donor: "State | None" = None
    id: str = field(default_factory=new_id)
    made: Edited | None = None
    count: int = 0  # of edits since the start

    def after(self, edit: EditRequest, donor: "State | None" = None) -> "State":
        return State(self.start, self.notes, self, edit, donor, count=self.count + 1)

    def scene(self) -> Edited:
        """What it shows, from the nearest state that is still in memory."""
        steps: list[State] = []
        state = self
        while (made := state.made) is None and state.parent is not None:
            steps.append(state)
            state = state.parent
        made = state.start.make() if made is None else made
        for step in reversed(steps):
            made = applied(made, step.edit, step.donor)
        self.made = made
        return made


def applied(made: Edited, edit: EditRequest | None, donor: State | None) -> Edited:
    """An edit carried out; scenes know their donors by what they show, not by our names."""
    assert edit is not None
    if donor is None:
        return made.apply(edit)
    giver = donor.scene()
    return made.apply(edit.model_copy(update={"donor": giver.key}), {giver.key: giver})


class Session:
    """The states of one page."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.id = new_id()
        self.used = now
        self.held = 0  # bytes, when they were counted last
        self._settings = settings
        self._states: OrderedDict[str, State] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def state(self, name: str) -> State:
        """By its name; 404 if there is none, or no longer."""
        if name not in self._states:
            raise HTTPException(
                404, "this session has no such state: it was dropped, or it never was"
            )
        self._states.move_to_end(name)
        return self._states[name]

    def donor(self, edit: EditRequest) -> State | None:
        """The state that an edit takes from, if it does."""
        name = getattr(edit, "donor", None)
        if name is None:
            return None
        if name not in self._states:
            raise HTTPException(
                404, "this session has no such state to take from: open the other scene first"
            )
        return self.state(name)

    def edited(self, state: State, edit: EditRequest) -> State:
        """A new state, not computed yet."""
        if state.count >= self._settings.edits:
            raise GeocoError(
                f"a scene takes at most {self._settings.edits} edits: export it and go on from that"
            )
        return state.after(edit, self.donor(edit))

    def keep(self, state: State) -> None:
        """Remember a state; the oldest are forgotten and the memory is kept within its limit."""
        most = self._settings.session_bytes
        needed = _alone(state)
        if needed > most:
            raise GeocoError(
                f"this needs {needed / MEBIBYTE:.1f} MiB, more than the {most / MEBIBYTE:.1f} MiB "
                "of a session: use fewer frames"
            )
        self._states[state.id] = state
        while len(self._states) > self._settings.states:
            self._states.popitem(last=False)
        self.held = self.bytes
        for old in self._oldest_first():
            if self.held <= most:
                break
            if old is not state and old.made is not None:
                old.made = None
                self.held = self.bytes

    def forget(self, newest_too: bool) -> None:
        """Drop what can be made again; the state used last is the likeliest to be asked for."""
        states = self._oldest_first()
        for state in states if newest_too else states[:-1]:
            state.made = None
        self.held = self.bytes

    @property
    def bytes(self) -> int:
        """Memory that the states hold, each tensor counted once."""
        return _total(self._states.values())

    def _oldest_first(self) -> list[State]:
        """All states that are held: first those that only other states still need."""
        named = list(self._states.values())
        hidden = [state for state in _reached(named) if state.id not in self._states]
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
            session.forget(newest_too)


def _alone(state: State) -> int:
    """What a state needs when all others are dropped."""
    found = dict(state.start.arrays)
    found.update(_arrays(state.made) if state.made is not None else ())
    return sum(found.values())


def _total(states: Iterable[State]) -> int:
    found: dict[int, int] = {}
    for state in _reached(states):
        found.update(state.start.arrays)
        if state.made is not None:
            found.update(_arrays(state.made))
    return sum(found.values())


def _reached(states: Iterable[State]) -> list[State]:
    """States with their ancestors and donors, each once."""
    found: dict[int, State] = {}
    waiting = list(states)
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            found[id(one)] = one
            waiting += [other for other in (one.parent, one.donor) if other is not None]
    return list(found.values())


def _arrays(made: Any) -> Iterator[tuple[int, int]]:
    """Address and bytes of all that a scene or film holds."""
    decoded = made.decoded
    holders = (made, decoded, decoded.slots, decoded.fields)
    # Copied at once: a thread may be computing more of it.
    for value in [value for holder in holders for value in list(vars(holder).values())]:
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
        elif isinstance(value, np.ndarray):
            yield value.ctypes.data, value.nbytes
    for giver in (*made.donors.values(), *(made.film or ())[:1]):
        yield from _arrays(giver)
