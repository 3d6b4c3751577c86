"""The plan's mesh as a DeviceMesh."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tbc.errors import PlanError
from tbc.plan_file import Plan


# The axes of each process group of any mesh. DTensor may keep using an equal mesh of an earlier plan.
_AXES_OF_GROUPS: dict[str, tuple[str, ...]] = {}


def reduce_axes(plan: Plan) -> tuple[str, ...]:
    """Returns the axes over which gradients are sums: those that split samples or the sequence."""
    return tuple(axis for axis in plan.mesh if axis in ("dp", "fsdp", "ep", "cp"))


class PlanMesh:
    """The DeviceMesh of a plan, with the groups that its collectives use.

    Axes are those of `plan.mesh` with a size above 1, in rank order. A mesh without data ranks also
    has `dp` of size 1, because FSDP needs a mesh for the master copies of its parameters.
    """

    def __init__(self, plan: Plan, device_type: str) -> None:
        if not dist.is_initialized():
            raise PlanError("torch.distributed is not initialized: start with torchrun and call init_process_group")
        if dist.get_world_size() != plan.ranks:
            raise PlanError(f"the plan is for {plan.ranks} ranks, and {dist.get_world_size()} processes run")
        self.plan = plan
        sizes = dict(plan.mesh) if reduce_axes(plan) else {**plan.mesh, "dp": 1}
        self.device: DeviceMesh = init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        self._flat: dict[tuple[str, ...], DeviceMesh] = {}

    def size(self, axes: tuple[str, ...]) -> int:
        """Returns the number of ranks along `axes` together."""
        return math.prod(self.plan.mesh.get(axis, 1) for axis in axes)

    def coordinate(self, axis: str) -> int:
        """Returns this rank's coordinate, 0 along an axis that the mesh does not have."""
        return self.device.get_local_rank(axis) if axis in self.plan.mesh else 0

    def along(self, axes: tuple[str, ...]) -> DeviceMesh:
        """Returns a mesh of one dim along `axes`, the slowest first."""
        axes = tuple(axis for axis in self.plan.mesh if axis in axes)
        if len(axes) <= 1:
            return self.device[axes[0]] if axes else self.device
        if axes not in self._flat:
            self._flat[axes] = self.device[axes]._flatten("_".join(axes))
        return self._flat[axes]

    def data(self) -> DeviceMesh:
        """Returns a mesh of one dim along the axes over which gradients are sums."""
        return self.along(reduce_axes(self.plan)) if reduce_axes(self.plan) else self.device["dp"]

    def group(self, axes: tuple[str, ...]) -> dist.ProcessGroup:
        """Returns the process group along `axes`."""
        return self.along(axes).get_group()

    def data_index(self) -> int:
        """Returns the number of this rank's share of a micro-batch."""
        index = 0
        for axis in self.plan.data_axes:
            index = index * self.plan.mesh[axis] + self.coordinate(axis)
        return index

    def is_first(self, axes: tuple[str, ...]) -> bool:
        """Returns whether this rank has coordinate 0 along all of `axes`."""
        return all(self.coordinate(axis) == 0 for axis in axes)

    def name_group(self, group: dist.ProcessGroup, axes: tuple[str, ...]) -> None:
        """Says along which axes a group lies that is made of a part of the ranks there."""
        _AXES_OF_GROUPS[group.group_name] = axes

    def axes_of_groups(self) -> dict[str, tuple[str, ...]]:
        """Returns the axes of each process group of this mesh, by the group's name."""
        names = {self.device.get_group(axis).group_name: (axis,) for axis in self.plan.mesh}
        names.update({mesh.get_group().group_name: axes for axes, mesh in self._flat.items()})
        world = dist.group.WORLD
        assert world is not None
        names.setdefault(world.group_name, tuple(self.plan.mesh))
        _AXES_OF_GROUPS.update(names)
        return _AXES_OF_GROUPS


def local_samples(plan: Plan, mesh: PlanMesh, batch: torch.Tensor) -> torch.Tensor:
    """Returns this rank's samples of a global batch, its micro-batches one after the other.

    A micro-batch over all data ranks is a contiguous part of the batch, and each rank has its equal
    part of that. Example: 8 samples, accumulation 2, 2 data ranks: rank 1 has 2, 3, 6 and 7.
    """
    if batch.shape[0] != plan.batch:
        raise PlanError(f"the plan's batch has {plan.batch} samples, and this one {batch.shape[0]}")
    parts = batch.unflatten(0, (plan.accumulation, plan.data_size, plan.micro_batch))
    return parts[:, mesh.data_index()].flatten(0, 1)
