"""How bytes, JSON and YAML go wrong: by accident, and by someone who means it."""

import copy
import json
import random
from typing import Any

INTERESTING = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**6,
    2**63,
    10**4000,
    -(2**64),
    0.001,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "a\0b",
    "\ud800",
    "x" * 5000,
    "/dev/zero",
    "../../etc/passwd",
    "someone/model",
    "1:2:3",
    [],
    {},
    [[]],
    [None] * 50,
    {"a": {"b": 1}},
)
YAML_PIECES = (
    "&a", "*a", "&b", "*b", "[", "]", "{", "}", ",", ": ", "- ", "\n", "  ", "\t", "? ", "! ",
    "!!float ", "!!int ", "!!binary ", "!!set ", "!!python/name:os.system ", "<<: *a", "~", ".nan",
    ".inf", "1e999", "9" * 5000, "0x" + "f" * 500, "1:2:3", "|\n", ">\n", "'", '"', "\\0", "#",
    "---\n", "...\n", "%YAML 9.9\n", "\0", "\u2028", "base: /dev/zero\n", "base: .\n", "data:\n",
    "model:\n", "train:\n", "kind: ", "true", "encoder: {width: 1000000}", "[" * 500, "{a: " * 100,
)  # fmt: skip


def damage_bytes(draw: random.Random, data: bytes) -> bytes:
    """Bits turned, pieces cut, repeated, moved or overwritten, once or several times."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 20))):
        size = len(changed)
        if not size:
            changed += draw.randbytes(8)
            continue
        # Headers decide more than what follows, so they are hit more often.
        place = draw.randrange(min(size, draw.choice((16, 128, 4096, size))))
        length = min(size - place, draw.choice((1, 2, 4, 8, 64, 1024)))
        match draw.randrange(7):
            case 0:
                changed[place] ^= 1 << draw.randrange(8)
            case 1:
                changed[place] = draw.choice(INTERESTING)
            case 2:
                changed[place : place + length] = draw.randbytes(length)
            case 3:
                del changed[place : place + length]
            case 4:
                changed[place:place] = changed[place : place + length] * draw.choice((1, 2, 50))
            case 5:
                del changed[place:]
            case 6:
                number = draw.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 60_000))
                order = draw.choice(("big", "little"))
                changed[place : place + 4] = number.to_bytes(4, order)
    return bytes(changed)


def damage_json(draw: random.Random, value: Any) -> Any:
    """A copy with one or a few values, keys or lists exchanged."""
    changed = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 2, 4))):
        holders = list(_walk_holders(changed))
        if not holders:
            return copy.deepcopy(draw.choice(NASTY))
        holder = draw.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = draw.choice(keys)
        match draw.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw.choice(("extra", "kind", "k" * 3000, "\0"))] = copy.deepcopy(
                    draw.choice(NASTY)
                )
            case 2 if isinstance(holder, list):
                holder.extend(holder[: 5000 // max(len(holder), 1)])
            case 3:
                holder[key] = _nest(draw.choice((3, 50, 500)))
            case _:
                holder[key] = copy.deepcopy(draw.choice(NASTY))
    return changed


def to_text(draw: random.Random, value: Any) -> str:
    """JSON, at times with numbers that no reader can hold."""
    text = json.dumps(value)
    if draw.random() < 0.1:
        text = text.replace("Infinity", "1e999").replace("NaN", "9" * 5000)
    return text


def damage_yaml(draw: random.Random, text: str) -> str:
    """A text with pieces of YAML thrown in, lines repeated, and aliases of aliases."""
    if draw.random() < 0.1:
        return write_bomb(draw)
    lines = text.splitlines(keepends=True)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        number = draw.randrange(len(lines))
        line = lines[number]
        place = draw.randrange(len(line) + 1)
        match draw.randrange(4):
            case 0:
                lines[number] = line[:place] + draw.choice(YAML_PIECES) + line[place:]
            case 1:
                name, colon, _ = line.partition(":")
                lines[number] = f"{name}{colon} {draw.choice(YAML_PIECES)}\n"
            case 2:
                times = min(draw.choice((2, 3, 2000)), 100_000 // len(line) + 1)
                lines[number] = (line * times)[:100_000]
            case 3:
                lines[number] = line[place:] + line[:place]
    return "".join(lines)


def write_bomb(draw: random.Random) -> str:
    """Aliases that stand for more and more, as lists, mappings or merges."""
    width, depth = draw.randrange(2, 12), draw.randrange(2, 60)
    form = draw.choice(("[{}]", "{{x: [{}]}}", "{{<<: [{}]}}"))
    lines = ["a0: &a0 [x, x]\n"]
    for level in range(1, depth):
        inner = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} {form.format(inner)}\n")
    return "".join(lines)


def _nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _walk_holders(value: Any) -> Any:
    if isinstance(value, (dict, list)) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _walk_holders(inner)
