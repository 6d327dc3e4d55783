"""GeoCo-SAVi: slots with explicit appearance, position and scale that obey commands."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoco.edit import Editor, Film, Scene

__all__ = ["Editor", "Film", "Scene"]


def __getattr__(name: str) -> Any:
    """The editor, once it is asked for: it takes seconds to import, and few commands need it."""
    if name in __all__:
        from geoco import edit

        return getattr(edit, name)
    raise AttributeError(f"module 'geoco' has no attribute {name!r}")
