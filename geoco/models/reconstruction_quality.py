"""How well a model redraws a picture, beside how well it redraws pictures of the kind it knows.

A model that was trained on one kind of scenes makes something of any picture. What it makes of a
picture of another kind is far from it: its PSNR is below that of nearly all validation frames. So a
model ships `quality.json` beside its weights, quantiles of the PSNR of validation frames.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from geoco.errors import GeocoError

FILE = "quality.json"
FORMAT = 1
PERCENTILES = (0.0, 0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 100.0)
KNOWN_FROM = 0.1  # the percentile below which a picture is not of the model's kind
MOST_PSNR = 100.0  # dB; equal pictures would have infinitely many


@dataclass(frozen=True)
class QualityReference:
    """The PSNR of frames of a model's own kind, each encoded by itself as the editor does."""

    source: str  # what the frames are
    frames: int
    psnr: tuple[float, ...]  # dB, at `PERCENTILES`

    @classmethod
    def from_psnr(cls, values: Sequence[float], source: str) -> "QualityReference":
        """Of the PSNR of single frames."""
        limited = np.minimum(np.asarray(values, dtype=np.float64), MOST_PSNR)
        quantiles = np.percentile(limited, PERCENTILES)
        return cls(source, len(limited), tuple(round(float(value), 3) for value in quantiles))

    @property
    def lowest(self) -> float:
        """The PSNR that a picture of this kind has at least."""
        return self.psnr[PERCENTILES.index(KNOWN_FROM)]

    def rank(self, psnr: float) -> float:
        """The share of the frames that have a lower PSNR, between quantiles in a straight line."""
        return float(np.interp(psnr, self.psnr, PERCENTILES)) / 100

    def to_json(self) -> str:
        """The content of `quality.json`."""
        record = {"format": FORMAT, "percentiles": PERCENTILES, **asdict(self)}
        return json.dumps(record, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "QualityReference | None":
        """From a file; None where there is none."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            psnr = tuple(float(value) for value in record["psnr"])
            reference = cls(str(record["source"]), int(record["frames"]), psnr)
            whole = (
                (record["format"], tuple(record["percentiles"])) == (FORMAT, PERCENTILES)
                and len(psnr) == len(PERCENTILES)
                and psnr == tuple(sorted(psnr))
                and bool(np.isfinite(psnr).all())
                and reference.frames > 0
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise GeocoError(
                f"{path}: damaged, or of another version: delete it, or publish the model again"
            )
        return reference


@dataclass(frozen=True)
class Quality:
    """How well a model redraws a picture, before any edit."""

    psnr: float  # dB, of the model's drawing against the picture at the model's size
    reference: QualityReference | None  # None where nobody measured what is usual for the model

    @property
    def rank(self) -> float | None:
        """The share of the reference's frames that are redrawn worse; None without a reference."""
        return None if self.reference is None else self.reference.rank(self.psnr)

    @property
    def is_known(self) -> bool | None:
        """Whether this is as good as for the model's own kind; None without a reference."""
        return None if self.reference is None else self.psnr >= self.reference.lowest

    def __str__(self) -> str:
        return f"PSNR {self.psnr:.1f} dB{self._compare()}"

    def _compare(self) -> str:
        if self.reference is None:
            return "; what is usual for this model was not measured"
        kind = f"{self.reference.frames:,} frames of the kind that the model knows"
        if not self.is_known:
            return f", lower than nearly all of {kind} ({self.reference.lowest:.1f} dB or more)"
        assert self.rank is not None
        side, share = ("lower", 1 - self.rank) if self.rank < 0.5 else ("higher", self.rank)
        return f", {side} than {format_share(share)} of {kind}"


def format_share(share: float) -> str:
    """In percent, but never all: a known picture is not beyond every frame there is."""
    return f"{share:.0%}" if share < 0.99 else f"{min(share, 0.999):.1%}"


@dataclass(frozen=True)
class FilmQuality:
    """How well a model redraws the frames of a video."""

    median: Quality
    worst: Quality
    worst_frame: int

    @classmethod
    def from_psnr(cls, psnr: Sequence[float], reference: QualityReference | None) -> "FilmQuality":
        """Of the PSNR of all frames."""
        order = sorted(range(len(psnr)), key=psnr.__getitem__)
        worst, median = order[0], order[(len(order) - 1) // 2]
        return cls(Quality(psnr[median], reference), Quality(psnr[worst], reference), worst)

    @property
    def is_known(self) -> bool | None:
        """Decided by the median frame: a single one may be blurred, or cut off by an edge."""
        return self.median.is_known

    def __str__(self) -> str:
        return (
            f"median frame: {self.median}; worst: frame {self.worst_frame} with "
            f"{self.worst.psnr:.1f} dB"
        )
