"""Sums and donors over processes, in two real ones."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from geoco.training import distributed

ROOT = Path(__file__).parents[2]

WORK = """
import sys
import torch
import torch.distributed as dist
from geoco.training import distributed

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).add(10 * rank).requires_grad_()
every = distributed.gather_rows(x)
assert every.tolist() == [[1, 2], [3, 4], [11, 12], [13, 14]], every
# Each process weighs all rows in its own way; a row hears of both.
weight = torch.arange(8.0).view(4, 2) * (1 + rank)
(every * weight).sum().backward()
expected = 3 * torch.arange(8.0).view(4, 2)[2 * rank : 2 * rank + 2]
assert torch.equal(x.grad, expected), (x.grad, expected)
count = torch.tensor(5.0 + rank, requires_grad=True)
total = distributed.sum_over_ranks(count)
assert total.item() == 11 and not total.requires_grad
assert count.item() == 5 + rank
print("done")
"""


def test_two_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(rank), str(tmp_path / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert output.strip() == "done", errors


def test_alone_nothing_is_sent() -> None:
    value = torch.ones(2, 3, requires_grad=True)
    assert distributed.gather_rows(value) is value
    assert distributed.sum_over_ranks(value) is value
