"""The sample record and its batches."""

from dataclasses import replace

import jaxtyping
import pytest
import torch

from geoco.data.clip import Clip, ClipBatch
from geoco.errors import GeocoError


def clip(number: int = 0, time: int = 2, objects: int | None = 3, masks: bool = True) -> Clip:
    generator = torch.Generator().manual_seed(number)
    amodal = None
    if objects is not None:
        amodal = torch.rand(time, objects, 4, 5, generator=generator) > 0.5
    return Clip(
        video=torch.randint(0, 256, (time, 3, 4, 5), generator=generator, dtype=torch.uint8),
        source=f"video {number}",
        frames=torch.arange(time) + 8 * number,
        masks=torch.zeros(time, 4, 5, dtype=torch.uint8) if masks else None,
        amodal=amodal,
        metadata={"number": number},
    )


def test_a_batch_holds_what_its_clips_hold() -> None:
    clips = [clip(0), clip(1), clip(2)]
    batch = ClipBatch.collate(clips)
    assert len(batch) == 3
    assert batch.sources == ("video 0", "video 1", "video 2")
    assert batch.frames.tolist() == [[0, 1], [8, 9], [16, 17]]
    assert torch.equal(batch.video[1], clips[1].video)
    assert batch.metadata[2] == {"number": 2}
    assert batch.images()[0, 0, 0, 0, 0] == clips[0].video[0, 0, 0, 0].item() / 255
    one = batch[1]
    assert (one.source, one.metadata) == ("video 1", {"number": 1})
    for name in ("video", "frames", "masks", "amodal"):
        assert torch.equal(getattr(one, name), getattr(clips[1], name)), name


def test_missing_objects_are_empty_masks() -> None:
    few, many = clip(0, objects=2), clip(1, objects=4)
    batch = ClipBatch.collate([few, many])
    assert batch.amodal is not None
    assert batch.amodal.shape == (2, 2, 4, 4, 5)
    assert few.amodal is not None
    assert torch.equal(batch.amodal[0, :, :2], few.amodal)
    assert not batch.amodal[0, :, 2:].any()


def test_optional_fields_need_every_clip() -> None:
    batch = ClipBatch.collate([clip(0), clip(1, objects=None, masks=False)])
    assert batch.masks is None
    assert batch.amodal is None


def test_masks_may_have_more_pixels_than_frames() -> None:
    fine = torch.arange(2 * 8 * 10, dtype=torch.uint8).view(2, 8, 10)
    one, two = replace(clip(0), masks=fine), replace(clip(1), masks=fine + 1)
    batch = ClipBatch.collate([one, two])
    assert batch.masks is not None
    assert batch.masks.shape == (2, 2, 8, 10)
    assert batch.video.shape == (2, 2, 3, 4, 5)
    assert torch.equal(batch[1].masks, fine + 1)
    with pytest.raises(GeocoError, match=r"masks of one size, got \[\(4, 5\), \(8, 10\)\]"):
        ClipBatch.collate([one, clip(1)])


def test_moving_keeps_everything() -> None:
    batch = ClipBatch.collate([clip(0), clip(1)])
    moved = batch.to("cpu")
    assert moved.sources == batch.sources
    assert moved.masks is not None
    assert torch.equal(moved.video, batch.video)


def test_clips_of_one_batch_have_one_shape() -> None:
    with pytest.raises(GeocoError, match="clips of one shape"):
        ClipBatch.collate([clip(time=2), clip(time=3)])
    with pytest.raises(GeocoError, match="at least one clip"):
        ClipBatch.collate([])


@pytest.mark.parametrize(
    ("field", "shape", "message"),
    [
        ("frames", (3,), r"clip frames: expected shape \[2\], got \[3\]"),
        ("masks", (3, 4, 5), r"clip masks: expected shape \[2, mask height, .* got \[3, 4, 5\]"),
        ("masks", (2, 4), r"clip masks: expected shape \[2, mask height, .* got \[2, 4\]"),
        ("amodal", (2, 3, 5, 4), r"clip amodal: expected shape \[2, object, 4, 5\]"),
        ("video", (2, 4, 4, 5), r"clip video: expected shape \[time, 3, height, width\]"),
    ],
)
def test_shapes_must_agree(field: str, shape: tuple[int, ...], message: str) -> None:
    good = clip()
    kinds = {"frames": torch.int64, "masks": torch.uint8, "amodal": torch.bool}
    values = {
        name: getattr(good, name) for name in ("video", "source", "frames", "masks", "amodal")
    }
    values[field] = torch.zeros(shape, dtype=kinds.get(field, torch.uint8))
    jaxtyping.config.update("jaxtyping_disable", True)  # else it is the first to object
    try:
        with pytest.raises(GeocoError, match=message):
            Clip(**values)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
