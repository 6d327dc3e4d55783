"""The curriculum: the paper's schedules by hand, their short versions, and the shipped files."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoco import config, drawing
from geoco.config.training import Term
from geoco.geometry import compute_uniform_scale
from geoco.training.curriculum import TERMS, Curriculum, Mode, Plan
from geoco.training.curriculum_plot import draw_curriculum

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(CONFIGS.rglob("*.yaml"))
COLD = compute_uniform_scale(16)
VIDEO_COLD = compute_uniform_scale(24)


def obj3d(*overrides: str, name: str = "geoco") -> Curriculum:
    return Curriculum(config.load(CONFIGS / f"{name}.yaml", overrides), COLD)


def movi_c(*overrides: str) -> Curriculum:
    return Curriculum(config.load(CONFIGS / "geoco-movi-c.yaml", overrides), VIDEO_COLD)


def weights(plan: Plan) -> list[float]:
    return [plan.weights[term] for term in TERMS]


# -- Obj3D: 70,000 steps ---------------------------------------------------------------------------

OBJ3D_WEIGHTS = {  # rec, ov, pos, geo, gate, tail
    0: (1, 0, 0, 0, 1e-4, 0),
    14_999: (1, 0, 0, 0, 1e-4, 0),
    15_000: (1, 0.01 / 2000, 0.2 / 2000, 0, 1e-4, 0),
    15_999: (1, 0.005, 0.1, 0, 1e-4, 0),
    16_998: (1, 0.01 * 1999 / 2000, 0.2 * 1999 / 2000, 0, 1e-4, 0),
    16_999: (1, 0.01, 0.2, 0, 1e-4, 0),
    39_999: (1, 0.01, 0.2, 0, 1e-4, 0),
    40_000: (1, 0.01, 0.2, 1e-6, 1e-4, 0),
    40_499: (1, 0.01, 0.2, 0.0005, 1e-4, 0),
    41_999: (1, 0.01, 0.2, 0.002, 1e-4, 0),
    59_999: (1, 0.01, 0.2, 0.002, 1e-4, 0),
    60_000: (1, 0.01, 0.2, 0.002, 1e-4, 0.001),  # at once
    69_999: (1, 0.01, 0.2, 0.002, 1e-4, 0.001),
}


@pytest.mark.parametrize("step", OBJ3D_WEIGHTS)
def test_weights_of_obj3d(step: int) -> None:
    plan = obj3d().plan(step)
    assert TERMS == ("rec", "ov", "pos", "geo", "gate", "tail", "own")
    assert weights(plan) == pytest.approx((*OBJ3D_WEIGHTS[step], 0), rel=1e-12)
    assert plan.muon_learning_rate == 0
    assert plan.mode.terms == {term for term in TERMS if plan.weights[term] > 0}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 4e-8),
        (4_999, 2e-4),
        (9_999, 4e-4),
        (10_000, 4e-4),
        (25_000, 4e-4 * (2 + math.sqrt(2)) / 4),  # an eighth of a turn
        (40_000, 2e-4),
        (50_000, 1e-4),
        (69_999, 4e-4 * (math.pi / 60_000 / 2) ** 2),
        (70_000, 0),
    ],
)
def test_learning_rate_rises_and_falls_to_zero(step: int, expected: float) -> None:
    assert obj3d().plan(step).learning_rate == pytest.approx(expected, rel=1e-6, abs=1e-18)


@pytest.mark.parametrize(
    ("step", "share"), [(0, 0), (1_999, 0), (2_000, 1 / 8000), (5_999, 0.5), (9_999, 1)]
)
def test_reference_scale_is_continued_in_logarithms(step: int, share: float) -> None:
    expected = math.exp((1 - share) * math.log(0.869226987) + share * math.log(0.2))
    assert obj3d().plan(step).reference_scale == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("step", [10_000, 69_999])
def test_reference_scale_arrives_exactly(step: int) -> None:
    assert obj3d().plan(step).reference_scale == 0.2
    assert obj3d("model.decoder.reference_scale=0.3").plan(step).reference_scale == 0.3


@pytest.mark.parametrize(
    ("step", "trains", "rate", "applies", "cap"),
    [
        (34_999, False, 0, False, 0),
        (35_000, True, 3e-4 / 25, False, 0),
        (35_023, True, 3e-4 * 24 / 25, False, 0),
        (35_024, True, 3e-4, False, 0),
        (36_199, True, 3e-4, False, 0),
        (36_200, True, 3e-4, True, 2 / 3800),
        (38_099, True, 3e-4, True, 1),
        (39_999, True, 3e-4, True, 2),
        (69_999, True, 3e-4, True, 2),
    ],
)
def test_the_selector_trains_before_it_applies(
    step: int, trains: bool, rate: float, applies: bool, cap: float
) -> None:
    plan = obj3d().plan(step)
    assert (plan.mode.selector_trains, plan.mode.selector_applies) == (trains, applies)
    assert plan.selector_learning_rate == pytest.approx(rate)
    assert plan.selector_cap == pytest.approx(cap)


def test_centers_are_normalized_from_50_000() -> None:
    schedule = obj3d()
    assert schedule.plan(40_000).mode.center == "coordinate"
    assert schedule.plan(49_999).mode.center == "coordinate"
    assert schedule.plan(50_000).mode.center == "normalized"
    assert schedule.plan(69_999).mode.center == "normalized"


def test_obj3d_is_single_frames_with_nothing_temporal() -> None:
    schedule = obj3d()
    for step in (0, 35_000, 69_999):
        plan = schedule.plan(step)
        assert plan.mode.frames == 1
        assert not plan.mode.temporal
        assert plan.temporal_learning_rate == 0


def test_the_table_of_contents_of_obj3d() -> None:
    schedule = obj3d()
    assert schedule.steps == 70_000
    assert schedule.mode_starts() == [0, 15_000, 35_000, 36_200, 40_000, 50_000, 60_000]
    assert schedule.milestones() == [
        (0, "reconstruction"),
        (2_000, "reference scale moves"),
        (10_000, "reference scale final"),
        (10_000, "learning rate decays"),
        (15_000, "factual calibration"),
        (17_000, "pos and ov in full"),
        (35_000, "selector trains"),
        (36_200, "selector applies"),
        (40_000, "transplantation"),
        (40_000, "selector's cap in full"),
        (42_000, "geo in full"),
        (50_000, "normalized centers"),
        (60_000, "tail"),
    ]
    names = [schedule.plan(step).phase for step in (14_999, 15_000, 59_999, 60_000)]
    assert names == ["reconstruction", "factual calibration", "normalized centers", "tail"]


# -- MOVi-C: 100,000 steps -------------------------------------------------------------------------

MOVI_C_WEIGHTS = {  # rec, ov, pos, geo, gate, tail
    14_999: (1, 0, 0, 0, 0, 0),
    15_000: (1, 0.018 / 2000, 0.04 / 2000, 0, 0, 0),
    15_999: (1, 0.009, 0.02, 0, 0, 0),
    16_999: (1, 0.018, 0.04, 0, 0, 0),
    47_999: (1, 0.018, 0.04, 0, 0, 0),
    48_000: (1, 0.018, 0.04, 2e-6, 0, 0),
    49_999: (1, 0.018, 0.04, 0.004, 0, 0),
    99_999: (1, 0.018, 0.04, 0.004, 0, 0),
}


@pytest.mark.parametrize("step", MOVI_C_WEIGHTS)
def test_weights_of_movi_c(step: int) -> None:
    plan = movi_c().plan(step)
    assert weights(plan) == pytest.approx((*MOVI_C_WEIGHTS[step], 0), rel=1e-12)
    assert plan.mode.center == "coordinate"
    assert not plan.mode.selector_trains
    assert not plan.mode.selector_applies
    assert plan.selector_learning_rate == plan.selector_cap == 0


@pytest.mark.parametrize(
    ("step", "frames", "temporal", "rate"),
    [
        (0, 2, False, 0),
        (69_999, 2, False, 0),
        (70_000, 4, True, 1e-4 / 2000),
        (70_999, 4, True, 5e-5),
        (71_999, 4, True, 1e-4),
        (72_000, 4, True, 1e-4),
        (86_000, 4, True, 5e-5),
        (99_999, 4, True, 1e-4 * (math.pi / 28_000 / 2) ** 2),
        (100_000, 4, True, 0),
    ],
)
def test_the_temporal_initializer_enters_with_longer_clips(
    step: int, frames: int, temporal: bool, rate: float
) -> None:
    plan = movi_c().plan(step)
    assert (plan.mode.frames, plan.mode.temporal) == (frames, temporal)
    assert plan.temporal_learning_rate == pytest.approx(rate, rel=1e-6, abs=1e-18)


@pytest.mark.parametrize(
    ("step", "rate", "scale"),
    [
        (0, 4e-8, 0.851256531),
        (1_999, 8e-5, 0.851256531),
        (5_999, 2.4e-4, math.sqrt(0.851256531 * 0.2)),
        (10_000, 4e-4, 0.2),
        (55_000, 2e-4, 0.2),
        (70_000, 1e-4, 0.2),  # two thirds of the way
    ],
)
def test_rate_and_reference_of_movi_c(step: int, rate: float, scale: float) -> None:
    plan = movi_c().plan(step)
    assert plan.learning_rate == pytest.approx(rate)
    assert plan.reference_scale == pytest.approx(scale, rel=1e-8)


def test_the_modes_of_movi_c() -> None:
    schedule = movi_c()
    assert schedule.steps == 100_000
    assert schedule.mode_starts() == [0, 15_000, 48_000, 70_000]
    assert (72_000, "temporal learning rate decays") in schedule.milestones()
    assert not [text for _, text in schedule.milestones() if "selector" in text]


def test_without_the_initializer_its_phase_only_lengthens_clips() -> None:
    plan = movi_c("model.temporal.enabled=false").plan(80_000)
    assert plan.mode.frames == 4
    assert not plan.mode.temporal
    assert plan.temporal_learning_rate == 0


# -- shorter budgets -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [obj3d, movi_c])
def test_a_tenth_of_the_budget_keeps_the_shape(make: Callable[..., Curriculum]) -> None:
    """A step of the short schedule is ten of the full one, up to where in them it is looked at."""
    full, short = make(), make("train.budget=0.1")
    assert short.steps * 10 == full.steps
    assert [10 * step for step in short.mode_starts()] == full.mode_starts()
    for step in range(0, short.steps, 13):
        one, ten = short.plan(step), [full.plan(10 * step), full.plan(10 * step + 9)]
        assert one.mode == ten[0].mode == ten[1].mode
        assert one.phase == ten[0].phase
        for term in TERMS:  # the end of a rise is in both
            assert one.weights[term] == pytest.approx(ten[1].weights[term], rel=1e-9)
        pairs = [
            (one.learning_rate, [plan.learning_rate for plan in ten]),
            (one.temporal_learning_rate, [plan.temporal_learning_rate for plan in ten]),
            (one.reference_scale, [plan.reference_scale for plan in ten]),
            (one.selector_cap, [plan.selector_cap for plan in ten]),
        ]
        for value, (first, last) in pairs:
            slack = 1e-9 * max(first, last)
            assert min(first, last) - slack <= value <= max(first, last) + slack


def test_lengths_never_vanish_and_starts_keep_their_order() -> None:
    schedule = obj3d("train.budget=1e-4")  # seven steps: phases at 2 (of 1.5), 4, 5 and 6
    assert schedule.steps == 7
    assert [schedule.plan(step).phase for step in range(7)] == [
        "reconstruction",
        "reconstruction",
        "factual calibration",
        "factual calibration",
        "transplantation",
        "normalized centers",
        "tail",
    ]
    assert schedule.plan(1).weights["pos"] == 0
    assert schedule.plan(2).weights["pos"] == 0.2  # a ramp of one step
    assert schedule.plan(0).learning_rate == 4e-4  # a warm-up of one step
    assert schedule.plan(0).reference_scale == pytest.approx(0.2)
    assert obj3d("train.budget=1e-6").steps == 1
    assert obj3d("train.warmup=0", "train.budget=0.1").plan(0).learning_rate == 4e-4


@pytest.mark.parametrize("budget", [1e-4, 3e-4, 0.0057])
@pytest.mark.parametrize("make", [obj3d, movi_c])
def test_changes_are_exactly_where_the_mode_differs(
    make: Callable[..., Curriculum], budget: float
) -> None:
    schedule = make(f"train.budget={budget}")
    modes = [schedule.plan(step).mode for step in range(schedule.steps)]
    expected = [step for step, mode in enumerate(modes) if step == 0 or mode != modes[step - 1]]
    assert schedule.mode_starts() == expected
    assert len(expected) > 3


def test_modes_are_keys() -> None:
    schedule = obj3d()
    steps: dict[Mode, int] = {}
    for step in range(0, 70_000, 500):
        steps.setdefault(schedule.plan(step).mode, step)
    assert sorted(steps.values()) == [0, 15_000, 35_000, 36_500, 40_000, 50_000, 60_000]


def test_what_a_phase_switches_on_stays_on() -> None:
    twice = (
        "train.phases=[{name: a, terms: [rec]}, {name: b, start: 10, ramp: 4, terms: [pos]},"
        " {name: c, start: 20, ramp: 8, terms: [pos, geo], frames: 3}, {name: d, start: 30}]"
    )
    schedule = obj3d(twice, "model.selector.enabled=false")
    assert schedule.plan(20).weights["pos"] == 0.2  # does not rise again
    assert schedule.plan(20).weights["geo"] == 0.002 / 8
    assert [schedule.plan(step).mode.frames for step in (19, 20, 40)] == [1, 3, 3]
    assert schedule.mode_starts() == [0, 10, 20]


def test_a_term_can_pause_and_rise_again() -> None:
    phases = (
        "train.phases=[{name: a, terms: [rec]}, {name: b, start: 10, ramp: 4, terms: [pos, ov]},"
        " {name: c, start: 20, without: [pos]}, {name: d, start: 30, ramp: 2, terms: [pos]}]"
    )
    schedule = obj3d(phases, "model.selector.enabled=false")
    weights = [schedule.plan(step).weights["pos"] for step in (9, 10, 13, 19, 20, 29, 30, 31, 40)]
    assert weights == pytest.approx([0, 0.05, 0.2, 0.2, 0, 0, 0.1, 0.2, 0.2])
    assert schedule.plan(25).weights["ov"] == 0.01
    assert schedule.mode_starts() == [0, 10, 20, 30]
    names = [name for _, name in schedule.milestones()]
    assert "pos and ov in full" in names
    assert "pos in full" in names


def test_sharpness_and_recentering_are_the_papers_until_a_phase_says_otherwise() -> None:
    phases = (
        "train.phases=[{name: a, terms: [rec, pos]}, {name: b, start: 5, sharpness: 8,"
        " recenter: 0.5}, {name: c, start: 9, recenter: 0}]"
    )
    schedule = obj3d(phases)
    modes = [schedule.plan(step).mode for step in (4, 5, 8, 9)]
    assert [mode.sharpness for mode in modes] == [2, 8, 8, 8]
    assert [mode.recenter for mode in modes] == [0, 0.5, 0.5, 0]
    assert schedule.mode_starts() == [0, 5, 9, 35_000, 36_200]
    paper = obj3d()
    modes = [paper.plan(step).mode for step in range(0, 70_000, 5_000)]
    assert {(mode.sharpness, mode.recenter) for mode in modes} == {(2, 0)}


def test_the_last_word_on_centers_holds() -> None:
    back = (
        "train.phases=[{name: a, terms: [rec], center: normalized},"
        " {name: b, start: 5, center: coordinate}]"
    )
    schedule = obj3d(back)
    assert [schedule.plan(step).mode.center for step in (4, 5)] == ["normalized", "coordinate"]


def test_a_term_without_weight_is_not_announced() -> None:
    assert (17_000, "pos in full") in obj3d("train.weights.ov=0").milestones()
    texts = [text for _, text in obj3d("train.weights.geo=0").milestones()]
    assert "geo in full" not in texts


def test_nothing_begins_after_the_end() -> None:
    schedule = obj3d("train.steps=36000")
    assert schedule.mode_starts() == [0, 15_000, 35_000]
    assert max(step for step, _ in schedule.milestones()) == 35_000


# -- shipped files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_file_has_a_plan(path: Path) -> None:
    schedule = Curriculum(config.load(path, ["train.budget=2e-4"]), COLD)
    for step in range(schedule.steps):
        plan = schedule.plan(step)
        assert plan.mode.terms >= {"rec"}
        assert plan.mode.terms == {term for term in TERMS if plan.weights[term] > 0}
        assert plan.learning_rate > 0
        assert 0.2 <= plan.reference_scale <= COLD
    assert schedule.milestones()[0][0] == 0


ABLATIONS: dict[str, set[Term]] = {
    "without-ov": {"ov"},
    "without-pos": {"pos"},
    "without-geo": {"geo"},
    "without-tail": {"tail"},
    "without-readout": {"gate"},
    "without-selector": set(),
    "conventional": set(),
    "canonical": set(),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_drop_exactly_their_own(name: str) -> None:
    settings, full = config.load(CONFIGS / f"{name}.yaml"), config.load(CONFIGS / "geoco.yaml")
    schedule, complete = obj3d(name=name), obj3d()
    for step in (0, 16_000, 38_000, 41_000, 69_999):
        mine, theirs = schedule.plan(step), complete.plan(step)
        assert mine.mode.terms == theirs.mode.terms - ABLATIONS[name]
        for term in mine.mode.terms:
            assert mine.weights[term] == theirs.weights[term]
        assert mine.learning_rate == theirs.learning_rate
        trains = theirs.mode.selector_trains and name != "without-selector"
        assert mine.mode.selector_trains == trains
        assert (mine.selector_learning_rate > 0) == trains
    assert settings.data == full.data
    assert settings.model.slots.readout == (name != "without-readout")
    same_model = settings.model == full.model
    assert same_model == (name in ("without-ov", "without-pos", "without-geo", "without-tail"))
    changed = {"weights": full.train.weights}
    assert settings.train.model_copy(update=changed) == full.train


def test_isa_is_reconstruction_alone() -> None:
    schedule = obj3d(name="isa")
    assert schedule.mode_starts() == [0]
    assert schedule.plan(69_999).mode.terms == {"rec"}
    settings = config.load(CONFIGS / "isa.yaml").model
    assert settings.decoder.design == "conventional"
    assert not settings.slots.readout
    assert not settings.selector.enabled


def test_slotaug_is_bound_and_drawn_as_isa_is() -> None:
    """By the same settings, and trained as long, at the same rate and batch."""
    one, other = (config.load(CONFIGS / f"{name}.yaml") for name in ("slotaug", "isa"))
    # What ISA has, but turned off.
    absent = ("model.selector", "model.temporal", "model.feature_head")
    changed = [name for name in config.differences(one, other) if not name.startswith(absent)]
    assert changed == ["model.kind"]
    assert not other.model.feature_head.enabled


def test_the_diagnostic_ends_at_40_000() -> None:
    schedule = obj3d(name="diagnostic-40k")
    assert (schedule.steps, schedule.mode_starts()) == (40_000, [0, 15_000])
    assert schedule.plan(0).mode.terms == {"rec"}
    assert schedule.plan(39_999).mode.terms == {"rec", "pos", "ov"}
    assert schedule.plan(25_000).learning_rate == pytest.approx(2e-4)
    assert schedule.plan(39_999).learning_rate < 1e-11


OBJ3D = sorted((CONFIGS / "obj3d").glob("*.yaml"))
PAPER_SELECTOR = {"model.selector.attention", "model.selector.threshold"}


@pytest.mark.parametrize("path", OBJ3D, ids=lambda path: path.stem)
def test_the_same_rows_on_obj3d_itself(path: Path) -> None:
    """On solids evidence and threshold of the selector are our choice, here the paper's."""
    settings, row = config.load(path), config.load(CONFIGS / path.name)
    changed = set(config.differences(settings, row))
    assert {name for name in changed if not name.startswith("data.")} in (set(), PAPER_SELECTOR)
    selector = getattr(settings.model, "selector", None)
    if selector is not None and selector.enabled:
        assert (selector.attention, selector.threshold) == (True, 0.73)
    assert settings.data.kind == "store"
    assert len(settings.data.window.starts(100)) == 13
    assert settings.data.window.length == 1
    assert settings.data == config.load(CONFIGS / "obj3d" / "geoco.yaml").data
    whole = config.load(CONFIGS / "obj3d.yaml").data
    assert settings.data.model_copy(update={"window": whole.window}) == whole


