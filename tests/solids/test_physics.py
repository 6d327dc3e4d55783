"""The generator's episodes: what is drawn, and laws of motion that must hold."""

import numpy as np
import pytest

from geoco.config import SolidsConfig
from geoco.solids import physics
from geoco.solids.physics import CUBE, CYLINDER, METAL, SPHERE, Episodes, simulate_episodes

EPISODES = simulate_episodes(SolidsConfig(), "train", np.arange(300))


def motion(
    position: list[tuple[float, float]],
    velocity: list[tuple[float, float]],
    shape: list[int],
    radius: list[float],
    steps: int = 200,
) -> physics._Bodies:
    """Two bodies on their own, without launch or damping, until well after they met."""
    bodies = physics._Bodies(
        position=np.array([position], dtype=float),
        velocity=np.array([velocity], dtype=float),
        heading=np.broadcast_to((1.0, 0.0), (1, 2, 2)).copy(),
        spin=np.zeros((1, 2)),
        pushed=np.zeros(1, dtype=bool),
    )
    step = 1 / physics.SUBSTEPS
    close = np.zeros((1, physics._PAIRS.shape[1]), dtype=bool)
    close[:, 0] = True
    for _ in range(steps):
        physics._resolve_collisions(bodies, close, np.array([shape]), np.array([radius]), step)
        bodies.position += bodies.velocity * step
        bodies.heading = physics._rotate_heading(bodies.heading, bodies.spin * step)
    return bodies


def energy(bodies: physics._Bodies, radius: list[float]) -> float:
    inertia = np.array([2 / 3 * r * r for r in radius])
    return float(0.5 * (bodies.velocity**2).sum() + 0.5 * (inertia * bodies.spin[0] ** 2).sum())


# -- collisions ------------------------------------------------------------------------------------


def test_equal_spheres_swap_their_velocities_head_on() -> None:
    end = motion([(0, 0), (3, 0)], [(0.3, 0), (0, 0)], [SPHERE, SPHERE], [0.75, 0.75])
    np.testing.assert_allclose(end.velocity[0], [(0, 0), (0.3, 0)], atol=1e-15)


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.7, 1.1, -0.9])
@pytest.mark.parametrize("sizes", [(0.7, 0.7), (0.7, 0.8)])
def test_spheres_keep_momentum_and_energy(offset: float, sizes: tuple[float, float]) -> None:
    radius = list(sizes)
    end = motion([(0, offset), (3, 0)], [(0.3, 0), (-0.1, 0.02)], [SPHERE, SPHERE], radius)
    np.testing.assert_allclose(end.velocity[0].sum(0), [0.2, 0.02], atol=1e-15)
    start = 0.5 * (0.3**2 + 0.1**2 + 0.02**2)
    assert energy(end, radius) == pytest.approx(start, rel=1e-12)
    assert end.spin.tolist() == [[0.0, 0.0]]


def test_spheres_of_different_size_touch_above_the_floor_plan() -> None:
    # Centres at heights 0.7 and 0.8: in contact at distance 1.5, which is sqrt(1.5^2 - 0.1^2) flat.
    at = [np.array([[0.0, 0.0]]), np.array([[2.0, 0.0]])]
    size = [np.array([0.7]), np.array([0.8])]
    gap, normal, _ = physics._find_disc_contact(at, size, np.array([True]))
    assert gap[0] == pytest.approx(2 - np.sqrt(1.5**2 - 0.1**2))
    assert physics._find_disc_contact(at, size, np.array([False]))[0][0] == pytest.approx(0.5)
    np.testing.assert_array_equal(normal, [[1, 0]])


@pytest.mark.parametrize("offset", [0.0, 0.2, 0.5, 0.9])
def test_cubes_lose_energy_keep_momentum_and_turn_when_hit_off_centre(offset: float) -> None:
    radius = [0.7, 0.7]
    end = motion([(0, offset), (3, 0)], [(0.3, 0), (0, 0)], [SPHERE, CUBE], radius, steps=150)
    np.testing.assert_allclose(end.velocity[0].sum(0), [0.3, 0], atol=1e-15)
    assert energy(end, radius) < 0.5 * 0.3**2
    assert end.velocity[0, 1, 0] > 0.1
    if offset == 0:
        assert end.spin[0, 1] == 0
        assert end.velocity[0, 0, 0] == pytest.approx(0.3 * (1 - 0.9) / 2)
    else:
        assert end.spin[0, 1] < 0  # pushed above its centre to the right: clockwise
        # Angular momentum about the origin, spheres as points and the cube with its spin.
        arms = end.position[0, :, 0] * end.velocity[0, :, 1]
        arms = arms - end.position[0, :, 1] * end.velocity[0, :, 0]
        total = arms.sum() + 2 / 3 * 0.7**2 * end.spin[0, 1]
        assert total == pytest.approx(-0.3 * offset, abs=1e-12)


