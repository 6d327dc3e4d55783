"""A device that is not there, with values: tensors that say `cuda` and are on the CPU.

What may wait for the GPU, evaluation and validation, can run on them from end to end. As on a GPU,
tensors of two devices cannot be mixed, and NumPy reads none of them before `.cpu()`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = torch.device("cuda", 0)
# These take tensors of two devices: indices may be on the CPU, and copies are what they are for.
_TO, _TENSOR = Tensor.to, torch.tensor
_MIXING = ("aten::copy_", "aten::_to_copy")
_INDEXING = ("aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class MixesDevices(Exception):
    """An operation that a GPU would refuse."""


class Elsewhere(Tensor):
    """A tensor on the CPU that says that it is not."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Elsewhere":
        outer = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype
        )
        outer.inner = inner
        return outer

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return ELSEWHERE

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise MixesDevices("NumPy reads no tensor of a GPU")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise MixesDevices("NumPy reads no tensor of a GPU")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class Devices(TorchDispatchMode):
    """Makes tensors there where `device` says so."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def device_elsewhere() -> Iterator[torch.device]:
    """The device can be used in here."""
    with (
        mock.patch.object(torch.cuda, "_lazy_init"),
        mock.patch.object(Tensor, "pin_memory", lambda self: self),
        # PyTorch itself sees tensors on the CPU alone, and knows of no other device.
        mock.patch.object(Tensor, "to", _move),
        mock.patch.object(Tensor, "cpu", lambda self: _move(self, "cpu")),
        mock.patch.object(torch, "tensor", _make),
        Devices(),
    ):
        yield ELSEWHERE


def move_module(module: nn.Module) -> None:
    """A module's tensors to the device."""
    for part in module.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            part._parameters[name] = nn.Parameter(Elsewhere(value.detach()), requires_grad=False)
        for name, value in list(part.named_buffers(recurse=False)):
            part._buffers[name] = Elsewhere(value)


def _move(value: Tensor, *target: Any, **more: Any) -> Tensor:
    """As `Tensor.to`."""
    if target and isinstance(target[0], Tensor):
        target = (target[0].device, target[0].dtype)
    device, dtype, _, _ = torch._C._nn._parse_to(*target, **more)
    device, dtype = device or value.device, dtype or value.dtype
    if device.type == value.device.type and dtype == value.dtype:
        return value
    plain = _TO(_unwrap(value), dtype)
    return Elsewhere(plain) if device.type == "cuda" else plain


def _make(*values: Any, device: Any = "cpu", **more: Any) -> Tensor:
    """As `torch.tensor`."""
    return _move(_TENSOR(*values, **more), device or "cpu")


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = func.name()
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = any(isinstance(leaf, Elsewhere) for leaf in leaves)
    if there and not name.startswith(_MIXING):
        _refuse_mixed(name, args, leaves)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == "cuda"
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
    if name.endswith("_") or name.split(".")[0].endswith("_"):
        return args[0]  # in place: where it was
    if name == "aten::_to_copy" and leaves[0].device.type == "cpu" and not there:
        return result
    return tree_map(lambda value: _wrap(value, there), result)


def _refuse_mixed(name: str, args: tuple[Any, ...], leaves: list[Tensor]) -> None:
    if name.startswith(_INDEXING) and isinstance(args[0], Elsewhere):
        leaves = [args[0], *args[2:3]]
    for leaf in leaves:
        if isinstance(leaf, Tensor) and not isinstance(leaf, Elsewhere) and leaf.ndim > 0:
            raise MixesDevices(f"{name} has a tensor on the CPU beside others on the GPU")


def _unwrap(value: Any) -> Any:
    return value.inner if isinstance(value, Elsewhere) else value


def _wrap(value: Any, there: bool) -> Any:
    return Elsewhere(value) if there and type(value) is Tensor else value
