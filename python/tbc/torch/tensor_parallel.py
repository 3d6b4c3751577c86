"""Tensor parallelism: parameters and activations as DTensors over the axis tp.

Every parameter becomes a DTensor over tp, replicated where the plan splits it not. So a forward
computes the serial result whatever its ops are; the hooks of this file put activations where the
plan has them, so that the collectives are the plan's.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed.tensor as dtensor
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.placement_types import Placement as TorchPlacement
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional

from tbc.plan_file import Module, Parameter, Plan, Tensor
from tbc.torch.matching import Match
from tbc.torch.mesh import PlanMesh
from tbc.torch.placements import parameter_placement, tensor_placement
from tbc.torch.problems import NotExpressible

AXIS = "tp"
Replicate, Shard, Partial, DTensor = dtensor.Replicate, dtensor.Shard, dtensor.Partial, dtensor.DTensor


def apply_tensor_parallel(module: nn.Module, plan: Plan, mesh: PlanMesh, matches: list[Match]) -> list[Match]:
    """Distributes parameters over tp. Returns the matches of the new parameters."""
    tp = mesh.device[AXIS]
    matches = [_distribute(module, match, tp) for match in matches]
    for name, child in module.named_modules():
        planned = plan.modules.get(name)
        if is_linear(child) and "weight" in child._parameters:  # else of another pipeline stage
            _Linear(child, name, tp, planned, plan).install()
        elif _owns_split_parameter(child) and not isinstance(child, nn.Embedding):
            raise NotExpressible(
                f"{name or 'the model'} ({type(child).__name__}) has parameters that the plan splits over tp; this "
                f"package splits nn.Linear, Conv1D and nn.Embedding: plan with --pin '{name}.*=whole', or without tp"
            )
        elif isinstance(child, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            _convolve_locally(child, tp)
        elif isinstance(child, nn.modules.conv._ConvNd):
            raise NotExpressible(f"{name or 'the model'} ({type(child).__name__}) beside tp: plan without tp")
    return matches


def place_activations(module: nn.Module, plan: Plan, mesh: PlanMesh) -> None:
    """Hooks the modules so that activations enter and leave them where the plan has them.

    After FSDP, whose own hooks replace the inputs of modules by copies: these hooks run before.
    """
    for name, child in module.named_modules():
        if name in plan.modules:
            Boundary(plan, mesh.device[AXIS], plan.modules[name]).install(child)


# -- Parameters ----------------------------------------------------------------------------------------


def _distribute(module: nn.Module, match: Match, tp: DeviceMesh) -> Match:
    placement = parameter_placement(match, "used", AXIS)
    local = local_part(match.parameter.detach(), placement, tp.size(), tp.get_local_rank())
    whole = match.parameter
    tensor = DTensor.from_local(local, tp, [placement], run_check=False, shape=whole.shape, stride=whole.stride())
    parameter = nn.Parameter(tensor, requires_grad=whole.requires_grad)
    for name in match.names:
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, parameter)
    return Match(match.names, parameter, match.plan, match.transposed)


def local_part(whole: torch.Tensor, placement: TorchPlacement, parts: int, part: int) -> torch.Tensor:
    """Returns part `part` of `parts` of a tensor. Example: see `shard_of`."""
    if isinstance(placement, Replicate):
        return whole.clone()
    assert isinstance(placement, Shard | _StridedShard)
    dim = placement.dim
    segments = placement.split_factor if isinstance(placement, _StridedShard) else 1
    if whole.shape[dim] % (segments * parts):
        raise NotExpressible(f"a dim of {whole.shape[dim]} cannot be cut into {segments} segments of {parts} parts")
    cut = whole.unflatten(dim, (segments, parts, whole.shape[dim] // segments // parts))
    return cut.select(dim + 1, part).flatten(dim, dim + 1).contiguous()


def _owns_split_parameter(module: nn.Module) -> bool:
    own = module.parameters(recurse=False)
    return any(not parameter.placements[0].is_replicate() for parameter in own if isinstance(parameter, DTensor))


def _convolve_locally(conv: Any, tp: DeviceMesh) -> None:
    """Computes a convolution of whole parameters on every rank alike.

    DTensor's own backward (PyTorch 2.11) takes gradients of such weights for partial sums and adds them up over tp.
    """

    def local(value: torch.Tensor | None) -> torch.Tensor | None:
        return value.to_local(grad_placements=[Replicate()]) if isinstance(value, DTensor) else value

    def forward(value: torch.Tensor) -> torch.Tensor:
        return wrapped(conv._conv_forward(local(value), local(conv.weight), local(conv.bias)), tp)

    conv.forward = forward


def is_linear(module: nn.Module) -> bool:
    """Returns whether a module multiplies by `weight` and adds `bias`, as nn.Linear or Conv1D."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


