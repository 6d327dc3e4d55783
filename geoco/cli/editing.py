"""`geoco slots`, `edit`, `replay` and `serve`: slots of pictures and videos, and edits."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from geoco.cli.common import console, require_extra
from geoco.errors import GeocoError

ModelName = Annotated[
    str, typer.Option("--model", help="A shipped name, a run, a file of weights or a Hub id.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")]
Seed = Annotated[int, typer.Option(help="Where slots start; another may bind better.")]
SizeName = Annotated[
    str | None,
    typer.Option(
        "--size", help="original or model; original where the input is larger than the model's."
    ),
]
DEFAULT = "geoco-solids"


def slots(
    source: Annotated[Path, typer.Argument(help="A picture, a video or a folder of frames.")],
    model: ModelName = DEFAULT,
    device: Device = "cpu",
    seed: Seed = 42,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .png with outlines.")] = None,
) -> None:
    """Print what each slot holds; draw the picture and, beside it, numbered outlines.

    Of a video, its first frame. It also says whether the model knows such pictures.

    Example: `geoco slots frame.png -o slots.png`
    """
    from geoco import drawing, media
    from geoco.edit_maps import FEWEST_PIXELS
    from geoco.editing.editor import Editor

    path = out or source.with_name(f"{source.stem}-slots.png")
    _check_input(source, seed)
    media.check_target(path, is_video=False)
    # Of a video that is longer than could be edited, too, the first frame can be seen.
    first = _find_first_frame(source)
    scene = Editor.load(model, device).encode(first, seed)
    table = Table("slot", "x", "y", "scale", "pixels", "box", "")
    for slot in scene.slots:
        note = "background" if slot.is_background else "empty" if slot.area < FEWEST_PIXELS else ""
        box = "" if slot.box is None else " ".join(map(str, slot.box))
        x, y = slot.position
        table.add_row(
            str(slot.index), f"{x:.3f}", f"{y:.3f}", f"{slot.scale:.3f}", str(slot.area), box, note
        )
    console.print(table)
    console.print(str(scene.quality), highlight=False, soft_wrap=True)
    _warn_of_doubt(scene)
    zoom = max(1, 512 // scene.image.shape[0])
    original = drawing.magnify(scene.source, zoom)
    media.save_frames(path, [drawing.compose_sheet([[original, scene.draw_outlines(zoom)]])])
    console.print(f"wrote {path}", soft_wrap=True)


def edit(
    source: Annotated[Path, typer.Argument(help="A picture, a video or a folder of frames.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="A .png, .jpg, .gif, .mp4 or a new folder.")
    ],
    move: Annotated[list[str], typer.Option(help="SLOT:DX,DY in pixels.")] = [],  # noqa: B006
    move_to: Annotated[list[str], typer.Option(help="SLOT:X,Y on the grid [-1, 1].")] = [],  # noqa: B006
    resize: Annotated[list[str], typer.Option(help="SLOT:FACTOR.")] = [],  # noqa: B006
    transplant: Annotated[
        list[str], typer.Option(help="SLOT:FILE#SLOT, of a picture or a video.")
    ] = [],  # noqa: B006
    swap: Annotated[list[str], typer.Option(help="SLOT:SLOT.")] = [],  # noqa: B006
    duplicate: Annotated[list[str], typer.Option(help="SLOT:DX,DY in pixels.")] = [],  # noqa: B006
    background: Annotated[list[str], typer.Option(help="FILE, a picture or a video.")] = [],  # noqa: B006
    remove: Annotated[list[str], typer.Option(help="SLOT.")] = [],  # noqa: B006
    model: ModelName = DEFAULT,
    device: Device = "cpu",
    seed: Seed = 42,
    record: Annotated[Path | None, typer.Option(help="Write the edits, .json or .py.")] = None,
    size: SizeName = None,
) -> None:
    """Move, resize, transplant, swap, duplicate and remove objects; edits run in this order.

    Example: `geoco edit frame.png --move 2:6,0 --transplant 0:donor.png#3 -o out.png`
    """
    _check_size(size)
    texts = (move, move_to, resize, transplant, swap, duplicate, background, remove)
    edits = [
        (*action, text) for action, given in zip(_ACTIONS, texts, strict=True) for text in given
    ]
    if not edits:
        raise GeocoError("nothing to do: give at least one edit, as in --move 2:6,0")
    from geoco.editing.editor import Editor
    from geoco.files import check_writable, write_whole
    from geoco.media import check_target

    is_film = _is_video(source)
    _check_input(source, seed)
    check_target(out, is_film)
    if record is not None:
        if record.suffix not in (".json", ".py"):
            raise GeocoError(f"--record {record}: expected a .json or a .py file")
        check_writable(record)
    editor = Editor.load(model, device)
    scene: Any = (editor.encode_video if is_film else editor.encode)(source, seed)
    _warn_of_doubt(scene)
    encoded: dict[str, Any] = {}

    def encode_donor(name: str) -> Any:
        """A film gives a film its appearance frame by frame, and a picture that of its first."""
        if name not in encoded:
            path = Path(name)
            if is_film and _is_video(path):
                encoded[name] = editor.encode_video(path, seed)
            else:
                encoded[name] = editor.encode(_find_first_frame(path), seed)
        return encoded[name]

    for option, form, act, text in edits:
        try:
            scene = act(scene, text, encode_donor)
        except GeocoError:
            raise
        except (ValueError, TypeError):
            raise GeocoError(f"{option} {text}: expected {form}") from None
        for warning in scene.new_warnings:
            line = f"[yellow]{option} {text}: {warning}[/]"
            console.print(line, highlight=False, soft_wrap=True)
    _save(scene, out, size)
    if record is not None and record.suffix == ".json":
        write_whole(record, scene.to_json().encode())
    elif record is not None:
        scene.save_python(record, source)


def replay(
    source: Annotated[
        Path, typer.Argument(metavar="EDITS", help="A .json of --record, or of the page.")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="A .png, .jpg, .gif, .mp4 or a new folder.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Another model than the one it was made with.")
    ] = None,
    device: Device = "cpu",
    original: Annotated[
        Path | None, typer.Option("--source", help="The file that was edited, for its own size.")
    ] = None,
    size: SizeName = None,
) -> None:
    """Do again what an edit list says; frames and donors are in it, at the model's size.

    Example: `geoco replay edits.json --source clip.mp4 -o out.gif`
    """
    from geoco import media
    from geoco.editing import recording
    from geoco.editing.editor import Editor

    _check_size(size)
    if size == "original" and original is None:
        raise GeocoError(
            "an edit list holds frames at the model's size: name the file that was edited, as in "
            "--source frame.png"
        )
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise GeocoError(f"{source}: cannot read this: give an edit list, a .json file") from None
    media.check_target(out, recording.read_kind(text) == "Film")
    editor = Editor.load(model, device) if model else Editor.load_recorded(text, device)
    scene = recording.replay(None, text, editor, original)
    _warn_of_doubt(scene)
    _save(scene, out, size)


def serve(
    model: Annotated[str, typer.Argument(help="As for --model of geoco edit.")] = DEFAULT,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    device: Device = "cpu",
) -> None:
    """Open the editor for a browser on this machine.

    Example: `geoco serve runs/geoco --port 8000`
    """
    with require_extra("web"):
        from geoco.web import serve as run
    run(model, "127.0.0.1", port, device, console)


def _check_input(source: Path, seed: int) -> None:
    """What can be refused before a model is loaded."""
    from geoco.editing.recording import check_seed

    if not source.exists():
        raise GeocoError(f"{source}: there is no such file or folder")
    check_seed(seed)


def _find_first_frame(source: Path) -> Any:
    """A picture's path, or a video's first frame; no more of it is decoded."""
    from geoco import media

    return next(media.iterate_video(source, media.ANY_LENGTH)) if _is_video(source) else source


def _check_size(size: str | None) -> None:
    if size not in (None, "original", "model"):
        raise GeocoError(f"--size {size}: expected original or model")


def _save(scene: Any, out: Path, size: str | None) -> None:
    """Write a scene or film at a size, or at its own where that is larger than the model's."""
    model = scene.editor.model.size
    size = size or ("original" if scene.own_side > model else "model")
    scene.save(out, size)
    side = scene.own_side if size == "original" else model
    console.print(f"wrote {out}, {side} x {side} pixels", highlight=False, soft_wrap=True)


