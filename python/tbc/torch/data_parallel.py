"""Data parallelism: FSDP2 where the plan shards states, reduced gradients in buckets elsewhere.

Parameters that every data rank has are also units of FSDP2 in mixed precision, by `replicate`: it has
the master copies, and reduces gradients in f32.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.tensor as dtensor
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from tbc.plan_file import Parameter, Plan
from tbc.torch.matching import Match
from tbc.torch.mesh import PlanMesh, reduce_axes
from tbc.torch.problems import (
    GatherUnitWarning,
    MasterWeightWarning,
    NotExpressible,
    UnevenShardWarning,
)

_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
DTensor, Shard = dtensor.DTensor, dtensor.Shard


@dataclass(frozen=True)
class _Sharding:
    """What FSDP needs to know of a parameter. Equal for all parameters of a unit."""

    axes: tuple[str, ...]  # over which its states are sharded; empty: every data rank has them
    gather: str


# The cast copy of a replicated parameter is made again after each update, as one gathered per step.
_REPLICATED = _Sharding((), "step")


def _sharding(parameter: Parameter) -> _Sharding | None:
    if not parameter.trained:
        return None
    axes = parameter.placements["optimizer_state"].flat
    return _Sharding(axes, parameter.gather) if axes else _REPLICATED


class DataParallel:
    """FSDP units and gradient buckets of a module, told before each micro-batch whether it is the last."""

    def __init__(self, module: nn.Module, plan: Plan, mesh: PlanMesh, matches: list[Match], cuts: list[str]) -> None:
        self.plan, self.mesh, self.cuts = plan, mesh, cuts
        self.axes = reduce_axes(plan)
        whole = [match for match in matches if _sharding(match.plan) == _REPLICATED]
        sharded = [match for match in matches if match.parameter.requires_grad and match not in whole]
        if whole and plan.json["job"]["precision"] in _DTYPES:
            if sharded:
                raise NotExpressible(
                    f"{whole[0].plan.name} is replicated and {sharded[0].plan.name} is sharded; FSDP has master copies "
                    "of one kind in a model: plan with --zero 0, or --precision f32"
                )
            sharded, whole = whole, []
        self.root = module if sharded else None
        self.units: list[tuple[FSDPModule, _Sharding]] = []
        if sharded:
            self._shard(module, sharded, set(module.parameters()) - {match.parameter for match in sharded})
        self.buckets = Buckets([match.parameter for match in whole], plan.json.get("bucket_bytes", 0), mesh, self.axes)

    def _shard(self, module: nn.Module, matches: list[Match], ignored: set[nn.Parameter]) -> None:
        rows = _Rows(matches, self.mesh)
        precision = _precision(self.plan)
        tied = {name.rpartition(".")[0] for match in matches if len(match.names) > 1 for name in match.names}
        planned = {name: match for match in matches for name in match.names}
        units: dict[str, set[_Sharding]] = {}
        for name, match in planned.items():
            owner = name.rpartition(".")[0]
            sharding = _sharding(match.plan)
            assert sharding
            # A unit's forward must end; that of a module with a cut inside does not, but the root's does.
            is_cut = any(cut.startswith(owner + ".") for cut in self.cuts)
            units.setdefault("" if owner in tied or is_cut else owner, set()).add(sharding)
        common = set().union(*units.values())
        units.setdefault("", common)
        shared = sum(len(list(module.get_submodule(unit).parameters(recurse=False))) > 1 for unit in units if unit)
        if shared and common != {_REPLICATED}:
            warnings.warn(f"FSDP gathers the parameters of a module together: {shared} modules have several",
                          GatherUnitWarning, stacklevel=4)  # fmt: skip
        # The innermost first; the root has the tied parameters, and orders the others.
        for unit in sorted(units, key=lambda name: (-name.count(".") if name else 1, name)):
            shardings = units[unit]
            if len(shardings) > 1:
                raise NotExpressible(
                    f"{unit or 'the model'} has parameters that are sharded in {len(shardings)} ways; FSDP shards those "
                    "of a module alike: plan with --zero"
                )
            sharding = next(iter(shardings))
            child = module.get_submodule(unit)
            if sharding == _REPLICATED:
                replicate(child, mesh=self.mesh.data(), ignored_params=ignored, mp_policy=precision)
            else:
                fully_shard(
                    child, mesh=self._fsdp_mesh(sharding.axes), ignored_params=ignored,
                    reshard_after_forward=sharding.gather == "use", shard_placement_fn=rows.of, mp_policy=precision,
                )  # fmt: skip
            # The loss is divided by the labels of the global batch, so gradients add up.
            child.set_gradient_divide_factor(1.0)
            child.set_force_sum_reduction_for_comms(True)
            # Backward reads no table of embeddings; a tied one is in the root's unit.
            child.set_unshard_in_backward(not isinstance(child, nn.Embedding))
            self.units.append((child, sharding))
        rows.warn()

    def _fsdp_mesh(self, axes: tuple[str, ...]) -> DeviceMesh:
        """Returns a mesh of the sharding axes, after that of the other data axes if there are any (HSDP)."""
        if not set(axes) <= set(self.axes):
            raise NotExpressible(f"the plan shards states over {'+'.join(axes)}; FSDP shards over data axes: plan with --zero")
        others = tuple(axis for axis in self.axes if axis not in axes)
        shard = self.mesh.along(axes)
        if not others:
            return shard
        names = [mesh.mesh_dim_names for mesh in (self.mesh.along(others), shard)]
        if len(others) > 1 or len(axes) > 1:
            raise NotExpressible(
                f"the plan shards states over {'+'.join(axes)} and reduces over {'+'.join(others)}; hybrid sharding "
                "takes one axis each: plan with fewer axes"
            )
        return self.mesh.device[tuple(name[0] for name in names if name)]

    def begin(self, is_last: bool) -> None:
        """Prepares the forward and backward of a micro-batch, which may be the step's last."""
        self.buckets.is_last = is_last
        for unit, sharding in self.units:
            if self._accumulates_whole(sharding):
                unit.set_requires_gradient_sync(is_last, recurse=False)
            unit.set_requires_all_reduce(is_last, recurse=False)
            unit.set_reshard_after_backward(is_last or sharding.gather != "step", recurse=False)
        if self.root is not None:
            self.root.set_is_last_backward(is_last)

    def _accumulates_whole(self, sharding: _Sharding) -> bool:
        """Returns whether gradients are reduced once per step (ZeRO-1), not each micro-batch."""
        return any(
            _sharding(p) == sharding and set(sharding.axes) <= set(p.placements["gradient"].partial)
            for p in self.plan.parameters.values()
        )

    def finish(self) -> None:
        """Completes the gradients of a step."""
        self.buckets.finish()


