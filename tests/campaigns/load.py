"""Many clients on one server, its memory watched: every answer is the work, or a clear busy.

The server is `geoco serve` with the model that ships, in a process of its own, on this machine's
loopback. Clients open pictures and short films, edit, drag (previews of old and new states), look
at all frames and close. Meanwhile forty others each send the most of a large upload, and stop.
Every tenth session is a film's and all have as many edits, so that rates compare: which is whose,
and the order, are drawn.
"""

import contextlib
import http.client
import io
import itertools
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from geoco.web.settings import MEBIBYTE, Settings

BUSY = (503, 408)
UNFINISHED, UNFINISHED_BYTES = 40, 31 * MEBIBYTE
ASKED = ("edits",) * 6 + ("previews",) * 3 + ("frames",) * 3  # in a session, in any order
FILMS_EVERY = 10  # sessions
LONGEST_WAIT = 10.0  # seconds until a busy server is asked again, if it says nothing sooner
WARMING = 15.0  # seconds in which the first scenes are opened; edits count from then on


def _draw_film() -> bytes:
    """A GIF of four frames, each a square elsewhere."""
    frames = [Image.new("RGB", (64, 64), "grey") for _ in range(4)]
    for number, frame in enumerate(frames):
        frame.paste((200, 40, 40), (8 + 8 * number, 20, 24 + 8 * number, 36))
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


FILM = _draw_film()


@dataclass
class Load:
    """What came of it."""

    clients: int
    seconds: float
    answers: Counter[str] = field(default_factory=Counter)
    edits: int = 0
    counts_from: float = 0.0
    slowest: float = 0.0
    before: float = 0.0  # MiB of the server, once it has answered a first edit
    peak: float = 0.0
    ending: float = 0.0  # seconds from SIGTERM, at work, to the end
    failures: list[str] = field(default_factory=list)
    sessions: Iterator[int] = field(default_factory=itertools.count)  # numbers of those opened


def run_load(clients: int, seconds: float, seed: int = 0, unfinished: int = UNFINISHED) -> Load:
    """So many clients for so long."""
    load = Load(clients, seconds)
    process = subprocess.Popen(
        [sys.executable, "-m", "geoco.cli", "serve", "geoco-solids", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = _read_port(process)
        first = _Client(port, random.Random(seed), load)
        first.work(time.monotonic())  # the first is slow
        load.answers.clear()
        load.edits, load.slowest = 0, 0.0
        load.before = _read_memory(process.pid, "VmRSS")
        load.counts_from = time.monotonic() + WARMING
        end = load.counts_from + seconds
        threads = [
            threading.Thread(
                target=_Client(port, random.Random(f"{seed} {n}"), load).work, args=(end,)
            )
            for n in range(clients)
        ]
        session = first._ask("POST", "/api/sessions")["id"] if unfinished else ""
        threads += [
            threading.Thread(target=_send_half, args=(port, session, end))
            for _ in range(unfinished)
        ]
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, end - time.monotonic()))
        load.peak = _read_memory(process.pid, "VmHWM")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        load.ending = time.monotonic() - began
        for thread in threads:
            thread.join(30)
        written = process.stderr.read() if process.stderr else ""
        if "Traceback" in written:
            load.failures.append(f"the server wrote a traceback: {written[-600:]}")
    finally:
        process.kill()  # nothing where it has ended
        process.communicate()  # closes its pipes
    most = 1.2 * Settings().all_bytes / MEBIBYTE
    if load.peak > most:
        load.failures.append(f"{clients} clients: {load.peak:.0f} MiB, more than {most:.0f}")
    if load.ending > 10:
        load.failures.append(f"{clients} clients: the server ended after {load.ending:.1f} s")
    return load


