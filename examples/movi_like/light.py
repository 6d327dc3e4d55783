"""Environment maps: reading them, light from them, floor and dome under them. Needs numpy alone.

A map is equirectangular: its first row is the zenith, its columns go once around. All radiance is
linear; sRGB is for files only. OpenCV is needed for .hdr files.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from geoco.errors import GeocoError

IMAGES = (".jpg", ".jpeg", ".png", ".webp")
MAPS = (".hdr", *IMAGES)
HEIGHT, WIDTH = 512, 1024  # of a map in memory: a column is about a ray at 128 x 128
CLIPPED = 0.001  # the share of a map's pixels whose brightness is clipped
MEAN_LUMINANCE = 0.3  # geometric mean of a map, to which its exposure is set
STRATA = 4  # along each axis: STRATA^2 directions
LEAST_ELEVATION = np.radians(9.0)
RADIUS = 20.0  # of the floor and of the dome over it
PROJECTOR = np.array((0.0, 0.0, 4.0))  # from where the map is projected on both
FLOOR_SHADE, FLOOR_LIGHT = 0.25, 0.75
OBJECT_SHADE, OBJECT_LIGHT = 0.35, 1.5
LUMINANCE = np.array((0.2126, 0.7152, 0.0722))


@dataclass(frozen=True)
class Surroundings:
    """A map as one clip uses it: turned about the vertical by `turn`, mirrored or not."""

    name: str
    radiance: Float[np.ndarray, "height width 3"]
    turn: float
    mirrored: bool

    def look_up(self, directions: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
        """Radiance from directions, which need not be of unit length."""
        height, width, _ = self.radiance.shape
        x, y, z = np.moveaxis(directions, -1, 0)
        azimuth = np.arctan2(y, x) * (-1 if self.mirrored else 1) + self.turn
        elevation = np.arctan2(z, np.hypot(x, y))
        rows = (0.5 - elevation / np.pi) * height - 0.5
        return sample_bilinear(
            self.radiance, azimuth / (2 * np.pi) * width - 0.5, np.clip(rows, 0, height - 1)
        )

    def to_direction(
        self, u: Float[np.ndarray, "..."], v: Float[np.ndarray, "..."]
    ) -> Float[np.ndarray, "... 3"]:
        """The unit direction of a place of the map; u and v go from 0 to 1 over it."""
        azimuth = (2 * np.pi * u - self.turn) * (-1 if self.mirrored else 1)
        elevation = (0.5 - v) * np.pi
        level = np.cos(elevation)
        return np.stack((level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)), -1)


@dataclass(frozen=True)
class Lamps:
    """The light of a map as few far lamps of equal brightness: their luminances add up to 1."""

    directions: Float[np.ndarray, "lamp 3"]
    colors: Float[np.ndarray, "lamp 3"]


def list_maps(folder: Path) -> dict[str, Path]:
    """The maps of a folder by name; an .hdr file is taken before an image of the same name."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in MAPS]
    if not paths:
        raise GeocoError(f"{folder}: there is no environment map here ({', '.join(MAPS)})")
    # The kind that is preferred comes last, and replaces the others.
    paths.sort(key=lambda path: -MAPS.index(path.suffix.lower()))
    return dict(sorted({path.stem: path for path in paths}.items()))


def read_map(path: Path) -> Float[np.ndarray, "512 1024 3"]:
    """A map in linear light, resized, its brightest spots clipped and its exposure set."""
    linear = _read_hdr(path) if path.suffix.lower() == ".hdr" else _read_image(path)
    return set_exposure(clip_brightest(_resize_map(linear)))