def _warn_of_doubt(scene: Any) -> None:
    from geoco.editing.advice import describe_doubt

    doubt = describe_doubt(scene)
    if doubt is not None:
        console.print(f"[yellow]{escape(doubt)}[/]", highlight=False, soft_wrap=True)


def _is_video(source: Path) -> bool:
    from geoco.media import is_video

    return is_video(source)


def _parse_pair(text: str) -> tuple[int, float, float]:
    slot, numbers = text.split(":")
    first, second = numbers.split(",")
    return int(slot), float(first), float(second)


def _parse_factor(text: str) -> tuple[int, float]:
    slot, factor = text.split(":")
    return int(slot), float(factor)


def _transplant(scene: Any, text: str, encode_donor: Any) -> Any:
    slot, source = text.split(":", 1)
    path, other = source.rsplit("#", 1)
    return scene.transplant(int(slot), encode_donor(path), int(other))


def _swap(scene: Any, text: str, _: Any) -> Any:
    slot, other = text.split(":")
    return scene.swap(int(slot), int(other))


def _duplicate(scene: Any, text: str, _: Any) -> Any:
    slot, dx, dy = _parse_pair(text)
    return scene.duplicate(slot, dx=dx, dy=dy)


_Action = Callable[[Any, str, Any], Any]  # of a scene, the option's text, and donors by path
_ACTIONS: tuple[tuple[str, str, _Action], ...] = (
    ("--move", "SLOT:DX,DY", lambda scene, text, _: scene.move(*_parse_pair(text))),
    ("--move-to", "SLOT:X,Y", lambda scene, text, _: scene.move_to(*_parse_pair(text))),
    ("--resize", "SLOT:FACTOR", lambda scene, text, _: scene.resize(*_parse_factor(text))),
    ("--transplant", "SLOT:FILE#SLOT", _transplant),
    ("--swap", "SLOT:SLOT", _swap),
    ("--duplicate", "SLOT:DX,DY", _duplicate),
    ("--background", "FILE", lambda scene, text, encode: scene.set_background(encode(text))),
    ("--remove", "SLOT", lambda scene, text, _: scene.remove(int(text))),
)
