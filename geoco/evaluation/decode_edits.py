"""Edited scenes, decoded a few at a time: what every editing table looks at.

Edits are decoded by windows and slots: the rest of a window is then drawn once for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from geoco.errors import GeocoError
from geoco.evaluation.commands import CommandKind, Commands
from geoco.evaluation.interfaces import CommandModel, Decoded, Encoded, OneSlotModel, SlotModel
from geoco.evaluation.windows import Factual
from geoco.models.decoders import Fields


def takes_commands(model: SlotModel, factual: Factual, kind: CommandKind) -> bool:
    """Whether commands of this kind can be put to a model at all."""
    return kind == "transplant" or factual.explicit or isinstance(model, CommandModel)


def decode_edits(
    model: SlotModel, factual: Factual, commands: Commands, batch: int
) -> Iterator[tuple[Int64[Tensor, " edit"], int, Decoded]]:
    """Every edit once, at most `batch` at a time: which ones, of which slot, what was drawn."""
    for _, chunk, slot, decoded in decode_kinds(model, factual, [commands], batch):
        yield chunk, slot, decoded


@torch.no_grad()
def decode_kinds(
    model: SlotModel, factual: Factual, kinds: Sequence[Commands], batch: int
) -> Iterator[tuple[int, Int64[Tensor, " edit"], int, Decoded]]:
    """The same for edits of several kinds, and of which kind: windows are drawn once for all."""
    for commands in kinds:
        if len(commands) and not takes_commands(model, factual, commands.kind):
            raise GeocoError(
                f"{commands.kind} edits need slots with a position and a scale, or a model with a "
                "`command` method; this one has neither"
            )
    for block in torch.arange(len(factual)).split(batch):
        mine = [(part.window >= block[0]) & (part.window <= block[-1]) for part in kinds]
        # Of frames of which nothing is asked nothing is drawn.
        asked = [part.window[some] for part, some in zip(kinds, mine, strict=True)]
        rows = torch.cat(asked).unique()
        if len(rows) == 0:
            continue
        scenes = _Scenes(model, factual.encoded(rows).to(factual.device), rows)
        for number, (commands, some) in enumerate(zip(kinds, mine, strict=True)):
            for slot in range(model.slots):
                edits = (some & (commands.slot == slot)).nonzero()[:, 0]
                for chunk in edits.split(batch) if len(edits) else ():
                    yield number, chunk, slot, scenes.decode(commands.rows(chunk), slot)


@dataclass(frozen=True)
class _Scenes:
    """Some windows, drawn when the first edit needs it; where the model is."""

    model: SlotModel
    encoded: Encoded
    rows: Int64[Tensor, " window"]

    @cached_property
    def fields(self) -> Fields | None:
        """Slots as each is drawn by itself, if the model draws them so."""
        model = self.model
        return model.fields(self.encoded.slots) if isinstance(model, OneSlotModel) else None

    def decode(self, edits: Commands, slot: int) -> Decoded:
        """Scenes in which one slot is edited in the way that the model knows."""
        place = torch.searchsorted(self.rows, edits.window).to(self.encoded.slots.scale.device)
        model, scenes = self.model, self.encoded.rows(place)
        if isinstance(model, CommandModel) and edits.kind != "transplant":
            return model.command(scenes, slot, edits.move.float(), edits.factor.float())
        one = edits.edited[:, None].to(place.device)
        if isinstance(model, OneSlotModel) and self.fields is not None:
            return model.compose(scenes, self.fields[place].with_slot(slot, model.fields(one)))
        return model.decode(scenes, scenes.slots.with_slot(slot, one))
