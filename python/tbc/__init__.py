"""Plans of tbc in Python.

`tbc.Plan.load("plan.json")` reads a plan; `tbc.torch` runs one in PyTorch (docs/pytorch.md). This
package needs Python alone; `tbc.torch` needs PyTorch too, and is imported by itself.
"""

from tbc.errors import PlanError
from tbc.plan import Collective, Interval, Memory, Module, Parameter, Placement, Plan, Stage

__all__ = ["Collective", "Interval", "Memory", "Module", "Parameter", "Placement", "Plan", "PlanError", "Stage"]
