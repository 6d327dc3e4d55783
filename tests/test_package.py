"""What a package owes to its users: a version, types, configurations by name, devices by name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from helpers import ROOT, make_tiny_model, run_geoco

import geoco
from geoco import config
from geoco.config.shipped import describe_config, list_configs
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.models import checkpoints, hub, pretrained

# -- version, types, time to start -----------------------------------------------------------------


def test_version() -> None:
    done = run_geoco("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{geoco.__version__}\n"
    cited = re.search(r'^version: "(.*)"$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == geoco.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert (ROOT / project["tool"]["hatch"]["version"]["path"]).samefile(geoco.__file__)


def test_the_wheel_brings_what_the_package_looks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["geoco"]
    assert wheel["force-include"] == {"weights": "geoco/weights", "configs": "geoco/configs"}
    assert (ROOT / "geoco" / "py.typed").exists()


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from geoco.cli.main import app\n"
        "heavy = {'torch', 'numpy', 'scipy', 'PIL', 'matplotlib', 'lightning', 'fastapi', 'av'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


# -- configurations by name ------------------------------------------------------------------------


def test_shipped_configurations_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = config.load(ROOT / "configs" / "smoke.yaml")
    assert config.load("smoke") == expected == config.load("smoke.yaml")
    (tmp_path / "geoco").mkdir()  # a folder of this name is no configuration
    assert config.load("geoco") == config.load(ROOT / "configs" / "geoco.yaml")
    (tmp_path / "smoke").write_text("data: {seed: 9}\n")  # a file here comes first
    assert config.load("smoke").data.seed == 9  # type: ignore[union-attr]
    for name, said in (
        ("smok", "smok: there is neither a file nor a shipped configuration of this name"),
        ("configs/smoke.yaml", "cannot read this configuration file: No such file"),
        ("mine.yaml", "cannot read this configuration file: No such file"),
    ):
        with pytest.raises(GeocoError, match=said):
            config.load(name)


def test_the_list_of_configurations() -> None:
    known = list_configs()
    assert set(known) == {file.stem for file in (ROOT / "configs").glob("*.yaml")}
    done = run_geoco("config", "list")
    assert done.returncode == 0, done.stderr
    for name, file in known.items():
        assert name in done.stdout
        said = describe_config(file)
        assert len(said) > 20, name
        assert said[-1] in ".):", (name, said)
    assert describe_config(known["geoco"]) == (
        "GeoCo-SAVi on the embedded dataset: the Obj3D recipe (Table 1, row GeoCo-SAVi)."
    )


# -- models by name --------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path: Path) -> Path:
    model = make_tiny_model().model.float()
    saved = checkpoints.save(
        tmp_path / "run", 7, config.Config(model=model.settings), model.state_dict(), {}, {}
    )
    folder = tmp_path / "home" / "weights" / "mine"
    folder.parent.mkdir(parents=True)
    saved.rename(folder)
    return folder / checkpoints.WEIGHTS


def test_published_models_are_found_by_name(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GeocoError, match="mine: there is no such model"):
        pretrained.find_weights("mine")
    monkeypatch.setenv("GEOCO_HOME", str(published.parents[2]))
    assert pretrained.find_weights("mine") == published
    monkeypatch.delenv("GEOCO_HOME")
    monkeypatch.chdir(published.parents[2])
    assert pretrained.find_weights("mine").samefile(published)
    assert Editor.load("mine").name == "mine"


def test_mistyped_paths_never_reach_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fetch(name: str, file: str) -> Path:
        asked.append(name)
        raise GeocoError("asked")

    monkeypatch.setattr(pretrained, "fetch_from_hub", fetch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in (
        "runs/geocoo", "./runs/x", "../runs", "/runs/x", "~/x", "a/b/c", "somewhere/", "/x", "x",
        "run x/y", "nowhere/model.safetensors", "a\\b", "a//b", Path("owner/name"),
    ):  # fmt: skip
        with pytest.raises(GeocoError, match="there is no such model: give a run, a file of"):
            pretrained.load(name)
    assert asked == []
    with pytest.raises(GeocoError, match="asked"):
        pretrained.load("owner/geoco-mine_1.0")
    assert asked == ["owner/geoco-mine_1.0"]
    assert hub.is_hub_name("facebook/dinov2-small")


def test_an_edit_list_asks_no_hub_for_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_model().model.float()
    known = pretrained.LoadedModel("stranger/model", model, config.Config(), 0, (0.05, 1.2))
    scene = Editor(known).encode(torch.zeros(3, 16, 16))

    def fail(*_: object) -> Path:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr(pretrained, "fetch_from_hub", fail)
    with pytest.raises(GeocoError, match="stranger/model: there is no such model"):
        type(scene).replay(scene.to_json())
    assert type(scene).replay(scene.to_json(), Editor(known)).to_json() == scene.to_json()


# -- devices ---------------------------------------------------------------------------------------


def test_devices() -> None:
    assert pretrained.find_device("cpu") == pretrained.find_device(torch.device("cpu"))
    missing = ["meta", "tpu", "cuda:99", "", "cpu:x"]
    missing += [] if torch.backends.mps.is_available() else ["mps"]
    missing += [] if torch.cuda.is_available() else ["cuda"]
    for name in missing:
        with pytest.raises(GeocoError, match=f"device '{name}': PyTorch finds none here") as caught:
            pretrained.find_device(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(GeocoError, match="device 'meta'"):
        pretrained.load("geoco-solids", torch.device("meta"))
