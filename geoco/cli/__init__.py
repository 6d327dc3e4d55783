"""The command line; `geoco.cli.main` is what the command `geoco` calls."""

from geoco.cli.main import main

__all__ = ["main"]
