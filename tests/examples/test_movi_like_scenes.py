"""`examples/movi_like` with PyBullet and Open3D: physics, pictures, stores, counterfactuals."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT
from helpers_movi_like import EXAMPLE, SIDES, write_map, write_objects
from scipy.spatial import ConvexHull

pytest.importorskip("pybullet", reason="PyBullet, which only this example needs, is not installed")
pytest.importorskip("open3d", reason="Open3D, which only this example needs, is not installed")

import camera
import clips
import counterfactuals
import generate
import light
import objects
import physics
import rendering

from geoco.data.source import RawVideo
from geoco.data.store import read_index, verify_store
from geoco.data.store_writer import StoreWriter
from geoco.errors import GeocoError
from geoco.solids import Move, Replace, Scale

RECIPE = clips.Recipe(seed=5, frames=3, size=16)
FRONT = camera.Camera.look_at_middle(np.array((0.0, -8.0, 6.0)))
OVERHEAD = light.Lamps(np.array([(0.0, 0.0, 1.0)]), np.ones((1, 3)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("movi-like")
    maps = write_map(folder / "maps")
    return write_objects(folder / "objects"), maps, folder / "stores" / "toy.objects"


@pytest.fixture
def library(folders: tuple[Path, Path, Path]) -> clips.Library:
    return clips.Library(*folders)


def make_scene(library: clips.Library, *places: tuple[float, float, float]) -> rendering.Scene:
    """Cubes of side 1, not turned, before an even grey world with one lamp overhead."""
    cube = library.get_object("cube")
    count = len(places)
    return rendering.Scene(
        camera=FRONT,
        surroundings=light.Surroundings("grey", np.full((8, 16, 3), 0.5), 0.0, False),
        lamps=OVERHEAD,
        bodies=(rendering.Body(cube, 1.0),) * count,
        positions=np.array([places], dtype=np.float64),
        rotations=np.tile(np.eye(3), (1, count, 1, 1)),
    )


def project_outline(scene: rendering.Scene, item: int, rays: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a convex object: pixels surely inside its outline, and those not surely outside."""
    body = scene.bodies[item]
    corners = body.size * body.object.vertices @ scene.rotations[0, item].T
    pixels, _ = camera.project_points(scene.camera, corners + scene.positions[0, item], rays)
    outline = ConvexHull(pixels).equations
    rows, columns = np.mgrid[:rays, :rays] + 0.5
    outside = (np.stack((columns, rows), -1) @ outline[:, :2].T + outline[:, 2]).max(-1)
    return outside < -1e-3, outside < 1e-3


def test_an_object_falls_bounces_and_lies_on_the_floor(library: clips.Library) -> None:
    hull = library.get_object("cube").hull.astype(np.float64)
    flight = physics.throw_objects([hull], [2.0], 100, np.random.default_rng(1))
    height = flight.positions[:, 0, 2]
    # Free fall by steps of 1/240 s, 20 a frame, with the physics engine's little damping.
    fall = 10 / 240**2 * 20 * 21 / 2
    assert height[0] - height[1] == pytest.approx(fall, rel=0.01)
    assert flight.velocities[1, 0, 2] == pytest.approx(-10 * 20 / 240, rel=0.01)
    assert flight.velocities[0, 0, 2] == 0
    assert height[-1] == pytest.approx(1, abs=0.02)
    assert np.abs(flight.velocities[-1]).max() < 0.05
    assert height.min() > 0.97  # nothing sinks in


def test_objects_start_apart_in_the_box_and_fly_towards_its_middle(library: clips.Library) -> None:
    hulls = [library.get_object(name).hull.astype(np.float64) for name in ("cube", "pyramid")] * 4
    inward = []
    for seed in range(10):
        sizes = np.random.default_rng(seed).uniform(0.75, 3, 8).tolist()
        flight = physics.throw_objects(hulls, sizes, 1, np.random.default_rng(seed))
        # Eight as bulky as these fill the box: now and then one finds no place, and is left out.
        assert len(flight.kept) >= 6
        turned = [
            sizes[number] * hulls[number] @ camera.to_matrices(flight.rotations[0, k]).T
            + flight.positions[0, k]
            for k, number in enumerate(flight.kept)
        ]
        for corners in turned:
            if (np.ptp(corners, axis=0) <= physics.HIGH - physics.LOW).all():
                assert (corners.min(0) >= physics.LOW - 1e-6).all()
                assert (corners.max(0) <= physics.HIGH + 1e-6).all()
        # A plane between each two: one of the faces, or of the two edges' products, suffices.
        for one, other in combinations(turned, 2):
            assert separate(one, other)
        launch = flight.velocities[0, :, :2] + flight.positions[0, :, :2]
        assert np.abs(launch).max() <= 4
        inward.append(launch)
    assert np.abs(np.concatenate(inward)).max() > 3.5  # the whole range


