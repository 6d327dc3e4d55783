"""Several datasets to train on as if they were one."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from geoco.data.clip import ClipBatch
from geoco.data.solids import SolidsDataset
from geoco.data.store import StoreDataset
from geoco.errors import GeocoError


class Ingredient(NamedTuple):
    """A dataset, and how often each of its clips comes while one of a single share comes once."""

    dataset: SolidsDataset | StoreDataset
    times: int
    name: str


class MixedDataset:
    """The clips of all ingredients, those of the first one first; videos have numbers of their own.

    What a training feed needs of a dataset, no more.
    """

    def __init__(self, ingredients: Sequence[Ingredient]) -> None:
        first = ingredients[0]
        for other in ingredients[1:]:
            if other.dataset.frame_size != first.dataset.frame_size:
                sizes = [f"{h} x {w}" for h, w in (x.dataset.frame_size for x in (other, first))]
                raise GeocoError(
                    f"{other.name}: its frames are {sizes[0]}, but those of {first.name} are "
                    f"{sizes[1]}: import it at that size"
                )
        self.ingredients = tuple(ingredients)
        self.length = first.dataset.length
        self.frame_size = first.dataset.frame_size
        self.frame_count = sum(part.dataset.frame_count for part in ingredients)
        # Of every clip: its dataset, and its number there.
        self._part = np.repeat(
            np.arange(len(ingredients)), [len(part.dataset) * part.times for part in ingredients]
        )
        self._row = np.concatenate(
            [np.tile(np.arange(len(part.dataset)), part.times) for part in ingredients]
        )

    def __len__(self) -> int:
        return len(self._row)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The name of the video that each clip is cut from."""
        each = (tuple(part.dataset.sources) * part.times for part in self.ingredients)
        return tuple(chain.from_iterable(each))

    @cached_property
    def first_frames(self) -> Int64[np.ndarray, " clip"]:
        """Where each clip starts in all frames."""
        counts = [part.dataset.frame_count for part in self.ingredients]
        return self._concatenate([part.dataset.first_frames for part in self.ingredients], counts)

    @cached_property
    def frame_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of each clip's first frame within its video."""
        numbers = [part.dataset.frame_numbers for part in self.ingredients]
        return self._concatenate(numbers, [0] * len(numbers))

    @cached_property
    def source_numbers(self) -> Int64[np.ndarray, " clip"]:
        """The number of the video that each clip is cut from."""
        numbers = [part.dataset.source_numbers for part in self.ingredients]
        return self._concatenate(numbers, [int(own.max()) + 1 for own in numbers])

    def iterate_frames(
        self, device: torch.device
    ) -> Iterator[UInt8[Tensor, "_frame 3 _height _width"]]:
        """Every frame, some at a time; a clip that comes often has its frames here once."""
        for part in self.ingredients:
            yield from part.dataset.iterate_frames(device)

    def batch_frames(self, indices: Sequence[int]) -> ClipBatch:
        """Several clips at once, their frames alone."""
        rows = np.asarray(indices, dtype=np.int64)
        video = torch.empty((len(rows), self.length, 3, *self.frame_size), dtype=torch.uint8)
        for number in np.unique(self._part[rows]):
            places = np.nonzero(self._part[rows] == number)[0]
            piece = self.ingredients[number].dataset.batch_frames(self._row[rows[places]].tolist())
            video[torch.from_numpy(places)] = piece.video
        frames = self.frame_numbers[rows, None] + np.arange(self.length)
        return ClipBatch(
            video=video,
            sources=tuple(self.sources[row] for row in rows),
            frames=torch.from_numpy(frames),
            source_numbers=torch.from_numpy(self.source_numbers[rows]),
        )

    def _concatenate(
        self, each: Sequence[Int64[np.ndarray, " _own"]], counts: Sequence[int]
    ) -> Int64[np.ndarray, " clip"]:
        """Numbers within each dataset, shifted by the `counts` of the datasets before it."""
        before = np.cumsum([0, *counts[:-1]])
        parts = [
            np.tile(own, part.times) + offset
            for own, part, offset in zip(each, self.ingredients, before, strict=True)
        ]
        return np.concatenate(parts)


ClipDataset = SolidsDataset | StoreDataset | MixedDataset  # what a training takes its clips from
