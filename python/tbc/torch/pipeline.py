"""Pipeline parallelism by torch.distributed.pipelining, with the plan's cuts and schedule.

Every stage runs the module's own forward. Modules before its chunk are skipped, the first module of
the chunk gets the received activation, and forward ends where the next chunk begins. So masks and
rotary angles, which forward computes from its inputs, need not be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.tensor as dtensor
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from tbc.plan_file import Plan, Stage
from tbc.torch.mesh import PlanMesh
from tbc.torch.placements import tensor_placement
from tbc.torch.problems import NotExpressible

DTensor = dtensor.DTensor
_SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B"}


def first_module(plan: Plan, stage: Stage) -> str:
    """Returns the outermost module that begins with the chunk."""
    inside = [name for name in stage.modules if stage.begin == name or stage.begin.startswith(name + ".")]
    return min(inside, key=len, default=stage.begin)


def check_cuts(plan: Plan, module: nn.Module) -> None:
    """Raises NotExpressible if stages do not begin with modules that get one activation.

    The first stage sends in forward alone, so its sends show how many activations its cut has. Other
    cuts are checked when they first run (`Cut`).
    """
    paths = dict(module.named_modules())
    for stage in plan.stages[1:]:
        name = first_module(plan, stage)
        if name not in paths or name not in plan.modules or len(plan.modules[name].inputs) != 1:
            raise _not_at_a_block(plan)
    if [stage.stage for stage in plan.stages].count(0) == 1:
        sends = sum(line.count for line in plan.collectives if line.kind == "send" and 0 in line.stages)
        if sends != plan.accumulation:
            raise _not_at_a_block(plan)


def _not_at_a_block(plan: Plan) -> NotExpressible:
    begins = " and ".join(f"{stage.begin} (op {stage.first_op})" for stage in plan.stages[1:])
    return NotExpressible(
        f"the plan's stages begin at {begins}; PipelineStage sends one activation, so stages must begin with whole "
        "blocks of the module: plan with --pin 'BLOCK.*=begin' for each stage, such as "
        "--pin 'transformer.h.6.*=begin'"
    )


@dataclass
class _End(Exception):
    """Forward has reached the end of the chunk."""

    value: torch.Tensor


class Cut:
    """Runs chunks of a module, one at a time. The module's parameters of other stages are removed."""

    def __init__(self, module: nn.Module, plan: Plan, mesh: PlanMesh) -> None:
        check_cuts(plan, module)
        self.module, self.plan, self.mesh = module, plan, mesh
        self.rank = mesh.coordinate("pp")
        self.begins = [""] + [first_module(plan, stage) for stage in plan.stages[1:]]
        self.chunks = [stage.chunk for stage in plan.stages if stage.stage == self.rank]
        self.chunk = -1
        self.skipping = False
        self.received: torch.Tensor | None = None

    def held(self) -> set[str]:
        """Returns the parameters of this rank's chunks, as the plan names them."""
        return {name for stage in self.plan.stages if stage.stage == self.rank for name in stage.parameters}

    def drop_others(self) -> None:
        """Removes the parameters of other stages from the module.

        Tensors without data take their places: a forward may ask for the dtype of a parameter that it does not
        read, as that of ViT in transformers does.
        """
        held = {id(p) for name, p in self.module.named_parameters(remove_duplicate=False) if name in self.held()}
        for child in self.module.modules():
            for leaf, parameter in list(child._parameters.items()):
                if parameter is not None and id(parameter) not in held:
                    del child._parameters[leaf]
                    setattr(child, leaf, parameter.detach().to("meta"))

    def install(self) -> None:
        """Hooks the first module of each chunk, and lets the others be skipped."""
        path = {name: child for name, child in self.module.named_modules()}
        for name, child in path.items():
            around = any(begin == name or begin.startswith(name + ".") for begin in self.begins[1:])
            inside = any(name.startswith(other + ".") for other in path if other and self._is_skippable(other))
            if not inside and self._is_skippable(name) and (not around or name in self.begins):
                child.forward = self._skippable(name, child.forward)  # type: ignore[method-assign]
        self.module.forward = self._ending(self.module.forward)  # type: ignore[method-assign]
        for chunk, begin in enumerate(self.begins):
            if begin:
                path[begin].register_forward_pre_hook(self._begin_hook(chunk), with_kwargs=True, prepend=True)

    def _ending(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Ends forward inside of the module's call, so that its forward hooks (FSDP's) still run."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return forward(*args, **kwargs)
            except _End as end:
                return end.value

        return call

    def _is_skippable(self, name: str) -> bool:
        """Returns whether a module has ops of the plan, and no chunk but its first op begins inside."""
        planned = self.plan.modules.get(name)
        return planned is not None and not any(begin.startswith(name + ".") for begin in self.begins)

    def _skippable(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._nothing(name, args, kwargs) if self.skipping else forward(*args, **kwargs)

        return call

    def _nothing(self, name: str, args: Any, kwargs: Any) -> torch.Tensor:
        """Returns NaN in place of the output of a module of an earlier chunk: `_Chunk` finds its use."""
        outputs = self.plan.modules[name].outputs
        if len(outputs) != 1:
            raise NotExpressible(f"{name} is before the cut and has {len(outputs)} outputs; pin stages to blocks with one")
        data = set(self.plan.data_axes)
        shape = [size // self.mesh.size(tuple(dim.all_axes & data))
                 for size, dim in zip(outputs[0].shape, outputs[0].placement.dims)]  # fmt: skip
        like = self.received
        assert like is not None
        return torch.full(shape, float("nan"), dtype=like.dtype, device=like.device)

    def placement(self, chunk: int) -> TorchPlacement:
        """Returns how the activation that enters a chunk lies along tp."""
        name = self.begins[chunk]
        return tensor_placement(self.plan.modules[name].inputs[0].placement, "tp", name)

    def _begin_hook(self, chunk: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.chunk == chunk - 1 and not self.skipping:
                raise _End(_first_activation(args, kwargs))
            if self.chunk == chunk:
                self.skipping = False
                return _replaced(args, kwargs, self.received)
            return None

        return hook

    def run(self, chunk: int, received: torch.Tensor | None, inputs: Mapping[str, Any]) -> torch.Tensor:
        """Runs a chunk. Returns its activation, or the logits of the last chunk."""
        self.chunk, self.received, self.skipping = chunk, received, chunk > 0
        output = self.module(**inputs)
        self.received = None
        return getattr(output, "logits", output)


def _first_activation(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    return next(v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor) and v.is_floating_point())


def _replaced(args: tuple[Any, ...], kwargs: dict[str, Any], value: torch.Tensor | None) -> tuple[Any, Any]:
    """Returns the arguments with the first activation replaced."""
    for index, item in enumerate(args):
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            return (*args[:index], value, *args[index + 1 :]), kwargs
    for key, item in kwargs.items():
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            return args, {**kwargs, key: value}
    raise NotExpressible("the first module of a stage gets no activation")


class _Chunk(nn.Module):
    """What PipelineStage runs. It has the parameters of its rank's chunks.

    Stages send this rank's part of an activation that is split over tp.
    """

    def __init__(self, cut: Cut, number: int) -> None:
        super().__init__()
        self.inner = cut.module
        self.cut, self.number, self.is_checked = cut, number, False

    def forward(self, received: torch.Tensor | None = None, **inputs: torch.Tensor) -> torch.Tensor:
        """The first call is PipelineStage's, to learn shapes: `received` is zeros there."""
        cut = self.cut
        if received is not None and "tp" in cut.plan.mesh:
            placement = [cut.placement(self.number)]
            received = DTensor.from_local(received, cut.mesh.device["tp"], placement, run_check=False)
        output = cut.run(self.number, received, inputs)
        is_last = self.number + 1 == len(cut.begins)
        if isinstance(output, DTensor) and not is_last:
            output = output.redistribute(placements=[cut.placement(self.number + 1)])
        local = output.to_local() if isinstance(output, DTensor) else output
        if not self.is_checked and bool(local.isnan().any()):
            raise _not_at_a_block(cut.plan)
        self.is_checked = True
        return output if is_last else local


class _Stage(PipelineStage):
    """A stage that says before each backward whether it is the step's last."""

    before_backward: Callable[[bool], None]

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        self.before_backward(last_backward)
        super().backward_one_chunk(bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward)


    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        """Leaves out sends to this rank itself, in V-shaped placements: Gloo has none."""
        return [op for op in super()._get_init_p2p_neighbors_ops() if op.group_peer != self.group_rank]


class Pipeline:
    """The stages of this rank and the plan's schedule."""

    def __init__(self, cut: Cut, before_backward: Callable[[bool], None]) -> None:
        self.plan, self.cut = cut.plan, cut
        self.loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
        group = cut.mesh.group(("pp",))
        device = torch.device(cut.mesh.device.device_type)
        stages = []
        for chunk in cut.chunks:
            stage = _Stage(_Chunk(cut, chunk), chunk, len(cut.begins), device, group=group)
            stage.before_backward = before_backward
            stages.append(stage)
        self.schedule = self._schedule(stages)
        self.has_last = len(cut.begins) - 1 in cut.chunks

    def _schedule(self, stages: list[Any]) -> Any:
        plan, placement = self.plan, [stage.stage for stage in self.plan.stages]
        ranks = plan.mesh["pp"]
        is_v = len(placement) == 2 * ranks and placement == [*range(ranks), *reversed(range(ranks))] and ranks > 1
        if placement != [chunk % ranks for chunk in range(len(placement))] and not is_v:
            raise NotExpressible(f"chunks lie on the stages {placement}; torch.distributed.pipelining has loops and V shapes")
        if plan.schedule == "zero-bubble":
            kind = "ScheduleZBVZeroBubble" if is_v else "ScheduleInterleavedZeroBubble"
        elif is_v:
            raise NotExpressible(f"{plan.schedule} has no V shape in torch.distributed.pipelining: plan with --placement loop")
        else:
            kind = _SCHEDULES[plan.schedule]
        maker = getattr(schedules, kind)
        is_single = issubclass(maker, schedules.PipelineScheduleSingle)
        try:
            return maker(stages[0] if is_single else stages, plan.accumulation, loss_fn=self._loss, scale_grads=False)
        except (ValueError, AssertionError) as error:
            raise NotExpressible(f"{kind} refuses {plan.accumulation} micro-batches on {ranks} stages: {error}") from error

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        assert self.loss is not None
        return self.loss(output, target)

    def step(self, inputs: Mapping[str, Any], labels: torch.Tensor, loss: Callable[[Any, Any], torch.Tensor]) -> None:
        """Runs forward and backward of all micro-batches. `loss` is called on the last stage, for each."""
        self.loss = loss
        self.schedule.step(target=labels if self.has_last else None, losses=[] if self.has_last else None, **inputs)


class TiedOverStages:
    """Sums the gradients of parameters that several stages hold, once per step."""

    def __init__(self, plan: Plan, mesh: PlanMesh) -> None:
        self.rank = mesh.coordinate("pp")
        holders: dict[str, set[int]] = {}
        for stage in plan.stages:
            for name in stage.parameters:
                holders.setdefault(name, set()).add(stage.stage)
        self.stages = {name: tuple(sorted(stages)) for name, stages in holders.items() if len(stages) > 1}
        self.groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        line = mesh.device["pp"].mesh.tolist()
        for stages in sorted(set(self.stages.values())):
            if len(stages) == len(line):
                self.groups[stages] = mesh.group(("pp",))
                continue
            # Every rank takes part in making every group.
            every = mesh.device.mesh.movedim(list(plan.mesh).index("pp"), -1).reshape(-1, len(line))
            for ranks in every.tolist():
                group = dist.new_group([ranks[stage] for stage in stages])
                if dist.get_rank() in ranks and self.rank in stages:
                    self.groups[stages] = group
                    mesh.name_group(group, ("pp",))

    def is_counted(self, name: str) -> bool:
        """Returns whether this stage is the first with the parameter."""
        return name not in self.stages or self.stages[name][0] == self.rank

    def reduce(self, name: str, gradient: torch.Tensor) -> None:
        """Adds the gradients of all stages that hold the parameter of the plan's name."""
        if name in self.stages:
            dist.all_reduce(gradient, group=self.groups[self.stages[name]])
