"""`parallelize`: a module that runs as its plan says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from tbc.errors import PlanError
from tbc.plan_file import Plan
from tbc.torch.batch_norm import synchronize_batch_norms
from tbc.torch.data_parallel import DataParallel
from tbc.torch.forms import local_forms
from tbc.torch.matching import Match, match_parameters
from tbc.torch.mesh import PlanMesh, local_samples
from tbc.torch.pipeline import Cut, Pipeline, TiedOverStages
from tbc.torch.problems import NotExpressible
from tbc.torch.recompute import apply_recompute
from tbc.torch.tensor_parallel import apply_tensor_parallel, place_activations


class Parallel:
    """A module on the plan's mesh. `module` is the module itself; its parameters are this rank's parts."""

    def __init__(self, module: nn.Module, plan: Plan, mesh: PlanMesh, matches: list[Match], cut: Cut | None) -> None:
        self.module, self.plan, self.mesh = module, plan, mesh
        self.is_split = "tp" in plan.mesh
        self.data_parallel = DataParallel(module, plan, mesh, matches, cut.begins[1:] if cut else [])
        self.names = {name: match for match in matches for name in match.names}
        if self.is_split:
            place_activations(module, plan, mesh)
        self.tied = TiedOverStages(plan, mesh) if cut else None
        self.pipeline = None
        if cut:
            cut.install()
            self.pipeline = Pipeline(cut, self.data_parallel.begin)

    def finish(self) -> None:
        """Completes the gradients of a step."""
        self.data_parallel.finish()
        if self.tied:
            for _, parameter, match in self.planned():
                if parameter.grad is not None:
                    gradient = parameter.grad
                    self.tied.reduce(match.plan.name, gradient.to_local() if isinstance(gradient, DTensor) else gradient)

    def counts(self, match: Match) -> bool:
        """Returns whether this pipeline stage counts the parameter in sums over all."""
        return self.tied is None or self.tied.is_counted(match.plan.name)

    @contextmanager
    def context(self) -> Iterator[None]:
        """The context in which forward and backward run."""
        with local_forms() if self.is_split else nullcontext():
            yield

    def local(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns this rank's samples of a global batch, its micro-batches one after the other."""
        return local_samples(self.plan, self.mesh, batch)

    def planned(self) -> Iterator[tuple[str, nn.Parameter, Match]]:
        """Yields the path, parameter and plan of each parameter once, as the module has it now."""
        for name, parameter in self.module.named_parameters():
            if name in self.names:
                yield name, parameter, self.names[name]


def parallelize(module: nn.Module, plan: Plan, unused: Sequence[str] = ()) -> Parallel:
    """Applies a plan to the module that it was made from. Every rank calls it, with equal weights.

    `unused` names parameters that no op of forward reads, so that the exported model lacks them. They
    are frozen.

    Raises PlanError if module, processes and plan do not belong together, and NotExpressible if
    PyTorch has no form for a part of the plan. Differences of form are warnings (PlanWarning).

    Example::

        plan = tbc.Plan.load("plan.json")
        parallel = tbc.torch.parallelize(model, plan)
        optimizer = tbc.torch.optimizer(parallel, lr=1e-3)
        result = tbc.torch.train_step(parallel, optimizer, parallel.local(tokens), parallel.local(labels))
    """
    _refuse(plan)
    matches = match_parameters(module, plan, unused)
    for match in matches:
        match.parameter.requires_grad_(match.plan.trained)
    device = matches[0].parameter.device if matches else torch.device("cpu")
    mesh = PlanMesh(plan, device.type)
    cut = None
    if "pp" in plan.mesh:
        cut = Cut(module, plan, mesh)
        cut.drop_others()
        matches = [match for match in matches if match.plan.name in cut.held()]
    if "tp" in plan.mesh:
        matches = apply_tensor_parallel(module, plan, mesh, matches)
    synchronize_batch_norms(module, plan, mesh)
    apply_recompute(module, plan)
    return Parallel(module, plan, mesh, matches, cut)


def _refuse(plan: Plan) -> None:
    """Raises NotExpressible for parts of a plan that have no form here."""
    if plan.json["job"]["task"] != "train":
        raise PlanError("only plans of training run here")
    for axis, remedy in (("ep", "plan without ep"), ("cp", "plan without cp")):
        if axis in plan.mesh:
            raise NotExpressible(f"the mesh has the axis {axis}, for which this package has no form: {remedy}")
    if plan.json["job"]["optimizer"] == "muon":
        raise NotExpressible("torch.optim.Muon reads whole matrices, and parameters are DTensors here: plan with --optimizer adamw")
    if plan.json["job"]["optimizer"] == "adafactor":
        raise NotExpressible("torch.optim.Adafactor reads whole matrices, and parameters are DTensors here: plan with --optimizer adamw")
    if plan.json["job"]["optimizer"] in ("adagrad", "rowwise-adagrad"):
        raise NotExpressible(f"{plan.json['job']['optimizer']} has no form here: plan with --optimizer adamw")
    offload = plan.json["offload"]
    if offload["optimizer"] or offload["residuals"] != "none":
        raise NotExpressible("the plan offloads tensors to the host: plan with --offload none")
    if plan.json["job"]["precision"] == "f16" and plan.setting.get("loss_scale", 0) != 1:
        raise NotExpressible("dynamic loss scales of f16 have no form here: plan with --precision bf16")
