"""Our own models as models to evaluate: which adapter they get, and how it tracks videos."""

from types import SimpleNamespace

import pytest
import torch
from helpers import TINY_MODEL
from torch import Tensor

from geoco import Editor, config
from geoco.data import SolidsDataset
from geoco.evaluation import ADAPTERS, Encoded, GeoCoModel, SlotModel, VideoModel, adapter
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.video_rows import choose_first_windows, compute_video_factual
from geoco.evaluation.windows import draw_starting_positions
from geoco.models import pretrained
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots


def clips(length: int) -> SolidsDataset:
    episodes = config.EpisodesConfig(train=1, val=1, test=1)
    window = config.WindowConfig(length=length, stride=length)
    return SolidsDataset(config.SolidsConfig(episodes=episodes, window=window), "val")


def test_a_model_of_single_frames_is_tracked_as_in_the_editor() -> None:
    """Its objects are kept throughout; slots that are carried forward lose them at once."""
    loaded = pretrained.load("geoco-solids")
    model, dataset = adapter(loaded.model, loaded.config), clips(8)
    assert isinstance(model, VideoModel)
    clip = dataset.batch([0])
    starts = draw_starting_positions(0, model.slots)[None]
    slots = model.track(clip.images(), starts).slots[0]
    film = Editor(loaded).encode_video(clip.video[0].permute(0, 2, 3, 1).numpy(), seed=42)
    for name in ("appearance", "position", "scale"):
        torch.testing.assert_close(getattr(slots, name), getattr(film.decoded.slots, name))
    first = choose_first_windows(dataset)
    assert compute_video_factual(model, dataset, first, 64).psnr.min() > 40
    carried = GeoCoModel(loaded.model, knows_videos=True)
    assert compute_video_factual(carried, dataset, first, 64).psnr.min() < 20


@pytest.mark.parametrize(("length", "temporal"), [(2, False), (1, True), (3, True)])
def test_a_model_of_videos_carries_its_slots(length: int, temporal: bool) -> None:
    torch.manual_seed(0)
    part = config.TemporalConfig(enabled=temporal, width=8, heads=2, hidden=8)
    settings = config.Config(
        model=TINY_MODEL.model_copy(update={"temporal": part}),
        data=config.SolidsConfig(window=config.WindowConfig(length=length)),
    )
    network = GeoCo(settings.model).eval()
    model = adapter(network, settings)
    assert isinstance(model, VideoModel)
    video, starts = torch.rand(2, 3, 3, 16, 16), torch.rand(2, 4, 2)
    with torch.no_grad():
        expected = network.bind(video, starts)
    torch.testing.assert_close(model.track(video, starts).slots.position, expected.slots.position)


def test_every_video_of_a_batch_is_tracked_by_itself() -> None:
    torch.manual_seed(0)
    model = GeoCoModel(GeoCo(TINY_MODEL).double().eval())
    video, starts = torch.rand(3, 4, 3, 16, 16), torch.rand(3, 4, 2)
    together = model.track(video, starts)
    assert together.attention is not None
    for row in range(3):
        alone = model.track(video[[row]], starts[[row]])
        assert alone.attention is not None
        torch.testing.assert_close(together.slots.position[row], alone.slots.position[0])
        torch.testing.assert_close(together.attention[row], alone.attention[0])


def test_another_model_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    class Toy:
        settings = SimpleNamespace(kind="toy")

    class ToyModel:
        slots, size = 2, 8

        def __init__(self, model: Toy, knows_videos: bool | None) -> None:
            self.knows_videos = knows_videos

        def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
            raise NotImplementedError

        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            raise NotImplementedError

    monkeypatch.setitem(ADAPTERS, "toy", ToyModel)
    model = adapter(
        Toy(), config.Config(data=config.SolidsConfig(window=config.WindowConfig(length=2)))
    )
    assert isinstance(model, SlotModel)
    assert isinstance(model, ToyModel)
    assert model.knows_videos
