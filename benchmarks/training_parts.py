"""Where the time of a training step goes: its parts by themselves, and the least each could take.

Parts are recorded and replayed as a step is, so that none waits for the host. The least is that of
the products (counted by PyTorch) at the rate of large matrices in bf16, or that of memory (what
goes in, comes out, and their gradients, each moved once) at the rate of a copy, whichever is more;
both rates are measured here.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
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
from geoco.training import objective
from geoco.training.curriculum import Plan
from geoco.training.step import Stepper


@dataclass(frozen=True)
class Part:
    """Outputs from a model, and the leaves that the way back reaches."""

    name: str
    make: Callable[[GeoCo], Sequence[Tensor]]
    leaves: Callable[[GeoCo], Sequence[Tensor]] = field(default=lambda _: ())
    forward: bool = True  # whether the step goes this way forward, too


def breakdown(
    stepper: Stepper, batch: ClipBatch, draws: objective.Draws, plan: Plan, settings: Config
) -> None:
    """Print a table of the parts of the step that `plan` says."""
    device = stepper.device
    twin = build(settings.model).to(device)  # not compiled, so that operations can be counted
    assert isinstance(stepper.model, GeoCo)
    assert isinstance(twin, GeoCo)
    twin.load_state_dict(stepper.model.state_dict())
    rate, bandwidth = _rates(device)
    print(
        f"\nparts of a step, recorded; least at {rate / 1e12:.1f} TFLOP/s and "
        f"{bandwidth / 1e12:.2f} TB/s\n{'forward':>9} {'back':>9} {'least':>9}"
    )
    whole = least_of_all = 0.0
    for part in _parts(stepper, stepper.model, batch, draws, plan, settings):
        with stepper.fabric.autocast():
            there, both = _times(part, stepper.model, device)
            least = _least(part, twin, rate, bandwidth)
        back = both - there
        forward = f"{there:9.2f}" if part.forward else f"{'':>9}"
        print(f"{forward} {back:9.2f} {least:9.2f}  {part.name}", flush=True)
        whole += back + (there if part.forward else 0.0)
        least_of_all += least
    clip = median(recorded(_optimizers(stepper), device), device, 10)
    moved = 7 * 4 * sum(p.numel() for p in stepper.core) / bandwidth * 1e3
    print(f"{clip:9.2f} {'':>9} {moved:9.2f}  clipping and optimisers")
    print(f"{whole + clip:9.2f} {'':>9} {least_of_all + moved:9.2f}  together", flush=True)


def recorded(run: Callable[[], object], device: torch.device) -> Callable[[int], object]:
    """What runs without the host: on a GPU a recording of it."""
    if device.type != "cuda":
        return lambda _: run()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda _: graph.replay()


def median(run: Callable[[int], object], device: torch.device, count: int) -> float:
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


def _parts(
    stepper: Stepper,
    model: GeoCo,
    batch: ClipBatch,
    draws: objective.Draws,
    plan: Plan,
    settings: Config,
) -> list[Part]:
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
    start = model.attention.first(draws.positions)
    iterations = settings.model.slots.first_iterations

    def attended(m: GeoCo) -> list[Tensor]:
        result = m.attention(seen, start, iterations)
        return [*vars(result.slots).values(), result.attention]

    def drawn(m: GeoCo) -> list[Tensor]:
        result = m.decoder(slots)
        assert result.rgb is not None
        return [result.logits, result.rgb]

    given = fields.map(_leaf)
    moved = _leaf(fields.logits[:, :, 0])
    stand_in = SimpleNamespace(
        bind=lambda *_, **__: binding,
        decode_slots=lambda _, alpha_only=False: Fields(moved[:, 0]) if alpha_only else given,
        selector=model.selector,
    )

    def judged(m: GeoCo) -> list[Tensor]:
        stand_in.selector = m.selector
        result = objective.objective(
            cast(GeoCo, stand_in), video, sources, draws, stepper.weights, plan.mode,
            settings.train, stepper._parts if m is model else objective.Parts(),
        )  # fmt: skip
        return [loss for loss in (result.live, result.gated, result.selector) if loss is not None]

    judging = [given.logits, cast(Tensor, given.rgb), moved, *commands, binding.attention]
    selector = (lambda m: list(m.selector.parameters())) if model.selector else (lambda _: [])
    return [
        Part("encoder", lambda m: [m.encoder(frames)], lambda m: [*m.encoder.parameters()]),
        Part("slot attention", attended, lambda m: [seen, *m.attention.parameters()]),
        Part("decoder", drawn, lambda m: [*commands, *m.decoder.parameters()]),
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
            judged,
            lambda m: [*judging, *selector(m)],
        ),
    ]


def _optimizers(stepper: Stepper) -> Callable[[], None]:
    for parameter in stepper.model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run() -> None:
        nn.utils.clip_grad_norm_(stepper.core, stepper.settings.clip)
        stepper.optimizer.step()
        if stepper.selector_optimizer is not None:
            stepper.selector_optimizer.step()

    return run


def _times(part: Part, model: GeoCo, device: torch.device) -> tuple[float, float]:
    """Milliseconds forward, and forward and back."""
    gradients = [torch.ones_like(output) for output in part.make(model)]

    def both() -> None:
        outputs = part.make(model)
        torch.autograd.grad(outputs, part.leaves(model), gradients, allow_unused=True)

    there = median(recorded(lambda: part.make(model), device), device, 10)
    return there, median(recorded(both, device), device, 10)


def _least(part: Part, twin: GeoCo, rate: float, bandwidth: float) -> float:
    """Milliseconds that the part could not take less than, by products or by memory."""
    with FlopCounterMode(display=False) as counter:
        outputs = part.make(twin)
    there = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    back = counter.get_total_flops()
    ways = 2 if part.forward else 1
    operations = back + (there if part.forward else 0)
    moved = ways * _bytes((*outputs, *part.leaves(twin)))
    return 1e3 * max(operations / rate, moved / bandwidth)


def _rates(device: torch.device) -> tuple[float, float]:
    """Products of large matrices in bf16, times two, and bytes moved by a copy, per second."""
    size, amount = (8192, 2**30) if device.type == "cuda" else (512, 2**26)
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    source = torch.zeros(amount, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    a @ a
    product = median(lambda _: a @ a, device, 10)
    copy = median(lambda _: target.copy_(source), device, 10)
    return 2e3 * size**3 / product, 2e3 * amount / copy


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@register_flop_formula(torch.ops.geoco.scale_steered_conv2d)
def _steered(x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    batch, inputs, height, width = x
    return int(2 * batch * height * width * inputs * weight[0] * weight[2] * weight[3])


@register_flop_formula(torch.ops.geoco.scale_steered_conv2d_backward)
def _steered_back(grad: Any, x: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * _steered(x, weight)
