"""Whatever is sent, the server answers as it says it does: never a failure, never a stack trace."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator

import av
import numpy as np
import pytest
import schemathesis
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, encode_image, make_editor, make_frames, make_samples
from hypothesis import HealthCheck, settings
from PIL import Image
from schemathesis import Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from geoco.media import Limits
from geoco.web import Settings, create_app
from geoco.web.routes import PROBLEMS

FRAMES = make_frames()
EXAMPLES = 12
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
APP = create_app(make_editor(), lambda: make_samples(FRAMES))
SCHEMA = schemathesis.openapi.from_asgi("/api/openapi.json", APP, headers={"Host": "127.0.0.1"})


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(APP, base_url=HOME, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def page(client: TestClient) -> Iterator[Page]:
    page = Page(client)
    yield page
    client.delete(page.root)


@pytest.fixture(scope="module")
def identifiers(client: TestClient) -> dict[str, str]:
    page = Page(client)
    return {"session": page.root.split("/")[-1], "state": page.open()["id"]}


@SCHEMA.include(method=["GET", "POST"]).parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[*HealthCheck],
    derandomize=True,
    database=None,
)
def test_every_address_answers_as_described(
    case: Case, identifiers: dict[str, str], client: TestClient
) -> None:
    # With names that exist, so that requests get beyond the first check.
    for name in set(case.path_parameters or {}) & set(identifiers):
        case.path_parameters[name] = identifiers[name]
    answer = case.call(session=client, base_url=HOME)
    assert answer.status_code in (200, 201, 405, *PROBLEMS), answer.text
    if answer.status_code != 405:  # methods that are not described are tried, too
        case.validate_response(answer, checks=CHECKS)
    if answer.status_code >= 400:
        assert isinstance(answer.json()["detail"], str)


def test_every_address_without_a_session_is_closed(client: TestClient) -> None:
    for path, methods in client.get("/api/openapi.json").json()["paths"].items():
        if "{session}" not in path:
            continue
        for method in methods:
            address = path.format(session="x" * 32, state="y" * 32, file="picture.png")
            answer = client.request(method, address, json={"op": "remove", "slot": 1})
            assert answer.status_code in (404, 422), (method, path)


# -- broken files ----------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int, depth: int = 8) -> bytes:
    """A PNG that promises a picture of any size in a few bytes."""
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def gif(count: int, side: int = 16) -> bytes:
    images = [
        Image.fromarray(np.full((side, side, 3), 7 * k % 256, np.uint8)) for k in range(count)
    ]
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=40)
    return buffer.getvalue()


def mp4(count: int, side: int = 32, container_format: str = "mp4") -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container_format) as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for k in range(count):
            frame = np.full((side, side, 3), 9 * k % 256, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return buffer.getvalue()


GOOD = encode_image(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
PLAYLIST = b"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\nfile:///etc/passwd\n"
WIDE = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 0, 0, 0, 0))

BROKEN = {
    "nothing": (b"", 422, "the file is empty"),
    "text": (b"hello, I am a.png", 415, "expected a picture"),
    "svg": (SVG, 415, "expected a picture"),
    "html": (b"<html><script>alert(1)</script></html>", 415, "expected a picture"),
    "playlist": (PLAYLIST, 415, "expected a picture"),
    "concat": (b"ffconcat version 1.0\nfile /etc/passwd\n", 415, "expected a picture"),
    "pdf": (b"%PDF-1.7\n", 415, "expected a picture"),
    "tiff": (b"II*\0" + bytes(100), 422, "damaged or cut off"),
    "cut png": (GOOD[: len(GOOD) // 2], 422, "damaged or cut off"),
    "only a mark": (GOOD[:8], 422, "damaged or cut off"),
    "bad checksum": (GOOD[:29] + b"xxxx" + GOOD[33:], 422, "damaged or cut off"),
    "bomb": (png_header(60_000, 60_000), 413, "too large"),
    "largest bomb": (png_header(2**31 - 1, 2**31 - 1), 413, "too large"),
    "small bomb": (png_header(8000, 8000), 413, "8000 x 8000 pixels is too large"),
    "no pixels": (png_header(0, 0), 422, "damaged or cut off"),
    "too little data": (png_header(4000, 4000), 422, "damaged or cut off"),
    "one row": (encode_image(np.zeros((1, 500, 3), np.uint8)), 422, "too small"),
    "sixteen bits": (WIDE, 422, ""),
    "cut jpeg": (encode_image(np.zeros((64, 64, 3), np.uint8), "JPEG")[:300], 422, "damaged"),
    "not a jpeg": (b"\xff\xd8\xff" + bytes(50), 422, "damaged or cut off"),
    "not a webp": (b"RIFF\x10\0\0\0WEBPVP8 " + bytes(50), 422, "damaged or cut off"),
    "bmp": (b"BM" + bytes(60), 422, "damaged or cut off"),
    "long gif": (gif(305), 413, "the video has more than 300 frames"),
    "cut gif": (gif(3)[:40], 422, ""),
    "long mp4": (mp4(305), 413, "the video has more than 300 frames"),
    # This one's header does not say how many frames there are: they are counted.
    "long mkv": (
        mp4(305, container_format="matroska"),
        413,
        "the video has more than 300 frames",
    ),
    "cut mp4": (mp4(5)[:200], 422, "damaged or cut off"),
    "not a mp4": (b"\0\0\0\x18ftypisom" + bytes(100), 422, ""),
    "not a webm": (b"\x1aE\xdf\xa3" + bytes(100), 422, "damaged or cut off"),
    "not an avi": (b"RIFF\x10\0\0\0AVI LIST" + bytes(50), 422, ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(page: Page, name: str) -> None:
    data, status, message = BROKEN[name]
    for kind in ("image/png", "application/octet-stream"):
        detail = page.post("/uploads", status, content=data, headers={"Content-Type": kind})[
            "detail"
        ]
        assert message in detail
        assert "\n" not in detail
        assert "Error" not in detail


@pytest.mark.parametrize("kind", ["image/svg+xml", "text/plain", "video/mp4", "x"])
def test_good_files_under_wrong_names(page: Page, kind: str) -> None:
    answer = page.post("/uploads", content=GOOD, headers={"Content-Type": kind})
    assert answer["kind"] == "picture"


@pytest.mark.parametrize("data", [gif(4), mp4(4)], ids=["gif", "mp4"])
def test_good_videos(page: Page, data: bytes) -> None:
    answer = page.post("/uploads", content=data)
    assert (answer["kind"], answer["frames"]) == ("video", 4)
    assert page.post("/uploads", content=gif(1))["kind"] == "picture"


def test_random_damage(page: Page) -> None:
    """Bytes changed anywhere: a sentence or a picture, and nothing else."""
    random = np.random.default_rng(1)
    for data in (
        GOOD,
        encode_image(FRAMES[0, 0], "WEBP"),
        encode_image(FRAMES[0, 0], "BMP"),
        gif(3),
        mp4(3),
    ):
        for _ in range(8):
            damaged = bytearray(data)
            for place in random.integers(0, len(data), 6):
                damaged[place] = random.integers(0, 256)
            answer = page.client.post(page.root + "/uploads", content=bytes(damaged))
            assert answer.status_code in (201, 413, 415, 422), answer.text


def test_large_frames_of_videos() -> None:
    app = create_app(
        make_editor(), lambda: make_samples(FRAMES), Settings(reading=Limits(pixels=1000))
    )
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        for data in (mp4(2, side=64), gif(2, side=64), GOOD):
            detail = page.post("/uploads", 413, content=data)["detail"]
            assert (
                detail == "a picture of 64 x 64 pixels is too large: at most 1,000 pixels are read"
            )


# -- broken edit lists -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edit_list() -> dict[str, object]:
    scene = make_editor().encode(FRAMES[0, 0]).move(1, dx=1)
    return json.loads(scene.to_json())


def nest_films(times: int, inner: dict[str, object]) -> dict[str, object]:
    for _ in range(times):
        inner = {**inner, "film": inner}
    return inner


CHANGES = [
    ({"frames": [base64.b64encode(png_header(60_000, 60_000)).decode()]}, 413, "too large"),
    ({"frames": [base64.b64encode(GOOD[:100]).decode()]}, 422, "damaged"),
    ({"frames": [base64.b64encode(SVG).decode()]}, 422, "damaged"),
    ({"frames": ["?"]}, 422, "not a PNG in base 64"),
    ({"frames": [""] * 100}, 422, "too long: it has 100 frames"),
    ({"edits": [{"op": "move", "slot": 1}] * 501}, 422, "501 edits"),
    ({"edits": [{"op": "move", "slot": 77}]}, 422, "there is no slot 77"),
    ({"seed": 2**200}, 422, "seed"),
    ({"seed": -1}, 422, "seed"),
    ({"frames_per_second": 0}, 422, "frames_per_second"),
    ({"kind": "Play"}, 422, "kind"),
    ({"number": -1}, 201, ""),
    ({"extra": 1}, 422, "extra"),
]


@pytest.mark.parametrize(("change", "status", "message"), CHANGES)
def test_broken_edit_lists(
    page: Page, edit_list: dict[str, object], change: dict[str, object], status: int, message: str
) -> None:
    answer = page.post("/imports", status, content=json.dumps({**edit_list, **change}))
    assert message in answer.get("detail", "")


def test_edit_lists_that_are_none(page: Page, edit_list: dict[str, object]) -> None:
    for data in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":' * 5000, b"[" * 100_000):
        assert "the edit list is not right" in page.post("/imports", 422, content=data)["detail"]
    deep = nest_films(9, {**edit_list, "frames": []})
    page.post("/imports", 422, content=json.dumps(deep))
