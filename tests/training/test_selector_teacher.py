"""The selector's teacher and losses, against loops over pixels and groups."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from geoco import config
from geoco.config.training import SelectorTeacherConfig, SelectorTrainingConfig
from geoco.models import compositing
from geoco.models.decoders import Fields
from geoco.models.selector import Domain, Selector, compute_densities, find_domain
from geoco.training import distributed
from geoco.training.selector_teacher import (
    Labels,
    label_pixels,
    masked_quantile,
    resembles_background,
    selector_loss,
    smoothstep,
)

DEPLOYMENT = config.SelectorConfig(least_area=3)
# Narrow enough on small random scenes for every condition to be met here and missed there.
TEACHER = SelectorTeacherConfig(window=3, most_error=0.6, harmful=-0.2, individual=-0.4)
TRAINING = SelectorTrainingConfig()


def scene(seed: int = 0, kind: torch.dtype = torch.float64) -> tuple[Tensor, Fields, Tensor]:
    """Two random images of 12 x 12 pixels with four slots; slot 1 owns most of the border."""
    torch.manual_seed(seed)
    logits = torch.randn(2, 4, 12, 12, dtype=kind)
    logits[:, 1] += 0.8
    rgb = torch.rand(2, 4, 3, 12, 12, dtype=kind)
    image = compositing.composite(rgb, compositing.compute_alpha(logits))
    image = image + 0.1 * torch.randn_like(image)
    image[:, :, 6:] = rgb[:, 1, :, 6:]  # where background would do better
    features = torch.randn(2, 4, 6, 12, 12, dtype=kind)
    attention = (2 * torch.randn(2, 4, 16, dtype=kind)).softmax(-1)
    return image, Fields(logits, rgb, torch.rand_like(rgb), features), attention


def step(value: float, low: float, high: float) -> float:
    share = min(max((value - low) / (high - low), 0), 1)
    return share**2 * (3 - 2 * share)


def local_errors(image: np.ndarray, background: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of one scene: the error against the mean of the background around, and its pixels."""
    size, reach = image.shape[-1], TEACHER.window // 2
    error, count = np.zeros((size, size)), np.zeros((size, size))
    for y in range(size):
        for x in range(size):
            near = [
                image[:, v, u]
                for v in range(max(y - reach, 0), min(y + reach + 1, size))
                for u in range(max(x - reach, 0), min(x + reach + 1, size))
                if background[v, u]
            ]
            mean = np.mean(near, 0) if near else np.zeros(3)
            error[y, x], count[y, x] = np.mean((image[:, y, x] - mean) ** 2), len(near)
    return error, count


