"""The training loop: one explicit loop, interrupted and resumed anywhere.

A run is a function of its configuration: initial weights, the order of clips and every random
number follow from the seed and the step, so that all a checkpoint must hold is weights, moments and
the number of the step.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from lightning.fabric import Fabric
from rich.console import Console
from torch import Tensor

from geoco import drawing
from geoco.config import Config, WindowConfig
from geoco.data import open_dataset, open_training, to_device
from geoco.data.loader import Feed, Order, ResidentFeed, Rows, StreamFeed
from geoco.data.mixture import ClipDataset
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.training import diagnostics, features
from geoco.training.curriculum import TERMS, Curriculum
from geoco.training.logs import SCHEDULE, RunLogs
from geoco.training.metrics_log import draw_curves
from geoco.training.objective import Draws
from geoco.training.report import TrainingReport
from geoco.training.run_folder import Run
from geoco.training.step import Stepper

_SHOWN = 8  # scenes of a picture
_DRAWS, _VALIDATION = 1, 2  # what a random stream is for


@dataclass(frozen=True)
class ValidationClips:
    """Validation clips with fixed starting positions: what pictures show, and what the best
    checkpoint is chosen by.
    """

    video: Tensor
    positions: Tensor


class Trainer:
    """A run in progress."""

    def __init__(self, run: Run, fabric: Fabric, console: Console) -> None:
        self.run, self.fabric = run, fabric
        self.config: Config = run.config
        self.settings = self.config.train
        if self.settings.batch % fabric.world_size:
            raise GeocoError(
                f"train.batch {self.settings.batch} cannot be divided among {fabric.world_size} "
                "processes: choose a multiple"
            )
        torch.manual_seed(self.settings.seed)
        checkpoints.sweep(run.checkpoints)
        last = checkpoints.find_latest(run.checkpoints)
        # A checkpoint has all tensors, so that a run goes on where its encoder's folder is gone.
        self.model = build(self.config.model, pretrained=last is None).to(fabric.device)
        if last is not None:  # before the optimisers: averages begin with these weights
            weights = checkpoints.read_weights(last)
            checkpoints.load_into(self.model, weights.tensors, str(last))
        self.curriculum = Curriculum(self.config, self.model.cold_scale)
        self.stepper = Stepper(self.model, self.config, fabric)
        self.step = 0 if last is None else weights.step
        if last is not None and self.step:  # at step 0 there are no more than weights
            self.stepper.load_state(checkpoints.read_state(last).tensors)
        self.report = TrainingReport(
            console,
            fabric.is_global_zero,
            self.curriculum.steps,
            self.settings.batch,
            fabric.device.type == "cpu",
        )
        self._until: float | None = None  # when preparing frames is no use any more
        self._clips: ValidationClips | None = None
        self._feeds: dict[int, Feed] = {}
        self._features: Tensor | None = None  # of all frames, on the device
        self.logs = RunLogs.open(run, self.stepper, self.step) if fabric.is_global_zero else None

    def prepare(self, until: float | None = None) -> None:
        """Get ready for the next step; an error where `until` would pass before that."""
        self._until = until
        try:
            if not self._is_finished():
                self._open_feed(self.curriculum.plan(self.step).mode.frames)
            self._clips = self._load_validation()
        except BaseException:
            self.close()
            raise

    def train(self, until: float | None = None) -> bool:
        """Go on to the end, or to a time of the monotonic clock; True at the end.

        A checkpoint is left always.
        """
        if self._clips is None:
            self.prepare(until)
        try:
            try:
                self._loop(until)
            finally:
                # Also after an interruption, and by `_check` not after a loss gone wrong.
                if sys.exc_info()[0] in (None, KeyboardInterrupt):
                    self._save()
        finally:
            self.close()
        if self.fabric.is_global_zero:
            losses = self.stepper.columns[:-1]  # all but the norm of gradients
            draw_curves(self.run.metrics, self.run.folder / "curves.png", losses)
        return self._is_finished()

    def close(self) -> None:
        if self.logs is not None:
            self.logs.close()

    def _loop(self, until: float | None) -> None:
        with self.report:
            self.report.begin(self.step)
            while not self._is_finished():
                before, at = self.step, time.monotonic()
                self._train_interval(until)
                rate = (self.step - before) / (time.monotonic() - at)
                if self.logs is not None:
                    images = rate * self.settings.batch
                    values = {"milliseconds_per_step": 1000 / rate, "images_per_second": images}
                    self.logs.pace.append(self.step, values)
                if self._is_time_up(until):
                    break

    # -- the loop's parts --------------------------------------------------------------------------

    def _train_interval(self, until: float | None) -> None:
        """Steps until metrics are logged; one process alone also stops at a time."""
        settings = self.settings
        assert self._clips is not None
        while True:
            self._advance()
            if self.report.is_due(self.step) or self._is_finished():
                self.report.update(self.step, self._describe_losses())
            is_logged = self.step % settings.log_every == 0 or self._is_finished()
            if is_logged:
                self._log_metrics()
            if self.step % settings.picture_every == 0 or self._is_finished():
                self._draw_scenes(self._clips)
            if self.step % settings.checkpoint_every == 0:
                self._save()
            if self.step % settings.validate_every == 0 or self._is_finished():
                self._validate(self._clips)
            alone = self.fabric.world_size == 1  # others would have to be asked at every step
            if is_logged or (alone and self._is_time_up(until)):
                return

    def _is_time_up(self, until: float | None) -> bool:
        """Whether to stop here. Of many processes the first says so for all: clocks differ."""
        if until is None:
            return False
        is_up = time.monotonic() > until
        return self.fabric.broadcast(is_up) if self.fabric.world_size > 1 else is_up

    def _advance(self) -> None:
        plan = self.curriculum.plan(self.step)
        batch = self._open_feed(plan.mode.frames)(self.step)
        draws = self._sample_draws(self.step, plan.mode.frames)
        if self.step % self.settings.picture_every == 0:
            norms = diagnostics.measure_gradient_norms(self.stepper, batch, draws, plan)
            if self.logs is not None:
                self.logs.gradients.append(self.step, norms)
        self.stepper(batch, draws, plan)
        self.step += 1

    def _describe_losses(self) -> str:
        """The phase, and mean losses since they were last logged; changes nothing."""
        stepper, plan = self.stepper, self.curriculum.plan(self.step - 1)
        means = dict(zip(stepper.columns, (stepper.sums / stepper.count).tolist(), strict=True))
        active = [t for t in stepper.objective.terms if t not in TERMS or t in plan.mode.terms]
        return f"{plan.phase}: {' '.join(f'{term} {means[term]:.2e}' for term in active)}"

    def _log_metrics(self) -> None:
        """Read the metrics off the device and write them down."""
        self._check()
        stepper, plan = self.stepper, self.curriculum.plan(self.step - 1)
        means = dict(zip(stepper.columns, (stepper.sums / stepper.count).tolist(), strict=True))
        stepper.sums.zero_()
        stepper.count.zero_()
        if self.logs is not None:
            self.logs.metrics.append(self.step, means | {k: getattr(plan, k) for k in SCHEDULE})

    def _check(self) -> None:
        """Stop at a loss that is not finite; the weights are still those before it."""
        if float(self.stepper.stopped) == 0:
            return
        values = dict(zip(self.stepper.columns, self.stepper.last.tolist(), strict=True))
        broken = [name for name, value in values.items() if not np.isfinite(value)]
        self.step = self._count_good_steps()
        path = self._write(self.run.folder / "failed")
        raise GeocoError(
            f"step {self.step}: {', '.join(broken)} not finite; the state before this step is in "
            f"{path.relative_to(self.run.folder.parent)}: lower train.learning_rate, or look at "
            "the clips of this step"
        )

    def _count_good_steps(self) -> int:
        """Steps that changed the weights: the count that AdamW keeps of them."""
        counts = [int(entry["step"]) for entry in self.stepper.optimizer.state.values()]
        return max(counts, default=0)

    def _validate(self, clips: ValidationClips) -> None:
        self._check()
        if not self.fabric.is_global_zero:
            return
        with self.fabric.autocast(), self.stepper.averaged():
            value = diagnostics.measure_psnr(self.model, clips.video, clips.positions)
        assert self.logs is not None
        self.logs.validation.append(self.step, {"psnr": value})
        best = checkpoints.find_best(self.run.checkpoints)
        if best is None or value > best.value or best.step > self.step:
            self._write_checkpoint()
            checkpoints.mark_best(self.run.checkpoints, self.step, value)

    def _draw_scenes(self, clips: ValidationClips) -> None:
        if not self.fabric.is_global_zero:
            return
        with self.fabric.autocast(), self.stepper.averaged():
            picture = diagnostics.draw_scenes(
                self.model, clips.video[:_SHOWN, :1], clips.positions[:_SHOWN]
            )
        drawing.save_pictures(self.run.pictures / f"step-{self.step:08d}.png", [picture])

    def _save(self) -> None:
        self._check()
        if self.fabric.is_global_zero:
            self._write_checkpoint()
        self.fabric.barrier()

    def _write_checkpoint(self) -> None:
        self._write(self.run.checkpoints)
        checkpoints.prune(self.run.checkpoints, self.settings.keep)

    def _write(self, folder: Path) -> Path:
        with self.stepper.averaged():
            weights, state = self.model.state_dict(), self.stepper.state()
            return checkpoints.save(folder, self.step, self.config, weights, state)

    def _is_finished(self) -> bool:
        return self.step == self.curriculum.steps

    # -- inputs ------------------------------------------------------------------------------------

    def _open_feed(self, frames: int) -> Feed:
        """Training clips of a length; a phase with another length gets another feed."""
        if frames not in self._feeds:
            cut = WindowConfig(length=frames, stride=self.settings.stride)
            dataset = open_training(self.config, cut)
            order = Order(len(dataset), self.settings.batch, self.settings.seed)
            rank, share = self.fabric.global_rank, self.settings.batch // self.fabric.world_size

            def rows(step: int) -> np.ndarray:
                return order(step)[rank * share : (rank + 1) * share]

            self._feeds.clear()  # first: on the device there need not be room for both
            self._feeds[frames] = self._make_feed(dataset, rows)
        return self._feeds[frames]

    def _make_feed(self, dataset: ClipDataset, rows: Rows) -> Feed:
        kept, device = self.settings.features, self.fabric.device
        store = features.open_store(self.config, self.model) if kept == "store" else None
        if self.settings.feed == "stream":
            return StreamFeed(dataset, rows, device, store)
        if kept != "step" and self._features is None:
            self._features = (
                features.compute_resident(self.model, dataset, self.settings, device)
                if store is None
                else features.load_resident(store, dataset, device)
            )
        watch = self.report.watch_preparation(self._until)
        return ResidentFeed(dataset, rows, device, watch, self._features)

    def _sample_draws(self, step: int, frames: int) -> Draws:
        """This process's rows of the step's random numbers."""
        generator = self._make_generator(_DRAWS, step)
        whole = Draws.sample(generator, self.settings.batch, frames, self.model.slot_count)
        share = self.settings.batch // self.fabric.world_size
        rows = slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)
        return Draws(*(self._to_device(value[rows]) for value in vars(whole).values()))

    def _load_validation(self) -> ValidationClips:
        dataset = open_dataset(self.config.data, "val")
        count = min(self.settings.validation, len(dataset))
        rows = np.linspace(0, len(dataset) - 1, count).round().astype(int).tolist()
        video = self._to_device(dataset.batch_frames(rows).images())
        generator = self._make_generator(_VALIDATION, 0)
        return ValidationClips(video, self.model.draw_positions(count, generator))

    def _make_generator(self, purpose: int, step: int) -> torch.Generator:
        """Numbers for one purpose and step, on the CPU: the same on every machine."""
        key = np.random.SeedSequence((self.settings.seed, purpose, step))
        return torch.Generator().manual_seed(int(key.generate_state(1, np.uint64)[0] >> 1))

    def _to_device(self, value: Tensor) -> Tensor:
        return to_device(value, self.fabric.device)
