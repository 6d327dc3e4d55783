"""A clip as it would have been with one object moved, resized or swapped, rendered anew.

    python examples/movi_like/counterfactuals.py OBJECTS MAPS stores/movi-like --split val \\
        --clip 3 --move 2 8 0 --out moved.png

The commands are those of `geoco.solids`, held through all frames. Everything else stays: the
flight of all objects, the light and the camera.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from camera import compute_shift, project_points
from clips import SPLITS, Library, Recipe, draw_clip
from generate import describe_settings, get_prepared_folder
from jaxtyping import Bool
from rendering import RAYS, Body, Pictures, Scene, render_amodal, render_clip

from geoco.data.store import read_index
from geoco.data.store_writer import check_recipe
from geoco.drawing import compose_sheet, magnify, overlay_masks, save_pictures
from geoco.errors import GeocoError
from geoco.solids import Move, Replace, Scale

SHOWN = 6  # frames of a picture

Edit = Move | Scale | Replace


@dataclass(frozen=True)
class Counterfactual:
    """An edited clip; `amodal` holds whole objects, hidden parts included."""

    pictures: Pictures
    amodal: Bool[np.ndarray, "time object rays rays"]


def render_counterfactual(
    scene: Scene, edit: Edit, size: int, draw_donor: Callable[[int], Scene]
) -> Counterfactual:
    """What an edit makes of a clip; `draw_donor` gives the clip with a `Replace`'s donor."""
    edited = edit_scene(scene, edit, size, draw_donor)
    return Counterfactual(render_clip(edited, size), render_amodal(edited, size))


def edit_scene(scene: Scene, edit: Edit, size: int, draw_donor: Callable[[int], Scene]) -> Scene:
    """The scene after an edit. Pixels are those of frames of `size` x `size`."""
    item = _check_object(scene, edit.object)
    match edit:
        case Move():
            return _move(scene, item, (edit.dx, edit.dy), size)
        case Scale():
            if not 0 < edit.factor < np.inf:
                raise GeocoError(f"{edit}: the factor must be a positive number")
            body = scene.bodies[item]
            return _set_body(scene, item, replace(body, size=body.size * edit.factor))
        case Replace():
            donor = draw_donor(edit.donor_scene)
            return _swap(scene, item, donor, _check_object(donor, edit.donor_object))


def _move(scene: Scene, item: int, pixels: tuple[float, float], size: int) -> Scene:
    """Along the picture plane, in every frame as far as its depth there asks for."""
    _, depth = project_points(scene.camera, scene.positions[:, item], size)
    positions = scene.positions.copy()
    # What is behind the camera is not seen, and stays.
    positions[:, item] += compute_shift(scene.camera, np.maximum(depth, 0), pixels, size)
    return replace(scene, positions=positions)


def _swap(scene: Scene, item: int, donor: Scene, donor_item: int) -> Scene:
    """The donor's object at this place and of this size, turned as the donor's camera sees it."""
    body = Body(donor.bodies[donor_item].object, scene.bodies[item].size)
    swapped = _set_body(scene, item, body)
    rotations = scene.rotations.copy()
    rotations[:, item] = scene.camera.axes.T @ donor.camera.axes @ donor.rotations[:, donor_item]
    return replace(swapped, rotations=rotations)


def _set_body(scene: Scene, item: int, body: Body) -> Scene:
    return replace(scene, bodies=(*scene.bodies[:item], body, *scene.bodies[item + 1 :]))


def _check_object(scene: Scene, item: int) -> int:
    if not 0 <= item < len(scene.bodies):
        raise GeocoError(f"object {item}: the clip has objects 0 to {len(scene.bodies) - 1}")
    return item


def draw_sheet(factual: Pictures, edited: Counterfactual) -> np.ndarray:
    """Frames before, frames after and masks after, at a few times."""
    times = np.linspace(0, len(factual.frames) - 1, SHOWN).round().astype(int)
    before, after = factual.frames[times], edited.pictures.frames[times]
    shown = [magnify(frame, RAYS) for frame in after]
    masks = edited.pictures.masks[times]
    return compose_sheet(
        [
            [magnify(frame, RAYS) for frame in before],
            shown,
            [overlay_masks(*pair) for pair in zip(shown, masks, strict=True)],
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", type=Path, help="the folders that the store was made of")
    parser.add_argument("maps", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--split", choices=SPLITS, default="val")
    parser.add_argument("--clip", type=int, required=True)
    commands = parser.add_mutually_exclusive_group(required=True)
    commands.add_argument("--move", type=float, nargs=3, metavar=("OBJECT", "DX", "DY"))
    commands.add_argument("--resize", type=float, nargs=2, metavar=("OBJECT", "FACTOR"))
    commands.add_argument("--swap", type=int, nargs=3, metavar=("OBJECT", "CLIP", "DONOR"))
    parser.add_argument("--out", type=Path, required=True, help="a .png picture or .npz arrays")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except GeocoError as error:
        raise SystemExit(f"error: {error}") from None


def run(arguments: argparse.Namespace) -> None:
    """Carry out the command line's edit of a clip that the store has."""
    path = arguments.store / arguments.split
    settings = read_index(path).settings
    made = settings["source"]
    recipe = Recipe(**{name: made[name] for name in vars(Recipe())})
    library = Library(arguments.objects, arguments.maps, get_prepared_folder(arguments.store))
    check_recipe(path, settings, describe_settings(library, recipe))

    def draw(number: int) -> Scene:
        return draw_clip(library, recipe, arguments.split, number).scene

    edit: Edit
    if arguments.move:
        edit = Move(int(arguments.move[0]), *arguments.move[1:])
    elif arguments.resize:
        edit = Scale(int(arguments.resize[0]), arguments.resize[1])
    else:
        edit = Replace(*arguments.swap)
    scene = draw(arguments.clip)
    edited = render_counterfactual(scene, edit, recipe.size, draw)
    factual = render_clip(scene, recipe.size)
    if arguments.out.suffix == ".npz":
        np.savez_compressed(
            arguments.out,
            frames=edited.pictures.frames,
            masks=edited.pictures.masks,
            amodal=edited.amodal,
            factual_frames=factual.frames,
            factual_masks=factual.masks,
            factual_amodal=render_amodal(scene, recipe.size),
        )
    else:
        save_pictures(arguments.out, [draw_sheet(factual, edited)])
    print(f"wrote {arguments.out}: {edit}")


if __name__ == "__main__":
    main()
