"""How large pictures and videos may be: the same in Python, on the command line and in the page.

A few bytes can promise a picture of terabytes. What headers tell is checked before anything is
decoded, and since headers may lie, each frame is checked again before it becomes pixels.
"""

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from geoco.errors import GeocoError


class TooLargeError(GeocoError):
    """A picture or a video beyond the limits."""


@dataclass(frozen=True)
class Limits:
    """What is read at most."""

    pixels: int = 50_000_000  # of a picture, or of one frame of a video
    frames: int = 300  # of a video: all its slots stay in memory, some 6 MB a frame at 64 x 64
    video_pixels: int = 1_250_000_000  # of all frames together: 150 frames of 3840 x 2160
    seconds: float = 20  # that decoding a video takes

    def check_picture(self, width: int, height: int) -> None:
        if width * height > self.pixels:
            raise TooLargeError(
                f"a picture of {width} x {height} pixels is too large: at most {self.pixels:,} "
                "pixels are read"
            )

    def check_video(self, width: int, height: int, frames: int) -> None:
        """Of a header, which may not know the number of frames, or of what was decoded so far."""
        self.check_picture(width, height)
        if frames > self.frames:
            raise TooLargeError(
                f"the video has more than {self.frames} frames: cut it into shorter pieces"
            )
        if frames * width * height > self.video_pixels:
            raise TooLargeError(
                f"a video of {frames} or more frames of {width} x {height} pixels is too large: at "
                f"most {self.video_pixels:,} pixels are read in all"
            )

    def check_time(self, seconds: float) -> None:
        if seconds > self.seconds:
            raise TooLargeError(
                f"decoding the video takes more than {self.seconds:g} seconds: make it smaller or "
                "shorter"
            )


LIMITS = Limits()
# For who takes what is needed and drops the rest: one frame, or pieces of a long video.
ANY_LENGTH = Limits(frames=sys.maxsize, video_pixels=sys.maxsize, seconds=math.inf)


def count_time(steps: Iterator[Any], limits: Limits) -> Iterator[Any]:
    """What `steps` give, as long as they take no longer than the limit; others' time is theirs."""
    spent, start = 0.0, time.monotonic()
    for step in steps:
        spent += time.monotonic() - start
        limits.check_time(spent)
        yield step
        start = time.monotonic()
