"""A frozen encoder's features, computed once for every frame and its mirror image.

They are what the encoder gives in a training step, rounded to bfloat16; on a GPU they are kept
beside the frames where they fit, on disk where they do not (`data/features.py`).
"""

import zlib
from collections.abc import Callable

import torch
from jaxtyping import BFloat16, UInt8
from torch import Tensor

from geoco.config import Config
from geoco.config.training import TrainConfig
from geoco.data import ClipDataset, StoreDataset, open_dataset
from geoco.data.features import (
    FORMAT,
    FeatureRecipe,
    FeatureStore,
    FeatureWriter,
    compute_store_checksum,
    describe_differences,
)
from geoco.errors import GeocoError
from geoco.models.interface import Model

_TOGETHER = 64  # frames that the encoder reads at once
_GIGABYTE = 1e9


# Compiled parts would be compiled anew for the last, smaller pieces.
@torch.compiler.set_stance("force_eager")
@torch.no_grad()
def compute_features(
    model: Model, frames: UInt8[Tensor, "frame 3 height width"], settings: TrainConfig
) -> BFloat16[Tensor, "frame view token channel"]:
    """Of frames on the model's device: as they are and, where training flips, mirrored."""
    precise = settings.precision == "32-true"
    pieces = []
    for piece in frames.split(_TOGETHER):
        images = piece.float() / 255
        views = (images, images.flip(-1)) if settings.flip else (images,)
        with torch.autocast(frames.device.type, torch.bfloat16, enabled=not precise):
            seen = [model.compute_features(view) for view in views]
        pieces.append(torch.stack(seen, 1).to(torch.bfloat16))
    return torch.cat(pieces)


def compute_resident(
    model: Model, dataset: ClipDataset, settings: TrainConfig, device: torch.device
) -> BFloat16[Tensor, "frame view token channel"]:
    """Of all frames of a training, on its device."""
    features: Tensor | None = None
    done = 0
    for frames in dataset.iterate_frames(device):
        for piece in frames.split(_TOGETHER):
            computed = compute_features(model, piece, settings)
            if features is None:
                shape = (dataset.frame_count, *computed.shape[1:])
                features = _make_room(shape, dataset, device)
            features[done : done + len(computed)] = computed
            done += len(computed)
    assert features is not None
    return features


def load_resident(
    store: FeatureStore, dataset: ClipDataset, device: torch.device
) -> BFloat16[Tensor, "frame view token channel"]:
    """The features of a store, on the device of the frames that they are of."""
    features = _make_room(store.recipe.shape, dataset, device)
    done = 0
    for piece in store.iterate():
        features[done : done + len(piece)] = piece.to(device)
        done += len(piece)
    return features


def open_store(config: Config, model: Model) -> FeatureStore:
    """The features that a configuration names, which must be those of its encoder and its data."""
    settings = config.train
    assert settings.feature_store is not None
    store = FeatureStore(settings.feature_store)
    wanted = describe_features(model, _open_frames(config), settings)
    if store.recipe.views > wanted.views:
        wanted = wanted.model_copy(update={"views": store.recipe.views})  # more than are needed
    differences = describe_differences(store.recipe, wanted)
    if differences:
        raise GeocoError(
            f"{store.path}: these features were made with {' and '.join(differences)}: run geoco "
            "data features <config> with another train.feature_store"
        )
    return store


def write_features(
    config: Config,
    model: Model,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeatureStore:
    """Compute those of all training videos; goes on where an earlier call was stopped."""
    settings, dataset = config.train, _open_frames(config)
    if settings.feature_store is None:
        raise GeocoError("train.feature_store: required to keep features, but not given")
    device = next(model.parameters()).device
    recipe = describe_features(model, dataset, settings)
    videos = dataset.index.videos
    with FeatureWriter(settings.feature_store, recipe) as writer:
        for number, video in enumerate(videos):
            if number >= writer.done:
                frames = dataset.read_frames(video.start, video.frames).to(device)
                writer.append(compute_features(model, frames, settings))
            progress(number + 1, len(videos))
        writer.finish()
    return FeatureStore(settings.feature_store)


def describe_features(model: Model, dataset: StoreDataset, settings: TrainConfig) -> FeatureRecipe:
    """What features of a store by a model's encoder are to be."""
    device = next(model.parameters()).device
    one = compute_features(model, dataset.read_frames(0, 1).to(device), settings)
    return FeatureRecipe(
        format=FORMAT,
        store=compute_store_checksum(dataset),
        encoder=_compute_encoder_checksum(model),
        precision=settings.precision,
        frames=dataset.frame_count,
        views=one.shape[1],
        tokens=one.shape[2],
        channels=one.shape[3],
    )


def _open_frames(config: Config) -> StoreDataset:
    """The store whose frames have features on disk; a window of one frame, since all count."""
    data = config.data
    single = data.window.model_copy(update={"length": 1, "stride": 1})
    dataset = open_dataset(data.model_copy(update={"window": single}), "train")
    if not isinstance(dataset, StoreDataset) or config.train.extra_stores:
        raise GeocoError(
            "train.feature_store: features are kept on disk of one store, and of no "
            "train.extra_stores: use train.features=resident, or leave it at 'step'"
        )
    return dataset


def _compute_encoder_checksum(model: Model) -> str:
    """Of the frozen part's weights."""
    part, checksum = model.pretrained_part, 0
    for name, value in sorted(model.state_dict().items()):
        if part is not None and name.startswith(f"{part}."):
            checksum = zlib.crc32(name.encode(), checksum)
            checksum = zlib.crc32(value.cpu().contiguous().numpy().tobytes(), checksum)
    return f"{checksum:08x}"


def _make_room(shape: tuple[int, ...], dataset: ClipDataset, device: torch.device) -> Tensor:
    """For features; an error where they, and the frames that come after them, do not fit."""
    size = 2 * torch.Size(shape).numel()
    if device.type == "cuda":
        frames = 3 * dataset.frame_count * torch.Size(dataset.frame_size).numel()
        free, _ = torch.cuda.mem_get_info(device)
        if size + frames > free:
            raise GeocoError(
                f"train.features: {size / _GIGABYTE:.1f} GB of features and "
                f"{frames / _GIGABYTE:.1f} GB of frames do not fit on this device, "
                f"{free / _GIGABYTE:.1f} GB of it are free: use train.features=store and "
                "train.feed=stream"
            )
    return torch.empty(shape, dtype=torch.bfloat16, device=device)
