"""What is written down of a run, by step; a resumed run goes on where it was."""

from dataclasses import dataclass
from functools import partial

from geoco.training.metrics_log import MetricsLog
from geoco.training.run_folder import Run
from geoco.training.step import Stepper
from geoco.training.wandb_log import WandbLog

SCHEDULE = ("learning_rate", "reference_scale", "selector_cap")  # of the plan, beside the losses


@dataclass(frozen=True)
class RunLogs:
    """The four logs of a run: its metrics, its pace, its validation, gradients by module.

    Where it is asked for, all four go to Weights & Biases as well.
    """

    metrics: MetricsLog
    pace: MetricsLog
    validation: MetricsLog
    gradients: MetricsLog
    wandb: WandbLog | None

    @staticmethod
    def open(run: Run, stepper: Stepper, step: int) -> "RunLogs":
        """Logs as they were after `step`, whatever a run that was killed had written after it."""
        modules = [name for name, _ in stepper.model.named_children()]
        columns = {
            "metrics": (*stepper.columns, *SCHEDULE),
            "pace": ("milliseconds_per_step", "images_per_second"),
            "validation": ("psnr",),
            "gradients": tuple(
                f"{term}/{module}" for term in stepper.objective.terms for module in modules
            ),
        }
        wandb = None if run.config.train.wandb is None else WandbLog(run)
        logs = []
        for name, names in columns.items():
            copy = None if wandb is None else partial(wandb.append, name)
            log = MetricsLog(run.folder / f"{name}.csv", run.tensorboard / name, names, copy)
            # Gradients are taken before a step, the others after it.
            log.rewind(step if name == "gradients" else step + 1)
            logs.append(log)
        metrics, pace, validation, gradients = logs
        return RunLogs(metrics, pace, validation, gradients, wandb)

    def close(self) -> None:
        for log in vars(self).values():
            if log is not None:
                log.close()
