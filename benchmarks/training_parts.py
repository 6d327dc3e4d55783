"""Where the time of a training step goes: its parts by themselves, and the least each could take.

Parts are recorded and replayed as a step is, so that none waits for the host. The least is that of
the products (counted by PyTorch) at the rate of large matrices in bf16, or that of memory (what
goes in, comes out, and their gradients, each moved once) at the rate of a copy, whichever is more;
both rates are measured here.

Everything here runs on one side stream, and is captured on that stream. Autograd remembers for each
node on which stream it was made, and when a gradient reaches a node, makes the streams wait for
each other. A node made on the legacy default stream before a capture (that of a leaf, of a cast of
weights that autocast keeps, of whatever was computed beforehand) would so tie that stream to the
capture: "operation would make the legacy stream depend on a capturing blocking stream". See
https://github.com/pytorch/pytorch/issues/164302 and "Whole-network capture" in
https://docs.pytorch.org/docs/stable/notes/cuda.html.
"""

import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

import geoco.ops  # noqa: F401 (registers the operator that is counted here)
from geoco.config import Config
from geoco.data import ClipBatch
from geoco.models.build import build
from geoco.models.decoders import Fields
from geoco.models.geoco import GeoCo
from geoco.models.slots import Binding
from geoco.training.curriculum import Plan
from geoco.training.geoco_objective import GeoCoLosses, GeoCoObjective
from geoco.training.objective import Draws
from geoco.training.step import Stepper


@dataclass(frozen=True)
class Part:
    """Outputs of a model, and the leaves that their backward pass reaches."""

    name: str
    make: Callable[[GeoCo], Sequence[Tensor]]
    leaves: Callable[[GeoCo], Sequence[Tensor]] = field(default=lambda _: ())
    forward: bool = True  # whether it is part of the step's forward pass, too


def print_breakdown(
    stepper: Stepper, batch: ClipBatch, draws: Draws, plan: Plan, settings: Config
) -> None:
    """Print a table of the parts of a step by a plan, which the stepper was given before."""
    with side_stream(stepper.device):
        _print_parts(stepper, batch, draws, plan, settings)


def _print_parts(
    stepper: Stepper, batch: ClipBatch, draws: Draws, plan: Plan, settings: Config
) -> None:
    device = stepper.device
    twin = build(settings.model).to(device)  # not compiled, so that operations can be counted
    assert isinstance(stepper.model, GeoCo)
    assert isinstance(twin, GeoCo)
    twin.load_state_dict(stepper.model.state_dict())
    rate, bandwidth = _measure_rates(device)
    print(
        f"\nparts of a step, recorded; least at {rate / 1e12:.1f} TFLOP/s and "
        f"{bandwidth / 1e12:.2f} TB/s\n{'forward':>9} {'backward':>9} {'least':>9}"
    )
    whole = least_of_all = 0.0
    for part in _list_parts(stepper, batch, draws, plan, settings):
        forward, both = _measure_part(part, stepper)
        with stepper.fabric.autocast():
            least = _bound_time(part, twin, rate, bandwidth)
        backward = both - forward
        shown = f"{forward:9.2f}" if part.forward else f"{'':>9}"
        print(f"{shown} {backward:9.2f} {least:9.2f}  {part.name}", flush=True)
        whole += backward + (forward if part.forward else 0.0)
        least_of_all += least
    clip = measure_median(record(_make_update(stepper), device), device, 10)
    moved = 7 * 4 * sum(p.numel() for p in stepper.core) / bandwidth * 1e3
    print(f"{clip:9.2f} {'':>9} {moved:9.2f}  clipping and optimisers")
    print(f"{whole + clip:9.2f} {'':>9} {least_of_all + moved:9.2f}  together", flush=True)


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """On a GPU all that is made or run in here is on one stream, which is not the default one."""
    if device.type != "cuda":
        yield
        return
    outer, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(outer)
    with torch.cuda.stream(side):
        yield
    outer.wait_stream(side)


def record(run: Callable[[], object], device: torch.device) -> Callable[[int], object]:
    """What runs without the host: on a GPU a recording of it. To be called in `side_stream`."""
    if device.type != "cuda":
        return lambda _: run()
    stream = torch.cuda.current_stream()
    assert stream != torch.cuda.default_stream(), "a recording needs a stream of its own"
    for _ in range(3):
        run()
    graph = torch.cuda.CUDAGraph()
    # On this stream, and not on one of its own as by default: see the top of this file.
    with torch.cuda.graph(graph, stream=stream):
        run()
    return lambda _: graph.replay()


def measure_median(run: Callable[[int], object], device: torch.device, count: int) -> float:
    """Milliseconds; on a GPU of queued calls, since a training does not wait for each."""
    if device.type != "cuda":
        times = []
        for index in range(min(count, 3)):
            began = time.perf_counter()
            run(index)
            times.append(1000 * (time.perf_counter() - began))
        return statistics.median(times)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for index, event in enumerate(events[1:]):
        run(index)
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))


