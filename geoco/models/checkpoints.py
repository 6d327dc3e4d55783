"""Checkpoints: weights and what else a run needs to go on, whole or absent under their name.

A checkpoint is a folder `step-00001000` that holds `weights.safetensors`, the model, and
`state.safetensors`, the rest of the run. The header of each file says what it is, under the one
key `geoco`: the format, the step, a checksum, and for weights the resolved configuration, so that
a weights file alone is enough to build its model. The state names the checksum of its weights, so
that files of different runs are not mixed. Equal contents are equal bytes.

A folder is written as `step-00001000.partial` and then renamed. One that is in its way is called
`step-00001000.replaced` meanwhile, and counts for as long as its successor is not there. Whatever
moment a kill picks, every checkpoint is whole and none that counted is lost.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from geoco import config as configuration
from geoco.config import Config
from geoco.errors import GeocoError
from geoco.files import (
    PARTIAL,
    REPLACED,
    parse_json,
    recover_folder,
    remove_folder,
    write_folder,
    write_through,
    write_whole,
)
from geoco.models.checkpoint_header import FORMAT, Kind, parse_header
from geoco.models.interface import Model
from geoco.models.tensor_checks import check_finite, check_match

WEIGHTS, STATE, BEST = "weights.safetensors", "state.safetensors", "best.json"
FOLDER = "checkpoints"  # the folder of checkpoints in a run's
REFITTED = "refitted"  # the folder of weights with a selector fitted afterwards
_KEY = "geoco"
_NAME = re.compile(r"step-(\d+)(\.replaced)?")


@dataclass(frozen=True)
class ModelWeights:
    """A model's tensors and the configuration that builds the model they belong to."""

    path: Path
    config: Config
    step: int
    tensors: dict[str, Tensor]
    extra: dict[str, str]


@dataclass(frozen=True)
class TrainingState:
    """What a run needs beside its weights to go on."""

    path: Path
    step: int
    tensors: dict[str, Tensor]
    extra: dict[str, str]


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint that validation likes best, and its value there."""

    path: Path
    step: int
    value: float


def save(
    folder: Path,
    step: int,
    config: Config,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    extra: Mapping[str, str] | None = None,
) -> Path:
    """Write the checkpoint of `step`, in place of one that is there; `extra` goes into both files.

    Once this returns the checkpoint survives a power cut.
    """
    path = _name_folder(folder, step)

    def write(partial: Path) -> None:
        checksum = write_weights(partial / WEIGHTS, step, config, weights, extra)
        common = {"format": FORMAT, "step": step, "extra": dict(extra or {})}
        _write(partial / STATE, state, {**common, "kind": "state", "weights": checksum})

    try:
        sweep(folder)
        write_folder(path, write)
    except OSError as error:
        raise GeocoError(
            f"{path}: cannot write this checkpoint: {error.strerror}: once that is solved, the run "
            "can be resumed from the one before"
        ) from None
    return path


def branch(origin: Path, folder: Path, config: Config) -> Path:
    """Begin another run with the last checkpoint of one: the same but for its configuration."""
    weights, state = read_weights(origin), read_state(origin)
    folder.mkdir()
    return save(folder, weights.step, config, weights.tensors, state.tensors, weights.extra)


def begin(folder: Path, config: Config, weights: Mapping[str, Tensor]) -> Path:
    """Begin a run with weights alone: a checkpoint of step 0, whose state is empty."""
    folder.mkdir()
    return save(folder, 0, config, weights, {})


def write_weights(
    path: Path,
    step: int,
    config: Config,
    weights: Mapping[str, Tensor],
    extra: Mapping[str, str] | None = None,
) -> str:
    """Write weights alone, straight under their name; returns their checksum."""
    common = {"format": FORMAT, "step": step, "extra": dict(extra or {})}
    return _write(path, weights, {**common, "kind": "weights", "config": config.to_yaml()})


def sweep(folder: Path) -> None:
    """Tidy up after a kill: unfinished folders go, and what they were to replace comes back."""
    for suffix in (PARTIAL, REPLACED):
        for path in list(folder.glob(f"step-*{suffix}")):
            recover_folder(path.with_suffix(""))


def prune(folder: Path, keep: int) -> None:
    """Delete all checkpoints but the last `keep` and the best."""
    sweep(folder)
    finished = _list_finished(folder)
    chosen = find_best(folder)
    for step in list(finished)[: max(len(finished) - keep, 0)]:
        if chosen is None or step != chosen.step:
            remove_folder(finished[step])


def mark_best(folder: Path, step: int, value: float) -> None:
    """Note that the checkpoint of `step` is the best so far, which protects it from `prune`."""
    if step not in _list_finished(folder):
        raise GeocoError(
            f"{_name_folder(folder, step)}: only a saved checkpoint can be the best one"
        )
    text = json.dumps({"step": step, "value": value}, allow_nan=False)
    write_whole(folder / BEST, text.encode() + b"\n")


def find_best(folder: Path) -> BestCheckpoint | None:
    """The checkpoint that `mark_best` named last."""
    file = folder / BEST
    try:
        raw = parse_json(file.read_text(encoding="utf-8"))
        step, value = int(raw["step"]), float(raw["value"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise GeocoError(
            f'{file}: damaged, expected {{"step": ..., "value": ...}}: delete it, and the next '
            "validation names the best checkpoint again"
        ) from None
    return BestCheckpoint(_list_finished(folder).get(step, _name_folder(folder, step)), step, value)


def find_latest(folder: Path) -> Path | None:
    """The last finished checkpoint of a folder of checkpoints."""
    return next(reversed(_list_finished(folder).values()), None)


def read_weights(path: Path) -> ModelWeights:
    """Weights from a run (its latest checkpoint, not its best), a checkpoint or a weights file."""
    file = _find_weights_file(path)
    header, tensors = _read(file, "weights")
    config = configuration.loads(header["config"], str(file))
    return ModelWeights(file, config, header["step"], tensors, header["extra"])


def read_state(path: Path) -> TrainingState:
    """The state beside the weights that `path` means, which it must belong to.

    To resume, take both from one checkpoint: `find_latest` of a run may change in between.
    """
    weights = _find_weights_file(path)
    file = weights.with_name(STATE)
    if not file.is_file():
        raise GeocoError(
            f"{file}: there is no such file: weights alone can be used, but training goes on only "
            "from a checkpoint that has both"
        )
    header, tensors = _read(file, "state")
    if header["weights"] != _read_header(weights, "weights").get("checksum"):
        raise GeocoError(
            f"{file}: it does not belong to the {WEIGHTS} beside it: put back the one that was "
            "saved with it, or resume from another checkpoint"
        )
    return TrainingState(file, header["step"], tensors, header["extra"])


def load_into(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Give a model the tensors read from `where`: its names, shapes and types, or nothing changes.

    Floats of another width become those of the model. Weights made for others may lack what was
    trained elsewhere; that is then read from there.
    """
    if isinstance(model, Model):
        tensors = _complete_pretrained(model, tensors, where)
    own = model.state_dict()
    check_match(own, tensors, where)
    check_finite(own, tensors, where)
    model.load_state_dict(dict(tensors))


