"""GeoCo-SAVi: slots with explicit appearance, position and scale that obey commands."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoco.edit import Editor, Film, Scene
    from geoco.zoo import from_pretrained

__all__ = ["Editor", "Film", "Scene", "from_pretrained"]


def __getattr__(name: str) -> Any:
    """The editor and the models, once asked for: they take seconds to import, and few need them."""
    if name == "from_pretrained":
        from geoco import zoo

        return zoo.from_pretrained
    if name in __all__:
        from geoco import edit

        return getattr(edit, name)
    raise AttributeError(f"module 'geoco' has no attribute {name!r}")
