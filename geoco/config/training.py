"""The training part of the configuration; the defaults are the paper's Obj3D recipe.

Where neither the paper nor its authors' release fixes a number, the comment says "our choice".
"""

import itertools
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from geoco.config.loading import Section
from geoco.config.yaml_text import abbreviate

Term = Literal["rec", "ov", "pos", "geo", "gate", "tail", "own"]
CenterPenalty = Literal["coordinate", "normalized"]


class PhaseConfig(Section):
    """From step `start` on these terms are active; their weights rise over `ramp` steps.

    What a phase switches on stays on until one is `without` it. Steps are of the full schedule,
    before `budget` shortens it.
    """

    name: str
    start: int = Field(0, ge=0)
    ramp: int = Field(0, ge=0)
    terms: tuple[Term, ...] = ()
    without: tuple[Term, ...] = ()  # terms that end here, or pause until a later phase has them
    center: CenterPenalty | None = None  # the penalty of transplants' centers from here on
    sharpness: float | None = Field(None, gt=0)  # gamma from here on; 2 in the paper
    recenter: float | None = Field(None, ge=0)  # our choice: masks pull positions
    frames: int | None = Field(None, ge=1)  # the length of clips from here on
    temporal: bool = False  # whether the temporal initializer is switched on here


OBJ3D_PHASES = (
    PhaseConfig(name="reconstruction", terms=("rec", "gate")),
    PhaseConfig(name="factual calibration", start=15_000, ramp=2000, terms=("pos", "ov")),
    PhaseConfig(name="transplantation", start=40_000, ramp=2000, terms=("geo",)),
    PhaseConfig(name="normalized centers", start=50_000, center="normalized"),
    PhaseConfig(name="tail", start=60_000, terms=("tail",)),
)


class LossWeights(Section):
    """The full weight of each term; zero leaves a term out."""

    rec: float = Field(1.0, ge=0)
    ov: float = Field(0.01, ge=0)
    pos: float = Field(0.2, ge=0)
    geo: float = Field(0.002, ge=0)
    gate: float = Field(1e-4, ge=0)
    tail: float = Field(1e-3, ge=0)
    own: float = Field(0.005, ge=0)  # our choice, as is the term
    compactness: float = Field(0.25, ge=0)  # of geo's third part


class ReferenceScaleConfig(Section):
    """Continuation of the reference scale from that of uniform attention to the decoder's own."""

    start: int = Field(2000, ge=0)
    length: int = Field(8000, ge=1)


class SlotQualityConfig(Section):
    """Which slots hold an object, and which are fit for transplants; judged on detached values."""

    fewest_pixels: int = Field(20, ge=0)
    most_coverage: float = Field(0.6, gt=0, le=1)
    least_peak: float = Field(0.3, ge=0, le=1)
    largest_scale: float = Field(0.3, gt=0)
    fewest_tokens: float = Field(2.0, ge=0)  # effective attention, 1 / sum of squares
    most_tokens: float = Field(0.75, gt=0, le=1)  # a share of all
    border: int = Field(2, ge=0)  # pixels between an object and the edge
    deviations: float = Field(2.5, ge=0)  # how far an object reaches from its position
    most_overlap: float = Field(0.5, gt=0, le=1)  # cosine of attention with any other slot
    scale_ratio: tuple[float, float] = (0.6, 1.67)  # recipient over donor
    position_coverage: float = Field(1.0, gt=0, le=1)  # the largest support that pos looks at
    coherent: bool = False  # MOVi-C's refinement
    least_compactness: float = Field(1.0, ge=0)
    fewest_coherent_tokens: float = Field(8.0, ge=0)
    least_agreement: float = Field(0.6, ge=0, le=1)  # IoU of hard ownership and training support


class SelectorTeacherConfig(Section):
    """The selector's tri-state teacher."""

    density_ratio: tuple[float, float] = (1.2, 1.8)  # smoothstep of alpha's over attention's
    gain: tuple[float, float] = (0.0, 0.05)  # smoothstep of the action's gain
    harmful: float = -0.02
    individual: float = -0.05
    window: int = Field(9, ge=3)
    fewest_neighbours: int = Field(4, ge=1)
    quantile: float = Field(0.95, gt=0, lt=1)
    most_error: float = Field(5.0, gt=0)  # in units of that quantile


