"""The notebook runs from top to bottom on a CPU, and what its cells end with shows itself."""

import ast
import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT, make_small_solids, make_tiny_model
from PIL import Image

from geoco import config, drawing
from geoco.editing.editor import Editor, Film, Scene
from geoco.models import pretrained


def run_cell(source: str, scope: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of a last expression is what is shown."""
    *rest, last = ast.parse(source).body
    exec(compile(ast.Module(rest, []), "cell", "exec"), scope)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
    exec(compile(ast.Module([last], []), "cell", "exec"), scope)
    return None


def decode_film(html: str) -> list[np.ndarray]:
    found = re.fullmatch(r'<img alt="[^"]*" src="data:image/png;base64,([^"]*)">', html)
    assert found is not None
    with Image.open(io.BytesIO(base64.b64decode(found[1]))) as image:
        frames = []
        for number in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(number)
            frames.append(np.asarray(image.convert("RGB")))
    return frames


def test_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = json.loads((ROOT / "examples" / "edit_a_scene.ipynb").read_text())
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    scope: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), scope) for cell in cells]
    scenes = [one for one in shown if isinstance(one, Scene)]
    assert len(scenes) == 3
    assert scope["scene"] is scenes[0]
    assert not np.array_equal(scenes[0].image, scenes[1].image)
    assert scope["objects"]
    film = shown[-1]
    assert isinstance(film, Film)
    assert len(film) == 4
    assert len(decode_film(film._repr_html_())) <= 4
    assert "scene = scene.transplant(" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_scenes_and_films_show_themselves() -> None:
    model = make_tiny_model().model.float()
    editor = Editor(pretrained.LoadedModel("tiny", model, config.Config(), 0, (0.05, 1.2)))
    frames = make_small_solids().batch([0, 3]).video.permute(0, 1, 3, 4, 2).numpy()
    scene = editor.encode(frames[0, 0])
    with Image.open(io.BytesIO(scene._repr_png_())) as image:
        assert np.array_equal(np.asarray(image), scene.draw_outlines(4))
    film = editor.encode_video(np.concatenate([frames[0], frames[1]]), frames_per_second=8)
    html = film._repr_html_()
    expected = [drawing.magnify(image, 4) for image in film.images]
    assert np.array_equal(np.stack(decode_film(html)), np.stack(expected))
    data = base64.b64decode(html.partition("base64,")[2].removesuffix('">'))
    with Image.open(io.BytesIO(data)) as image:
        assert image.info["duration"] == 125
