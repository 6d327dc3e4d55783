"""Models that ship under weights/ do what they did when they were published."""

import pytest
import yaml

from geoco import publishing
from geoco.models import checkpoints, pretrained

NAMES = sorted(pretrained.list_shipped()) or [
    pytest.param("", marks=pytest.mark.skip(reason="no trained weights ship yet"))
]


@pytest.mark.parametrize("name", NAMES)
def test_first_windows_are_reproduced(name: str) -> None:
    verification = publishing.verify(name)
    assert float(verification.psnr.abs().max()) <= 0.05, verification  # dB
    assert verification.masks <= 0.005, verification
    assert verification.reproduced, verification


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_is_complete(name: str) -> None:
    file = pretrained.list_shipped()[name]
    low, high = pretrained.load(name).trained_scales
    assert pretrained.TRAINED_SCALES in checkpoints.read_weights(file).extra
    assert 0 < low < high
    text = file.with_name(publishing.CARD).read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["library_name"] == "geoco"
    for line in text.splitlines():
        if "](pictures/" in line:
            picture = line.partition("](")[2].rstrip(")")
            assert (file.parent / picture).is_file(), picture
