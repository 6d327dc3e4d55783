"""MOVi from tfrecord files: against what TFDS wrote, an independent encoder, and damaged files."""

import importlib.util
import io
import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tfrecord import example_pb2
from tfrecord.writer import TFRecordWriter

from geoco.config import MoviSource
from geoco.data import movi, tfrecord
from geoco.errors import GeocoError

FIXTURE = Path(__file__).parent / "movi"
FILES = FIXTURE / "movi_c" / "tiny" / "1.0.0"
FIRST = "movi_c-validation.tfrecord-00000-of-00002"
SECOND = "movi_c-validation.tfrecord-00001-of-00002"
ORDER = [0, 2, 1]  # TFDS shuffles: which video comes when

specification = importlib.util.spec_from_file_location("make_fixture", FIXTURE / "make_fixture.py")
assert specification is not None
assert specification.loader is not None
fixture = importlib.util.module_from_spec(specification)
specification.loader.exec_module(fixture)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the dataset to damage."""
    return Path(shutil.copytree(FILES, tmp_path / "1.0.0"))


def source(path: Path) -> MoviSource:
    return MoviSource(path=path)


def frame_record(data: bytes) -> bytes:
    """One record, framed by code that is not ours."""
    length = struct.pack("<Q", len(data))
    checksum = TFRecordWriter.masked_crc
    return length + checksum(length) + data + checksum(data)


def split_records(content: bytes) -> list[bytes]:
    records, offset = [], 0
    while offset < len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        records.append(content[offset + 12 : offset + 12 + length])
        offset += length + 16
    return records


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "png")
    return buffer.getvalue()


# -- what TFDS wrote -------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(3))
def test_frames_and_masks_are_those_that_were_drawn(position: int) -> None:
    video = list(movi.read_videos(source(FILES), "val"))[position]
    drawn = fixture.draw(ORDER[position])
    assert video.source == f"movi_c/val/{900 + ORDER[position]}"
    np.testing.assert_array_equal(video.frames, drawn["video"])
    assert video.masks is not None
    np.testing.assert_array_equal(video.masks, drawn["segmentations"][..., 0])
    assert len(np.unique(video.frames[..., 0])) > 10  # the drawing itself is not flat
    assert np.unique(video.masks).tolist() == ([0, 1, 2], [0, 1], [0, 1, 2, 3])[position]


def test_a_training_split_is_read_beside_it() -> None:
    assert movi.list_splits(source(FILES)) == ("train", "val")
    assert movi.count_videos(source(FILES), "train") == 2
    videos = {video.source: video for video in movi.read_videos(source(FILES), "train")}
    assert sorted(videos) == ["movi_c/train/903", "movi_c/train/904"]
    for index in (3, 4):
        drawn, video = fixture.draw(index), videos[f"movi_c/train/{900 + index}"]
        np.testing.assert_array_equal(video.frames, drawn["video"])
        np.testing.assert_array_equal(video.masks, drawn["segmentations"][..., 0])


@pytest.mark.parametrize("position", range(3))
def test_metadata_is_what_was_drawn(position: int) -> None:
    metadata = list(movi.read_videos(source(FILES), "val"))[position].metadata
    drawn = fixture.draw(ORDER[position])
    assert metadata == json.loads(json.dumps(metadata))
    for name, value in drawn["metadata"].items():
        assert metadata[name] == value, name
    assert metadata["background"] == drawn["background"]
    for name, value in drawn["camera"].items():
        np.testing.assert_array_equal(metadata["camera"][name], value, err_msg=name)
    assert set(metadata["instances"]) == set(drawn["instances"][0])
    for name, values in metadata["instances"].items():
        assert len(values) == len(drawn["instances"])
        for one, instance in zip(values, drawn["instances"], strict=True):
            assert one == np.asarray(instance[name]).tolist(), name
    assert not {"events", "forward_flow", "video"} & set(metadata)


def test_ragged_instances_differ_in_length() -> None:
    instances = list(movi.read_videos(source(FILES), "val"))[1].metadata["instances"]
    assert [len(boxes) for boxes in instances["bboxes"]] == [24, 0]  # one is never in the picture
    assert instances["bbox_frames"][0][:3] == [0, 1, 2]
    assert instances["bboxes"][0][0] == pytest.approx([1 / 12, 0, 4 / 12, 4 / 16])
    assert instances["category"] == ["Board Games", "Car Seat"]


def test_flow_is_decoded_to_pixels_on_demand(folder: Path) -> None:
    time, row, column = np.mgrid[0:24, 0:12, 0:16]
    for declared in (True, False):
        if not declared:
            (folder / "features.json").unlink()
        for index, example in zip(ORDER, movi.read_examples(source(folder), "val"), strict=True):
            flow = example.decode_forward_flow()
            assert flow.dtype == np.float32
            rows, columns = time + 100 * row + index, 8192 + 300 * column - 50 * time
            np.testing.assert_allclose(flow[..., 0], rows * 16 / 65535 - 2, atol=1e-5)
            np.testing.assert_allclose(flow[..., 1], columns * 16 / 65535 - 2, atol=1e-5)


def test_features_of_an_older_tfds_mean_the_same(folder: Path) -> None:
    expected = list(movi.read_videos(source(folder), "val"))
    older = FIXTURE / "features_4.5.2.json"
    assert tfrecord.read_features(older) == tfrecord.read_features(folder / "features.json")
    shutil.copy(older, folder / "features.json")
    videos = list(movi.read_videos(source(folder), "val"))
    assert [video.metadata for video in videos] == [video.metadata for video in expected]


def test_features_say_shape_and_type() -> None:
    declared = tfrecord.read_features(FILES / "features.json")
    assert declared["forward_flow"] == tfrecord.Field((24, 12, 16, 2), "uint16")
    assert declared["instances/bboxes"] == tfrecord.Field((None, None, 4), "float32")
    assert declared["metadata/num_instances"] == tfrecord.Field((), "uint16")
    assert declared["events/collisions/position"].shape == (None, 3)


def test_without_features_the_published_shapes_hold(folder: Path) -> None:
    expected = [video.metadata for video in movi.read_videos(source(folder), "val")]
    (folder / "features.json").unlink()
    assert [video.metadata for video in movi.read_videos(source(folder), "val")] == expected
    (folder / "instances-category.labels.txt").unlink()
    assert next(movi.read_videos(source(folder), "val")).metadata["instances"]["category"] == [0, 3]


def test_declared_booleans_are_booleans(folder: Path) -> None:
    change(
        folder / FIRST,
        lambda fields: fields["instances/is_dynamic"].int64_list.value.extend([1, 0]),
    )
    features = json.loads((folder / "features.json").read_text())
    instances = features["featuresDict"]["features"]["instances"]["sequence"]["feature"]
    instances["featuresDict"]["features"]["is_dynamic"] = {
        "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
        "tensor": {"shape": {}, "dtype": "bool", "encoding": "none"},
    }
    (folder / "features.json").write_text(json.dumps(features))
    is_dynamic = next(movi.read_videos(source(folder), "val")).metadata["instances"]["is_dynamic"]
    assert is_dynamic[0] is True
    assert is_dynamic[1] is False


# -- finding, counting, skipping -------------------------------------------------------------------


@pytest.mark.parametrize("above", [FILES, FILES.parent, FILES.parent.parent, FIXTURE])
def test_a_parent_folder_will_do(above: Path) -> None:
    assert movi.count_videos(source(above), "val") == 3


def test_count_is_unknown_without_dataset_info(folder: Path) -> None:
    (folder / "dataset_info.json").unlink()
    assert movi.count_videos(source(folder), "val") is None
    assert len(list(movi.read_videos(source(folder), "val"))) == 3


def test_count_is_unknown_for_a_split_that_is_not_described(folder: Path) -> None:
    for name in (FIRST, SECOND):
        (folder / name).rename(folder / name.replace("validation", "test"))
    assert movi.count_videos(source(folder), "test") is None


@pytest.mark.parametrize("skip", range(5))
def test_skip_goes_on_at_the_right_video(skip: int) -> None:
    names = [video.metadata["video_name"] for video in movi.read_videos(source(FILES), "val", skip)]
    assert names == ["900", "902", "901"][skip:]


def test_skipped_records_are_not_read(folder: Path) -> None:
    content = bytearray((folder / FIRST).read_bytes())
    content[200] ^= 255
    (folder / FIRST).write_bytes(content)
    with pytest.raises(GeocoError, match="checksum"):
        next(movi.read_videos(source(folder), "val"))
    assert next(movi.read_videos(source(folder), "val", 1)).source == "movi_c/val/902"


def test_an_empty_file_holds_no_records(folder: Path) -> None:
    (folder / FIRST).write_bytes(b"")
    (folder / "dataset_info.json").unlink()
    assert [video.source for video in movi.read_videos(source(folder), "val")] == ["movi_c/val/901"]


# -- other encoders --------------------------------------------------------------------------------


def test_records_of_the_tfrecord_package(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (5, 6, 7, 3), np.uint8)
    masks = random.integers(0, 256, (5, 6, 7), np.uint8)
    positions = random.normal(size=(2, 5, 3)).astype(np.float32)
    writer = TFRecordWriter(str(tmp_path / "movi_c-train.tfrecord-00000-of-00001"))
    writer.write(
        {
            "video": ([png(frame) for frame in frames], "byte"),
            "segmentations": ([png(mask) for mask in masks], "byte"),
            "metadata/num_instances": (2, "int"),
            "instances/positions": (positions.ravel(), "float"),
            "instances/mass": ([0.5, 2.0], "float"),
            "instances/unheard_of": ([3, 4, 5], "int"),
        }
    )
    writer.write({"video": ([png(frame) for frame in frames[:2]], "byte")})
    writer.close()
    first, second = movi.read_videos(source(tmp_path), "train")
    np.testing.assert_array_equal(first.frames, frames)
    assert first.masks is not None
    np.testing.assert_array_equal(first.masks, masks)
    np.testing.assert_array_equal(first.metadata["instances"]["positions"], positions)
    assert first.metadata["instances"]["mass"] == [0.5, 2.0]
    assert first.metadata["instances"]["unheard_of"] == [3, 4, 5]
    assert first.metadata["num_instances"] == 2
    assert second.masks is None
    assert (first.source, second.source) == ("movi_c/train/0", "movi_c/train/1")


def test_repeated_fields_may_be_packed_or_not(tmp_path: Path) -> None:
    def message(number: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    numbers = {
        "floats": message(2, b"".join(b"\x0d" + struct.pack("<f", one) for one in (0.5, -3.0))),
        "packed floats": message(2, message(1, struct.pack("<ff", 0.5, -3.0))),
        "integers": message(3, b"\x08\x07" + b"\x08\xac\x02" + b"\x08" + b"\xff" * 9 + b"\x01"),
        "packed integers": message(3, message(1, b"\x07\xac\x02" + b"\xff" * 9 + b"\x01")),
    }
    entries = [message(1, message(1, n.encode()) + message(2, v)) for n, v in numbers.items()]
    long = b"".join(entries)
    path = tmp_path / "file"
    path.write_bytes(frame_record(b"\x0a" + bytes([len(long) & 127 | 128, len(long) >> 7]) + long))
    fields = tfrecord.parse_example(tfrecord.list_records(path)[0])
    for prefix in ("", "packed "):
        np.testing.assert_array_equal(
            tfrecord.extract_values(fields[prefix + "floats"]), [0.5, -3.0]
        )
        np.testing.assert_array_equal(
            tfrecord.extract_values(fields[prefix + "integers"]), [7, 300, -1]
        )


@given(st.lists(st.binary(max_size=400), max_size=6))
@settings(max_examples=50, deadline=None)
def test_framing_agrees_with_an_independent_writer(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_bytes(b"".join(frame_record(content) for content in contents))
        assert [record.read() for record in tfrecord.list_records(path)] == contents


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_any_changed_byte_is_noticed(position: int, difference: int) -> None:
    content = bytearray(frame_record(b"some data") + frame_record(b"and more") + frame_record(b""))
    content[position % len(content)] ^= difference
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_bytes(content)
        with pytest.raises(GeocoError, match=r"record [012] at byte"):
            [record.read() for record in tfrecord.list_records(path)]


# -- bad files -------------------------------------------------------------------------------------


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    """Edit the fields of a file's first record; its checksums stay right."""
    first, *others = split_records(path.read_bytes())
    example = example_pb2.Example.FromString(first)
    edit(example.features.feature)
    contents = [example.SerializeToString(), *others]
    path.write_bytes(b"".join(frame_record(content) for content in contents))


