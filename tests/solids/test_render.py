"""The renderer: pictures against projective geometry, masks, layers, and bytes that repeat."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from geoco.config import SolidsConfig
from geoco.solids import (
    Canvas,
    Placement,
    Scenes,
    extract_scenes,
    render_layers,
    render_scenes,
    simulate_episodes,
)
from geoco.solids.render import _average_samples, _encode_srgb
from geoco.solids.scenes import CAMERA_POSITION, FOCAL, compute_camera_axes

CANVAS = Canvas(64, 64, 3)
FRAMES = np.array([0, 10, 14, 18, 26, 40, 60, 90])


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    episodes = simulate_episodes(SolidsConfig(), "val", np.arange(8))
    return extract_scenes(episodes, np.arange(8), FRAMES)


def lone_sphere(x: float, y: float, radius: float = 0.75) -> Scenes:
    """A scene in which only a sphere stands."""
    episodes = simulate_episodes(SolidsConfig(), "val", np.arange(1))
    scene = extract_scenes(episodes, np.array([0]), np.array([0]))
    present = torch.tensor([[True, False, False, False, False]])
    position = scene.position.clone()
    position[0, 0] = torch.tensor([x, y])
    sizes = torch.full_like(scene.radius, radius)
    return replace(scene, present=present, position=position, radius=sizes)


# -- geometry --------------------------------------------------------------------------------------


def test_the_camera_looks_at_the_origin() -> None:
    axes = compute_camera_axes()
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-15)
    assert np.linalg.det(axes) == pytest.approx(1)
    seen = axes.T @ -np.array(CAMERA_POSITION)
    np.testing.assert_allclose(seen[:2], 0, atol=1e-12)
    assert seen[2] < 0
    assert axes[2, 0] == 0  # the horizon is level


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (2.0, -2.0), (-1.5, 1.0), (3.0, 0.5)])
def test_a_sphere_is_drawn_where_projection_puts_it(x: float, y: float) -> None:
    """Its outline is an ellipse whose centre, axes and area follow from the cone about it."""
    radius = 0.75
    offset = compute_camera_axes().T @ (np.array([x, y, radius]) - np.array(CAMERA_POSITION))
    depth, aside = -offset[2], np.hypot(offset[0], offset[1])
    # The cone to the sphere, cut by the image plane: near and far edge along the line to the axis.
    middle, half = np.arctan2(aside, depth), np.arcsin(radius / np.linalg.norm(offset))
    near, far = np.tan(middle - half), np.tan(middle + half)
    long, center = (far - near) / 2, (far + near) / 2
    across = np.cos(middle) ** 2 - np.sin(half) ** 2
    short = np.sin(half) / np.sqrt(across)
    scale = 64 * FOCAL
    expected = np.array([offset[0], -offset[1]]) / aside * center * scale + 32
    canvas = Canvas(64, 64, 8)
    mask = render_scenes(lone_sphere(x, y, radius), canvas, amodal=True).masks[0] == 1
    fine = render_layers(lone_sphere(x, y, radius), canvas).covers[0, 0].double()
    place = (torch.arange(512, dtype=torch.float64) + 0.5) / 8
    area = fine.sum().item() / 64
    centroid = ((fine.sum(0) * place).sum() / fine.sum(), (fine.sum(1) * place).sum() / fine.sum())
    assert area == pytest.approx(np.pi * long * short * scale**2, rel=2e-3)
    np.testing.assert_allclose([value.item() for value in centroid], expected, atol=0.01)
    assert int(mask.sum()) == pytest.approx(area, rel=0.05)


def test_nearer_objects_hide_farther_ones(scenes: Scenes) -> None:
    """The order by power distance agrees with the depth of what each sample hits first."""
    from geoco.solids.tracing import trace_rays

    hits = trace_rays(scenes, CANVAS, Placement.from_scenes(scenes))
    sample = (hits.layer // 5 * CANVAS.rows + hits.row) * CANVAS.columns + hits.column
    camera = scenes.camera[hits.layer // 5]
    away = torch.stack(hits.point, -1) - camera
    distance = away.norm(dim=-1)
    size = 8 * CANVAS.rows * CANVAS.columns
    nearest = torch.full((size,), torch.inf).scatter_reduce(0, sample, distance, "amin")
    order = scenes.order.flatten()[hits.layer]
    front = torch.full((size,), 9).scatter_reduce(0, sample, order, "amin")
    first = order == front[sample]
    wrong = first & (distance > nearest[sample] + 1e-4)
    overlapping = len(sample) - len(sample.unique())
    assert overlapping > 1000
    assert int(wrong.sum()) < 0.01 * overlapping


# -- masks and layers ------------------------------------------------------------------------------


def test_masks_partition_the_image_and_amodal_contains_visible(scenes: Scenes) -> None:
    pictures = render_scenes(scenes, CANVAS, amodal=True)
    assert pictures.amodal is not None
    labels = torch.arange(1, 6)
    visible = pictures.masks[:, None] == labels[:, None, None]
    assert ((pictures.masks == 0).int() + visible.sum(1) == 1).all()
    assert (pictures.amodal | ~visible).all()
    assert (pictures.amodal & ~visible).any()  # something is hidden
    assert not pictures.amodal[~scenes.present].any()
    assert pictures.masks.amax() <= 5


def test_hidden_parts_do_not_change_amodal_masks(scenes: Scenes) -> None:
    together = render_scenes(scenes, CANVAS, amodal=True).amodal
    assert together is not None
    for item in range(5):
        only = torch.zeros_like(scenes.present)
        only[:, item] = scenes.present[:, item]
        alone = render_scenes(replace(scenes, present=only), CANVAS)
        # Alone, an object's visible mask is its outline; the two rules differ on pixels half full.
        difference = (alone.masks == item + 1) ^ together[:, item]
        assert difference.sum() <= 0.01 * together[:, item].sum() + 8


def test_layers_put_together_are_the_frame(scenes: Scenes) -> None:
    pictures = render_scenes(scenes, CANVAS)
    parts = render_layers(scenes, CANVAS)
    assert torch.equal(parts.composite(CANVAS, scenes.order), pictures.frames)
    assert not parts.covers[~scenes.present].any()
    assert (parts.shadow >= 0).all()
    assert (parts.shadow <= 1).all()


def test_an_empty_scene_is_the_clean_floor(scenes: Scenes) -> None:
    empty = replace(scenes, present=torch.zeros_like(scenes.present))
    frames = render_scenes(empty, CANVAS).frames
    assert (frames == frames[:1]).all()
    assert (render_scenes(empty, CANVAS).masks == 0).all()
    bright = frames[0].float().mean(0)
    assert bright[-1].mean() > bright[0].mean() + 20  # it fades to the horizon


def test_shadows_darken_and_never_brighten_the_floor(scenes: Scenes) -> None:
    pictures = render_scenes(scenes, CANVAS)
    empty = render_scenes(replace(scenes, present=torch.zeros_like(scenes.present)), CANVAS).frames
    floor = (pictures.masks == 0)[:, None].expand(-1, 3, -1, -1)
    alone = _far_from_objects(pictures.masks)[:, None].expand(-1, 3, -1, -1)
    assert (pictures.frames[floor & alone] <= empty[floor & alone]).all()
    assert (pictures.frames[floor & alone].int() - empty[floor & alone].int()).min() < -20


def _far_from_objects(masks: torch.Tensor) -> torch.Tensor:
    """Pixels whose neighbours are all floor: no object's edge is mixed into them."""
    covered = torch.nn.functional.max_pool2d((masks > 0).float()[:, None], 3, 1, 1)[:, 0]
    return covered == 0