def _list_parts(
    stepper: Stepper, batch: ClipBatch, draws: Draws, plan: Plan, settings: Config
) -> list[Part]:
    model = stepper.model
    assert isinstance(model, GeoCo)
    sources = batch.source_numbers
    assert sources is not None
    video = batch.images()
    frames = video.flatten(0, 1)
    with torch.no_grad(), stepper.fabric.autocast():
        bound = model.bind(video, draws.positions)
        fields = model.decoder(bound.slots)
        seen = _leaf(model.encoder(frames))
    slots = bound.slots.map(_leaf)
    binding = Binding(slots, _leaf(bound.attention), _leaf(bound.gate))
    one = slots.map(lambda part: _leaf(part[:, :, 0]))
    commands = list(vars(slots).values())
    iterations = settings.model.slots.first_iterations

    def attend(m: GeoCo) -> list[Tensor]:
        result = m.attention(seen, m.attention.start_slots(draws.positions), iterations)
        return [*vars(result.slots).values(), result.attention]

    def decode(m: GeoCo) -> list[Tensor]:
        result = m.decoder(slots)
        assert result.rgb is not None
        return [result.logits, result.rgb]

    decoded = fields.map(_leaf)
    moved = _leaf(fields.logits[:, :, 0])
    stand_in = SimpleNamespace(
        bind=lambda *_, **__: binding,
        decode_slots=lambda _, alpha_only=False: Fields(moved[:, 0]) if alpha_only else decoded,
        selector=model.selector,
    )

    # The objective with all functions that the step calls, compiled or not as there.
    assert batch.source_numbers is not None
    source = batch.source_numbers
    ours, plain = copy.copy(stepper.objective), GeoCoObjective(model, settings.train)
    ours.model = plain.model = cast(Any, stand_in)

    def compute_losses(m: GeoCo) -> list[Tensor]:
        stand_in.selector = m.selector
        objective = ours if m is model else plain
        result = cast(
            GeoCoLosses,
            objective.compute(video, source, draws, stepper.weights, plan.mode),
        )
        return [loss for loss in (result.live, result.gated, result.selector) if loss is not None]

    inputs = [decoded.logits, cast(Tensor, decoded.rgb), moved, *commands, binding.attention]
    selector = (lambda m: list(m.selector.parameters())) if model.selector else (lambda _: [])
    return [
        Part("encoder", lambda m: [m.encoder(frames)], lambda m: [*m.encoder.parameters()]),
        Part("slot attention", attend, lambda m: [seen, *m.attention.parameters()]),
        Part("decoder", decode, lambda m: [*commands, *m.decoder.parameters()]),
        Part(
            "alpha once more, for pos and tail",
            lambda m: [m.decoder(slots, alpha_only=True).logits],
            lambda m: [slots.appearance, *m.decoder.parameters()],
            forward=False,
        ),
        Part(
            "counterfactual decode",
            lambda m: [m.decoder(one, alpha_only=True).logits],
            lambda m: [one.appearance, *m.decoder.parameters()],
        ),
        Part(
            "losses, pairs, selector and teacher",
            compute_losses,
            lambda m: [*inputs, *selector(m)],
        ),
    ]


def _make_update(stepper: Stepper) -> Callable[[], None]:
    for parameter in stepper.model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run() -> None:
        nn.utils.clip_grad_norm_(stepper.core, stepper.settings.clip)
        stepper.optimizer.step()
        if stepper.selector_optimizer is not None:
            stepper.selector_optimizer.step()

    return run


def _measure_part(part: Part, stepper: Stepper) -> tuple[float, float]:
    """Milliseconds of the forward pass, and of both passes."""
    model, device = stepper.model, stepper.device
    assert isinstance(model, GeoCo)

    def forward() -> Sequence[Tensor]:
        # Every time anew, as a step does: autocast keeps casts of weights while it is on.
        with stepper.fabric.autocast():
            return part.make(model)

    gradients = [torch.ones_like(output) for output in forward()]

    def both() -> None:
        torch.autograd.grad(forward(), part.leaves(model), gradients, allow_unused=True)

    return (
        measure_median(record(forward, device), device, 10),
        measure_median(record(both, device), device, 10),
    )


def _bound_time(part: Part, twin: GeoCo, rate: float, bandwidth: float) -> float:
    """Milliseconds that the part could not take less than, by products or by memory."""
    with FlopCounterMode(display=False) as counter:
        outputs = part.make(twin)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    backward = counter.get_total_flops()
    ways = 2 if part.forward else 1
    operations = backward + (forward if part.forward else 0)
    moved = ways * _count_bytes((*outputs, *part.leaves(twin)))
    return 1e3 * max(operations / rate, moved / bandwidth)


def _measure_rates(device: torch.device) -> tuple[float, float]:
    """Products of large matrices in bf16, times two, and bytes moved by a copy, per second."""
    size, amount = (8192, 2**30) if device.type == "cuda" else (512, 2**26)
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    source = torch.zeros(amount, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    a @ a
    product = measure_median(lambda _: a @ a, device, 10)
    copy = measure_median(lambda _: target.copy_(source), device, 10)
    return 2e3 * size**3 / product, 2e3 * amount / copy


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def _count_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@register_flop_formula(torch.ops.geoco.scale_steered_conv2d)
def _count_flops(x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    batch, inputs, height, width = x
    return int(2 * batch * height * width * inputs * weight[0] * weight[2] * weight[3])


@register_flop_formula(torch.ops.geoco.scale_steered_conv2d_backward)
def _count_backward_flops(
    grad: Any, x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any
) -> int:
    return 2 * _count_flops(x, weight)
