"""Training as a whole: repeatable, resumable, divisible, and honest about what goes wrong."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers import write_dino
from helpers_faults import survives
from rich.console import Console

from geoco import config
from geoco.config import Config
from geoco.data import ClipBatch
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.models.build import build
from geoco.training import diagnostics
from geoco.training.curriculum import TERMS
from geoco.training.geoco_objective import GeoCoObjective
from geoco.training.launch import Machine, _launch_fabric, start_training
from geoco.training.metrics_log import read_metrics
from geoco.training.run_folder import Run, StartWeights
from geoco.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
GOLDEN = Path(__file__).parent / "golden_curve.json"
TRAINED = [
    path.stem
    for path in sorted(CONFIGS.glob("*.yaml"))
    if path.stem
    not in (
        "solids",
        "solids-video",
        "solids-textured",
        "obj3d",
        "movi-c",
        "movi-like",
        "folder",
        "geoco-movi-c",
        "geoco-movi-like",
        "geoco-movi-like-ahead",
        "geoco-movi-like-features",
        "statm-movi-c",
        "statm-movi-like",
        "staitus-movi-c",
        "staitus-movi-like",
    )
]

# Filters that let a network without training through, so that every term has work to do.
LOOSE = [
    "train.quality.fewest_pixels=1",
    "train.quality.least_peak=0.0",
    "train.quality.largest_scale=2.0",
    "train.quality.deviations=0.0",
    "train.quality.most_tokens=1.0",
    "train.quality.most_overlap=1.0",
    "train.quality.scale_ratio=[0.01,100.0]",
    "model.selector.least_area=1",
    "model.selector.least_peak=0.0",
]
TINY_OVERRIDES = [
    *LOOSE,
    "data.episodes={train: 6, val: 2, test: 1}",
    "data.frames=6",
    "data.supersample=1",
    "data.height=16",
    "data.width=16",
    "model.encoder.width=8",
    "model.slots={count: 4, dim: 8, update_dim: 16, grid_dim: 16}",
    "model.decoder.broadcast=4",
    "model.decoder.layers=[[8,5],[16,3]]",
    "train.budget=0.00043",  # 30 steps
    "train.batch=4",
    "train.precision=32-true",
    "train.feed=resident",
    "train.log_every=3",
    "train.validation=4",
    "train.checkpoint_every=4",
    "train.validate_every=10",
    "train.picture_every=15",
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """So small a model gains nothing from threads, and on a busy machine loses much."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


COLUMNS = (*(term for term in TERMS if term != "own"), "total", "selector", "gradient_norm")
TIGHT = (
    "train.ema=0.8",
    "train.muon_learning_rate=1e-3",
    "train.phases=[{name: all, terms: [rec, ov, pos, geo, gate, tail, own]}]",
)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def load_tiny_config(*overrides: str) -> Config:
    return config.load(CONFIGS / "geoco.yaml", [*TINY_OVERRIDES, *overrides])


def go(
    settings: Config | None,
    folder: Path,
    minutes: float | None = None,
    origin: Path | None = None,
    weights: str | None = None,
) -> None:
    console = Console(quiet=True)
    start_training(settings, folder, Machine("cpu"), minutes, console, origin, weights=weights)


