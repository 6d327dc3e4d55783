"""Models by their kind and decoders by their design, ours and those that others add."""

from collections.abc import Iterator
from typing import Literal, get_args

import pytest
import torch
from helpers import TINY_MODEL, build_decoder
from torch import Tensor, nn

from geoco import config
from geoco.errors import GeocoError
from geoco.models.build import MODELS, build
from geoco.models.decoders import DECODERS, Decoder, Fields
from geoco.models.geoco import GeoCo
from geoco.models.interface import Model
from geoco.models.slots import Binding, Slots, draw_positions

# -- a decoder and a model as somebody else would write them ---------------------------------------


class DiscDecoder(Decoder):
    """Flat discs: colour from the appearance, alpha by the distance from the position."""

    def __init__(self, settings: config.DecoderConfig, dim: int) -> None:
        super().__init__(settings, dim)
        self.color = nn.Linear(dim, 3)

    def forward(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        line = torch.linspace(-extent, extent, extent * (self.size - 1) + 1)
        x, y = (slots.position[..., axis, None, None] for axis in (0, 1))
        logits = slots.scale[..., None, None] - (line - x).square() - (line[:, None] - y).square()
        if alpha_only:
            return Fields(logits)

        def fill(values: Tensor) -> Tensor:
            return values[..., None, None].expand(*values.shape, *logits.shape[-2:])

        rgb = fill(torch.sigmoid(self.color(slots.appearance)))
        return Fields(logits, rgb, rgb, features=fill(slots.appearance))


class ToyConfig(config.Section):
    kind: Literal["toy"] = "toy"
    dim: int = 4
    side: int = 8


class Toy(Model):
    """Two slots of one mean colour each, left where they start."""

    def __init__(self, settings: ToyConfig) -> None:
        super().__init__(settings)
        self.dim, self.side = settings.dim, settings.side
        self.lift = nn.Linear(3, settings.dim)
        shape = config.DecoderConfig(broadcast=2, layers=((settings.side, 1),))
        self.decoder = DiscDecoder(shape, settings.dim)

    @property
    def size(self) -> int:
        return self.side

    @property
    def slot_count(self) -> int:
        return 2

    def bind(self, video: Tensor, positions: Tensor, temporal: bool = True) -> Binding:
        batch, time = video.shape[:2]
        appearance = self.lift(video.mean((-2, -1)))[:, :, None].expand(-1, -1, 2, -1)
        position = positions[:, None].expand(-1, time, -1, -1)
        slots = Slots(appearance, position, torch.full((batch, time, 2), 0.5))
        return Binding(slots, torch.full((batch, time, 2, 4), 0.25), torch.zeros_like(appearance))

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        fields: Fields = self.decoder(slots, extent, alpha_only)
        return fields


# -- what is known by name -------------------------------------------------------------------------


def test_configuration_and_builders_know_the_same_names() -> None:
    assert set(config.MODEL_KINDS) == set(MODELS)
    assert set(config.DECODER_DESIGNS) == set(DECODERS)
    for kind, section in config.MODEL_KINDS.items():
        assert get_args(section.model_fields["kind"].annotation) == (kind,)


def test_a_model_is_of_its_kind() -> None:
    assert type(build(TINY_MODEL)) is GeoCo
    assert TINY_MODEL.kind == "geoco"


def test_weights_do_not_depend_on_where_a_model_is_made() -> None:
    torch.manual_seed(3)
    one = build(TINY_MODEL).state_dict()
    torch.manual_seed(3)
    other = GeoCo(TINY_MODEL).state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("design", ["steered", "conventional", "canonical"])
def test_names_of_parameters_are_those_of_stored_weights(design: str) -> None:
    names = set(build_decoder(design, 8).state_dict())
    layers = {f"refine.{number}.{part}" for number in range(5) for part in ("weight", "bias")}
    heads = {f"{head}.{part}" for head in ("alpha", "style", "fuse", "color", "micro", "place")
             for part in ("weight", "bias")}  # fmt: skip
    gains = {f"{layer}.{part}" for layer in (*(f"refine.{n}" for n in range(5)), "color")
             for part in ("gain", "reference_scale")}  # fmt: skip
    assert names == layers | heads | (gains if design == "steered" else set())


# -- what others add -------------------------------------------------------------------------------


@pytest.fixture
def disc_design(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(DECODERS, "disc", DiscDecoder)
    config.DECODER_DESIGNS.append("disc")
    yield
    config.DECODER_DESIGNS.remove("disc")


def test_a_design_that_nobody_added() -> None:
    with pytest.raises(GeocoError, match=r"model\.decoder\.design: expected one of .* got 'disc'"):
        config.load(None, ["model.decoder.design=disc"])


@pytest.mark.usefixtures("disc_design")
def test_a_decoder_from_outside() -> None:
    change = "model.decoder.design=disc"
    small = ["model.decoder.layers=[[16,3]]", "model.slots.count=3"]
    resolved = config.load(None, [change, *small])
    assert config.loads(resolved.to_yaml()) == resolved
    model = build(resolved.model)
    assert isinstance(model, GeoCo)
    assert type(model.decoder) is DiscDecoder
    model.set_reference_scale(0.3)
    model.decoder.compile_parts()
    assert not model.alpha_validity(torch.tensor([0.2])).any()
    scene = model(torch.rand(2, 1, 3, 16, 16), torch.Generator())
    assert scene.image.shape == (2, 1, 3, 16, 16)
    scene.image.sum().backward()
    assert model.decoder.color.weight.grad is not None


def test_a_model_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config.MODEL_KINDS, "toy", ToyConfig)
    resolved = config.load(None, ["model.kind=toy", "model.side=12"])
    with pytest.raises(GeocoError, match=r"geoco\.models\.build\.MODELS has no class for it"):
        build(resolved.model)
    monkeypatch.setitem(MODELS, "toy", Toy)
    model = build(resolved.model)
    assert isinstance(model, Toy)
    assert model.settings == ToyConfig(side=12)
    scene = model(torch.rand(2, 3, 3, 12, 12), torch.Generator().manual_seed(0))
    assert scene.image.shape == (2, 3, 3, 12, 12)
    # What it does not have costs it nothing.
    assert (model.selector, model.temporal, model.decoder_parameters()) == (None, None, [])
    assert model.refine(scene.fields, scene.binding.attention) is scene.fields
    model.set_reference_scale(0.3)
    model.compile_parts()
    starts = draw_positions(2, 2, torch.Generator().manual_seed(0))
    assert torch.equal(scene.binding.slots.position[:, 0], starts)


def test_an_incomplete_model_is_refused() -> None:
    class Half(Model):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half(ToyConfig())  # type: ignore[abstract]
