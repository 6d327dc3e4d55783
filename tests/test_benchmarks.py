"""What benchmarks count, where it can be known."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import ROOT
from lightning.fabric import Fabric
from torch.utils.flop_counter import FlopCounterMode

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation.editing import EditRecords, Records
from geoco.ops import scale_steered_conv2d

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import encoder
import following
import masks
import processes
import processes_paper
import scaling
import scaling_curves
import scaling_point
import selector
import training_parts

from geoco.training.selector_teacher import Labels
from geoco.training.step import Stepper


def test_products_are_counted_as_those_of_an_ordinary_convolution() -> None:
    """Both ways; the gradient of the dilation needs no products of its own in the least case."""
    assert training_parts is not None  # which registers the formulas
    x = torch.randn(2, 3, 8, 6, requires_grad=True)
    weight = torch.randn(5, 3, 3, 3, requires_grad=True)
    bias = torch.zeros(5, requires_grad=True)
    counts = []
    for run in (
        lambda: F.conv2d(x, weight, bias, padding=1),
        lambda: scale_steered_conv2d(x, weight, bias, torch.tensor([0.7, 1.6])),
    ):
        with FlopCounterMode(display=False) as there:
            y = run()
        with FlopCounterMode(display=False) as back:
            y.sum().backward()
        counts.append((there.get_total_flops(), back.get_total_flops()))
    assert counts[0] == counts[1] == (2 * 2 * 8 * 6 * 3 * 5 * 9, 2 * 2 * 2 * 8 * 6 * 3 * 5 * 9)


def test_the_breakdown_of_a_training_step_comes_to_its_end() -> None:
    root = Path(__file__).parent.parent
    tiny = (
        "data.episodes={train: 2, val: 1, test: 1}", "data.frames=4", "data.height=16",
        "data.width=16", "data.supersample=1", "model.encoder.width=8",
        "model.slots={count: 4, dim: 8, update_dim: 16, grid_dim: 16}",
        "model.decoder.broadcast=4", "model.decoder.layers=[[8,5],[16,3]]", "train.batch=2",
        "train.precision=32-true",
    )  # fmt: skip
    command = [sys.executable, "benchmarks/training.py", "--breakdown", "--weights", "none"]
    done = subprocess.run(
        [*command, "--device", "cpu", *tiny],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[-9:]
    assert rows[0].split() == ["forward", "backward", "least"]
    names = [row[29:].strip() for row in rows[1:]]
    assert names == [
        "encoder",
        "slot attention",
        "decoder",
        "alpha once more, for pos and tail",
        "counterfactual decode",
        "losses, pairs, selector and teacher",
        "clipping and optimisers",
        "together",
    ]


def test_the_encoders_parts_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--device", "cpu", "--frames", "1", "--width", "8", "--depth", "1", "--heads", "2"]
    encoder.main([*tiny, "--repeats", "1"])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:32].strip() for row in rows] == [
        "eager: enlarge, normalise, cut",
        "eager: backbone",
        "eager: projection",
        "eager: together",
        "least, products alone",
    ]
    assert all(row.endswith(" ms") and float(row[32:-3]) > 0 for row in rows)


def test_pixels_of_the_selector_are_counted_by_hand() -> None:
    """Slot 0 is the background; slot 1 has an object and its shadow, slot 2 a shadow alone."""
    before = torch.zeros(1, 4, 12, dtype=torch.int64)
    before[0, 0, :10], before[0, 1, :5], before[0, 3] = 1, 1, 2
    after = before.clone()
    after[0, 0, 8:10] = 0  # given back: one pixel of shadow, one of the object
    after[0, 1, 0] = 2  # goes to another object: not given back
    floor = torch.ones(1, 4, 12, dtype=torch.bool)
    floor[0, 0, :9] = False
    positive, protected = torch.zeros(2, 1, 4, 12)
    positive[0, 0, 8], positive[0, 0, 9] = 0.5, 0.25
    protected[0, 1, :2] = 1.0
    counts = selector.count_pixels(
        before, after, torch.tensor([0]), floor, Labels(positive, protected)
    )
    assert counts == selector.Counts(27, 18, 2, 1, 0.75, 0.25, 2, 2)
    assert (counts + counts).owned_floor == 36


def test_tubes_by_hand() -> None:
    """Slot 2 follows object 1 but for a pixel, slot 0 has half of object 2; a crumb is none."""
    labels = torch.zeros(2, 4, 8, dtype=torch.uint8)
    labels[:, 0], labels[:, 1], labels[0, 3, 0] = 1, 2, 3
    slots = torch.zeros(2, 3, 4, 8, dtype=torch.bool)
    slots[:, 2, 0] = True
    slots[1, 2, 0, 0] = False
    slots[0, 0, 1] = True
    scores = following.tube_f1(slots, labels)
    assert scores.tolist() == [2 * 15 / 31, 2 * 8 / 24]


def test_what_slots_hold_is_counted_by_hand() -> None:
    """Slot 0 is the background. 1 and 2 hold object 3, 2 more floor; 3 has objects 1 and 2.

    4 is a disc of floor that does not touch the edge; object 4 is the background's, 5 a crumb.
    13 pixels of slot 2 lie in a shadow; what is dark on objects, or hardly, is none.
    """
    labels = torch.zeros(12, 30, dtype=torch.uint8)
    slots = torch.zeros(6, 12, 30, dtype=torch.bool)
    labels[2, 1:29] = 3
    slots[1, 2, 1:19] = True  # inside the picture, and long for its scale
    slots[2, 2, 19:29] = True
    slots[2, 3, 10:25] = True  # floor: 15 of 25 pixels
    labels[5, :15], labels[5, 15:] = 1, 2
    slots[3, 5] = True  # from edge to edge
    slots[4, 7, 5:20] = True
    labels[9, 1:15], labels[10, 20] = 4, 5
    slots[0] = ~slots.any(0)
    valid = torch.tensor([False, True, True, True, True, False])
    taken = torch.zeros(12, 30)
    taken[3, 10:23], taken[5], taken[7] = 0.2, 0.9, 0.05
    counts = masks.count_slots(slots, valid, torch.full((6,), 0.2), labels, taken)
    assert counts == masks.Counts(4, 1, 1, 1, 1, 1, 4, 1, 1, 1)
    taken[3, 10] = 0
    counts = masks.count_slots(slots, valid, torch.full((6,), 2.0), labels, taken)
    assert (counts.streaks, counts.draped) == (0, 0)
    assert (counts + counts).objects == 8
    nothing = masks.count_slots(slots, valid, torch.ones(6), torch.zeros_like(labels), taken)
    assert nothing == masks.Counts(4, 4, 0, 1, 1)  # slot 3 lies in the dark now


def test_edits_of_some_slots_are_left_out() -> None:
    """Of windows 3 and 5, two slots each; slot 1 of window 5 goes, and slot 0 of one not there."""
    window, slot, number = np.array([[3, 3, 5, 5], [0, 1, 0, 1], [0, 1, 2, 3]])
    yes, value = np.ones(4, dtype=np.bool_), number.astype(np.float64)
    records = Records(window, slot, *[number] * 3, *[yes] * 3, *[value] * 7)
    gone = np.zeros((6, 2), dtype=np.bool_)
    gone[5, 1], gone[4, 0] = True, True
    remaining = masks.drop_slots(EditRecords(records, records, records), gone)
    for kept in (remaining.position, remaining.scale, remaining.transplant):
        assert kept.f1.tolist() == kept.error.tolist() == [0, 1, 2]
        assert kept.window.tolist() == [3, 3, 5]


def test_shadows_are_where_the_floor_is_darker_than_in_other_frames() -> None:
    dataset = SolidsDataset(SolidsConfig(), "val")
    windows = range(0, 2600, 97)
    batch = dataset.batch(windows)
    assert batch.masks is not None
    light = (batch.video[:, 0].float() / 255) ** 2.2
    floor = batch.masks[:, 0] == 0
    clean = (light * floor[:, None]).amax(0)
    missing = (1 - light / clean).mean(1)
    for number in (0, 3, 5):
        taken = masks.measure_shade(dataset, windows[number])[floor[number]]
        assert (missing[number][floor[number]] - taken).abs().mean() < 0.01
        assert torch.corrcoef(torch.stack((missing[number][floor[number]], taken)))[0, 1] > 0.95


def test_every_table_of_the_video_protocol_is_timed() -> None:
    root = Path(__file__).parent.parent
    command = [sys.executable, "benchmarks/evaluation_video.py", "--model", "drawn"]
    done = subprocess.run(
        [*command, "--clips", "2", "--frames", "2"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[3:-2]]
    # A model of squares cannot draw on a larger canvas.
    names = ["factual", "editing", "stability", "shared-background", "matched", "tubes"]
    assert [row[0] for row in rows] == ["factual", *names]
    assert all(float(row[-4]) + 0.1 >= float(row[-3]) + float(row[-2]) - 0.1 for row in rows)
    assert "valid objects in 4 frames" in done.stdout


# -- how cost grows --------------------------------------------------------------------------------

TINY_GROWTH = (
    "data.episodes={train: 2, val: 1, test: 1}", "model.encoder.width=8",
    "model.slots.dim=8", "model.slots.update_dim=16", "model.slots.grid_dim=16",
)  # fmt: skip


def test_exponents_are_those_of_the_upper_part() -> None:
    """Twice the square of the size, but for what is fixed and only shows in the first points."""
    sizes = (1, 2, 4, 8, 16)
    curve = scaling_curves.Curve(sizes, (90.0, 40.0, *(2.0 * size**1.5 for size in sizes[2:])))
    assert scaling_curves.fit_exponent(curve) == pytest.approx(1.5)
    assert scaling_curves.fit_exponent(curve, dimensions=2) == pytest.approx(0.75)
    # By hand: of (1, 1), (2, 2), (4, 8) logarithms rise by (0, 1, 3) over (0, 1, 2).
    crooked = scaling_curves.Curve((1, 2, 4), (1.0, 2.0, 8.0))
    assert scaling_curves.fit_exponent(crooked) == pytest.approx(1.5)


def test_products_of_a_step_are_counted_without_computing() -> None:
    """The count of a step that is computed, at odd sizes and with the temporal initializer."""
    sizes = scaling_point.Sizes(slots=3, frames=3, side=16, batch=2)
    settings = scaling_point.make_config(
        ROOT / "configs/geoco.yaml", sizes, "cpu", video=True, overrides=TINY_GROWTH
    )
    fabric = Fabric(accelerator="cpu", devices=1, precision="32-true")
    stepper = Stepper(scaling_point.build_model(settings, "none"), settings, fabric)
    inputs = scaling_point.make_inputs(settings, fabric.device)
    with FlopCounterMode(display=False) as counter:
        stepper(inputs.batch, inputs.draws, inputs.plan)
    assert scaling_point.count_operations(settings) == counter.get_total_flops() > 0
    assert inputs.plan.mode.terms == {"rec", "gate", "pos", "ov", "geo", "tail"}
    assert inputs.plan.mode.temporal
    assert inputs.plan.mode.selector_applies
    assert stepper.temporal[0].grad is not None


def test_sizes_reach_every_layer() -> None:
    path, sizes = ROOT / "configs/geoco.yaml", scaling_point.Sizes(24, 2, 256, 5)
    settings = scaling_point.make_config(path, sizes, "cpu", video=False)
    assert settings.model.decoder.layers == ((128, 5), *[(256, 3)] * 4)
    assert (settings.model.decoder.broadcast, settings.data.height) == (64, 256)
    model = scaling_point.build_model(settings, "geoco-solids")
    assert (model.size, model.slot_count) == (256, 24)
    appearance = model.attention.appearance
    assert torch.equal(appearance[:6], appearance[18:])


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux says how large it was")
def test_peaks_are_of_what_is_measured_alone() -> None:
    mebibytes = 2**20 // 4  # numbers
    kept = torch.ones(64 * mebibytes)
    torch.ones(256 * mebibytes).amax()  # was there before, and is gone
    peak = scaling_point.measure_peak(
        lambda: torch.ones(128 * mebibytes).amax(), torch.device("cpu")
    )
    assert 127 <= peak / 2**20 <= 135
    assert kept.amax() == 1


def test_growth_is_measured_kept_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, shipped = tmp_path / "growth.json", str(ROOT / "configs/geoco.yaml")
    command = ["--device", "cpu", "--out", str(out), "--points", "2", "--repeats", "1"]
    command += ["--config", shipped, "--weights", "none", "--axes", "slots"]
    scaling.main([*command, "--", *TINY_GROWTH])
    kept = json.loads(out.read_text())
    assert list(kept["axes"]) == ["slots"]
    assert list(kept["axes"]["slots"]) == ["3", "6"]
    for work in ("training", "encoding", "edit"):
        cost = kept["axes"]["slots"]["6"][work]
        assert cost["seconds"] > 0
        assert cost["operations"] > 0
    training = {"training": kept["axes"]["slots"]["3"]["training"]}
    kept["axes"]["batch"] = {"1": training, "2": training}
    out.write_text(json.dumps(kept))
    capsys.readouterr()
    scaling.main([*command, "--", *TINY_GROWTH])  # nothing is measured twice
    assert json.loads(out.read_text()) == kept
    rows = capsys.readouterr().out.splitlines()[-4:]
    assert [row[:34].split() for row in rows] == [
        ["slots", "3", "to", "6", "training"],
        ["slots", "3", "to", "6", "encoding"],
        ["slots", "3", "to", "6", "edit"],
        ["batch", "1", "to", "2", "training"],
    ]
    assert rows[-1].split()[-3:] == ["0.00", "0.00", "0.00"]
    with pytest.raises(SystemExit, match=r"growth\.json: measured otherwise"):
        scaling.main(command)
    scaling.main([*command, "--figure", str(tmp_path / "growth.png")])
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_the_page_has_the_exponents_that_were_measured() -> None:
    results = json.loads((ROOT / "benchmarks/scaling-cpu.json").read_text())
    page = (ROOT / "docs/benchmarks.md").read_text()
    cells: dict[tuple[str, str], list[str]] = {}
    for axis, fitted, _, exponents in scaling_curves.list_exponents(results):
        cells.setdefault((axis, fitted), []).append(
            " / ".join(f"{value:.2f}" for value in exponents)
        )
    assert len(cells) == 4
    for (_, fitted), values in cells.items():
        assert f"{fitted} | {' | '.join(values)} |" in page, fitted


# -- many processes --------------------------------------------------------------------------------


def test_estimates_by_hand() -> None:
    """Eight of them, 4 MB in 3 sums, 1 GB/s and a millisecond a message."""
    traffic = processes_paper.Traffic(calls=3, size=4_000_000, gradient=4_000_000)
    link = processes_paper.Link("wire", 1e9, 1e-3)
    assert processes_paper.time_network(8, traffic, link) == pytest.approx(0.007 + 3 * 6e-3)
    assert processes_paper.time_network(1, traffic, link) == 0
    divided = processes_paper.estimate_step(0.2, 0.04, 8, traffic, link)
    assert divided.computing == pytest.approx(0.06)
    assert divided.gain == pytest.approx(0.2 / 0.085)
    slow = processes_paper.estimate_step(0.2, 0.04, 8, traffic, link, floor=0.1)
    assert (slow.computing, slow.gain) == pytest.approx((0.1, 0.2 / 0.125))
    larger = processes_paper.estimate_larger(0.2, 8, traffic, link, floor=0.1)
    assert (larger.computing, larger.gain) == pytest.approx((0.2, 1.6 / 0.225))


def test_two_processes_are_measured_against_one() -> None:
    root = Path(__file__).parent.parent
    tiny = ("--batch", "2", "--rounds", "1", "--weights", "none", *TINY_GROWTH)
    done = subprocess.run(
        [sys.executable, "benchmarks/processes.py", *tiny],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    settings = scaling_point.make_config(
        ROOT / "configs/geoco.yaml", scaling_point.Sizes(), "cpu", False, TINY_GROWTH
    )
    model = scaling_point.build_model(settings, "none")
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert f"summing gradients, {size:,} bytes" in done.stdout
    apart = re.search(r"differ by (\S+) of themselves", done.stdout)
    assert apart is not None
    assert float(apart[1]) < 1e-3
    assert processes.compare([2.0, -4.0], [2.1, -4.4]) == pytest.approx(0.1)
    assert processes.find_slowest([(1.0, 0.5), (0.9, 0.8)]) == (1.0, 0.8)
