"""What the routes share: the editor, the sessions, and who may compute when."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

from geoco.editing.editor import Editor
from geoco.web.drawing_room import DrawingRoom
from geoco.web.samples import Sample, SampleMaker
from geoco.web.schema import StateAnswer
from geoco.web.sessions import OpenedFrames, SceneState, Session, Sessions
from geoco.web.settings import Settings
from geoco.web.work_queue import WorkQueue

Result = TypeVar("Result")


@dataclass(eq=False)
class Service:
    """An editor that is served."""

    editor: Editor
    settings: Settings
    sessions: Sessions
    queue: WorkQueue
    make_samples: SampleMaker
    room: DrawingRoom
    _samples: dict[str, Sample] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _starts: "WeakValueDictionary[tuple[str, int], OpenedFrames]" = field(
        default_factory=WeakValueDictionary
    )

    async def load_samples(self) -> dict[str, Sample]:
        """Made when they are asked for first."""
        async with self._making:
            if not self._samples:
                samples = await self.queue.run(self.make_samples)
                self._samples = {sample.id: sample for sample in samples}
        return self._samples

    def share_start(self, sample: Sample, seed: int) -> OpenedFrames:
        """One for all who look at the same sample: to encode it is the most of opening it."""
        key = sample.id, seed
        start = self._starts.get(key)
        if start is None:
            start = OpenedFrames(self.editor, sample.frames, seed, sample.frames_per_second)
            self._starts[key] = start
        return start

    async def compute(
        self, session: Session, state: SceneState, work: Callable[[], Result]
    ) -> Result:
        """Do work that needs a state, remember the state and keep the memory in its limits."""

        def finish(result: Result | None) -> None:
            self._keep_state(session, None if result is None else state)

        return await self.queue.run(work, finish)

    async def draw(
        self, session: Session, state: SceneState, needed: int, work: Callable[[], Result]
    ) -> Result:
        """The same for work that needs so much memory beside: it has its turn, then a thread."""
        await self.room.take(needed)
        begun = False

        def finish(result: Result | None) -> None:
            self.room.give_back(needed)
            self._keep_state(session, None if result is None else state)

        try:
            self.queue.check()
            begun = True
            return await self.queue.run(work, finish)
        finally:
            if not begun:
                self.room.give_back(needed)

    async def answer_state(
        self, session: Session, state: SceneState, frame: int = 0
    ) -> StateAnswer:
        return await self.compute(session, state, lambda: StateAnswer.from_state(state, frame))

    async def answer_start(
        self, session: Session, make_state: Callable[[], SceneState]
    ) -> StateAnswer:
        """The first state of a history, whose file is read in the same turn of a worker."""

        def work() -> tuple[SceneState, StateAnswer]:
            state = make_state()
            return state, StateAnswer.from_state(state, 0)

        def finish(result: tuple[SceneState, StateAnswer] | None) -> None:
            self._keep_state(session, None if result is None else result[0])

        return (await self.queue.run(work, finish))[1]

    def _keep_state(self, session: Session, state: SceneState | None) -> None:
        """Whatever was computed counts: for an answer, a preview, a file, or in vain."""
        try:
            if state is None:
                session.limit_memory()
            else:
                session.keep_state(state)
        finally:
            self.sessions.trim()