class SelectorTrainingConfig(Section):
    start: int = Field(35_000, ge=0)
    apply: int = Field(36_200, ge=0)
    ramp: int = Field(3800, ge=0)  # of the transfer's cap
    learning_rate: float = Field(3e-4, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    warmup: int = Field(25, ge=0)
    clip: float = Field(1.0, gt=0)
    protected: float = Field(2.0, ge=0)  # lambda_-
    rank: float = Field(0.25, ge=0)  # lambda_rank
    temperature: float = Field(0.5, gt=0)
    rank_margin: float = Field(0.5, ge=0)
    teacher: SelectorTeacherConfig = SelectorTeacherConfig()


class TemporalTrainingConfig(Section):
    """The temporal initializer's learning rate: its own warm-up from the step it is switched on."""

    factor: float = Field(0.25, gt=0)
    warmup: int = Field(2000, ge=0)
    # Our choice, after RandSF.Q: the start of a frame is predicted from any earlier frame's slots.
    random_pairs: bool = False


class ExtraStoreConfig(Section):
    """A store whose training clips join those of `data`, each `times` times as often."""

    path: Path
    times: int = Field(1, ge=1)


class TrainConfig(Section):
    """Optimisation, curriculum and what is written down on the way."""

    steps: int = Field(70_000, ge=1)
    budget: float = Field(1.0, gt=0, le=1)  # shortens every number of steps of the schedule
    batch: int = Field(64, ge=1)  # of all processes together
    seed: int = Field(42, ge=0)
    learning_rate: float = Field(4e-4, gt=0)
    # Our choice: matrices of encoder and decoder by Muon at this rate; without, all by AdamW.
    muon_learning_rate: float | None = Field(None, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup: int = Field(10_000, ge=0)
    clip: float = Field(0.05, gt=0)
    ema: float | None = Field(None, gt=0, lt=1)  # decay of averaged weights, which then are used
    precision: Literal["bf16-mixed", "32-true"] = "bf16-mixed"
    compile: bool = True
    graph: bool = True  # on one GPU: a step is recorded once and replayed
    feed: Literal["resident", "stream"] = "stream"  # all frames on the device, or read as needed
    # A frozen encoder's features: computed in every step, once for all and kept on the device
    # beside resident frames, or read from `feature_store`, which `geoco data features` makes.
    features: Literal["step", "resident", "store"] = "step"
    feature_store: Path | None = None
    stride: int = Field(1, ge=1)  # clips start at every so many frames; our choice
    flip: bool = False  # mirror half of the clips
    extra_stores: tuple[ExtraStoreConfig, ...] = ()
    phases: tuple[PhaseConfig, ...] = Field(OBJ3D_PHASES, min_length=1)
    weights: LossWeights = LossWeights()
    huber: float = Field(0.05, gt=0)
    own_width: float = Field(0.04, gt=0)  # our choice: colours so far apart count as two
    own_against: Literal["slot", "frame"] = "slot"  # our choice: background's colours and whose
    # Without (our choice), pos and the factual half of tail also reach positions and scales: all
    # gradients then need one backward pass instead of two.
    separate_pass: bool = True
    reference: ReferenceScaleConfig = ReferenceScaleConfig()
    quality: SlotQualityConfig = SlotQualityConfig()
    geometry_frames: tuple[int, ...] = Field((0, 2), min_length=1)  # of a clip, that geo looks at
    selector: SelectorTrainingConfig = SelectorTrainingConfig()
    temporal: TemporalTrainingConfig = TemporalTrainingConfig()
    log_every: int = Field(50, ge=1)
    checkpoint_every: int = Field(1000, ge=1)
    validate_every: int = Field(1000, ge=1)
    picture_every: int = Field(5000, ge=1)
    validation: int = Field(64, ge=1)  # clips of the validation split that choose the best
    keep: int = Field(2, ge=1)  # checkpoints
    wandb: str | None = Field(None, min_length=1)  # a project at Weights & Biases to log to

    @model_validator(mode="after")
    def _in_order(self) -> "TrainConfig":
        starts = [phase.start for phase in self.phases]
        if self.features == "resident" and self.feed != "resident":
            raise ValueError("features can be 'resident' only where feed is 'resident', too")
        if self.features == "store" and self.feature_store is None:
            raise ValueError("features are to be read from a store: set feature_store to it")
        if starts[0] != 0 or any(b < a for a, b in itertools.pairwise(starts)):
            raise ValueError(f"phases must start at 0 and be in order, got {abbreviate(starts)}")
        return self
