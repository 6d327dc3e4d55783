"""Publishing: a trained model as a folder that explains itself and can be checked anywhere.

The folder holds `weights.safetensors` with the scales that objects had in training,
`first-windows.safetensors` with what the model makes of its first validation windows,
`quality.json` with how well it redraws validation frames, the model card `README.md`, `config.yaml`
and pictures. It is written beside its place and then renamed.
`verify` computes the first windows again; `push_to_hub` puts the folder on the Hub.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from geoco import config as configuration
from geoco import evaluation
from geoco.config import Config, DinoEncoderConfig, SolidsConfig, Split, StoreConfig
from geoco.data import open_dataset
from geoco.errors import GeocoError
from geoco.evaluation import TABLES, SlotModel, adapter
from geoco.evaluation.figures import FOLDER as FIGURES
from geoco.evaluation.run import describe_population
from geoco.files import PARTIAL, REPLACED, recover_folder, write_folder, write_through
from geoco.models import checkpoints, hub, pretrained
from geoco.models.dino import STAND_IN
from geoco.models.reconstruction_quality import FILE as QUALITY
from geoco.models.stored import build_stored
from geoco.publishing import model_card, reference_windows
from geoco.publishing.model_card import Card, MeasuredResults
from geoco.publishing.reference_windows import FirstWindows
from geoco.reporting.results import read_results
from geoco.training import selector_fit
from geoco.training.quality import measure_quality

CARD, CONFIG, FIRST = "README.md", "config.yaml", reference_windows.FILE
TRAINING_WINDOWS = 64  # that the scales of objects are read from
PERCENTILES = (1.0, 99.0)
QUALITY_FRAMES = 300  # of the validation split, or all where there are fewer
PSNR_TOLERANCE = 0.05  # dB, of each window
PIXEL_TOLERANCE = 0.005  # share of the pixels of all windows
PLACES = ("data.path", "data.source.path", "model.encoder.weights")  # what says where files are
_SPLITS: tuple[Split, ...] = ("val", "test", "train")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

Progress = Callable[[str, int, int], None]  # what is under way, done, in total


@dataclass(frozen=True)
class Verification:
    """How a fresh evaluation of first windows differs from the stored one."""

    psnr: Float64[Tensor, " window"]  # dB, fresh less stored
    masks: float  # share of the pixels that another slot owns
    frames: float | None  # of those the generator draws otherwise; None for other data

    @property
    def reproduced(self) -> bool:
        close = bool((self.psnr.abs() <= PSNR_TOLERANCE).all())
        return close and max(self.masks, self.frames or 0.0) <= PIXEL_TOLERANCE

    def __str__(self) -> str:
        frames = "" if self.frames is None else f", frames in {self.frames:.2%}"
        return (
            f"PSNR of {len(self.psnr)} windows differs by at most {self.psnr.abs().max():.4f} dB, "
            f"masks in {self.masks:.2%} of the pixels{frames}"
        )


def publish(
    source: Path,
    name: str,
    out: Path = Path("weights"),
    results: Path | None = None,
    windows: int = 20,
    note: str = "",
    places: Iterable[str] = (),
    force: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Write `out`/`name`: the weights of a run or a file, with card, config and first windows.

    `results` is a folder of `geoco eval`, the run that has one, or one of its JSON files. `places`
    are overrides that say where data and encoder are here. As in an evaluation the weights are
    those that training ended with, also where it kept averages of them.
    """
    if not _NAME.fullmatch(name) or Path(name).suffix in (PARTIAL, REPLACED):
        raise GeocoError(
            f"{name}: a model's name is made of letters, digits, '.', '_' and '-', and begins with "
            "a letter or a digit, as in geoco-solids"
        )
    target = out / name
    recover_folder(target)
    _check_target(target, force)
    weights = checkpoints.read_weights(source)
    config = _override_places(weights.config, places)
    shared = make_portable(config)
    model = build_stored(weights, str(source))
    ours = adapter(model.eval(), config)
    measured = None
    if results is not None:
        measured = _read_measured(results, ours, config)

    first = FirstWindows.from_dataset(open_dataset(config.data, "val"), windows)
    factual = first.evaluate(ours, lambda *news: progress("first windows", *news))
    scales = measure_trained_scales(ours, config, lambda *news: progress("training windows", *news))
    quality = measure_quality(
        model,
        config,
        QUALITY_FRAMES,
        f"{model_card.name_dataset(config) or 'own videos'}, validation split",
        lambda *news: progress("validation frames", *news),
    )
    card = Card(
        name,
        shared,
        model,
        weights.step,
        scales,
        (float(factual.psnr.mean()), len(first)),
        model_card.read_history(
            checkpoints.find_run(weights.path), weights.step, config.train.log_every
        ),
        measured,
        note,
        weights.extra.get(selector_fit.EXTRA),
        quality,
    )
    extra = weights.extra | {pretrained.TRAINED_SCALES: f"{scales[0]:.6g} {scales[1]:.6g}"}

    def write(folder: Path) -> None:
        file = folder / checkpoints.WEIGHTS
        checkpoints.write_weights(file, weights.step, shared, weights.tensors, extra)
        write_through(folder / FIRST, reference_windows.encode_file(first, factual))
        write_through(folder / QUALITY, quality.to_json().encode())
        write_through(folder / CONFIG, shared.to_yaml().encode())
        write_through(folder / CARD, card.to_markdown().encode())
        for title, picture in (measured.figures if measured else {}).items():
            (folder / model_card.PICTURES).mkdir(exist_ok=True)
            write_through(folder / model_card.PICTURES / f"{title}.png", picture.read_bytes())

    try:
        write_folder(target, write)
    except OSError as error:
        raise GeocoError(f"{target}: cannot write this model: {error.strerror}") from None
    return target


