"""What benchmarks count, window by window."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True)
class Tally:
    """Numbers that add up, each under its own name."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return type(self)(*(a + b for a, b in pairs))
