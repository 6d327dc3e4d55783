"""What benchmarks count, where it can be known."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation.editing import EditRecords, Records
from geoco.ops import scale_steered_conv2d

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import encoder
import following
import masks
import selector
import training_parts

from geoco.training.selector_teacher import Labels


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
