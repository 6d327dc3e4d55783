"""A run's numbers at Weights & Biases, beside its own files; only where `train.wandb` asks for it.

What goes there is a copy: nothing is read back, and no random number is drawn for it.
"""

import math
import secrets
from collections.abc import Mapping
from typing import Any

from geoco.errors import GeocoError
from geoco.files import write_whole
from geoco.training.run_folder import Run

_ID = "wandb-id.txt"  # in the run's folder


class WandbLog:
    """A run at Weights & Biases; a resumed training goes on with the same one."""

    def __init__(self, run: Run) -> None:
        wandb = import_wandb()
        try:
            self._run = wandb.init(
                project=run.config.train.wandb,
                name=run.folder.resolve().name,
                id=_read_id(run),
                resume="allow",
                dir=str(run.folder),
                config=run.config.model_dump(mode="json"),
                # Numbers only: neither what is printed nor whose code it is.
                settings=wandb.Settings(console="off", disable_git=True, disable_code=True),
            )
        except wandb.Error as error:
            raise GeocoError(
                f"train.wandb={run.config.train.wandb}: Weights & Biases cannot begin: "
                f"{' '.join(str(error).split())}; log in by wandb login, or set WANDB_MODE=offline"
            ) from None
        # Its own count of steps cannot go back to a checkpoint, so ours is a value like the others.
        self._run.define_metric("*", step_metric="step")

    def append(self, group: str, step: int, values: Mapping[str, float]) -> None:
        known = {f"{group}/{name}": float(value) for name, value in values.items()}
        self._run.log({"step": step} | {k: v for k, v in known.items() if not math.isnan(v)})

    def close(self) -> None:
        self._run.finish()


def import_wandb() -> Any:
    """The package, which is optional."""
    try:
        # A folder `wandb` of runs would pass for a package; it has no such names.
        from wandb import Error, Settings, init  # noqa: F401
    except ImportError:
        raise GeocoError(
            "train.wandb needs the package wandb: pip install 'geoco-savi[wandb]', or leave "
            "train.wandb out"
        ) from None
    import wandb

    return wandb


def _read_id(run: Run) -> str:
    """What the run is called there; chosen once."""
    file = run.folder / _ID
    if not file.exists():
        write_whole(file, f"{secrets.token_hex(8)}\n".encode())
    return file.read_text(encoding="utf-8").strip()
