"""Around every request: who may ask, how much may come in, and what browsers are told.

Another site in the same browser can send requests to this machine, or point a name of its own at
it. So only known names are answered, and no page but our own.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoco.web.sessions import Sessions
from geoco.web.settings import MEBIBYTE, Settings
from geoco.web.work_queue import ENDING

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

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self.app, self.settings, self.sessions = app, settings, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
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
        body = _Body(receive, most, self.settings, self.sessions)
        try:
            body.reserve(_read_length(headers))
        except HTTPException as busy:
            await _send_refusal(send_with_headers, 503, busy.detail, (busy.headers or {}))
            return
        try:
            await self.app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            pass  # nobody is left to be answered
        except asyncio.CancelledError:  # the server ends, and waits for nobody any more
            if not started:
                await _send_refusal(send_with_headers, 503, ENDING, {"Retry-After": "1"})
        finally:
            self.sessions.forget(body.reserved)

    def _find_refusal(self, headers: Headers, most: int) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if _strip_port(host) not in self.settings.hosts:
            known = ", ".join(self.settings.hosts)
            return 400, f"this server answers to {known} only: open it by one of these names"
        origin = headers.get("origin")
        try:
            foreign = origin is not None and urlsplit(origin).netloc != host
        except ValueError:
            return 400, "the origin of this request is no address that can be read"
        if foreign:
            return 403, "this server takes requests from its own page only"
        if _read_length(headers) > most:
            return 413, _describe_limit(most)
        return None


class _Body:
    """What comes in of a request: a length may be left out, or be a lie, so it is counted.

    A length that is told has its room from the beginning. Were it given as bytes come in, many
    large files at once would all be refused when the most of each has come.
    """

    def __init__(self, receive: Receive, most: int, settings: Settings, sessions: Sessions) -> None:
        self.received, self.reserved = 0, 0  # bytes
        self._receive, self._most = receive, most
        self._settings, self._sessions = settings, sessions
        self._complete = False
        self._end = time.monotonic() + settings.request_seconds

    def reserve(self, count: int) -> None:
        """Room for so many bytes in all; 503 where there is none."""
        if count > self.reserved:
            self._sessions.receive(count - self.reserved)
            self.reserved = count

    async def receive(self) -> Message:
        if self._complete:  # only the end of the connection can follow
            return await self._receive()
        wait = min(self._settings.silent_seconds, self._end - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), wait)
        except TimeoutError:
            raise HTTPException(
                408, "the request does not come in: send it again, faster", {"Connection": "close"}
            ) from None
        count = len(message.get("body", b""))
        if self.received + count > self._most:
            raise HTTPException(413, _describe_limit(self._most))
        self.received += count
        self.reserve(self.received)
        self._complete = not message.get("more_body", False)
        return message


def _read_length(headers: Headers) -> int:
    """The length that a request says it has, 0 if it does not."""
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        return 0
    return int(length[:19])  # of more digits enough to be too much


def _strip_port(host: str) -> str:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _describe_limit(most: int) -> str:
    limit = f"{most // MEBIBYTE} MiB" if most >= MEBIBYTE else f"{most} bytes"
    return f"the request is too large: at most {limit} are read here"


async def _send_refusal(
    send: Send, status: int, detail: str, more: Mapping[str, str] = MappingProxyType({})
) -> None:
    body = json.dumps({"detail": detail}).encode()
    own = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    headers = Headers({**own, **more}).raw
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