def by_loops(image: Tensor, fields: Fields, attention: Tensor, domain: Domain) -> list[dict]:
    """Every ingredient of the labels at every pixel of the domain."""
    assert fields.rgb is not None
    ratio = compute_densities(compositing.compute_alpha(fields.logits), attention).ratio
    pixels = []
    for n in range(len(image)):
        picture, rgb, logits = image[n].numpy(), fields.rgb[n].numpy(), fields.logits[n].numpy()
        background = int(domain.background[n])
        error, count = local_errors(picture, logits.argmax(0) == background)
        population = (logits.argmax(0) == background) & (count >= TEACHER.fewest_neighbours)
        usual = np.quantile(error[population], TEACHER.quantile)
        for y, x in np.argwhere(domain.deployed[n].numpy()):
            target, colors, before = picture[:, y, x], rgb[:, :, y, x], logits[:, y, x]
            owner = int(before.argmax())
            others = [before[k] for k in range(4) if k not in (owner, background)]
            amount = max(
                0,
                (before[owner] - before[background] + DEPLOYMENT.margin) / 2,
                max(others) - before[background] + DEPLOYMENT.margin,
            )
            after = before.copy()
            after[owner] -= amount
            after[background] += amount

            def measure_error(now: np.ndarray, colors: np.ndarray, target: np.ndarray) -> float:
                alpha = np.exp(now) / np.exp(now).sum()
                return float(np.mean((alpha @ colors - target) ** 2))

            current, acted = (
                measure_error(before, colors, target),
                measure_error(after, colors, target),
            )
            own = np.mean((colors[owner] - target) ** 2)
            other = np.mean((colors[background] - target) ** 2)
            gain = (current - acted) / (current + acted + 1e-8)
            advantage = (own - other) / (own + other + 1e-8)
            acting = step(gain, *TEACHER.gain)
            acting *= step(ratio[n, owner, y, x].item(), *TEACHER.density_ratio)
            enough = count[y, x] >= TEACHER.fewest_neighbours
            local = enough and error[y, x] / (usual + 1e-8) <= TEACHER.most_error
            protected = float(gain <= TEACHER.harmful or advantage <= TEACHER.individual)
            pixels.append(
                {
                    "at": (n, int(y), int(x)),
                    "positive": max(acting, float(local)) * (1 - protected),
                    "protected": protected,
                    "harmful": gain <= TEACHER.harmful,
                    "worse": advantage <= TEACHER.individual,
                    "acting": acting,
                    "local": local,
                    "enough": enough,
                }
            )
    return pixels


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_against_loops(seed: int) -> None:
    image, fields, attention = scene(seed)
    domain = find_domain(fields.logits, DEPLOYMENT)
    labels = label_pixels(image, fields, attention, domain, TEACHER)
    expected = Labels(torch.zeros_like(labels.positive), torch.zeros_like(labels.protected))
    pixels = by_loops(image, fields, attention, domain)
    for pixel in pixels:
        expected.positive[pixel["at"]] = pixel["positive"]
        expected.protected[pixel["at"]] = pixel["protected"]
    torch.testing.assert_close(labels.positive, expected.positive, rtol=1e-6, atol=1e-9)
    assert torch.equal(labels.protected, expected.protected)
    # The scene tries everything: either reason, both branches, partial confidence, conflicts.
    assert any(pixel["harmful"] and not pixel["worse"] for pixel in pixels)
    assert any(pixel["worse"] and not pixel["harmful"] for pixel in pixels)
    assert any(pixel["acting"] > 0 and not pixel["local"] for pixel in pixels)
    assert any(pixel["local"] and not pixel["acting"] for pixel in pixels)
    assert any(0 < pixel["acting"] < 1 for pixel in pixels)
    assert any(pixel["enough"] and not pixel["local"] for pixel in pixels)
    assert any(not pixel["enough"] for pixel in pixels)
    assert any(pixel["protected"] and (pixel["acting"] or pixel["local"]) for pixel in pixels)
    assert any(not (pixel["protected"] or pixel["positive"]) for pixel in pixels)


def test_outside_the_domain_nothing_is_labelled() -> None:
    image, fields, attention = scene()
    domain = find_domain(fields.logits, DEPLOYMENT)
    assert not domain.deployed.all()
    labels = label_pixels(image, fields, attention, domain, TEACHER)
    assert not labels.positive[~domain.deployed].any()
    assert not labels.protected[~domain.deployed].any()
    nowhere = Domain(
        domain.background, domain.owner, domain.required, torch.zeros_like(domain.deployed)
    )
    labels = label_pixels(image, fields, attention, nowhere, TEACHER)
    assert not labels.positive.any()
    assert not labels.protected.any()


def test_a_protected_pixel_is_never_positive() -> None:
    image, fields, attention = scene()
    domain = find_domain(fields.logits, DEPLOYMENT)
    labels = label_pixels(image, fields, attention, domain, TEACHER)
    assert not (labels.positive * labels.protected).any()
    everything = TEACHER.model_copy(update={"harmful": 1.0})
    labels = label_pixels(image, fields, attention, domain, everything)
    assert not labels.positive.any()
    assert torch.equal(labels.protected, domain.deployed.double())


def test_labels_are_detached() -> None:
    image, fields, attention = scene()
    live = Fields(fields.logits.clone().requires_grad_(), fields.rgb.clone().requires_grad_())
    domain = find_domain(live.logits, DEPLOYMENT)
    labels = label_pixels(image, live, attention.clone().requires_grad_(), domain, TEACHER)
    assert not labels.positive.requires_grad
    assert not labels.protected.requires_grad


# -- ingredients -----------------------------------------------------------------------------------


def test_smoothstep_by_hand() -> None:
    values = torch.tensor([-1.0, 1.2, 1.35, 1.5, 1.8, 9.0])
    assert smoothstep(values, 1.2, 1.8).tolist() == pytest.approx([0, 0, 0.15625, 0.5, 1, 1])


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
def test_masked_quantile(quantile: float) -> None:
    torch.manual_seed(0)
    values, mask = torch.rand(6, 50, dtype=torch.float64), torch.rand(6, 50) < 0.4
    mask[4], mask[5] = False, False
    mask[4, 7] = True
    quantiles = masked_quantile(values, mask, quantile)
    for n in range(5):
        expected = np.quantile(values[n][mask[n]].numpy(), quantile)
        assert quantiles[n].item() == pytest.approx(expected, rel=1e-12)
    assert quantiles[5] == -math.inf


