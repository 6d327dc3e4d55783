"""Model cards: what a published model is, how it came about, what it can do and what it cannot.

The front matter is what the Hub reads. Everything below it follows from the configuration, the
run's own files and the results of `geoco eval`; only the note is anybody's own words.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from geoco.config import (
    Config,
    ConvEncoderConfig,
    DinoEncoderConfig,
    FolderSource,
    MoviSource,
    Obj3DSource,
    SolidsConfig,
    Split,
)
from geoco.errors import GeocoError
from geoco.evaluation import build_text_tables, covers_videos, format_markdown
from geoco.files import parse_json
from geoco.models.dino import STAND_IN
from geoco.models.interface import Model, parameter_table
from geoco.models.reconstruction_quality import QualityReference
from geoco.training import metrics_log, run_folder
from geoco.training.curriculum import Curriculum

PICTURES = "pictures"  # the folder beside the card
# Figures of an evaluation that a card shows, and what a card says of them.
SHOWN = {
    "strips": "Objects under every command: frame, reconstruction, masks, moves, sizes, transplant",
    "response": "Extent of objects against the commanded scale factor",
    "failures": "The edits of lowest F1 of each kind: before, as asked, as done",
}
_PACE = "pace.csv"
_DECODERS = {
    "steered": "scale-steered convolutions",
    "conventional": "ordinary convolutions",
    "canonical": "a canonical canvas that is warped into place",
}
_SPLITS: dict[Split, str] = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class History:
    """What a run's folder knows of how it went; None is what it does not know."""

    hours: float | None = None
    machine: str | None = None
    software: str | None = None
    began: str | None = None  # with what other runs' checkpoints, if they were set otherwise
    weights: str | None = None  # the model whose weights it began with at step 0


@dataclass(frozen=True)
class MeasuredResults:
    """Results of `geoco eval`: of which split, of whom, its tables, and figures by name."""

    split: Split
    population: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    figures: Mapping[str, Path]


