"""A run's folder, which explains itself: what was trained, with what, how it went, what came out.

The configuration, the environment, the metrics as CSV and for TensorBoard, pictures, checkpoints,
and a README that says so. A run that was killed and resumed has the metrics of one that was not.
"""

import io
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from geoco import config as configuration
from geoco.config import Config
from geoco.config.training import Term
from geoco.errors import GeocoError
from geoco.files import PARTIAL, write_whole
from geoco.models import checkpoints

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

CONFIG, ENVIRONMENT, METRICS, README = "config.yaml", "environment.json", "metrics.csv", "README.md"
_SOURCE = Path(__file__).parent
_README = """\
# A training run of GeoCo-SAVi

- `config.yaml`: the whole configuration; `geoco train config.yaml` would do the same again, if the
  run did not begin with another one's checkpoint.
- `environment.json`: the versions, the device and the arguments it was started with, and where it
  took over from another run.
- `metrics.csv`: one row per logged step; `curves.png` draws it.
- `tensorboard/`: the same for `tensorboard --logdir .`
- `pictures/`: what the model saw and drew on the way.
- `checkpoints/`: a folder per saved step with `weights.safetensors`, all that is needed to use the
  model, and `state.safetensors`, what else is needed to go on. `best.json` names the best one.

To go on with it: `geoco train --resume RUN`, where RUN is this folder.
"""


@dataclass(frozen=True)
class Run:
    """A folder that `geoco train` writes to; use `create` or `open`."""

    folder: Path
    config: Config

    @classmethod
    def create(cls, folder: Path, config: Config, origin: Path | None = None) -> "Run":
        """Start a run in a folder that is new or empty, with another run's checkpoint if given."""
        if (folder / CONFIG).exists():
            raise GeocoError(
                f"{folder}: there is a run here already: go on with it by geoco train --resume "
                f"{folder}, or choose another folder"
            )
        run = cls(folder, config)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(entry.name != f"{CONFIG}{PARTIAL}" for entry in folder.iterdir()):
                raise GeocoError(f"{folder}: this folder is not empty: choose a new one for a run")
            if origin is not None:
                checkpoints.branch(origin, run.checkpoints, config)
                run._inherit(checkpoints.find_run(origin))
            # Then what makes it a run: one that is killed here can already be resumed.
            write_whole(folder / CONFIG, config.to_yaml().encode())
            write_whole(folder / README, _README.encode())
            described = json.dumps(environment() | {"began": _began(origin, config)}, indent=1)
            write_whole(folder / ENVIRONMENT, described.encode() + b"\n")
            run.checkpoints.mkdir(exist_ok=True)
            run.pictures.mkdir()
        except OSError as error:
            raise GeocoError(f"{folder}: cannot start a run here: {error.strerror}") from None
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """A run that is there, to resume it or to look at it; changes nothing."""
        file = folder / CONFIG
        try:
            text = file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise GeocoError(
                f"{folder}: there is no run here, it has no {CONFIG}: give a folder that "
                "geoco train has made"
            ) from None
        except OSError as error:
            raise GeocoError(f"{file}: cannot read this file: {error.strerror}") from None
        return cls(folder, configuration.loads(text, str(file)))

    @property
    def checkpoints(self) -> Path:
        return self.folder / checkpoints.FOLDER

    @property
    def pictures(self) -> Path:
        return self.folder / "pictures"

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    @property
    def tensorboard(self) -> Path:
        return self.folder / "tensorboard"

    def _inherit(self, other: Path | None) -> None:
        """Take over what another run logged; on resuming, later steps are forgotten as always."""
        for file in () if other is None else other.glob("*.csv"):
            write_whole(self.folder / file.name, file.read_bytes())


def environment() -> dict[str, Any]:
    """What a run was made with, and nothing of whose machine it was or where its files are.

    `commit` and `dirty` are of the package's own git checkout, and null where it is in none.
    """
    try:
        version = metadata.version("geoco-savi")
    except metadata.PackageNotFoundError:
        version = None
    # An installed copy may lie in a checkout of something else, which does not track it.
    tracked = _git("ls-files", "--error-unmatch", "runs.py") is not None
    changes = _git("status", "--porcelain", "--", ".") if tracked else None
    return {
        "geoco": version,
        "commit": _git("rev-parse", "HEAD") if tracked else None,
        "dirty": None if changes is None else changes != "",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cpus": os.cpu_count(),
        "arguments": [_without_places(argument) for argument in sys.argv[1:]],
    }


