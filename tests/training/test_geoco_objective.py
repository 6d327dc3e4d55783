"""The backward pass of the objective, against a naive one with two decodes in float64."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from geoco import config
from geoco.config.training import Term
from geoco.geometry import Moments, compute_moments
from geoco.models import compositing, slot_quality
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots
from geoco.training import losses, transplants
from geoco.training.curriculum import TERMS, Curriculum, Mode
from geoco.training.geoco_objective import GeoCoLosses, GeoCoObjective
from geoco.training.objective import Draws

# Filters that a network without training passes, so that every term has a population.
LOOSE = [
    "model.decoder.broadcast=8",
    "model.decoder.layers=[[8,5],[16,3],[16,3]]",
    "model.slots.count=4",
    "model.slots.dim=16",
    "model.encoder.width=16",
    "data.height=16",
    "data.width=16",
    "train.quality.fewest_pixels=1",
    "train.quality.most_coverage=0.5",
    "train.quality.least_peak=0.0",
    "train.quality.largest_scale=2.0",
    "train.quality.fewest_tokens=0.0",
    "train.quality.most_tokens=1.0",
    "train.quality.deviations=0.0",
    "train.quality.most_overlap=1.0",
    "train.quality.scale_ratio=[0.01,100.0]",
]
ALL: tuple[Term, ...] = ("rec", "ov", "pos", "geo", "gate", "tail", "own")


@pytest.fixture(scope="module")
def settings() -> config.Config:
    return config.load(None, LOOSE)


@pytest.fixture
def model(settings: config.Config) -> GeoCo:
    torch.manual_seed(1)
    model = GeoCo(settings.model).double()
    with torch.no_grad():
        # Slots that differ, as training makes them: one large, the others small and apart.
        for layer in model.decoder.refine:
            layer.weight.mul_(3)
        model.decoder.alpha.weight.mul_(30)
        assert model.attention.readout is not None
        model.attention.readout.gate.weight.normal_(std=0.1)
    return model


def inputs(batch: int = 3, time: int = 1) -> tuple[Tensor, Tensor, Draws]:
    generator = torch.Generator().manual_seed(5)
    video = torch.rand(batch, time, 3, 16, 16, dtype=torch.float64, generator=generator)
    draws = Draws.sample(generator, batch, time, 4)
    return video, torch.arange(batch), Draws(*(v.double() for v in vars(draws).values()))


def compute(
    model: GeoCo,
    settings: config.Config,
    given: tuple[Tensor, Tensor, Draws],
    weights: Tensor,
    mode: Mode,
) -> GeoCoLosses:
    return GeoCoObjective(model, settings.train).compute(*given, weights, mode)


def mode(*terms: Term, center: str = "coordinate", selector: bool = False) -> Mode:
    return Mode(frozenset(terms), center, 2.0, 0.0, 1, False, selector, selector)  # type: ignore[arg-type]


def take_gradients(model: GeoCo) -> dict[str, Tensor]:
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return gradients


def weights(*terms: Term) -> Tensor:
    full = {"rec": 1.0, "ov": 0.3, "pos": 0.7, "geo": 0.5, "gate": 0.2, "tail": 0.4, "own": 0.6}
    return torch.tensor([full[t] if t in terms else 0.0 for t in TERMS], dtype=torch.float64)


def naive(
    model: GeoCo,
    settings: config.Config,
    terms: tuple[Term, ...],
    center: str,
    sharpness: float,
    recenter: float,
) -> None:
    """The same objective written out: commands detached by decoding a second time.

    With one pass for everything they stay live, in the decoder and in pos.
    """
    video, source, draws = inputs()
    train, weight = settings.train, dict(zip(TERMS, weights(*terms), strict=True))
    binding = model.bind(video, draws.positions)
    slots = binding.slots
    logits = model.decoder(slots).logits
    image = compositing.composite(model.decoder(slots).rgb, logits.softmax(-3))
    loss = weight["rec"] * (image - video).square().mean()
    loss = loss + weight["ov"] * losses.ov(binding.attention)
    loss = loss + weight["gate"] * binding.gate.square().mean()
    fields = model.decoder(slots)
    loss = loss + weight["own"] * losses.own(
        fields.rgb.detach(),
        fields.logits.softmax(-3),
        train.own_width,
        video if train.own_against == "frame" else None,
    )

    judged = slot_quality.assess_slots(logits, binding, train.quality)
    outside = ~judged.foreground
    commanded = slots
    if train.separate_pass:
        commanded = Slots(slots.appearance, slots.position.detach(), slots.scale.detach())
    apart_margin = compositing.compute_foreground_margin(model.decoder(commanded).logits, outside)
    apart_center = compute_moments(torch.sigmoid(sharpness * apart_margin)).center
    residual = (apart_center - commanded.position)[judged.positioned]
    center_loss = losses.huber(residual, 0.05).mean()
    seen = judged.foreground & ~judged.foreground.all(-1, keepdim=True)
    assert judged.valid.any()
    assert seen.any()
    factual_tail = losses.tail(apart_margin, seen.double())
    loss = loss + weight["pos"] * center_loss + 0.5 * weight["tail"] * factual_tail

    factual = compute_moments(
        torch.sigmoid(sharpness * compositing.compute_foreground_margin(logits, outside))
    )
    away = (slots.position - factual.center.detach())[judged.positioned]
    loss = loss + recenter * losses.huber(away, 0.05).mean()
    chosen = transplants.choose_pairs(
        judged.valid[:, 0], slots.scale[:, 0], judged.confidence[:, 0], source,
        judged.valid[:, 0], slots.scale[:, 0], judged.confidence[:, 0], source,
        draws.order[:, 0], draws.choice[:, 0], train.quality.scale_ratio,
    )  # fmt: skip
    assert (chosen.confidence > 0).any()
    own = torch.arange(3)
    position = slots.position[own, 0, chosen.recipient].detach()
    scale = slots.scale[own, 0, chosen.recipient].detach()
    donor = slots.appearance[:, 0].flatten(0, 1)[chosen.donor]
    made = model.decoder(Slots(donor, position, scale)).logits
    margin = made - compositing.compute_background_logit(logits, outside)[:, 0, 0]
    geo = losses.geo(
        compute_moments(torch.sigmoid(sharpness * margin)),
        Moments(*(part[own, 0, chosen.recipient] for part in vars(factual).values())),
        factual.compactness[:, 0].flatten()[chosen.donor],
        position, scale, chosen.confidence, center, 0.05, 0.25,  # type: ignore[arg-type]
    )  # fmt: skip
    loss = loss + weight["geo"] * geo
    loss = loss + 0.5 * weight["tail"] * losses.tail(margin, chosen.confidence)
    loss.backward()


@pytest.mark.parametrize("center", ["coordinate", "normalized"])
@pytest.mark.parametrize("terms", [ALL, ("rec", "pos"), ("rec", "tail"), ("rec", "geo")])
@pytest.mark.parametrize(("sharpness", "recenter"), [(2.0, 0.0), (8.0, 0.5)])
@pytest.mark.parametrize(("separate_pass", "own_against"), [(True, "slot"), (False, "frame")])
def test_gradients_are_those_of_two_decodes(
    model: GeoCo,
    settings: config.Config,
    terms: tuple[Term, ...],
    center: str,
    sharpness: float,
    recenter: float,
    separate_pass: bool,
    own_against: str,
) -> None:
    changes = {"separate_pass": separate_pass, "own_against": own_against}
    train = settings.train.model_copy(update=changes)
    settings = settings.model_copy(update={"train": train})
    naive(model, settings, terms, center, sharpness, recenter)
    expected = take_gradients(model)
    what = replace(mode(*terms, center=center), sharpness=sharpness, recenter=recenter)
    result = compute(model, settings, inputs(), weights(*terms), what)
    result.backward()
    gradients = take_gradients(model)
    for name, gradient in expected.items():
        if gradient.abs().max() > 0:
            torch.testing.assert_close(gradients[name], gradient, rtol=1e-7, atol=1e-10, msg=name)


def measure_gradients(model: GeoCo, settings: config.Config, term: Term) -> dict[str, float]:
    """The largest gradient that one term sends to appearance, positions, scales and modules."""
    video, source, draws = inputs()
    kept = {}
    bind = model.bind

    def watch_binding(*arguments: object, **options: object) -> object:
        binding = bind(*arguments, **options)
        kept["attention"] = binding.attention
        kept.update(vars(binding.slots))
        for value in kept.values():
            value.retain_grad()
        return binding

    model.bind = watch_binding  # type: ignore[method-assign]
    result = compute(model, settings, (video, source, draws), weights(term), mode("rec", term))
    result.backward()
    sizes = {
        name: 0.0 if value.grad is None else float(value.grad.abs().max())
        for name, value in kept.items()
    }
    for name, part in model.named_children():
        grads = [p.grad.abs().max() for p in part.parameters() if p.grad is not None]
        sizes[name + "_module"] = float(max(grads, default=torch.zeros(())))
    take_gradients(model)
    return sizes


def test_rec_reaches_everything(model: GeoCo, settings: config.Config) -> None:
    norms = measure_gradients(model, settings, "rec")
    assert all(
        norms[name] > 0
        for name in ("appearance", "position", "scale", "encoder_module", "decoder_module")
    )


def test_ov_reaches_attention_and_no_decoder(model: GeoCo, settings: config.Config) -> None:
    norms = measure_gradients(model, settings, "ov")
    assert norms["attention"] > 0
    assert norms["decoder_module"] == norms["position"] == norms["scale"] == 0


def test_pos_reaches_decoder_and_appearance_but_no_command(
    model: GeoCo, settings: config.Config
) -> None:
    norms = measure_gradients(model, settings, "pos")
    assert norms["position"] == norms["scale"] == 0
    assert norms["appearance"] > 0
    assert norms["decoder_module"] > 0
    assert norms["encoder_module"] > 0


def test_own_reaches_who_owns_what_and_no_colour(model: GeoCo, settings: config.Config) -> None:
    norms = measure_gradients(model, settings, "own")
    assert all(norms[name] > 0 for name in ("appearance", "position", "scale", "encoder_module"))
    video, source, draws = inputs()
    compute(model, settings, (video, source, draws), weights("own"), mode("rec", "own")).backward()
    heads = {"color": False, "micro": False, "fuse": False, "style": False, "alpha": True}
    for name, is_reached in heads.items():
        for parameter in getattr(model.decoder, name).parameters():
            reached = parameter.grad is not None and bool(parameter.grad.any())
            assert reached == is_reached, name


def test_recentering_moves_positions_and_no_mask(model: GeoCo, settings: config.Config) -> None:
    """Exactly the gradient of its own term at the commands, and nothing for decoder or looks."""
    video, source, draws = inputs()
    binding = model.bind(video, draws.positions)
    slots = Slots(*(part.detach().requires_grad_() for part in vars(binding.slots).values()))
    model.bind = lambda *_, **__: replace(binding, slots=slots)  # type: ignore[method-assign,assignment]
    pulled = replace(mode("rec"), recenter=0.3, sharpness=5.0)
    result = compute(model, settings, (video, source, draws), weights(), pulled)
    result.backward()
    logits = result.scene.fields.logits.detach()
    judged = slot_quality.assess_slots(logits, binding, settings.train.quality)
    margin = logits - compositing.compute_background_logit(logits, ~judged.foreground)
    center = compute_moments(torch.sigmoid(5.0 * margin)).center
    own = binding.slots.position.detach().requires_grad_()
    (0.3 * losses.huber(own - center, 0.05)[judged.positioned].mean()).backward()
    assert own.grad is not None
    assert own.grad.abs().max() > 0
    torch.testing.assert_close(slots.position.grad, own.grad)
    for part in (slots.scale, slots.appearance):
        assert part.grad is None or part.grad.eq(0).all()
    assert all(gradient.eq(0).all() for gradient in take_gradients(model).values())


def test_geo_reaches_commands_only_through_the_background(
    model: GeoCo, settings: config.Config
) -> None:
    """Recipients are never background, so their own commands get exactly nothing."""
    video, source, draws = inputs()
    binding = model.bind(video, draws.positions)
    slots = Slots(*(part.detach().requires_grad_() for part in vars(binding.slots).values()))
    model.bind = lambda *_, **__: replace(binding, slots=slots)  # type: ignore[method-assign,assignment]
    result = compute(model, settings, (video, source, draws), weights("geo"), mode("rec", "geo"))
    result.backward()
    judged = slot_quality.assess_slots(result.scene.fields.logits, binding, settings.train.quality)
    assert slots.position.grad is not None
    assert slots.scale.grad is not None
    assert slots.appearance.grad is not None
    assert slots.position.grad[judged.foreground].eq(0).all()
    assert slots.scale.grad[judged.foreground].eq(0).all()
    assert slots.position.grad[~judged.foreground].abs().max() > 0
    assert slots.appearance.grad[judged.foreground].abs().max() > 0
    take_gradients(model)


def test_the_selector_has_a_backward_pass_of_its_own(model: GeoCo, settings: config.Config) -> None:
    """Its loss reaches its parameters alone, and no other loss reaches them."""
    assert model.selector is not None
    without = compute(model, settings, inputs(), weights(*ALL), mode(*ALL))
    without.backward()
    core = take_gradients(model)
    assert not any(name.startswith("selector") for name in core)
    model.selector.cap.fill_(0)
    result = compute(model, settings, inputs(), weights(*ALL), mode(*ALL, selector=True))
    assert result.selector is not None
    result.backward()
    gradients = take_gradients(model)
    for name, gradient in core.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-9, atol=1e-12)
    assert {name for name in gradients if name not in core} == {
        f"selector.{name}" for name, _ in model.selector.named_parameters()
    }


def test_one_pass_gives_the_decoder_the_same_gradients(
    model: GeoCo, settings: config.Config
) -> None:
    """Without a pass of their own, pos and tail also reach what positions and scales come from."""
    gradients = []
    for separate_pass in (True, False):
        train = settings.train.model_copy(update={"separate_pass": separate_pass})
        terms: tuple[Term, ...] = ("rec", "pos", "tail")
        result = GeoCoObjective(model, train).compute(*inputs(), weights(*terms), mode(*terms))
        assert (result.gated is None) is not separate_pass
        result.backward()
        gradients.append(take_gradients(model))
    apart, together = gradients
    for name in apart:
        if name.startswith("decoder"):
            torch.testing.assert_close(together[name], apart[name], rtol=1e-8, atol=1e-12)
    difference = together["attention.grid.weight"] - apart["attention.grid.weight"]
    assert difference.abs().max() > 1e-6 * apart["attention.grid.weight"].abs().max()


def test_inactive_terms_cost_and_say_nothing(model: GeoCo, settings: config.Config) -> None:
    result = compute(model, settings, inputs(), weights("rec"), mode("rec"))
    assert result.gated is None
    assert result.by_name["rec"] > 0
    assert all(result.by_name[term] == 0 for term in TERMS[1:])


def test_clips_of_several_frames(model: GeoCo, settings: config.Config) -> None:
    """geo looks at frames 0 and 2 of four; a clip of one frame has the same loss as its copy."""
    result = compute(model, settings, inputs(3, 4), weights(*ALL), mode(*ALL))
    assert result.scene.image.shape == (3, 4, 3, 16, 16)
    assert result.by_name["geo"] > 0
    result.backward()
    assert all(torch.isfinite(value).all() for value in take_gradients(model).values())


def test_curriculum_modes_name_all_terms(settings: config.Config) -> None:
    assert Curriculum(settings, 0.87).plan(65_000).mode.terms == frozenset(ALL) - {"own"}