def edit_fields(edit: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: change(folder / FIRST, edit)


def replace_content(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content((folder / name).read_bytes()))

    return damage


def flip_byte(offset: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[offset] ^= 1
        return bytes(changed)

    return flip


def set_item(name: str, index: int, value: bytes) -> Callable[[Any], None]:
    def edit(fields: Any) -> None:
        fields[name].bytes_list.value[index] = value

    return edit


def break_chunk(picture: bytes) -> bytes:
    """Five bytes of the pixels, in a chunk of their own, and then a chunk without a name."""
    return picture[:33] + struct.pack(">I", 5) + b"IDAT" + picture[41:46] + bytes(8) + b"????"


def start_of_second(content: bytes) -> int:
    return len(split_records(content)[0]) + 16


BAD_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "folder missing": (shutil.rmtree, "1.0.0: no such folder.*movi_c"),
    "folder is a file": (
        lambda folder: (shutil.rmtree(folder), folder.write_text("")),
        "no such folder",
    ),
    "no files": (
        lambda folder: [path.unlink() for path in folder.glob("movi*")],
        "no tfrecord files of movi_c here, nor of any other",
    ),
    "files of another dataset": (
        lambda folder: [
            path.rename(folder / path.name.replace("movi_c", "movi_e"))
            for path in folder.glob("movi*")
        ],
        "no tfrecord files of movi_c here, only those of movi_e",
    ),
    "files of another split": (
        lambda folder: [
            path.rename(folder / path.name.replace("validation", "train"))
            for path in folder.glob("movi*")
        ],
        "no validation files of movi_c; there are train",
    ),
    "several folders": (
        lambda folder: (
            shutil.copytree(folder, folder / "a" / "1.0.0"),
            shutil.copytree(FILES, folder / "b" / "1.0.0"),
            [path.unlink() for path in folder.glob("movi*")],
        ),
        "more than once; expected the path of one: a/1.0.0, b/1.0.0",
    ),
    "shard missing": (
        lambda folder: (folder / FIRST).unlink(),
        "movi_c-validation lacks 1 of its 2 files, those numbered 00000",
    ),
    "two sets of shards": (
        lambda folder: shutil.copy(folder / FIRST, folder / (FIRST[:-1] + "3")),
        r"several sets, of \[2, 3\] files; expected one",
    ),
    "shard is a folder": (
        lambda folder: ((folder / FIRST).unlink(), (folder / FIRST).mkdir()),
        "00000-of-00002: cannot read.*directory",
    ),
    "cut in a length": (
        replace_content(FIRST, lambda content: content[: start_of_second(content) + 5]),
        r"00000-of-00002: record 1 at byte \d+: .*ends inside the record's length, after 5 of 12",
    ),
    "cut in the data": (
        replace_content(FIRST, lambda content: content[:5000]),
        r"record 0 at byte 0: .*ends inside the record's data, after 4988 of \d+ bytes",
    ),
    "cut in the last checksum": (
        replace_content(FIRST, lambda content: content[:-3]),
        r"record 1 at byte \d+: .*ends inside the checksum .* after 1 of 4 bytes",
    ),
    "cut between records": (
        replace_content(FIRST, lambda content: content[: start_of_second(content)]),
        "00000-of-00002: holds 1 records, but dataset_info.json says 2",
    ),
    "wrong length": (
        replace_content(FIRST, flip_byte(1)),
        "record 0 at byte 0: the checksum of the record's length",
    ),
    "wrong checksum of the length": (
        replace_content(FIRST, flip_byte(9)),
        "checksum of the record's length",
    ),
    "wrong data": (
        replace_content(FIRST, flip_byte(3000)),
        r"record 0 at byte 0: the checksum of its \d+ bytes",
    ),
    "wrong checksum of the data": (
        replace_content(SECOND, flip_byte(-1)),
        "00001-of-00002: record 0 at byte 0: the checksum of its",
    ),
    "a PNG instead": (
        replace_content(FIRST, lambda _: png(np.zeros((9, 9), np.uint8))),
        "TFRecord file",
    ),
    "garbage in a record": (
        replace_content(FIRST, lambda _: frame_record(b"\xff" * 50) + frame_record(b"")),
        "record 0 at byte 0: expected a tf.train.Example, got other data",
    ),
    "no fields in a record": (
        replace_content(FIRST, lambda _: frame_record(b"\x12\x00") + frame_record(b"")),
        "record 0 at byte 0: expected a tf.train.Example with fields, got none",
    ),
    "video missing": (
        edit_fields(lambda fields: fields.pop("video")),
        "record 0 at byte 0: the field 'video' is missing; there are background, .*segmentations",
    ),
    "video of no frames": (
        edit_fields(lambda fields: fields["video"].bytes_list.ClearField("value")),
        "'video' holds no pictures; expected a PNG per frame",
    ),
    "video of numbers": (
        edit_fields(lambda fields: fields["video"].int64_list.value.append(3)),
        "'video' holds no pictures; expected a PNG per frame",
    ),
    "declared masks missing": (
        edit_fields(lambda fields: fields.pop("segmentations")),
        "record 0 at byte 0: the field 'segmentations' is missing",
    ),
    "frame is no PNG": (
        edit_fields(set_item("video", 7, b"JFIF, perhaps")),
        "record 0 at byte 0: frame 7: expected a PNG, got 13 bytes of other data",
    ),
    "frame is a PNG cut short": (
        edit_fields(set_item("video", 7, png(np.ones((12, 16, 3), np.uint8))[:50])),
        "frame 7: expected a PNG",
    ),
    "frame is a PNG with a broken chunk": (
        edit_fields(set_item("video", 7, break_chunk(png(np.ones((12, 16, 3), np.uint8))))),
        "frame 7: expected a PNG",
    ),
    "frame is gray": (
        edit_fields(set_item("video", 7, png(np.zeros((12, 16), np.uint8)))),
        "frame 7: expected a PNG in mode RGB, got mode L",
    ),
    "frames of two sizes": (
        edit_fields(set_item("video", 7, png(np.zeros((13, 18, 3), np.uint8)))),
        "frame 7 is 18 x 13, but frame 0 is 16 x 12; expected one size",
    ),
    "mask too few": (
        edit_fields(lambda fields: fields["segmentations"].bytes_list.value.pop()),
        "23 masks for 24 frames",
    ),
    "masks of another size": (
        edit_fields(
            lambda fields: fields["segmentations"].CopyFrom(
                example_pb2.Feature(
                    bytes_list=example_pb2.BytesList(value=[png(np.zeros((9, 8), np.uint8))] * 24)
                )
            )
        ),
        "masks are 8 x 9, but frames are 16 x 12; expected one size",
    ),
    "too many ids": (
        edit_fields(
            lambda fields: fields["segmentations"].CopyFrom(
                example_pb2.Feature(
                    bytes_list=example_pb2.BytesList(
                        value=[png(np.full((12, 16), 256, np.uint16))] * 24
                    )
                )
            )
        ),
        "a mask has id 256; ids go from 0 to 255",
    ),
    "instances that do not fill their shape": (
        edit_fields(lambda fields: fields["instances/positions"].float_list.value.pop()),
        "'instances/positions' holds 143 values; expected any x 24 x 3",
    ),
    "ragged lengths that do not add up": (
        edit_fields(
            lambda fields: fields["instances/bboxes/ragged_row_lengths_0"].int64_list.value.pop()
        ),
        "'instances/bboxes' has 37 rows, but lengths that add up to 24",
    ),
    "features.json is no JSON": (
        replace_content("features.json", lambda content: content[:-9]),
        "features.json: expected the description of fields",
    ),
    "dataset_info.json is something else": (
        replace_content("dataset_info.json", lambda _: b"[1, 2]"),
        "dataset_info.json: expected the description of splits",
    ),
    "dataset_info.json lists fewer files": (
        replace_content(
            "dataset_info.json", lambda content: content.replace(b',\n        "1"', b"")
        ),
        "2 files of movi_c-validation, but dataset_info.json lists 1",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_get_one_clear_sentence(folder: Path, kind: str) -> None:
    damage, expected = BAD_FILES[kind]
    damage(folder)
    with pytest.raises(GeocoError, match=expected) as caught:
        list(movi.read_videos(source(folder), "val"))
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_masks_may_be_absent_where_none_are_declared(folder: Path) -> None:
    change(folder / FIRST, lambda fields: fields.pop("segmentations"))
    (folder / "features.json").unlink()
    assert [video.masks is None for video in movi.read_videos(source(folder), "val")] == [
        True,
        False,
        False,
    ]


def test_flow_that_is_absent_is_named(folder: Path) -> None:
    change(folder / FIRST, lambda fields: fields.pop("forward_flow"))
    with pytest.raises(GeocoError, match="record 0 at byte 0: the field 'forward_flow' is missing"):
        next(movi.read_examples(source(folder), "val")).decode_forward_flow()


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_damaged_pictures_never_escape_as_other_errors(position: int, difference: int) -> None:
    picture = bytearray(png(fixture.draw(1)["video"][0]))
    picture[position % len(picture)] ^= difference
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "movi_c-test.tfrecord-00000-of-00001"
        writer = TFRecordWriter(str(path))
        writer.write({"video": ([bytes(picture)], "byte")})
        writer.close()
        try:
            next(movi.read_videos(source(path.parent), "test"))
            message = ""
        except GeocoError as error:
            message = str(error)
    assert not message or "frame 0: expected a PNG" in message


@pytest.mark.parametrize("library", ["google_crc32c", "google.protobuf.message"])
def test_missing_libraries_name_the_extra(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(GeocoError, match=r"pip install 'geoco-savi\[movi\]'"):
        list(movi.read_videos(source(FILES), "val"))
