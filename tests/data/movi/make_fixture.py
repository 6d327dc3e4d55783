"""Draws five tiny videos and has TensorFlow Datasets write them as MOVi-C is written.

`draw` needs numpy alone, so the tests compare what is read with what was drawn. Writing needs
tensorflow and tensorflow-datasets, which are no part of the test extra:

    python make_fixture.py dataset .                      the records (with tensorflow-datasets 4.9)
    python make_fixture.py features features_4.5.2.json   one features.json (with 4.5.2)
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SPLITS = {"train": range(3, 5), "validation": range(3)}  # numbers of the videos
FRAMES, HEIGHT, WIDTH = 24, 12, 16  # not square, so that swapped axes show
FORWARD_RANGE = (-2.0, 14.0)
CATEGORIES = [
    *("Action Figures", "Bag", "Board Games", "Bottles and Cans and Cups", "Camera", "Car Seat"),
    *("Consumer Goods", "Hat", "Headphones", "Keyboard", "Legos", "Media Cases", "Mouse", "None"),
    *("Shoe", "Stuffed Toys", "Toys"),
]


def draw(index: int) -> dict[str, Any]:
    """Video `index` in the form that MOVi-C's builder hands to TFDS."""
    time, row, column = np.mgrid[0:FRAMES, 0:HEIGHT, 0:WIDTH]
    video = np.stack([9 * row + 20 * index, 7 * column, 5 * time], axis=-1).astype(np.uint8)
    masks = np.zeros((FRAMES, HEIGHT, WIDTH), np.uint8)
    instances = []
    for number in range(2 + index % 2):
        # Each instance slides to the right and out of the picture; the last of video 2 is never in.
        top, left = 1 + 4 * number, 3 * number + time[:, 0, 0] * (number + 1) // 2
        if index == 2 and number == 1:
            left = np.full(FRAMES, WIDTH)
        inside = (row >= top) & (row < top + 3)
        inside &= (column >= left[:, None, None]) & (column < left[:, None, None] + 4)
        masks[inside] = number + 1
        video[inside] = (200 - 40 * number, 60 * number, 30 * index + 10)
        instances.append(_instance(index, number, top, left))
    flow = np.stack([time + 100 * row + index, 8192 + 300 * column - 50 * time], axis=-1)
    return {
        "metadata": {
            "video_name": f"{900 + index}",
            "width": WIDTH,
            "height": HEIGHT,
            "num_frames": FRAMES,
            "num_instances": len(instances),
            "depth_range": [1.5, 8.25],
            "forward_flow_range": list(FORWARD_RANGE),
            "backward_flow_range": [-1.0, 1.0],
        },
        "background": f"sunset_fairway_{index}",
        "instances": instances,
        "camera": {
            "focal_length": 35.0,
            "sensor_width": 32.0,
            "field_of_view": 0.75,
            "positions": np.arange(FRAMES * 3, dtype=np.float32).reshape(FRAMES, 3) / 8,
            "quaternions": np.tile(np.float32([1, 0, 0, index]), (FRAMES, 1)),
        },
        "events": {
            "collisions": [
                {
                    "instances": np.array([0, 65535], np.uint16),
                    "frame": 3,
                    "force": 0.5,
                    "position": np.float32([1, 2, 3]),
                    "image_position": np.float32([0.25, 0.5]),
                    "contact_normal": np.float32([0, 0, 1]),
                }
            ]
        },
        "video": video,
        "segmentations": masks[..., None],
        "forward_flow": flow.astype(np.uint16),
        "backward_flow": np.zeros((FRAMES, HEIGHT, WIDTH, 2), np.uint16),
        "depth": np.full((FRAMES, HEIGHT, WIDTH, 1), 300 + index, np.uint16),
        "normal": np.full((FRAMES, HEIGHT, WIDTH, 3), 400 + index, np.uint16),
        "object_coordinates": np.full((FRAMES, HEIGHT, WIDTH, 3), 500 + index, np.uint16),
    }


def _instance(index: int, number: int, top: int, left: np.ndarray) -> dict[str, Any]:
    right = np.minimum(left + 4, WIDTH)
    visible = np.flatnonzero(left < WIDTH)
    box = [(top / HEIGHT, left[t] / WIDTH, (top + 3) / HEIGHT, right[t] / WIDTH) for t in visible]
    steps = np.arange(FRAMES, dtype=np.float32)[:, None]
    return {
        "mass": 1.0 + number,
        "friction": 0.5,
        "restitution": 0.25,
        "positions": steps * np.float32([1, 2, 4]) / 4 + number,
        "quaternions": steps * np.float32([0, 0, 0, 1]) + index,
        "velocities": steps * np.float32([0, 1, 0]),
        "angular_velocities": steps * np.float32([0, 0, 2]) + number,
        "bboxes_3d": np.arange(FRAMES * 24, dtype=np.float32).reshape(FRAMES, 8, 3) + number,
        "image_positions": np.stack([np.full(FRAMES, top / HEIGHT), left / WIDTH], axis=-1).astype(
            np.float32
        ),
        "bboxes": np.float32(box).reshape(-1, 4),
        "bbox_frames": visible.astype(np.int32),
        "visibility": (3 * np.maximum(right - left, 0)).astype(np.uint16),
        "asset_id": f"asset_{index}_{number}",
        "category": CATEGORIES[3 * number + index],
        "scale": 0.75 + number,
    }


