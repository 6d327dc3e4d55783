"""SlotAug: its commands, and what they do to slots."""

import pytest
import torch
from torch import Tensor, nn

from geoco import config
from geoco.models.slotaug import Command, SlotAug
from geoco.models.slots import Slots

TINY = config.SlotAugConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.SlotsConfig(count=3, dim=8, update_dim=8, grid_dim=8, readout=False),
    decoder=config.DecoderConfig(design="conventional", broadcast=4, layers=((8, 3), (16, 3))),
)


def make_model() -> SlotAug:
    torch.manual_seed(0)
    return SlotAug(TINY).double()


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_command(
    translation: tuple[float, float] = (0, 0),
    scale: float = 1,
    color: tuple[float, float, float] = (0, 1, 1),
) -> Command:
    return Command(tensor(*translation)[None], tensor(scale), tensor(*color)[None])


# -- commands --------------------------------------------------------------------------------------


def test_the_command_that_changes_nothing() -> None:
    command = Command.identity(torch.zeros(2, 3))
    assert command.translation.tolist() == [[[0, 0]] * 3] * 2
    assert command.scale.tolist() == [[1] * 3] * 2
    assert command.color.tolist() == [[[0, 1, 1]] * 3] * 2


def test_what_takes_a_command_back() -> None:
    command = make_command((0.25, -0.125), 0.8, (0.75, 1.6, 0.5))
    back = command.inverse
    assert (command.translation + back.translation).tolist() == [[0, 0]]
    assert (command.scale * back.scale).tolist() == [1]
    assert (command.color[:, 0] + back.color[:, 0]).tolist() == [0]
    assert (command.color[:, 1:] * back.color[:, 1:]).tolist() == [[1, 1]]
    assert back.color.tolist() == [[-0.75, 1 / 1.6, 2]]


def test_a_scale_moves_what_is_not_in_the_middle() -> None:
    """(0.5 + (pos - 0.5) s) - pos, with pos in [0, 1]: here 0.75 and 0.25."""
    position = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    told = make_command((0.1, 0), 2.0).for_slots(position)
    assert told.translation[0].tolist() == pytest.approx([0.1 + 0.25, -0.25])
    assert told.scale.tolist() == [2]
    assert make_command((0.1, 0)).for_slots(position).translation.tolist() == [[0.1, 0]]
    middle = make_command(scale=3.0).for_slots(torch.zeros(1, 2, dtype=torch.float64))
    assert middle.translation.tolist() == [[0, 0]]


def test_a_scale_and_its_inverse_bring_a_slot_back() -> None:
    """The inverse of what a slot was told is what the inverse tells it where it has got to."""
    position = torch.tensor([[0.6, -0.2]], dtype=torch.float64)
    command = make_command(scale=1.25)
    told = command.for_slots(position)
    torch.testing.assert_close(
        told.inverse.translation,
        command.inverse.for_slots(position + 2 * told.translation).translation,
    )


# -- slots -----------------------------------------------------------------------------------------


def fill(mlp: nn.Sequential) -> None:
    """Weights of one and no biases: of a sum x the MLP makes 2 * 4 * relu(x), eight times over."""
    for name, value in mlp.named_parameters():
        nn.init.constant_(value, 1.0 if name.endswith("weight") else 0.0)


@pytest.fixture
def plain() -> SlotAug:
    model = make_model()
    for mlp in (model.translate, model.resize, model.tint):
        fill(mlp)
    last = model.isa.attention.update_mlp[-1]
    nn.init.zeros_(last.weight)
    nn.init.constant_(last.bias, 0.5)
    return model


def make_slots(count: int = 1) -> Slots:
    generator = torch.Generator().manual_seed(3)
    draw = torch.rand(count, 11, generator=generator, dtype=torch.float64)
    return Slots(draw[:, :8], draw[:, 8:10], 0.1 + draw[:, 10])


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (make_command(), 8 * (0 + 1 + 2)),
        (make_command((0.25, 0.125)), 8 * (0.375 + 1 + 2)),
        (make_command((-0.25, 0.125)), 8 * (0 + 1 + 2)),
        (make_command(scale=2.0), 8 * (0 + 2 + 2)),
        (make_command(scale=4.0), 8 * (0 + 4 + 2)),
        (make_command(color=(0.5, 2, 1)), 8 * (0 + 1 + 3.5)),
    ],
)
def test_what_commands_add_to_a_slot(plain: SlotAug, command: Command, given: float) -> None:
    """Nothing is normalized on the way, and the slot MLP comes last: here it adds 0.5."""
    slots = make_slots()
    told = plain.obey(slots, command)
    torch.testing.assert_close(told.appearance, slots.appearance + given + 0.5)
    assert told.position is slots.position
    assert told.scale is slots.scale


def test_the_slot_mlp_is_that_of_the_binding() -> None:
    """A residual layer, which sees the slot with what the commands gave."""
    model, slots = make_model(), make_slots()
    command = make_command((0.1, 0.05), 1.2, (0.3, 1.5, 1))
    given = (
        model.translate(command.translation)
        + model.resize(command.scale[:, None])
        + model.tint(command.color)
    )
    told = slots.appearance + given
    norm, widen, _, narrow = model.isa.attention.update_mlp
    expected = told + narrow(torch.relu(widen(norm(told))))
    torch.testing.assert_close(model.obey(slots, command).appearance, expected)
    names = [name for name, _ in model.named_parameters() if "isa" not in name]
    assert len(names) == 3 * 3 * 2  # three MLPs of three layers, and nothing that normalizes
    assert [layer.weight.shape for layer in model.tint[::2]] == [(2, 3), (4, 2), (8, 4)]


def test_bound_slots_were_told_to_change_nothing() -> None:
    model = make_model()
    generator = torch.Generator().manual_seed(0)
    video = torch.rand(2, 2, 3, 16, 16, generator=generator, dtype=torch.float64)
    positions = 2 * torch.rand(2, 3, 2, generator=generator, dtype=torch.float64) - 1
    bound, raw = model.bind(video, positions), model.isa.bind(video, positions)
    told = model.obey(raw.slots, Command.identity(raw.slots.scale))
    torch.testing.assert_close(bound.slots.appearance, told.appearance)
    assert not torch.allclose(bound.slots.appearance, raw.slots.appearance)
    torch.testing.assert_close(bound.slots.position, raw.slots.position)
    torch.testing.assert_close(bound.attention, raw.attention)


def test_an_edit_is_told_and_not_set() -> None:
    """Slots that are as they were bound, or were given another appearance, are simply drawn."""
    model, bound = make_model(), make_slots(4)
    edited = Slots(bound.appearance.clone(), bound.position.clone(), bound.scale.clone())
    edited.position[0] += tensor(0.25, -0.5)
    edited.scale[1] *= 1.5
    edited.appearance[2] = bound.appearance[3]
    drawn = model.decode_edited(edited, bound)
    told = model.obey(bound[:1], make_command((0.125, -0.25))).appearance
    grown = model.obey(bound[1:2], make_command(scale=1.5)).appearance
    appearance = torch.cat((told, grown, bound.appearance[3:], bound.appearance[3:]))
    expected = model.decode_slots(Slots(appearance, bound.position, bound.scale))
    torch.testing.assert_close(drawn.logits, expected.logits)
    torch.testing.assert_close(drawn.rgb, expected.rgb)
