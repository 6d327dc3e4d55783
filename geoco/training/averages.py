"""Averages of weights over the steps of a training: what validates, and what is used afterwards.

A checkpoint's weights are the averages, so that evaluation, editor and publishing need not know of
them; its training state has the weights that the optimisers go on with.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_LIVE = "live/"


class WeightAverages:
    """Exponential averages of what is trained of a model; buffers are not averaged."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        # What is frozen is its own average: a backbone need not be kept and gone over once more.
        named = model.named_parameters()
        self._live = {name: value for name, value in named if value.requires_grad}
        self._averages = {name: value.detach().clone() for name, value in self._live.items()}

    @torch.no_grad()
    def update(self, stopped: Tensor) -> None:
        """Take in the weights of one more step; nothing happens where `stopped` is one."""
        share = (1 - self.decay) * (stopped == 0)
        for name, average in self._averages.items():
            average.lerp_(self._live[name].detach(), share.to(average))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages in here, and its own weights again afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """The model's own weights, called inside `in_place`."""
        return {_LIVE + name: value for name, value in self._averages.items()}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """With the averages of a checkpoint loaded into the model, go on as after its last step."""
        for name, parameter in self._live.items():
            self._averages[name].copy_(parameter)
            parameter.copy_(state[_LIVE + name])

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._live.items():
            before = parameter.clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(before)
