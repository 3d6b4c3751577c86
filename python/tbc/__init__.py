"""tbc in Python: plans how to train a model on a cluster.

`tbc.plan("model.onnx", gpus=16)` plans in this process; `tbc.Plan.load("plan.json")` reads a plan, and
needs Python alone; `tbc.torch` runs one in PyTorch, and is imported by itself. docs/python.md has
all of it.
"""

from tbc.cluster import Cluster
from tbc.errors import PlanError
from tbc.failures import Error, ModelRejected, NoFeasiblePlan, TbcWarning, UsageError, VerificationFailed
from tbc.library import version
from tbc.plan_file import Collective, Interval, Memory, Module, Parameter, Placement, Stage
from tbc.planned import Difference, Plan
from tbc.planner import check, command, judge, new, plan, size
from tbc.progress import Progress

__all__ = [
    "Cluster",
    "Collective",
    "Difference",
    "Error",
    "Interval",
    "Memory",
    "ModelRejected",
    "Module",
    "NoFeasiblePlan",
    "Parameter",
    "Placement",
    "Plan",
    "PlanError",
    "Progress",
    "Stage",
    "TbcWarning",
    "UsageError",
    "VerificationFailed",
    "check",
    "command",
    "judge",
    "new",
    "plan",
    "size",
    "version",
]
