"""Configuration: what it accepts, and that every refusal names the path and the way out."""

import json
import re
from pathlib import Path
from typing import Literal

import pytest
import safetensors
from pydantic import ValidationError

from geoco import config
from geoco.config import SolidsConfig, StoreConfig, WindowConfig
from geoco.errors import GeocoError

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs").rglob("*.yaml"))
KINDS = ", ".join(map(repr, config.MODEL_KINDS))
WEIGHTS = sorted(path for path in (ROOT / "weights").iterdir() if path.is_dir())


def load_solids(*overrides: str) -> SolidsConfig:
    data = config.load(None, overrides).data
    assert isinstance(data, SolidsConfig)
    return data


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_defaults_are_obj3ds_own_numbers() -> None:
    data = load_solids()
    assert (data.episodes.train, data.episodes.val, data.episodes.test) == (2920, 200, 200)
    assert (data.frames, data.height, data.width, data.supersample) == (100, 64, 64, 3)
    assert data.radii == (0.70, 0.75, 0.80)
    assert data.colors["pink"] == (0.8, 0.3, 0.7)


def test_windows_of_the_paper() -> None:
    assert list(WindowConfig(length=4, stride=8).starts(100)) == list(range(0, 97, 8))
    assert len(WindowConfig(length=4, stride=8).starts(100)) == 13
    assert list(WindowConfig(length=4).starts(3)) == []
    assert list(WindowConfig(length=3).starts(3)) == [0]


def test_a_file_states_differences_from_its_base(tmp_path: Path) -> None:
    write(
        tmp_path,
        a="data: {height: 96, window: {length: 4}}",
        b="base: a.yaml\ndata: {width: 80, window: {stride: 2}}",
        c="base: b.yaml\ndata: {height: 72}",
    )
    data = config.load(tmp_path / "c.yaml", ["data.window.length=6"]).data
    assert isinstance(data, SolidsConfig)
    assert (data.height, data.width) == (72, 80)
    assert data.window == WindowConfig(length=6, stride=2)


def test_another_kind_replaces_the_section(tmp_path: Path) -> None:
    write(tmp_path, a="data: {kind: solids, supersample: 5}")
    changes = ["data.kind=store", "data.path=x", "data.source=null"]
    data = config.load(tmp_path / "a.yaml", changes).data
    assert isinstance(data, StoreConfig)
    assert data.path == Path("x")


def test_numbers_are_read_as_people_write_them() -> None:
    assert load_solids("data.camera_jitter=5e-1").camera_jitter == 0.5
    assert load_solids("data.camera_jitter=1").camera_jitter == 1.0
    assert load_solids("data.radii=[0.5, 4e-1]").radii == (0.5, 0.4)


def test_values_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_solids().height = 3  # type: ignore[misc]


def test_the_resolved_configuration_comes_back_the_same() -> None:
    resolved = config.load(ROOT / "configs" / "movi-c.yaml", ["data.height=96"])
    assert config.loads(resolved.to_yaml()) == resolved


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_load_and_say_what_they_are(path: Path) -> None:
    resolved = config.load(path)
    assert config.loads(resolved.to_yaml()) == resolved
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 25


def test_all_shipped_files_were_found() -> None:
    assert {path.stem for path in SHIPPED} >= {
        "solids",
        "solids-video",
        "obj3d",
        "movi-c",
        "movi-like",
    }