def final(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoints.read_weights(folder).tensors


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    go(load_tiny_config(), folder)
    return folder


# -- the curve -------------------------------------------------------------------------------------


def test_golden_curve(whole: Path) -> None:
    """Thirty steps through every phase. A change that is meant to keep numbers must keep these.

    `GEOCO_GOLDEN=1 pytest tests/training/test_trainer.py -k golden` writes them anew.
    """
    metrics = read_metrics(whole / "metrics.csv")
    kept = {name: metrics[name] for name in ("step", *COLUMNS)}
    if os.environ.get("GEOCO_GOLDEN"):
        GOLDEN.write_text(json.dumps(kept, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert kept["step"] == golden["step"] == list(range(3, 31, 3))
    for name in COLUMNS:
        assert kept[name] == pytest.approx(golden[name], rel=2e-3, abs=1e-7), name
    assert all(any(golden[name]) for name in COLUMNS)  # every term was at work


def test_a_run_explains_itself(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert names == {
        "README.md", "config.yaml", "environment.json", "metrics.csv", "pace.csv", "validation.csv",
        "gradients.csv", "curves.png", "tensorboard", "pictures", "checkpoints",
    }  # fmt: skip
    assert Run.open(whole).config == load_tiny_config()
    assert {p.name for p in (whole / "pictures").iterdir()} == {
        "step-00000015.png",
        "step-00000030.png",
    }
    gradients = read_metrics(whole / "gradients.csv")
    assert gradients["step"] == [0, 15]
    assert gradients["rec/decoder"][0] > 0
    assert gradients["pos/decoder"][0] != gradients["pos/decoder"][0]  # not yet active: nan
    assert gradients["pos/decoder"][1] > 0
    kept = sorted(path.name for path in (whole / "checkpoints").glob("step-*"))
    assert "step-00000030" in kept
    assert len(kept) <= 3


def test_a_recorded_step_reads_what_is_given_now(tmp_path: Path) -> None:
    """Recorded steps look at fixed buffers: filling them must bring every input there."""
    run = trainer(tmp_path / "run", load_tiny_config())
    places = []
    for step in (0, 1):
        given = run._open_feed(1)(step), run._sample_draws(step, 1)
        run.stepper._fill_inputs(*given)
        assert run.stepper._inputs is not None
        for kept, part in zip(run.stepper._inputs, given, strict=True):
            tensors = part.tensors() if isinstance(part, ClipBatch) else vars(part)
            for name, value in tensors.items():
                assert torch.equal(getattr(kept, name), value), name
                places.append((step, name, getattr(kept, name).data_ptr()))
    assert [place[1:] for place in places if place[0] == 0] == [
        place[1:] for place in places if place[0] == 1
    ]
    run.close()


# -- interruption ----------------------------------------------------------------------------------


def same(one: Path, other: Path) -> None:
    first, second = final(one), final(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in ("metrics.csv", "validation.csv", "gradients.csv"):
        assert (one / name).read_text() == (other / name).read_text(), name
    state, again = checkpoints.read_state(one), checkpoints.read_state(other)
    assert all(torch.equal(state.tensors[name], again.tensors[name]) for name in state.tensors)


def test_pieces_make_the_same_whole(whole: Path, tmp_path: Path) -> None:
    """Stopped after every few steps and resumed: bit for bit what an uninterrupted run gives."""
    folder = tmp_path / "run"
    go(load_tiny_config(), folder, minutes=0)
    pieces = 1
    while checkpoints.read_weights(folder).step < 30:
        go(None, folder, minutes=0.01)
        pieces += 1
    assert pieces > 2
    same(whole, folder)


def test_pieces_with_muon_averages_and_own(tmp_path: Path) -> None:
    """What the paper does not have resumes as exactly as what it has."""
    settings = load_tiny_config(*TIGHT)
    go(settings, tmp_path / "whole")
    go(settings, tmp_path / "pieces", minutes=0)
    while checkpoints.read_weights(tmp_path / "pieces").step < 30:
        go(None, tmp_path / "pieces", minutes=0.01)
    same(tmp_path / "whole", tmp_path / "pieces")
    assert all(value > 0 for value in read_metrics(tmp_path / "whole" / "metrics.csv")["own"])


def test_what_is_used_of_a_run_are_its_averages(tmp_path: Path) -> None:
    """By hand from the weights after every step; the last ones are where training goes on."""
    decay, steps = 0.8, 5
    options = (
        f"train.steps={steps}", "train.budget=1", "train.warmup=0", "train.learning_rate=1e-2",
        "train.checkpoint_every=1", "train.keep=9",
    )  # fmt: skip
    schedule = (*options, TIGHT[2])
    go(load_tiny_config(*schedule), tmp_path / "live")
    go(load_tiny_config(*schedule, f"train.ema={decay}"), tmp_path / "averaged")
    live = [
        checkpoints.read_weights(tmp_path / "live" / "checkpoints" / f"step-{step:08d}").tensors
        for step in range(1, steps + 1)
    ]
    used = final(tmp_path / "averaged")
    state = checkpoints.read_state(checkpoints.find_latest(tmp_path / "averaged/checkpoints"))
    torch.manual_seed(load_tiny_config().train.seed)
    model = build(load_tiny_config().model)
    for name, parameter in model.named_parameters():
        average = parameter.detach().clone()
        for weights in live:
            average = decay * average + (1 - decay) * weights[name]
        torch.testing.assert_close(used[name], average)
        assert torch.equal(state.tensors[f"live/{name}"], live[-1][name]), name
    # The model that validation saw is the one of the checkpoint.
    assert (tmp_path / "live" / "validation.csv").read_text() != (
        tmp_path / "averaged" / "validation.csv"
    ).read_text()


def test_muon_trains_encoder_and_decoder(tmp_path: Path) -> None:
    """Their matrices move by rates of equal size; slot attention is left to AdamW."""
    run = trainer(tmp_path / "run", load_tiny_config(*TIGHT))
    assert run.stepper.muon is not None
    named = {id(parameter): name for name, parameter in run.model.named_parameters()}
    by_muon = {named[id(p)] for p in run.stepper.muon.param_groups[0]["params"]}
    by_adamw = {named[id(p)] for g in run.stepper.optimizer.param_groups for p in g["params"]}
    assert {name.split(".")[0] for name in by_muon} == {"encoder", "decoder"}
    assert "decoder.refine.0.weight" in by_muon
    assert not by_muon & by_adamw
    rest = {name for name in named.values() if not name.startswith("selector.")}
    assert by_muon | by_adamw == rest
    run.close()


# A process that is killed closes no files either.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_killed_again_and_again(whole: Path, tmp_path: Path) -> None:
    """Before its first operation on files, then before the second one since it went on, and so on.

    So a kill comes before, within and after everything that a run writes.
    """
    folder = tmp_path / "run"
    for number in itertools.count():
        is_run = (folder / "config.yaml").exists()
        if survives(number, partial(go, None if is_run else load_tiny_config(), folder)):
            break
    assert number > 25
    same(whole, folder)


@pytest.mark.slow
def test_killed_by_the_system_at_random_moments(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = tmp_path / "tiny.yaml"
    settings.write_text(load_tiny_config().to_yaml())
    begin = ["train", str(settings), "--out", str(folder), "--accelerator", "cpu"]
    again = ["train", "--resume", str(folder), "--accelerator", "cpu"]
    chance = random.Random(4)
    kills = 0
    for _ in range(40):
        command = [sys.executable, "-m", "geoco.cli"]
        command += again if (folder / "config.yaml").exists() else begin
        process = subprocess.Popen(
            command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if kills < 3:
            # Not before it is at work, and then at any instant.
            waited = time.monotonic()
            before = sum(1 for _ in folder.glob("checkpoints/step-*"))
            while process.poll() is None and time.monotonic() - waited < 60:
                if sum(1 for _ in folder.glob("checkpoints/step-*")) > min(before, 1):
                    break
                time.sleep(0.02)
            time.sleep(chance.uniform(0, 1.0))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        _, errors = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors.decode()
    assert process.returncode == 0
    assert kills > 0
    same(whole, folder)


# -- branching -------------------------------------------------------------------------------------


def test_a_branch_begins_where_its_origin_was(whole: Path, tmp_path: Path) -> None:
    """By the same configuration it ends as the origin did; by another one it does not."""
    first = tmp_path / "first"
    go(load_tiny_config(), first, minutes=0)
    while (began := checkpoints.read_weights(first).step) < 6:
        go(None, first, minutes=0)
    assert began < 30
    go(load_tiny_config(), tmp_path / "same", origin=first)
    ends = [checkpoints.read_weights(folder) for folder in (whole, tmp_path / "same")]
    assert ends[0].step == ends[1].step == 30
    assert all(torch.equal(ends[1].tensors[name], value) for name, value in ends[0].tensors.items())
    # It took over what had been logged, and what it did itself was the same; only time is its own.
    for log in ("metrics.csv", "validation.csv", "gradients.csv"):
        assert (tmp_path / "same" / log).read_bytes() == (whole / log).read_bytes()
    before, after = ((folder / "pace.csv").read_text() for folder in (first, tmp_path / "same"))
    assert before.count("\n") > 1
    assert after.startswith(before)
    assert len(after) > len(before)
    other = load_tiny_config("train.weights.rec=2.0")
    go(other, tmp_path / "other", origin=first)
    last = checkpoints.read_weights(tmp_path / "other")
    assert last.config.train.weights.rec == 2
    assert any(not torch.equal(last.tensors[n], value) for n, value in ends[0].tensors.items())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((), "it is at step 30, and this schedule ends at 30"),
        (("train.budget=0.001", "model.encoder.width=16"), "these are weights of another model"),
        (("train.budget=0.001", "train.ema=0.9"), "its train.ema is None, here it is 0.9"),
    ],
)
def test_a_branch_that_cannot_be(
    whole: Path, tmp_path: Path, changes: tuple[str, ...], said: str
) -> None:
    with pytest.raises(GeocoError, match=said):
        go(load_tiny_config(*changes), tmp_path / "branch", origin=whole)
    assert not (tmp_path / "branch").exists()


def test_weights_alone_are_no_beginning(whole: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    last = checkpoints.find_latest(whole / "checkpoints")
    assert last is not None
    shutil.copy(last / "weights.safetensors", alone)
    with pytest.raises(GeocoError, match="weights alone can be used"):
        go(load_tiny_config("train.budget=0.001"), tmp_path / "branch", origin=alone)
    assert not (tmp_path / "branch").exists()


# -- beginning with weights ------------------------------------------------------------------------


@pytest.mark.parametrize("ema", [None, 0.8])
def test_a_training_begins_with_a_models_weights(
    whole: Path, tmp_path: Path, ema: float | None
) -> None:
    """At its own step 0, with averages of these weights; stopped at once, it goes on the same."""
    short = ("train.budget=0.0001", "train.seed=5")  # 7 steps
    other = load_tiny_config(*short, f"train.ema={'null' if ema is None else ema}")
    run = tmp_path / "run"
    go(other, run, minutes=0, weights=str(whole))
    began = checkpoints.read_weights(run / "checkpoints" / "step-00000000")
    assert began.step == 0
    assert began.config == other
    trained = final(whole)
    assert all(torch.equal(began.tensors[name], value) for name, value in trained.items())
    moved = checkpoints.read_weights(run)
    assert 0 < moved.step < 7
    for name, value in trained.items():  # a few steps of AdamW, or their average with the weights
        if name.endswith("weight"):
            assert (moved.tensors[name] - value).abs().max() < 1e-2, name
    origins = json.loads((run / "environment.json").read_text())["began"]
    differs = ["train.budget", *([] if ema is None else ["train.ema"]), "train.seed"]
    assert [{**each, "differs": sorted(each["differs"])} for each in origins] == [
        {"step": 0, "weights": "run", "trained": 30, "differs": differs}
    ]
    while checkpoints.read_weights(run).step < 7:
        go(None, run, minutes=0)
    go(other, tmp_path / "once", weights=str(whole))
    same(tmp_path / "once", run)
    go(other, tmp_path / "from nothing")
    elsewhere = final(tmp_path / "from nothing")
    assert any(not torch.equal(elsewhere[name], value) for name, value in final(run).items())


def test_a_killed_beginning_keeps_its_weights(whole: Path, tmp_path: Path) -> None:
    """A run that was killed before its first step goes on with them, not with random ones."""
    run = Run.create(
        tmp_path / "run",
        load_tiny_config(),
        start=StartWeights("run", load_tiny_config(), 30, final(whole)),
    )
    trainer = Trainer(run, _launch_fabric(Machine("cpu"), "32-true"), Console(quiet=True))
    assert trainer.step == 0
    own = trainer.model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in final(whole).items())
    trainer.close()


def test_weights_of_another_model_are_no_beginning(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match="these are weights of another model"):
        go(load_tiny_config("model.encoder.width=16"), tmp_path / "run", weights=str(whole))
    with pytest.raises(GeocoError, match="there is no such model"):
        go(load_tiny_config(), tmp_path / "run", weights="geoco-nothing")
    assert not (tmp_path / "run").exists()


# -- division --------------------------------------------------------------------------------------


def train_two(settings: Config, folder: Path) -> None:
    path = folder.with_suffix(".yaml")
    path.write_text(settings.to_yaml())
    command = [sys.executable, "-m", "geoco.cli", "train", str(path), "--out", str(folder)]
    command += ["--accelerator", "cpu", "--devices", "2"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr


def test_two_processes_give_the_curve_of_one(whole: Path, tmp_path: Path) -> None:
    """Donors, confidences and normalisers are global, random numbers follow the sample."""
    train_two(load_tiny_config(), tmp_path / "run")
    one, two = read_metrics(whole / "metrics.csv"), read_metrics(tmp_path / "run" / "metrics.csv")
    for name in one:
        assert two[name] == pytest.approx(one[name], rel=2e-3, abs=1e-7), name


def test_two_processes_share_own_recentering_muon_and_averages(tmp_path: Path) -> None:
    """What the paper does not have is divided as exactly as what it has."""
    options = [*TINY_OVERRIDES, "train.ema=0.8", "train.budget=0.0003"]  # 21 steps, all phases
    settings = config.load(CONFIGS / "geoco-tight.yaml", options)
    go(settings, tmp_path / "one")
    train_two(settings, tmp_path / "two")
    one, two = (read_metrics(tmp_path / name / "metrics.csv") for name in ("one", "two"))
    for name in one:
        assert two[name] == pytest.approx(one[name], rel=2e-3, abs=1e-7), name
    assert all(any(one[name]) for name in (*COLUMNS, "own"))  # every term was at work
    weights, shared = final(tmp_path / "one"), final(tmp_path / "two")
    # Sums are rounded otherwise, and Muon gives the smallest singular values what it gives others.
    # The bias of alpha changes no picture: its gradient is nothing but rounding, and is left out.
    del weights["decoder.alpha.bias"]
    for name, value in weights.items():
        assert (shared[name] - value).norm() < 5e-4 * value.norm() + 1e-5, name


def test_the_first_process_says_when_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stopped by its own clock would leave the others waiting."""
    from lightning.fabric import Fabric

    one = trainer(tmp_path / "run", load_tiny_config())
    past, future = time.monotonic() - 1, time.monotonic() + 1000
    assert [one._is_time_up(until) for until in (None, past, future)] == [False, True, False]
    monkeypatch.setattr(Fabric, "world_size", 2)
    for said in (True, False):
        monkeypatch.setattr(Fabric, "broadcast", lambda self, own, said=said: said)
        assert [one._is_time_up(until) for until in (past, future)] == [said, said]
    one.close()


# -- what goes wrong -------------------------------------------------------------------------------


def trainer(folder: Path, settings: Config) -> Trainer:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision="32-true")
    return Trainer(Run.create(folder, settings), fabric, Console(quiet=True))


def test_a_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the step and the term, and the state before it: not a wasted night."""
    real: Callable[..., object] = GeoCoObjective.compute
    calls = []

    def spoil_loss(*arguments: object, **options: object) -> object:
        calls.append(1)
        result = real(*arguments, **options)
        if len(calls) < 6:
            return result
        by_name = {**result.by_name, "ov": result.by_name["ov"] * torch.nan}  # type: ignore[attr-defined]
        total, live = result.total * torch.nan, result.live * torch.nan  # type: ignore[attr-defined]
        return replace(result, by_name=by_name, total=total, live=live)  # type: ignore[type-var]

    # Without pictures: those look at the objective as well.
    quiet = ["train.picture_every=1000", "train.checkpoint_every=1000", "train.validate_every=1000"]
    good = trainer(tmp_path / "good", load_tiny_config(*quiet))
    for _ in range(5):
        good._advance()
    good.close()
    monkeypatch.setattr(GeoCoObjective, "compute", spoil_loss)
    run = trainer(tmp_path / "run", load_tiny_config(*quiet, "train.log_every=9"))
    assert run.logs is not None
    nothing = dict.fromkeys(run.logs.gradients.columns, 0.0)
    monkeypatch.setattr(diagnostics, "measure_gradient_norms", lambda *_: nothing)
    with pytest.raises(GeocoError, match=r"step 5: ov, total, gradient_norm not finite; .*failed"):
        run.train()
    saved = checkpoints.read_weights(tmp_path / "run" / "failed")
    assert saved.step == 5
    state = checkpoints.read_state(tmp_path / "run" / "failed").tensors
    assert all(torch.isfinite(value).all() for value in state.values())
    expected = good.model.state_dict()
    for name, value in saved.tensors.items():
        if not name.endswith(("reference_scale", "cap")):  # which belong to the step
            assert torch.equal(value, expected[name]), name


def test_another_models_checkpoint_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    other = load_tiny_config("model.slots.count=5")
    (folder / "config.yaml").write_text(other.to_yaml())
    with pytest.raises(GeocoError, match=r"attention\.appearance"):
        go(None, folder)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine("gpu"), "--accelerator gpu: expected one of auto, cpu, cuda"),
        (Machine("cuda"), "--accelerator cuda: PyTorch finds no CUDA device here; use cpu"),
    ],
)
def test_impossible_machines(tmp_path: Path, machine: Machine, message: str) -> None:
    if machine.accelerator == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(GeocoError, match=message):
        start_training(load_tiny_config(), tmp_path / "run", machine, None, Console(quiet=True))
    assert not (tmp_path / "run").exists()


# -- every shipped configuration -------------------------------------------------------------------

SMALL = [
    *LOOSE,
    "data.kind=solids",
    "data.episodes={train: 3, val: 2, test: 1}",
    "data.frames=6",
    "data.supersample=1",
    "data.height=16",
    "data.width=16",
    "train.budget=0.0002",
    "train.batch=2",
    "train.feed=stream",
    "train.validation=2",
    "train.log_every=1",
    "train.picture_every=10",
]


@pytest.mark.parametrize("name", TRAINED)
def test_shipped_configurations_train_through_all_phases(name: str, tmp_path: Path) -> None:
    layers = "[[8,5],[16,3],[16,3],[16,3],[16,3]]"
    changes = [*SMALL, "model.decoder.broadcast=4", f"model.decoder.layers={layers}"]
    if name != "geoco":  # one in half precision, which a CPU is slow at
        changes.append("train.precision=32-true")
    if config.load(CONFIGS / f"{name}.yaml").model.kind != "geoco":
        changes = [change for change in changes if not change.startswith("model.selector")]
    settings = config.load(CONFIGS / f"{name}.yaml", changes)
    go(settings, tmp_path / "run")
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    weights = settings.train.weights
    planned = {term for phase in settings.train.phases for term in phase.terms}
    for term in ("rec", "ov", "pos", "geo", "tail"):
        # A term that is active may find nobody to look at; one that is not must say nothing.
        active = getattr(weights, term) > 0 and term in planned
        assert active or not any(metrics.get(term, ())), term
    assert metrics["rec"][-1] > 0
    assert len(metrics["step"]) == round(settings.train.steps * settings.train.budget)
    if settings.model.kind == "geoco":
        assert settings.model.selector.enabled or not any(metrics["selector"])


def test_the_movi_configuration_trains_through_all_phases(tmp_path: Path) -> None:
    """And the run lives on where the folder of its encoder is gone."""
    write_dino(tmp_path / "dino", width=24, depth=1, heads=2)
    changes = [
        *SMALL,
        "train.quality.least_compactness=0.0",
        "train.quality.fewest_coherent_tokens=0.0",
        "train.quality.least_agreement=0.0",
        "train.quality.position_coverage=1.0",
        "train.budget=0.0001",
        "train.precision=32-true",
        f"model.encoder.weights={tmp_path / 'dino'}",
        "model.encoder.backbone={width: 24, depth: 1, heads: 2}",
        "model.decoder.broadcast=8",
        "model.decoder.layers=[[8,5],[16,3],[16,3]]",
    ]
    settings = config.load(CONFIGS / "geoco-movi-c.yaml", changes)
    go(settings, tmp_path / "run", minutes=0)
    shutil.rmtree(tmp_path / "dino")
    go(None, tmp_path / "run")
    loaded = pretrained.load(tmp_path / "run")
    assert loaded.config == settings
    tokens = loaded.model.encoder(torch.rand(1, 3, 16, 16))
    assert tokens.isfinite().all()
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    assert all(any(metrics[term]) for term in ("rec", "ov"))
    moved = checkpoints.read_weights(tmp_path / "run").tensors
    assert moved["temporal.residual.weight"].abs().max() > 0  # the initializer learned something


def test_a_training_state_is_small(tmp_path: Path) -> None:
    """At most 12 MB for the whole Obj3D model, so that a run can travel between machines."""
    changes = ["data.episodes={train: 1, val: 1, test: 1}", "data.frames=4", "data.supersample=1"]
    changes += ["train.budget=1e-5", "train.batch=2", "train.validation=1", "train.feed=stream"]
    changes += ["train.picture_every=100000", "train.precision=32-true"]
    go(config.load(CONFIGS / "geoco.yaml", changes), tmp_path / "run")
    file = checkpoints.find_latest(tmp_path / "run" / "checkpoints")
    assert file is not None
    assert (file / checkpoints.STATE).stat().st_size < 12e6
    assert (file / checkpoints.WEIGHTS).stat().st_size < 3e6
