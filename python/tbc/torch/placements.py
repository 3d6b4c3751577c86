"""Placements of a plan as placements of DTensor."""

from __future__ import annotations

import torch.distributed.tensor as dtensor
from torch.distributed.tensor.placement_types import Placement as TorchPlacement
from torch.distributed.tensor.placement_types import _StridedShard

from tbc.plan_file import Dim, Placement
from tbc.torch.matching import Match
from tbc.torch.problems import NotExpressible


def shard_of(dim: Dim, number: int, axis: str, name: str) -> TorchPlacement | None:
    """Returns how `axis` splits dim `number`, or None if it does not.

    Equal segments are a strided shard. Example: 192 columns as 3 segments of 4 heads over tp are
    _StridedShard(dim, split_factor=3). Raises NotExpressible for unequal segments.
    """
    if axis in dim.axes:
        return dtensor.Shard(number)
    if not any(axis in factor.axes for segment in dim.segments for factor in segment):
        return None
    forms = set()
    for segment in dim.segments:
        outer, sizes = 1, [factor.size for factor in segment]
        for factor in segment:
            if axis in factor.axes:
                break
            outer *= factor.size
        forms.add((outer, tuple(sizes)))
    lengths = {_product(sizes) for _, sizes in forms}
    outers = {outer for outer, _ in forms}
    if len(lengths) != 1 or len(outers) != 1:
        raise NotExpressible(
            f"{name} is split over {axis} in segments of unequal lengths {sorted(lengths)}; DTensor has strided "
            f"shards of equal lengths only: give the segments weights of their own, or plan without {axis}"
        )
    pieces = len(dim.segments) * outers.pop()
    return dtensor.Shard(number) if pieces == 1 else _StridedShard(number, split_factor=pieces)


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def tensor_placement(placement: Placement, axis: str, name: str) -> TorchPlacement:
    """Returns how a tensor lies along one mesh axis."""
    for axes in [dim.all_axes for dim in placement.dims] + [{*placement.partial}]:
        if any(other.startswith(axis + ":") for other in axes):
            raise NotExpressible(f"{name} is split over a part of {axis}; plan with {axis} as two axes, or without it")
    if axis in placement.partial:
        return dtensor.Partial()
    for number, dim in enumerate(placement.dims):
        shard = shard_of(dim, number, axis, name)
        if shard is not None:
            return shard
    return dtensor.Replicate()


def parameter_placement(match: Match, kind: str, axis: str) -> TorchPlacement:
    """Returns how a parameter of the module lies along `axis`. `kind`: "stored", "used" and so on."""
    placement = match.plan.placements[kind]
    if match.transposed:
        placement = Placement(placement.dims[::-1], placement.partial, placement.partial_max)
    return tensor_placement(placement, axis, match.plan.name)
