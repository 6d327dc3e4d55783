"""What `examples/movi_like` computes without PyBullet and Open3D."""

import io
from pathlib import Path

import numpy as np
import pytest
from helpers_movi_like import CUBE, PYRAMID, SIDES, write_map, write_objects
from PIL import Image
from scipy.spatial.transform import Rotation

from geoco.errors import GeocoError

# isort: split
import camera
import light
import objects

FRONT = camera.Camera.look_at_middle(np.array((0.0, -8.0, 6.0)))  # 10 from the middle


def test_a_camera_sees_what_it_looks_at() -> None:
    np.testing.assert_allclose(FRONT.axes, [[1, 0, 0], [0, -0.6, -0.8], [0, 0.8, -0.6]], atol=1e-12)
    points = np.array([(0.0, 0, 0), (1, 0, 0), (0, 0, 1)])
    pixels, depth = camera.project_points(FRONT, points, 64)
    # 35 mm on a 32 mm sensor: 70 pixels for as much across as deep.
    expected = [(32, 32), (32 + 70 / 10, 32), (32, 32 - 70 * 0.8 / 9.4)]
    np.testing.assert_allclose(pixels, expected, atol=1e-12)
    np.testing.assert_allclose(depth, [10, 10, 9.4])


def test_rays_go_through_the_centres_of_pixels() -> None:
    rays = camera.make_rays(FRONT, 6)
    np.testing.assert_allclose(np.linalg.norm(rays, axis=-1), 1)
    pixels, depth = camera.project_points(FRONT, FRONT.position + 3 * rays, 6)
    rows, columns = np.mgrid[:6, :6] + 0.5
    np.testing.assert_allclose(pixels, np.stack((columns, rows), -1))
    assert (depth > 0).all()


def test_a_shift_moves_by_the_pixels_asked_for_at_any_depth() -> None:
    np.testing.assert_allclose(
        camera.compute_shift(FRONT, np.array(10.0), (7.0, 0.0), 64), (1, 0, 0)
    )
    points = np.random.default_rng(0).uniform(-3, 3, (5, 3))
    before, depth = camera.project_points(FRONT, points, 64)
    moved = points + camera.compute_shift(FRONT, depth, (4.5, -3.0), 64)
    after, same = camera.project_points(FRONT, moved, 64)
    np.testing.assert_allclose(after - before, np.broadcast_to((4.5, -3.0), (5, 2)))
    np.testing.assert_allclose(same, depth)


def test_cameras_stand_in_the_half_shell() -> None:
    generator = np.random.default_rng(0)
    places = np.array([camera.draw_camera(generator).position for _ in range(300)])
    distance = np.linalg.norm(places, axis=1)
    assert distance.min() >= 7
    assert distance.max() <= 9
    assert places[:, 2].min() >= 1
    # Evenly in the volume, of which a sphere of radius r has the share r (r - 1) above 1.
    radii = np.linspace(7, 9, 2001)
    assert distance.mean() == pytest.approx(
        (radii * radii * (radii - 1)).sum() / (radii * (radii - 1)).sum(), abs=0.1
    )
    assert np.abs(places[:, :2].mean(0)).max() < 0.6


def test_quaternions_are_pybullets() -> None:
    quarter = np.array((0, 0, np.sqrt(0.5), np.sqrt(0.5)))  # about z: x goes to y
    np.testing.assert_allclose(camera.to_matrices(quarter) @ (1, 0, 0), (0, 1, 0), atol=1e-12)
    several = np.stack([camera.draw_rotation(np.random.default_rng(k)) for k in range(4)])
    expected = Rotation.from_quat(several).as_matrix()
    np.testing.assert_allclose(camera.to_matrices(several), expected, atol=1e-12)


def test_srgb_and_averages_in_linear_light() -> None:
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(light.encode_srgb(light.decode_srgb(codes)), codes)
    dark, middle = light.decode_srgb(np.array((10, 188), dtype=np.uint8))
    assert dark == pytest.approx(10 / 255 / 12.92)
    assert middle == pytest.approx(((188 / 255 + 0.055) / 1.055) ** 2.4)
    checkers = np.array([[0.0, 1.0], [1.0, 0.0]])[..., None].repeat(2, 1).repeat(3, 2)
    averaged = light.average_blocks(checkers, 2)  # [[0, 0, 1, 1], [1, 1, 0, 0]]
    np.testing.assert_allclose(averaged, np.full((1, 2, 3), 0.5))
    np.testing.assert_array_equal(light.encode_srgb(averaged), np.full((1, 2, 3), 188))
    np.testing.assert_array_equal(light.encode_srgb(np.array([-1.0, 7.0])), [0, 255])
    uneven = np.arange(16.0).reshape(4, 4, 1)
    np.testing.assert_allclose(light.average_blocks(uneven, 2)[..., 0], [[2.5, 4.5], [10.5, 12.5]])


