"""The parameters of a module beside those of a plan."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from tbc.errors import PlanError
from tbc.plan_file import Parameter, Plan
from tbc.torch.problems import NotExpressible, PaddedVocabularyWarning

# For modules of these classes: the dim of `weight` that a matmul sums over, or a lookup selects from.
_SUMMED_DIM = {"Linear": 1, "NonDynamicallyQuantizableLinear": 1, "Conv1D": 0, "Embedding": 0}


@dataclass(frozen=True)
class Match:
    """A parameter of the module and its plan. `names` has more than one path for tied weights."""

    names: tuple[str, ...]
    parameter: nn.Parameter
    plan: Parameter
    transposed: bool  # the plan's dims are the module's dims in reverse


def match_parameters(module: nn.Module, plan: Plan, unused: Sequence[str] = ()) -> list[Match]:
    """Returns each parameter once, but those of `unused`. Raises PlanError that names what does not match."""
    paths: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        paths.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    used: set[str] = set()
    matches, missing = [], []
    for key, names in paths.items():
        known = [name for name in names if name in plan.parameters]
        if not known and set(names) & set(unused):
            parameters[key].requires_grad_(False)
            continue
        if not known:
            missing.append(names[0])
            continue
        used.update(known)
        planned = plan.parameters[known[0]]
        transposed = _is_transposed(module, known[0], tuple(parameters[key].shape), planned)
        matches.append(Match(tuple(names), parameters[key], planned, transposed))
    unknown = [name for name in plan.parameters if name not in used]
    if missing or unknown:
        raise PlanError(_mismatch(missing, unknown))
    return matches


def _mismatch(missing: list[str], unknown: list[str]) -> str:
    lines = ["the module is not the one that the plan was made for"]
    for name in missing[:5]:
        near = difflib.get_close_matches(name, unknown, 1, 0.5)
        remedy = f"; like {near[0]}?" if near else "; if forward does not read it, name it in `unused`"
        lines.append(f"  {name} is a parameter of the module, not of the plan{remedy}")
    lines += [f"  {name} is a parameter of the plan, not of the module" for name in unknown[:5]]
    hidden = max(0, len(missing) - 5) + max(0, len(unknown) - 5)
    return "\n".join(lines + ([f"  and {hidden} more"] if hidden else []))


def _is_padded(shape: tuple[int, ...], planned: tuple[int, ...]) -> bool:
    """Returns whether one dim is rounded up, as --pad-vocabulary does by default: to a multiple of 128."""
    differing = [(a, b) for a, b in zip(shape, planned) if a != b]
    return len(shape) == len(planned) and len(differing) == 1 and all(b % 128 == 0 and 0 < b - a < 128 for a, b in differing)


def _leave_unpadded(name: str, shape: tuple[int, ...], planned: Parameter) -> None:
    """Warns that the padding of a table is left out, which changes no loss; a split over tp needs it."""
    if any(dim.all_axes for dim in planned.placements["used"].dims):
        raise NotExpressible(
            f"{name} has the shape {list(shape)}, is padded to {list(planned.shape)} in the plan and split over tp: "
            "plan with --pad-vocabulary 1"
        )
    warnings.warn(
        f"{name} has the shape {list(shape)}, without the plan's padding to {list(planned.shape)}", PaddedVocabularyWarning,
        stacklevel=5,
    )  # fmt: skip


def _is_transposed(module: nn.Module, name: str, shape: tuple[int, ...], planned: Parameter) -> bool:
    """Returns whether the exporter transposed the parameter, as it does with weights of nn.Linear."""
    owner = module.get_submodule(name.rpartition(".")[0])
    if shape != planned.shape and shape != planned.shape[::-1]:
        order = next((o for o in (planned.shape, planned.shape[::-1]) if _is_padded(shape, o)), None)
        if order:
            _leave_unpadded(name, shape, planned)
            return order != planned.shape
        raise PlanError(f"{name} has the shape {list(shape)}, and {list(planned.shape)} in the plan")
    if len(shape) != 2 or shape[0] != shape[1]:
        return shape != planned.shape
    known = {klass.__name__ for klass in type(owner).__mro__} & _SUMMED_DIM.keys()
    if len(planned.summed) == 1 and known:
        return planned.summed[0] != _SUMMED_DIM[known.pop()]
    used = planned.placements["used"]
    if used.dims[0] != used.dims[1]:
        raise NotExpressible(
            f"{name} is square, and {type(owner).__name__} does not say which of its dims is the input: "
            "use nn.Linear, or plan without tp"
        )
    return False