def _complete_pretrained(
    model: Model, tensors: Mapping[str, Tensor], where: str
) -> Mapping[str, Tensor]:
    part = f"{model.pretrained_part}."
    if model.pretrained_part is None or any(name.startswith(part) for name in tensors):
        return tensors
    try:
        model.read_pretrained()
    except GeocoError as error:
        raise GeocoError(
            f"{where}: these weights come without their encoder's backbone: {error}"
        ) from None
    own = model.state_dict()
    return {**tensors, **{name: own[name] for name in own if name.startswith(part)}}


def find_run(path: Path) -> Path | None:
    """The run whose weights a path means: they lie in RUN/checkpoints/STEP or in RUN/refitted."""
    weights = _find_weights_file(path).absolute()
    if weights.parent.name == REFITTED:
        return weights.parents[1]
    return weights.parents[2] if weights.parts[-3:-2] == (FOLDER,) else None


# -- folders ---------------------------------------------------------------------------------------


def _name_folder(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _list_finished(folder: Path) -> dict[int, Path]:
    """Checkpoints by step, in order."""
    checkpoints = {}
    # In reverse, so that a replaced checkpoint comes before, and gives way to, its successor.
    for path in sorted(folder.glob("step-*"), reverse=True):
        match = _NAME.fullmatch(path.name)
        if match and (path / WEIGHTS).is_file() and (path / STATE).is_file():
            checkpoints[int(match[1])] = path
    return dict(sorted(checkpoints.items()))


def _find_weights_file(path: Path) -> Path:
    """The weights that a path means; see `read_weights`."""
    if not path.exists():
        raise GeocoError(
            f"{path}: there is no such file or folder: give a run, a checkpoint or its {WEIGHTS}"
        )
    if path.is_file():
        return path.with_name(WEIGHTS) if path.name == STATE else path
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    newest = find_latest(path / FOLDER if (path / FOLDER).is_dir() else path)
    if newest is None:
        raise GeocoError(
            f"{path}: there is no finished checkpoint here: give a run that has saved one, a "
            f"checkpoint or its {WEIGHTS}"
        )
    return newest / WEIGHTS


# -- files -----------------------------------------------------------------------------------------


def _write(path: Path, tensors: Mapping[str, Tensor], header: dict[str, Any]) -> str:
    """Write tensors in whatever layout and on whatever device; returns their checksum."""
    # Clones, since safetensors refuses strides and storage that two names share.
    dense = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    checksum = _compute_checksum(dense, header)
    # One key and not several, because safetensors writes several in random order.
    text = json.dumps({**header, "checksum": checksum}, sort_keys=True)
    write_through(path, safetensors.torch.save(dense, {_KEY: text}))
    return checksum


def _read(path: Path, kind: Kind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, whose checksum must be right."""
    header = _read_header(path, kind)
    # Clones, since these are views of the file, which may be gone before they are.
    try:
        tensors = {name: value.clone() for name, value in safetensors.torch.load_file(path).items()}
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RuntimeError):
        raise GeocoError(
            f"{path}: it holds tensors that cannot be read here: use another checkpoint"
        ) from None
    if header.pop("checksum", None) != _compute_checksum(tensors, header):
        raise GeocoError(f"{path}: damaged, its checksum is wrong: use another checkpoint")
    return header, tensors


def _read_header(path: Path, kind: Kind) -> dict[str, Any]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except safetensors.SafetensorError:
        raise GeocoError(
            f"{path}: not a safetensors file, or one that was cut short: expected the {WEIGHTS} of "
            "a checkpoint"
        ) from None
    except OSError as error:
        reason = error.strerror or "there is no such file"
        raise GeocoError(f"{path}: cannot read this file: {reason}") from None
    return parse_header(metadata.get(_KEY, ""), str(path), kind)


def _compute_checksum(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