@dataclass(frozen=True)
class Card:
    """All that a card says."""

    name: str
    config: Config
    model: Model
    step: int
    scales: tuple[float, float]
    psnr: tuple[float, int]  # the mean over how many first windows, in dB
    history: History = field(default_factory=History)
    results: MeasuredResults | None = None
    note: str = ""
    selector: str | None = None  # how it came about, if not with the rest
    quality: QualityReference | None = None

    def to_markdown(self) -> str:
        """The card as Markdown."""
        parts = [
            self._write_front_matter(),
            f"# {self.name}",
            self._describe_model(),
            *([self.note.strip()] if self.note.strip() else []),
            *self._show_picture("strips"),
            self._explain_use(),
            self._describe_training(),
            *self._show_results(),
            self._list_failures(),
            *self._show_picture("failures"),
            self._list_files(),
        ]
        return "\n\n".join(parts) + "\n"

    @property
    def trial(self) -> str | None:
        """What to say of a training that was not the whole schedule; None of one that was."""
        budget, last = self.config.train.budget, self._count_steps()
        if budget == 1 and self.step >= last:
            return None
        stopped = f", stopped at step {self.step:,} of {last:,}" if self.step < last else ""
        return f"A shortened schedule, train.budget={budget:g}{stopped}: a trial."

    def _write_front_matter(self) -> str:
        dataset = name_dataset(self.config)
        front = {
            "license": "mit",
            "library_name": "geoco",
            "tags": ["object-centric-learning", "slot-attention", "image-editing", "pytorch"],
            **({} if dataset is None else {"datasets": [dataset]}),
        }
        return f"---\n{yaml.safe_dump(front, sort_keys=False)}---"

    def _describe_model(self) -> str:
        size = self.model.size
        sentences = [
            f"{self._name_method()}: it takes a picture of {size} x {size} pixels apart into "
            f"{self.model.slot_count} slots with an appearance, a position "
            "and a scale each, and draws them again after any of these was changed.",
            *([self._describe_parts()] if self.config.model.kind == "geoco" else []),
            *([f"**{self.trial}**"] if self.trial else []),
        ]
        return " ".join(sentences)

    def _describe_parts(self) -> str:
        model = self.config.model
        encoder = _name_features(model.encoder)
        extras = [
            *(["a selector that gives stray pixels back"] if model.selector.enabled else []),
            *(["a temporal initializer"] if model.temporal.enabled else []),
        ]
        decoder = _DECODERS.get(model.decoder.design, "a decoder of another design")
        return (
            f"Read by {encoder}, drawn by {decoder} "
            f"(`{model.decoder.design}`){''.join(f', with {extra}' for extra in extras)}."
        )

    def _name_method(self) -> str:
        train = self.config.train
        kind: str = self.config.model.kind
        if kind != "geoco":
            return f"A model of the kind `{kind}`"
        if train.weights.geo and any("geo" in phase.terms for phase in train.phases):
            return "GeoCo-SAVi, geometry-consistent slot attention"
        return "Isotropic slot attention without geometry consistency"

    def _explain_use(self) -> str:
        return f"""## Use

```python
from geoco import Editor

scene = Editor.load("{self.name}").encode("frame.png")
scene.move(1, dx=6, dy=0).save("out.png")
```

```sh
geoco edit frame.png --move 1:6,0 -o out.png --model {self.name}
geoco serve {self.name}
```

`geoco.from_pretrained("{self.name}")` gives the network alone. Where this model did not come with
the package, its folder or its id on the Hub stands for the name."""

    def _describe_training(self) -> str:
        train, history = self.config.train, self.history
        schedule = f"{self.step:,} of the schedule's {self._count_steps():,}"
        if train.budget != 1:
            schedule += f" (train.budget={train.budget:g} of {train.steps:,})"
        time = None if history.hours is None else _format_duration(history.hours)
        known = {
            "data": describe_data(self.config),
            "steps": schedule,
            "batch": str(train.batch),
            "seed": str(train.seed),
            "precision": train.precision,
            "began": history.began,
            "time": time,
            "selector": self.selector,
            "started on": history.machine,
            "software": history.software,
        }
        rows = [f"| {name} | {value} |" for name, value in known.items() if value is not None]
        counts = [
            f"| {name} | {trainable:,}{f' and {frozen:,} frozen' if frozen else ''} |"
            for name, trainable, frozen in parameter_table(self.model)
        ]
        command, again = "geoco train config.yaml", "does the same again"
        if history.weights is not None:
            command += f" --weights {history.weights}"
        if self.selector is not None:  # one of later did not act on the training
            again = "trains a model like it, whose selector learns along"
        elif history.began is not None and history.weights is None:
            again = "trains a model like it, by this configuration from the first step on"
        return "\n".join(
            (
                "## Training\n",
                "| | |",
                "|---|---|",
                *rows,
                "\n| Part | Parameters |",
                "|---|---:|",
                *counts,
                f"\n[config.yaml](config.yaml) is the whole configuration: `{command}` {again}.",
            )
        )

    def _show_results(self) -> list[str]:
        mean, count = self.psnr
        first = f"PSNR of the first {count} validation windows: {mean:.2f} dB on average"
        results = self.results
        if results is None:
            return [f"## Results\n\n{first}. No tables: nobody gave results of `geoco eval`."]
        about = results.population
        texts = build_text_tables(self.name, results.tables, covers_videos(about))
        if isinstance(getattr(self.config.data, "source", None), FolderSource):
            # The paper's rows are of other data, and say nothing about somebody's own videos.
            texts = [replace(text, paper=None) for text in texts]
        tables = format_markdown("Results", about, texts)
        head, body = re.sub("^#", "##", tables, flags=re.MULTILINE).strip().split("\n\n", 1)
        split = _SPLITS[results.split]
        lead = f"{first}. The tables below are those of `geoco eval` on the {split} split."
        return [head, lead, *self._show_picture("response"), body]

    def _list_failures(self) -> str:
        low, high = self.scales
        kinds = name_dataset(self.config) or "the videos it was trained on"
        lines = [
            f"- It knows the kind of scenes it was trained on ({kinds}) and nothing else; pictures "
            f"are cut to a square and fitted to {self.model.size} x {self.model.size} pixels.",
            f"- Objects had scales from {low:.3f} to {high:.3f} in training (the middle 98% over "
            "training windows); the editor warns where an edit leaves that range.",
            *self._describe_quality(),
            *([f"- {self.trial} Expect less than the method can do."] if self.trial else []),
        ]
        editing = self.results.tables.get("editing") if self.results else None
        for kind in ("position", "scale", "transplant") if editing else ():
            scores = editing["all"][kind] if editing else {}
            f1 = scores["f1"]["estimate"]
            if f1 is None:
                continue
            worse = f1 <= scores["noop"]
            lines.append(
                f"- {kind.capitalize()}: the object disappeared in {scores['disappeared']:,} of "
                f"{scores['disappearable']:,} edits; F1 is {f1:.1f}%, where leaving the picture "
                f"alone gives {scores['noop']:.1f}%{', so edits do not help' if worse else ''}."
            )
        return "\n".join(("## Known failures\n", *lines))

    def _describe_quality(self) -> list[str]:
        reference = self.quality
        if reference is None:
            return []
        return [
            f"- It makes something of any picture. The editor warns where its PSNR is below "
            f"{reference.lowest:.1f} dB, as of nearly none of {reference.frames:,} frames "
            f"({reference.source})."
        ]

    def _list_files(self) -> str:
        return f"""## Files

- `weights.safetensors`: the model, with its configuration in the header; nothing is unpickled.
- `first-windows.safetensors`: frames, masks and PSNR of the first validation windows;
  `geoco verify {self.name}` computes masks and PSNR again and compares.
- `quality.json`: quantiles of the PSNR of validation frames, by which the editor tells pictures of
  another kind."""

    def _show_picture(self, name: str) -> list[str]:
        shown = self.results is not None and name in self.results.figures
        return [f"![{SHOWN[name]}]({PICTURES}/{name}.png)"] if shown else []

    def _count_steps(self) -> int:
        return Curriculum(self.config, self.model.cold_scale).steps


