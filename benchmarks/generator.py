"""Frames per second of the embedded generator, and whether CPU and CUDA draw the same picture.

    python benchmarks/generator.py [--device cuda] [--episodes 64]

Simulation costs little more for many episodes than for few, and is in processor seconds: on a GPU
"everything" is of the whole training split, as training asks for it, and elsewhere of the episodes.

The peer is what a training loop would otherwise do on the same machine in the same run: decode the
same frames from PNG with Pillow, one core.
"""

import argparse
import io
import resource
import statistics
import time

import numpy as np
import torch
from PIL import Image

from geoco.config import EpisodesConfig, SolidsConfig
from geoco.data.solids import SolidsDataset
from geoco.solids import (
    Canvas,
    Scenes,
    extract_scenes,
    render_layers,
    render_scenes,
    simulate_episodes,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--episodes", type=int, default=16)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one thread"
    if device.type == "cpu":
        torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, {name}, 64 x 64, 3 x 3 samples per pixel")

    config = SolidsConfig()
    for count in sorted({16, arguments.episodes, config.episodes.train}):
        begun = time.process_time()
        simulate_episodes(config, "train", np.arange(count))
        physics = time.process_time() - begun
        each = 1e6 * physics / (count * config.frames)
        print(f"physics     {each:10.1f} ms per 1,000 frames of {count} episodes, CPU")
    episodes = simulate_episodes(config, "train", np.arange(arguments.episodes))

    chosen = np.repeat(np.arange(arguments.episodes), config.frames)
    scenes = extract_scenes(episodes, chosen, np.tile(np.arange(config.frames), arguments.episodes))
    canvas = Canvas(config.height, config.width, config.supersample)
    scenes = scenes.to(device)
    visible = _measure_rate(scenes, canvas, device)
    with_masks = _measure_rate(scenes, canvas, device, amodal=True)
    print(f"render      {visible:10.0f} frames/s   frames and visible masks")
    print(f"render      {with_masks:10.0f} frames/s   frames, visible and amodal masks")
    few = scenes[: min(len(scenes), 256)]
    started = time.perf_counter()
    render_layers(few, canvas)
    _wait(device)
    print(f"layers      {len(few) / (time.perf_counter() - started):10.0f} frames/s   on demand")

    if device.type == "cpu":
        config = SolidsConfig(episodes=EpisodesConfig(train=arguments.episodes))
    started = time.perf_counter()
    count = sum(len(part.frames) for part in SolidsDataset(config, "train").render_all(device))
    _wait(device)
    whole = count / (time.perf_counter() - started)
    split = 292_000 / whole
    print(f"everything  {whole:10.0f} frames/s   physics, render, masks: {split:.0f} s for a split")
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:10.2f} GiB on the GPU")
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"peak memory {peak:10.2f} GiB, PyTorch itself included")

    peer = _measure_png(render_scenes(scenes[:500], canvas).frames.cpu())
    print(f"peer        {peer:10.0f} frames/s   Pillow decoding the same frames from PNG")
    print(f"ratio       {visible / peer:10.2f} render / peer")
    if device.type == "cuda":
        _compare(scenes[:2000], canvas)


def _measure_rate(
    scenes: Scenes, canvas: Canvas, device: torch.device, amodal: bool = False
) -> float:
    """Median of five passes over the scenes, after one to warm up."""
    seconds = []
    for _ in range(6):
        _wait(device)
        started = time.perf_counter()
        render_scenes(scenes, canvas, amodal=amodal)
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return len(scenes) / statistics.median(seconds[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _measure_png(frames: torch.Tensor) -> float:
    encoded = []
    for frame in frames.permute(0, 2, 3, 1).numpy():
        file = io.BytesIO()
        Image.fromarray(frame).save(file, format="PNG")
        encoded.append(file.getvalue())
    started = time.perf_counter()
    for data in encoded:
        np.asarray(Image.open(io.BytesIO(data)))
    return len(encoded) / (time.perf_counter() - started)


def _compare(scenes: Scenes, canvas: Canvas) -> None:
    there, here = render_scenes(scenes, canvas), render_scenes(scenes.to("cpu"), canvas)
    difference = (there.frames.cpu().int() - here.frames.int()).abs().amax(1)
    edge = torch.nn.functional.max_pool2d(here.masks.float()[:, None], 3, 1, 1)
    edge = edge != -torch.nn.functional.max_pool2d(-here.masks.float()[:, None], 3, 1, 1)
    inner = difference[~edge[:, 0]]
    print(
        f"CPU and CUDA, {len(scenes)} frames: {float((difference == 0).float().mean()):.6f} of "
        f"pixels equal, largest difference {int(difference.max())}, off edges {int(inner.max())}, "
        f"masks differ on {int((there.masks.cpu() != here.masks).sum())} pixels"
    )


if __name__ == "__main__":
    main()
