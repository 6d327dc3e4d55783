"""What many GPUs would gain, on paper: from bytes and sums that were counted.

    step(n)   = fixed + (step - fixed) / n            of the same batch, divided
    network   = 2 (n - 1) / n * bytes / bandwidth + sums * 2 log2(n) * latency

Bytes go around a ring, and a short message up and down a tree: a ring would need 2 (n - 1) messages
for each sum. Bandwidth and latency are assumed. `fixed` is what does not shrink with the batch;
only optimisers and clipping were measured. A step of many processes is not recorded as a CUDA
graph, and the functions of the objective are not compiled, so that kernels are launched from
Python. What that costs was not measured; "with launches" and "larger batch" assume a time for each
launch, and that no step is shorter than all of them.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """What a process gives away in a step: sums over processes and rows for all."""

    calls: int
    size: int  # bytes
    gradient: int  # bytes of the largest call


@dataclass(frozen=True)
class Link:
    """What connects GPUs; both numbers are assumptions."""

    name: str
    bandwidth: float  # bytes per second, one way
    latency: float  # seconds of one message


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step of many processes, and how many times as fast as one it is."""

    computing: float
    network: float
    gain: float


# GPUs, how they are connected: the slowest link decides.
PLACES = (
    (2, Link("NVLink", 450e9, 3e-6)),
    (8, Link("NVLink", 450e9, 3e-6)),
    (64, Link("eight nodes, 400 Gbit/s for each GPU", 50e9, 10e-6)),
)


def time_network(count: int, traffic: Traffic, link: Link) -> float:
    """Seconds in which so many processes sum and gather what each has."""
    passed = 2 * (count - 1) / count * traffic.size / link.bandwidth
    return passed + traffic.calls * 2 * math.ceil(math.log2(count)) * link.latency


def estimate_step(
    step: float, fixed: float, count: int, traffic: Traffic, link: Link, floor: float = 0.0
) -> Estimate:
    """Of the same batch divided among so many; `floor` is what launching kernels takes."""
    computing = max(fixed + (step - fixed) / count, floor)
    network = time_network(count, traffic, link)
    return Estimate(computing, network, step / (computing + network))


def estimate_larger(
    step: float, count: int, traffic: Traffic, link: Link, floor: float = 0.0
) -> Estimate:
    """Of a batch so many times as large, as clips per second."""
    computing, network = max(step, floor), time_network(count, traffic, link)
    return Estimate(computing, network, count * step / (computing + network))


def print_estimates(traffic: Traffic, step: float, fixed: float, floor: float) -> None:
    print(
        f"\nestimate, not measured: one GPU {1e3 * step:.2f} ms, of these {1e3 * fixed:.2f} for "
        f"any batch; launching at least {1e3 * floor:.2f} ms\n"
        f"{'GPUs':>4}{'computing':>11}{'network':>9}{'gain':>7}{'with launches':>15}"
        f"{'larger batch':>14}"
    )
    for count, link in PLACES:
        best = estimate_step(step, fixed, count, traffic, link)
        launched = estimate_step(step, fixed, count, traffic, link, floor)
        larger = estimate_larger(step, count, traffic, link, floor)
        print(
            f"{count:>4}{1e3 * best.computing:>8.2f} ms{1e3 * best.network:>6.2f} ms"
            f"{best.gain:>7.1f}{launched.gain:>15.1f}{larger.gain:>14.1f}   {link.name}: "
            f"{link.bandwidth / 1e9:g} GB/s, {1e6 * link.latency:g} microseconds"
        )
