"""The bank's two functions: masks of a video, and the one-pixel boundary allowance."""

import numpy as np
from jaxtyping import Bool, UInt8
from scipy import ndimage  # type: ignore[import-untyped]

from geoco.errors import GeocoError
from geoco.instances.cuts import learn_sizes
from geoco.instances.identities import number_objects
from geoco.instances.regions import find_regions
from geoco.instances.split import FrameRegions, split_frames

SMALLEST_SIDE = 16


def find_instances(
    frames: UInt8[np.ndarray, "time height width 3"],
) -> UInt8[np.ndarray, "time height width"]:
    """Masks of the coloured objects in a video: 0 background, i + 1 object i in every frame.

    Every frame is split with evidence from the frames before it, then from those after it, and at
    last from both; a single frame is a video like any other.
    """
    check_frames(frames)
    pixels = frames.astype(np.float32)
    regions = find_regions(pixels)
    sizes = learn_sizes(regions.labels)
    regions_of_frames = [
        FrameRegions(frame, labels, hues, sizes)
        for frame, labels, hues in zip(pixels, regions.labels, regions.hues, strict=True)
    ]
    forward = split_frames(regions_of_frames)
    backward = split_frames(regions_of_frames[::-1])[::-1]
    frames_split = [
        frame_regions.split([*forward[max(0, time - 1) : time], *backward[time + 1 : time + 2]])
        for time, frame_regions in enumerate(regions_of_frames)
    ]
    return number_objects(frames_split)


def grow_masks(
    masks: UInt8[np.ndarray, "time height width"],
) -> Bool[np.ndarray, "time object height width"]:
    """Each object's mask grown by one four-connected pixel: [:, i] is the object numbered i + 1.

    An edge pixel is part object, part floor, and may fall on either side. Grown masks overlap where
    objects touch.
    """
    objects = masks[:, None] == np.arange(1, int(masks.max(initial=0)) + 1)[:, None, None]
    cross = ndimage.generate_binary_structure(2, 1)[None, None]
    return ndimage.binary_dilation(objects, cross)


def check_frames(frames: np.ndarray) -> None:
    """Refuse what is not a video."""
    video = frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[-1] == 3
    if not video or len(frames) == 0 or min(frames.shape[1:3]) < SMALLEST_SIDE:
        raise GeocoError(
            f"instances are found in uint8 frames [time, height, width, 3] of {SMALLEST_SIDE} x "
            f"{SMALLEST_SIDE} pixels or more, got {frames.dtype} {list(frames.shape)}"
        )
