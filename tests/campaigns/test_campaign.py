"""A sample of the campaign in every run of the tests, and some minutes of it in `make test-all`."""

import random
import warnings
from pathlib import Path

import pytest
from campaigns.campaign import Kind, LostError, format_table, run_case, run_kind
from campaigns.kinds import KINDS
from campaigns.load import run_load

from geoco.errors import GeocoError

SEED = 23


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_sample(kind: Kind, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about damaged files
        tally = run_kind(kind, 10, SEED, tmp_path)
    assert tally.failures == []
    assert tally.cases == 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_more(kind: Kind, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = run_kind(kind, round(150 * kind.share), SEED + 1, tmp_path)
    assert tally.failures == []


@pytest.mark.slow
def test_many_clients() -> None:
    """Every answer is the work or a clear busy, within the memory."""
    load = run_load(64, 30)
    assert load.failures == []
    assert load.answers["done"] > 0
    assert load.answers["busy"] > 0


def test_what_goes_wrong_is_counted(tmp_path: Path) -> None:
    def fail(draw: random.Random) -> None:
        match draw.randrange(6):
            case 0:
                raise GeocoError("a sentence")
            case 1:
                raise GeocoError("two\nlines")
            case 2:
                raise KeyError("x")
            case 3:
                raise LostError("gone")
            case 4:
                raise TimeoutError("too long")

    expected = {0: "refused", 1: "traceback", 2: "traceback", 3: "lost", 4: "hang", 5: "done"}
    for seed in range(30):
        outcome, _ = run_case(fail, random.Random(seed))
        assert outcome == expected[random.Random(seed).randrange(6)]
    tally = run_kind(Kind("all", lambda _: fail), 60, 0, tmp_path)
    bad = sum(count for name, count in tally.outcomes.items() if name not in ("done", "refused"))
    assert len(tally.failures) == bad > 0
    assert "| all | 60 | " in format_table([tally])


def test_a_case_can_be_run_again(tmp_path: Path) -> None:
    seen: list[float] = []
    kind = Kind("numbers", lambda _: lambda draw: seen.append(draw.random()))
    run_kind(kind, 5, 1, tmp_path)
    run_kind(kind, 5, 1, tmp_path)
    assert seen[:5] == seen[5:]
    assert len(set(seen)) == 5
