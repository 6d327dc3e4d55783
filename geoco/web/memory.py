"""What the server holds in memory: tensors of states, and requests that are on their way in.

Whatever a session keeps is counted here, by address, so that what two states share counts once.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

Array = tuple[int, int]  # address and bytes


@runtime_checkable
class Start(Protocol):
    """What a history begins with; `arrays` lists all that it keeps."""

    @property
    def arrays(self) -> Iterator[Array]: ...


@runtime_checkable
class Holder(Protocol):
    """A state, as far as its memory goes."""

    @property
    def start(self) -> Start: ...
    @property
    def cached(self) -> Any: ...
    @property
    def sources(self) -> "Sequence[Holder]": ...


def count_own_bytes(state: Holder) -> int:
    """What a state needs when all others are dropped."""
    return sum(_list_state_arrays(state).values())


def count_bytes(states: Iterable[Holder]) -> int:
    """What states hold together with those that they were made from."""
    sizes: dict[int, int] = {}
    for state in walk_states(states):
        sizes.update(_list_state_arrays(state))
    return sum(sizes.values())


def walk_states(states: Iterable[Any]) -> list[Any]:
    """States with their ancestors and donors, each once."""
    reached: dict[int, Any] = {}
    waiting = list(states)
    while waiting:
        one = waiting.pop()
        if id(one) not in reached:
            reached[id(one)] = one
            waiting += one.sources
    return list(reached.values())


def _list_state_arrays(state: Holder) -> dict[int, int]:
    sizes = dict(state.start.arrays)
    if state.cached is not None:
        sizes.update(_list_scene_arrays(state.cached))
    return sizes


def _list_scene_arrays(scene: Any) -> Iterator[Array]:
    """All that a scene or film holds."""
    decoded = scene.decoded
    holders = (scene, decoded, decoded.slots, decoded.fields)
    # Copied at once: a thread may be computing more of it.
    for value in [value for holder in holders for value in list(vars(holder).values())]:
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
        elif isinstance(value, np.ndarray):
            yield value.ctypes.data, value.nbytes
    for source in (*scene.donors.values(), *(scene.film or ())[:1]):
        yield from _list_scene_arrays(source)