def clip_brightest(radiance: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w 3"]:
    """Scale the brightest pixels down to the least bright of them; their colours stay."""
    luminance = radiance @ LUMINANCE
    most = np.quantile(luminance, 1 - CLIPPED)
    return radiance * np.minimum(1, most / np.maximum(luminance, 1e-12))[..., None]


def set_exposure(radiance: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w 3"]:
    """Give a map the geometric mean luminance of all: maps of day and night differ a lot."""
    mean = np.exp(np.log(np.maximum(radiance @ LUMINANCE, 1e-4)).mean())
    return radiance * (MEAN_LUMINANCE / mean)


def draw_lamps(surroundings: Surroundings, generator: np.random.Generator) -> Lamps:
    """Directions drawn by luminance, one from each of 4 x 4 strata of equal light.

    First the columns are cut into four parts of equal light, then, at the column drawn from each,
    the rows into four. So a sun takes most lamps and a grey sky spreads them.
    """
    radiance = surroundings.radiance
    height, width, _ = radiance.shape
    elevation = (0.5 - (np.arange(height) + 0.5) / height) * np.pi
    # A row's pixels cover less of the sphere the nearer they are to the zenith.
    area = np.where(elevation >= LEAST_ELEVATION, np.cos(elevation), 0)
    light = (radiance @ LUMINANCE + 1e-6) * area[:, None]
    strata = np.arange(STRATA)[:, None]
    jitter = generator.uniform(size=(2, STRATA, STRATA))
    columns = invert_cumulative(light.sum(0), (strata + jitter[0]) / STRATA)
    shares = (strata.T + jitter[1]) / STRATA
    columns = columns.ravel()
    rows = np.concatenate(
        [
            invert_cumulative(light[:, int(column)], share)
            for column, share in zip(columns, shares.reshape(-1, 1), strict=True)
        ]
    )
    colors = radiance[rows.astype(int), columns.astype(int)] + 1e-6
    colors /= (colors @ LUMINANCE)[:, None] * len(colors)
    return Lamps(surroundings.to_direction(columns / width, rows / height), colors)


def invert_cumulative(
    weights: Float[np.ndarray, " bin"], shares: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Where along the bins the given shares of all weight are reached, in bins."""
    total = np.concatenate(([0.0], np.cumsum(weights)))
    sought = np.asarray(shares) * total[-1]
    # Empty bins have no places: the last of equal sums is where a bin with weight begins.
    bins = np.clip(np.searchsorted(total, sought, side="right") - 1, 0, len(weights) - 1)
    within = (sought - total[bins]) / np.maximum(weights[bins], 1e-300)
    return bins + np.clip(within, 0, 1 - 1e-9)


def locate_surroundings(
    origin: Float[np.ndarray, "3"], directions: Float[np.ndarray, "... 3"]
) -> tuple[Float[np.ndarray, "... 3"], Bool[np.ndarray, "..."]]:
    """Where rays of unit length end: on the floor (True) or on the dome."""
    along = directions @ origin
    dome = -along + np.sqrt(along**2 - origin @ origin + RADIUS**2)
    down = directions[..., 2]
    floor = np.where(down < 0, -origin[2] / np.where(down < 0, down, -1), np.inf)
    on_floor = floor < dome  # the floor ends where the dome stands on it
    points = origin + np.where(on_floor, floor, dome)[..., None] * directions
    return points, on_floor


def paint_surroundings(
    surroundings: Surroundings, points: Float[np.ndarray, "... 3"]
) -> Float[np.ndarray, "... 3"]:
    """The map as it is projected on points of floor and dome."""
    return surroundings.look_up(points - PROJECTOR)


def shade_floor(
    texture: Float[np.ndarray, "point 3"], lamps: Lamps, unhidden: Bool[np.ndarray, "point lamp"]
) -> Float[np.ndarray, "point 3"]:
    """The floor under its share of unhidden light, per colour: shadows keep the sky's."""
    arriving = lamps.colors * lamps.directions[:, 2:]
    share = unhidden @ arriving / np.maximum(arriving.sum(0), 1e-12)
    return texture * (FLOOR_SHADE + FLOOR_LIGHT * share)


def shade_objects(
    texture: Float[np.ndarray, "point 3"],
    lamps: Lamps,
    cosines: Float[np.ndarray, "point lamp"],
    unhidden: Bool[np.ndarray, "point lamp"],
) -> Float[np.ndarray, "point 3"]:
    """Surfaces under the lamps that they face; `cosines` are between normals and lamps."""
    light = (np.maximum(cosines, 0) * unhidden) @ lamps.colors
    return texture * (OBJECT_SHADE + OBJECT_LIGHT * light)


def sample_bilinear(
    image: Float[np.ndarray, "height width channel"],
    columns: Float[np.ndarray, "..."],
    rows: Float[np.ndarray, "..."],
) -> Float[np.ndarray, "... channel"]:
    """An image between its pixels; whole numbers are pixels, and it repeats in both directions."""
    height, width, _ = image.shape
    left, top = np.floor(columns).astype(int), np.floor(rows).astype(int)
    right_share = (columns - left)[..., None].astype(image.dtype)
    low_share = (rows - top)[..., None].astype(image.dtype)
    left, right = left % width, (left + 1) % width
    top, low = top % height, (top + 1) % height
    upper = image[top, left] * (1 - right_share) + image[top, right] * right_share
    lower = image[low, left] * (1 - right_share) + image[low, right] * right_share
    return upper * (1 - low_share) + lower * low_share


def average_blocks(
    picture: Float[np.ndarray, "rows columns channel"], every: int
) -> Float[np.ndarray, "height width channel"]:
    """The mean of each block of every x every pixels."""
    rows, columns, channels = picture.shape
    blocks = picture.reshape(rows // every, every, columns // every, every, channels)
    return blocks.mean((1, 3))


def decode_srgb(codes: UInt8[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """8-bit sRGB to linear light."""
    value = np.arange(256) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return linear.astype(np.float32)[codes]


def encode_srgb(linear: Float[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    """Linear light to 8-bit sRGB; what is brighter than white is white."""
    linear = np.clip(linear, 0, 1)
    value = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * value).astype(np.uint8)


def _read_hdr(path: Path) -> Float[np.ndarray, "h w 3"]:
    import cv2  # only .hdr files need it

    stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if stored is None or stored.ndim != 3:
        raise GeocoError(f"{path}: this is not a Radiance HDR file with colours")
    return stored[..., ::-1].astype(np.float32)


def _read_image(path: Path) -> Float[np.ndarray, "h w 3"]:
    try:
        with Image.open(path) as image:
            # No map needs more pixels on its way: `draft` lets JPEG decode at a fraction.
            image.draft("RGB", (2 * WIDTH, 2 * HEIGHT))
            return decode_srgb(np.asarray(image.convert("RGB")))
    except OSError as error:
        raise GeocoError(f"{path}: this image cannot be read: {error}") from None


def _resize_map(linear: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "512 1024 3"]:
    """By averages where it shrinks, so that a sun keeps its light."""
    channels = [Image.fromarray(np.ascontiguousarray(linear[..., k])) for k in range(3)]
    sized = [channel.resize((WIDTH, HEIGHT), Image.Resampling.BOX) for channel in channels]
    return np.stack([np.asarray(channel) for channel in sized], -1).astype(np.float32)
