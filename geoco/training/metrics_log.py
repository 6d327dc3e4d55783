"""What a run measures, by step: rows in a CSV file and for TensorBoard, and a picture of them.

A run that was killed and resumed has the rows of one that was not.
"""

import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from geoco.errors import GeocoError
from geoco.files import write_whole

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class MetricsLog:
    """Rows of numbers by step, in a CSV file and for TensorBoard; continues a file that is there.

    A value that was not measured at some step is nan. `copy`, if given, gets every row, too.
    """

    def __init__(
        self,
        path: Path,
        tensorboard: Path,
        columns: Sequence[str],
        copy: Callable[[int, Mapping[str, float]], None] | None = None,
    ) -> None:
        self.columns, self._copy = tuple(columns), copy
        self._path, self._tensorboard = path, tensorboard
        self._writer: SummaryWriter | None = None
        self._purge: int | None = None
        header = ",".join(("step", *self.columns))
        lines = _read_lines(path) if path.exists() else []
        if lines and lines[0] != header:
            raise GeocoError(
                f"{path}: its columns are {lines[0]}, but this run would write {header}: start it "
                "in another folder"
            )
        self._rewrite(lines or [header])

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Add the row of `step`. Once this returns, no kill can lose it."""
        assert values.keys() == set(self.columns), f"expected {self.columns}, got {tuple(values)}"
        row = [repr(float(values[name])) for name in self.columns]  # exact, and short
        self._file.write(",".join((str(step), *row)) + "\n")
        self._file.flush()
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(str(self._tensorboard), purge_step=self._purge)
        for name in self.columns:
            if not math.isnan(values[name]):
                self._writer.add_scalar(name, float(values[name]), step)
        self._writer.flush()
        if self._copy is not None:
            self._copy(step, values)

    def rewind(self, step: int) -> None:
        """Forget `step` and all after it, which a run resumed from there does again."""
        self.close()
        header, *rows = _read_lines(self._path)
        done = read_metrics(self._path)["step"]
        self._rewrite([header, *(row for row, at in zip(rows, done, strict=True) if at < step)])
        self._purge = step

    def close(self) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _rewrite(self, lines: Sequence[str]) -> None:
        write_whole(self._path, "".join(f"{line}\n" for line in lines).encode())
        self._file = self._path.open("a", encoding="utf-8", newline="\n")


def read_metrics(path: Path) -> dict[str, list[float]]:
    """The columns of a metrics file, `step` first; a last line that a kill cut off is left out."""
    try:
        lines = _read_lines(path)
    except OSError as error:
        raise GeocoError(f"{path}: cannot read these metrics: {error.strerror}") from None
    names = lines[0].split(",") if lines else ["step"]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            row = [float(field) for field in line.split(",")]
        except ValueError:
            row = []
        if len(row) != len(names):
            raise GeocoError(
                f"{path}: line {number} is damaged: expected {len(names)} numbers, got '{line}'"
            )
        rows.append(row)
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def draw_curves(path_csv: Path, path_png: Path, losses: Collection[str]) -> None:
    """Draw columns of losses, on a logarithmic axis, and learning rates over the steps.

    Rates are the columns that say `learning_rate`; other columns are left out.
    """
    # Here, since training needs it rarely and importing it takes a while.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = read_metrics(path_csv)
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for name, values in columns.items():
        rate = "learning_rate" in name
        if not (rate or name in losses):
            continue
        # Terms are zero outside their phases, which a logarithmic axis cannot show: a gap.
        heights = [v if math.isfinite(v) and (rate or v > 0) else math.nan for v in values]
        count = sum(map(math.isfinite, heights))
        if count:
            axes = below if rate else above
            marker = "." if count < 30 else None
            axes.plot(columns["step"], heights, marker=marker, linewidth=0.9, label=name)
    if above.lines:
        above.set_yscale("log")
    below.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    below.set_xlabel("step")
    for axes, label in ((above, "loss terms"), (below, "learning rate")):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    write_whole(path_png, buffer.getvalue())


def _read_lines(path: Path) -> list[str]:
    """The whole lines of a file; one without its line break was cut off by a kill."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