def features(tfds: Any, tf: Any) -> Any:
    """The fields with the types and shapes of MOVi-C, at the size drawn here."""
    types = tfds.features

    def floats(*shape: int) -> Any:
        return types.Tensor(shape=shape, dtype=tf.float32)

    frame = (HEIGHT, WIDTH)
    flow = types.Tensor(shape=(*frame, 2), dtype=tf.uint16)
    instance = {
        **dict.fromkeys(("mass", "friction", "restitution", "scale"), tf.float32),
        **{name: floats(FRAMES, 3) for name in ("positions", "velocities", "angular_velocities")},
        "quaternions": floats(FRAMES, 4),
        "bboxes_3d": floats(FRAMES, 8, 3),
        "image_positions": floats(FRAMES, 2),
        "bboxes": types.Sequence(types.BBoxFeature()),
        "bbox_frames": types.Sequence(types.Tensor(shape=(), dtype=tf.int32)),
        "visibility": types.Tensor(shape=(FRAMES,), dtype=tf.uint16),
        "asset_id": types.Text(),
        "category": types.ClassLabel(names=CATEGORIES),
    }
    collision = {
        "instances": types.Tensor(shape=(2,), dtype=tf.uint16),
        "frame": tf.int32,
        "force": tf.float32,
        "position": floats(3),
        "image_position": floats(2),
        "contact_normal": floats(3),
    }
    return types.FeaturesDict(
        {
            "metadata": {
                "video_name": types.Text(),
                **dict.fromkeys(("width", "height", "num_frames"), tf.int32),
                "num_instances": tf.uint16,
                **{f"{name}_range": floats(2) for name in ("depth", "forward_flow")},
                "backward_flow_range": floats(2),
            },
            "background": types.Text(),
            "instances": types.Sequence(feature=instance),
            "camera": {
                **dict.fromkeys(("focal_length", "sensor_width", "field_of_view"), tf.float32),
                "positions": floats(FRAMES, 3),
                "quaternions": floats(FRAMES, 4),
            },
            "events": {"collisions": types.Sequence(collision)},
            "video": types.Video(shape=(FRAMES, *frame, 3)),
            "segmentations": types.Sequence(
                types.Image(shape=(*frame, 1), dtype=tf.uint8), length=FRAMES
            ),
            "forward_flow": types.Sequence(flow, length=FRAMES),
            "backward_flow": types.Sequence(flow, length=FRAMES),
            "depth": types.Sequence(types.Image(shape=(*frame, 1), dtype=tf.uint16), length=FRAMES),
            "normal": types.Video(shape=(FRAMES, *frame, 3), dtype=tf.uint16),
            "object_coordinates": types.Video(shape=(FRAMES, *frame, 3), dtype=tf.uint16),
        }
    )


def write_dataset(folder: Path) -> None:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    class MoviC(tfds.core.GeneratorBasedBuilder):
        """Five tiny videos in the form of MOVi-C."""

        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="tiny")]  # noqa: RUF012

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self, description=self.__doc__, features=features(tfds, tf)
            )

        def _split_generators(self, manager: Any) -> Any:
            return {split: self._generate_examples(videos) for split, videos in SPLITS.items()}

        def _generate_examples(self, videos: range) -> Any:
            for index in videos:
                example = draw(index)
                for instance in example["instances"]:
                    instance["bboxes"] = [
                        tfds.features.BBox(*box.tolist()) for box in instance["bboxes"]
                    ]
                yield f"{index}", example

    config = tfds.download.DownloadConfig(num_shards=2, try_download_gcs=False)
    MoviC(data_dir=folder, config="tiny").download_and_prepare(download_config=config)
    shutil.rmtree(folder / "movi_c" / ".config")  # which configuration is the default: not needed


def write_features(path: Path) -> None:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    with tempfile.TemporaryDirectory() as folder:
        features(tfds, tf).save_config(folder)
        path.write_text((Path(folder) / "features.json").read_text())


if __name__ == "__main__":
    {"dataset": write_dataset, "features": write_features}[sys.argv[1]](Path(sys.argv[2]))
