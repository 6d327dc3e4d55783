"""One optimiser step, on one device or as one of many processes.

Nothing in a step waits for the host, so that on a GPU it can be recorded once and replayed: what
changes from step to step (batch, random numbers, weights, learning rates) lies in buffers that are
filled in place. A step whose losses are not finite changes nothing, nor does any after it; the loop
finds out when it next looks.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn

from geoco.config import Config
from geoco.data import ClipBatch
from geoco.errors import GeocoError
from geoco.models.interface import Model
from geoco.training import objectives
from geoco.training.averages import WeightAverages
from geoco.training.curriculum import TERMS, Mode, Plan
from geoco.training.muon import Muon, is_matrix
from geoco.training.objective import Draws, Losses, Objective

_WARM_UP = 3  # steps before a recording, in which libraries choose their kernels


class Stepper:
    """A model with its optimisers; call it with a batch to train one step."""

    def __init__(self, model: Model, config: Config, fabric: Fabric) -> None:
        self.model, self.settings, self.fabric = model, config.train, fabric
        self.device = fabric.device
        self.graphed = config.train.graph and self.device.type == "cuda" and fabric.world_size == 1
        self.compiled = config.train.compile and self.device.type == "cuda"
        if self.compiled:
            model.compile_parts()
        # Compiled, its functions could not talk to other processes.
        compiled = self.compiled and fabric.world_size == 1
        self.objective = find_objective(config)(model, config.train, compiled)
        # What is measured at every step, in this order.
        self.columns = (
            *self.objective.terms,
            "total",
            *self.objective.separate,
            "gradient_norm",
        )
        self.stopped = torch.zeros((), device=self.device)
        separate = {
            id(p) for part in (model.selector, model.temporal) if part for p in part.parameters()
        }
        self.core = [p for p in model.parameters() if p.requires_grad and id(p) not in separate]
        self.temporal = [] if model.temporal is None else list(model.temporal.parameters())
        self.selector = [] if model.selector is None else list(model.selector.parameters())
        matrices = self._choose_matrices()
        self.muon = self._make_muon(matrices) if matrices else None
        others = [p for p in self.core if all(p is not matrix for matrix in matrices)]
        groups = [{"params": group} for group in (others, self.temporal) if group]
        self.optimizer = self._make_adamw(groups, config.train.weight_decay)
        self.selector_optimizer = (
            self._make_adamw([{"params": self.selector}], config.train.selector.weight_decay)
            if self.selector
            else None
        )
        self.averages = (
            None if config.train.ema is None else WeightAverages(model, config.train.ema)
        )
        self.weights = torch.zeros(len(TERMS), device=self.device)
        # Metrics summed since the loop last looked, those of the last step, how many steps.
        self.sums = torch.zeros(len(self.columns), device=self.device, dtype=torch.float64)
        self.last = torch.zeros(len(self.columns), device=self.device)
        self.count = torch.zeros((), device=self.device)
        self._inputs: tuple[ClipBatch, Draws] | None = None  # buffers that a recorded step reads
        self._mode: Mode | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0

    def __call__(self, batch: ClipBatch, draws: Draws, plan: Plan) -> None:
        """Train one step by a plan."""
        self._apply_plan(plan)
        if not self.graphed:
            self._step(batch, draws, plan.mode)
            return
        self._fill_inputs(batch, draws)
        if plan.mode != self._mode:
            self._mode, self._graph, self._warm = plan.mode, None, 0
        if self._graph is None and self._warm == _WARM_UP:
            self._record_graph(plan.mode)
        if self._graph is not None:
            self._graph.replay()
            return
        assert self._inputs is not None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(*self._inputs, plan.mode)
        torch.cuda.current_stream().wait_stream(side)
        self._warm += 1

    def evaluate(self, batch: ClipBatch, draws: Draws, plan: Plan) -> Losses:
        """The losses of a batch with their graph, for diagnostics; trains nothing."""
        self._apply_plan(plan)
        return self._compute_losses(batch, draws, plan.mode)

    def state(self) -> dict[str, Tensor]:
        """All that a step depends on besides the model's weights and the step's number."""
        state = {"sums": self.sums, "count": self.count}
        state |= _flatten_optimizer("core", self.optimizer)
        if self.muon is not None:
            state |= _flatten_optimizer("muon", self.muon)
        if self.selector_optimizer is not None:
            state |= _flatten_optimizer("selector", self.selector_optimizer)
        if self.averages is not None:
            state |= self.averages.state()
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.sums.copy_(state["sums"])
        self.count.copy_(state["count"])
        _load_optimizer("core", self.optimizer, state)
        if self.muon is not None:
            _load_optimizer("muon", self.muon, state)
        if self.selector_optimizer is not None:
            _load_optimizer("selector", self.selector_optimizer, state)
        if self.averages is not None:
            self.averages.load_state(state)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model is what is used of it in here: its weights are averages, if there are any.

        `state` belongs in here, too.
        """
        with nullcontext() if self.averages is None else self.averages.in_place():
            yield

    # -- one step ----------------------------------------------------------------------------------

    def _compute_losses(self, batch: ClipBatch, draws: Draws, mode: Mode) -> Losses:
        assert batch.source_numbers is not None
        video, features = batch.images(), batch.features
        known = {} if features is None else {"features": features[:, :, 0]}
        if self.settings.flip:
            mirrored = (draws.mirror < 0.5)[:, None, None, None]
            video = torch.where(mirrored[..., None], video.flip(-1), video)
            if features is not None:
                known["features"] = torch.where(mirrored, features[:, :, 1], features[:, :, 0])
        with self.fabric.autocast():
            return self.objective.compute(
                video, batch.source_numbers, draws, self.weights, mode, **known
            )

    def _step(self, batch: ClipBatch, draws: Draws, mode: Mode) -> None:
        trained = [*self.core, *(self.temporal if mode.temporal else [])]
        for parameter in self.model.parameters():
            parameter.grad = None
        losses = self._compute_losses(batch, draws, mode)
        losses.backward()
        self.sum_gradients()
        norm = nn.utils.clip_grad_norm_(trained, self.settings.clip)
        self._record_metrics(losses, norm)
        self.optimizer.step()
        if self.muon is not None:
            self.muon.step()
        if self.selector_optimizer is not None and mode.selector_trains:
            nn.utils.clip_grad_norm_(self.selector, self.settings.selector.clip)
            self.selector_optimizer.step()
        if self.averages is not None:
            self.averages.update(self.stopped)

    def sum_gradients(self) -> None:
        """The sum of gradients over all processes; each holds its share of the whole batch's."""
        if self.fabric.world_size == 1:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def _record_metrics(self, losses: Losses, norm: Tensor) -> None:
        """Sum the metrics; from a step on that is not finite, keep them and stop the optimisers."""
        by_name = {**losses.by_name, "total": losses.total, "gradient_norm": norm}
        values = torch.stack([by_name[name].detach().float() for name in self.columns])
        if self.fabric.world_size > 1:
            shares = values[:-1].contiguous()
            dist.all_reduce(shares)
            values = torch.cat((shares, values[-1:]))
        running = self.stopped == 0
        self.last.copy_(torch.where(running, values, self.last))
        finite = torch.isfinite(values).all()
        self.stopped.copy_(torch.maximum(self.stopped, (~finite).float()))
        finite_so_far = self.stopped == 0
        self.sums += torch.where(finite_so_far, values.double(), torch.zeros_like(self.sums))
        self.count += finite_so_far

    def _apply_plan(self, plan: Plan) -> None:
        for index, term in enumerate(TERMS):
            self.weights[index].fill_(plan.weights[term])
        self.model.set_reference_scale(plan.reference_scale)
        self.model.set_gate_share(plan.gate_share)
        rates = [plan.learning_rate, plan.temporal_learning_rate]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            _set_rate(group, rate)
        if self.muon is not None:
            _set_rate(self.muon.param_groups[0], plan.muon_learning_rate)
        if self.model.selector is not None:
            assert self.selector_optimizer is not None
            self.model.selector.cap.fill_(plan.selector_cap)
            _set_rate(self.selector_optimizer.param_groups[0], plan.selector_learning_rate)

    # -- recording ---------------------------------------------------------------------------------

    def _fill_inputs(self, batch: ClipBatch, draws: Draws) -> None:
        """Copy what a step needs to where a recorded step looks for it."""
        if self._inputs is None or self._inputs[0].video.shape != batch.video.shape:
            self._inputs = (
                batch.map(torch.clone),
                Draws(*(value.clone() for value in vars(draws).values())),
            )
            return
        own_batch, own_draws = self._inputs
        for name, value in batch.tensors().items():
            own_batch.tensors()[name].copy_(value)
        for name, value in vars(draws).items():
            getattr(own_draws, name).copy_(value)

    def _record_graph(self, mode: Mode) -> None:
        assert self._inputs is not None
        for parameter in self.model.parameters():
            parameter.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(*self._inputs, mode)
        self._graph = graph

    def _choose_matrices(self) -> list[nn.Parameter]:
        """What Muon trains, if it trains anything."""
        if self.settings.muon_learning_rate is None:
            return []
        trained = [p for p in self.model.picture_parameters() if p.requires_grad]
        matrices = [p for p in trained if is_matrix(p)]
        if not matrices:
            raise GeocoError(
                "train.muon_learning_rate: this model has no matrices for Muon: leave it out"
            )
        return matrices

    def _make_muon(self, matrices: list[nn.Parameter]) -> Muon:
        on_gpu = self.device.type == "cuda"
        muon = Muon(matrices, torch.zeros((), device=self.device) if on_gpu else 0.0)
        muon.found_inf = self.stopped
        return muon

    def _make_adamw(self, groups: list[dict[str, Any]], decay: float) -> torch.optim.AdamW:
        on_gpu = self.device.type == "cuda"
        rate = torch.zeros((), device=self.device) if on_gpu else 0.0
        for group in groups:
            group["lr"] = rate.clone() if isinstance(rate, Tensor) else rate
        optimizer = torch.optim.AdamW(
            groups, lr=rate, weight_decay=decay, fused=True, capturable=on_gpu
        )
        # The fused step's own switch, otherwise used by gradient scalers: one means "do nothing".
        optimizer.found_inf = self.stopped  # type: ignore[attr-defined]
        return optimizer


def find_objective(config: Config) -> type[Objective]:
    """The objective that trains the configuration's kind of model."""
    kind = config.model.kind
    if kind not in objectives:
        raise GeocoError(
            f"model.kind: nothing says how '{kind}' is trained: add it to geoco.training.objectives"
        )
    return objectives[kind]


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _flatten_optimizer(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts by number of parameter; none yet before a first step."""
    return {
        f"{name}/{number}/{key}": value
        for number, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }


def _load_optimizer(name: str, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        part, _, rest = key.partition("/")
        if part == name:
            number, _, kind = rest.partition("/")
            entries.setdefault(int(number), {})[kind] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})
