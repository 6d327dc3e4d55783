"""The editor in the browser: `create_app` is the server, `serve` runs it on this machine."""

from geoco.web.server import create_app, serve
from geoco.web.settings import Settings

__all__ = ["Settings", "create_app", "serve"]