# -- Activations ---------------------------------------------------------------------------------------


class _Guard(torch.autograd.Function):
    """The identity; its gradient lies as the forward value does. A partial gradient is reduced here."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        assert isinstance(value, DTensor)
        ctx.placements = value.placements
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        assert isinstance(gradient, DTensor)
        target = [Replicate() if placement.is_partial() else placement for placement in ctx.placements]
        return gradient.redistribute(placements=target)


def wrapped(value: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Returns a DTensor; a plain tensor is the same on every rank."""
    return value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, [Replicate()], run_check=False)


def _redistributed(value: DTensor, target: TorchPlacement) -> DTensor:
    """Redistributes a value that lies otherwise. One that lies so keeps a partial gradient partial."""
    return value if value.placements[0] == target else value.redistribute(placements=[target])


def move(value: torch.Tensor, mesh: DeviceMesh, target: TorchPlacement) -> torch.Tensor:
    """Returns `value` placed as `target`, with a gradient that is placed as `value`.

    A second call with the same value and target returns the same tensor, so that several readers
    share one collective in forward and one in backward.
    """
    value = wrapped(value, mesh)
    if getattr(value, "_tbc_target", None) == target:
        return value
    known: dict[TorchPlacement, weakref.ref[torch.Tensor]] = value.__dict__.setdefault("_tbc_moved", {})
    moved = known[target]() if target in known else None
    if moved is None or moved.requires_grad != (value.requires_grad and torch.is_grad_enabled()):
        same = value.placements[0] == target
        moved = _Guard.apply(value) if same else value.redistribute(placements=[target])
        moved._tbc_target = target
        known[target] = weakref.ref(moved)
    return moved


class Boundary:
    """Hooks of a module that put its inputs and outputs where the plan has them."""

    def __init__(self, plan: Plan, mesh: DeviceMesh, module: Module) -> None:
        self.plan, self.mesh, self.module = plan, mesh, module

    def install(self, module: nn.Module) -> None:
        if self.module.inputs:
            module.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True)
        if self.module.outputs:
            module.register_forward_hook(self._after)

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        return self._placed(args, self.module.inputs), self._placed(kwargs, self.module.inputs)

    def _after(self, module: nn.Module, args: Any, output: Any) -> Any:
        return self._placed(output, self.module.outputs)

    def _placed(self, value: Any, planned: tuple[Tensor, ...]) -> Any:
        if isinstance(value, torch.Tensor):
            target = self._target(value, planned)
            return value if target is None else move(value, self.mesh, target)
        if type(value) is dict:
            return {key: self._placed(item, planned) for key, item in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._placed(item, planned) for item in value)
        return value

    def _target(self, value: torch.Tensor, planned: tuple[Tensor, ...]) -> TorchPlacement | None:
        """Returns the placement of the planned tensor with this shape, if there is just one."""
        if not value.is_floating_point():
            return None
        found = {target_of(self.plan, tensor, value.shape, self.module.name) for tensor in planned} - {None}
        return found.pop() if len(found) == 1 else None


