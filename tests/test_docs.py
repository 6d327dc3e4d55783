"""Documents are true: links lead somewhere, names exist, code runs, the citation is valid."""

import ast
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import test_architecture
import yaml
from helpers import ROOT
from PIL import Image

# What a hidden folder holds (an environment, caches) or a run writes is nobody's document.
PAGES = sorted(
    path
    for folder in (
        ROOT,
        ROOT / "docs",
        *sorted((ROOT / "examples").glob("*")),
        *sorted((ROOT / "weights").glob("*")),
    )
    for path in folder.glob("*.md")
    if not path.parent.name.endswith(".partial")
)
SOURCES = sorted(
    path
    for folder, pattern in (
        ("geoco", "**/*.py"),
        ("tests", "**/*.py"),
        ("benchmarks", "*.py"),
        ("examples", "**/*.py"),
        ("docs", "*.py"),
        ("configs", "*.yaml"),
        (".", "*.toml"),
        (".", "Makefile"),
    )
    for path in (ROOT / folder).glob(pattern)
    if path != Path(__file__)
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes them: lower case, words joined by hyphens, no other punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def snippets(page: Path) -> list[str]:
    return [code for language, code in FENCE.findall(page.read_text()) if language == "python"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = prose(page)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, fragment = link.partition("#")
        other = (page.parent / target).resolve() if target else page
        assert other.exists(), f"{link}: no such file"
        if fragment:
            assert fragment in map(anchor, headings(other)), f"{link}: no such heading"


def test_an_anchor_is_as_on_github() -> None:
    assert anchor("Frames of Obj3D's own generator") == "frames-of-obj3ds-own-generator"
    assert anchor("`solids`: the embedded dataset") == "solids-the-embedded-dataset"


def test_comments_name_pages_and_headings_that_are_there() -> None:
    named = 0
    for source in SOURCES:
        text = re.sub(r"\n\s*#?\s*", " ", source.read_text())  # comments go on in the next line
        for page, heading in re.findall(r'(docs/\w+\.md)(?:, "([^"]+)")?', text):
            named += 1
            assert (ROOT / page).exists(), f"{name_of(source)}: {page}"
            if heading:
                assert heading in headings(ROOT / page), f'{name_of(source)}: {page}, "{heading}"'
    assert named >= 3


def resolve(name: str) -> object:
    """The module, class, function or attribute that a dotted name means."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise AttributeError(name)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_in_prose_exist(page: Path) -> None:
    files = {path.name for path in ROOT.glob("[!.]*/**/*.py")}
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        for name in re.findall(r"^geoco(?:\.[A-Za-z_]\w*)+", code):
            if not name.endswith(".yaml"):
                resolve(name)
        for path in re.findall(r"\b[\w/]+\.py\b", code):
            there = (ROOT / path).exists() or (ROOT / "geoco" / path).exists()
            assert there if "/" in path else path in files, path
        for path in re.findall(r"\bconfigs/[\w/-]+\.yaml", code):
            assert (ROOT / path).exists(), path


def check_imports(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                resolve(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_in_pages_imports_what_there_is(page: Path) -> None:
    for code in snippets(page):
        check_imports(code)


@pytest.mark.parametrize("script", sorted((ROOT / "docs").glob("*.py")), ids=name_of)
def test_scripts_that_draw_pictures_import_what_there_is(script: Path) -> None:
    check_imports(script.read_text())


def test_the_picture_of_the_layers_is_true() -> None:
    spec = importlib.util.spec_from_file_location("picture", ROOT / "docs/architecture_picture.py")
    assert spec is not None
    assert spec.loader is not None
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    assert [set(layer) for layer in reversed(picture.LAYERS)] == test_architecture.LAYERS
    with Image.open(picture.IMAGE) as shown:
        assert json.loads(shown.text["layers"]) == list(picture.LAYERS)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/solids.md", "docs/operator.md", "docs/own-videos.md"]
)
def test_code_in_pages_runs(page: str, tmp_path: Path) -> None:
    frame = Path("docs/images/frame.png")
    (tmp_path / frame).parent.mkdir(parents=True)
    shutil.copy(ROOT / frame, tmp_path / frame)
    for code in snippets(ROOT / page):
        script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "edited.png").exists() == (page == "README.md")


def test_the_citation_is_valid() -> None:
    """The keys that the Citation File Format 1.2.0 requires, and those it allows here."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"authors", "cff-version", "message", "title"} <= set(cited)
    allowed = {"abstract", "keywords", "license", "preferred-citation", "type", "version"}
    assert set(cited) <= {"authors", "cff-version", "message", "title"} | allowed
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert cited["authors"] == [{"name": "The GeoCo authors"}]  # as LICENSE has them
    assert isinstance(cited["version"], str)
    paper = cited["preferred-citation"]
    assert {"authors", "title", "type"} <= set(paper)
    assert set(paper) <= {"authors", "title", "type", "year", "month", "url"}
    assert paper["type"] == "unpublished"
    assert isinstance(paper["year"], int)
    assert 1 <= paper["month"] <= 12
    assert paper["url"].startswith("https://")
    assert all(set(author) == {"family-names", "given-names"} for author in paper["authors"])
    readme = (ROOT / "README.md").read_text()
    assert paper["url"] in readme
    listed = (f"{each['family-names']}, {each['given-names']}" for each in paper["authors"])
    assert " and ".join(listed) in readme


def test_pages_that_are_read_first_are_short() -> None:
    for page, limit in (("README.md", 95), ("docs/results.md", 150), ("docs/architecture.md", 60)):
        assert len((ROOT / page).read_text().splitlines()) <= limit
