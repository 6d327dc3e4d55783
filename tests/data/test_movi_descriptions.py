"""Descriptions beside TFRecord files may be damaged: one sentence, and no number is guessed."""

from pathlib import Path

import pytest

from geoco.data import movi, tfrecord
from geoco.errors import GeocoError

BAD = {
    "endless": '{"splits": [{"name": "train", "shardLengths": [1e999]}]}',
    "long": '{"splits": [{"name": "train", "shardLengths": ["' + "9" * 5000 + '"]}]}',
    "deep": "[" * 100_000,
    "another": '{"splits": 3}',
    "cut": '{"splits": [',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_descriptions(tmp_path: Path, text: str) -> None:
    (tmp_path / "dataset_info.json").write_text(text)
    with pytest.raises(GeocoError, match="expected the description of splits that TFDS writes"):
        movi._read_shard_lengths(tmp_path / "dataset_info.json", "train")
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(GeocoError, match="expected the description of fields that TFDS writes"):
        tfrecord.read_features(tmp_path / "features.json")
