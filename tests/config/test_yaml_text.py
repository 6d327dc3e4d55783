"""Configurations from anyone: whatever they hold, an answer in one sentence, and soon."""

import os
from pathlib import Path

import pytest
import yaml

from geoco import config
from geoco.config import yaml_text
from geoco.errors import GeocoError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = {
    "bomb": (BOMB, "line 5, column .*more than 10000 values"),
    "list of 2,000": ("a: " + "[" * 2000 + "]" * 2000, "nested more than 32 deep"),
    "open list of 100,000": ("a: " + "[" * 100_000, "nested more than 32 deep"),
    "mappings": ("{a: " * 2000 + "1" + "}" * 2000, "nested more than 32 deep"),
    "itself": ("a: &a [*a]", r"'\*a' stands for a part of itself"),
    "itself, as a value": ("a: &a {b: *a}", r"'\*a' stands for a part of itself"),
    "no such anchor": ("a: *b", "undefined alias"),
    "5,000 digits": ("data: {height: " + "9" * 5000 + "}", "a number of 5000 characters"),
    "sexagesimal": ("data: {height: " + ":".join(["59"] * 3000) + "}", "a number of 8999"),
    "binary": ("data: {height: 0b" + "1" * 5000 + "}", "a number of 5002 characters"),
    "underscores": ("data: {height: 0x_}", "'0x_' is no number"),
    "number as key": ("1: 2", "a key must be a name, got 1"),
    "nothing as key": ("~: 2", "a key must be a name, got None"),
    "list as key": ("? [a]\n: 2", r"a key must be a name, got \['a'\]"),
    "float of text": ("!!float foo", "tags like .*float' are not used here"),
    "python": ("a: !!python/object/apply:os.system [ls]", "tags like .* are not used here"),
    "set": ("data: !!set {a, b}", "tags like .*set' are not used here"),
    "local tag": ("data: !x 1", "tags like '!x' are not used here"),
    "20,000 keys": ("".join(f"k{number}: 1\n" for number in range(20_000)), "10000 values"),
    "2,000 keys": ("".join(f"k{number}: 1\n" for number in range(2000)), "k7: .*; and 1992 more$"),
    "a long key": ("x" * 100_000 + ": 1", "."),
    "much": ("#" * 300_000, "too long for a configuration: at most 262144 characters"),
    "a zero": ("a: \0", "not valid YAML: unacceptable character"),
    "half a pair": ('model: "\\ud800"', "invalid JSON"),
    "zero in a base": ('base: "a\\0b"', "leads to no file"),
    "device as base": ("base: /dev/zero", "/dev/zero: .* it is no regular file"),
    "folder as base": ("base: .", "it is no regular file"),
    "long base": ("base: " + "a" * 5000, "expected the path of a YAML file"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(GeocoError, match=message) as caught:
        config.load(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 4000
    if "base" not in text:
        with pytest.raises(GeocoError):
            config.loads(text)


def test_pipes_and_circles(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for base in ("pipe", "one"):
        (tmp_path / "x.yaml").write_text(f"base: {base}")
        with pytest.raises(GeocoError, match=f"{base}'?: "):
            config.load(tmp_path / "x.yaml")
    for number in range(40):
        (tmp_path / f"{number}.yaml").write_text(f"base: {number + 1}.yaml")
    with pytest.raises(GeocoError, match=r"16.yaml: the base of a base, 16 times over"):
        config.load(tmp_path / "0.yaml")


@pytest.mark.parametrize(
    "override", ["a." * 2000 + "b=1", "data.height=" + "[" * 2000, "a=&a [*a]"]
)
def test_overrides(override: str) -> None:
    with pytest.raises(GeocoError):
        config.load(None, [override])


def test_aliases_that_are_meant_still_work() -> None:
    text = "a: &a {x: 1, y: [1, 2]}\nb: *a\nd: &d 3\ne: [*d, *d]"
    assert yaml_text.parse_mapping(text, "here") == yaml.safe_load(text)


def test_an_alias_counts_as_what_it_stands_for() -> None:
    # 1 + 1 + (1 + n) for the list, 1 for the other key, n + 1 for the alias.
    def count_most(values: int) -> str:
        return f"a: &a [{', '.join(['1'] * values)}]\nb: *a"

    most = (yaml_text.MOST_VALUES - 5) // 2
    yaml_text.parse_mapping(count_most(most), "here")
    with pytest.raises(GeocoError, match="too many"):
        yaml_text.parse_mapping(count_most(most + 1), "here")