def test_every_row_of_single_frames_is_there_on_obj3d() -> None:
    assert {path.stem for path in OBJ3D} == {
        "geoco", "isa", "slotaug", "diagnostic-40k", *ABLATIONS,
    }  # fmt: skip


def test_video_on_other_clips_differs_in_its_data_alone() -> None:
    one, other = (config.load(CONFIGS / f"geoco-{name}.yaml") for name in ("movi-c", "movi-like"))
    assert config.differences(one, other) == [
        "data.path", "data.source.kind", "data.source.path", "data.source.name", "data.source",
    ]  # fmt: skip
    assert other.data == config.load(CONFIGS / "movi-like.yaml").data
    assert other.data.window.length == 24


def test_masks_pull_positions_before_transplants() -> None:
    schedule = obj3d(name="geoco-recentered")
    assert schedule.plan(39_999).mode == obj3d().plan(39_999).mode
    alone = schedule.plan(42_999).mode
    assert (alone.recenter, alone.sharpness) == (0.5, 8)
    assert alone.terms == {"rec", "gate", "ov"}
    together = schedule.plan(43_001).mode
    assert together.terms == {"rec", "gate", "ov", "pos", "geo"}
    last = schedule.plan(69_999).mode
    assert (last.recenter, last.sharpness, last.center) == (0.5, 8, "coordinate")
    assert last.terms == {"rec", "gate", "ov", "pos", "geo", "tail"}


