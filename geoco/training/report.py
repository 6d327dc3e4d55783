"""What a training says while it works: a bar in a terminal, plain lines elsewhere.

Nothing here touches the training: losses are read, never reset.
"""

import time
from collections import deque
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from geoco.errors import GeocoError

EVERY = 30.0  # seconds between two lines
BAR_EVERY = 1.0  # and between two looks at the bar
_TIMED = 5  # steps that a first estimate is measured on, after one that is not
_REMEMBERED = 20  # updates that the pace is a mean over
_LONG = 86_400.0  # seconds from which on a training is too long for a CPU
_UNSAID = 10.0  # seconds of preparation that need no word
MEASURED = 2.0  # seconds after which a pace is believed


class TrainingReport:
    """Tells how a run goes. What is not `shown` is another process's to tell."""

    def __init__(self, console: Console, shown: bool, steps: int, batch: int, on_cpu: bool) -> None:
        self._console, self._shown = console, shown
        self._steps, self._batch, self._on_cpu = steps, batch, on_cpu
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
        self._told = time.monotonic()
        self._estimated = False

    def __enter__(self) -> "TrainingReport":
        if self._console.is_terminal and self._shown:
            self._bar = Progress(
                BarColumn(20),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def say(self, sentence: str) -> None:
        if self._shown:
            self._console.print(sentence, highlight=False, soft_wrap=True)

    def watch_preparation(self, until: float | None) -> Callable[[int, int], None]:
        """A report for frames that are made before the first step: `(done, total)`.

        It ends the run where `until` will have passed before they are all there.
        """
        first: list[tuple[float, int]] = []  # the clock at the first report, and what was done
        told = time.monotonic()
        announced = False

        def report(done: int, total: int) -> None:
            nonlocal told, announced
            now = time.monotonic()
            if not first:
                first.append((now, done))
            began, before = first[0]
            if done in (before, total) or now - began < MEASURED:
                return
            left = (now - began) / (done - before) * (total - done)
            if until is not None and now + left > until:
                raise GeocoError(
                    f"preparing {total:,} frames takes {format_duration(left)} more, longer than "
                    "--minutes allows: give more, or start with train.feed=stream, which reads "
                    "frames as steps need them"
                )
            if not announced and left > _UNSAID:
                self.say(
                    f"preparing {total:,} frames before the first step: about "
                    f"{format_duration(left)}, measured on the first {done:,}; with "
                    "train.feed=stream a run makes them as steps need them"
                )
                announced, told = True, now
            elif now - told >= EVERY:
                self.say(f"{done:,} of {total:,} frames, {format_duration(left)} left")
                told = now

        return report

    def begin(self, step: int) -> None:
        """Steps begin, after `step` of them."""
        self._told = time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task("", total=self._steps, completed=step)

    def is_due(self, step: int) -> bool:
        """Called after every step: whether somebody should hear of it now."""
        now = time.monotonic()
        if not self._marks:
            self._marks.append((now, step))  # the first step of all is not like the others
        elif not self._estimated:
            self._estimate(now, step)
        return now - self._told >= (EVERY if self._bar is None else BAR_EVERY)

    def update(self, step: int, losses: str) -> None:
        """Tell where the run is."""
        now = self._told = time.monotonic()
        self._marks.append((now, step))
        pace = self._measure_pace()
        how = losses
        if pace is not None:
            left = format_duration(pace * (self._steps - step))
            images = self._batch / pace
            how = f"{losses}  {1000 * pace:.1f} ms/step  {images:.0f} images/s  {left} left"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, description=how)
        else:
            self.say(f"step {step:,} of {self._steps:,}  {how}")

    def _estimate(self, now: float, step: int) -> None:
        """On a CPU, say early how long all steps will take: nobody should wait for weeks."""
        began, first = self._marks[0]
        if not self._on_cpu or step - first < _TIMED:
            return
        self._estimated = True
        pace = (now - began) / (step - first)
        left = pace * (self._steps - step)
        if left < EVERY:
            return
        advice = ""
        if left > _LONG:
            advice = (
                ": too long for a CPU; take a GPU, a shorter schedule (train.budget=0.01) or "
                "configs/smoke.yaml"
            )
        self.say(
            f"{self._steps - step:,} steps at {1000 * pace:.0f} ms, measured on {step - first}: "
            f"about {format_duration(left)} on this CPU{advice}"
        )

    def _measure_pace(self) -> float | None:
        """Seconds per step, lately."""
        (began, first), (now, last) = self._marks[0], self._marks[-1]
        return (now - began) / (last - first) if last > first else None


def format_duration(seconds: float) -> str:
    """As people say it: 40 seconds, 12 minutes, 3.5 hours, 9 days, 6 weeks."""
    for size, name in ((604_800, "weeks"), (86_400, "days"), (3600, "hours"), (60, "minutes")):
        count = seconds / size
        if count >= 2:
            return f"{count:.1f} {name}" if name == "hours" else f"{count:.0f} {name}"
    return f"{seconds:.0f} seconds"