def test_an_image_between_its_pixels() -> None:
    image = np.array([[[0.0], [4.0]], [[8.0], [20.0]]])
    columns, rows = np.array([0.0, 0.25, 1.5, -0.5, 0.5]), np.array([1.0, 0.0, 0.0, 0.0, 0.5])
    # 1.5 and -0.5 lie between the last column and the first.
    expected = [8, 1, 2, 2, (0 + 4 + 8 + 20) / 4]
    np.testing.assert_allclose(light.sample_bilinear(image, columns, rows)[..., 0], expected)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_map_is_looked_up_where_its_directions_point(mirrored: bool) -> None:
    radiance = np.random.default_rng(0).uniform(size=(4, 8, 3))
    around = light.Surroundings("toy", radiance, 0.7, mirrored)
    rows, columns = np.mgrid[:4, :8] + 0.5
    directions = around.to_direction(columns / 8, rows / 4)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=-1), 1)
    np.testing.assert_allclose(around.look_up(5 * directions), radiance, atol=1e-12)
    # An eighth of a turn is one of eight columns: azimuth 0 is where columns 0 and 1 meet, and a
    # quarter further is two columns on, or two back.
    plain = light.Surroundings("toy", radiance, np.pi / 4, mirrored)
    seen = plain.look_up(np.array([(1.0, 0, 0), (0, 1, 0), (0, 0, 1)]))
    horizon = (radiance[1] + radiance[2]) / 2
    quarter = horizon[6:8] if mirrored else horizon[2:4]
    expected = [horizon[0:2].mean(0), quarter.mean(0), radiance[0, 0:2].mean(0)]
    np.testing.assert_allclose(seen, expected)


def test_shares_of_light_are_found_among_bins() -> None:
    weights = np.array([1.0, 0.0, 3.0])
    places = light.invert_cumulative(weights, np.array([0.125, 0.25, 0.625, 1.0]))
    np.testing.assert_allclose(places, [0.5, 2, 2.5, 3])
    assert places.astype(int).tolist() == [0, 2, 2, 2]  # never the empty bin, nor past the last


def test_lamps_go_where_the_light_is() -> None:
    """Three quarters of the light in one spot: twelve lamps of sixteen, each time."""
    radiance = np.zeros((32, 64, 3))
    radiance[8, 10], radiance[8, 50] = (3, 0, 0), (0, 0.2126 / 0.7152, 0)
    radiance[20:] = 100  # below the floor nothing shines
    around = light.Surroundings("toy", radiance, 0.0, False)
    for seed in range(5):
        lamps = light.draw_lamps(around, np.random.default_rng(seed))
        assert lamps.directions.shape == (16, 3)
        np.testing.assert_allclose((lamps.colors @ light.LUMINANCE), 1 / 16)
        red = lamps.colors[:, 0] > lamps.colors[:, 1]
        assert red.sum() == 12
        azimuth = np.degrees(np.arctan2(lamps.directions[:, 1], lamps.directions[:, 0])) % 360
        assert ((azimuth[red] >= 10 * 360 / 64) & (azimuth[red] <= 11 * 360 / 64)).all()
        assert ((azimuth[~red] >= 50 * 360 / 64) & (azimuth[~red] <= 51 * 360 / 64)).all()


