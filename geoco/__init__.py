"""GeoCo-SAVi: slots with explicit appearance, position and scale that obey commands."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoco.editing.editor import Editor, Film, Scene
    from geoco.models.pretrained import from_pretrained

__version__ = "0.1.0"
__all__ = ["Editor", "Film", "Scene", "__version__", "from_pretrained"]


def __getattr__(name: str) -> Any:
    """The editor and the models, once asked for: they take seconds to import, and few need them."""
    if name == "from_pretrained":
        from geoco.models import pretrained

        return pretrained.from_pretrained
    if name in __all__:
        from geoco.editing import editor

        return getattr(editor, name)
    raise AttributeError(f"module 'geoco' has no attribute {name!r}")