def target_of(plan: Plan, tensor: Tensor, shape: torch.Size, name: str) -> TorchPlacement | None:
    """Returns how a planned tensor lies along tp, for an actual tensor of `shape`; None for other shapes.

    The plan may have the leading dims as one: [8·16, 64] stands for [8, 16, 64].
    """
    dims = zip(tensor.shape, tensor.placement.dims)
    data = plan.data_axes + ("cp",)
    local = [size // _parts(plan, dim.all_axes & set(data)) for size, dim in dims]
    placement = tensor_placement(tensor.placement, AXIS, name)
    if isinstance(placement, Partial):
        placement = Replicate()
    if list(shape) == local:
        return placement
    if local and shape[-1:] == torch.Size(local[-1:]) and shape.numel() == torch.Size(local).numel():
        if isinstance(placement, Shard | _StridedShard):
            return _at_end(placement, len(shape)) if placement.dim == len(local) - 1 else None
        return placement
    return None


def _parts(plan: Plan, axes: set[str]) -> int:
    result = 1
    for axis in axes:
        result *= plan.mesh[axis]
    return result


def _at_end(placement: Shard | _StridedShard, rank: int) -> TorchPlacement:
    if isinstance(placement, _StridedShard):
        return _StridedShard(rank - 1, split_factor=placement.split_factor)
    return Shard(rank - 1)


# -- Matmuls -------------------------------------------------------------------------------------------


class _Linear:
    """The forward of nn.Linear or Conv1D on local parts, with explicit placements.

    | weight over tp | input | output |
    | whole | any but the last dim split | as the input |
    | split by outputs (column) | whole | split by the last dim |
    | split by inputs (row) | split by the last dim | partial, then as planned, then plus the bias |
    """

    def __init__(self, module: nn.Module, name: str, mesh: DeviceMesh, planned: Module | None, plan: Plan) -> None:
        self.module, self.mesh, self.planned, self.plan, self.name = module, mesh, planned, plan, name
        # The weight of nn.Linear is [outputs, inputs], that of Conv1D is [inputs, outputs].
        self.output_dim = 0 if isinstance(module, nn.Linear) else 1
        placement = module.weight.placements[0]
        if isinstance(placement, _StridedShard) and placement.dim != self.output_dim:
            raise NotExpressible(f"{name} is split by segments of its inputs, for which DTensor has no matmul")

    def install(self) -> None:
        self.module.forward = self.forward

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = wrapped(value, self.mesh)
        placement = self.module.weight.placements[0]
        if placement.is_replicate():
            return self._whole(value)
        if placement.dim == self.output_dim:
            return self._column(value, placement)
        return self._row(value)

    def _matmul(self, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(value, weight if self.output_dim == 0 else weight.t())

    def _whole(self, value: DTensor) -> torch.Tensor:
        placement = value.placements[0]
        last = value.ndim - 1
        if placement.is_partial() or (isinstance(placement, Shard | _StridedShard) and placement.dim == last):
            value, placement = _redistributed(value, Replicate()), Replicate()
        gradient = Replicate() if placement.is_replicate() else Partial()
        weight = self.module.weight.to_local(grad_placements=[gradient])
        result = self._matmul(value.to_local(grad_placements=[placement]), weight)
        if self.module.bias is not None:
            result = result + self.module.bias.to_local(grad_placements=[gradient])
        return DTensor.from_local(result, self.mesh, [placement], run_check=False)

    def _column(self, value: DTensor, placement: Shard | _StridedShard) -> torch.Tensor:
        value = _redistributed(value, Replicate())
        result = self._matmul(value.to_local(grad_placements=[Partial()]), self.module.weight.to_local())
        bias = self.module.bias
        if bias is not None and not bias.placements[0].is_replicate():
            result = result + bias.to_local()
        output = DTensor.from_local(result, self.mesh, [_at_end(placement, result.ndim)], run_check=False)
        return output + bias if bias is not None and bias.placements[0].is_replicate() else output

    def _row(self, value: DTensor) -> torch.Tensor:
        value = _redistributed(value, Shard(value.ndim - 1))
        result = self._matmul(value.to_local(), self.module.weight.to_local())
        output = DTensor.from_local(result, self.mesh, [Partial()], run_check=False)
        targets = [target_of(self.plan, t, output.shape, self.name) for t in self.planned.outputs] if self.planned else []
        output = output.redistribute(placements=[next((t for t in targets if t is not None), Replicate())])
        return output if self.module.bias is None else output + self.module.bias


def used_placement(parameter: Parameter) -> set[str]:
    """Returns the axes that split a parameter where it is used."""
    return {axis for dim in parameter.placements["used"].dims for axis in dim.all_axes}