@pytest.mark.parametrize("seed", range(10))
def test_resembling_background_against_loops(seed: int) -> None:
    torch.manual_seed(seed)
    image, background = torch.rand(3, 12, 12, dtype=torch.float64), torch.rand(12, 12) < 0.4
    error, count = local_errors(image.numpy(), background.numpy())
    enough = count >= TEACHER.fewest_neighbours
    usual = np.quantile(error[enough & background.numpy()], TEACHER.quantile)
    expected = enough & (error / (usual + 1e-8) <= TEACHER.most_error)
    mask = resembles_background(image, background, TEACHER)
    assert np.array_equal(mask.numpy(), expected)


def test_without_background_nothing_looks_like_it() -> None:
    image = torch.zeros(3, 9, 9)
    settings = SelectorTeacherConfig()
    assert not resembles_background(image, torch.zeros(9, 9, dtype=torch.bool), settings).any()
    # Three background pixels are too few neighbours for everyone.
    few = torch.zeros(9, 9, dtype=torch.bool)
    few[0, :3] = True
    assert not resembles_background(image, few, settings).any()
    few[0, 3] = True
    assert resembles_background(image, few, settings).any()


def test_a_captured_pixel_of_the_background_is_found() -> None:
    """A hole in an even floor is background, a thing of another colour is not."""
    torch.manual_seed(0)
    image = 0.5 + 0.01 * torch.randn(3, 20, 20)
    image[0, 8:12, 8:12] = 1
    background = torch.ones(20, 20, dtype=torch.bool)
    background[8:12, 8:12] = False
    background[3:5, 3:5] = False
    mask = resembles_background(image, background, SelectorTeacherConfig())
    assert mask[3:5, 3:5].all()
    assert not mask[8:12, 8:12].any()


# -- losses ----------------------------------------------------------------------------------------


def examples(seed: int = 0) -> tuple[Tensor, Labels, Tensor]:
    """Scores and labels of three scenes with four owners: groups of all kinds."""
    torch.manual_seed(seed)
    owner = torch.randint(0, 4, (3, 6, 6))
    state = torch.randint(0, 3, (3, 6, 6))
    positive = torch.rand(3, 6, 6, dtype=torch.float64) * (state == 1)
    protected = (state == 2).double()
    positive[0][owner[0] == 0] = 0
    protected[0][owner[0] == 1] = 0
    positive[1], protected[1][owner[1] == 2] = 0, 0
    positive[2][owner[2] == 1] *= 1e-8  # where epsilon shows
    return 3 * torch.randn(3, 6, 6, dtype=torch.float64), Labels(positive, protected), owner


def test_losses_against_groups() -> None:
    logit, marked, owner = examples()
    positive, protected, rank = [], [], []
    heat, margin = TRAINING.temperature, TRAINING.rank_margin
    for n in range(3):
        for slot in range(4):
            group = owner[n] == slot
            nu = logit[n][group].numpy()
            plus, minus = marked.positive[n][group].numpy(), marked.protected[n][group].numpy()
            if plus.sum():
                positive.append((plus * np.log1p(np.exp(-nu))).sum() / plus.sum())
            if minus.sum():
                protected.append((minus * np.log1p(np.exp(nu))).sum() / minus.sum())
            if plus.sum() and minus.sum():
                lowest = -heat * np.log((plus * np.exp(-nu / heat)).sum() / (plus.sum() + 1e-8))
                highest = heat * np.log((minus * np.exp(nu / heat)).sum() / (minus.sum() + 1e-8))
                rank.append(heat * np.log1p(np.exp((margin + highest - lowest) / heat)))
    assert 0 < len(rank) < len(positive) < len(protected) < 12
    loss = selector_loss(logit, marked, owner, 4, TRAINING)
    assert loss.positive.item() == pytest.approx(np.mean(positive))
    assert loss.protected.item() == pytest.approx(np.mean(protected))
    assert loss.rank.item() == pytest.approx(np.mean(rank))
    objective = np.mean(positive) + 2 * np.mean(protected) + 0.25 * np.mean(rank)
    assert loss.objective.item() == pytest.approx(objective)


def test_unknown_pixels_teach_nothing() -> None:
    logit, marked, owner = examples()
    logit.requires_grad_()
    loss = selector_loss(logit, marked, owner, 4, TRAINING).objective
    (gradient,) = torch.autograd.grad(loss, logit)
    unknown = (marked.positive == 0) & (marked.protected == 0)
    assert unknown.any()
    assert not gradient[unknown].any()
    assert (gradient[marked.positive > 0] < 0).all()
    assert (gradient[marked.protected > 0] > 0).all()