def separate(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a plane lies between the hulls of two sets of points (separating axes)."""
    faces = [ConvexHull(points) for points in (one, other)]
    axes = [*faces[0].equations[:, :3], *faces[1].equations[:, :3]]
    edges = [hull.points[hull.simplices[:, [0, 1, 2]]] for hull in faces]
    sides = [(e - np.roll(e, 1, axis=1)).reshape(-1, 3) for e in edges]
    axes += list(np.cross(sides[0][:, None], sides[1][None]).reshape(-1, 3))
    normals = np.array(
        [axis / np.linalg.norm(axis) for axis in axes if np.linalg.norm(axis) > 1e-9]
    )
    first, second = one @ normals.T, other @ normals.T
    gap = np.maximum(first.min(0) - second.max(0), second.min(0) - first.max(0))
    return bool(gap.max() > -1e-3)


def test_a_clip_is_the_same_whoever_makes_it(folders: tuple[Path, Path, Path]) -> None:
    alone = clips.draw_clip(clips.Library(*folders), RECIPE, "train", 4)
    busy = clips.Library(*folders)
    after_others = [clips.draw_clip(busy, RECIPE, "train", number) for number in range(5)][4]
    assert alone.metadata == after_others.metadata
    np.testing.assert_array_equal(alone.scene.positions, after_others.scene.positions)
    np.testing.assert_array_equal(alone.scene.rotations, after_others.scene.rotations)
    one, other = (rendering.render_clip(drawn.scene, 16) for drawn in (alone, after_others))
    np.testing.assert_array_equal(one.frames, other.frames)
    np.testing.assert_array_equal(one.masks, other.masks)
    other_split = clips.draw_clip(busy, RECIPE, "val", 4)
    other_seed = clips.draw_clip(busy, replace(RECIPE, seed=6), "train", 4)
    assert len({json.dumps(d.metadata) for d in (alone, other_split, other_seed)}) == 3


def test_objects_are_seen_where_their_meshes_project(library: clips.Library) -> None:
    scene = make_scene(library, (0.6, 0.2, 1.0), (-1.5, 1, 0.5))
    quaternion = camera.draw_rotation(np.random.default_rng(0))
    scene.rotations[0, 0] = camera.to_matrices(quaternion)
    pictures = rendering.render_clip(scene, 64)
    assert pictures.frames.shape == (1, 64, 64, 3)
    assert pictures.masks.shape == (1, 128, 128)
    for item in (0, 1):
        inside, outer = project_outline(scene, item, 128)
        seen = pictures.masks[0] == item + 1
        assert inside.sum() > 100
        assert seen[inside].all()
        assert not seen[~outer].any()
    # The colours agree: sides are saturated, the world is grey.
    vivid = np.ptp(pictures.frames[0].astype(int), axis=-1) > 60
    blocks = (pictures.masks[0] > 0).reshape(64, 2, 64, 2).sum((1, 3))
    assert vivid[blocks == 4].all()
    assert not vivid[blocks == 0].any()


def test_each_side_shows_its_part_of_the_texture(library: clips.Library) -> None:
    for number, color in enumerate(SIDES):
        if number == 4:  # below
            continue
        outwards = np.eye(3)[number // 2] * (1 if number % 2 else -1)
        place = 7.5 * (outwards + np.array((0.0, -0.2, 0.5)))
        scene = replace(
            make_scene(library, (0.0, 0, 0)), camera=camera.Camera.look_at_middle(place)
        )
        middle = rendering.render_clip(scene, 64).frames[0, 31:33, 31:33].reshape(-1, 3)
        assert ((middle > 60) == (np.array(color) > 0)).all(), number


def test_texture_lies_on_its_triangles_as_their_corners_say(library: clips.Library) -> None:
    """A square whose texture grows redder to the right and greener away from the camera."""
    corners = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], dtype=np.float32)
    triangles = np.array([(0, 1, 2), (2, 3, 0)], dtype=np.int32)
    ramp = np.arange(0, 256, 4, dtype=np.uint8)
    texture = np.zeros((64, 64, 3), dtype=np.uint8)
    texture[..., 0], texture[..., 1] = ramp, ramp[::-1, None]  # v goes up, rows go down
    square = objects.ScannedObject(
        name="square",
        vertices=corners,
        triangles=triangles,
        uv=(corners[triangles][..., :2] + 1) / 2,
        normals=np.tile(np.array((0, 0, 1), np.float32), (2, 3, 1)),
        texture=texture,
        hull=corners,
    )
    dark = light.Lamps(OVERHEAD.directions, np.zeros((1, 3)))
    scene = make_scene(library, (0.0, 0, 1))
    scene = replace(scene, bodies=(rendering.Body(square, 1.0),), lamps=dark)
    frame = rendering.render_clip(scene, 128).frames[0]
    for x, y in ((-0.8, -0.5), (0.8, -0.5), (0.3, 0.8), (-0.6, 0.1)):
        pixel, _ = camera.project_points(FRONT, np.array((x, y, 1.0)), 128)
        texel = np.rint(np.array((x + 1, y + 1)) * 32 - 0.5).astype(int)
        expected = light.encode_srgb(0.35 * light.decode_srgb(ramp[texel]))
        seen = frame[int(pixel[1]), int(pixel[0]), :2]
        np.testing.assert_allclose(seen.astype(int), expected.astype(int), atol=5)


def test_the_nearer_object_hides_the_other(library: clips.Library) -> None:
    scene = make_scene(library, (0, 2, 0.5), (0, -2, 2))  # one behind the other
    masks = rendering.render_clip(scene, 32).masks[0]
    hidden, _ = project_outline(scene, 0, 64)
    front, outer = project_outline(scene, 1, 64)
    assert (hidden & front).sum() > 10
    assert (masks[front] == 2).all()
    assert (masks[hidden & ~outer] == 1).all()
    whole = rendering.render_amodal(scene, 32)[0]
    assert whole[0][hidden].all()
    np.testing.assert_array_equal(whole[1], masks == 2)


def test_a_shadow_falls_where_the_lamp_is_hidden(library: clips.Library) -> None:
    scene = make_scene(library, (0, 0, 3))
    frame = rendering.render_clip(scene, 64).frames[0]
    lit, dark = light.encode_srgb(np.array([0.5, 0.5 * 0.25]))
    for point, expected in (
        ((0.0, 0.0), dark),  # under the cube
        ((0.4, 0.4), dark),
        ((0.8, 0.0), lit),
        ((-2.0, -1.0), lit),
    ):
        pixel, _ = camera.project_points(FRONT, np.array((*point, 0.0)), 64)
        assert (frame[int(pixel[1]), int(pixel[0])] == expected).all(), point
    # An object's top, a unit below another that covers it, keeps 0.35 of its colour; else 1.85.
    stacked = make_scene(library, (0, 0, 0.5))
    below = replace(make_scene(library, (0, 0, 0.5), (0, 0, 4)), camera=FRONT)
    pixel, _ = camera.project_points(FRONT, np.array((0.0, 0.1, 1.0)), 64)
    column, row = pixel.astype(int)
    top = light.decode_srgb(np.array((255, 0), dtype=np.uint8))
    shaded = rendering.render_clip(below, 64).frames[0, row, column]
    assert shaded[1] == shaded[2] == light.encode_srgb(0.35 * top[:1])[0]
    assert rendering.render_clip(stacked, 64).frames[0, row, column, 1] == 255


def test_a_lamp_shines_along_normals_turned_with_their_object(library: clips.Library) -> None:
    slanted = light.Lamps(np.array([(0.0, -0.6, 0.8)]), np.ones((1, 3)) * 0.2)
    scene = replace(make_scene(library, (0, 0, 0.5)), lamps=slanted)
    # A quarter about x: what looked up looks to the camera's side, what looked back looks up.
    scene.rotations[0, 0] = [(1, 0, 0), (0, 0, -1), (0, 1, 0)]
    frame = rendering.render_clip(scene, 64).frames[0]
    for point, side, cosine in (((0.0, -0.5, 0.5), 5, 0.6), ((0.0, 0.1, 1.0), 3, 0.8)):
        pixel, _ = camera.project_points(FRONT, np.array(point), 64)
        strength = 0.35 + 1.5 * 0.2 * cosine
        expected = light.encode_srgb(strength * (np.array(SIDES[side]) > 0))
        np.testing.assert_allclose(frame[int(pixel[1]), int(pixel[0])], expected, atol=1)


def run(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE / script), *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = process.communicate(timeout=240)
    assert process.returncode == code, said
    return said


COMMON = ("--seed", 5, "--frames", 3, "--size", 16)


@pytest.fixture(scope="module")
def store(folders: tuple[Path, Path, Path]) -> Path:
    """What the command makes of the toy folders when nothing disturbs it."""
    path = folders[2].with_name("toy")
    finish(run("generate.py", *folders[:2], path, "--train", 12, "--val", 2, *COMMON))
    return path


def test_the_command_fills_stores(folders: tuple[Path, Path, Path], store: Path) -> None:
    assert sorted(path.name for path in store.iterdir()) == ["train", "val"]
    verify_store(store / "train", lambda done, total: None)
    index = read_index(store / "train")
    assert (index.height, index.width, index.mask_size) == (16, 16, (32, 32))
    assert [video.source for video in index.videos] == [f"train/{k}" for k in range(12)]
    video = index.videos[7]
    assert set(video.metadata["objects"]) <= {"cube", "pyramid"}
    assert 3 <= len(video.metadata["sizes"]) <= 10
    assert len(json.dumps(dict(video.metadata))) < 2000
    drawn = clips.draw_clip(clips.Library(*folders), RECIPE, "train", 7)
    assert video.metadata == drawn.metadata
    pictures = rendering.render_clip(drawn.scene, 16)
    stored = np.fromfile(store / "train" / "frames.u8", np.uint8).reshape(12, 3, 3, 16, 16)
    np.testing.assert_array_equal(stored[7].transpose(0, 2, 3, 1), pictures.frames)
    masks = np.fromfile(store / "train" / "masks.u8", np.uint8).reshape(12, 3, 32, 32)
    np.testing.assert_array_equal(masks[7], pictures.masks)


def test_a_killed_run_goes_on_where_it_stopped(
    folders: tuple[Path, Path, Path], store: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    arguments = ("generate.py", *folders[:2], again, "--train", 12, "--val", 2, *COMMON)
    # Two clips are there before: so a run continues what another process made alone.
    library = clips.Library(*folders)
    settings = generate.describe_settings(library, RECIPE)
    with StoreWriter(again / "train", 16, 16, settings) as writer:
        for number in range(2):
            drawn = clips.draw_clip(library, RECIPE, "train", number)
            pictures = rendering.render_clip(drawn.scene, 16)
            name = f"train/{number}"
            writer.append(RawVideo(name, pictures.frames, pictures.masks, drawn.metadata))
    journal = again / "train.partial" / "journal.jsonl"
    process = run(*arguments)
    while journal.exists() and len(journal.read_bytes().splitlines()) < 4:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (again / "val").exists()
    finish(run(*arguments))
    for split in ("train", "val"):
        for name in ("frames.u8", "masks.u8", "index.json"):
            assert (again / split / name).read_bytes() == (store / split / name).read_bytes()


def test_a_store_of_other_clips_is_refused(folders: tuple[Path, Path, Path], store: Path) -> None:
    with pytest.raises(GeocoError, match="already imported with other settings"):
        generate.generate_clips(folders, replace(RECIPE, seed=6), store, {"train": 12})
    with pytest.raises(GeocoError, match="12 clips cannot become one of 13"):
        generate.generate_clips(folders, RECIPE, store, {"train": 13})
    before = (store / "train").stat().st_mtime_ns
    generate.generate_clips(folders, RECIPE, store, {"train": 12, "test": 0})  # nothing to do
    assert (store / "train").stat().st_mtime_ns == before


def test_an_object_that_cannot_be_used_is_named_before_the_first_clip(
    folders: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    broken = write_objects(tmp_path / "objects")
    (broken / "pyramid" / "texture.png").write_bytes(b"none")
    arguments = (broken, folders[1], tmp_path / "stores" / "toy", "--train", 5, *COMMON)
    said = finish(run("generate.py", *arguments), 1)
    assert "texture.png: this texture cannot be read" in said
    assert not (tmp_path / "stores" / "toy").exists()


def no_donor(number: int) -> rendering.Scene:
    raise AssertionError(number)


def test_a_moved_object_is_where_the_command_says(library: clips.Library) -> None:
    scene = make_scene(library, (0.5, 0.3, 1.2), (-1.5, 1, 0.5))
    edit = Move(0, 7.5, -4.0)
    edited = counterfactuals.edit_scene(scene, edit, 64, no_donor)
    before, depth = camera.project_points(FRONT, scene.positions[0, 0], 64)
    after, same = camera.project_points(FRONT, edited.positions[0, 0], 64)
    np.testing.assert_allclose(after - before, (7.5, -4.0))
    np.testing.assert_allclose(depth, same)
    counterfactual = counterfactuals.render_counterfactual(scene, edit, 64, no_donor)
    inside, outer = project_outline(edited, 0, 128)
    assert counterfactual.amodal[0, 0][inside].all()
    assert not counterfactual.amodal[0, 0][~outer].any()
    factual = rendering.render_amodal(scene, 64)
    np.testing.assert_array_equal(counterfactual.amodal[0, 1], factual[0, 1])
    assert (counterfactual.pictures.masks[0] == 1).sum() == counterfactual.amodal[0, 0].sum()
    nothing = counterfactuals.render_counterfactual(scene, Move(1, 0, 0), 64, no_donor)
    same_pictures = rendering.render_clip(scene, 64)
    np.testing.assert_array_equal(nothing.pictures.frames, same_pictures.frames)


def test_what_is_behind_the_camera_stays(library: clips.Library) -> None:
    scene = make_scene(library, (0, -10, 7))
    edited = counterfactuals.edit_scene(scene, Move(0, 5, 5), 64, no_donor)
    np.testing.assert_array_equal(edited.positions, scene.positions)


def test_a_resized_object_keeps_its_centre(library: clips.Library) -> None:
    scene = make_scene(library, (0.5, 0.3, 1.2), (-1.5, 1, 0.5))
    edited = counterfactuals.edit_scene(scene, Scale(0, 1.6), 64, no_donor)
    assert edited.bodies[0].size == pytest.approx(1.6)
    assert edited.bodies[1] == scene.bodies[1]
    np.testing.assert_array_equal(edited.positions, scene.positions)
    inside, outer = project_outline(edited, 0, 128)
    whole = rendering.render_amodal(edited, 64)[0, 0]
    assert whole[inside].all()
    assert not whole[~outer].any()
    for factor in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(GeocoError, match="the factor must be a positive number"):
            counterfactuals.edit_scene(scene, Scale(0, factor), 64, no_donor)
    with pytest.raises(GeocoError, match="object 2: the clip has objects 0 to 1"):
        counterfactuals.edit_scene(scene, Scale(2, 2.0), 64, no_donor)


def test_a_swapped_object_looks_as_its_own_camera_saw_it(library: clips.Library) -> None:
    scene = make_scene(library, (0.5, 0.3, 1.2), (-1.5, 1, 0.5))
    donor = make_scene(library, (0, 0, 0), (0.0, 0, 0))
    pyramid = library.get_object("pyramid")
    donor = replace(
        donor,
        camera=camera.Camera.look_at_middle(np.array((6.0, 5, 4))),
        bodies=(donor.bodies[0], rendering.Body(pyramid, 2.0)),
    )
    donor.rotations[0, 1] = camera.to_matrices(camera.draw_rotation(np.random.default_rng(2)))
    edited = counterfactuals.edit_scene(scene, Replace(0, 9, 1), 64, {9: donor}.__getitem__)
    assert edited.bodies == (rendering.Body(pyramid, 1.0), scene.bodies[1])
    np.testing.assert_allclose(
        FRONT.axes @ edited.rotations[0, 0], donor.camera.axes @ donor.rotations[0, 1]
    )
    assert np.linalg.det(edited.rotations[0, 0]) == pytest.approx(1)
    # What is swapped for itself stays as it is.
    itself = counterfactuals.render_counterfactual(scene, Replace(0, 9, 0), 32, lambda _: scene)
    np.testing.assert_array_equal(itself.pictures.frames, rendering.render_clip(scene, 32).frames)


def test_the_command_edits_a_clip_of_a_store(
    folders: tuple[Path, Path, Path], store: Path, tmp_path: Path
) -> None:
    arrays, sheet = tmp_path / "edited.npz", tmp_path / "edited.png"
    common = (*folders[:2], store, "--split", "train", "--clip", 7)
    said = finish(run("counterfactuals.py", *common, "--swap", 1, 3, 0, "--out", arrays))
    assert "Replace(object=1, donor_scene=3, donor_object=0)" in said
    with np.load(arrays) as edited:
        stored = np.fromfile(store / "train" / "frames.u8", np.uint8).reshape(12, 3, 3, 16, 16)
        np.testing.assert_array_equal(stored[7].transpose(0, 2, 3, 1), edited["factual_frames"])
        assert edited["amodal"].shape[2:] == (32, 32)
        own = edited["masks"][:, None] == np.arange(1, edited["amodal"].shape[1] + 1)[:, None, None]
        assert (edited["amodal"] | ~own).all()  # what is seen of an object is part of it
    finish(run("counterfactuals.py", *common, "--move", 1, 3, -2, "--out", sheet))
    assert sheet.stat().st_size > 1000
    said = finish(run("counterfactuals.py", *common, "--move", 40, 3, -2, "--out", sheet), 1)
    assert "error: object 40: the clip has objects 0 to" in said
