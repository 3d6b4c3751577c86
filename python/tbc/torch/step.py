"""`optimizer` and `train_step`: the plan's training step (docs/training.md)."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor as dtensor
from torch import nn
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional

from tbc.errors import PlanError
from tbc.plan_file import Plan
from tbc.torch.parallel import Parallel

DTensor, Replicate = dtensor.DTensor, dtensor.Replicate
Inputs = torch.Tensor | Mapping[str, torch.Tensor] | tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class StepResult:
    """What a step says, equal on every rank.

    `loss` is the mean over the labels that count, of the whole batch, before the update. `norm` is
    that of all gradients, before clipping. `labels` is how many counted.
    """

    loss: float
    norm: float
    labels: int


def optimizer(parallel: Parallel, lr: float) -> torch.optim.Optimizer:
    """Returns the plan's optimizer with the learning rate `lr`; weight decay has the plan's two groups."""
    plan, given = parallel.plan, parallel.plan.setting
    kind = plan.json["job"]["optimizer"]
    decay = given.get("weight_decay", 0.01 if kind == "adamw" else 0.0)
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter, match in parallel.planned():
        if parameter.requires_grad:
            groups[not _is_any([name, *match.names, match.plan.initializer], plan.bindings("no-decay"))].append(parameter)
    parameters = [{"params": p, "weight_decay": decay if d else 0.0} for d, p in groups.items() if p]
    # Lists of DTensors and of plain tensors do not mix in the foreach kernels.
    alike = len({type(p) for g in groups.values() for p in g}) <= 1
    options: dict[str, Any] = {"lr": lr, "foreach": None if alike else False}
    if kind in ("adamw", "adam"):
        betas = (given.get("beta1", 0.9), given.get("beta2", 0.999))
        maker = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
        return maker(parameters, betas=betas, eps=given.get("epsilon", 1e-8), **options)
    momentum = given.get("momentum", 0.9 if kind == "sgd-momentum" else 0.0)
    return torch.optim.SGD(parameters, momentum=momentum, nesterov=bool(given.get("nesterov", 0)), **options)


def _is_any(names: list[str], globs: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def train_step(
    parallel: Parallel,
    optimizer: torch.optim.Optimizer,
    inputs: Inputs,
    labels: torch.Tensor,
    forward: Callable[[nn.Module, Any], torch.Tensor] | None = None,
) -> StepResult:
    """Runs one step: all micro-batches, reductions, clipping and the update.

    `inputs` and `labels` are this rank's samples (`parallel.local`), micro-batches one after the
    other. `inputs` is the module's argument, a tuple or a dict of its arguments. `forward(module,
    inputs)` returns the logits; by default it calls the module and takes `.logits` if there is one.

    Each micro-batch divides by the number of labels of the global batch, so that micro-batches and
    ranks add up. If labels are ignored, loss and gradients are multiplied by that number over the
    actual count before the update. A step in which no label counts changes nothing.
    """
    plan = parallel.plan
    optimizer.zero_grad(set_to_none=True)
    sums = torch.zeros(2, dtype=torch.float64, device=labels.device)  # loss, labels
    nominal = labels.numel() * plan.data_size
    labels_of = labels.split(plan.micro_batch)
    if len(labels_of) != plan.accumulation:
        raise PlanError(f"a step has {plan.accumulation} micro-batches of {plan.micro_batch} samples, not {len(labels)} samples")
    def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, count = loss_sum(plan, logits, target)
        sums.add_(torch.stack([loss.detach().to(sums), count.to(sums)]))
        return loss / nominal

    if parallel.pipeline:
        with parallel.context():
            parallel.pipeline.step(_named(parallel.module, inputs), labels, loss_of)
    else:
        _accumulate(parallel, inputs, labels_of, forward or _call, loss_of)
    parallel.finish()
    return _update(parallel, optimizer, sums, nominal)


def _accumulate(
    parallel: Parallel,
    inputs: Inputs,
    labels: tuple[torch.Tensor, ...],
    forward: Callable[[nn.Module, Any], torch.Tensor],
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """Runs forward and backward of the micro-batches one after the other."""
    for index, target in enumerate(labels):
        parallel.data_parallel.begin(index == len(labels) - 1)
        with parallel.context():
            logits = forward(parallel.module, _part(inputs, index, parallel.plan.micro_batch))
            with loss_context(logits):
                loss_of(logits, target).backward()


def _named(module: nn.Module, inputs: Inputs) -> Mapping[str, torch.Tensor]:
    """Returns the inputs by the names of forward's arguments: every stage of a pipeline gets them so."""
    if isinstance(inputs, Mapping):
        return inputs
    values = inputs if isinstance(inputs, tuple) else (inputs,)
    names = list(inspect.signature(type(module).forward).parameters)[1:]  # without self
    return dict(zip(names, values))


def _call(module: nn.Module, inputs: Any) -> torch.Tensor:
    if isinstance(inputs, Mapping):
        output = module(**inputs)
    else:
        output = module(*inputs) if isinstance(inputs, tuple) else module(inputs)
    return getattr(output, "logits", output)


def _part(inputs: Inputs, index: int, size: int) -> Inputs:
    """Returns the inputs of a micro-batch."""
    if isinstance(inputs, Mapping):
        return {key: value[index * size : (index + 1) * size] for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(value[index * size : (index + 1) * size] for value in inputs)
    return inputs[index * size : (index + 1) * size]


def is_split_by_class(logits: torch.Tensor) -> bool:
    """Returns whether each rank of tp has the logits of some classes (vocabulary parallelism)."""
    return isinstance(logits, DTensor) and logits.placements[0].is_shard(logits.ndim - 1)


def loss_context(logits: torch.Tensor) -> AbstractContextManager[None]:
    """Returns the context of `loss_sum` and its backward."""
    return loss_parallel() if is_split_by_class(logits) else nullcontext()


def loss_sum(plan: Plan, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sum of the plan's loss over the labels that count, and their number."""
    kind, given = plan.json["job"]["loss"], plan.setting
    if kind == "mse":
        logits = _whole(logits)
        return (logits - labels).square().sum(), torch.tensor(labels.numel())
    if kind != "cross-entropy":
        raise PlanError(f"the plan's loss is the output {kind!r}: compute it in a loop of your own")
    ignored, smoothing = int(given.get("ignore_index", -100)), given.get("label_smoothing", 0.0)
    count = (labels != ignored).sum()
    rows = logits.flatten(0, -2)
    if rows.dtype in (torch.bfloat16, torch.float16):
        rows = rows.float()  # as the plan: cross entropy in f32
    if is_split_by_class(logits) and not smoothing:
        loss = functional.cross_entropy(rows, labels.flatten(), ignore_index=ignored, reduction="sum")
        return _whole(loss), count
    loss = functional.cross_entropy(_whole(rows), labels.flatten(), ignore_index=ignored, reduction="sum",
                                    label_smoothing=smoothing)  # fmt: skip
    return loss, count


def _whole(value: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that every rank of tp has the same of."""
    if not isinstance(value, DTensor):
        return value
    return value.redistribute(placements=[Replicate()] * len(value.placements)).to_local()


# -- The update ----------------------------------------------------------------------------------------


def _update(parallel: Parallel, optimizer: torch.optim.Optimizer, sums: torch.Tensor, nominal: int) -> StepResult:
    """Sums the step's scalars in one all-reduce over every rank, scales gradients, and updates."""
    plan, mesh = parallel.plan, parallel.mesh
    squares = torch.zeros((), dtype=torch.float64, device=sums.device)
    gradients = []
    for _, parameter, match in parallel.planned():
        if parameter.grad is None:
            continue
        gradients.append(parameter.grad)
        axes, local = _held(parameter.grad)
        others = tuple(axis for axis in plan.mesh if axis not in axes and axis != "pp")
        if mesh.is_first(others) and parallel.counts(match):
            squares += local.to(torch.float64).square().sum()
    # Of a pipeline the last stage has the loss; the others add zeros.
    if not mesh.is_first(("tp",)):
        sums = torch.zeros_like(sums)
    total = torch.cat([sums, squares[None]])
    if plan.ranks > 1:
        dist.all_reduce(total)
    loss, labels, squares_sum = total.tolist()
    if not labels:
        return StepResult(0.0, 0.0, 0)
    factor = nominal / labels if plan.json["job"]["loss"] == "cross-entropy" else 1.0
    norm = squares_sum**0.5 * factor
    limit = plan.setting.get("clip_norm")
    if limit is not None:
        factor *= min(1.0, limit / (norm + 1e-6))
    bound = plan.setting.get("clip_value")
    for gradient in gradients:
        _, local = _held(gradient)
        if factor != 1.0:
            local.mul_(factor)
        if bound is not None:
            local.clamp_(-bound, bound)
    optimizer.step()
    return StepResult(loss / labels, norm, int(labels))


def _held(gradient: torch.Tensor) -> tuple[set[str], torch.Tensor]:
    """Returns the axes that divide a gradient, and this rank's part of it."""
    if not isinstance(gradient, DTensor):
        return set(), gradient
    names = gradient.device_mesh.mesh_dim_names or ()
    axes: set[str] = set()
    for name, placement in zip(names, gradient.placements):
        if not placement.is_replicate():
            axes.update(name.split("_"))
    return axes, gradient.to_local()
