"""Kills and full disks at a chosen operation on files, for tests of what survives them.

Operations are counted in the order in which the tested code does them: opening a file to write,
each write, `fsync`, renames, deletions and new folders. A test fails the first one, then the
second one, and so on until its work comes to its end; so every moment is tried, and the same one
every time.

    for number in itertools.count():
        restore(folder)
        finished = survives(number, lambda: save(folder))
        check(folder)
        if finished:
            break

What counts is done by the thread that calls, through `os`, `shutil`, `pathlib` or `io.open`; the
built-in `open` goes another way, which libraries like TensorBoard take.
"""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from geoco.errors import GeocoError

OPERATIONS = ("fsync", "replace", "rename", "unlink", "remove", "rmdir", "mkdir", "truncate")


class Killed(BaseException):
    """The process ends here, as far as the tested code can tell: it cannot touch files any more."""


class Fault:
    """Counts operations, and raises at the one of a number; `lasting` also at all that follow."""

    def __init__(self, number: int, make_error: Callable[[], BaseException], lasting: bool) -> None:
        self.number, self.make_error, self.lasting = number, make_error, lasting
        self.names: list[str] = []
        self._thread = threading.get_ident()

    @property
    def happened(self) -> bool:
        return len(self.names) > self.number

    def check(self, name: str) -> None:
        """Called before an operation."""
        if threading.get_ident() != self._thread:
            return
        self.names.append(name)
        count = len(self.names) - 1
        if count == self.number or (self.lasting and count > self.number):
            raise self.make_error()


class _FaultyFile:
    """An open file whose writes count; one that fails has written the first half of its data."""

    def __init__(self, file: Any, fault: Fault) -> None:
        self._file, self._fault = file, fault

    def write(self, data: Any) -> Any:
        already = self._fault.happened
        try:
            self._fault.check("write")
        except BaseException:
            if not already:
                self._file.write(data[: len(data) // 2])
                self._file.flush()
            raise
        return self._file.write(data)

    def __enter__(self) -> "_FaultyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def inject(
    number: int, make_error: Callable[[], BaseException], lasting: bool = False
) -> Iterator[Fault]:
    """Within this context the operation of that number fails."""
    fault = Fault(number, make_error, lasting)

    def count_calls(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            fault.check(name)
            return real(*arguments, **options)

        return call

    real_open = io.open

    def open_file(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+"):
            return real_open(file, mode, *arguments, **options)
        fault.check("open")
        return _FaultyFile(real_open(file, mode, *arguments, **options), fault)

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, count_calls(name))
        patch.setattr(io, "open", open_file)
        yield fault


def survives(number: int, work: Callable[[], object]) -> bool:
    """Kill `work` before the operation of that number; True if it came to its end before.

    As after a real kill, nothing it would do afterwards to clean up touches a file.
    """
    with inject(number, Killed, lasting=True) as fault, suppress(Killed):
        work()
    return not fault.happened


def fill_disk(number: int, work: Callable[[], object], lasting: bool) -> tuple[bool, str]:
    """No space is left for an operation of `work`, or from then on; the rest must be GeocoErrors.

    Whether it came to its end without having noticed, and what its error says.
    """
    message = ""
    with inject(number, _no_space, lasting) as fault:
        try:
            work()
        except GeocoError as error:
            message = str(error)
    return not fault.happened, message


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