def test_the_tight_schedule() -> None:
    """28,000 steps: own rises with pos and stays; Muon's rate has the shape of the model's."""
    plans = obj3d(name="geoco-tight")
    assert plans.steps == 28_000
    expected = {5_999: 0.0, 6_000: 0.005 / 800, 6_399: 0.0025, 6_799: 0.005, 27_999: 0.005}
    for step, own in expected.items():
        assert plans.plan(step).weights["own"] == pytest.approx(own, rel=1e-12)
    assert plans.plan(27_999).mode.terms == set(TERMS)
    for step in (0, 1_999, 4_000, 16_000):
        plan = plans.plan(step)
        assert plan.muon_learning_rate == pytest.approx(2.5 * plan.learning_rate, rel=1e-12)
    assert plans.plan(3_999).muon_learning_rate == 1e-3


def test_the_schedule_that_tightens_a_trained_model() -> None:
    """What the last step of the tight schedule has, from the first step on, by rates of its own."""
    plans, tight = obj3d(name="geoco-tighten"), obj3d(name="geoco-tight")
    assert plans.steps == 7000
    assert plans.mode_starts() == [0]
    first, last = plans.plan(0), tight.plan(27_999)
    assert first.mode == last.mode
    assert first.weights == last.weights
    assert first.reference_scale == pytest.approx(0.2, rel=1e-12)
    assert first.selector_cap == last.selector_cap
    assert first.selector_learning_rate == last.selector_learning_rate
    for step in (0, 199, 4000):
        plan = plans.plan(step)
        assert plan.muon_learning_rate == pytest.approx(3 * plan.learning_rate, rel=1e-12)
    assert plans.plan(199).learning_rate == pytest.approx(1e-4, rel=1e-12)


