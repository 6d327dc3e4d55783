"""Shape and type annotations of the package are checked while the tests run, and only then."""

from jaxtyping import install_import_hook

hook = install_import_hook("geoco", "annotations.check")