def format_load(loads: list[Load]) -> str:
    """The summary, as Markdown."""
    rows = [
        "| Clients | answers | busy | other | edits a second | slowest | memory before | at most "
        "| end |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in loads:
        counts = [one.answers[name] for name in ("done", "busy", "other")]
        columns = " | ".join(f"{count:,}" for count in counts)
        rows.append(
            f"| {one.clients} | {columns} | {one.edits / one.seconds:.1f} | {one.slowest:.1f} s | "
            f"{one.before:.0f} MiB | {one.peak:.0f} MiB | {one.ending:.1f} s |"
        )
    return "\n".join(rows)


class _Client:
    def __init__(self, port: int, draw: random.Random, load: Load) -> None:
        self.port, self.draw, self.load = port, draw, load
        self.end = 0.0

    def work(self, end: float) -> None:
        """Sessions one after the other until the end; at least one."""
        self.end = end
        once = end - time.monotonic() < 1
        while once or time.monotonic() < end:
            session = self._ask("POST", "/api/sessions")
            if session is None:
                return
            self._edit_scene(f"/api/sessions/{session['id']}", once)
            if once:
                return

    def _edit_scene(self, root: str, once: bool) -> None:
        if once or next(self.load.sessions) % FILMS_EVERY != FILMS_EVERY // 2:
            state = self._ask("POST", f"{root}/scenes", {"sample": "scene-1"})
        else:
            state = self._ask("POST", f"{root}/uploads", FILM)
        states = [] if state is None else [state["id"]]
        for kind in self.draw.sample(ASKED, len(ASKED)) if states else ():
            edit = {"op": "move", "slot": self.draw.randrange(6), "dx": self.draw.randint(-9, 9)}
            old = f"{root}/states/{self.draw.choice(states)}"
            if kind == "frames":
                self._ask("GET", f"{old}/frames")
                continue
            answer = self._ask("POST", f"{old}/{kind}", edit)
            if answer is not None and kind == "edits":
                self.load.edits += self.load.counts_from < time.monotonic() < self.end
                states.append(answer["id"])
        self._ask("DELETE", root)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, None where there is none; a busy server is asked again, as it says."""
        while True:
            began = time.monotonic()
            try:
                status, headers, text = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() < self.end:
                    self._note("other", f"{method}: {type(error).__name__}: {error}")
                return None
            if time.monotonic() < self.end or self.end < began:
                self.load.slowest = max(self.load.slowest, time.monotonic() - began)
            if status < 300:
                self.load.answers["done"] += 1
                return json.loads(text) if text else {}
            if status not in BUSY:
                self._note("other", f"{method} {path[-20:]}: {status} {text[:200]}")
                return None
            self.load.answers["busy"] += 1
            if status == 503 and "Retry-After" not in headers:
                self._note("other", "busy, but it does not say until when")
            if time.monotonic() > self.end + 1:
                return None
            time.sleep(min(float(headers.get("Retry-After", 1)), LONGEST_WAIT))

    def _send(self, method: str, path: str, body: Any) -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            content = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def _note(self, kind: str, problem: str) -> None:
        self.load.answers[kind] += 1
        self.load.failures.append(f"{self.load.clients} clients: {problem}")


def _send_half(port: int, session: str, end: float) -> None:
    """Uploads of which the last part never comes, again and again."""
    block = b"x" * MEBIBYTE
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=15) as upload,
        ):
            head = f"POST /api/sessions/{session}/uploads HTTP/1.1\r\nHost: localhost\r\n"
            upload.sendall(f"{head}Content-Length: {UNFINISHED_BYTES}\r\n\r\n".encode())
            for _ in range(UNFINISHED_BYTES // MEBIBYTE - 1):
                upload.sendall(block)
            upload.recv(100)
        time.sleep(2)


def _read_port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.search(r":(\d+)", line)
    if match is None:
        raise RuntimeError(f"the server did not begin: {line}{process.communicate()[1]}")
    port = int(match[1])
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return port
        time.sleep(0.1)
    raise RuntimeError("the server does not listen")


def _read_memory(process: int, what: str) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:  # not on this system
        return 0.0
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) / 1024
    )
