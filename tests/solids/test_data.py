"""The generator as a dataset."""

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from geoco.config import EpisodesConfig, SolidsConfig, StoreConfig, WindowConfig
from geoco.data import ClipBatch, SolidsDataset, open_dataset
from geoco.errors import GeocoError
from geoco.solids import MATERIALS, SHAPES, Canvas, extract_scenes, render_scenes, simulate_episodes

SMALL_SOLIDS = SolidsConfig(
    episodes=EpisodesConfig(train=40, val=20, test=3), window=WindowConfig(length=2, stride=40)
)


def test_the_validation_split_has_the_papers_windows() -> None:
    dataset = SolidsDataset(SolidsConfig(window=WindowConfig(length=4)), "val")
    assert len(dataset) == 2600
    assert len(set(dataset.sources)) == 200
    clip = dataset[13 * 7 + 12]
    assert clip.source == "val/7" == dataset.sources[13 * 7 + 12]
    assert clip.frames.tolist() == [96, 97, 98, 99]


def test_a_clip_is_what_the_generator_says() -> None:
    dataset = SolidsDataset(SMALL_SOLIDS, "val", amodal=True)
    clip = dataset[3 * 19 + 1]
    episodes = simulate_episodes(SMALL_SOLIDS, "val", np.array([19]))
    scenes = extract_scenes(episodes, np.zeros(2, dtype=int), np.array([40, 41]))
    pictures = render_scenes(scenes, Canvas(64, 64, 3), amodal=True)
    assert torch.equal(clip.video, pictures.frames)
    assert clip.masks is not None
    assert torch.equal(clip.masks, pictures.masks)
    count = int(episodes.present[0].sum())
    assert clip.amodal is not None
    assert pictures.amodal is not None
    assert torch.equal(clip.amodal, pictures.amodal[:, :count])
    true = clip.metadata
    assert true["shape"] == [SHAPES[k] for k in episodes.shape[0, :count]]
    assert true["material"] == [MATERIALS[k] for k in episodes.material[0, :count]]
    assert [SMALL_SOLIDS.colors[name] for name in true["color"]] == [
        tuple(rgb) for rgb in episodes.color[0, :count].tolist()
    ]
    np.testing.assert_array_equal(true["position"], episodes.position[0, 40:42, :count])
    np.testing.assert_array_equal(true["radius"], episodes.radius[0, :count])
    # The order counts present objects only, from the front.
    assert sorted(true["order"][0].tolist()) == list(range(count))
    depth = scenes.depth[0, :count].numpy()
    np.testing.assert_array_equal(np.argsort(true["order"][0]), np.argsort(depth))


def test_batches_items_and_workers_agree() -> None:
    dataset = SolidsDataset(SMALL_SOLIDS, "train")
    chosen = [0, 119, 50, 7, 51]
    batch = dataset.batch(chosen)
    for row, index in enumerate(chosen):
        assert torch.equal(batch.video[row], dataset[index].video)
        assert batch.sources[row] == dataset[index].source
    loader = DataLoader(
        SolidsDataset(SMALL_SOLIDS, "test"),
        batch_size=4,
        num_workers=2,
        collate_fn=ClipBatch.collate,
    )
    plain = SolidsDataset(SMALL_SOLIDS, "test")
    for number, loaded in enumerate(loader):
        rows = range(4 * number, min(4 * number + 4, len(plain)))
        assert torch.equal(loaded.video, plain.batch(list(rows)).video)


def test_the_whole_split_comes_in_order() -> None:
    config = SolidsConfig(episodes=EpisodesConfig(train=5, val=1, test=1), frames=3)
    dataset = SolidsDataset(config, "train")
    frames = torch.cat([pictures.frames for pictures in dataset.render_all(episodes=2)])
    assert frames.shape == (15, 3, 64, 64)
    for number, time in itertools.product(range(5), range(3)):
        scenes = dataset.extract_scenes(np.array([number]), np.array([time]))
        expected = render_scenes(scenes, dataset.canvas).frames[0]
        assert torch.equal(frames[3 * number + time], expected)


def test_a_dataset_can_be_sent_to_another_process() -> None:
    dataset = SolidsDataset(SMALL_SOLIDS, "val")
    clip = dataset[5]
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[5].video, clip.video)


@pytest.mark.parametrize("index", [120, -121])
def test_windows_beyond_the_end(index: int) -> None:
    with pytest.raises(IndexError, match=f"window {index} of 120"):
        SolidsDataset(SMALL_SOLIDS, "train")[index]


def test_negative_indices_count_from_the_end() -> None:
    dataset = SolidsDataset(SMALL_SOLIDS, "test")
    assert dataset[-1].source == dataset[len(dataset) - 1].source
    assert torch.equal(dataset[-1].video, dataset[len(dataset) - 1].video)


def test_variants() -> None:
    config = SolidsConfig(
        resting=(1, 1),
        shapes=("cube",),
        materials=("metal",),
        colors={"grey": (0.5, 0.5, 0.5)},
        radii=(0.5,),
        height=48,
        width=80,
        textured=True,
        camera_jitter=0.3,
    )
    clip = SolidsDataset(config, "train")[0]
    assert clip.video.shape == (1, 3, 48, 80)
    assert clip.metadata["shape"] == ["sphere", "cube"]
    assert clip.metadata["material"] == ["rubber", "metal"]
    assert clip.metadata["color"] == ["grey", "grey"]


def test_the_configuration_decides_what_is_opened() -> None:
    assert isinstance(open_dataset(SMALL_SOLIDS, "val"), SolidsDataset)
    with pytest.raises(GeocoError, match="there is no store here"):
        open_dataset(StoreConfig(path=Path("nowhere"), source=None), "val")
