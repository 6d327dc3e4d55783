"""How long calls of an evaluated model take, and how many slots it draws."""

import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from geoco.evaluation.interfaces import SlotModel

CALLS = ("track", "encode", "decode", "fields", "compose", "native_logits", "extended_fields",
         "final_logits", "validity")  # fmt: skip
DRAWS = ("fields", "native_logits", "extended_fields")


class Stopwatch:
    """Seconds that a model's methods take, those that they call among themselves counted once."""

    def __init__(self, model: SlotModel, device: str) -> None:
        self.depth, self.device = 0, device
        self.reset()
        for name in CALLS:
            if hasattr(model, name):
                setattr(model, name, self.watch(name, getattr(model, name)))

    def reset(self) -> None:
        self.seconds = 0.0
        self.drawn = dict.fromkeys(DRAWS, 0)  # slots, by the method that drew them

    def watch(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = self.read()
            self.depth += 1
            if name in DRAWS:
                self.drawn[name] += arguments[0].scale.numel()
            result = method(*arguments)
            self.depth -= 1
            if self.depth == 0:
                self.seconds += self.read() - begin
            return result

        return call

    def read(self) -> float:
        if self.device != "cuda":
            return time.process_time()
        if self.depth == 0:
            torch.cuda.synchronize()
        return time.perf_counter()


def measure_peak(device: str) -> float:
    """In GiB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