def test_a_flat_hit_between_cubes_does_not_turn_them() -> None:
    end = motion([(0, 0), (3, 0)], [(0.3, 0), (0, 0)], [CUBE, CUBE], [0.7, 0.7])
    assert end.spin.tolist() == [[0.0, 0.0]]
    np.testing.assert_allclose(end.velocity[0, :, 0], [0.015, 0.285])


def test_a_turned_square_is_hit_at_its_corner() -> None:
    half = np.sqrt(0.5)
    gap, normal, point = physics._find_square_disc_contact(
        np.array([[0.0, 0.0]]),
        np.array([[half, half]]),
        np.array([1.0]),
        np.array([[3.0, 0.0]]),
        np.array([0.5]),
    )
    assert gap[0] == pytest.approx(3 - np.sqrt(2) - 0.5)
    np.testing.assert_allclose(normal, [[1, 0]], atol=1e-15)
    np.testing.assert_allclose(point, [[np.sqrt(2), 0]])


def test_turning_keeps_headings_at_unit_length() -> None:
    heading = np.array([[1.0, 0.0]])
    for _ in range(1000):
        heading = physics._rotate_heading(heading, np.array([0.05]))
    assert np.hypot(*heading[0]) == pytest.approx(1, abs=1e-12)
    angle = 1000 * 2 * np.arctan(0.025)  # Cayley's angle
    np.testing.assert_allclose(heading[0], [np.cos(angle), np.sin(angle)], atol=1e-9)


# -- episodes --------------------------------------------------------------------------------------


def outline(episodes: Episodes, item: int) -> np.ndarray:
    """Points on an object's edge in the floor plan, [episode, time, 128, 2]."""
    angle = np.linspace(0, 2 * np.pi, 128, endpoint=False)
    circle = np.stack((np.cos(angle), np.sin(angle)), -1)
    square = circle / np.abs(circle).max(-1, keepdims=True)
    cube = (episodes.shape[:, item] == CUBE)[:, None, None]
    points = np.where(cube, square, circle) * episodes.radius[:, item, None, None]
    c, s = np.moveaxis(episodes.heading[:, :, item], -1, 0)[..., None]
    x, y = points[:, None, :, 0], points[:, None, :, 1]
    turned = np.stack((c * x - s * y, s * x + c * y), -1)
    return turned + episodes.position[:, :, item, None]


def depth_inside(episodes: Episodes, points: np.ndarray, item: int) -> np.ndarray:
    """How deep points lie inside an object's floor plan; negative outside."""
    offset = points - episodes.position[:, :, item, None]
    c, s = np.moveaxis(episodes.heading[:, :, item], -1, 0)[..., None]
    local = np.stack(
        (c * offset[..., 0] + s * offset[..., 1], c * offset[..., 1] - s * offset[..., 0]), -1
    )
    size = episodes.radius[:, item, None, None]
    square = size - np.abs(local).max(-1)
    circle = size - np.hypot(local[..., 0], local[..., 1])
    return np.where((episodes.shape[:, item] == CUBE)[:, None, None], square, circle)


def test_objects_do_not_enter_each_other() -> None:
    worst = 0.0
    for i in range(physics.OBJECTS):
        points = outline(EPISODES, i)
        for j in range(physics.OBJECTS):
            if i == j:
                continue
            both = EPISODES.present[:, i] & EPISODES.present[:, j]
            spheres = (EPISODES.shape[:, [i, j]] == SPHERE).all(1)
            depth = depth_inside(EPISODES, points, j)[both & ~spheres]
            worst = max(worst, float(depth.max()))
    assert worst < 0.01


def test_spheres_do_not_enter_each_other() -> None:
    for i in range(physics.OBJECTS):
        for j in range(i):
            both = EPISODES.present[:, i] & EPISODES.present[:, j]
            both &= (EPISODES.shape[:, [i, j]] == SPHERE).all(1)
            flat = EPISODES.position[both, :, i] - EPISODES.position[both, :, j]
            height = (EPISODES.radius[both, i] - EPISODES.radius[both, j])[:, None]
            distance = np.sqrt((flat**2).sum(-1) + height**2)
            touching = (EPISODES.radius[both, i] + EPISODES.radius[both, j])[:, None]
            assert (distance > touching - 0.01).all()