def _precision(plan: Plan) -> MixedPrecisionPolicy:
    dtype = _DTYPES.get(plan.json["job"]["precision"])
    if dtype is None:
        return MixedPrecisionPolicy()
    warnings.warn("parameters are stored in f32, as master weights, and cast before their use",
                  MasterWeightWarning, stacklevel=5)  # fmt: skip
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


class _Rows:
    """The dim along which FSDP cuts each parameter: the first that the shards divide, else dim 0, padded."""

    def __init__(self, matches: list[Match], mesh: PlanMesh) -> None:
        self.mesh = mesh
        self.uneven: list[str] = []
        self.matches = {match.parameter: match for match in matches}

    def of(self, parameter: nn.Parameter) -> dtensor.Shard:
        match = self.matches[parameter]
        shards = self.mesh.size(match.plan.placements["optimizer_state"].flat)
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        for dim, size in enumerate(local.shape):
            if size % shards == 0:
                return Shard(dim)
        self.uneven.append(match.plan.name)
        return Shard(0)

    def warn(self) -> None:
        if self.uneven:
            warnings.warn(
                f"FSDP pads {len(self.uneven)} parameters to whole rows, such as {self.uneven[0]}; ranks hold unequal "
                "parts of them", UnevenShardWarning, stacklevel=5,
            )  # fmt: skip


class Buckets:
    """All-reduces gradients of parameters that every data rank has, beside the last backward.

    Gradients are joined in reverse order of the parameters into buckets of at most `limit` bytes, as
    the plan's `bucket_bytes`; 0: each by itself. A bucket is reduced as soon as its last gradient is
    complete.
    """

    def __init__(self, parameters: list[nn.Parameter], limit: int, mesh: PlanMesh, axes: tuple[str, ...]) -> None:
        self.is_last = True
        self.group = mesh.group(axes) if axes else None
        self.parameters = parameters
        self.buckets: list[list[nn.Parameter]] = []
        self.number: dict[nn.Parameter, int] = {}
        for parameter in reversed(parameters):
            self._add(parameter, limit)
        self.waiting = [len(bucket) for bucket in self.buckets]
        self.pending: list[tuple[list[torch.Tensor], torch.Tensor, dist.Work | None]] = []
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _add(self, parameter: nn.Parameter, limit: int) -> None:
        last = self.buckets[-1] if self.buckets else None
        if last is None or limit == 0 or last[0].dtype != parameter.dtype or _bytes([*last, parameter]) > limit:
            self.buckets.append([])
        self.buckets[-1].append(parameter)
        self.number[parameter] = len(self.buckets) - 1

    def _ready(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)
        if not self.is_last or self.group is None:
            return
        number = self.number[parameter]
        self.waiting[number] -= 1
        if self.waiting[number] == 0:
            self._launch(self.buckets[number])

    def _launch(self, bucket: list[nn.Parameter]) -> None:
        locals_ = []
        for parameter in bucket:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad
            locals_.append(gradient.to_local() if isinstance(gradient, DTensor) else gradient)
        flat = torch.cat([gradient.reshape(-1) for gradient in locals_])
        work = dist.all_reduce(flat, group=self.group, async_op=True)
        self.pending.append((locals_, flat, work))

    def finish(self) -> None:
        """Waits for all buckets, and reduces those whose parameters had no gradient on this rank."""
        if self.group is None:
            return
        for number, count in enumerate(self.waiting):
            if count > 0:
                self._launch(self.buckets[number])
        for gradients, flat, work in self.pending:
            if work is not None:
                work.wait()
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(part.view_as(gradient))
        self.pending.clear()
        self.waiting = [len(bucket) for bucket in self.buckets]


def _bytes(parameters: list[nn.Parameter]) -> int:
    locals_ = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]
    return sum(local.numel() * local.element_size() for local in locals_)
