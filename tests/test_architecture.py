"""Dependencies point one way, and the project speaks of itself only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

PACKAGE = ROOT / "geoco"

# From the lowest layer to the highest; a part imports itself and what lies below its layer.
LAYERS = [
    {"errors"},
    {"files"},
    {"config"},
    {"geometry", "edit_maps", "drawing"},
    {"media", "metrics", "ops", "reporting"},
    {"models", "solids", "instances"},
    {"data"},
    {"training", "evaluation", "editing"},
    {"publishing", "demo", "web"},
    {"cli"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}


def modules() -> dict[str, Path]:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def imports_of(path: Path) -> set[str]:
    """All that a file imports by name, also within functions; of a `from` the names themselves."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("geoco.")}


@pytest.mark.parametrize("name", [name for name in modules() if name != "geoco"])
def test_imports_point_one_way(name: str) -> None:
    part = name.split(".")[1]
    for used in imports_of(modules()[name]):
        other = used.split(".")[1]
        assert other == part or RANK[other] < RANK[part], f"{name} imports {used}"
        assert (part, other) != ("data", "models"), f"{name} imports {used}"


def test_every_part_has_a_layer() -> None:
    assert {name.split(".")[1] for name in modules() if name != "geoco"} == set(RANK)


def test_writing_tables_needs_no_torch() -> None:
    names = [name for name in modules() if name.startswith("geoco.reporting")]
    script = (
        f"import sys, {', '.join(names)}\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_reading_a_picture_needs_no_data_sets() -> None:
    script = (
        "import sys, geoco.media\n"
        "assert not [name for name in sys.modules if name.startswith('geoco.data')]"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


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
