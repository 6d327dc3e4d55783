"""Decoders: equality where the paper says equal, covariance where it proves it, cheap edits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import build_decoder
from torch import Tensor

from geoco import geometry
from geoco.models.decoders import CANONICAL_FILL, Decoder, continue_reference_scale
from geoco.models.slots import Slots

ROOT = Path(__file__).parents[2]
DESIGNS = ("steered", "conventional", "canonical")
SMALL_LAYERS = ((8, 5), (16, 3), (16, 3))


def small(design: str = "steered", micro: bool = True) -> Decoder:
    torch.manual_seed(0)
    return build_decoder(design, 6, broadcast=4, layers=SMALL_LAYERS, micro=micro).double()


def some_slots(*leading: int, dim: int = 6, dtype: torch.dtype = torch.float64) -> Slots:
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=dtype)

    return Slots(
        uniform(*leading, dim) * 2 - 1, uniform(*leading, 2) - 0.5, uniform(*leading) * 0.3 + 0.1
    )


def with_weights_of(target: Decoder, source: Decoder) -> Decoder:
    """The same weights in a decoder without gains."""
    state = {
        name: value for name, value in source.state_dict().items() if name in target.state_dict()
    }
    target.load_state_dict(state)
    return target


# -- what is drawn ---------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
def test_shapes_follow_the_slots(design: str) -> None:
    fields = small(design)(some_slots(2, 3, 4))
    assert fields.rgb is not None
    assert fields.features is not None
    assert fields.logits.shape == (2, 3, 4, 16, 16)
    assert fields.rgb.shape == (2, 3, 4, 3, 16, 16)
    assert fields.features.shape == (2, 3, 4, 6, 16, 16)
    assert fields.rgb.min() >= 0
    assert fields.rgb.max() <= 1


def test_a_steered_decoder_step_by_step() -> None:
    """The whole of it again, plainly: coordinates, upsampling, convolution, concatenated style."""
    decoder, slots = small(), some_slots(3)
    torch.nn.init.normal_(decoder.micro.weight)  # type: ignore[union-attr]
    fields = decoder(slots)
    for index in range(3):
        a, p, s = slots.appearance[index], slots.position[index], slots.scale[index]
        where = (geometry.build_grid(4, 4, dtype=torch.float64) - p) / (5 * s + 1e-8)
        field = (a + decoder.place(where)).permute(2, 0, 1)[None]
        for (size, _), layer in zip(SMALL_LAYERS, decoder.refine, strict=True):
            field = F.interpolate(field, (size, size), mode="bilinear", align_corners=True)
            field = torch.relu(layer(field, s[None]))
        logits = decoder.alpha(field)[0, 0]
        style = decoder.style(a)[None, :, None, None].expand(1, 6, 16, 16)
        features = torch.relu(decoder.fuse(torch.cat((field, style), 1)))
        plain = decoder.color(features, s[None])[0]
        assert decoder.micro is not None
        residual = 0.5 * torch.tanh(decoder.micro(features)[0])
        torch.testing.assert_close(fields.logits[index], logits)
        torch.testing.assert_close(fields.features[index], features[0])  # type: ignore[index]
        torch.testing.assert_close(fields.plain_rgb[index], torch.sigmoid(plain))  # type: ignore[index]
        torch.testing.assert_close(fields.rgb[index], torch.sigmoid(plain + residual))  # type: ignore[index]


def test_at_the_reference_scale_steered_is_conventional() -> None:
    steered, slots = small(), some_slots(4)
    conventional = with_weights_of(small("conventional"), steered)
    at_reference = Slots(slots.appearance, slots.position, torch.full_like(slots.scale, 0.2))
    mine, theirs = steered(at_reference), conventional(at_reference)
    torch.testing.assert_close(mine.logits, theirs.logits)
    torch.testing.assert_close(mine.rgb, theirs.rgb)
    elsewhere = Slots(slots.appearance, slots.position, torch.full_like(slots.scale, 0.3))
    assert (steered(elsewhere).logits - conventional(elsewhere).logits).abs().max() > 1e-3


@pytest.mark.parametrize("design", DESIGNS)
def test_alpha_alone_is_the_same_alpha(design: str) -> None:
    decoder, slots = small(design), some_slots(2, 3)
    alone = decoder(slots, alpha_only=True)
    assert alone.rgb is None
    assert torch.equal(alone.logits, decoder(slots).logits)


@pytest.mark.parametrize("design", DESIGNS)
def test_slots_are_drawn_one_by_one(design: str) -> None:
    decoder, slots = small(design), some_slots(5)
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = decoder(Slots(slots.appearance[order], slots.position[order], slots.scale[order]))
    torch.testing.assert_close(shuffled.logits, decoder(slots).logits[order])


def test_the_residual_starts_at_nothing_and_stays_bounded() -> None:
    decoder, slots = small(), some_slots(3)
    fields = decoder(slots)
    assert torch.equal(fields.rgb, fields.plain_rgb)
    torch.nn.init.constant_(decoder.micro.weight, 1e3)  # type: ignore[union-attr]
    fields = decoder(slots)
    step = torch.logit(fields.rgb) - torch.logit(fields.plain_rgb)
    assert step.abs().max().item() == pytest.approx(0.5, abs=1e-6)
    before = decoder(slots).logits
    torch.nn.init.zeros_(decoder.micro.weight)  # type: ignore[union-attr]
    assert torch.equal(decoder(slots).logits, before)  # alpha never sees it
    assert small(micro=False).micro is None


@pytest.mark.parametrize("design", DESIGNS)
def test_detached_commands_still_teach_appearance_and_weights(design: str) -> None:
    decoder, slots = small(design), some_slots(3)
    parts = [
        part.clone().requires_grad_() for part in (slots.appearance, slots.position, slots.scale)
    ]
    live = Slots(*parts)
    commanded = Slots(parts[0], parts[1].detach(), parts[2].detach())
    inputs = [*parts, *decoder.alpha.parameters(), *decoder.refine.parameters()]
    logits = decoder(commanded, alpha_only=True).logits.square().sum()
    grads = torch.autograd.grad(logits, inputs, allow_unused=True)
    assert grads[1] is None
    assert grads[2] is None
    assert grads[0] is not None
    assert grads[0].abs().max() > 0
    assert all(grad is not None for grad in grads[3:])
    everything = torch.autograd.grad(decoder(live, alpha_only=True).logits.square().sum(), parts)
    if design != "conventional":
        assert all(grad.abs().max() > 0 for grad in everything)


# -- the canonical canvas --------------------------------------------------------------------------


def test_the_canonical_warp_against_a_loop() -> None:
    decoder, slots = small("canonical"), some_slots(3)
    centered = Slots(
        slots.appearance, torch.zeros(3, 2).double(), torch.full((3,), 0.2, dtype=torch.float64)
    )
    canvas, warped = decoder(centered), decoder(slots)
    points = np.linspace(-1, 1, 16)

    def bilinear(field: np.ndarray, x: float, y: float, fill: float) -> float:
        column, row = (x + 1) / 2 * 15, (y + 1) / 2 * 15
        total = 0.0
        for r in (int(np.floor(row)), int(np.floor(row)) + 1):
            for c in (int(np.floor(column)), int(np.floor(column)) + 1):
                weight = (1 - abs(row - r)) * (1 - abs(column - c))
                value = field[r, c] if 0 <= r < 16 and 0 <= c < 16 else fill
                total += weight * value
        return total

    colors = torch.logit(canvas.rgb).detach().numpy()  # type: ignore[arg-type]
    logits = canvas.logits.detach().numpy()
    for index in range(3):
        (px, py), s = slots.position[index].tolist(), slots.scale[index].item()
        for row, column in ((0, 0), (3, 12), (8, 8), (15, 5), (15, 15)):
            x, y = (points[column] - px) * 0.2 / s, (points[row] - py) * 0.2 / s
            alpha = bilinear(logits[index], x, y, CANONICAL_FILL)
            assert warped.logits[index, row, column].item() == pytest.approx(alpha, abs=1e-6)
            for channel in range(3):
                value = bilinear(colors[index, channel], x, y, 0.0)
                actual = torch.logit(warped.rgb[index, channel, row, column]).item()  # type: ignore[index]
                assert actual == pytest.approx(value, abs=1e-6)


def test_the_canonical_canvas_is_drawn_once_for_all_places() -> None:
    decoder, slots = small("canonical"), some_slots(1)
    tiny = Slots(slots.appearance, torch.zeros(1, 2).double(), torch.full((1,), 0.02).double())
    logits = decoder(tiny).logits
    assert (logits[0, 0] == CANONICAL_FILL).all()  # a tenth of the size: the border is outside
    assert (logits[0, 7:9, 7:9] > CANONICAL_FILL).all()


# -- covariance ------------------------------------------------------------------------------------


def covariance_error(
    design: str, fineness: int, shift: tuple[float, float], factor: float
) -> float:
    """Relative error of edited logits against warped ones, on a canvas three times as large.

    A finer grid with a reference scale as much smaller samples the same continuous decoder.
    """
    torch.manual_seed(0)

    def finer(size: int) -> int:
        return fineness * (size - 1) + 1

    layers = tuple((finer(size), kernel) for size, kernel in ((17, 5), (33, 3), (33, 3)))
    decoder = build_decoder(design, 6, broadcast=finer(9), layers=layers).double()
    decoder.set_reference_scale(0.2 / fineness)
    slots = some_slots(4)
    p, s = slots.position * 0.5, slots.scale
    moved = Slots(slots.appearance, p + torch.tensor(shift).double(), s * factor)
    with torch.no_grad():
        fact = decoder(Slots(slots.appearance, p, s), extent=3, alpha_only=True).logits
        edit = decoder(moved, extent=3, alpha_only=True).logits
    points = geometry.build_grid(layers[-1][0], layers[-1][0], extent=3, dtype=torch.float64)
    back = (points - moved.position[:, None, None]) / factor + p[:, None, None]
    warped = F.grid_sample(fact[:, None], back / 3, align_corners=True)[:, 0]
    # Pixels of the usual canvas whose origin lies in it too; constants would hide the error.
    domain = (points.abs().amax(-1) <= 1) & (back.abs().amax(-1) <= 1)
    error, truth = (edit - warped)[domain], warped[domain]
    return float(error.square().mean().sqrt() / (truth - truth.mean()).square().mean().sqrt())


@pytest.mark.parametrize(
    ("shift", "factor"), [((0.19, -0.13), 1.0), ((0.0, 0.0), 1.5), ((0.0, 0.0), 0.75)]
)
def test_raw_logits_become_covariant_as_the_grid_gets_finer(
    shift: tuple[float, float], factor: float
) -> None:
    errors = [covariance_error("steered", fineness, shift, factor) for fineness in (1, 2, 4)]
    assert errors[1] < 0.7 * errors[0]
    assert errors[2] < 0.7 * errors[1]
    assert errors[2] < 0.02


def test_a_conventional_decoder_is_not_covariant_to_scale() -> None:
    conventional = covariance_error("conventional", 4, (0.0, 0.0), 1.5)
    assert conventional > 3 * covariance_error("steered", 4, (0.0, 0.0), 1.5)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_larger_canvas_continues_the_usual_one(design: str) -> None:
    """Far from the edge, where no padding reaches, both canvases hold the same values."""
    torch.manual_seed(0)
    decoder = build_decoder(design, 6, broadcast=16, layers=((32, 3), (64, 3))).double()
    slots = some_slots(3)
    usual, large = decoder(slots).logits, decoder(slots, extent=3).logits
    assert large.shape[-1] == 3 * 63 + 1
    inner = large[:, 63:127, 63:127]
    middle = slice(16, 48)
    torch.testing.assert_close(inner[:, middle, middle], usual[:, middle, middle])


# -- edits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
def test_one_changed_slot_is_one_slot_drawn(design: str) -> None:
    decoder, slots = small(design), some_slots(2, 5)
    before = decoder(slots)
    position = slots.position.clone()
    position[:, 3] += 0.2
    changed = Slots(slots.appearance, position, slots.scale)
    drawn: list[int] = []
    decoder.alpha.register_forward_hook(lambda module, inputs, output: drawn.append(len(output)))
    one = decoder(
        Slots(changed.appearance[:, 3:4], changed.position[:, 3:4], changed.scale[:, 3:4])
    )
    assert drawn == [2]  # one slot in each of two scenes
    after, expected = before.with_slot(3, one), decoder(changed)
    for name in ("logits", "rgb", "plain_rgb", "features"):
        torch.testing.assert_close(getattr(after, name), getattr(expected, name))
    assert torch.equal(after.logits[:, :3], before.logits[:, :3])


# -- schedule, counts, precision -------------------------------------------------------------------


def test_the_reference_scale_continues_as_printed() -> None:
    cold = geometry.compute_uniform_scale(16)
    assert continue_reference_scale(0, cold) == cold
    assert continue_reference_scale(1999, cold) == cold
    for step in (2000, 5000, 9998):
        share = (step - 1999) / 8000
        expected = float(np.exp((1 - share) * np.log(cold) + share * np.log(0.2)))
        assert continue_reference_scale(step, cold) == pytest.approx(expected)
    assert continue_reference_scale(9999, cold) == pytest.approx(0.2)
    assert continue_reference_scale(70_000, cold) == pytest.approx(0.2)


def test_the_reference_scale_reaches_every_layer() -> None:
    decoder, slots = small(), some_slots(3)
    before = decoder(slots)
    decoder.set_reference_scale(0.4)
    twice = Slots(slots.appearance, slots.position, slots.scale)
    assert (decoder(twice).logits - before.logits).abs().max() > 1e-4
    scales = [value for name, value in decoder.state_dict().items() if "reference_scale" in name]
    assert [value.item() for value in scales] == pytest.approx([0.4] * 4)


def test_parameters_are_those_of_the_release_but_for_one_gain() -> None:
    """The release counts 266,318 for its decoder, seven of them gains. Ours has six: five refining
    layers and the colour head. A pointwise alpha head has no taps for a seventh to spread."""
    count = sum(parameter.numel() for parameter in build_decoder("steered", 64).parameters())
    assert count == 266_318 - 1
    for design in ("conventional", "canonical"):
        plain = build_decoder(design, 64)
        assert sum(p.numel() for p in plain.parameters()) == 266_318 - 7


def half_error(decoder: Decoder, slots: Slots, device: str) -> float:
    decoder, slots = decoder.to(device), slots.to(device)
    with torch.no_grad():
        exact = decoder(slots)
        with torch.autocast(device, dtype=torch.bfloat16):
            half = decoder(slots)
    assert half.logits.dtype == torch.float32
    return float((half.logits - exact.logits).norm() / exact.logits.norm())


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_half_precision_is_as_good_as_a_plain_decoder_in_half_precision(device: str) -> None:
    torch.manual_seed(0)
    shape = {"broadcast": 8, "layers": ((16, 5), (32, 3), (32, 3))}
    steered = build_decoder("steered", 32, **shape)
    conventional = with_weights_of(build_decoder("conventional", 32, **shape), steered)
    slots = some_slots(8, dim=32, dtype=torch.float32)
    assert half_error(steered, slots, device) <= 2 * half_error(conventional, slots, device)


def test_compiled_is_eager() -> None:
    """In a process of its own, where no checker of annotations stands between compiler and code."""
    script = """
