"""What is measured of the pictures of object-matched edits, and against which targets."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.evaluation.exact_targets import Generator, draw_truths
from geoco.evaluation.reference_objects import AskedEdits, References, compute_oracle_targets
from geoco.evaluation.windows import Factual
from geoco.metrics import rgb


@dataclass(frozen=True)
class MatchedMeasures:
    """What is measured of each edit, nan where the model cannot be asked.

    PSNR is in dB: `oracle` against the visible-layer target, `exact` against the generator's own
    picture (nan without one), `oracle_exact` of the target against that picture; `unedited` is the
    reconstruction left as it is, against the oracle.
    """

    f1: Float64[np.ndarray, " edit"]
    oracle: Float64[np.ndarray, " edit"]
    oracle_region: Float64[np.ndarray, " edit"]
    unedited: Float64[np.ndarray, " edit"]
    unedited_region: Float64[np.ndarray, " edit"]
    exact: Float64[np.ndarray, " edit"]
    exact_region: Float64[np.ndarray, " edit"]
    exact_f1: Float64[np.ndarray, " edit"]  # 0 without a slot, nan below ten true pixels
    oracle_exact: Float64[np.ndarray, " edit"]
    oracle_exact_region: Float64[np.ndarray, " edit"]
    change: Float64[np.ndarray, " edit"]  # nan without a slot, or one that is sure enough
    changed: Float64[np.ndarray, " edit"]


@dataclass(frozen=True)
class Judge:
    """Measures pictures of edits against what they should be."""

    factual: Factual
    objects: References
    asked: AskedEdits
    generator: Generator | None
    images: Float[Tensor, "window 3 height width"]  # reconstructions

    def measure(
        self, edits: Tensor, image: Tensor, support: Tensor | None, own_target: Tensor | None
    ) -> MatchedMeasures:
        """Of some edits, one row each."""
        device = image.device
        some = self.asked.rows(edits)
        wanted = compute_oracle_targets(self.factual, self.objects, some, device)
        rows = self.objects.window[some.object].to(self.images.device)
        before = self.images[rows].to(device)
        undefined = torch.full((len(edits),), torch.nan, dtype=torch.float64, device=device)
        f1 = change = changed = undefined
        if support is not None and own_target is not None:
            f1 = metrics.f1(support, own_target)
            kept = rgb.measure_preservation(before, image, wanted.touched)
            sure = self.objects.agrees[some.object] & self.objects.agrees[some.donor]
            change, changed = (
                part.where(sure.to(device), torch.nan) for part in (kept.change, kept.changed)
            )
        exact = oracle_exact = (undefined, undefined)
        exact_f1 = undefined
        if self.generator is not None:
            truth = draw_truths(self.generator, self.factual, self.objects, some, device)
            edited = torch.zeros_like(truth.mask) if support is None else support
            large = edit_maps.is_large_enough(truth.mask)
            exact_f1 = metrics.f1(edited, truth.mask).where(large, torch.nan)
            exact = _measure_likeness(image, truth.image, wanted.region)
            oracle_exact = _measure_likeness(wanted.image, truth.image, wanted.region)
        oracle = _measure_likeness(image, wanted.image, wanted.region)
        unedited = _measure_likeness(before, wanted.image, wanted.region)

        def read(column: Tensor) -> np.ndarray:
            return column.cpu().numpy()

        return MatchedMeasures(
            f1=read(f1),
            oracle=read(oracle[0]),
            oracle_region=read(oracle[1]),
            unedited=read(unedited[0]),
            unedited_region=read(unedited[1]),
            exact=read(exact[0]),
            exact_region=read(exact[1]),
            exact_f1=read(exact_f1),
            oracle_exact=read(oracle_exact[0]),
            oracle_exact_region=read(oracle_exact[1]),
            change=read(change),
            changed=read(changed),
        )


def _measure_likeness(image: Tensor, target: Tensor, region: Tensor) -> tuple[Tensor, Tensor]:
    return rgb.psnr(image, target), rgb.region_psnr(image, target, region)
