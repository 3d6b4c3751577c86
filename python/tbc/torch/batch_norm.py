"""Batch norm over the samples of all data ranks, as the plan has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm

from tbc.plan_file import Plan
from tbc.torch.mesh import PlanMesh


def synchronize_batch_norms(module: nn.Module, plan: Plan, mesh: PlanMesh) -> None:
    """Lets every batch norm in training take its statistics over a micro-batch of all data ranks.

    nn.SyncBatchNorm does so on CUDA devices alone, and gathers; the plan sums, as this does.
    """
    if plan.data_size == 1:
        return
    group = mesh.group(plan.data_axes)
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            child.forward = partial(_forward, child, child.forward, group, plan.data_size)  # type: ignore[method-assign]


def _forward(
    norm: _BatchNorm,
    local: Callable[[torch.Tensor], torch.Tensor],
    group: dist.ProcessGroup,
    ranks: int,
    given: torch.Tensor,
) -> torch.Tensor:
    """Returns the normalized value; two sums over the ranks here, and two in backward.

    Values of 16 bits are normalized in f32, as nn.BatchNorm2d does.
    """
    if not norm.training and norm.running_mean is not None:
        return local(given)
    value = given.float() if given.dtype in (torch.bfloat16, torch.float16) else given
    dims = [dim for dim in range(value.ndim) if dim != 1]
    shape = [1, -1] + [1] * (value.ndim - 2)
    count = value.numel() // value.shape[1] * ranks
    mean = all_reduce(value.sum(dims), group=group) / count
    centred = value - mean.view(shape)
    variance = all_reduce(centred.square().sum(dims), group=group) / count
    _update_running(norm, mean.detach(), variance.detach(), count)
    result = centred * torch.rsqrt(variance + norm.eps).view(shape)
    if norm.weight is not None:
        result = result * norm.weight.view(shape) + norm.bias.view(shape)
    return result.to(given.dtype)


@torch.no_grad()
def _update_running(norm: _BatchNorm, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
    """Updates the running statistics with the unbiased variance, as nn.BatchNorm2d does."""
    if norm.running_mean is None or norm.running_var is None:
        return
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    share = norm.momentum if norm.momentum is not None else 1.0 / float(norm.num_batches_tracked)
    norm.running_mean.lerp_(mean.to(norm.running_mean), share)
    norm.running_var.lerp_((variance * count / (count - 1)).to(norm.running_var), share)
