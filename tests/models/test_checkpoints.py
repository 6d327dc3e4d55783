"""Checkpoints: what is saved comes back bit for bit, after any kill, and misuse is named."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import safetensors
import torch
from helpers_faults import fill_disk, survives
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from geoco.config import Config, ModelConfig, SlotsConfig
from geoco.errors import GeocoError
from geoco.models import checkpoints

ROOT = Path(__file__).parents[2]
CONFIG = Config()


def make_tensors(number: int, size: int = 50) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {
        "encoder.weight": torch.randn(size, 7, generator=generator),
        "step": torch.tensor(number),
        "mask": torch.rand(5, generator=generator) > 0.5,
        "half": torch.randn(3, 3, generator=generator).bfloat16(),
    }


def save(folder: Path, step: int, config: Config = CONFIG, size: int = 50, seed: int = 0) -> Path:
    weights, state = make_tensors(step + seed, size), make_tensors(step + seed + 10_000, size)
    return checkpoints.save(folder, step, config, weights, state, {"elapsed": f"{step} s"})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype, name
        assert actual[name].shape == tensor.shape, name
        bits = [
            value.contiguous().reshape(-1).view(torch.uint8) for value in (actual[name], tensor)
        ]
        assert torch.equal(*bits), name


def assert_whole(path: Path, step: int, size: int = 50, seed: int = 0) -> None:
    weights, state = checkpoints.read_weights(path), checkpoints.read_state(path)
    assert (weights.step, state.step) == (step, step)
    assert_equal(weights.tensors, make_tensors(step + seed, size))
    assert_equal(state.tensors, make_tensors(step + seed + 10_000, size))


# -- what is saved comes back ----------------------------------------------------------------------


def test_round_trip_is_exact(tmp_path: Path) -> None:
    awkward = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 1 / 3])
    base = torch.randn(4, 6, 8, 10)
    weights = {
        "float32": awkward,
        "float64": awkward.double(),
        "bfloat16": awkward.bfloat16(),
        "int64": torch.tensor([2**62, -1]),
        "bool": torch.tensor([True, False, True]),
        "uint8": torch.arange(256, dtype=torch.uint8),
        "number": torch.tensor(1 / 3),
        "flag": torch.tensor(True),
        "empty": torch.zeros(0, 3),
        "transposed": base[0, 0].t(),
        "channels_last": base.to(memory_format=torch.channels_last),
        "strided": base[:, ::2, 1:, ::3],
        "expanded": torch.randn(1, 3).expand(5, 3),
        "one": torch.randn(9, 1, 1, 1).to(memory_format=torch.channels_last),
        "parameter": nn.Parameter(torch.randn(3)),
        "shared": base,
        "part of shared": base[1],
    }
    expected = {name: tensor.detach().clone() for name, tensor in weights.items()}
    config = Config(model=ModelConfig(slots=SlotsConfig(count=4)))
    extra = {"note": "Zürich: \n'quoted'", "empty": ""}
    path = checkpoints.save(tmp_path, 1000, config, weights, {"rng": torch.get_rng_state()}, extra)
    assert path == tmp_path / "step-00001000"
    assert names(path) == ["state.safetensors", "weights.safetensors"]
    actual = checkpoints.read_weights(path)
    assert_equal(actual.tensors, expected)
    assert all(tensor.is_contiguous() for tensor in actual.tensors.values())
    assert (actual.path, actual.config) == (path / "weights.safetensors", config)
    assert (actual.step, actual.extra) == (1000, extra)
    state = checkpoints.read_state(path)
    assert_equal(state.tensors, {"rng": torch.get_rng_state()})
    assert (state.path, state.step, state.extra) == (path / "state.safetensors", 1000, extra)


def test_the_files_are_plain_safetensors_that_all_may_read(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    assert_equal(load_file(path / "weights.safetensors"), make_tensors(5))
    with safetensors.safe_open(path / "weights.safetensors", framework="pt") as file:
        header = json.loads(file.metadata()["geoco"])
    assert header["format"] == checkpoints.FORMAT == 1
    assert header["step"] == 5
    assert header["config"] == CONFIG.to_yaml()
    mask = os.umask(0)
    os.umask(mask)
    assert (path / "weights.safetensors").stat().st_mode & 0o777 == 0o666 & ~mask


def test_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    one, other = save(tmp_path / "one", 3), save(tmp_path / "other", 3)
    for name in ("weights.safetensors", "state.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_what_was_read_does_not_depend_on_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    weights = checkpoints.read_weights(path)
    with (path / "weights.safetensors").open("r+b") as file:
        file.write(b"\0" * (path / "weights.safetensors").stat().st_size)
    assert_equal(weights.tensors, make_tensors(5))


def test_a_path_may_be_a_run_a_folder_a_checkpoint_or_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    for step in (900, 1000, 123_456_789):  # in the order of numbers, and not of letters
        path = save(folder, step)
    checkpoints.mark_best(folder, 900, 0.5)
    assert checkpoints.find_latest(folder) == path
    for place in (tmp_path / "run", folder, path, path / "weights.safetensors"):
        assert_whole(place, 123_456_789)
    assert_whole(folder / "step-00000900", 900)
    assert_whole(folder / "step-00000900" / "state.safetensors", 900)


def test_weights_alone_are_enough_to_use_them(tmp_path: Path) -> None:
    file = shutil.copy(save(tmp_path, 7) / "weights.safetensors", tmp_path / "mine.safetensors")
    assert_equal(checkpoints.read_weights(Path(file)).tensors, make_tensors(7))
    with pytest.raises(
        GeocoError, match=r"state.safetensors: there is no such file: weights alone"
    ):
        checkpoints.read_state(Path(file))


# -- a folder of checkpoints -----------------------------------------------------------------------


def test_a_branch_is_the_checkpoint_under_another_configuration(tmp_path: Path) -> None:
    origin = save(tmp_path / "one", 7)
    other = Config(model=ModelConfig(slots=SlotsConfig(count=3)))
    path = checkpoints.branch(tmp_path / "one", tmp_path / "two", other)
    assert names(tmp_path / "two") == [path.name] == [origin.name]
    weights, own = checkpoints.read_weights(path), checkpoints.read_weights(origin)
    assert weights.config == other != own.config
    assert_equal(weights.tensors, own.tensors)
    assert weights.step == own.step == checkpoints.read_state(path).step == 7
    assert_equal(checkpoints.read_state(path).tensors, checkpoints.read_state(origin).tensors)


def test_latest_ignores_unfinished_ones(tmp_path: Path) -> None:
    assert checkpoints.find_latest(tmp_path) is None
    assert checkpoints.find_latest(tmp_path / "nothing") is None
    path = save(tmp_path, 1)
    shutil.copytree(path, tmp_path / "step-00000002.partial")
    (tmp_path / "step-00000003").mkdir()
    shutil.copytree(path, tmp_path / "step-00000004")
    (tmp_path / "step-00000004" / "state.safetensors").unlink()
    (tmp_path / "step-abc").mkdir()
    assert checkpoints.find_latest(tmp_path) == path
    save(tmp_path, 5)
    assert not (tmp_path / "step-00000002.partial").exists()


def test_prune_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        save(tmp_path, step)
    checkpoints.prune(tmp_path, keep=9)
    assert len(names(tmp_path)) == 5
    checkpoints.mark_best(tmp_path, 10, 0.25)
    assert checkpoints.find_best(tmp_path) == checkpoints.BestCheckpoint(
        tmp_path / "step-00000010", 10, 0.25
    )
    checkpoints.prune(tmp_path, keep=2)
    assert names(tmp_path) == ["best.json", "step-00000010", "step-00000040", "step-00000050"]
    checkpoints.mark_best(tmp_path, 50, 0.125)
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 50, "value": 0.125}
    checkpoints.prune(tmp_path, keep=1)
    assert names(tmp_path) == ["best.json", "step-00000050"]
    assert_whole(tmp_path, 50)


def test_best_must_be_there(tmp_path: Path) -> None:
    assert checkpoints.find_best(tmp_path) is None
    with pytest.raises(GeocoError, match=r"step-00000010: only a saved checkpoint can be the best"):
        checkpoints.mark_best(tmp_path, 10, 0.25)
    (tmp_path / "best.json").write_text('{"step": 1')
    with pytest.raises(GeocoError, match=r'best.json: damaged, expected \{"step": .* delete it'):
        checkpoints.find_best(tmp_path)


def test_overwriting(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 1, seed=5)
    assert names(tmp_path) == ["step-00000001"]
    assert_whole(tmp_path, 1, seed=5)


def test_killed_between_the_two_renames_of_overwriting(tmp_path: Path) -> None:
    save(tmp_path, 1)
    replaced = save(tmp_path, 2).rename(tmp_path / "step-00000002.replaced")
    assert checkpoints.find_latest(tmp_path) == replaced
    assert_whole(tmp_path, 2)
    checkpoints.sweep(tmp_path)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert_whole(tmp_path, 2)


# -- full disks and kills --------------------------------------------------------------------------


def fill(folder: Path, step: int, size: int = 50) -> None:
    """What training does around a checkpoint, but it writes it twice and calls it the best."""
    for _ in range(2):
        save(folder, step, size=size)
    checkpoints.mark_best(folder, step, 1 / (step + 1))
    checkpoints.prune(folder, keep=2)


def assert_survived(folder: Path, least: int, size: int = 50) -> int:
    """All that counts is whole, and nothing that was finished is lost; returns the last step."""
    path = checkpoints.find_latest(folder)
    assert path is not None
    last = int(path.name[5:13])
    assert last >= least
    assert_whole(path, last, size)
    best = checkpoints.find_best(folder)
    assert best is not None
    assert_whole(best.path, best.step, size)
    return last


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A folder of checkpoints in the middle of a training: steps 2 to 4, the best of them 3."""
    folder = tmp_path / "template"
    for step in (2, 3, 4):
        save(folder, step)
    checkpoints.mark_best(folder, 3, 0.25)
    return folder


