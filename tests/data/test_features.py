"""Features on disk: whole or not there, resumable at any byte, checked, and of the right store."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from geoco.data.features import (
    FEATURES,
    INDEX,
    JOURNAL,
    FeatureRecipe,
    FeatureStore,
    FeatureWriter,
    read_feature_index,
)
from geoco.errors import GeocoError

LENGTHS = (3, 1, 2)
RECIPE = FeatureRecipe(
    format=1,
    store="aa",
    encoder="bb",
    precision="bf16-mixed",
    frames=6,
    views=2,
    tokens=4,
    channels=5,
)


def draw(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    shape = (LENGTHS[number], *RECIPE.shape[1:])
    return torch.randn(shape, generator=generator).to(torch.bfloat16)


def write(path: Path, recipe: FeatureRecipe = RECIPE) -> FeatureStore:
    with FeatureWriter(path, recipe) as writer:
        for number in range(writer.done, len(LENGTHS)):
            writer.append(draw(number))
        writer.finish()
    return FeatureStore(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = write(tmp_path / "features")
    expected = torch.cat([draw(number) for number in range(3)])
    assert torch.equal(torch.cat(list(store.iterate())), expected)
    rows = np.array([[5, 0], [3, 3]])
    assert torch.equal(store.read(rows), expected[torch.from_numpy(rows)])
    assert store.index.frames == LENGTHS
    assert not (store.path / JOURNAL).exists()
    assert (store.path / FEATURES).stat().st_size == 6 * 2 * 4 * 5 * 2
    done: list[tuple[int, int]] = []
    store.verify(lambda *news: done.append(news))
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_a_kill_at_any_byte_loses_what_was_not_finished(tmp_path: Path) -> None:
    """The journal or the features may end anywhere; what follows makes the same folder."""
    expected = write(tmp_path / "whole")
    generator = random.Random(0)
    for trial in range(8):
        path = tmp_path / f"trial{trial}"
        with FeatureWriter(path, RECIPE) as writer:
            writer.append(draw(0))
            sizes = [(writer._folder / name).stat().st_size for name in (FEATURES, JOURNAL)]
            writer.append(draw(1))
        for name, least in zip((FEATURES, JOURNAL), sizes, strict=True):
            file = tmp_path / f"trial{trial}.partial" / name
            size = file.stat().st_size
            kept = size if name == FEATURES else generator.randint(least, size - 1)
            file.write_bytes(file.read_bytes()[:kept])
        with FeatureWriter(path, RECIPE) as writer:
            assert writer.done == 1
        again = write(path)
        assert (path / FEATURES).read_bytes() == (expected.path / FEATURES).read_bytes()
        assert again.index == expected.index


def test_damage_is_found(tmp_path: Path) -> None:
    store = write(tmp_path / "features")
    data = bytearray((store.path / FEATURES).read_bytes())
    data[-1] ^= 1
    (store.path / FEATURES).write_bytes(data)
    with pytest.raises(GeocoError, match="the features of 1 of 3 videos do not match"):
        FeatureStore(store.path).verify(lambda *_: None)
    (store.path / FEATURES).write_bytes(data[:-1])
    with pytest.raises(GeocoError, match="expected 480 bytes, found 479: delete"):
        FeatureStore(store.path)
    (store.path / INDEX).write_text("{}")
    with pytest.raises(GeocoError, match="not an index of features, or damaged"):
        FeatureStore(store.path)


def test_bad_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match="there are no features here: run geoco data features"):
        read_feature_index(tmp_path / "nothing")
    with FeatureWriter(tmp_path / "begun", RECIPE) as writer:
        writer.append(draw(0))
        with pytest.raises(GeocoError, match="3 of 6 frames have features"):
            writer.finish()
        with pytest.raises(GeocoError, match=r"\[frame, 2, 4, 5\], got \[1, 2, 4, 3\]"):
            writer.append(torch.zeros(1, 2, 4, 3, dtype=torch.bfloat16))
        with pytest.raises(GeocoError, match="another process is writing features here"):
            FeatureWriter(tmp_path / "begun", RECIPE)
    with pytest.raises(GeocoError, match="their computation did not finish"):
        read_feature_index(tmp_path / "begun")
    other = RECIPE.model_copy(update={"encoder": "cc", "views": 1})
    with pytest.raises(GeocoError, match="begun with another encoder and mirror images: delete it"):
        FeatureWriter(tmp_path / "begun", other)
    store = write(tmp_path / "done")
    with pytest.raises(GeocoError, match="there are features already"):
        FeatureWriter(store.path, RECIPE)
    index = json.loads((store.path / INDEX).read_text())
    index["recipe"]["format"] = 7
    (store.path / INDEX).write_text(json.dumps(index))
    with pytest.raises(GeocoError, match="features of format 7, but this version"):
        FeatureStore(store.path)
