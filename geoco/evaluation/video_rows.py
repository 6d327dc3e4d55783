"""Rows of whole videos: every frame of every window, its slots tracked through it once.

All tables of the video protocol read from these rows (paper, Sec. D): a frame is scored as the
single-frame protocol scores the first one, and rows of a window follow each other.
"""

import numpy as np
import torch
from jaxtyping import Int64

from geoco.data import ClipBatch
from geoco.errors import GeocoError
from geoco.evaluation.interfaces import SlotModel, VideoModel
from geoco.evaluation.windows import (
    SEED,
    VIDEO_SEED,
    Factual,
    Frames,
    Progress,
    Windows,
    check_size,
    choose_windows,
    draw_starting_positions,
    join_factuals,
    make_rows,
)
from geoco.models import compositing


def choose_seed(model: SlotModel) -> int:
    """The paper's for MOVi-C; that of the single-frame protocol for models of single frames."""
    return VIDEO_SEED if getattr(model, "carries", True) else SEED


def choose_first_windows(
    dataset: Windows, chosen: Int64[np.ndarray, " window"] | None = None
) -> Int64[np.ndarray, " video"]:
    """The first window of every video, or the first of those that were chosen."""
    sources, first = dataset.sources, dict[str, int]()
    for window in choose_windows(dataset, None) if chosen is None else chosen:
        first.setdefault(sources[window], int(window))
    return np.array(list(first.values()), dtype=np.int64)


def require_video_model(model: SlotModel) -> VideoModel:
    if isinstance(model, VideoModel):
        return model
    raise GeocoError(
        f"{type(model).__name__} cannot follow slots through a video: evaluation over all frames "
        "needs a model with a `track` method"
    )


@torch.no_grad()
def compute_video_factual(
    model: SlotModel,
    dataset: Windows,
    windows: Int64[np.ndarray, " window"],
    batch: int,
    progress: Progress = lambda done, total: None,
) -> Factual:
    """All frames of some windows; at most `batch` are decoded at once, and never half a video
    tracked."""
    tracker = require_video_model(model)
    pieces: list[Factual] = []
    first, together = 0, 1  # how long windows are is seen by the first
    while first < len(windows):
        some = windows[first : first + together]
        clips = dataset.batch(some.tolist())
        check_size(model, clips)
        pieces += _compute_clips(tracker, clips, some, batch)
        first += len(some)
        together = max(1, batch // clips.video.shape[1])
        progress(first, len(windows))
    return join_factuals(pieces)


def _compute_clips(
    model: VideoModel, clips: ClipBatch, windows: Int64[np.ndarray, " window"], batch: int
) -> list[Factual]:
    """Rows of some windows."""
    time, seed = clips.video.shape[1], choose_seed(model)
    starts = [draw_starting_positions(int(w), model.slots, seed=seed) for w in windows]
    encoded = model.track(clips.images(), torch.stack(starts)).flatten()
    pixels = clips.video.flatten(0, 1)
    reference = None if clips.masks is None else clips.masks.flatten(0, 1)
    window, pieces = np.repeat(windows, time), []
    for first in range(0, len(pixels), batch):
        rows = slice(first, first + batch)
        some = encoded.rows(rows)
        rgb, logits = model.decode(some, some.slots)
        frames = Frames(
            window[rows],
            tuple(clips.sources[row // time] for row in range(len(pixels))[rows]),
            pixels[rows],
            None if reference is None else reference[rows],
            time,
        )
        image = compositing.composite(rgb, compositing.compute_alpha(logits))
        pieces.append(make_rows(frames, some, logits, image))
    return pieces