def read_history(run: Path | None, step: int, every: int) -> History:
    """What a run's folder says of its first `step` steps; a file that is damaged says nothing.

    It logged its pace every so many steps: one that began with another run's checkpoint may not
    know how long the steps before took.
    """
    if run is None:
        return History()
    machine: str | None
    software: str | None
    began: str | None
    weights: str | None
    try:
        known = parse_json((run / run_folder.ENVIRONMENT).read_text(encoding="utf-8"))
        device = "CPU" if known["device"] == "cpu" else str(known["device"])
        machine = f"{device}, {known['cpus']} cores"
        # A package that was run without being installed has no version.
        ours = f"geoco {known['geoco']}, " if known["geoco"] else ""
        software = f"{ours}PyTorch {known['torch']}, Python {known['python']}"
        origins = known.get("began", [])
        began = _describe_origins(origins)
        weights = origins[0].get("weights") if len(origins) == 1 else None
    except (OSError, ValueError, KeyError, TypeError):
        machine = software = began = weights = None
    try:
        pace = metrics_log.read_metrics(run / _PACE)
        steps, each = pace["step"], pace["milliseconds_per_step"]
    except (GeocoError, KeyError):
        return History(None, machine, software, began, weights)
    if steps and steps[0] > every:
        return History(None, machine, software, began, weights)
    spent = sum(
        (after - before) * milliseconds
        for (before, after), milliseconds in zip(
            itertools.pairwise([0.0, *steps]), each, strict=True
        )
        if after <= step
    )
    return History(spent / 3_600_000 if spent else None, machine, software, began, weights)


def _describe_origins(origins: Sequence[Mapping[str, Any]]) -> str | None:
    sentences = []
    for origin in origins:
        differs = ", ".join(f"`{name}`" for name in origin["differs"])
        if "weights" in origin:
            text = f"with the weights of `{origin['weights']}` at its step {origin['trained']:,}"
            sentences.append(text + (f", trained with another {differs}" if differs else ""))
        elif differs:
            sentences.append(f"at step {origin['step']:,} of a run with another {differs}")
    return "; ".join(sentences) or None


def name_dataset(config: Config) -> str | None:
    """What the Hub's front matter calls the data; None for somebody's own videos."""
    data = config.data
    if isinstance(data, SolidsConfig):
        return "solids"
    match data.source:
        case Obj3DSource():
            return "obj3d"
        case MoviSource(name=name):
            return name
        case _:
            return None


def _name_features(encoder: ConvEncoderConfig | DinoEncoderConfig) -> str:
    if isinstance(encoder, ConvEncoderConfig):
        return "convolutions"
    if Path(encoder.weights).name == STAND_IN:
        return f"features of `{STAND_IN}`, a stand-in for DINOv2 and not its published weights"
    return f"DINOv2 features (`{encoder.weights}`)"


def describe_data(config: Config) -> str:
    """The training data in a line."""
    extra_stores = [
        f"{store.path.name} ({store.times} times as often)" for store in config.train.extra_stores
    ]
    return "; and ".join((_describe_own_data(config), *extra_stores))


def _describe_own_data(config: Config) -> str:
    data = config.data
    size = f"{data.height} x {data.width} pixels"
    if isinstance(data, SolidsConfig):
        kind = "textured `solids`" if data.textured else "`solids`"
        return (
            f"{kind}, the embedded generator: {data.episodes.train:,} videos of {data.frames} "
            f"frames, {size}, seed {data.seed}; no download"
        )
    match data.source:
        case Obj3DSource():
            return f"Obj3D as published, {size}"
        case MoviSource(name=name):
            return f"MOVi-{name[-1].upper()}, {size}"
        case FolderSource():
            return f"a folder of videos, {size}"
        case _:
            return f"imported videos, {size}"


def _format_duration(hours: float) -> str:
    """Hours as people say them."""
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} seconds"
    return f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:.1f} hours"