BAD_OVERRIDES = {
    "unknown key": ("data.hieght=9", "data.hieght: unknown key; did you mean data.height?"),
    "unknown nested key": (
        "data.window.lenght=9",
        "data.window.lenght: unknown key; did you mean data.window.length?",
    ),
    "key of another section": (
        "supersample=9",
        "supersample: unknown key; did you mean data.supersample?",
    ),
    "unknown in a list": (
        "train.phases=[{name: a, start: 0, rmap: 9}]",
        "train.phases.0.rmap: unknown key; did you mean train.phases.ramp?",
    ),
    "unlike any in a list": (
        "train.phases=[{name: a, qqq: 9}]",
        "train.phases.0.qqq: unknown key; train.phases has name, start, ramp, terms,",
    ),
    "unknown and unlike any": ("data.qqq=9", "data.qqq: unknown key; data has kind, seed,"),
    "wrong type": ("data.height=tall", "data.height: input should be a valid integer, got 'tall'"),
    "float for int": ("data.height=64.5", "data.height: input should be a valid integer"),
    "string for int": ("data.height='64'", "data.height: input should be a valid integer"),
    "bool for int": ("data.height=true", "data.height: input should be a valid integer"),
    "too small": ("data.height=2", "data.height: input should be greater than or equal to 8"),
    "too large": ("data.supersample=99", "data.supersample: input should be less than or equal"),
    "not finite": ("data.camera_jitter=.inf", "data.camera_jitter: input should be a finite"),
    "wrong choice": ("data.shapes=[cone]", "data.shapes.0: input should be 'cube', 'cylinder'"),
    "empty choice": ("data.shapes=[]", "data.shapes: tuple should have at least 1 item"),
    "colour out of range": ("data.colors.pink=[1, 2, 0]", "data.colors.pink.1: input should be"),
    "wrong length": ("data.resting=[2]", "data.resting.1: required, but not given"),
    "wrong order": ("data.resting=[3, 2]", "data: resting must be [fewest, most], got [3, 2]"),
    "unknown kind": (
        "data.kind=solid",
        "data.kind: expected one of 'solids', 'store', got 'solid'",
    ),
    "kind like another": (
        "model.kind=geoko",
        f"model.kind: expected one of {KINDS}, got 'geoko'; did you mean 'geoco'?",
    ),
    "heads that do not fit": (
        "model={kind: staitus, predictor: {heads: 5}}",
        "slots.dim 64 cannot be divided among predictor.heads 5",
    ),
    "kind of no text": ("model.kind=3", f"model.kind: expected one of {KINDS}, got '3'"),
    "model is no mapping": ("model=3", "model: input should be an object, got 3"),
    "nested in the model": (
        "model.slots.cuont=9",
        "model.slots.cuont: unknown key; did you mean model.slots.count?",
    ),
    "unknown design": (
        "model.decoder.design=stered",
        "model.decoder.design: expected one of 'steered', 'conventional', 'canonical', got "
        "'stered'; did you mean 'steered'?",
    ),
    "missing": ("data.kind=store", "data.path: required, but not given"),
    "section is no mapping": ("data=3", "data: input should be an object, got 3"),
    "no value": ("data.height", "override 'data.height': expected section.key=value"),
    "empty name": ("data..height=3", "expected section.key=value"),
    "bad YAML": ("data.radii=[1, ", "not valid YAML"),
    "former name": (
        "train.also=[{path: a}]",
        "defaults: train.also: this key is called train.extra_stores now",
    ),
}


def test_former_names_are_refused_wherever_people_write_them(tmp_path: Path) -> None:
    write(tmp_path, a="train: {also: []}", b="base: a.yaml\ndata: {height: 96}")
    message = "train.also: this key is called train.extra_stores now"
    for name in ("a", "b"):
        with pytest.raises(GeocoError, match=rf"{name}.yaml: {message}$"):
            config.load(tmp_path / f"{name}.yaml")
    with pytest.raises(GeocoError, match=f"^overrides: {message}$"):
        config.override(config.Config(), ["train.also=[]"])


def test_stored_configurations_load_by_former_names() -> None:
    stored = config.load(None, ["train.extra_stores=[{path: a, times: 2}]"])
    text = stored.to_yaml()
    assert "\n  extra_stores:\n" in text
    old = text.replace("\n  extra_stores:\n", "\n  also:\n")
    assert config.loads(old) == stored
    assert config.loads(old).to_yaml() == text
    with pytest.raises(GeocoError, match=r"train\.alsoo: unknown key"):
        config.loads(old.replace("also:", "alsoo:"))
    with pytest.raises(GeocoError, match=r"train: input should be an object, got 3"):
        config.loads("train: 3")


@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.name)
def test_configurations_of_shipped_weights_load(path: Path) -> None:
    """Those inside the weights were written when `train.extra_stores` was called `train.also`."""
    weights = path / "weights.safetensors"
    with safetensors.safe_open(weights, framework="pt") as opened:
        inside = json.loads(opened.metadata()["geoco"])["config"]
    assert "\n  also:" in inside
    assert config.load(path / "config.yaml") == config.loads(inside)


def test_a_wrong_entry_is_said_once() -> None:
    """A list whose only entry is wrong is not called too short as well."""
    with pytest.raises(GeocoError) as caught:
        config.load(None, ["train.phases=[{name: a, rmap: 9}]"])
    assert str(caught.value).endswith("did you mean train.phases.ramp?")


