"""Activation checkpointing of the modules whose ops the plan recomputes."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from tbc.plan import Plan
from tbc.torch.problems import RecomputeWarning


def apply_recompute(module: nn.Module, plan: Plan) -> list[str]:
    """Checkpoints the outermost modules of which the plan recomputes every op. Returns their paths.

    Warns with the modules of which it recomputes some ops: their activations are kept.
    """
    whole = _whole_modules(plan)
    chosen = [name for name, _ in module.named_modules() if name in whole and name.rpartition(".")[0] not in whole]
    for name in chosen:
        child = module.get_submodule(name)
        child.forward = _checkpointed(child.forward)  # type: ignore[method-assign]
    covered = [r for r in plan.recompute if not any(r.module == n or r.module.startswith(n + ".") for n in chosen)]
    # A plan without recompute still recomputes elementwise ops inside of kernels, which costs nothing.
    if covered and plan.json["recompute"]["mode"] != "none":
        warnings.warn(
            f"the plan recomputes some ops of {len(covered)} modules, such as {covered[0].module} ({covered[0].ops} of "
            f"{covered[0].of}); their activations are kept", RecomputeWarning, stacklevel=3,
        )  # fmt: skip
    return chosen


def _checkpointed(forward: Any) -> Any:
    return partial(checkpoint, forward, use_reentrant=False)


def _whole_modules(plan: Plan) -> set[str]:
    """Returns the modules of which every op, those of the modules inside included, is recomputed."""
    recomputed = {r.module for r in plan.recompute if r.ops == r.of}
    partly = {r.module for r in plan.recompute if r.ops < r.of}
    owners = {name for name in plan.modules}
    leaves = {name for name in owners if not any(other.startswith(name + ".") for other in owners)}
    return {
        name
        for name in owners
        if name not in partly
        and (name in recomputed or name not in leaves)
        and all(leaf in recomputed for leaf in leaves if leaf == name or leaf.startswith(name + "."))
        and not any(p.startswith(name + ".") for p in partly)
    }
