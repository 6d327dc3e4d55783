"""Sums and donors over all processes of a training.

A loss is a sum over samples divided by a count over all processes, so that the sum of the
processes' gradients is the gradient of the whole batch, however it was divided.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Sum = Callable[[Tensor], Tensor]  # of a count, over all processes


def sum_locally(count: Tensor) -> Tensor:
    """The sum where there is one process."""
    return count


def sum_over_ranks(count: Tensor) -> Tensor:
    """The sum over all processes of a value without gradient."""
    if not _has_ranks():
        return count
    count = count.detach().clone()
    dist.all_reduce(count)
    return count


def gather_rows(value: Tensor) -> Tensor:
    """The rows of all processes, in order; gradients go back to the process of each row."""
    if not _has_ranks():
        return value
    result: Tensor = _Gather.apply(value)
    return result


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, value.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]
