"""Ops on DTensors for which PyTorch would gather, although each rank can compute its part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed.tensor as dtensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DTensor, Shard = dtensor.DTensor, dtensor.Shard
_MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
_SPLITS = (torch.Tensor.split, torch.split, torch.Tensor.chunk, torch.chunk)


class LocalForms(TorchFunctionMode):
    """Within it, these ops stay local:

    - split and chunk of a dim whose equal segments lie on every rank (fused q, k and v);
    - matmuls of batches, and scaled_dot_product_attention, of tensors that are split by samples or heads
      alone.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SPLITS and isinstance(args[0], DTensor):
            parts = _split(func, *args, **kwargs)
            if parts is not None:
                return parts
        if func in _MATMULS and isinstance(args[0], DTensor):
            product = _matmul(*args)
            if product is not None:
                return product
        if func is functional.scaled_dot_product_attention and isinstance(args[0], DTensor):
            result = _attention(*args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


def _split(func: Any, value: DTensor, size: Any, dim: int = 0) -> tuple[torch.Tensor, ...] | None:
    """Splits a dim into its segments, or returns None."""
    dim %= value.ndim
    strided = [p for p in value.placements if isinstance(p, _StridedShard) and p.dim == dim]
    if len(strided) != 1 or len(value.placements) != 1:
        return None
    segments = strided[0].split_factor
    length = value.shape[dim] // segments
    if func in (torch.Tensor.chunk, torch.chunk):
        sizes = [length] * segments if size == segments else []
    else:
        sizes = [size] * (value.shape[dim] // size) if isinstance(size, int) else list(size)
    if sizes != [length] * segments:
        return None
    parts = value.to_local().chunk(segments, dim)
    return tuple(DTensor.from_local(part, value.device_mesh, [Shard(dim)], run_check=False) for part in parts)


def _matmul(left: DTensor, right: Any) -> torch.Tensor | None:
    """Multiplies batches of matrices whose batch dims alone are split, or returns None.

    DTensor would flatten the batch dims, which it refuses if one after the first is split.
    """
    alike = isinstance(right, DTensor) and left.placements == right.placements and left.ndim == right.ndim > 2
    if not alike or not all(type(p) is Shard and p.dim < left.ndim - 2 for p in left.placements):
        return None
    return DTensor.from_local(left.to_local() @ right.to_local(), left.device_mesh, left.placements, run_check=False)


def _attention(query: DTensor, key: Any, value: Any, attn_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Attends on local heads and samples, or returns None."""
    operands = (query, key, value)
    mask = attn_mask
    if isinstance(mask, DTensor):
        if any(not placement.is_replicate() for placement in mask.placements):
            return None
        mask = mask.to_local()
    if any(not isinstance(o, DTensor) or o.placements != query.placements for o in operands):
        return None
    for placement in query.placements:
        if placement.is_replicate():
            continue
        if type(placement) is not Shard or placement.dim > query.ndim - 3:
            return None
        if mask is not None and mask.ndim > placement.dim and mask.shape[placement.dim - query.ndim] != 1:
            return None
    local = [operand.to_local() for operand in operands]
    result = functional.scaled_dot_product_attention(*local, mask, *args, **kwargs)
    return DTensor.from_local(result, query.device_mesh, query.placements, run_check=False)


@contextmanager
def local_forms() -> Iterator[None]:
    """The context of forward and backward of a module with DTensors. Plain tensors count as replicated."""
    with implicit_replication(), LocalForms():
        yield
