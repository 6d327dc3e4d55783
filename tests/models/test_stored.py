"""Weights with a right checksum and wrong content: one sentence, before anything large is made."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
import yaml
from helpers import TINY_MODEL
from safetensors.torch import load_file, save

from geoco.config import Config
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.models.build import build

CONFIG = Config(model=TINY_MODEL)
NAME = "decoder.place.weight"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "weights.safetensors"
    checkpoints.write_weights(path, 3, CONFIG, build(TINY_MODEL).state_dict())
    return path


def rewrite(file: Path, header: dict[str, Any] | None = None, **tensors: torch.Tensor) -> None:
    """Other fields and tensors, under a checksum that is right; None takes a field away."""
    with safetensors.safe_open(file, "pt") as opened:
        old = json.loads(opened.metadata()["geoco"])
    fields = {key: value for key, value in (old | (header or {})).items() if value is not None}
    fields.pop("checksum", None)
    values = load_file(file) | {name.replace("__", "."): value for name, value in tensors.items()}
    checksum = checkpoints._compute_checksum(values, fields)
    text = json.dumps({**fields, "checksum": checksum}, sort_keys=True)
    file.write_bytes(save(values, {"geoco": text}))


def change_config(*path: str, value: Any) -> dict[str, Any]:
    raw = yaml.safe_load(CONFIG.to_yaml())
    section = raw
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    return {"config": yaml.safe_dump(raw)}


def raw_model(**changes: dict[str, Any]) -> dict[str, Any]:
    raw = yaml.safe_load(CONFIG.to_yaml())["model"]
    return raw | {name: raw[name] | section for name, section in changes.items()}


BAD_HEADERS = {
    "no configuration": ({"config": None}, r"config: field required"),
    "no step": ({"step": None}, "step: field required"),
    "no extra": ({"extra": None}, "extra: field required"),
    "step of text": ({"step": "3"}, "step: input should be a valid integer"),
    "step of truth": ({"step": True}, "step: input should be a valid integer"),
    "negative step": ({"step": -1}, "step: input should be greater"),
    "step of 4,000 digits": ({"step": 10**4000}, "step: "),
    "configuration in a list": ({"config": ["a"]}, "config: input should be a valid string"),
    "extra of numbers": ({"extra": {"trained scales": 3}}, "extra.trained scales: input should"),
    "extra in a list": ({"extra": []}, "extra: input should be an object|valid dictionary"),
    "another field": ({"more": 1}, "more: extra inputs are not permitted"),
    "format of text": ({"format": "1"}, "format: input should be 1"),
    "kind of another": ({"kind": "words"}, "kind: input should be 'weights'"),
    "bomb": (
        {"config": "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9000))},
        "values are too many",
    ),
    "encoder of a million": (
        change_config("model", "encoder", "width", value=10**6),
        "model.encoder.width: input should be less",
    ),
    "encoder of ten thousand": (
        change_config("model", "encoder", "width", value=10**4),
        "weights of another model|too large",
    ),
    "pictures of a thousand": (
        change_config(
            "model", value=raw_model(slots={"count": 64}, decoder={"layers": [[8, 3], [1024, 3]]})
        ),
        "64 slots of 1024 x 1024 pixels are too many",
    ),
    "heads that do not divide": (
        change_config("model", "temporal", value={"enabled": True, "width": 128, "heads": 7}),
        "no model can be built from its configuration|weights of another model",
    ),
    "scales of words": ({"extra": {"trained scales": "a b"}}, "'a b' for the trained scales"),
    "one scale": ({"extra": {"trained scales": "1"}}, "'1' for the trained scales"),
    "scales of nan": ({"extra": {"trained scales": "nan 1"}}, "'nan 1' for the trained scales"),
    "endless scales": ({"extra": {"trained scales": "0 1e999"}}, "'0 1e999' for the trained"),
    "scales reversed": ({"extra": {"trained scales": "2 1"}}, "'2 1' for the trained scales"),
}


@pytest.mark.parametrize(("header", "message"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_headers(file: Path, header: dict[str, Any], message: str) -> None:
    rewrite(file, header)
    with pytest.raises(GeocoError, match=message) as caught:
        pretrained.load(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


BAD_TENSORS = {
    "nan": (lambda old: old * torch.nan, "holds numbers that are not finite"),
    "inf": (lambda old: old / 0, "holds numbers that are not finite"),
    "inf in the model's type": (lambda old: old.double() + 1e300, "numbers that are not finite"),
    "integers": (lambda old: old.long(), "is of int64 and not float32 as in the model"),
    "truth": (lambda old: old > 0, "is of bool and not float32"),
    "complex": (lambda old: old.to(torch.complex64), "is of complex64 and not float32"),
    "float8": (lambda old: old.to(torch.float8_e4m3fn), "is of float8_e4m3fn and not float32"),
    "shape": (lambda old: old.reshape(1, *old.shape), "as in the model"),
    "nothing": (lambda old: old[:0], "as in the model"),
}


@pytest.mark.parametrize(("change", "message"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_tensors(file: Path, change: Any, message: str) -> None:
    rewrite(file, decoder__place__weight=change(load_file(file)[NAME].clone()))
    with pytest.raises(GeocoError, match=rf"'{NAME}' .*{message}"):
        pretrained.load(file)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_floats_of_another_width_become_those_of_the_model(file: Path, kind: torch.dtype) -> None:
    old = load_file(file)[NAME].clone()
    rewrite(file, decoder__place__weight=old.to(kind))
    loaded = pretrained.load(file).model.state_dict()[NAME]
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded, old.to(kind).float())


def test_nothing_large_is_made_for_weights_that_do_not_fit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def watch(settings: Any, pretrained: bool = True) -> Any:
        model = build(settings, pretrained)
        made.append(next(model.parameters()).device.type)
        return model

    monkeypatch.setattr("geoco.models.stored.build", watch)
    rewrite(file, change_config("model", "slots", "update_dim", value=512))
    with pytest.raises(GeocoError, match="another model"):
        pretrained.load(file)
    assert made == ["meta"]


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 1e999, "value": 1}',
        '{"step": 1, "value": ' + "[" * 100_000,
        "[1]",
        "\0",
        "9" * 5000,
    ],
)
def test_the_mark_of_the_best(tmp_path: Path, text: str) -> None:
    (tmp_path / "best.json").write_text(text)
    with pytest.raises(GeocoError, match="damaged, expected"):
        checkpoints.find_best(tmp_path)
