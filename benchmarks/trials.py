"""Several trainings side by side on one machine, each evaluated, and one table of all.

    python benchmarks/trials.py trials.yaml --out runs/trials --minutes 9    # again to go on

A trial is a name, a configuration and its differences. One line each in the file:

    own: geoco-tight.yaml train.budget=0.08
    wide: geoco-tight.yaml train.budget=0.08 train.own_width=0.08

Each is a run of `geoco train` and then of `geoco eval` in a process of its own, whose words are in
OUT/NAME.log. What a time limit, a kill or an error stopped goes on where it was with the same
command. With `--mps` CUDA's multi-process service lets processes share the GPU at the same time and
not by turns.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from geoco import config as configuration
from geoco.config.yaml_text import parse_mapping, read_text
from geoco.errors import GeocoError
from geoco.reporting.cells import format_number, look_up
from geoco.reporting.measures import count_digits, read_measure
from geoco.reporting.results import Values, read_results
from geoco.reporting.runs import count_steps

COLUMNS = (
    "PSNR ↑", "E_p→ĉ ↓", "E_p→c* ↓", "E_ĉ→c* ↓", "O_attn ↓", "F_pos ↑", "F_scl ↑", "F_app ↑",
    "E_Δp ↓", "D_app ↓", "β_r → 1", "β_A → 2",
)  # fmt: skip
OTHERS = {
    "FG-ARI ↑": ("factual", "segmentation", "foreground_ari", "value"),
    "mIoU ↑": ("factual", "segmentation", "mean_iou", "value"),
    "R² ↑": ("factual", "calibration", "linear"),
}
TABLES = "factual,editing"
COMMAND = (sys.executable, "-m", "geoco.cli")
LAST_SECONDS = 20.0  # a training is asked to stop so long before its process would be


@dataclass(frozen=True)
class Trial:
    """One training by its configuration."""

    name: str
    config: str
    overrides: tuple[str, ...]


def read_trials(file: Path) -> list[Trial]:
    """The trials of a file, in its order."""
    trials = []
    for name, text in parse_mapping(read_text(file), str(file)).items():
        config, *overrides = shlex.split(str(text)) or [""]
        if not config.endswith(".yaml") or not all("=" in each for each in overrides):
            raise GeocoError(
                f"{file}: {name}: expected a configuration and differences, as in "
                f"'geoco.yaml train.budget=0.1', got '{text}'"
            )
        trials.append(Trial(name, config, tuple(overrides)))
    return trials


class Campaign:
    """Trials under one folder, until a time of the monotonic clock."""

    def __init__(
        self, out: Path, device: str, windows: int, until: float | None, options: Sequence[str]
    ) -> None:
        self.out, self.device, self.windows, self.until = out, device, windows, until
        self.options = tuple(options)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def advance(self, trial: Trial) -> str:
        """Train and evaluate, or go on with that; what came of it in one sentence."""
        folder = self.out / trial.name
        if self._is_evaluated(folder):
            return f"{trial.name}: done before"
        left = self._count_seconds_left()
        if left is not None and left < LAST_SECONDS:
            return f"{trial.name}: not begun, no time is left"
        begins = not (folder / "config.yaml").exists()
        source = [trial.config, *trial.overrides, "--out"] if begins else ["--resume"]
        limit = [] if left is None else ["--minutes", f"{(left - LAST_SECONDS) / 60:.2f}"]
        began = time.monotonic()
        if self._run(trial, "train", *source, str(folder), *limit, *self.options):
            return f"{trial.name}: its training failed, see {self._log(trial)}"
        if not self._is_trained(folder):
            return f"{trial.name}: stopped, its time is up"
        spent = time.monotonic() - began
        choice = ("--windows", str(self.windows), "--spread") if self.windows else ()
        evaluation = ("eval", str(folder), "--name", trial.name, "--device", self.device, *choice)
        if self._run(trial, *evaluation, "--tables", TABLES, "--no-figures"):
            return f"{trial.name}: trained, not evaluated: see {self._log(trial)}"
        return f"{trial.name}: done, trained for {spent:.0f} s of this call"

    def stop(self) -> None:
        """End what runs; a training leaves a checkpoint."""
        with self._lock:
            self._ended = True
            for process in self._running:
                process.send_signal(signal.SIGINT)

    def _run(self, trial: Trial, *arguments: str) -> bool:
        """Whether a command failed, was stopped, or ran out of time."""
        left = self._count_seconds_left()
        with self._log(trial).open("ab") as log:
            with self._lock:
                if self._ended:
                    return True
                # Of a session of its own, so that Ctrl+C reaches it once, by `stop`.
                process = subprocess.Popen(
                    [*COMMAND, *arguments], stdout=log, stderr=log, start_new_session=True
                )
                self._running.add(process)
            try:
                return process.wait(left) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                return True
            finally:
                process.wait()
                with self._lock:
                    self._running.discard(process)

    def _log(self, trial: Trial) -> Path:
        return self.out / f"{trial.name}.log"

    def _count_seconds_left(self) -> float | None:
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    @staticmethod
    def _is_trained(folder: Path) -> bool:
        config = configuration.load(folder / "config.yaml")
        return (folder / "checkpoints" / f"step-{count_steps(config):08d}").exists()

    @staticmethod
    def _is_evaluated(folder: Path) -> bool:
        inner = folder / "evaluation"
        return all((inner / f"{table}.json").exists() for table in TABLES.split(","))


@contextmanager
def share_gpu(folder: Path) -> Iterator[None]:
    """CUDA's multi-process service for all that is started in here."""
    places = {f"CUDA_MPS_{kind}_DIRECTORY": str(folder / kind.lower()) for kind in ("PIPE", "LOG")}
    for place in places.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    os.environ.update(places)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)


def format_results(trials: Sequence[Trial], out: Path) -> str:
    """A row of Markdown for each trial that was evaluated."""
    names = (*COLUMNS, *OTHERS)
    rows = [f"| Trial | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for trial in trials:
        folder = out / trial.name / "evaluation"
        if not (folder / "editing.json").exists():
            continue
        _, results = read_results(folder, tuple(TABLES.split(",")))
        rows.append(f"| {trial.name} | {' | '.join(read_row(results))} |")
    return "\n".join(rows)


def read_row(results: Mapping[str, Values]) -> list[str]:
    """The cells of a row."""
    main = [format_number(read_measure(results, name), count_digits(name)) for name in COLUMNS]
    return main + [format_number(look_up(results, *path), 3) for path in OTHERS.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/trials"))
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="then stop; the same command goes on")
    parser.add_argument("--windows", type=int, default=130, help="spread over the split; 0: all")
    parser.add_argument("--device", default="cpu", help="of the evaluation")
    parser.add_argument("--mps", action="store_true", help="start CUDA's multi-process service")
    parser.add_argument("options", nargs="*", help="behind --: options of every geoco train")
    arguments = parser.parse_args()
    began = time.monotonic()
    trials = read_trials(arguments.trials)
    arguments.out.mkdir(parents=True, exist_ok=True)
    until = None if arguments.minutes is None else began + 60 * arguments.minutes
    campaign = Campaign(
        arguments.out, arguments.device, arguments.windows, until, arguments.options
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        share_gpu(arguments.out.resolve() / "mps") if arguments.mps else nullcontext(),
        ThreadPoolExecutor(arguments.at_once) as pool,
    ):
        try:
            for line in pool.map(campaign.advance, trials):
                print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)
        finally:
            campaign.stop()
    print(f"\n{format_results(trials, arguments.out)}", flush=True)


if __name__ == "__main__":
    main()
