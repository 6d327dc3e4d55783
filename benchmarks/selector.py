"""What a model's selector and its teacher do, held against the true masks of `solids`.

    python benchmarks/selector.py [MODEL] [--windows 100]

Floor is what no object covers in truth, shadows among it. The teacher's shares are weighted by its
confidence, over the pixels that the selector may act on.
"""

import argparse
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from tally import Tally
from torch import Tensor

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import OneSlotModel, adapter
from geoco.evaluation.windows import choose_windows, draw_starting_positions
from geoco.models import pretrained
from geoco.models.selector import find_domain
from geoco.training import selector_teacher
from geoco.training.selector_teacher import Labels


@dataclass(frozen=True)
class Counts(Tally):
    """Pixels, all of them and those of floor."""

    owned: float = 0  # by slots other than the background, before the selector
    owned_floor: float = 0
    given: float = 0  # back by the selector
    given_floor: float = 0
    positive: float = 0  # by the teacher's confidence: the background's
    positive_floor: float = 0
    protected: float = 0  # its owner's
    protected_floor: float = 0


def count_pixels(
    before: Int64[Tensor, "scene height width"],
    after: Int64[Tensor, "scene height width"],
    background: Int64[Tensor, " scene"],
    floor: Bool[Tensor, "scene height width"],
    labels: Labels,
) -> Counts:
    """Of owners of pixels before and after the selector."""
    behind = background[:, None, None]
    owned = before != behind
    given = owned & (after == behind)

    def pair(weight: Float[Tensor, "..."] | Bool[Tensor, "..."]) -> tuple[float, float]:
        return float(weight.sum()), float((weight * floor).sum())

    return Counts(*pair(owned), *pair(given), *pair(labels.positive), *pair(labels.protected))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="geoco-solids", help="a shipped name or a run")
    parser.add_argument("--windows", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = pretrained.load(arguments.model)
    model, selector = adapter(loaded.model, loaded.config), loaded.model.selector
    assert isinstance(model, OneSlotModel)
    if selector is None:
        parser.error(f"{arguments.model}: this model has no selector: choose one that has")
    dataset = SolidsDataset(SolidsConfig(), "val")
    total = Counts()
    windows = choose_windows(dataset, arguments.windows)
    for window in windows.tolist():
        clip = dataset.batch([window])
        assert clip.masks is not None
        frame, masks = clip.video[:, 0].float() / 255, clip.masks[:, 0]
        encoded = model.encode(frame, draw_starting_positions(window, model.slots)[None])
        assert encoded.attention is not None
        drawn = model.fields(encoded.slots)
        domain = find_domain(drawn.logits, selector.settings)
        settings = loaded.config.train.selector.teacher
        labels = selector_teacher.label_pixels(frame, drawn, encoded.attention, domain, settings)
        after = selector.refine(drawn, encoded.attention).argmax(-3)
        total += count_pixels(domain.owner, after, domain.background, masks == 0, labels)
    print_counts(total, len(windows))


def print_counts(total: Counts, windows: int) -> None:
    left, left_floor = total.owned - total.given, total.owned_floor - total.given_floor
    rows = (
        ("owned by objects' slots, before", total.owned, total.owned_floor),
        ("given back by the selector", total.given, total.given_floor),
        ("left to objects' slots", left, left_floor),
        ("the background's, by the teacher", total.positive, total.positive_floor),
        ("its owner's, by the teacher", total.protected, total.protected_floor),
    )
    print(f"{f'{windows} windows':<36}{'pixels':>10}{'floor':>10}{'share':>8}")
    for name, pixels, floor in rows:
        share = f"{floor / pixels:.1%}" if pixels else "-"
        print(f"{name:<36}{pixels:>10.0f}{floor:>10.0f}{share:>8}")


if __name__ == "__main__":
    main()