def verify(name: str | Path) -> Verification:
    """Evaluate a model's stored first windows on the CPU, and compare with what is stored."""
    loaded = pretrained.load(name)
    place = pretrained.find_weights(name)
    file = place / FIRST if place.is_dir() else place.with_name(FIRST)
    if not file.exists() and not Path(name).exists() and hub.is_hub_name(name):
        file = hub.fetch_from_hub(str(name), FIRST)
    first, psnr, masks = reference_windows.read_file(file)
    factual = first.evaluate(adapter(loaded.model, loaded.config))
    fresh = None
    if isinstance(loaded.config.data, SolidsConfig):
        fresh = FirstWindows.from_dataset(
            open_dataset(loaded.config.data, "val"), len(first)
        ).frames
    return Verification(
        factual.psnr - psnr,
        float((reference_windows.find_owners(factual) != masks).double().mean()),
        None if fresh is None else float((fresh != first.frames).any(1).double().mean()),
    )


def push_to_hub(folder: Path, repository: str, private: bool = False) -> str:
    """Put a published folder on the Hub as `repository`, user/name; returns its address."""
    if not _HUB_NAME.fullmatch(repository):
        raise GeocoError(f"{repository}: a repository of the Hub is called user/name")
    for file in (checkpoints.WEIGHTS, FIRST, CARD):
        if not (folder / file).is_file():
            raise GeocoError(f"{folder}: it has no {file}: give a folder of geoco publish")
    checkpoints.read_weights(folder)  # nothing damaged is uploaded
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ModuleNotFoundError:
        raise GeocoError("the Hub needs huggingface_hub: pip install 'geoco-savi[hub]'") from None
    # The HTTP library differs by version; the base of all its errors is a base of this one.
    expected: tuple[Any, ...] = (*HfHubHTTPError.__bases__, HFValidationError)
    try:
        address = huggingface_hub.create_repo(repository, private=private, exist_ok=True)
        huggingface_hub.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"Upload {folder.name}"
        )
    except expected as error:
        raise GeocoError(f"{repository}: {_explain_failure(error)}") from None
    return str(address)


def measure_trained_scales(
    model: SlotModel, config: Config, progress: evaluation.windows.Progress
) -> tuple[float, float]:
    """Percentiles of the scales of object slots over windows of the training split."""
    dataset = open_dataset(config.data, "train")
    factual = evaluation.windows.compute_factual(
        model, dataset, evaluation.windows.GROUP, TRAINING_WINDOWS, progress
    )
    scales = factual.slots.scale[factual.valid].double().numpy()
    if len(scales) == 0:
        raise GeocoError(
            f"no slot holds an object in {len(factual)} windows of the training split: there "
            "is nothing to publish, train longer"
        )
    low, high = np.percentile(scales, PERCENTILES)
    return float(low), float(high)


