"""A run's folder, which explains itself: what was trained, with what, how it went, what came out.

The configuration, the environment, the metrics as CSV and for TensorBoard, pictures, checkpoints,
and a README that says so.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoco import config as configuration
from geoco.config import Config
from geoco.errors import GeocoError
from geoco.files import PARTIAL, write_whole
from geoco.models import checkpoints

if sys.platform != "win32":
    import fcntl

CONFIG, ENVIRONMENT, METRICS, README = "config.yaml", "environment.json", "metrics.csv", "README.md"
_SOURCE = Path(__file__).parents[1]  # the package
_README = """\
# A training run of GeoCo-SAVi

- `config.yaml`: the whole configuration; `geoco train config.yaml` would do the same again, if the
  run did not begin with another one's checkpoint.
- `environment.json`: the versions, the device and the arguments it was started with, and where it
  took over from another run.
- `metrics.csv`: one row per logged step; `curves.png` draws it.
- `tensorboard/`: the same for `tensorboard --logdir .`; `wandb/`, if there, for Weights & Biases.
- `pictures/`: what the model saw and drew on the way.
- `checkpoints/`: a folder per saved step with `weights.safetensors`, all that is needed to use the
  model, and `state.safetensors`, what else is needed to go on. `best.json` names the best one. The
  last one has `quality.json`, how well the model redraws validation frames.

To go on with it: `geoco train --resume RUN`, where RUN is this folder.
"""


@dataclass(frozen=True)
class StartWeights:
    """Weights that a training begins with, by the name of the model that they are of."""

    name: str
    config: Config  # by which they were trained
    step: int
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Run:
    """A folder that `geoco train` writes to; use `create` or `open`."""

    folder: Path
    config: Config

    @classmethod
    def create(
        cls,
        folder: Path,
        config: Config,
        origin: Path | None = None,
        start: StartWeights | None = None,
    ) -> "Run":
        """Start a run in a folder that is new or empty.

        With another run's checkpoint it begins where that is, with weights at its own step 0.
        """
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
            if start is not None:
                checkpoints.begin(run.checkpoints, config, start.tensors)
            # Then what makes it a run: one that is killed here can already be resumed.
            write_whole(folder / CONFIG, config.to_yaml().encode())
            write_whole(folder / README, _README.encode())
            text = json.dumps(
                describe_environment() | {"began": _describe_origins(origin, start, config)},
                indent=1,
            )
            write_whole(folder / ENVIRONMENT, text.encode() + b"\n")
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

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One training at a time. The lock ends with the process, however that ends."""
        file = self.folder / CONFIG
        try:
            # To write, which nobody does: network file systems lock no other files.
            opened = file.open("r+b")
        except OSError as error:
            raise GeocoError(f"{file}: cannot write here: {error.strerror}") from None
        with opened:
            if sys.platform != "win32":
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise GeocoError(
                        f"{self.folder}: a training of this run is at work already: let it end, or "
                        "stop it first"
                    ) from None
            yield

    def discard(self) -> None:
        """Remove a run that could not begin, with its folder."""
        shutil.rmtree(self.folder)

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
    def validation(self) -> Path:
        return self.folder / "validation.csv"

    @property
    def tensorboard(self) -> Path:
        return self.folder / "tensorboard"

    def _inherit(self, other: Path | None) -> None:
        """Take over what another run logged; on resuming, later steps are forgotten as always."""
        for file in () if other is None else other.glob("*.csv"):
            write_whole(self.folder / file.name, file.read_bytes())


def describe_environment() -> dict[str, Any]:
    """What a run was made with, and nothing of whose machine it was or where its files are.

    `commit` and `dirty` are of the package's own git checkout, and null where it is in none.
    """
    try:
        version = metadata.version("geoco-savi")
    except metadata.PackageNotFoundError:
        version = None
    # An installed copy may lie in a checkout of something else, which does not track it.
    tracked = _git("ls-files", "--error-unmatch", "__init__.py") is not None
    changes = _git("status", "--porcelain", "--", ".") if tracked else None
    return {
        "geoco": version,
        "commit": _git("rev-parse", "HEAD") if tracked else None,
        "dirty": None if changes is None else changes != "",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cpus": os.cpu_count(),
        "arguments": [_hide_places(argument) for argument in sys.argv[1:]],
    }


def _describe_origins(
    origin: Path | None, start: StartWeights | None, config: Config
) -> list[dict[str, Any]]:
    """Where a run took over from others, the first one first, and which settings differed."""
    if start is not None:
        differs = configuration.differences(start.config, config)
        return [{"step": 0, "weights": start.name, "trained": start.step, "differs": differs}]
    if origin is None:
        return []
    before: list[dict[str, Any]] = []
    try:
        folder = checkpoints.find_run(origin)
        if folder is not None:
            before = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["began"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # an older run, which did not write it down
    weights = checkpoints.read_weights(origin)
    differs = configuration.differences(weights.config, config)
    return [*before, {"step": weights.step, "differs": differs}]


def _git(*arguments: str) -> str | None:
    """What git says of the package's folder, or None where there is no git or no checkout."""
    command = ["git", "-C", str(_SOURCE), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _hide_places(argument: str) -> str:
    """An argument up to the first absolute path, which would tell whose machine it was.

    Of that, only the name of a configuration file stays.
    """
    path = re.search(r"(?:(?<=^-\w)|(?<![\w.]))(?:~\w*|[A-Za-z]:)?[/\\]", argument)
    if path is None:
        return argument
    name = re.search(r"[/\\][^/\\]+\.ya?ml$", argument)
    return f"{argument[: path.start()]}...{name[0] if name else ''}"
