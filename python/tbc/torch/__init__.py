"""Runs a plan of tbc in PyTorch. docs/pytorch.md explains it."""

from tbc.torch.collectives import CollectiveRecorder, Issued, planned_collectives
from tbc.torch.mesh import PlanMesh
from tbc.torch.parallel import Parallel, parallelize
from tbc.torch.problems import NotExpressible, PlanWarning
from tbc.torch.step import StepResult, loss_sum, optimizer, train_step

__all__ = [
    "CollectiveRecorder",
    "Issued",
    "NotExpressible",
    "Parallel",
    "PlanMesh",
    "PlanWarning",
    "StepResult",
    "loss_sum",
    "optimizer",
    "parallelize",
    "planned_collectives",
    "train_step",
]