def make_portable(config: Config) -> Config:
    """A configuration that names no place of this machine: of absolute paths the last part."""
    data, encoder = config.data, getattr(config.model, "encoder", None)
    if isinstance(encoder, DinoEncoderConfig) and Path(encoder.weights).name == STAND_IN:
        model = config.model.model_copy(
            update={"encoder": encoder.model_copy(update={"weights": STAND_IN})}
        )
        config = config.model_copy(update={"model": model})
    elif isinstance(encoder, DinoEncoderConfig) and encoder.weights.startswith((".", "/", "~")):
        raise GeocoError(
            "model.encoder.weights is a place on this machine: say under which name others find "
            "it, as in model.encoder.weights=facebook/dinov2-small"
        )
    extra_stores = tuple(
        store.model_copy(update={"path": _keep_last_part(store.path)})
        for store in config.train.extra_stores
    )
    train = config.train.model_copy(update={"extra_stores": extra_stores})
    config = config.model_copy(update={"train": train})
    if not isinstance(data, StoreConfig):
        return config
    source = data.source
    if source is not None:
        source = source.model_copy(update={"path": _keep_last_part(source.path)})
    data = data.model_copy(update={"path": _keep_last_part(data.path), "source": source})
    return config.model_copy(update={"data": data})


# -- where things are ------------------------------------------------------------------------------


def _override_places(config: Config, places: Iterable[str]) -> Config:
    """The configuration with other places of files, and nothing else changed."""
    given = list(places)
    for text in given:
        if text.partition("=")[0] not in PLACES:
            raise GeocoError(f"{text}: only places of files can differ here: {', '.join(PLACES)}")
    return configuration.override(config, given) if given else config


def _keep_last_part(path: Path) -> Path:
    return Path(path.name) if path.is_absolute() or str(path).startswith("~") else path


# -- results ---------------------------------------------------------------------------------------


def _find_folder(results: Path) -> Path:
    """Where the files of results are: a folder, that inside a run, or that of one JSON."""
    if results.is_file():
        return results.parent
    inner = results / "evaluation"
    return inner if inner.is_dir() else results


def _read_measured(results: Path, model: SlotModel, config: Config) -> MeasuredResults:
    """Results, which must be of this model on a split of its own data."""
    if not results.exists():
        raise GeocoError(f"{results}: there is no such file or folder: give what geoco eval wrote")
    folder = _find_folder(results)
    known = (results.stem,) if results.is_file() else tuple(TABLES)
    if not set(known) <= set(TABLES):
        names = ", ".join(f"{table}.json" for table in TABLES)
        raise GeocoError(f"{results}: not a table of geoco eval: expected one of {names}")
    about, tables = read_results(folder, known)
    different: list[str] = []
    for split in _SPLITS:
        try:
            dataset = open_dataset(config.data, split)
        except GeocoError:  # a store need not have all splits
            continue
        expected = describe_population(
            model, dataset, str(about.get("model")), about.get("windows")
        )
        unlike = [key for key, value in expected.items() if about.get(key) != value]
        if not unlike:
            return MeasuredResults(split, about, tables, _list_figures(folder))
        different = different or unlike
    raise GeocoError(
        f"{results}: results of another model, on other data or by another protocol "
        f"({', '.join(different)} differ): evaluate this model with geoco eval"
    )


def _list_figures(folder: Path) -> dict[str, Path]:
    paths = {name: folder / FIGURES / f"{name}.png" for name in model_card.SHOWN}
    return {name: path for name, path in paths.items() if path.is_file()}


# -- folders and the Hub ---------------------------------------------------------------------------


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise GeocoError(f"{target}: there is a model here already: use --force to replace it")
    if not (target / checkpoints.WEIGHTS).is_file():
        raise GeocoError(f"{target}: it holds no {checkpoints.WEIGHTS}, so it is not replaced")


def _explain_failure(error: Exception) -> str:
    """Why the Hub did not take it, in a sentence."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
        return (
            "the Hub does not let you write there: log in by hf auth login, with a token that may "
            "write to this user's repositories"
        )
    lines = str(error).strip().splitlines()
    return f"the Hub cannot be reached or refused: {lines[0] if lines else type(error).__name__}"
