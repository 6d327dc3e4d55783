"""Run a campaign and print its summary: PYTHONPATH=tests python -m campaigns.run --cases 10000

`--kinds` takes names of kinds, separated by commas; `--server` adds the load on a server.
"""

import argparse
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path

from campaigns.campaign import format_table, run_kind
from campaigns.kinds import KINDS
from campaigns.load import format_load, run_load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--server", type=float, default=0, help="seconds of each load")
    arguments = parser.parse_args()
    chosen = [
        kind for kind in KINDS if not arguments.kinds or kind.name in arguments.kinds.split(",")
    ]
    total = sum(kind.share for kind in chosen)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # of libraries, about damaged files
    tallies = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind in chosen:
            cases = round(arguments.cases * kind.share / total)
            tallies.append(run_kind(kind, cases, arguments.seed, Path(folder)))
            print(format_table(tallies[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    failures = [failure for tally in tallies for failure in tally.failures]
    print(format_table(tallies))
    print(f"\n{time.perf_counter() - began:.0f} s, seed {arguments.seed}")
    if arguments.server:
        logging.disable(logging.NOTSET)
        loads = [run_load(clients, arguments.server) for clients in (8, 64)]
        print("\n" + format_load(loads))
        failures += [failure for load in loads for failure in load.failures]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
