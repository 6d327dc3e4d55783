"""Trainings side by side: what is started, what is left out, what goes on."""

import json
import sys
import time
from pathlib import Path

import pytest

from geoco import config
from geoco.errors import GeocoError
from geoco.reporting.results import write_table

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import trials
from trials import Campaign, Trial

SMOKE = Path(__file__).parent.parent / "configs" / "smoke.yaml"

# In the place of `geoco`: notes how it was called, and leaves what it would leave.
STAND_IN = """
import json, pathlib, sys, time
place = pathlib.Path(__file__).parent
kind, *rest = sys.argv[1:]
with (place / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
before = "--out" if "--out" in rest else "--resume"
folder = pathlib.Path(rest[0] if kind == "eval" else rest[rest.index(before) + 1])
if "bad" in folder.name:
    sys.exit("no such thing")
if kind == "train":
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text((place / "resolved.yaml").read_text())
    slow = "slow" in folder.name and "--out" in rest
    (folder / "checkpoints" / ("step-00000010" if slow else "step-00004200")).mkdir()
else:
    (folder / "evaluation").mkdir()
    for table in ("factual", "editing"):
        (folder / "evaluation" / f"{table}.json").write_text("{}")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs, with something in the place of `geoco`."""
    (tmp_path / "resolved.yaml").write_text(config.load(SMOKE).to_yaml())
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(trials, "COMMAND", (sys.executable, str(tmp_path / "stand_in.py")))
    return tmp_path


def read_calls(place: Path) -> list[list[str]]:
    return [json.loads(line) for line in (place / "calls").read_text().splitlines()]


def test_a_trial_is_trained_evaluated_and_then_left_alone(place: Path) -> None:
    campaign = Campaign(place, "cpu", 130, None, ("--accelerator", "cpu"))
    trial = Trial("own", "smoke.yaml", ("train.seed=3",))
    assert campaign.advance(trial).startswith("own: done, trained for")
    assert campaign.advance(trial) == "own: done before"
    train, evaluate = read_calls(place)
    assert train == [
        "train", "smoke.yaml", "train.seed=3", "--out", str(place / "own"), "--accelerator", "cpu",
    ]  # fmt: skip
    assert evaluate[:2] == ["eval", str(place / "own")]
    assert evaluate[evaluate.index("--windows") :][:3] == ["--windows", "130", "--spread"]


def test_what_was_stopped_goes_on(place: Path) -> None:
    """Its training stopped at step 10 of 4,200; the second call resumes it."""
    trial = Trial("slow", "smoke.yaml", ())
    until = time.monotonic() + 200
    assert Campaign(place, "cpu", 0, until, ()).advance(trial) == "slow: stopped, its time is up"
    assert Campaign(place, "cpu", 0, None, ()).advance(trial).startswith("slow: done")
    first, second, evaluate = read_calls(place)
    assert first[:2] == ["train", "smoke.yaml"]
    minutes = float(first[first.index("--minutes") + 1])
    assert 2.5 < minutes <= (200 - trials.LAST_SECONDS) / 60
    assert second == ["train", "--resume", str(place / "slow")]
    assert "--windows" not in evaluate


def test_no_time_and_errors_are_said(place: Path) -> None:
    none = Campaign(place, "cpu", 0, time.monotonic() + 1, ())
    assert none.advance(Trial("late", "smoke.yaml", ())) == "late: not begun, no time is left"
    campaign = Campaign(place, "cpu", 0, None, ())
    said = campaign.advance(Trial("bad", "smoke.yaml", ()))
    assert said == f"bad: its training failed, see {place / 'bad.log'}"
    assert "no such thing" in (place / "bad.log").read_text()
    campaign.stop()
    assert "failed" in campaign.advance(Trial("own", "smoke.yaml", ()))
    assert len(read_calls(place)) == 1  # nothing begins once it was stopped


def test_trials_are_read_in_order_and_wrong_ones_named(tmp_path: Path) -> None:
    file = tmp_path / "trials.yaml"
    file.write_text("b: geoco.yaml train.budget=0.1 'train.terms=[a, b]'\na: isa.yaml\n")
    assert trials.read_trials(file) == [
        Trial("b", "geoco.yaml", ("train.budget=0.1", "train.terms=[a, b]")),
        Trial("a", "isa.yaml", ()),
    ]
    for text in ("a: train.budget=1", "a: geoco.yaml budget", "a:"):
        file.write_text(text)
        with pytest.raises(GeocoError, match="a: expected a configuration and differences"):
            trials.read_trials(file)


def test_the_table_has_each_column_in_its_place(tmp_path: Path) -> None:
    inner = tmp_path / "one" / "evaluation"
    inner.mkdir(parents=True)
    population = {"model": "one"}
    factual = {
        "psnr": 40.1234,
        "position_error": {"value": 0.00712},
        "segmentation": {"foreground_ari": {"value": 0.9381}, "mean_iou": {"value": 0.869}},
        "calibration": {"linear": 0.951},
    }
    editing = {"all": {"scale": {"f1": {"estimate": 94.638}}}}
    for name, values in (("factual", factual), ("editing", editing)):
        write_table(inner, name, population, values)
    text = trials.format_results([Trial("one", "", ()), Trial("two", "", ())], tmp_path)
    head, _, row = text.splitlines()
    cells = dict(zip(head.split("|"), row.split("|"), strict=True))
    values = {name.strip(): value.strip() for name, value in cells.items()}
    assert values["Trial"] == "one"
    assert (values["PSNR ↑"], values["E_p→ĉ ↓"], values["F_scl ↑"]) == ("40.123", "0.0071", "94.64")
    assert (values["FG-ARI ↑"], values["mIoU ↑"], values["R² ↑"]) == ("0.938", "0.869", "0.951")
