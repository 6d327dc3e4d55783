"""Shape and type annotations of the package are checked while the tests run, and only then."""

from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent
# Leaves only, since a package's name would stand for all below it. Triton reads the source of its
# kernels, so nothing may wrap them.
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "geoco").rglob("*.py"))
    if path.name != "__init__.py" and not path.name.startswith("kernels")
]

hook = install_import_hook(MODULES, "annotations.check")


@pytest.fixture
def no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 means float32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