@pytest.mark.parametrize("case", BAD_OVERRIDES)
def test_bad_overrides(case: str) -> None:
    override, message = BAD_OVERRIDES[case]
    with pytest.raises(GeocoError) as caught:
        config.load(None, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "syntax": ("data: {", r"x.yaml: line 1, column \d+: not valid YAML"),
    "repeated key": ("data: {seed: 1, seed: 2}", "the key 'seed' is given twice"),
    "list": ("- data", r"x.yaml: expected a mapping of sections, got \['data'\]"),
    "base of wrong type": ("base: 3", "base: expected the path of a YAML file, got 3"),
    "base missing": ("base: nowhere.yaml", "nowhere.yaml: cannot read this configuration file"),
    "own base": ("base: x.yaml", "its base leads back to itself"),
    "date stays text": ("data: {seed: 2020-01-01}", "data.seed: input should be a valid integer"),
    "tag": ("data: !!python/object:os.system {}", "not valid YAML"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(case: str, tmp_path: Path) -> None:
    text, message = BAD_FILES[case]
    write(tmp_path, x=text)
    with pytest.raises(GeocoError, match=message):
        config.load(tmp_path / "x.yaml")


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match="cannot read this configuration file: No such file"):
        config.load(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GeocoError, match="not UTF-8 text"):
        config.load(tmp_path / "binary.yaml")


def test_bases_may_form_a_diamond_but_no_circle(tmp_path: Path) -> None:
    write(tmp_path, a="base: b.yaml", b="base: c.yaml", c="base: a.yaml")
    with pytest.raises(
        GeocoError, match=r"leads back to itself \(.*a.yaml -> .*b.yaml -> .*c.yaml"
    ):
        config.load(tmp_path / "a.yaml")


def test_another_decoder_keeps_the_rest_of_its_section() -> None:
    """Its designs share all other fields: only sections that differ in kind replace each other."""
    changes = ["model.decoder.layers=[[16,5],[32,3]]", "model.decoder.design=canonical"]
    assert config.load(None, changes).model.decoder.layers == ((16, 5), (32, 3))


def test_a_model_without_a_kind_is_ours() -> None:
    """As configurations were stored before models had kinds."""
    resolved = config.Config()
    text = resolved.to_yaml()
    assert "model:\n  kind: geoco\n" in text
    assert config.loads(text.replace("  kind: geoco\n", "")) == resolved


class _Toy(config.Section):
    kind: Literal["toy"] = "toy"
    widths: tuple[int, ...] = (1,)


def test_others_can_add_kinds_of_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(config.MODEL_KINDS, "toy", _Toy)
    write(tmp_path, toy="model: {kind: toy, widths: [2, 3]}")
    resolved = config.load(tmp_path / "toy.yaml")
    assert resolved.model == _Toy(widths=(2, 3))
    assert config.loads(resolved.to_yaml()) == resolved
    assert config.override(resolved, ["model.widths=[4]"]).model == _Toy(widths=(4,))
    assert {"model.kind", "model.widths"} <= set(config.differences(resolved, config.Config()))
    wrong = {
        "model.wdiths=[4]": "model.wdiths: unknown key; did you mean model.widths?",
        "model.widths=[a]": "model.widths.0: input should be a valid integer, got 'a'",
        "model.slots.count=4": "model.slots: unknown key; model has kind, widths",
        "model.kind=tooy": f"expected one of {KINDS}, 'toy', got 'tooy'; did you mean 'toy'?",
    }
    for change, message in wrong.items():
        with pytest.raises(GeocoError, match=re.escape(message)):
            config.override(resolved, [change])


def test_overrides_of_a_resolved_configuration() -> None:
    resolved = config.loads(config.load(None, ["data.height=96"]).to_yaml())
    assert config.override(resolved, ["data.width=80"]).data.width == 80
    assert config.override(resolved, ["data.width=80"]).data.height == 96
    with pytest.raises(GeocoError, match=r"data\.widht: unknown key"):
        config.override(resolved, ["data.widht=80"])


def test_differences_between_two_configurations(tmp_path: Path) -> None:
    one = config.load(ROOT / "configs/geoco.yaml")
    assert config.differences(one, one) == []
    named = ["data.frames=50", "train.stride=2", "train.extra_stores=[{path: a, times: 2}]"]
    other = config.override(one, named)
    assert config.differences(one, other) == ["data.frames", "train.stride", "train.extra_stores"]
    # Sections of another kind differ in all that only one of them has.
    store = config.Config(data=StoreConfig(path=tmp_path, source=None))
    differences = config.differences(config.Config(), store)
    assert {"data.kind", "data.path", "data.supersample", "data.seed"} <= set(differences)
    assert all(name.startswith("data.") for name in differences)
    assert config.differences(store, config.Config())[0] == "data.kind"
