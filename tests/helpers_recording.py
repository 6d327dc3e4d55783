"""A training step on a GPU that is not there: whether it could be recorded as a CUDA graph.

Tensors are fakes of PyTorch's: they have shapes, types and the device `cuda`, but no values. A step
runs on them as it is, autocast, backward pass and optimisers included. What needs a value, has a
shape that depends on values, mixes devices or has to do with the CPU at all fails, and says where.

Run as a program, since what it does to PyTorch is not taken back. Each argument is a configuration
with overrides after it; one line of JSON is printed for each. Among the overrides
`spoil=WHAT:MODULE:FUNCTION` adds something that no step may have to what a function gives.
"""

import ctypes
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geoco import config
from geoco.data import ClipBatch
from geoco.models.build import build
from geoco.training.curriculum import Curriculum
from geoco.training.objective import Draws
from geoco.training.step import Stepper

CUDA = torch.device("cuda")


class WaitsForHost(Exception):
    """An operation that a recorded step may not have."""


# -- a device that is not there --------------------------------------------------------------------


def install_device() -> None:
    """Let fakes of CUDA tensors be used where PyTorch was built without CUDA.

    `_ensureCUDADeviceGuardSet` does so where it was built with CUDA and there is no GPU: what knows
    of CUDA's devices counts none. So first put something that counts none into its place.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    number = 1  # of CUDA among the kinds of devices
    if guards[number] is None:
        count_none = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
        method = ctypes.cast(count_none, ctypes.c_void_p).value
        methods = (ctypes.c_void_p * 64)(*[method] * 64)
        guard = ctypes.c_void_p(ctypes.addressof(methods))
        guards[number] = ctypes.addressof(guard)
        torch._C._ensureCUDADeviceGuardSet()
        assert guards[number] != ctypes.addressof(guard)
    # Autocast asks for the device, too.
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_: True  # type: ignore[assignment]
    # PyTorch's own backward pass has a thread for each device, of which there is none.
    torch.autograd.backward = run_backward  # type: ignore[assignment]
    torch.autograd.grad = compute_gradients  # type: ignore[assignment]


# -- what may not be in a step ---------------------------------------------------------------------

_WAITING = ("linalg_eig", "linalg_svd", "linalg_qr", "linalg_cholesky", "linalg_lu", "linalg_solve")

_OF_NUMBERS = ("aten::lift_fresh", "aten::fill_.Tensor", "prim::device")


class Watch(TorchDispatchMode):
    """Refuses what a recorded step may not have; without it all of that is only slow."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.name()
        by_mask = "index_put" in name and any(_is_mask(index) for index in args[1])
        if by_mask or any(part in name for part in _WAITING):
            raise WaitsForHost(f"{name} waits for the GPU")
        # What attention is computed by could also drop some of it at random; it never does.
        if torch.Tag.nondeterministic_seeded in func.tags and "attention" not in name:
            raise WaitsForHost(f"{name} draws random numbers that no seed and step decide")
        result = _KERNELS.get(name, func)(*args, **kwargs)
        for value in tree_leaves((args, kwargs, result)):
            if not isinstance(value, Tensor) or value.device.type == "cuda":
                continue
            # `values[...] = 0` is one number from the host, and a kernel that is given it.
            if name not in _OF_NUMBERS or value.ndim > 0:
                raise WaitsForHost(f"{name} has a tensor on the {value.device.type}")
        return result


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