def test_gradients_of_the_losses() -> None:
    logit, marked, owner = examples()

    def objective(score: Tensor) -> Tensor:
        return selector_loss(score, marked, owner, 4, TRAINING).objective

    assert torch.autograd.gradcheck(objective, logit.requires_grad_())


def test_no_group_with_both_has_no_rank() -> None:
    logit, marked, owner = examples()
    logit.requires_grad_()
    nothing = torch.zeros_like(marked.positive)
    for one in (Labels(marked.positive, nothing), Labels(nothing, marked.protected)):
        loss = selector_loss(logit, one, owner, 4, TRAINING)
        assert loss.rank == 0
        assert loss.objective > 0
        (gradient,) = torch.autograd.grad(loss.objective, logit)
        assert gradient.isfinite().all()
    empty = selector_loss(logit, Labels(nothing, nothing), owner, 4, TRAINING)
    assert empty.objective == 0
    (gradient,) = torch.autograd.grad(empty.objective, logit)
    assert not gradient.any()


def test_extreme_scores_do_not_overflow() -> None:
    logit, marked, owner = examples()
    loud = (1e4 * logit).float().requires_grad_()
    loss = selector_loss(loud, marked, owner, 4, TRAINING)
    assert loss.objective.isfinite()
    assert loss.objective.dtype == torch.float32
    (gradient,) = torch.autograd.grad(loss.objective, loud)
    assert gradient.isfinite().all()


def test_parts_of_a_batch_add_up() -> None:
    """With the number of groups of all processes, their losses sum to that of the whole batch."""
    logit, marked, owner = examples()
    whole = selector_loss(logit, marked, owner, 4, TRAINING)
    counts = []
    parts = [slice(0, 1), slice(1, 3)]

    def note_count(count: Tensor) -> Tensor:
        counts.append(count)
        return count

    def part(which: slice, sum_counts: distributed.Sum) -> Tensor:
        some = Labels(marked.positive[which], marked.protected[which])
        return selector_loss(logit[which], some, owner[which], 4, TRAINING, sum_counts).objective

    for which in parts:
        part(which, note_count)
    summed = sum(part(which, lambda count: counts[0] + counts[1]) for which in parts)
    torch.testing.assert_close(summed, whole.objective)


def test_training_the_selector_lowers_its_loss() -> None:
    image, fields, attention = scene(kind=torch.float32)
    domain = find_domain(fields.logits, DEPLOYMENT)
    marked = label_pixels(image, fields, attention, domain, TEACHER)
    selector = Selector(DEPLOYMENT, 6)
    optimizer = torch.optim.AdamW(selector.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        score = selector(fields, attention, domain)
        loss = selector_loss(score, marked, domain.owner, 4, TRAINING).objective
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


# -- how it runs -----------------------------------------------------------------------------------


def test_autocast_changes_nothing() -> None:
    image, fields, attention = scene(kind=torch.float32)
    domain = find_domain(fields.logits, DEPLOYMENT)
    logit = torch.randn_like(domain.required)
    exact = label_pixels(image, fields, attention, domain, TEACHER)
    loss = selector_loss(logit, exact, domain.owner, 4, TRAINING)
    with torch.autocast("cpu", torch.bfloat16):
        labels = label_pixels(image, fields, attention, domain, TEACHER)
        again = selector_loss(logit, labels, domain.owner, 4, TRAINING)
    assert torch.equal(labels.positive, exact.positive)
    assert torch.equal(labels.protected, exact.protected)
    assert torch.equal(again.objective, loss.objective)


def test_leading_dimensions_are_scenes() -> None:
    image, fields, attention = scene()
    domain = find_domain(fields.logits, DEPLOYMENT)
    together = label_pixels(image, fields, attention, domain, TEACHER)
    one = Fields(fields.logits[1], fields.rgb[1])
    alone = label_pixels(image[1], one, attention[1], find_domain(one.logits, DEPLOYMENT), TEACHER)
    torch.testing.assert_close(alone.positive, together.positive[1])
    torch.testing.assert_close(alone.protected, together.protected[1])


def test_nothing_waits_for_values() -> None:
    """Tensors without values pass through, so a CUDA graph can record it."""
    parts = scene(kind=torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        image, attention = mode.from_tensor(parts[0]), mode.from_tensor(parts[2])
        fields = Fields(mode.from_tensor(parts[1].logits), mode.from_tensor(parts[1].rgb))
        domain = find_domain(fields.logits, DEPLOYMENT)
        marked = label_pixels(image, fields, attention, domain, TEACHER)
        logit = torch.randn(domain.owner.shape, requires_grad=True)
        selector_loss(logit, marked, domain.owner, 4, TRAINING).objective.backward()
    assert logit.grad.shape == parts[0][:, 0].shape
