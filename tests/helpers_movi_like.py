"""The modules of `examples/movi_like`, importable and with checked annotations, and toy folders."""

import sys
from pathlib import Path

import numpy as np
from helpers import ROOT
from jaxtyping import install_import_hook
from PIL import Image

EXAMPLE = ROOT / "examples" / "movi_like"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))
    hook = install_import_hook(
        sorted(path.stem for path in EXAMPLE.glob("*.py")), "annotations.check"
    )

# One per side of the cube: -x, +x, -y, +y, -z, +z.
SIDES = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255))

# Quadrilaterals, each with a patch of the texture of its own, two rows of three.
CUBE = (
    "mtllib model.mtl\n"
    + "".join(f"v {x} {y} {z}\n" for x in (3, 5) for y in (0, 2) for z in (-1, 1))
    + "".join(
        f"vt {(column + u) / 3:.4f} {(row + v) / 2:.4f}\n"
        for row in (0, 1)
        for column in (0, 1, 2)
        for u, v in ((0.2, 0.2), (0.8, 0.2), (0.8, 0.8), (0.2, 0.8))
    )
    + "".join(
        "f " + " ".join(f"{corner}/{4 * side + k + 1}" for k, corner in enumerate(corners)) + "\n"
        for side, corners in enumerate(
            ((1, 2, 4, 3), (5, 7, 8, 6), (1, 5, 6, 2), (3, 4, 8, 7), (1, 3, 7, 5), (2, 6, 8, 4))
        )
    )
)
# A pyramid of height 1 over a square of side 2, its corners counted from the end of the lists.
PYRAMID = """v -1 -1 0
v 1 -1 0
v 1 1 0
v -1 1 0
v 0 0 1
vt 0.5 0.5
vn 0 0 -1
f -5/-1/-1 -4/-1/-1 -3/-1/-1 -2/-1/-1
f 1/1 2/1 5/1
f 2/1 3/1 5/1
f 3/1 4/1 5/1
f 4/1 1/1 5/1
"""


def write_objects(folder: Path) -> Path:
    """A cube in the original layout of scanned objects and a pyramid in Kubric's."""
    cube, pyramid = folder / "cube", folder / "pyramid"
    (cube / "meshes").mkdir(parents=True)
    (cube / "materials" / "textures").mkdir(parents=True)
    (cube / "meshes" / "model.obj").write_text(CUBE)
    texture = np.array(SIDES, dtype=np.uint8).reshape(2, 3, 3)[::-1]  # the first row is below
    texture = texture.repeat(60, 0).repeat(40, 1)
    Image.fromarray(texture).save(cube / "materials" / "textures" / "texture.png")
    pyramid.mkdir()
    (pyramid / "visual_geometry.obj").write_text(PYRAMID)
    Image.new("RGB", (8, 8), (200, 120, 40)).save(pyramid / "texture.png")
    return folder


def write_map(folder: Path) -> Path:
    """A grey world under a sky that has a bright spot."""
    folder.mkdir(parents=True)
    picture = np.full((32, 64, 3), 90, dtype=np.uint8)
    picture[:16] = (120, 150, 200)
    picture[8:10, 20:23] = 255
    Image.fromarray(picture).save(folder / "toy.png")
    return folder