def test_killed_before_any_operation(tmp_path: Path, template: Path) -> None:
    """Before each open, write, sync, rename and deletion, and in the middle of each write."""
    folder = tmp_path / "checkpoints"
    for number in itertools.count():
        shutil.copytree(template, folder)
        finished = survives(number, partial(fill, folder, 6))
        last = assert_survived(folder, 4)
        # Killed again while it recovers, which it does on the next saving.
        if not finished:
            survives(number % 7, partial(fill, folder, 6))
            assert_survived(folder, last)
        save(folder, 7)  # and what is left behind is in nobody's way
        checkpoints.mark_best(folder, 7, 0.0)
        checkpoints.prune(folder, keep=1)
        assert names(folder) == ["best.json", "step-00000007"]
        assert_whole(folder, 7)
        shutil.rmtree(folder)
        if finished:
            break
    assert last == 6
    assert number > 30


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    """There is none, or a whole one; never a file that cannot be read."""
    for number in itertools.count():
        folder = tmp_path / str(number)
        finished = survives(number, partial(save, folder, 1))
        if checkpoints.find_latest(folder) is not None:
            assert_whole(folder, 1)
        else:
            assert not finished
        save(folder, 1, seed=5)
        assert names(folder) == ["step-00000001"]
        assert_whole(folder, 1, seed=5)
        if finished:
            break
    assert number > 8


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_is_one_sentence_and_loses_nothing(
    tmp_path: Path, template: Path, lasting: bool
) -> None:
    """Whichever operation it stops, and whether or not there is room again right after it."""
    for number in itertools.count():
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        finished, message = fill_disk(number, partial(save, folder, 4, seed=5), lasting)
        refused = "step-00000004: cannot write this checkpoint: No space left" in message
        assert refused or not message
        assert "\n" not in message
        path = checkpoints.find_latest(folder)
        assert path is not None
        # Once the new one is in its place, only what is left of the old one can be in the way.
        replaced = checkpoints.read_weights(path).tensors["step"] == 9
        assert replaced or refused
        assert_whole(path, 4, seed=5 if replaced else 0)
        assert_whole(folder / "step-00000003", 3)
        save(folder, 5)
        checkpoints.prune(folder, keep=1)
        assert names(folder) == ["best.json", "step-00000003", "step-00000005"]
        if finished:
            break
    assert number > 8


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_leaves_the_mark_of_the_best(
    tmp_path: Path, template: Path, lasting: bool
) -> None:
    for number in itertools.count():
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        mark = partial(checkpoints.mark_best, folder, 4, 0.5)
        finished, message = fill_disk(number, mark, lasting)
        assert "best.json: cannot write this file: No space left" in message or not message
        best = checkpoints.find_best(folder)
        assert best is not None
        assert best.step in ((3, 4) if message else (4,))
        mark()
        assert checkpoints.find_best(folder) == checkpoints.BestCheckpoint(
            folder / "step-00000004", 4, 0.5
        )
        if finished:
            break
    assert number > 4


