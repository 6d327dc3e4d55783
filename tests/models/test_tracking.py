"""Following slots frame by frame: where each frame starts, and that slots keep their names."""

import numpy as np
import pytest
import torch
from helpers import make_tiny_model
from torch import Tensor

from geoco import config
from geoco.editing.editor import Editor
from geoco.models import pretrained
from geoco.models.slots import Binding, Slots
from geoco.models.tracking import match_slots, track_slots

APPEARANCES = torch.eye(3)


def slots(positions: list[list[float]], order: list[int]) -> Slots:
    """Three slots, the one at place k with the k-th of `order` of three unlike appearances."""
    return Slots(APPEARANCES[order][None], torch.tensor([positions]), torch.ones(1, 3))


class Scripted:
    """A model that answers every frame with the next of some bindings, and notes its starts."""

    def __init__(self, answers: list[Slots]) -> None:
        self.answers, self.starts = answers, list[Tensor]()

    def bind(self, video: Tensor, positions: Tensor) -> Binding:
        answer = self.answers[len(self.starts)]
        self.starts.append(positions[0])
        number = torch.arange(3.0)[None, None, :, None]
        whole = Slots(answer.appearance[:, None], answer.position[:, None], answer.scale[:, None])
        return Binding(whole, number, number + 10)


def test_slots_that_changed_places_keep_their_names() -> None:
    before = slots([[-0.5, 0], [0.5, 0], [0, 0.5]], [0, 1, 2])
    after = slots([[0.48, 0], [-0.46, 0], [0, 0.5]], [1, 0, 2])
    assert match_slots(before, after).tolist() == [1, 0, 2]


def test_place_and_appearance_count_both() -> None:
    # Close together, appearance decides; far apart and alike, place does.
    close = slots([[0, 0], [0.05, 0], [0.9, 0]], [0, 1, 2])
    assert match_slots(close, slots([[0, 0], [0.05, 0], [0.9, 0]], [1, 0, 2])).tolist() == [1, 0, 2]
    apart = slots([[0, 0], [0.6, 0], [0.9, 0]], [0, 1, 2])
    assert match_slots(apart, slots([[0, 0], [0.6, 0], [0.9, 0]], [1, 0, 2])).tolist() == [0, 1, 2]


def test_each_frame_starts_where_the_slots_were() -> None:
    first = slots([[-0.5, 0], [0.5, 0], [0, 0.5]], [0, 1, 2])
    second = slots([[0.5, 0.1], [-0.5, 0.1], [0, 0.6]], [1, 0, 2])
    third = slots([[-0.5, 0.2], [0.5, 0.2], [0, 0.7]], [0, 1, 2])
    model = Scripted([first, second, third])
    start = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    actual = track_slots(model, torch.zeros(3, 3, 4, 4), start)
    assert torch.equal(model.starts[0], start)
    assert torch.equal(model.starts[1], first.position[0])
    assert torch.equal(model.starts[2], second.position[0, [1, 0, 2]])
    assert torch.equal(actual.slots.position[1], second.position[0, [1, 0, 2]])
    assert torch.equal(actual.slots.appearance[1], APPEARANCES)
    assert torch.equal(actual.slots.position[2], third.position[0])
    assert actual.attention[:, :, 0].tolist() == [[0, 1, 2], [1, 0, 2], [0, 1, 2]]
    assert actual.gate[:, :, 0].tolist() == [[10, 11, 12], [11, 10, 12], [10, 11, 12]]


@pytest.mark.parametrize("length", [1, 3])
def test_the_editor_follows_by_what_its_model_knows(length: int) -> None:
    model = make_tiny_model().model.float()
    data = config.SolidsConfig(window=config.WindowConfig(length=length))
    editor = Editor(pretrained.LoadedModel("tiny", model, config.Config(data=data), 0, (0.05, 1.2)))
    generator = torch.Generator().manual_seed(3)
    frames = torch.randint(0, 256, (4, 3, 16, 16), generator=generator, dtype=torch.uint8)
    film = editor.encode_video(frames.permute(0, 2, 3, 1).numpy(), seed=7)
    count = model.settings.slots.count
    drawn = torch.rand(1, count, 2, generator=torch.Generator().manual_seed(7))
    video, starts = frames.float() / 255, 2 * drawn - 1
    with torch.no_grad():
        carried = model.bind(video[None], starts).slots
        anew = track_slots(model, video, starts[0]).slots
    wanted, other = (anew.position, carried.position[0])[:: 1 if length == 1 else -1]
    torch.testing.assert_close(film.decoded.slots.position, wanted)
    assert not np.allclose(wanted, other, atol=1e-3)