def test_lamps_of_an_even_sky_are_stratified() -> None:
    around = light.Surroundings("grey", np.full((256, 512, 3), 0.5), 0.0, False)
    lamps = light.draw_lamps(around, np.random.default_rng(3))
    x, y, z = lamps.directions.T
    quarters = (np.arctan2(y, x) % (2 * np.pi) // (np.pi / 2)).astype(int)
    # An even sky has equal light in equal heights: from sin 9 degrees to 1 in four steps.
    least = np.sin(np.radians(9))
    bands = ((z - least) / (1 - least) * 4).clip(0, 3.99).astype(int)
    assert sorted(zip(quarters.tolist(), bands.tolist(), strict=True)) == [
        (quarter, band) for quarter in range(4) for band in range(4)
    ]
    assert z.min() >= least - 0.01
    np.testing.assert_allclose(lamps.colors, 1 / 16)


def test_rays_end_on_the_floor_or_on_the_dome() -> None:
    origin = np.array((0.0, 0.0, 3.0))
    slope = np.sqrt(0.5)
    directions = np.array([(0, 0, -1), (slope, 0, -slope), (1, 0, 0), (0, 0, 1), (-0.995, 0, -0.1)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points, on_floor = light.locate_surroundings(origin, directions)
    assert on_floor.tolist() == [True, True, False, False, False]  # the last would land at 29.85
    expected = [(0, 0, 0), (3, 0, 0), (np.sqrt(391), 0, 3), (0, 0, 20)]
    np.testing.assert_allclose(points[:4], expected, atol=1e-9)
    assert np.linalg.norm(points[4]) == pytest.approx(20)
    assert 0 < points[4, 2] < 3


def test_the_map_is_projected_from_four_units_above_the_middle() -> None:
    radiance = np.arange(8.0)[:, None, None] * np.ones((8, 16, 3))  # each row its number
    around = light.Surroundings("rows", radiance, 0.0, False)
    # 45 degrees down is 3/4 of the way from top to bottom: between rows 5 and 6.
    points = np.array([(4.0, 0, 0), (0, -4, 0), (9, 0, 4), (0, 0, 0)])
    seen = light.paint_surroundings(around, points)[:, 0]
    np.testing.assert_allclose(seen, [5.5, 5.5, 3.5, 7])


def test_shades_of_floor_and_objects() -> None:
    high = np.sqrt(1 - 0.36)
    lamps = light.Lamps(
        np.array([(0.6, 0.0, high), (-0.6, 0.0, high)]), np.array([(1.0, 0.5, 0.0), (1, 0.5, 2)])
    )
    texture = np.full((3, 3), 0.4)
    unhidden = np.array([(True, True), (False, False), (True, False)])
    floor = light.shade_floor(texture, lamps, unhidden)
    expected = [(0.4,) * 3, (0.1,) * 3, (0.4 * 0.625, 0.4 * 0.625, 0.4 * 0.25)]
    np.testing.assert_allclose(floor, expected)
    cosines = np.array([(1.0, -0.5), (1.0, 1.0), (0.5, 1.0)])
    lit = light.shade_objects(texture, lamps, cosines, unhidden)
    expected = [0.35 + 1.5 * 1, 0.35, 0.35 + 1.5 * 0.5]
    np.testing.assert_allclose(lit[:, 0], 0.4 * np.array(expected))
    np.testing.assert_allclose(lit[:, 2], 0.4 * 0.35)  # what is seen of these lamps has no blue


def test_bright_spots_are_clipped_and_exposure_is_set() -> None:
    radiance = np.ones((40, 100, 3))
    radiance[0, :3] = (100, 50, 0)
    radiance[0, 3] = 8
    clipped = light.clip_brightest(radiance)
    # 0.1% of 4,000 pixels are four: none of them stays brighter than the next.
    np.testing.assert_allclose((clipped @ light.LUMINANCE).max(), 1, rtol=0.01)
    np.testing.assert_allclose(clipped[0, 0, 1] / clipped[0, 0, 0], 0.5)
    two = np.array([[[0.25] * 3, [4.0] * 3]])  # geometric mean 1
    np.testing.assert_allclose(light.set_exposure(two), two * light.MEAN_LUMINANCE, rtol=1e-6)


def test_maps_are_read_in_linear_light(tmp_path: Path) -> None:
    folder = write_map(tmp_path / "maps")
    assert list(light.list_maps(folder)) == ["toy"]
    radiance = light.read_map(folder / "toy.png")
    assert radiance.shape == (512, 1024, 3)
    ratio = np.divide(*light.decode_srgb(np.array((200, 90), np.uint8)))
    assert radiance[30, 30, 2] / radiance[500, 30, 2] == pytest.approx(ratio, rel=1e-5)
    mean = np.exp(np.log(radiance @ light.LUMINANCE).mean())
    assert mean == pytest.approx(light.MEAN_LUMINANCE, rel=1e-4)
    (folder / "toy.hdr").touch()
    assert light.list_maps(folder) == {"toy": folder / "toy.hdr"}
    with pytest.raises(GeocoError, match="no environment map here"):
        light.list_maps(tmp_path / "maps" / "none")
    (folder / "broken.jpg").write_bytes(b"none")
    with pytest.raises(GeocoError, match=r"broken.jpg: this image cannot be read"):
        light.read_map(folder / "broken.jpg")


def test_radiance_files_keep_what_is_brighter_than_white(tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which reads .hdr files, is not installed")
    header = b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 1 +X 2\n"
    # Mantissa / 256 * 2^(exponent - 128): (4, 2, 1) and (0.5, 0.25, 0.125).
    pixels = bytes((128, 64, 32, 131, 128, 64, 32, 128))
    (tmp_path / "two.hdr").write_bytes(header + pixels)
    read = light._read_hdr(tmp_path / "two.hdr")
    np.testing.assert_allclose(read, [[(4, 2, 1), (0.5, 0.25, 0.125)]], rtol=0.01)


def test_meshes_are_read_from_the_published_layouts(tmp_path: Path) -> None:
    listed = objects.list_objects(write_objects(tmp_path / "objects"))
    assert list(listed) == ["cube", "pyramid"]
    cube = objects.prepare_object(listed["cube"])
    assert cube.name == "cube"
    assert len(cube.triangles) == 12
    np.testing.assert_allclose(np.sort(cube.vertices, 0)[[0, -1]], [[-0.5] * 3, [0.5] * 3])
    assert len(cube.hull) == 8
    for number, color in enumerate(SIDES):
        # Each side's triangles lie on it, look outwards and in its patch of the texture.
        pair = slice(2 * number, 2 * number + 2)
        outwards = np.eye(3)[number // 2] * (1 if number % 2 else -1)
        np.testing.assert_allclose(cube.normals[pair].reshape(-1, 3), [outwards] * 6, atol=1e-6)
        np.testing.assert_allclose(cube.vertices[cube.triangles[pair]] @ outwards, 0.5)
        middle = cube.uv[pair].reshape(-1, 2).mean(0)
        height, width, _ = cube.texture.shape
        texel = cube.texture[int((1 - middle[1]) * height), int(middle[0] * width)]
        assert tuple(texel) == color


def test_a_pyramid_falls_about_its_centre_of_mass(tmp_path: Path) -> None:
    pyramid = objects.prepare_object(write_objects(tmp_path / "objects") / "pyramid")
    # A quarter of its height above the base, in units of its longest side of 2.
    np.testing.assert_allclose(pyramid.vertices[-1], (0, 0, 0.375), atol=1e-6)
    np.testing.assert_allclose(pyramid.vertices[:4, 2], -0.125, atol=1e-6)
    np.testing.assert_allclose(pyramid.normals[:2].reshape(-1, 3), [(0, 0, -1)] * 6)
    np.testing.assert_allclose(pyramid.normals[2, 0], (0, -np.sqrt(0.5), np.sqrt(0.5)), atol=1e-6)


def test_hulls_are_thinned_to_what_lies_farthest_out() -> None:
    points = np.random.default_rng(0).normal(size=(2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    thinned = objects.thin_hull(points, 64)
    assert 55 <= len(thinned) <= 64
    # Spread evenly: seen from anywhere, the thinned ball is not much smaller.
    assert (thinned @ points.T).max(0).min() > 0.93


def test_prepared_objects_need_no_folder_again(tmp_path: Path) -> None:
    folder = write_objects(tmp_path / "objects") / "cube"
    first = objects.load_object(folder, tmp_path / "prepared")
    (folder / "meshes" / "model.obj").unlink()
    again = objects.load_object(folder, tmp_path / "prepared")
    for name, value in vars(first).items():
        np.testing.assert_array_equal(getattr(again, name), value)


def test_textures_shrink_by_averages(tmp_path: Path) -> None:
    folder = write_objects(tmp_path / "objects") / "pyramid"
    fine = np.zeros((1024, 2048, 3), dtype=np.uint8)
    fine[:, ::2] = 200
    Image.fromarray(fine).save(folder / "texture.png")
    texture = objects.prepare_object(folder).texture
    assert texture.shape == (256, 512, 3)
    assert (texture == 100).all()


def test_what_is_wrong_with_an_object_is_said(tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match=r"no scanned object here: expected NAME/meshes/model.obj"):
        objects.list_objects(tmp_path)
    folder = write_objects(tmp_path / "objects") / "pyramid"
    mesh = folder / "visual_geometry.obj"
    for text, message in (
        (PYRAMID.replace("f 1/1 2/1 5/1", "f 1 2 5"), "a face lacks texture coordinates"),
        (PYRAMID.replace("f 1/1 2/1 5/1", "f 1/1 2/1 6/1"), "names what is not there"),
        (PYRAMID.replace("v 0 0 1\n", "v 0 0 0\n"), "this mesh is flat"),
        (PYRAMID.replace("v 0 0 1\n", "v 0 zero 1\n"), "this OBJ mesh cannot be read"),
        ("", "this OBJ mesh cannot be read"),
    ):
        mesh.write_text(text)
        with pytest.raises(GeocoError, match=message):
            objects.prepare_object(folder)
    mesh.write_text(CUBE)
    (folder / "texture.png").write_bytes(io.BytesIO().getvalue())
    with pytest.raises(GeocoError, match="this texture cannot be read"):
        objects.prepare_object(folder)
    (folder / "texture.png").unlink()
    with pytest.raises(GeocoError, match=r"expected a mesh and materials/textures/texture\.png"):
        objects.prepare_object(folder)
