"""Bilinear upsampling: values by hand, PyTorch's own as the reference, every backend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from geoco.errors import GeocoError
from geoco.ops import upsample_bilinear

ROOT = Path(__file__).parents[2]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]  # fmt: skip
SIZES = [((16, 16), (32, 32)), ((32, 32), (64, 64)), ((5, 9), (12, 31)), ((2, 3), (2, 7))]


def test_corners_stay_and_the_middle_is_between() -> None:
    field = torch.tensor([[[[0.0, 2.0], [4.0, 6.0]]]])
    expected = torch.tensor([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0], [4.0, 5.0, 6.0]])
    torch.testing.assert_close(upsample_bilinear(field, 3, 3)[0, 0], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("small", "large"), SIZES)
def test_like_pytorch(
    device: str, kind: torch.dtype, small: tuple[int, int], large: tuple[int, int]
) -> None:
    """In half precision no further from the truth than twice PyTorch's own."""
    field = torch.randn(3, 5, *small, device=device, dtype=kind, requires_grad=True)
    grad = torch.randn(3, 5, *large, device=device, dtype=kind)

    def both(x: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return out.double(), torch.autograd.grad(out, x, grad.to(x.dtype))[0].double()

    wide = field.detach().double().requires_grad_()
    options = {"mode": "bilinear", "align_corners": True}
    truth = both(wide, F.interpolate(wide, large, **options))
    theirs = both(field, F.interpolate(field, large, **options))
    ours = both(field, upsample_bilinear(field, *large))
    for exact, peer, own in zip(truth, theirs, ours, strict=True):
        assert (own - exact).abs().max() <= 2 * (peer - exact).abs().max() + 1e-6


def test_gradients_by_differences() -> None:
    field = torch.randn(2, 3, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: upsample_bilinear(x, 7, 8), field)


def test_the_registration_is_complete() -> None:
    field = torch.randn(2, 3, 4, 4, requires_grad=True)
    actual = torch.library.opcheck(torch.ops.geoco.upsample_bilinear.default, (field, 8, 9))
    assert set(actual.values()) == {"SUCCESS"}


@pytest.mark.parametrize("size", [(1, 8), (8, 3)])
def test_what_cannot_be_upsampled_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(GeocoError, match="cannot be upsampled"):
        upsample_bilinear(torch.zeros(1, 1, 1 if size[0] == 1 else 4, 4), *size)


@pytest.mark.parametrize(("coarse", "fine"), [(2, 2), (2, 9), (3, 40), (5, 10), (16, 32), (32, 64)])
def test_the_reach_of_a_pixel(coarse: int, fine: int) -> None:
    """Of the coarser grid: how many of the finer are less than one of its own pixels away."""
    cuda = pytest.importorskip("geoco.ops.cuda", reason="the kernels need Triton")
    scale = (coarse - 1) / (fine - 1)
    near = [sum(abs(f * scale - c) < 1 - 1e-9 for f in range(fine)) for c in range(coarse)]
    assert cuda._compute_reach(coarse, fine) == max(near)


def test_triton_kernels_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="the interpreter needs Triton")
    script = """
import torch
import torch.nn.functional as F
from geoco.ops import cuda
for small, large in (((3, 4), (7, 9)), ((5, 5), (10, 10)), ((2, 3), (2, 40)), ((16, 5), (32, 6))):
    field = torch.randn(2, 18, *small, requires_grad=True)
    out = F.interpolate(field, large, mode="bilinear", align_corners=True)
    grad = torch.randn_like(out)
    fine = cuda.upsample_bilinear(field.detach(), *large)
    torch.testing.assert_close(fine, out, atol=1e-5, rtol=0)
    expected = torch.autograd.grad(out, field, grad)[0]
    coarse = cuda.upsample_bilinear_backward(grad, *small)
    torch.testing.assert_close(coarse, expected, atol=1e-5, rtol=0)
print("done")
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300
    )
    assert run.stdout.strip() == "done", run.stderr
