"""What a loader of real data gives: whole videos at their own size, in an order that never changes.

Each dataset has one file with three functions of the same shape:

    list_splits(source) -> tuple[Split, ...]       which of train, val and test there are
    count_videos(source, split) -> int | None      if that is known without reading all
    read_videos(source, split, skip) -> Iterator[RawVideo]     those after the first `skip`

The fixed order is what lets an interrupted import go on where it stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import UInt8


@dataclass(frozen=True)
class RawVideo:
    """One video as its publisher stores it. In `masks` 0 is background, i + 1 object i.

    Masks show what the frames show, and may do so in more pixels.

    A long video may come in pieces, which share their `source` and differ in `first`, the number of
    their first frame within it.
    """

    source: str
    frames: UInt8[np.ndarray, "time height width 3"]
    masks: UInt8[np.ndarray, "time mask_height mask_width"] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0
