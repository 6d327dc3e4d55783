"""SlotAug, the paper's commanded baseline: slots are told to move, grow and change their colour.

Slots are bound as isotropic ISA binds them, with the same encoder and decoder, so that capacities
match. What moves an object is no position of its own but a command: small networks turn it into
what is added to the slot's appearance, then the slot MLP of the binding works on the sum. Position
and scale, by which the decoder sees a slot's frame, stay what attention found. A bound slot has
been given the command that changes nothing; every other command comes on top of that.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.interface import Model
from geoco.models.slots import Binding, Slots

MIDDLE = 0.5  # of the canvas [0, 1], about which pictures are scaled
ROUNDING = 1e-6  # a slot that was moved away and back has been told nothing


@dataclass(frozen=True)
class Command:
    """What slots, or pictures, are told. Lengths are of the canvas: from edge to edge it is one.

    A translation is added, the scale is a factor; of the colour (hue, saturation, lightness) the
    first is added, in turns of the circle, and the others are factors.
    """

    translation: Float[Tensor, "*commands 2"]
    scale: Float[Tensor, "*commands"]
    color: Float[Tensor, "*commands 3"]

    def __getitem__(self, index: Any) -> "Command":
        """Some of the commands, by their leading dimensions."""
        return Command(self.translation[index], self.scale[index], self.color[index])

    def expand(self, *shape: int) -> "Command":
        """The same for more, as `Tensor.expand` understands the leading dimensions."""
        return Command(
            self.translation.expand(*shape, 2),
            self.scale.expand(*shape),
            self.color.expand(*shape, 3),
        )

    def flatten(self) -> "Command":
        """All leading dimensions as one."""
        return Command(
            self.translation.flatten(0, -2), self.scale.flatten(), self.color.flatten(0, -2)
        )

    @staticmethod
    def identity(like: Float[Tensor, "*commands"]) -> "Command":
        """Commands that change nothing, as many as `like` has numbers."""
        one, zero = torch.ones_like(like), torch.zeros_like(like)
        return Command(torch.stack((zero, zero), -1), one, torch.stack((zero, one, one), -1))

    @property
    def inverse(self) -> "Command":
        """What takes back a command of any one kind."""
        hue, *factors = self.color.unbind(-1)
        color = torch.stack((-hue, *(1 / factor for factor in factors)), -1)
        return Command(-self.translation, 1 / self.scale, color)

    def for_slots(self, position: Float[Tensor, "*commands 2"]) -> "Command":
        """The same where a picture is scaled: slots away from its middle also move."""
        place = (position + 1) / 2
        moved = MIDDLE + (place - MIDDLE) * self.scale[..., None]
        return replace(self, translation=self.translation + (moved - place))


class SlotAug(Model):
    """Slots that obey commands."""

    settings: config.SlotAugConfig

    def __init__(self, settings: config.SlotAugConfig) -> None:
        super().__init__(settings)
        self.isa = GeoCo(
            config.ModelConfig(
                encoder=settings.encoder,
                slots=settings.slots,
                decoder=settings.decoder,
                selector=config.SelectorConfig(enabled=False),
            )
        )
        dim = settings.slots.dim
        self.translate = _build_mlp(2, dim)
        self.resize = _build_mlp(1, dim)
        self.tint = _build_mlp(3, dim)

    @property
    def size(self) -> int:
        return self.isa.size

    @property
    def slot_count(self) -> int:
        return self.isa.slot_count

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Binding:
        """Slots of every frame, given the command that changes nothing."""
        binding = self.isa.bind(video, positions, temporal, features)
        slots = self.obey(binding.slots, Command.identity(binding.slots.scale))
        return replace(binding, slots=slots)

    def obey(self, slots: Slots, command: Command) -> Slots:
        """Slots after a command for each.

        The published code normalizes what each command gives. As in the paper that is left to the
        next hidden layer, that of the slot MLP, so that a command's magnitude survives.
        """
        with torch.autocast(command.scale.device.type, enabled=False):  # commands are never rounded
            given = (
                self.translate(command.translation)
                + self.resize(command.scale[..., None])
                + self.tint(command.color)
            )
            told = slots.appearance + given
        return replace(slots, appearance=told + self.isa.attention.update_mlp(told))

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        return self.isa.decode_slots(slots, extent, alpha_only)

    def decode_edited(self, slots: Slots, bound: Slots) -> Fields:
        """How far slots are from where they were bound is what they are told.

        A size is about the slot's own position, so that it moves nothing.
        """
        move, factor = slots.position - bound.position, slots.scale / bound.scale
        plain = replace(bound, appearance=slots.appearance)
        command = replace(Command.identity(factor), translation=move / 2, scale=factor)
        obeyed = self.obey(plain, command).appearance
        told = (move.abs() > ROUNDING).any(-1) | ((factor - 1).abs() > ROUNDING)
        appearance = torch.where(told[..., None], obeyed, slots.appearance)
        return self.decode_slots(replace(plain, appearance=appearance))

    def decoder_parameters(self) -> list[nn.Parameter]:
        return self.isa.decoder_parameters()

    def picture_parameters(self) -> list[nn.Parameter]:
        return self.isa.picture_parameters()

    @staticmethod
    def compute_cold_scale(settings: config.SlotAugConfig) -> float:
        return GeoCo.compute_cold_scale(
            config.ModelConfig(encoder=settings.encoder, decoder=settings.decoder)
        )

    @property
    def pretrained_part(self) -> str | None:
        part = self.isa.pretrained_part
        return None if part is None else f"isa.{part}"

    def read_pretrained(self) -> None:
        self.isa.read_pretrained()

    def compute_features(
        self, image: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch token channel"]:
        return self.isa.compute_features(image)

    def set_reference_scale(self, value: float) -> None:
        self.isa.set_reference_scale(value)

    def compile_parts(self) -> None:
        self.isa.compile_parts()


def _build_mlp(inputs: int, dim: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, dim // 4),
        nn.ReLU(),
        nn.Linear(dim // 4, dim // 2),
        nn.ReLU(),
        nn.Linear(dim // 2, dim),
    )