def _began(origin: Path | None, config: Config) -> list[dict[str, Any]]:
    """Where a run took over from others, the first of them first, and what was set otherwise."""
    if origin is None:
        return []
    before: list[dict[str, Any]] = []
    try:
        folder = checkpoints.find_run(origin)
        if folder is not None:
            before = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["began"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # a run that does not know
    weights = checkpoints.read_weights(origin)
    differs = configuration.differences(weights.config, config)
    return [*before, {"step": weights.step, "differs": differs}]


class MetricsLog:
    """Rows of numbers by step, in a CSV file and for TensorBoard; continues a file that is there.

    A value that was not measured at some step is nan.
    """

    def __init__(self, path: Path, tensorboard: Path, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._path, self._tensorboard = path, tensorboard
        self._writer: SummaryWriter | None = None
        self._purge: int | None = None
        header = ",".join(("step", *self.columns))
        lines = _lines(path) if path.exists() else []
        if lines and lines[0] != header:
            raise GeocoError(
                f"{path}: its columns are {lines[0]}, but this run would write {header}: start it "
                "in another folder"
            )
        self._rewrite(lines or [header])

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Add the row of `step`. Once this returns, no kill can lose it."""
        assert values.keys() == set(self.columns), f"expected {self.columns}, got {tuple(values)}"
        row = [repr(float(values[name])) for name in self.columns]  # exact, and short
        self._file.write(",".join((str(step), *row)) + "\n")
        self._file.flush()
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(str(self._tensorboard), purge_step=self._purge)
        for name in self.columns:
            if not math.isnan(values[name]):
                self._writer.add_scalar(name, float(values[name]), step)
        self._writer.flush()

    def rewind(self, step: int) -> None:
        """Forget `step` and all after it, which a run resumed from there does again."""
        self.close()
        header, *rows = _lines(self._path)
        done = read_metrics(self._path)["step"]
        self._rewrite([header, *(row for row, at in zip(rows, done, strict=True) if at < step)])
        self._purge = step

    def close(self) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _rewrite(self, lines: Sequence[str]) -> None:
        write_whole(self._path, "".join(f"{line}\n" for line in lines).encode())
        self._file = self._path.open("a", encoding="utf-8", newline="\n")


def read_metrics(path: Path) -> dict[str, list[float]]:
    """The columns of a metrics file, `step` first; a last line that a kill cut off is left out."""
    try:
        lines = _lines(path)
    except OSError as error:
        raise GeocoError(f"{path}: cannot read these metrics: {error.strerror}") from None
    names = lines[0].split(",") if lines else ["step"]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            row = [float(field) for field in line.split(",")]
        except ValueError:
            row = []
        if len(row) != len(names):
            raise GeocoError(
                f"{path}: line {number} is damaged: expected {len(names)} numbers, got '{line}'"
            )
        rows.append(row)
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def curves(path_csv: Path, path_png: Path) -> None:
    """Draw the loss terms, on a logarithmic axis, and the learning rates over the steps.

    Losses are the columns of the terms, `total` and `selector`; rates say `learning_rate`.
    """
    # Here, since training needs it rarely and importing it takes a while.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = read_metrics(path_csv)
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    losses = (*get_args(Term), "total", "selector")
    for name, values in columns.items():
        rate = "learning_rate" in name
        if not (rate or name in losses):
            continue
        # Terms are zero outside their phases, which a logarithmic axis cannot show: a gap.
        heights = [v if math.isfinite(v) and (rate or v > 0) else math.nan for v in values]
        known = sum(map(math.isfinite, heights))
        if known:
            axes = below if rate else above
            marker = "." if known < 30 else None
            axes.plot(columns["step"], heights, marker=marker, linewidth=0.9, label=name)
    if above.lines:
        above.set_yscale("log")
    below.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    below.set_xlabel("step")
    for axes, label in ((above, "loss terms"), (below, "learning rate")):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    write_whole(path_png, buffer.getvalue())


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; one without its line break was cut off by a kill."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]


def _git(*arguments: str) -> str | None:
    """What git says of the package's folder, or None where there is no git or no checkout."""
    command = ["git", "-C", str(_SOURCE), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _without_places(argument: str) -> str:
    """An argument up to the first absolute path, which would tell whose machine it was.

    Of that, only the name of a configuration file stays.
    """
    path = re.search(r"(?:(?<=^-\w)|(?<![\w.]))(?:~\w*|[A-Za-z]:)?[/\\]", argument)
    if path is None:
        return argument
    name = re.search(r"[/\\][^/\\]+\.ya?ml$", argument)
    return f"{argument[: path.start()]}...{name[0] if name else ''}"