# -- the picture -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "budget", "height", "lines"),
    [
        ("geoco", 0.01, 1008, 8),
        ("geoco-recentered", 0.01, 1008, 9),
        ("geoco-tight", 0.01, 1008, 10),
        ("geoco-movi-c", 0.01, 876, 6),
        ("isa", 0.01, 876, 2),
    ],
)
def test_the_picture_shows_every_line(
    tmp_path: Path, name: str, budget: float, height: int, lines: int
) -> None:
    """Weights and learning rates in their colours; four panels, three where no selector is."""
    path = tmp_path / "new" / "curriculum.png"
    draw_curriculum(obj3d(f"train.budget={budget}", name=name), path)
    pixels = np.asarray(Image.open(path))
    assert pixels.shape == (height, 1200, 3)
    late = pixels[:, 940:980].reshape(-1, 3)  # columns of the last phase
    assert sum((late == color).all(-1).any() for color in drawing.COLORS) == lines
    assert (pixels == 255).all(-1).mean() > 0.4  # on white


def test_a_picture_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "curriculum.png"
    path.write_text("an older one")
    draw_curriculum(obj3d("train.budget=1e-6"), path)  # of a single step
    assert np.asarray(Image.open(path)).std() > 1
    assert list(tmp_path.iterdir()) == [path]
