"""The embedded generator as a dataset: clips are rendered when they are asked for."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from geoco.config import SolidsConfig, Split
from geoco.data.clip import Clip, ClipBatch
from geoco.solids import (
    MATERIALS,
    SHAPES,
    Canvas,
    Episodes,
    Pictures,
    SceneEdit,
    Scenes,
    extract_scenes,
    render_counterfactuals,
    render_frames,
    render_scenes,
    simulate_episodes,
)

# Sixteen episodes cost little more to simulate than one; 256 blocks of them take about 115 MB.
_BLOCK = 16
_BLOCKS_KEPT = 256


class SolidsDataset(Dataset[Clip]):
    """Windows of a split's episodes, episode by episode. The same index gives the same bytes.

    `device` is where batches are drawn, and where they stay.
    """

    def __init__(
        self,
        config: SolidsConfig,
        split: Split,
        amodal: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.device = config, device
        self.split: Split = split
        self.amodal = amodal
        self.episodes: int = getattr(config.episodes, split)
        self.starts = config.window.starts(config.frames)
        self.canvas = Canvas(config.height, config.width, config.supersample)
        self._blocks: dict[int, Episodes] = {}

    def __len__(self) -> int:
        return self.episodes * len(self.starts)

    @property
    def description(self) -> str:
        """The dataset in a line."""
        config = self.config
        kind = "textured solids" if config.textured else "solids"
        return (
            f"{kind}, {self.split} split: {self.episodes:,} videos of {config.frames} frames, "
            f"{config.height} x {config.width}, seed {config.seed}"
        )

    @property
    def sources(self) -> list[str]:
        """The source of every window."""
        return [f"{self.split}/{i // len(self.starts)}" for i in range(len(self))]

    # What training feeds need.

    @property
    def length(self) -> int:
        """Frames of a clip."""
        return self.config.window.length

    @property
    def frame_size(self) -> tuple[int, int]:
        return self.canvas.height, self.canvas.width

    @property
    def frame_count(self) -> int:
        return self.episodes * self.config.frames

    @property
    def first_frames(self) -> Int64[np.ndarray, " clip"]:
        """Where each clip starts in all frames of the split."""
        episode = np.arange(self.episodes)[:, None] * self.config.frames
        return (episode + np.array(self.starts)).flatten()

    @property
    def frame_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of each clip's first frame within its video."""
        return np.tile(np.array(self.starts), self.episodes)

    @property
    def source_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of the video that each clip is cut from."""
        return np.repeat(np.arange(self.episodes), len(self.starts))

    def iterate_frames(
        self, device: torch.device
    ) -> Iterator[UInt8[Tensor, "_frame 3 _height _width"]]:
        """Every frame of the split in order, some at a time."""
        for scenes in self._iterate_scenes(64 if device.type == "cuda" else 4):
            yield render_frames(scenes.to(device), self.canvas)

    def __getitem__(self, index: int) -> Clip:
        return self.render_clips([index])[0]

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        """Several windows at once, rendered together."""
        return ClipBatch.collate(self.render_clips(indices, self.device))

    def batch_frames(self, indices: Sequence[int]) -> ClipBatch:
        """The same for training: no masks are rendered, no metadata is collected."""
        episode, frame = self._locate(indices)
        scenes = self.extract_scenes(np.repeat(episode, self.length), frame.flatten())
        return ClipBatch(
            video=render_frames(scenes.to(self.device), self.canvas).unflatten(0, frame.shape),
            sources=tuple(f"{self.split}/{number}" for number in episode),
            frames=torch.from_numpy(frame),
            source_numbers=torch.from_numpy(episode),
        )

    def render_clips(
        self, indices: Sequence[int], device: torch.device | str = "cpu"
    ) -> list[Clip]:
        """Windows, rendered together on a device."""
        episode, frame = self._locate(indices)
        length = self.length
        scenes = self.extract_scenes(np.repeat(episode, length), frame.flatten())
        pictures = render_scenes(scenes.to(device), self.canvas, amodal=self.amodal)
        clips = []
        for row, number in enumerate(episode):
            part = slice(row * length, (row + 1) * length)
            metadata = self._collect_metadata(int(number), frame[row], scenes[part])
            present = int(scenes.present[row * length].sum())
            clips.append(
                Clip(
                    video=pictures.frames[part],
                    source=f"{self.split}/{number}",
                    frames=torch.from_numpy(frame[row]),
                    masks=pictures.masks[part],
                    amodal=None if pictures.amodal is None else pictures.amodal[part, :present],
                    metadata=metadata,
                )
            )
        return clips

    def extract_scenes(
        self, episode: Int64[np.ndarray, " scene"], frame: Int64[np.ndarray, " scene"]
    ) -> Scenes:
        """Single moments of this split, for rendering or for `solids.render_counterfactuals`."""
        pieces, rows = [], []
        for block in np.unique(episode // _BLOCK):
            rows.append(np.nonzero(episode // _BLOCK == block)[0])
            simulated = self._simulate_block(int(block))
            place = episode[rows[-1]] - block * _BLOCK
            pieces.append(extract_scenes(simulated, place, frame[rows[-1]], self.config.textured))
        back = np.argsort(np.concatenate(rows))
        return Scenes.cat(pieces)[torch.from_numpy(back)]

    def render_counterfactuals(
        self,
        indices: Sequence[int],
        edits: Sequence[tuple[int, SceneEdit]],
        device: torch.device | str = "cpu",
    ) -> Pictures:
        """What first frames of windows would be after edits, whose scenes are places in `indices`.

        One picture per edit: `solids.render_counterfactuals` of these moments.
        """
        episode, frame = self._locate(indices)
        scenes = self.extract_scenes(episode, frame[:, 0])
        return render_counterfactuals(scenes.to(device), self.canvas, edits)

    def render_all(
        self, device: torch.device | str = "cpu", episodes: int = 64
    ) -> Iterator[Pictures]:
        """The whole split, all frames of `episodes` episodes at a time: [episode * time, ...]."""
        for scenes in self._iterate_scenes(episodes):
            yield render_scenes(scenes.to(device), self.canvas, amodal=self.amodal)

    def _iterate_scenes(self, episodes: int) -> Iterator[Scenes]:
        simulated = simulate_episodes(self.config, self.split, np.arange(self.episodes))
        times = np.arange(self.config.frames)
        for first in range(0, self.episodes, episodes):
            chosen = np.arange(first, min(first + episodes, self.episodes))
            frame = np.tile(times, len(chosen))
            episode = np.repeat(chosen, len(times))
            yield extract_scenes(simulated, episode, frame, self.config.textured)

    def _locate(
        self, indices: Sequence[int]
    ) -> tuple[Int64[np.ndarray, " clip"], Int64[np.ndarray, "clip time"]]:
        """The episode of each window, and the numbers of its frames there."""
        for index in indices:
            if not -len(self) <= index < len(self):
                raise IndexError(f"window {index} of {len(self)}")
        windows = np.array(indices, dtype=np.int64) % len(self)
        start = np.array(self.starts, dtype=np.int64)[windows % len(self.starts)]
        return windows // len(self.starts), start[:, None] + np.arange(self.length)

    def _simulate_block(self, block: int) -> Episodes:
        if block not in self._blocks:
            ids = np.arange(block * _BLOCK, min((block + 1) * _BLOCK, self.episodes))
            self._blocks[block] = simulate_episodes(self.config, self.split, ids)
            if len(self._blocks) > _BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
        return self._blocks[block]

    def _collect_metadata(self, number: int, frames: np.ndarray, scenes: Scenes) -> dict[str, Any]:
        """What is true of the objects, those absent left out; arrays are [time, object, ...]."""
        simulated = self._simulate_block(number // _BLOCK)
        place = number % _BLOCK
        present = np.nonzero(simulated.present[place])[0]
        colors = {value: name for name, value in self.config.colors.items()}
        moving = np.ix_(frames, present)
        return {
            "episode": number,
            "shape": [SHAPES[k] for k in simulated.shape[place, present]],
            "material": [MATERIALS[k] for k in simulated.material[place, present]],
            "color": [colors[tuple(rgb)] for rgb in simulated.color[place, present].tolist()],
            "radius": simulated.radius[place, present],
            "position": simulated.position[place][moving],
            "velocity": simulated.velocity[place][moving],
            "heading": simulated.heading[place][moving],
            "spin": simulated.spin[place][moving],
            "order": scenes.order[:, present].argsort(dim=-1).argsort(dim=-1).numpy(),
        }
