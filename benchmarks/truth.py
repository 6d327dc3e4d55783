"""What the editing protocol gives to the truth itself, on `solids`, which knows it.

    python benchmarks/truth.py [--windows 100] [--batch 64]

Targets are factual masks under a map; the generator draws what is really seen after an edit. F1 is
in percent with its interval over source videos, beside it what leaving the scene alone would score.
"""

import argparse

import torch

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import windows
from geoco.evaluation.editing import Kind, Scope, record_edits, score_editing
from geoco.evaluation.factual import Mean
from geoco.evaluation.generator_model import TrueScenes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = SolidsDataset(SolidsConfig(), "val")
    truth = TrueScenes(dataset)
    factual = windows.compute_factual(truth, dataset, arguments.batch, arguments.windows)
    scores = score_editing(record_edits(truth, factual, arguments.batch))
    videos = len(set(factual.source))
    print(f"{scores.objects} objects of {len(factual)} windows, {videos} videos")
    for name, scope in (("all valid edits", scores.all), ("interior", scores.interior)):
        print(f"\n{name}")
        show(scope)


def show(scope: Scope) -> None:
    """The columns of one scope, one to a line."""
    kinds = (
        ("F_pos", scope.position),
        ("F_scl", scope.scale),
        ("F_app", scope.transplant),
    )
    for name, kind in kinds:
        print(f"  {name:7}{f1(kind)}")
    values = (
        ("E_dp", scope.position.error),
        ("D_app", scope.transplant.error),
        ("beta_r", scope.curves.radius),
        ("beta_A", scope.curves.coverage),
    )
    for name, value in values:
        print(f"  {name:7}{mean(value)}")


def f1(kind: Kind) -> str:
    interval = kind.f1
    return (
        f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]  "
        f"no-op {kind.noop:.2f}  {kind.edits} edits, "
        f"{kind.disappeared} of {kind.disappearable} gone"
    )


def mean(value: Mean | None) -> str:
    assert value is not None
    return f"{value.value:.4f}  {value.defined} of {value.total} defined"


if __name__ == "__main__":
    main()
