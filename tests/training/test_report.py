"""What a training says, by a clock that the test moves."""

import io

import pytest
from rich.console import Console

from geoco.errors import GeocoError
from geoco.training import report
from geoco.training.report import TrainingReport, format_duration


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(report, "time", clock)
    return clock


def make_report(steps: int = 1000, shown: bool = True, on_cpu: bool = True) -> TrainingReport:
    return TrainingReport(Console(file=io.StringIO(), width=80), shown, steps, 8, on_cpu)


def read(told: TrainingReport) -> list[str]:
    file = told._console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


def train(told: TrainingReport, clock: Clock, steps: int, each: float) -> None:
    """Steps of `each` seconds, as the loop reports them."""
    with told:
        told.begin(0)
        for step in range(1, steps + 1):
            clock.now += each
            if told.is_due(step):
                told.update(step, "phase: rec 1.00e-02")


def test_lines_outside_a_terminal(clock: Clock) -> None:
    """Every half a minute, with the pace and what is left of 1,000 steps."""
    told = make_report()
    train(told, clock, 100, 1.0)
    lines = read(told)
    assert lines[0] == "994 steps at 1000 ms, measured on 5: about 17 minutes on this CPU"
    assert lines[1] == (
        "step 30 of 1,000  phase: rec 1.00e-02  1000.0 ms/step  8 images/s  16 minutes left"
    )
    assert [line.split()[1] for line in lines[1:]] == ["30", "60", "90"]


def test_a_training_of_weeks_says_so_at_the_start(clock: Clock) -> None:
    told = make_report(steps=70_000)
    train(told, clock, 6, 40.0)
    told_early = [line for line in read(told) if "this CPU" in line]
    assert len(told_early) == 1
    assert "69,994 steps at 40000 ms" in told_early[0]
    assert "about 5 weeks on this CPU: too long for a CPU; take a GPU" in told_early[0]


def test_what_needs_no_word(clock: Clock) -> None:
    quick, other, gpu = make_report(20), make_report(shown=False), make_report(on_cpu=False)
    train(quick, clock, 20, 0.1)
    train(other, clock, 100, 1.0)
    train(gpu, clock, 6, 4.0)
    assert read(quick) == read(other) == read(gpu) == []


def test_preparation_is_measured_on_its_first_pieces(clock: Clock) -> None:
    """A second for 100 frames after a start that took longer: 2,920 seconds for 292,000."""
    told = make_report()
    watch = told.watch_preparation(None)
    clock.now += 60  # what comes before the first piece is no part of the pace
    for done in range(100, 6100, 100):
        watch(done, 292_000)
        clock.now += 1
    lines = read(told)
    assert lines[0].startswith(
        "preparing 292,000 frames before the first step: about 49 minutes, measured on the first "
        "300; with train.feed=stream"
    )
    assert lines[1] == "3,300 of 292,000 frames, 48 minutes left"
    assert len(lines) == 2


def test_a_preparation_that_takes_too_long_ends_at_once(clock: Clock) -> None:
    told = make_report()
    watch = told.watch_preparation(clock.now + 600)
    watch(100, 292_000)
    clock.now += 1
    watch(200, 292_000)  # too early to tell
    clock.now += 1
    with pytest.raises(GeocoError, match="takes 49 minutes more, longer than --minutes allows"):
        watch(300, 292_000)
    in_time = told.watch_preparation(clock.now + 600)
    in_time(100, 1000)
    clock.now += 5
    in_time(200, 1000)
    assert read(told)[-1].startswith("preparing 1,000 frames before the first step: about 40 sec")


def test_durations_as_people_say_them() -> None:
    hour, day = 3600, 86_400
    for seconds, text in (
        (45.4, "45 seconds"),
        (119, "119 seconds"),
        (150, "2 minutes"),
        (2.5 * hour, "2.5 hours"),
        (3 * day, "3 days"),
        (21 * day, "3 weeks"),
    ):
        assert format_duration(seconds) == text
