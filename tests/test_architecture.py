"""Dependencies point one way, and the project speaks of itself only."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "geoco"

# What each part may import of ours; a name stands for the module and all below it.
ALLOWED = {
    "geoco": {"geoco.edit", "geoco.zoo"},
    "geoco.errors": set(),
    "geoco.files": {"geoco.errors"},
    "geoco.config_files": {"geoco.errors"},
    "geoco.config_training": {"geoco.config_files"},
    "geoco.config": {"geoco.config_files", "geoco.config_training"},
    "geoco.geometry": set(),
    "geoco.supports": set(),
    "geoco.across": set(),
    "geoco.ops": {"geoco.errors", "geoco.ops"},
    "geoco.draw": {"geoco.errors", "geoco.files"},
    "geoco.ideal": set(),
    "geoco.metrics": {"geoco.geometry"},
    "geoco.metrics_rgb": set(),
    "geoco.bounds": {"geoco.supports"},
    "geoco.oracle": {"geoco.ideal", "geoco.metrics_rgb"},
    "geoco.instances": {"geoco.errors", "geoco.instances"},
    # parts of the model
    "geoco.encoders": {"geoco.errors"},
    "geoco.slots": {"geoco.geometry"},
    "geoco.temporal": {"geoco.slots"},
    "geoco.decoders": {"geoco.geometry", "geoco.ops", "geoco.slots"},
    "geoco.validity": {"geoco.decoders", "geoco.ops"},
    "geoco.selector": {"geoco.config", "geoco.supports", "geoco.decoders"},
    "geoco.model": {
        "geoco.errors",
        "geoco.config",
        "geoco.geometry",
        "geoco.supports",
        "geoco.encoders",
        "geoco.slots",
        "geoco.decoders",
        "geoco.selector",
        "geoco.temporal",
    },
    # data
    "geoco.solids": {"geoco.errors", "geoco.config", "geoco.solids"},
    "geoco.data": {
        "geoco.errors",
        "geoco.config",
        "geoco.config_files",
        "geoco.draw",
        "geoco.files",
        "geoco.instances",
        "geoco.solids",
        "geoco.data",
    },
    # training
    "geoco.losses": {
        "geoco.across",
        "geoco.config_training",
        "geoco.geometry",
        "geoco.supports",
    },
    "geoco.pairs": {"geoco.config_training", "geoco.geometry", "geoco.supports", "geoco.slots"},
    "geoco.teacher": {
        "geoco.across",
        "geoco.config_training",
        "geoco.decoders",
        "geoco.selector",
        "geoco.supports",
    },
    "geoco.curriculum": {
        "geoco.config",
        "geoco.config_training",
        "geoco.decoders",
        "geoco.draw",
        "geoco.supports",
    },
    "geoco.objective": {
        "geoco.across",
        "geoco.config_training",
        "geoco.curriculum",
        "geoco.decoders",
        "geoco.geometry",
        "geoco.losses",
        "geoco.model",
        "geoco.pairs",
        "geoco.selector",
        "geoco.slots",
        "geoco.supports",
        "geoco.teacher",
    },
    "geoco.checkpoints": {"geoco.config", "geoco.errors", "geoco.files"},
    "geoco.runs": {
        "geoco.checkpoints",
        "geoco.config",
        "geoco.config_training",
        "geoco.errors",
        "geoco.files",
    },
    "geoco.stepping": {
        "geoco.config",
        "geoco.curriculum",
        "geoco.data",
        "geoco.model",
        "geoco.objective",
    },
    "geoco.progress": {
        "geoco.curriculum",
        "geoco.data",
        "geoco.draw",
        "geoco.metrics_rgb",
        "geoco.model",
        "geoco.objective",
        "geoco.slots",
        "geoco.stepping",
        "geoco.supports",
    },
    "geoco.train": {
        "geoco.checkpoints",
        "geoco.config",
        "geoco.curriculum",
        "geoco.data",
        "geoco.draw",
        "geoco.errors",
        "geoco.model",
        "geoco.objective",
        "geoco.ops",
        "geoco.progress",
        "geoco.runs",
        "geoco.stepping",
    },
    "geoco.refitting": {
        "geoco.calibration",
        "geoco.checkpoints",
        "geoco.config",
        "geoco.config_training",
        "geoco.data",
        "geoco.errors",
        "geoco.model",
        "geoco.selector",
        "geoco.teacher",
    },
    "geoco.calibration": {
        "geoco.config_training",
        "geoco.data",
        "geoco.decoders",
        "geoco.errors",
        "geoco.model",
        "geoco.selector",
        "geoco.teacher",
    },
    "geoco.evaluation": {
        "geoco.bounds",
        "geoco.config_training",
        "geoco.data",
        "geoco.decoders",
        "geoco.draw",
        "geoco.errors",
        "geoco.evaluation",
        "geoco.files",
        "geoco.geometry",
        "geoco.ideal",
        "geoco.metrics",
        "geoco.metrics_rgb",
        "geoco.model",
        "geoco.oracle",
        "geoco.pairs",
        "geoco.slots",
        "geoco.solids",
        "geoco.supports",
        "geoco.validity",
    },
    # editing
    "geoco.zoo": {
        "geoco.checkpoints",
        "geoco.config",
        "geoco.errors",
        "geoco.files",
        "geoco.model",
    },
    "geoco.media": {"geoco.data", "geoco.draw", "geoco.errors", "geoco.files"},
    "geoco.takes": {"geoco.decoders", "geoco.model", "geoco.slots", "geoco.supports"},
    "geoco.edits": {"geoco.slots"},
    "geoco.carrying_out": {
        "geoco.edits",
        "geoco.errors",
        "geoco.ideal",
        "geoco.slots",
        "geoco.supports",
        "geoco.takes",
    },
    "geoco.edit_lists": {"geoco.edits", "geoco.errors", "geoco.media"},
    "geoco.following": {"geoco.slots"},
    "geoco.edit": {
        "geoco.following",
        "geoco.carrying_out",
        "geoco.draw",
        "geoco.edit_lists",
        "geoco.edits",
        "geoco.errors",
        "geoco.ideal",
        "geoco.media",
        "geoco.slots",
        "geoco.takes",
        "geoco.zoo",
    },
    "geoco.web": {
        "geoco.carrying_out",
        "geoco.config",
        "geoco.data",
        "geoco.draw",
        "geoco.edit",
        "geoco.edit_lists",
        "geoco.edits",
        "geoco.errors",
        "geoco.media",
        "geoco.slots",
        "geoco.web",
    },
    # publishing
    "geoco.cards": {
        "geoco.config",
        "geoco.curriculum",
        "geoco.errors",
        "geoco.evaluation",
        "geoco.model",
        "geoco.runs",
    },
    "geoco.first_windows": {"geoco.data", "geoco.errors", "geoco.evaluation"},
    "geoco.publishing": {
        "geoco.cards",
        "geoco.checkpoints",
        "geoco.config",
        "geoco.data",
        "geoco.errors",
        "geoco.evaluation",
        "geoco.files",
        "geoco.first_windows",
        "geoco.model",
        "geoco.refitting",
        "geoco.zoo",
    },
    # demo
    "geoco.demo_pictures": {
        "geoco.config",
        "geoco.data",
        "geoco.draw",
        "geoco.edit",
        "geoco.errors",
        "geoco.evaluation",
        "geoco.ideal",
        "geoco.metrics",
        "geoco.solids",
    },
    "geoco.demo": {
        "geoco.config",
        "geoco.data",
        "geoco.decoders",
        "geoco.demo_pictures",
        "geoco.draw",
        "geoco.edit",
        "geoco.evaluation",
        "geoco.files",
        "geoco.metrics",
        "geoco.metrics_rgb",
        "geoco.model",
        "geoco.slots",
        "geoco.solids",
        "geoco.supports",
        "geoco.zoo",
    },
    # The command line may use everything.
    **{
        f"geoco.{name}": {"geoco"}
        for name in (
            "cli",
            "cli_data",
            "cli_editing",
            "cli_evaluation",
            "cli_parts",
            "cli_publishing",
        )
    },
}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name == "geoco" or name.startswith("geoco.")}


def part_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("name", modules())
def test_imports_point_one_way(name: str) -> None:
    known = set(modules())
    for used in imported(modules()[name]) & known - {"geoco"}:
        allowed = ALLOWED[part_of(name)]
        assert "geoco" in allowed or part_of(used) in allowed, f"{name} imports {used}"


def test_every_part_is_listed() -> None:
    assert {part_of(name) for name in modules()} == set(ALLOWED)


def test_folders_are_one_level_deep_and_files_of_bearable_length() -> None:
    for name, path in modules().items():
        assert len(name.split(".")) <= 3, name
        assert len(path.read_text().splitlines()) <= 400, name
    assert not (PACKAGE / "utils.py").exists()


def test_no_file_names_a_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    files = [ROOT / name for name in listed.stdout.split()] or list(PACKAGE.rglob("*.py"))
    forbidden = ["/" + "work/", "/" + "root/", "index" + "-url", "find" + "-links"]
    for path in files:
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".txt", "") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not [word for word in forbidden if word in text], path