import torch
from geoco import config
from geoco.models.decoders import DECODERS
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
# On the CPU, generating code takes a minute; what it is generated from is checked all the same.
backend = "inductor" if device == "cuda" else "aot_eager"
torch.backends.cudnn.allow_tf32 = False
shape = config.DecoderConfig(broadcast=4, layers=((8, 5), (16, 3)))
for design in ("steered", "conventional", "canonical"):
    decoder = DECODERS[design](shape, 8).to(device)
    parts = [torch.randn(2, 3, 8), torch.rand(2, 3, 2) - 0.5, torch.rand(2, 3) * 0.3 + 0.1]
    slots = Slots(*(part.to(device).requires_grad_() for part in parts))
    compiled = torch.compile(decoder, fullgraph=True, backend=backend)
    inputs = [slots.appearance, slots.position, slots.scale, *decoder.parameters()]
    results = []
    for draw in (decoder, compiled):
        fields = draw(slots)
        loss = fields.logits.square().sum() + fields.rgb.square().sum()
        results.append([fields.logits, *torch.autograd.grad(loss, inputs)])
    for eager, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, eager, rtol=2e-4, atol=2e-4)
settings = config.ModelConfig(
    slots=config.SlotsConfig(count=3, dim=8, update_dim=8, grid_dim=8),
    encoder=config.ConvEncoderConfig(width=8),
    decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
)
model = GeoCo(settings).to(device)
video = torch.rand(2, 2, 3, 16, 16, device=device)
positions = torch.rand(2, 3, 2, device=device) * 2 - 1
binding = torch.compile(model.bind, fullgraph=True, backend=backend)(video, positions)
plain = model.bind(video, positions)
torch.testing.assert_close(binding.attention, plain.attention, rtol=1e-4, atol=1e-5)
torch.testing.assert_close(binding.slots.appearance, plain.slots.appearance, rtol=1e-4, atol=1e-4)
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=900,
    )
    assert run.stdout.strip().endswith("done"), run.stderr
