"""References of reconstruction quality, against numbers by hand."""

import json
from pathlib import Path

import pytest

from geoco.errors import GeocoError
from geoco.models.reconstruction_quality import (
    PERCENTILES,
    FilmQuality,
    Quality,
    QualityReference,
)

# 1001 frames of 20, 20.01, ..., 30 dB: the percentile p is 20 + p / 10.
REFERENCE = QualityReference.from_psnr([20 + k / 100 for k in range(1001)], "ramp")


def test_quantiles() -> None:
    assert REFERENCE.frames == 1001
    assert REFERENCE.psnr == pytest.approx([20 + p / 10 for p in PERCENTILES])
    assert REFERENCE.lowest == pytest.approx(20.01)


def test_equal_pictures_have_a_finite_psnr() -> None:
    assert QualityReference.from_psnr([30.0, float("inf")], "x").psnr[-1] == 100


@pytest.mark.parametrize(
    ("psnr", "rank", "known"),
    [(19.0, 0, False), (20.0, 0, False), (20.02, 0.002, True), (25, 0.5, True), (31, 1, True)],
)
def test_where_a_picture_lies(psnr: float, rank: float, known: bool) -> None:
    quality = Quality(psnr, REFERENCE)
    assert quality.rank == pytest.approx(rank, abs=1e-6)
    assert quality.is_known is known


def test_sentences() -> None:
    kind = "1,001 frames of the kind that the model knows"
    low = f"PSNR 12.3 dB, lower than nearly all of {kind} (20.0 dB or more)"
    assert str(Quality(12.3, REFERENCE)) == low
    assert str(Quality(25, REFERENCE)) == f"PSNR 25.0 dB, higher than 50% of {kind}"
    assert str(Quality(20.02, REFERENCE)) == f"PSNR 20.0 dB, lower than 99.8% of {kind}"
    assert str(Quality(31, REFERENCE)) == f"PSNR 31.0 dB, higher than 99.9% of {kind}"
    nothing = Quality(25, None)
    assert (nothing.rank, nothing.is_known) == (None, None)
    assert str(nothing) == "PSNR 25.0 dB; what is usual for this model was not measured"


def test_a_film_is_judged_by_its_median_frame() -> None:
    film = FilmQuality(Quality(25, REFERENCE), Quality(12, REFERENCE), 7)
    assert film.is_known
    assert str(film).endswith("worst: frame 7 with 12.0 dB")


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "quality.json"
    assert QualityReference.read(path) is None
    path.write_text(REFERENCE.to_json())
    assert QualityReference.read(path) == REFERENCE


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"psnr": [1, 2]},
        {"psnr": [9, 8, 7, 6, 5, 4, 3, 2, 1]},
        {"psnr": [1, 2, 3, 4, 5, 6, 7, 8, float("nan")]},
        {"percentiles": [0, 50]},
        {"frames": 0},
        {"source": None, "frames": "many"},
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "quality.json"
    path.write_text(json.dumps(json.loads(REFERENCE.to_json()) | change))
    with pytest.raises(GeocoError, match=r"quality\.json: damaged, or of another version"):
        QualityReference.read(path)