def test_the_launch_is_obj3ds() -> None:
    start = EPISODES.position[:, 0, 0]
    np.testing.assert_allclose(np.hypot(*start.T), 6)
    assert (start[:, 0] > 0).all()
    assert ((start[:, 1] > -6) & (start[:, 1] < -1)).all()
    # Before anything is hit, a push of constant acceleration toward the origin; the steps of the
    # integration lag half a step behind.
    for frame in (4, 8):
        radius = np.hypot(*EPISODES.position[:, frame, 0].T)
        expected = 6 - 0.5 * physics.LAUNCH_ACCELERATION * frame * (frame - 1 / physics.SUBSTEPS)
        np.testing.assert_allclose(radius, expected, atol=2e-3)
    speed = np.hypot(*np.moveaxis(EPISODES.velocity[:, :, 0], -1, 0))
    assert speed.max() == pytest.approx(physics.LAUNCH_SPEED, abs=0.003)
    resting = np.abs(EPISODES.velocity[:, :, 1:]).sum((2, 3)) > 0
    first = np.where(resting.any(1), resting.argmax(1), 99)
    assert np.quantile(first, 0.02) >= 11
    assert np.quantile(first, 0.9) <= 18


def test_nothing_moves_before_it_is_hit() -> None:
    assert not EPISODES.velocity[:, :10, 1:].any()
    assert (EPISODES.position[:, 10, 1:] == EPISODES.position[:, 0, 1:]).all()


def test_free_motion_is_damped_by_four_percent_a_second() -> None:
    still = simulate_episodes(SolidsConfig(resting=(1, 1)), "train", np.arange(40))
    speed = np.hypot(*np.moveaxis(still.velocity, -1, 0))
    later = speed[:, 96] / np.maximum(speed[:, 80], 1e-12)
    free = speed[:, 80] > 0.01
    assert free.sum() > 20
    np.testing.assert_allclose(later[free], 0.96, rtol=1e-9)


def test_resting_objects_stand_in_their_quadrants() -> None:
    position = EPISODES.position[:, 0, 1:]
    np.testing.assert_array_equal(
        np.sign(position), np.broadcast_to(physics.QUADRANTS, position.shape)
    )
    assert (np.abs(position) >= 0.8).all()
    assert (np.abs(position) <= 2).all()


def test_what_is_drawn_is_drawn_evenly() -> None:
    count = EPISODES.present.sum(1)
    assert sorted(np.unique(count)) == [3, 4, 5]
    assert (np.bincount(count, minlength=6)[3:] > 70).all()
    assert (EPISODES.shape[:, 0] == SPHERE).all()
    assert (EPISODES.material[:, 0] != METAL).all()
    for value, options in ((EPISODES.shape[:, 1:], 3), (EPISODES.material[:, 1:], 2)):
        share = np.bincount(value.flatten(), minlength=options) / value.size
        np.testing.assert_allclose(share, 1 / options, atol=0.05)
    for radius in (0.7, 0.75, 0.8):
        assert (EPISODES.radius == radius).mean() == pytest.approx(1 / 3, abs=0.05)


def test_an_episode_does_not_depend_on_its_neighbours() -> None:
    few = simulate_episodes(SolidsConfig(), "train", np.array([17, 203]))
    for name in ("position", "velocity", "heading", "spin", "color", "radius"):
        np.testing.assert_array_equal(getattr(few, name), getattr(EPISODES, name)[[17, 203]])


def test_splits_and_seeds_differ() -> None:
    ids = np.arange(4)
    train = simulate_episodes(SolidsConfig(), "train", ids).position
    assert (simulate_episodes(SolidsConfig(), "val", ids).position != train).any((1, 2, 3)).all()
    assert (
        (simulate_episodes(SolidsConfig(seed=7), "train", ids).position != train)
        .any((1, 2, 3))
        .all()
    )


def test_options_change_only_what_they_name() -> None:
    ids = np.arange(20)
    plain, fewer = (
        simulate_episodes(SolidsConfig(), "val", ids),
        simulate_episodes(SolidsConfig(shapes=("cube",)), "val", ids),
    )
    np.testing.assert_array_equal(plain.color, fewer.color)
    assert (fewer.shape[:, 1:] == CUBE).all()
    jittered = simulate_episodes(SolidsConfig(camera_jitter=0.5), "val", ids)
    np.testing.assert_array_equal(plain.position, jittered.position)
    assert (plain.camera == 0).all()
    assert 0.3 < np.abs(jittered.camera).max() <= 0.5
    assert CYLINDER in plain.shape