class Ones(TorchDispatchMode):
    """Lets the host have values, all one: what is made once, before any step, may look at some."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0
        return func(*args, **(kwargs or {}))


def _run_cell(
    to_input: Tensor, to_hidden: Tensor, hidden: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(hidden), hidden.new_empty(len(hidden), 5 * hidden.shape[1])


def _run_cell_backward(
    grad: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    gates = grad.new_empty(len(grad), 3 * grad.shape[1])
    bias = gates.new_empty(gates.shape[1]) if has_bias else None
    return gates, torch.empty_like(gates), torch.empty_like(grad), bias, bias


# What PyTorch has no fakes of: a GRU cell as CUDA has it, and the step of AdamW, all in place.
_KERNELS = {
    "aten::_thnn_fused_gru_cell": _run_cell,
    "aten::_thnn_fused_gru_cell_backward": _run_cell_backward,
    "aten::_fused_adamw_.tensor_lr": lambda *_, **__: None,
}


# -- the backward pass -----------------------------------------------------------------------------


def run_backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool | None = None,
    inputs: Sequence[Tensor] = (),
) -> None:
    """As `torch.autograd.backward`, for leaves with `grad`."""
    assert not inputs
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    grads = [grad_tensors] if isinstance(grad_tensors, Tensor) else grad_tensors
    for _ in _walk_back(roots, grads):
        pass


def compute_gradients(
    outputs: Tensor,
    inputs: Sequence[Tensor],
    retain_graph: bool | None = None,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """As `torch.autograd.grad`, of one output."""
    edges = [get_gradient_edge(value) for value in inputs]
    nodes = {edge.node for edge in edges}
    arrived: dict[Node, Mapping[int, Tensor]] = {}
    for node, gradients in _walk_back([outputs], None, nodes):
        if node in nodes:
            arrived[node] = gradients
    found = tuple(arrived.get(edge.node, {}).get(edge.output_nr) for edge in edges)
    assert allow_unused or None not in found
    return found


def _walk_back(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None] | None,
    wanted: set[Node] | None = None,
) -> Iterator[tuple[Node, Mapping[int, Tensor]]]:
    """Every node with the gradients that have come to it, in the order of the backward pass.

    With nodes that are wanted, only what leads to them is computed, and leaves keep nothing.
    """
    edges = [get_gradient_edge(root) for root in roots]
    given = grads or [None] * len(roots)
    order = _sort_nodes([edge.node for edge in edges])
    needed = set(order) if wanted is None else _find_ways(order, wanted)
    pending: dict[Node, dict[int, Tensor]] = {}
    for edge, root, gradient in zip(edges, roots, given, strict=True):
        value = torch.ones_like(root) if gradient is None else gradient
        there = pending.setdefault(edge.node, {})
        there[edge.output_nr] = there[edge.output_nr] + value if edge.output_nr in there else value
    for node in order:
        arrived = pending.pop(node, None)
        if arrived is None or node not in needed:
            continue
        yield node, arrived
        goes_on = any(after in needed for after, _ in node.next_functions)
        if wanted is not None and not goes_on:
            continue
        _send_on(node, arrived, pending)


def _send_on(
    node: Node, arrived: Mapping[int, Tensor], pending: dict[Node, dict[int, Tensor]]
) -> None:
    """Apply one node, and add what it gives to what has come to others."""
    inputs = [arrived.get(n) for n in range(len(node._input_metadata))]
    with torch.no_grad():
        results = (node if callable(node) else node.apply)(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for (after, number), value in zip(node.next_functions, results, strict=False):
        if after is None or value is None:
            continue
        there = pending.setdefault(after, {})
        value = _fit(value, after._input_metadata[number])
        there[number] = there[number] + value if number in there else value


def _fit(value: Tensor, metadata: Any) -> Tensor:
    """In the shape and type of what it is the gradient of, as PyTorch does it."""
    if value.shape != torch.Size(metadata.shape):
        value = value.sum_to_size(metadata.shape)
    return value.to(metadata.dtype)


def _sort_nodes(roots: Sequence[Node]) -> list[Node]:
    """All nodes before what they lead to."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(after, False) for after, _ in node.next_functions if after is not None]
    return order[::-1]


def _find_ways(order: Sequence[Node], wanted: set[Node]) -> set[Node]:
    """The nodes from which one that is wanted can be reached."""
    ways: set[Node] = set()
    for node in reversed(order):
        if node in wanted or any(after in ways for after, _ in node.next_functions):
            ways.add(node)
    return ways


# -- steps -----------------------------------------------------------------------------------------


