"""Edited scenes, decoded a few at a time: what every editing table looks at.

Edits are decoded by windows and slots: the rest of a window is then drawn once for all.
"""

from collections.abc import Iterator

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


@torch.no_grad()
def decode_edits(
    model: SlotModel, factual: Factual, commands: Commands, batch: int
) -> Iterator[tuple[Int64[Tensor, " edit"], int, Decoded]]:
    """Every edit once, at most `batch` at a time: which ones, of which slot, what was drawn."""
    if len(commands) and not takes_commands(model, factual, commands.kind):
        raise GeocoError(
            f"{commands.kind} edits need slots with a position and a scale, or a model with a "
            "`command` method; this one has neither"
        )
    for block in torch.arange(len(factual)).split(batch):
        mine = (commands.window >= block[0]) & (commands.window <= block[-1])
        # Of frames of which nothing is asked nothing is drawn.
        rows, place = commands.window[mine].unique(return_inverse=True)
        if len(rows) == 0:
            continue
        scene = torch.zeros_like(commands.window)
        scene[mine] = place
        encoded = factual.encoded(rows)
        told = isinstance(model, CommandModel) and commands.kind != "transplant"
        fields = (
            model.fields(encoded.slots) if isinstance(model, OneSlotModel) and not told else None
        )
        for slot in range(model.slots):
            edits = (mine & (commands.slot == slot)).nonzero()[:, 0]
            for chunk in edits.split(batch) if len(edits) else ():
                some = commands.rows(chunk)
                yield chunk, slot, _decode_some(model, encoded, fields, some, slot, scene[chunk])


def _decode_some(
    model: SlotModel,
    encoded: Encoded,
    fields: Fields | None,
    edits: Commands,
    slot: int,
    rows: Int64[Tensor, " edit"],
) -> Decoded:
    """Scenes, rows of `encoded`, in which one slot is edited in the way that the model knows."""
    scenes = encoded.rows(rows)
    if isinstance(model, CommandModel) and edits.kind != "transplant":
        return model.command(scenes, slot, edits.move.float(), edits.factor.float())
    one = edits.edited[:, None]
    if isinstance(model, OneSlotModel) and fields is not None:
        return model.compose(scenes, fields[rows].with_slot(slot, model.fields(one)))
    return model.decode(scenes, scenes.slots.with_slot(slot, one))
