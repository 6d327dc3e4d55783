"""A campaign of faults: many small cases of several kinds, seeded, each with one of few outcomes.

A case is done when the work succeeds, refused when it ends in a `GeocoError` (or its HTTP answer),
and failed otherwise: another exception (a traceback for the user), more than 10 seconds, a message
of several lines, or work that was lost, which the case finds out by itself.
"""

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from geoco.errors import GeocoError

SECONDS = 10  # that a case may take
MEBIBYTE = 2**20
LONGEST = 4000  # characters of a sentence

Case = Callable[[random.Random], Any]  # runs one


@dataclass(frozen=True)
class Kind:
    """Cases alike; `prepare` makes what they share in a folder of their own."""

    name: str
    prepare: Callable[[Path], Case]
    share: float = 1  # of the cases, against the other kinds


@dataclass
class Tally:
    """What became of the cases of a kind."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    grown: float = 0.0  # MiB of the process at its largest, above what it had before
    failures: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return sum(self.outcomes.values())


class LostError(AssertionError):
    """Work that was finished is gone or changed."""


def run_campaign(kinds: list[Kind], cases: int, seed: int, folder: Path) -> list[Tally]:
    """So many cases in all, spread over the kinds by their shares."""
    total = sum(kind.share for kind in kinds)
    return [
        run_kind(kind, max(1, round(cases * kind.share / total)), seed, folder) for kind in kinds
    ]


def run_kind(kind: Kind, cases: int, seed: int, folder: Path) -> Tally:
    """Each case has a seed of its own, so that it can be run again alone."""
    place = folder / kind.name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    tally = Tally(kind.name)
    case = kind.prepare(place)
    before = _start_peak()
    for number in range(cases):
        began = time.perf_counter()
        outcome, message = run_case(case, random.Random(f"{seed} {kind.name} {number}"))
        took = time.perf_counter() - began
        if took > SECONDS:
            outcome, message = "hang", f"{took:.1f} s: {message}"
        tally.slowest = max(tally.slowest, took)
        tally.outcomes[outcome] += 1
        if outcome not in ("done", "refused"):
            tally.failures.append(f"{kind.name}, case {number} of seed {seed}: {message}")
    tally.grown = max(0.0, _read_peak() - before)
    return tally


def run_case(case: Case, draw: random.Random) -> tuple[str, str]:
    """The outcome of a case, and what it says."""
    try:
        with _limit_time():
            case(draw)
    except (GeocoError, HTTPException) as error:
        text = str(error.detail if isinstance(error, HTTPException) else error)
        if "\n" in text or not text.strip() or len(text) > LONGEST:
            return "traceback", f"not one sentence: {text[:300]!r}"
        return "refused", text
    except LostError as error:
        return "lost", str(error)
    except TimeoutError as error:
        return "hang", str(error)
    except MemoryError as error:
        return "memory", str(error)
    except Exception as error:  # whatever a user would see as a traceback
        return "traceback", f"{type(error).__name__}: {error!s:.300}"
    return "done", ""


def format_table(tallies: list[Tally]) -> str:
    """The summary, as Markdown."""
    rows = [
        "| Cases of | cases | done | refused | tracebacks | hangs | lost | slowest | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in tallies:
        counts = [one.outcomes[name] for name in ("done", "refused", "traceback", "hang", "lost")]
        columns = " | ".join(f"{count:,}" for count in (one.cases, *counts))
        rows.append(f"| {one.name} | {columns} | {one.slowest:.2f} s | +{one.grown:.0f} MiB |")
    names = ("done", "refused", "traceback", "hang", "lost")
    sums = [sum(one.outcomes[name] for one in tallies) for name in names]
    columns = " | ".join(f"{count:,}" for count in (sum(one.cases for one in tallies), *sums))
    slowest, grown = (max(getattr(one, name) for one in tallies) for name in ("slowest", "grown"))
    rows.append(f"| all | {columns} | {slowest:.2f} s | +{grown:.0f} MiB |")
    return "\n".join(rows)


@contextmanager
def _limit_time() -> Iterator[None]:
    """By an alarm, which the main thread alone can have."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS + 1)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _start_peak() -> float:
    """MiB of the process now; its peak is counted from here on, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _read_peak()


def _read_peak() -> float:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024