class Fabric:
    """What a step asks of Lightning's Fabric, on a GPU alone."""

    device, world_size = CUDA, 1

    def __init__(self, settings: config.Config) -> None:
        self._mixed = settings.train.precision == "bf16-mixed"

    @contextmanager
    def autocast(self) -> Iterator[None]:
        with torch.autocast("cuda", torch.bfloat16, enabled=self._mixed):
            yield


def check_modes(settings: config.Config) -> list[int]:
    """Take a step in each mode of the schedule; the first steps of the modes."""
    settings = config.override(settings, ["train.compile=false"])
    model = build(settings.model, pretrained=False)
    with FakeTensorMode(allow_fallback_kernels=False):
        move_tensors(model)
        curriculum = Curriculum(settings, model.cold_scale)
        with Ones():
            stepper = Stepper(model, settings, Fabric(settings))  # type: ignore[arg-type]
        starts = curriculum.mode_starts()
        for start in starts:
            plan = curriculum.plan(start)
            batch, draws = make_inputs(settings, model, plan.mode.frames)
            stepper._apply_plan(plan)
            with Watch():
                stepper._step(batch, draws, plan.mode)
    return starts


def move_tensors(model: nn.Module) -> None:
    """To the device, as `to` does it with tensors that are no fakes."""

    def move(value: Tensor) -> Tensor:
        return torch.empty(value.shape, dtype=value.dtype, device=CUDA)

    for part in model.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(move(value), value.requires_grad))
        for name, value in list(part.named_buffers(recurse=False)):
            setattr(part, name, move(value))


def make_inputs(settings: config.Config, model: Any, frames: int) -> tuple[ClipBatch, Draws]:
    """A batch on the device, with features where they are kept."""
    batch, size = settings.train.batch, model.size
    features = None
    if settings.train.features != "step":
        pictures = torch.zeros(1, 3, size, size, device=CUDA)
        shape = model.compute_features(pictures).shape[1:]
        views = 2 if settings.train.flip else 1
        features = torch.zeros(batch, frames, views, *shape, dtype=torch.bfloat16, device=CUDA)
    clips = ClipBatch(
        video=torch.zeros(batch, frames, 3, size, size, dtype=torch.uint8, device=CUDA),
        sources=("",) * batch,
        frames=torch.zeros(batch, frames, dtype=torch.int64, device=CUDA),
        source_numbers=torch.zeros(batch, dtype=torch.int64, device=CUDA),
        features=features,
    )
    drawn = Draws.sample(torch.Generator(), batch, frames, model.slot_count)
    return clips, Draws(*(value.to(CUDA) for value in vars(drawn).values()))


# -- what must be found ----------------------------------------------------------------------------

SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "item": lambda value: value * value.sum().item(),
    "condition": lambda value: value if value.sum() > 0 else -value,
    "mask": lambda value: value + value.expand(2)[value.expand(2) > 0].sum(),
    "moved": lambda value: value + torch.tensor([1.0, 2.0]).to(value.device).sum(),
    "mixed": lambda value: value + torch.arange(2).sum(),
    "random": lambda value: value + torch.rand((), device=value.device),
}


@contextmanager
def spoil(what: str) -> Iterator[None]:
    """A function whose result has something done to it that no step may do."""
    kind, module_name, name = what.split(":")
    module = importlib.import_module(module_name)
    function = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: SPOILS[kind](function(*args, **kwargs)))
    try:
        yield
    finally:
        setattr(module, name, function)


def main(arguments: Sequence[str]) -> None:
    install_device()
    for argument in arguments:
        name, *rest = argument.split()
        overrides = [part for part in rest if not part.startswith("spoil=")]
        spoils = [part.removeprefix("spoil=") for part in rest if part.startswith("spoil=")]
        line: dict[str, Any] = {"config": argument}
        before = time.perf_counter()
        try:
            with ExitStack() as stack:
                for what in spoils:
                    stack.enter_context(spoil(what))
                line["modes"] = check_modes(config.load(Path(name), overrides))
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
            places = traceback.extract_tb(error.__traceback__)
            line["where"] = [f"{place.filename}:{place.lineno}" for place in places]
        print(json.dumps(line | {"seconds": time.perf_counter() - before}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
