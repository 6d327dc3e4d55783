"""Exact counterfactuals: identities to the byte, and commands that do what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geoco.config import SolidsConfig
from geoco.errors import GeocoError
from geoco.solids import (
    Canvas,
    Move,
    Remove,
    Replace,
    Scale,
    SceneEdit,
    Scenes,
    extract_scenes,
    measure_outlines,
    place_edits,
    render_counterfactuals,
    render_scenes,
    simulate_episodes,
)

CANVAS = Canvas(64, 64, 3)
_EPISODES = simulate_episodes(SolidsConfig(), "val", np.arange(6))
SCENES = extract_scenes(_EPISODES, np.arange(6), np.array([3, 12, 15, 20, 26, 34]))


def alone(scene: int, item: int) -> Scenes:
    """One object of a scene without the others."""
    scenes = SCENES[scene : scene + 1]
    present = torch.zeros_like(scenes.present)
    present[0, item] = True
    return replace(scenes, present=present)


def centroid(mask: torch.Tensor) -> np.ndarray:
    rows, columns = np.nonzero(mask.numpy())
    return np.array([columns.mean(), rows.mean()])


def whole(scenes: Scenes, item: int, margin: int = 12) -> bool:
    """Whether an object is entirely inside the picture, well away from its edges."""
    mask = render_scenes(scenes, CANVAS, amodal=True).amodal
    assert mask is not None
    edge = torch.ones(64, 64, dtype=torch.bool)
    edge[margin:-margin, margin:-margin] = False
    return bool(mask[0, item].any()) and not bool((mask[0, item] & edge).any())


@pytest.mark.parametrize(
    "edit",
    [Move(1, 0, 0), Scale(1, 1.0), Scale(0, 1), Move(2, -0.0, 0.0)],
    ids=lambda edit: str(edit),
)
def test_an_edit_that_changes_nothing_gives_the_same_bytes(edit: SceneEdit) -> None:
    fact = render_scenes(SCENES, CANVAS, amodal=True)
    same = render_counterfactuals(
        SCENES, CANVAS, [(scene, edit) for scene in range(6)], amodal=True
    )
    assert torch.equal(fact.frames, same.frames)
    assert torch.equal(fact.masks, same.masks)
    assert fact.amodal is not None
    assert same.amodal is not None
    assert torch.equal(fact.amodal, same.amodal)


def test_replacing_an_object_by_itself_gives_the_same_bytes() -> None:
    fact = render_scenes(SCENES, CANVAS)
    same = render_counterfactuals(SCENES, CANVAS, [(s, Replace(1, s, 1)) for s in range(6)])
    assert torch.equal(fact.frames, same.frames)


@settings(max_examples=25, deadline=None)
@given(dx=st.integers(-12, 12), dy=st.integers(-12, 12), scene=st.integers(0, 5))
def test_a_whole_pixel_move_shifts_the_body_exactly(dx: int, dy: int, scene: int) -> None:
    scenes = alone(scene, 1)
    if not whole(scenes, 1):
        return
    fact = render_scenes(scenes, CANVAS)
    moved = render_counterfactuals(scenes, CANVAS, [(0, Move(1, dx, dy))])
    expected = torch.roll(fact.masks[0], (dy, dx), (0, 1))
    assert torch.equal(moved.masks[0], expected)
    np.testing.assert_allclose(
        centroid(moved.masks[0] == 2) - centroid(fact.masks[0] == 2), (dx, dy), atol=1e-9
    )
    # Inside the body, away from edge pixels that mix with the floor, colours move unchanged.
    body = torch.nn.functional.max_pool2d((fact.masks == 0).float()[:, None], 3, 1, 1)[0, 0] == 0
    shifted = torch.roll(body, (dy, dx), (0, 1))
    assert torch.equal(moved.frames[0][:, shifted], fact.frames[0][:, body])


def test_the_shadow_moves_with_its_object() -> None:
    scenes = alone(1, 1)
    fact, clean = (
        render_scenes(scenes, CANVAS),
        render_scenes(replace(scenes, present=scenes.present & False), CANVAS),
    )
    moved = render_counterfactuals(scenes, CANVAS, [(0, Move(1, 5, 9))])

    def darkness(frames: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        """How much light is missing on the floor, relative to the clean floor there."""
        floor = (masks == 0).float()
        return (1 - frames.float().mean(0) / clean.frames[0].float().mean(0)) * floor

    before = darkness(fact.frames[0], fact.masks[0])
    after = darkness(moved.frames[0], moved.masks[0])
    inner = (slice(20, 60), slice(10, 60))
    shifted = torch.roll(before, (9, 5), (0, 1))
    assert before.max() > 0.1
    assert (after[inner] - shifted[inner]).abs().mean() < 2e-3
    assert (after[inner] - shifted[inner]).abs().max() < 0.05


@settings(max_examples=20, deadline=None)
@given(
    dx=st.floats(-8, 8, allow_nan=False),
    dy=st.floats(-8, 8, allow_nan=False),
    scene=st.integers(0, 5),
)
def test_a_move_by_parts_of_a_pixel_shifts_the_outline(dx: float, dy: float, scene: int) -> None:
    scenes = alone(scene, 1)
    if not whole(scenes, 1):
        return
    moved = render_counterfactuals(scenes, CANVAS, [(0, Move(1, dx, dy))], amodal=True)
    fact = render_scenes(scenes, CANVAS)
    step = centroid(moved.masks[0] == 2) - centroid(fact.masks[0] == 2)
    np.testing.assert_allclose(step, (dx, dy), atol=0.5)  # masks are whole pixels


@pytest.mark.parametrize("factor", [0.5, 0.75, 1.25, 1.5, 2.0])
def test_scaling_keeps_the_centroid_and_scales_the_area(factor: float) -> None:
    scenes, canvas = alone(1, 1), Canvas(192, 192, 1)
    assert whole(scenes, 1)
    before = measure_outlines(scenes, canvas)
    scaled = render_counterfactuals(scenes, canvas, [(0, Scale(1, factor))], amodal=True)
    fact = render_scenes(scenes, canvas)
    ratio = int((scaled.masks == 2).sum()) / int((fact.masks == 2).sum())
    assert ratio == pytest.approx(factor**2, rel=0.02)
    center = centroid(scaled.masks[0] == 2) + 0.5
    np.testing.assert_allclose(center, before.centroid[0, 1].numpy(), atol=0.15)


def test_outlines_against_their_definition() -> None:
    scenes = alone(1, 1)
    outlines = measure_outlines(scenes, CANVAS)
    from geoco.solids import render_layers

    covers = render_layers(scenes, CANVAS).covers[0, 1].double()
    place = (torch.arange(192, dtype=torch.float64) + 0.5) / 3
    mass = covers.sum()
    x, y = (covers.sum(0) * place).sum() / mass, (covers.sum(1) * place).sum() / mass
    spread = (covers * ((place - x)[None] ** 2 + (place - y)[:, None] ** 2)).sum() / mass
    torch.testing.assert_close(outlines.centroid[0, 1], torch.stack((x, y)))
    torch.testing.assert_close(outlines.radius[0, 1], spread.sqrt())
    assert outlines.defined[0].tolist() == [False, True, False, False, False]


def test_outlines_reach_beyond_the_picture() -> None:
    scenes = SCENES[:1]  # the launched sphere enters from the side
    small = render_scenes(scenes, CANVAS, amodal=True).amodal
    assert small is not None
    inside = small[0, 0]
    assert inside[:, -1].any() or inside[-1].any() or inside[:, 0].any()
    shifted = replace(scenes, present=torch.tensor([[True, False, False, False, False]]))
    center = measure_outlines(scenes, CANVAS).centroid[0, 0]
    inward = render_counterfactuals(
        shifted, CANVAS, [(0, Move(0, 32 - center[0].item(), 32 - center[1].item()))]
    )
    np.testing.assert_allclose(centroid(inward.masks[0] == 1) + 0.5, (32, 32), atol=0.2)


def test_removing_leaves_what_was_behind() -> None:
    gone = render_counterfactuals(SCENES, CANVAS, [(s, Remove(0)) for s in range(6)])
    present = SCENES.present.clone()
    present[:, 0] = False
    without = render_scenes(replace(SCENES, present=present), CANVAS)
    assert torch.equal(gone.masks, without.masks)
    # Layers keep the light of their own scene, so only traces on the other objects may differ.
    floor = without.masks == 0
    near = torch.nn.functional.max_pool2d((~floor).float()[:, None], 3, 1, 1)[:, 0] > 0
    assert torch.equal(
        gone.frames.permute(0, 2, 3, 1)[~near], without.frames.permute(0, 2, 3, 1)[~near]
    )


def test_a_replacement_takes_place_and_size() -> None:
    donor = 2
    after = render_counterfactuals(SCENES, CANVAS, [(1, Replace(1, donor, 2))], amodal=True)
    before = measure_outlines(SCENES, CANVAS)
    assert after.amodal is not None
    np.testing.assert_allclose(
        centroid(after.amodal[0, 1]) + 0.5, before.centroid[1, 1].numpy(), atol=0.3
    )
    rows, columns = np.nonzero(after.amodal[0, 1].numpy())
    radius = np.sqrt(rows.var() + columns.var())
    assert radius == pytest.approx(before.radius[1, 1].item(), rel=0.04)
    rest = render_scenes(SCENES[1:2], CANVAS, amodal=True).amodal
    assert rest is not None
    assert torch.equal(after.amodal[0, 2:], rest[0, 2:])


def test_depth_order_stays() -> None:
    fact = render_scenes(SCENES, CANVAS)
    assert fact.masks.shape[0] == 6
    order = SCENES.order[1]
    front = int(order.argmin())
    behind = int(order.masked_fill(~SCENES.present[1], -1).argmax())
    place = measure_outlines(SCENES, CANVAS).centroid[1]
    dx, dy = (place[front] - place[behind]).tolist()
    onto = render_counterfactuals(SCENES, CANVAS, [(1, Move(behind, dx, dy))])
    assert (onto.masks[0][fact.masks[1] == front + 1] == front + 1).all()


@pytest.mark.parametrize(
    ("scene", "edit", "message"),
    [
        (0, Move(9, 1, 1), r"scene 0 has no object 9; it has \[0, 1"),
        (7, Move(0, 1, 1), "there is no scene 7; there are 6 scenes"),
        (0, Scale(1, 0.0), "factor must be a positive number"),
        (0, Scale(1, -2.0), "factor must be a positive number"),
        (0, Scale(1, float("nan")), "factor must be a positive number"),
        (0, Move(1, float("inf"), 0), "finite numbers of pixels"),
        (0, Replace(1, 8, 0), "there is no scene 8"),
        (0, Replace(1, 0, 7), "has no object 7"),
        (0, Remove(-1), "has no object -1"),
    ],
)
def test_impossible_edits(scene: int, edit: SceneEdit, message: str) -> None:
    with pytest.raises(GeocoError, match=message):
        render_counterfactuals(SCENES, CANVAS, [(scene, edit)])


def test_an_object_far_away_cannot_be_resized() -> None:
    position = SCENES.position.clone()
    position[0, 1] = torch.tensor([-300.0, -300.0])
    far = replace(SCENES, position=position)
    with pytest.raises(GeocoError, match="object 1 of scene 0 is too far outside the picture"):
        render_counterfactuals(far, CANVAS, [(0, Scale(1, 2.0))])


def test_no_edits_give_no_pictures() -> None:
    assert render_counterfactuals(SCENES, CANVAS, []).frames.shape == (0, 3, 64, 64)


@pytest.mark.parametrize("textured", [False, True])
def test_canvases_that_share_layers_are_drawn_as_if_alone(textured: bool) -> None:
    times = np.array([3, 12, 15, 20, 26, 34])
    scenes = extract_scenes(_EPISODES, np.arange(6), times, textured)
    edits: list[tuple[int, SceneEdit]] = [
        (0, Move(1, 6, 0)), (0, Move(1, -6, 0)), (1, Move(1, 6, 0)), (0, Move(1, 6, 0)),
        (0, Scale(1, 0.5)), (0, Scale(2, 1.5)), (0, Remove(2)), (1, Replace(1, 0, 1)),
        (1, Replace(2, 0, 1)), (1, Remove(1)), (0, Scale(1, 1.0)),
    ]  # fmt: skip
    placement = place_edits(scenes, CANVAS, edits)
    shared = render_scenes(scenes, CANVAS, placement, amodal=True)
    alone = render_scenes(scenes, CANVAS, replace(placement, repeated=False), amodal=True)
    assert torch.equal(shared.frames, alone.frames)
    assert torch.equal(shared.masks, alone.masks)
    assert shared.amodal is not None
    assert alone.amodal is not None
    assert torch.equal(shared.amodal, alone.amodal)


def test_equal_layers_are_found() -> None:
    """Of two scenes' edits only the edited layers, and those of the scenes, differ."""
    edits: list[tuple[int, SceneEdit]] = [(scene, Move(1, 6, 0)) for scene in (0, 0, 1)]
    placement = place_edits(SCENES, CANVAS, [*edits, (0, Move(1, 0, 0))])
    layers, which = placement.find_layers()
    slots = SCENES.present.shape[1]
    assert len(layers) == 2 * slots + 1  # the moved one of scene 0 stays somewhere, too
    assert which is not None
    for name in ("scene", "object", "shown", "scale", "shift"):
        there = getattr(layers, name)[which, 0]
        assert torch.equal(there, getattr(placement, name).flatten(0, 1))


def test_outlines_of_some_objects_are_those_of_all() -> None:
    wanted = torch.zeros_like(SCENES.present)
    wanted[1, 1] = wanted[3, 2] = True
    all_, some = measure_outlines(SCENES, CANVAS), measure_outlines(SCENES, CANVAS, wanted)
    assert torch.equal(some.defined, all_.defined & wanted)
    assert torch.equal(some.centroid[wanted], all_.centroid[wanted])
    assert torch.equal(some.radius[wanted], all_.radius[wanted])