KILLER = """
import sys
from pathlib import Path
sys.path[:0] = ["tests", "tests/models"]
import torch
import test_checkpoints
torch.set_num_threads(1)
folder, size = Path(sys.argv[1]), int(sys.argv[2])
test_checkpoints.fill(folder, 1, size)
print("ready", flush=True)
for step in range(2, 1_000_000):
    test_checkpoints.fill(folder, step, size)
"""


@pytest.mark.slow
def test_killed_by_the_system(tmp_path: Path) -> None:
    """A real kill, by a signal, wherever that finds the process; once it was at work."""
    size = 40_000  # so that writing the files takes most of the time
    command = [sys.executable, "-c", KILLER, str(tmp_path), str(size)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while checkpoints.find_latest(tmp_path).name == "step-00000001":  # type: ignore[union-attr]
            assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL
    last = assert_survived(tmp_path, 2, size)
    save(tmp_path, last + 1, size=size)
    assert_whole(tmp_path, last + 1, size)


# -- what is refused -------------------------------------------------------------------------------


def change_header(file: Path, **changes: object) -> None:
    with safetensors.safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["geoco"])
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    save_file(tensors, file, {"geoco": json.dumps({**header, **changes})})


def flip_last_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


BAD_FILES = {
    "missing": (Path.unlink, "there is no finished checkpoint here: give a run that has saved one"),
    "empty": (lambda file: file.write_bytes(b""), "not a safetensors file, or one that was cut"),
    "cut short": (lambda file: os.truncate(file, 900), "not a safetensors file, or one that was"),
    "one byte less": (
        lambda file: os.truncate(file, file.stat().st_size - 1),
        "not a safetensors file, or one that was cut short: expected the weights.safetensors of a",
    ),
    "pickle": (lambda file: torch.save({}, file), "not a safetensors file, or one that was cut"),
    "not ours": (
        lambda file: save_file(make_tensors(0), file),
        "a safetensors file, but not a checkpoint of geoco-savi: its header has no 'geoco'",
    ),
    "another library's": (
        lambda file: save_file(make_tensors(0), file, {"format": "pt"}),
        "a safetensors file, but not a checkpoint of geoco-savi: its header has no 'geoco'",
    ),
    "newer": (
        lambda file: change_header(file, format=2),
        "a checkpoint of format 2, but this version of geoco-savi reads format 1: install the",
    ),
    "other step": (lambda file: change_header(file, step=2), "damaged, its checksum is wrong: use"),
    "bit": (flip_last_bit, "damaged, its checksum is wrong: use another checkpoint"),
    "state": (
        lambda file: shutil.copy(file.with_name("state.safetensors"), file),
        "it holds state, where weights is needed",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_weights_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1)
    spoil, message = BAD_FILES[name]
    spoil(path / "weights.safetensors")
    with pytest.raises(GeocoError, match=message) as error:
        checkpoints.read_weights(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_place_without_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match=r"nothing: there is no such file or folder: give a run"):
        checkpoints.read_weights(tmp_path / "nothing")
    (tmp_path / "checkpoints").mkdir()
    for place in (tmp_path, tmp_path / "checkpoints"):
        with pytest.raises(GeocoError, match=r"there is no finished checkpoint here: give a run"):
            checkpoints.read_state(place)


def test_state_without_weights(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "weights.safetensors").unlink()
    message = r"weights.safetensors: cannot read this file: there is no such file"
    with pytest.raises(GeocoError, match=message):
        checkpoints.read_state(path / "state.safetensors")


@pytest.mark.parametrize("difference", ["tensors", "step", "configuration"])
def test_state_of_another_run_is_refused(tmp_path: Path, difference: str) -> None:
    path = save(tmp_path / "one", 1)
    match difference:
        case "tensors":
            other = save(tmp_path / "other", 1, seed=5)
        case "step":
            other = save(tmp_path / "other", 2, seed=-1)
        case "configuration":
            other = save(
                tmp_path / "other", 1, Config(model=ModelConfig(slots=SlotsConfig(count=4)))
            )
    shutil.copy(other / "state.safetensors", path)
    checkpoints.read_weights(path)
    message = r"state.safetensors: it does not belong to the weights.safetensors beside it: put"
    with pytest.raises(GeocoError, match=message):
        checkpoints.read_state(path)


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    flip_last_bit(path / "state.safetensors")
    with pytest.raises(GeocoError, match=r"state.safetensors: damaged, its checksum is wrong"):
        checkpoints.read_state(path)


def test_load_into(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    path = checkpoints.save(tmp_path, 1, CONFIG, model.state_dict(), {})
    checkpoints.load_into(other, checkpoints.read_weights(path).tensors, "somewhere")
    assert_equal(other.state_dict(), model.state_dict())
    assert checkpoints.read_state(path).tensors == {}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(3, 2, bias=False), "'bias' is not in the model"),
        (nn.Bilinear(3, 4, 2), r"'weight' is \[2, 3\] and not \[2, 3, 4\] as in the model"),
        (nn.Sequential(nn.Linear(3, 2)), r"'0.weight' is missing from them"),
    ],
)
def test_weights_of_another_model(model: nn.Module, message: str) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(
        GeocoError,
        match=rf"^a/b: these are weights of another model, {message}: build the model from the",
    ):
        checkpoints.load_into(model, nn.Linear(3, 2).state_dict(), "a/b")
    assert_equal(dict(model.state_dict()), before)
