"""Activation checkpointing where the plan recomputes, selective by op."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tbc.plan_file import Plan
from tbc.torch.forms import LocalForms
from tbc.torch.problems import RecomputeWarning
from tbc.torch.tensor_parallel import is_linear

_aten = torch.ops.aten
_ATTENTION = {
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
}
_MATMUL_OPS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default, _aten.convolution.default}


def apply_recompute(module: nn.Module, plan: Plan) -> dict[str, str]:
    """Checkpoints the blocks of a module as planned. Returns the mode of each, "full" or "selective".

    A block is an item of a ModuleList or Sequential that is in no other. "full" recomputes all but
    attention, "selective" all but attention and matmuls; results of collectives are saved.

    Warns with the modules outside of blocks that the plan recomputes: their activations are kept.
    """
    if plan.json["recompute"]["mode"] == "none":
        return {}  # a plan without recompute recomputes elementwise ops inside of kernels, at no cost
    modes: dict[str, str] = {}
    for name in _blocks(module):
        mode = _mode(name, module.get_submodule(name), plan)
        if mode:
            modes[name] = mode
    for name, mode in modes.items():
        child = module.get_submodule(name)
        saved = _ATTENTION if mode == "full" else _ATTENTION | _MATMUL_OPS
        child.forward = _checkpointed(child.forward, saved)  # type: ignore[method-assign]
    known = dict(module.named_modules())
    outside = [r.module for r in plan.recompute if r.module in known and not _is_inside(r.module, modes)]
    if outside:
        warnings.warn(
            f"{len(outside)} modules outside of blocks keep activations that the plan recomputes, such as {outside[0]}",
            RecomputeWarning, stacklevel=3,
        )  # fmt: skip
    return modes


def _blocks(module: nn.Module) -> list[str]:
    lists = [name for name, child in module.named_modules() if isinstance(child, nn.ModuleList | nn.Sequential)]
    outer = [name for name in lists if not any(name.startswith(other + ".") for other in lists)]
    return [f"{name}.{item}" if name else item for name in outer for item, _ in module.get_submodule(name).named_children()]


def _is_inside(name: str, blocks: dict[str, str]) -> bool:
    return any(name == block or name.startswith(block + ".") for block in blocks)


def _mode(block: str, module: nn.Module, plan: Plan) -> str:
    """Returns how the plan recomputes a block: "full" if any matmul is, "selective", or ""."""
    inside = [r for r in plan.recompute if r.module == block or r.module.startswith(block + ".")]
    linear = {f"{block}.{name}" if name else block for name, child in module.named_modules() if is_linear(child)}
    if any(r.module in linear and r.ops == r.of for r in inside):
        return "full"
    return "selective" if inside else ""


def _checkpointed(forward: Callable[..., Any], saved: set[Any]) -> Callable[..., Any]:
    def policy(context: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_saved = func in saved or getattr(func, "namespace", "") == "_c10d_functional"
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    def run(*args: Any, **kwargs: Any) -> Any:
        # Backward recomputes outside of the modes of forward.
        with LocalForms():
            return forward(*args, **kwargs)

    contexts = partial(create_selective_checkpoint_contexts, policy)
    return partial(checkpoint, run, use_reentrant=False, context_fn=contexts)
