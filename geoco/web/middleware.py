"""Around every request: who may ask, how much may come in, and what browsers are told.

Another site in the same browser can send requests to this machine, or point a name of its own at
it. So only known names are answered, and no page but our own.
"""

import json
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoco.web.settings import MEBIBYTE, Settings

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
BULKY = ("/uploads", "/imports")  # where files come in


class RequestGuard:
    """Checks hosts and origins, counts bytes, sets headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                own = scope["path"].startswith("/api/")
                headers["Cache-Control"] = "no-store" if own else "no-cache"
            await send(message)

        headers = Headers(scope=scope)
        most = (
            self.settings.upload_bytes
            if scope["path"].endswith(BULKY)
            else self.settings.request_bytes
        )
        refusal = self._find_refusal(headers, most)
        if refusal is not None:
            await _send_refusal(send_with_headers, *refusal)
            return
        await self.app(scope, _limit_bytes(receive, most), send_with_headers)

    def _find_refusal(self, headers: Headers, most: int) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if _strip_port(host) not in self.settings.hosts:
            known = ", ".join(self.settings.hosts)
            return 400, f"this server answers to {known} only: open it by one of these names"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "this server takes requests from its own page only"
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) > most:
            return 413, _describe_limit(most)
        return None


def _limit_bytes(receive: Receive, most: int) -> Receive:
    """A length may be left out, or be a lie: what really comes is counted."""
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise HTTPException(413, _describe_limit(most))
        return message

    return receive_counted


def _strip_port(host: str) -> str:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _describe_limit(most: int) -> str:
    limit = f"{most // MEBIBYTE} MiB" if most >= MEBIBYTE else f"{most} bytes"
    return f"the request is too large: at most {limit} are read here"


async def _send_refusal(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
