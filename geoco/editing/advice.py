"""What to say of a picture that a model redraws badly, and which model or path would fit better."""

from functools import lru_cache

from geoco.config import Config
from geoco.editing.editor import Editor, Film, Scene
from geoco.models import pretrained
from geoco.models.reconstruction_quality import Quality, format_share

UNUSUAL_BELOW = 0.05  # the rank under which other models are tried, too
CLEARLY_BETTER = 1.0  # dB, of a model that is named instead of one that knows the picture
OWN_PICTURES = "train one on your own pictures, see docs/own-videos.md"


def describe_doubt(scene: Scene | Film) -> str | None:
    """A sentence on a picture that this model does not know, or another one knows better.

    None where there is nothing to say, or no reference to compare with.
    """
    quality = scene.quality.median if isinstance(scene, Film) else scene.quality
    rank = quality.rank
    if quality.reference is None or rank is None or rank >= UNUSUAL_BELOW:
        return None
    name, better = f"the model {scene.editor.name}", _find_better_model(scene, quality)
    if not quality.is_known:
        what = "videos" if isinstance(scene, Film) else "pictures"
        numbers = (
            f"PSNR {quality.psnr:.1f} dB, {quality.reference.lowest:.1f} or more where it does"
        )
        path = f"no shipped model does: {OWN_PICTURES}" if better is None else f"{better} does"
        return f"{name} does not know {what} of this kind ({numbers}); {path}"
    if better is None:
        return None
    worse = (
        f"worse than {format_share(1 - rank)} of the frames it knows (PSNR {quality.psnr:.1f} dB)"
    )
    return f"{name} redraws this {worse}; {better} fits it better"


def _find_better_model(scene: Scene | Film, own: Quality) -> str | None:
    """The shipped model that knows this picture and redraws it best, with its PSNR; or None."""
    frames = scene.frames
    if isinstance(scene, Film):
        frames = frames[[scene.psnr.index(own.psnr)]]
    found: list[tuple[float, str]] = []
    for name in pretrained.list_shipped():
        other = None if name == scene.editor.name else _load_editor(name)
        if other is None or other.model.size != scene.editor.model.size:
            continue
        quality = other.encode(frames[0], scene.seed).quality
        # Where this model knows the picture, too, the other must have it among its usual ones.
        fits = quality.is_known and (not own.is_known or (quality.rank or 0) >= UNUSUAL_BELOW)
        if fits and quality.psnr >= own.psnr + CLEARLY_BETTER:
            found.append((quality.psnr, name))
    best = max(found, default=None)
    return None if best is None else f"{best[1]} (PSNR {best[0]:.1f} dB)"


@lru_cache
def _load_editor(name: str) -> Editor | None:
    """The editor of a shipped model; None of one that redraws pictures and does not obey."""
    loaded = pretrained.load(name)
    return Editor(loaded) if _learned_commands(loaded.config) else None


def _learned_commands(config: Config) -> bool:
    """Whether a model was trained to do what it is told, and not to redraw alone."""
    train = config.train
    return train.weights.geo > 0 and any("geo" in phase.terms for phase in train.phases)
