"""The command line; `geoco.cli.main` is what the command `geoco` calls."""

from geoco.cli.clock import BEGAN  # first of all
from geoco.cli.main import main

__all__ = ["BEGAN", "main"]
