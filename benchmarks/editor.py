"""How immediate an edit is: encoding, against decoding everything, and through the server.

    python benchmarks/editor.py                     # the shipped model
    python benchmarks/editor.py --weights RUN       # another one

What is timed on one thread is processor time, which other work on the machine hardly changes;
encoding with all threads and the server are timed by the clock. The server runs in a process of its
own, and an answer holds the picture as PNG, the outlines and the slots.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import torch
import uvicorn

from geoco import config, media
from geoco.data import SolidsDataset
from geoco.editing.decoded import DecodedFrames
from geoco.editing.editor import Editor
from geoco.web import create_app
from geoco.web.schema import FrameAnswer
from geoco.web.server import open_listener

Clock = Callable[[], float]

TARGET_RATIO, TARGET_ENCODING, TARGET_ONE, TARGET_EIGHT = 0.3, 120.0, 30.0, 800.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default="geoco-solids", help="a shipped name or a run")
    parser.add_argument("--edits", type=int, default=40)
    arguments = parser.parse_args()
    cores = torch.get_num_threads()
    editor = Editor.load(arguments.weights)
    size, slots = editor.model.size, editor.model.slot_count
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{size} x {size}, {slots} slots, {cores} threads, load {load}", flush=True)
    print(f"\n{'':<50}{'measured':>12}{'target':>12}")

    encoding = time_encoding(editor, arguments.edits, time.perf_counter)
    print_row("encoding a picture", f"{encoding:.1f} ms", f"{TARGET_ENCODING:.0f} ms")
    torch.set_num_threads(1)
    alone = time_encoding(editor, arguments.edits, time.thread_time)
    print_row("  processor time, one thread", f"{alone:.1f} ms", "")
    one, everything = time_decoding(editor, arguments.edits)
    print_row("one edit of slot 1, one thread", f"{one:.1f} ms", "")
    print_row("decoding all slots, one thread", f"{everything:.1f} ms", "")
    print_row("ratio", f"{one / everything:.2f}", f"{TARGET_RATIO}")
    answer = time_answer(editor, arguments.edits)
    print_row("an edit of an object with its answer, one thread", f"{answer:.1f} ms", "")

    listener = open_listener("127.0.0.1", 0)
    context = multiprocessing.get_context("spawn")
    work = (listener, arguments.weights)
    process = context.Process(target=run_server, args=work, daemon=True)
    process.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        for kind in ("previews", "edits"):
            for clients, target in ((1, TARGET_ONE), (8, TARGET_EIGHT)):
                times, failed = send_edits(address, clients, arguments.edits, kind)
                name = f"server, {kind}, {clients} client{'s' * (clients > 1)} at once, median"
                print_row(name, f"{statistics.median(times):.0f} ms", f"{target:.0f} ms")
                print_row("  slowest; failed", f"{max(times):.0f} ms; {failed}", "; 0")
    finally:
        process.terminate()
        process.join()


def print_row(name: str, measured: str, target: str) -> None:
    print(f"{name:<50}{measured:>12}{target:>12}", flush=True)


def read_example(size: int) -> media.Picture:
    """A frame of the kind that the shipped model knows."""
    clip = SolidsDataset(config.SolidsConfig(height=size, width=size), "val")[0]
    return media.read_picture(clip.video[0])


def time_encoding(editor: Editor, repeats: int, clock: Clock) -> float:
    """Milliseconds of binding slots to a picture and decoding them all."""
    picture = read_example(editor.model.size)
    times = [time_call(lambda: editor.encode(picture).image, clock) for _ in range(repeats + 1)]
    return 1000 * statistics.median(times[1:])


def time_answer(editor: Editor, repeats: int) -> float:
    """Milliseconds of what a server's worker does: the edit that clients send, and its answer."""
    scene = editor.encode(read_example(editor.model.size))
    for slot in scene.slots:
        scene = scene.resize_to(slot.index, 0.85 if slot.is_background else 0.15)
    moved = next(slot.index for slot in scene.slots if not slot.is_background)

    def answer(number: int) -> str:
        edited = scene.move(moved, dx=number % 7 - 3.0)
        return FrameAnswer.from_scene(edited, 0).model_dump_json()

    answer(0)
    times = [time_call(partial(answer, number)) for number in range(repeats)]
    return 1000 * statistics.median(times)


def time_decoding(editor: Editor, repeats: int) -> tuple[float, float]:
    """Milliseconds of an edit with its picture, and of drawing the same scene from nothing."""
    scene = editor.encode(read_example(editor.model.size))
    decoded = scene.decoded
    one, everything = [], []
    for number in range(repeats):  # by turns, so that other work on the machine hits both
        one.append(time_call(lambda: scene.move(1, dx=number % 5 - 2).image))  # noqa: B023
        everything.append(
            time_call(
                lambda: DecodedFrames.decode(decoded.model, decoded.slots, decoded.attention).image
            )
        )
    return 1000 * statistics.median(one), 1000 * statistics.median(everything)


def time_call(work: Callable[[], Any], clock: Clock = time.thread_time) -> float:
    began = clock()
    work()
    return clock() - began


# -- through the server ----------------------------------------------------------------------------


def run_server(listener: socket.socket, weights: str) -> None:
    app = create_app(Editor.load(weights))
    uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).run(sockets=[listener])


def send_edits(address: str, clients: int, edits: int, kind: str) -> tuple[list[float], int]:
    """Milliseconds of every edit of clients that work at once, and how many edits failed."""
    times: list[float] = []
    failed: list[int] = []
    barrier = threading.Barrier(clients)

    def client() -> None:
        with httpx.Client(base_url=address, timeout=120) as web:
            root = f"/api/sessions/{web.post('/api/sessions').json()['id']}"
            state = web.post(f"{root}/scenes", json={"sample": "scene-1"}).json()
            for slot in state["frame"]["slots"]:
                scale = 0.85 if slot["is_background"] else 0.15
                edit = {"op": "resize_to", "slot": slot["index"], "scale": scale}
                state = web.post(f"{root}/states/{state['id']}/edits", json=edit).json()
            moved = next(
                slot["index"]
                for slot in state["frame"]["slots"]
                if slot["index"] != state["background"]
            )
            barrier.wait()
            for number in range(edits):
                move = {"op": "move", "slot": moved, "dx": number % 7 - 3.0}
                began = time.perf_counter()
                answer = web.post(f"{root}/states/{state['id']}/{kind}", json=move)
                times.append(1000 * (time.perf_counter() - began))
                if answer.is_error:
                    failed.append(answer.status_code)
                elif kind == "edits":
                    state = answer.json()
            web.delete(root)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, len(failed)


if __name__ == "__main__":
    main()
