"""The server's answers are what the editor does in Python."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from helpers_web import (
    SIZE,
    Page,
    decode_image,
    read_pixels,
)

from geoco.editing.editor import Editor, Scene
from geoco.web.samples import make_solids_samples
from geoco.web.schema import encode_run_lengths

# -- what there is ---------------------------------------------------------------------------------


def test_a_session_says_which_model_it_is(client: TestClient) -> None:
    answer = client.post("/api/sessions").json()
    assert answer["model"]["name"] == "tiny"
    assert (answer["model"]["size"], answer["model"]["slots"]) == (SIZE, 4)
    assert answer["model"]["trained_scales"] == [0.05, 1.2]
    assert len(answer["id"]) == 32  # 192 bits in base 64
    assert client.get(f"/api/sessions/{answer['id']}").json() == answer
    assert client.delete(f"/api/sessions/{answer['id']}").status_code == 204
    assert client.get(f"/api/sessions/{answer['id']}").status_code == 404


def test_samples(client: TestClient, frames: np.ndarray) -> None:
    answer = client.get("/api/samples").json()
    assert [(sample["id"], sample["frames"]) for sample in answer] == [
        ("one", 1),
        ("two", 1),
        ("film", 6),
    ]
    picture = client.get("/api/samples/two/picture.png")
    assert picture.headers["content-type"] == "image/png"
    assert np.array_equal(decode_image(picture.content), frames[1, 0])
    assert "there are one, two, film" in client.get("/api/samples/x/picture.png").json()["detail"]


def test_generated_samples_show_a_few_objects() -> None:
    samples = make_solids_samples(32)
    assert [len(sample.frames) for sample in samples] == [1] * 6 + [20] * 2
    assert all(sample.frames.shape[1:] == (32, 32, 3) for sample in samples)
    assert len({sample.frames.tobytes() for sample in samples}) == len(samples)
    assert not np.array_equal(samples[-1].frames[0], samples[-1].frames[-1])


def test_an_opened_scene_is_what_the_editor_makes(
    page: Page, editor: Editor, frames: np.ndarray
) -> None:
    answer = page.open()
    scene = editor.encode(frames[0, 0])
    assert np.array_equal(read_pixels(answer), scene.image)
    runs = answer["frame"]["runs"]
    owner = np.repeat(runs[1::2], runs[::2]).reshape(SIZE, SIZE)
    assert np.array_equal(owner, scene.masks.argmax(0))
    for sent, slot in zip(answer["frame"]["slots"], scene.slots, strict=True):
        assert (sent["x"], sent["y"]) == slot.position
        assert (sent["index"], sent["scale"], sent["area"]) == (slot.index, slot.scale, slot.area)
        assert sent["box"] == (None if slot.box is None else list(slot.box))
        assert (sent["is_background"], sent["is_present"]) == (slot.is_background, slot.is_present)
    assert (answer["kind"], answer["frames"], answer["edits"]) == ("picture", 1, [])
    again = page.open(seed=3)
    assert np.array_equal(read_pixels(again), editor.encode(frames[0, 0], seed=3).image)


def test_run_lengths() -> None:
    assert encode_run_lengths(np.array([[2, 2, 0], [0, 0, 1]])) == [2, 2, 3, 0, 1, 1]
    assert encode_run_lengths(np.zeros((2, 2), dtype=np.int64)) == [4, 0]


# -- edits -----------------------------------------------------------------------------------------

EDITS = [
    ({"op": "move", "slot": 1, "dx": 3, "dy": -2.5}, lambda s, o: s.move(1, dx=3, dy=-2.5)),
    ({"op": "move_to", "slot": 1, "x": 0.5, "y": 0}, lambda s, o: s.move_to(1, 0.5, 0)),
    ({"op": "resize", "slot": 2, "factor": 1.5}, lambda s, o: s.resize(2, 1.5)),
    ({"op": "resize_to", "slot": 2, "scale": 0.3}, lambda s, o: s.resize_to(2, 0.3)),
    ({"op": "swap", "slot": 1, "other": 2}, lambda s, o: s.swap(1, 2)),
    ({"op": "remove", "slot": 3}, lambda s, o: s.remove(3)),
    ({"op": "duplicate", "slot": 1, "into": 3, "dx": 4}, lambda s, o: s.duplicate(1, 3, dx=4)),
    (
        {"op": "transplant", "slot": 1, "donor": "?", "donor_slot": 3},
        lambda s, o: s.transplant(1, o, 3),
    ),
    ({"op": "set_background", "donor": "?"}, lambda s, o: s.set_background(o)),
    ({"op": "interpolate", "donor": "?", "share": 0.5}, lambda s, o: s.interpolate(o, 0.5)),
]


@pytest.mark.parametrize(("sent", "meant"), EDITS, ids=lambda value: value["op"] if isinstance(
    value, dict) else "")  # fmt: skip
def test_edits_do_what_the_editor_does(
    page: Page,
    editor: Editor,
    frames: np.ndarray,
    sent: dict[str, Any],
    meant: Any,
) -> None:
    first, donor = page.open("one"), page.open("two")
    if "donor" in sent:
        sent = {**sent, "donor": donor["id"]}
    expected: Scene = meant(editor.encode(frames[0, 0]), editor.encode(frames[1, 0]))
    before = read_pixels(first)
    shown = page.post(f"/states/{first['id']}/previews", 200, json=sent)
    assert np.array_equal(read_pixels(shown), expected.image)
    answer = page.edit(first, **sent)
    assert np.array_equal(read_pixels(answer), expected.image)
    assert not np.array_equal(expected.image, before)
    assert answer["new_warnings"] == list(expected.new_warnings) == shown["warnings"]
    assert answer["warnings"] == list(expected.warnings)
    assert answer["edits"] == [edit.model_dump(mode="json") for edit in expected.history]
    # The old state is as it was: undo is going back to it.
    assert np.array_equal(read_pixels(page.get(f"/states/{first['id']}").json()), before)


def test_previews_are_not_kept(page: Page, app: FastAPI) -> None:
    first = page.open()
    session = app.state.service.sessions.find(page.root.split("/")[-1])
    for _ in range(3):
        page.post(f"/states/{first['id']}/previews", 200, json={"op": "move", "slot": 1, "dx": 1})
    assert len(session) == 1


def test_videos(page: Page, editor: Editor, frames: np.ndarray) -> None:
    film = editor.encode_video(frames[0])
    first = page.open("film")
    assert (first["kind"], first["frames"]) == ("video", 6)
    some = page.edit(first, frame=3, op="move", slot=1, dx=3, frames=[2, 4])
    expected = film.move(1, dx=3, frames=(2, 4))
    assert np.array_equal(read_pixels(some), expected.images[3])
    assert some["frame"]["number"] == 3
    path = page.edit(some, op="move", slot=2, keys=[[0, 0, 0], [5, 4, 2]])
    expected = expected.move(2, keys={0: (0, 0), 5: (4, 2)})
    sent = page.get(f"/states/{path['id']}/frames").json()["frames"]
    shown = np.stack([decode_image(base64.b64decode(frame["picture"])) for frame in sent])
    assert np.array_equal(shown, expected.images)
    preview = page.post(
        f"/states/{path['id']}/previews?frame=4",
        200,
        json={"op": "resize", "slot": 1, "factor": 1.5},
    )
    assert np.array_equal(read_pixels(preview), expected.frame(4).resize(1, 1.5).image)
    detail = page.post(
        f"/states/{path['id']}/previews?frame=6", 422, json={"op": "remove", "slot": 1}
    )
    assert detail == {"detail": "there is no frame 6: frames go from 0 to 5"}


@pytest.mark.parametrize(
    ("edit", "status", "message"),
    [
        ({"op": "move", "slot": 9}, 422, "there is no slot 9: the scene has slots 0 to 3"),
        ({"op": "fly", "slot": 1}, 422, "'fly'"),
        ({"op": "move", "slot": 1, "dx": "far"}, 422, "dx: Input should be a valid number"),
        ({"op": "move", "slot": 1, "dz": 1}, 422, "dz"),
        ({"op": "move", "slot": 1.5}, 422, "slot"),
        ({"op": "resize", "slot": 1, "factor": 0}, 422, "greater than 0"),
        ({"op": "move", "slot": 1, "frames": [1, 0]}, 422, "the first comes after the last"),
        ({"op": "transplant", "slot": 1, "donor": "x", "donor_slot": 0}, 404, "open the other"),
        ([], 422, "the edit"),
    ],
)
def test_impossible_edits(page: Page, edit: Any, status: int, message: str) -> None:
    first = page.open()
    for kind in ("edits", "previews"):
        detail = page.post(f"/states/{first['id']}/{kind}", status, json=edit)["detail"]
        assert message in detail
        assert "\n" not in detail


# -- the interface -------------------------------------------------------------------------------


def test_the_interface_is_described(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    edits = "/api/sessions/{session}/states/{state}/edits"
    body = described["paths"][edits]["post"]["requestBody"]["content"]["application/json"]
    sent = described["components"]["schemas"][body["schema"]["$ref"].split("/")[-1]]
    assert set(sent["discriminator"]["mapping"]) == {edit["op"] for edit, _ in EDITS}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema["$ref"].endswith("/Problem"), (path, method, status)
    assert json.dumps(described).count("HTTPValidationError") == 0
