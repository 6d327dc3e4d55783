"""How time and memory grow with slots, frames, image side and batch, in training and in editing.

    python benchmarks/scaling.py                        # all of it, a process for each point
    python benchmarks/scaling.py --axes side            # one axis; what is there already is kept
    python benchmarks/scaling.py --device cuda
    python benchmarks/scaling.py --figure docs/images/scaling.png    # draws what was measured

One thing grows at a time, from six slots, one frame, 64 x 64 pixels and, on a CPU, one clip a
batch. A training step is one of the last phase of configs/geoco.yaml, with all terms; where frames
grow it has the temporal initializer. Encoding reads a picture or a film and draws it; an edit moves
one slot and draws the picture or film again. benchmarks/scaling_point.py says how each is measured.

An exponent is the slope of a straight line through the last three points of a curve, least squares
of logarithms: cost grows as the size to that power. That of the side is halved: it is of pixels.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from scaling_curves import Axis, draw_growth, list_exponents
from scaling_point import Sizes

from geoco import drawing

HERE = Path(__file__).parent
AXES: dict[Axis, tuple[int, ...]] = {
    "slots": (3, 6, 12, 24),
    "frames": (1, 2, 4, 8),
    "side": (32, 64, 128, 256),
    "batch": (1, 2, 4, 8, 16),  # times that of the other axes
}

OPTIONS = ("config", "weights", "device", "threads", "repeats")  # of a point, too


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/geoco.yaml")
    parser.add_argument("--weights", default="geoco-solids", help="a shipped name, a run, or none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--points", type=int, default=9, help="of each axis, the smallest ones")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, help="of the base point; 1, on a GPU 16")
    parser.add_argument("--out", type=Path, help="a file of results, which is completed")
    parser.add_argument("--figure", type=Path, help="only draw what was measured before")
    parser.add_argument("overrides", nargs="*", help="of the configuration")
    given = parser.parse_args(arguments)
    out = given.out or HERE / f"scaling-{given.device}.json"
    if given.figure is not None:
        drawing.save_pictures(given.figure, [draw_growth(json.loads(out.read_text()))])
        return
    base = Sizes(batch=given.batch or (16 if given.device == "cuda" else 1))
    options = [f"--{name}={getattr(given, name)}" for name in OPTIONS]
    results = read_results(out, given, base)
    for axis in given.axes:
        for size in AXES[axis][: given.points]:
            points = results["axes"].setdefault(axis, {})
            if str(size) not in points:
                load = os.getloadavg()[0]
                costs = measure_point(axis, size, base, [*options, *given.overrides])
                points[str(size)] = {**costs, "load": round(load, 1)}
                out.write_text(json.dumps(results, indent=1) + "\n")
            print_point(axis, size, points[str(size)])
    print_exponents(results)


def read_results(out: Path, given: argparse.Namespace, base: Sizes) -> dict[str, Any]:
    """What was measured before, in the same way and place, or nothing yet."""
    on_gpu = given.device == "cuda"
    about = {
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, threads: {given.threads}",
        "torch": torch.__version__,
        "config": [given.config, *given.overrides],
        "weights": given.weights,
        "base": asdict(base),
    }
    results: dict[str, Any] = {**about, "axes": {}}
    if not out.exists():
        return results
    before: dict[str, Any] = json.loads(out.read_text())
    if {key: before[key] for key in about} != about:
        raise SystemExit(f"{out}: measured otherwise: name another file with --out")
    return before


def measure_point(axis: Axis, size: int, base: Sizes, options: Sequence[str]) -> dict[str, Any]:
    """Costs by kind of work, from a process of its own; a batch is nothing to an editor."""
    sizes = replace(base, **{axis: size * (base.batch if axis == "batch" else 1)})
    command = [sys.executable, str(HERE / "scaling_point.py"), "--sizes", json.dumps(asdict(sizes))]
    if axis == "frames":
        command.append("--video")
    if axis == "batch":
        command.append("--training-only")
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=True)
    costs: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return costs


def print_point(axis: str, size: int, costs: Mapping[str, Any]) -> None:
    shown = [
        f"{name} {cost['seconds']:.3f} s (kernel {cost['kernel']:.3f}) "
        f"{cost['memory'] / 2**20:.0f} MiB {cost['operations'] / 1e9:.1f} GFLOP"
        for name, cost in costs.items()
        if name != "load"
    ]
    print(f"{axis} {size}: {'; '.join(shown)}; load {costs['load']}", flush=True)


def print_exponents(results: Mapping[str, Any]) -> None:
    print(f"\n{'':<34}{'time':>8}{'memory':>8}{'products':>10}")
    for axis, fitted, work, (seconds, memory, operations) in list_exponents(results):
        where = f"{axis} {fitted}"
        print(f"{where:<18}{work:<16}{seconds:>8.2f}{memory:>8.2f}{operations:>10.2f}")


if __name__ == "__main__":
    main()
