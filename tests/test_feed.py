"""Training batches: which clips a step takes, and that both feeds give the same ones."""

import numpy as np
import torch

from geoco.config import Solids, Window
from geoco.data import SolidsDataset
from geoco.data.feed import Order, ResidentFeed, StreamFeed

SETTINGS = Solids(
    episodes={"train": 3, "val": 1, "test": 1},  # type: ignore[arg-type]
    frames=6,
    height=16,
    width=16,
    supersample=1,
    window=Window(length=2, stride=1),
)


def test_every_epoch_sees_every_clip_once_in_another_order() -> None:
    order = Order(count=10, batch=4, seed=7)
    seen = np.concatenate([order(step) for step in range(10)])
    first, second = seen[:10], seen[10:20]
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    assert sorted(seen) == sorted(list(range(10)) * 4)


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    order = Order(count=10, batch=4, seed=7)
    straight = [order(step).tolist() for step in range(8)]
    assert [Order(10, 4, 7)(step).tolist() for step in (5, 2, 7)] == [
        straight[step] for step in (5, 2, 7)
    ]
    assert Order(10, 4, 8)(0).tolist() != straight[0]


def test_batches_larger_than_the_dataset() -> None:
    assert sorted(Order(count=3, batch=7, seed=0)(0)[:3]) == [0, 1, 2]


def test_both_feeds_give_the_clips_of_the_dataset() -> None:
    dataset = SolidsDataset(SETTINGS, "train")
    order = Order(len(dataset), 5, 1)
    device = torch.device("cpu")
    told = []
    resident = ResidentFeed(dataset, order, device, lambda done, count: told.append((done, count)))
    stream = StreamFeed(dataset, order, device)
    assert told[-1] == (18, 18)
    for step in (0, 1, 5, 2):
        rows = order(step)
        clips = [dataset[int(row)] for row in rows]
        expected = torch.stack([clip.video for clip in clips])
        sources = [int(clip.source.split("/")[1]) for clip in clips]
        for feed in (resident, stream):
            batch = feed(step)
            assert torch.equal(batch.video, expected)
            assert batch.source.tolist() == sources