def test_metal_glints_and_rubber_does_not() -> None:
    scene = lone_sphere(0.0, 0.0)
    rubber = render_scenes(scene, CANVAS)
    metal = render_scenes(replace(scene, metal=torch.ones_like(scene.metal)), CANVAS)
    body = rubber.masks[0] == 1
    assert metal.frames[0][:, body].max() > 1.4 * rubber.frames[0][:, body].max()
    assert metal.frames[0][:, body].min() < 0.6 * rubber.frames[0][:, body].min()


# -- light and pixels ------------------------------------------------------------------------------


def test_encoding_is_srgb() -> None:
    linear = (
        torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1.2
    )
    low = linear <= 0.0031308
    curve = torch.where(low, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    exact = curve.clamp(0, 1) * 255
    assert (_encode_srgb(linear.float()).double() - exact).abs().max() < 0.501
    assert _encode_srgb(torch.tensor([-1.0, 0.0, 1.0, 9.0])).tolist() == [0, 0, 255, 255]


def test_pixels_are_means_of_their_samples() -> None:
    samples = torch.arange(36.0).view(1, 6, 6)
    expected = samples.unfold(1, 3, 3).unfold(2, 3, 3).mean((-1, -2))
    torch.testing.assert_close(_average_samples(samples, Canvas(2, 2, 3)), expected)


@pytest.mark.parametrize("canvas", [Canvas(48, 80, 2), Canvas(33, 17, 1), Canvas(128, 128, 3)])
def test_other_sizes_show_the_same_scene(scenes: Scenes, canvas: Canvas) -> None:
    pictures = render_scenes(scenes, canvas, amodal=True)
    assert pictures.frames.shape == (8, 3, canvas.height, canvas.width)
    if canvas.height == canvas.width:
        reference = render_scenes(scenes, CANVAS).frames.float()
        small = torch.nn.functional.avg_pool2d(pictures.frames.float(), canvas.width // 64)
        assert (small - reference).abs().mean() < 1.5


# -- repetition ------------------------------------------------------------------------------------


def test_bytes_do_not_depend_on_batch_or_threads(scenes: Scenes) -> None:
    together = render_scenes(scenes, CANVAS, amodal=True)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        for number in range(8):
            alone = render_scenes(scenes[number : number + 1], CANVAS, amodal=True)
            assert torch.equal(alone.frames[0], together.frames[number])
            assert torch.equal(alone.masks[0], together.masks[number])
    finally:
        torch.set_num_threads(threads)


def test_bytes_are_those_of_the_first_release(scenes: Scenes) -> None:
    """A change here changes the dataset: trained models and stored results would no longer fit."""
    pictures = render_scenes(scenes, CANVAS)
    digest = hashlib.sha256(pictures.frames.numpy().tobytes() + pictures.masks.numpy().tobytes())
    assert digest.hexdigest()[:16] == "1f8e8b0a08431144"


def test_textures_and_cameras_vary_by_episode() -> None:
    config = SolidsConfig(textured=True, camera_jitter=0.5)
    episodes = simulate_episodes(config, "val", np.arange(6))
    plain = extract_scenes(episodes, np.arange(6), np.full(6, 5))
    fancy = extract_scenes(episodes, np.arange(6), np.full(6, 5), textured=True)
    masks = render_scenes(plain, CANVAS).masks
    frames = render_scenes(fancy, CANVAS)
    assert torch.equal(frames.masks, masks)  # patterns leave geometry alone
    corners = frames.frames[:, :, -8:, :8].float().mean((2, 3))
    assert corners.std(0).min() > 5
    again = render_scenes(fancy[2:3], CANVAS)
    assert torch.equal(again.frames[0], frames.frames[2])
    still = extract_scenes(episodes, np.array([0, 0]), np.array([5, 6]), textured=True)
    floor = render_scenes(replace(still, present=torch.zeros_like(still.present)), CANVAS).frames
    assert torch.equal(floor[0], floor[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_the_same_picture(scenes: Scenes) -> None:
    here, there = (
        render_scenes(scenes, CANVAS, amodal=True),
        render_scenes(scenes.to("cuda"), CANVAS, amodal=True),
    )
    difference = (here.frames.int() - there.frames.cpu().int()).abs().amax(1)
    assert (difference > 1).float().mean() < 0.002
    assert (here.masks != there.masks.cpu()).float().mean() < 0.001


def test_no_scenes_give_no_pictures(scenes: Scenes) -> None:
    pictures = render_scenes(scenes[:0], CANVAS, amodal=True)
    assert pictures.frames.shape == (0, 3, 64, 64)
    assert pictures.amodal is not None
    assert pictures.amodal.shape == (0, 5, 64, 64)
