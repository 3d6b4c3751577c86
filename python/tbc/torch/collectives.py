"""The collectives that PyTorch issues, in the terms of the plan's list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tbc.plan_file import Plan
from tbc.torch.mesh import PlanMesh

# Kind and the argument whose bytes count, by op: docs/plan.md counts the larger tensor of gathers and scatters.
_FUNCTIONAL = {
    "all_reduce": ("all_reduce", 1),
    "all_reduce_": ("all_reduce", 1),
    "all_reduce_coalesced": ("all_reduce", 1),
    "all_gather_into_tensor": ("all_gather", 0),
    "all_gather_into_tensor_out": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 1),
    "reduce_scatter_tensor_out": ("reduce_scatter", 1),
    "all_to_all_single": ("all_to_all", 1),
    "broadcast": ("broadcast", 1),
    "shard_dim_alltoall": ("all_to_all", 1),
}
_C10D = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "alltoall_": ("all_to_all", 1),
    "broadcast_": ("broadcast", 0),
    "send": ("send", 0),
}


@dataclass(frozen=True, order=True)
class Issued:
    """One kind of collective: over these axes, each execution with so many bytes on this rank."""

    kind: str
    axes: tuple[str, ...]
    bytes: int


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


class CollectiveRecorder(TorchDispatchMode):
    """Counts the collectives between its entry and exit, by kind, axes and bytes.

    Example::

        with CollectiveRecorder(parallel.mesh) as recorder:
            tbc.torch.train_step(parallel, optimizer, inputs, labels)
        recorder.counts[Issued("all_reduce", ("tp",), 8192)]   # 4
    """

    def __init__(self, mesh: PlanMesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.counts: Counter[Issued] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # A DTensor dispatches to collectives on plain tensors, which this mode sees by themselves.
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        result = func(*args, **kwargs)
        space, _, name = func._schema.name.partition("::")
        name = name.partition(".")[0]
        if space in ("_c10d_functional", "_c10d_functional_autograd", "_dtensor") and name in _FUNCTIONAL:
            kind, counted = _FUNCTIONAL[name]
            group = next((a for a in reversed([*args, *kwargs.values()]) if isinstance(a, str)), "")
            self._add(kind, group, args[0] if counted == 1 else result)
        elif space == "c10d" and name in _C10D:
            kind, counted = _C10D[name]
            boxed = next(a for a in args if isinstance(a, torch.ScriptObject) and _is_group(a))
            self._add(kind, dist.ProcessGroup.unbox(boxed).group_name, args[counted])
        return result

    def _add(self, kind: str, group: str, tensors: Any) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(tensors))
        axes = self.mesh.axes_of_groups().get(group, (group,))
        self.counts[Issued(kind, axes, size)] += 1


def _is_group(boxed: torch.ScriptObject) -> bool:
    return "ProcessGroup" in boxed._type().qualified_name()


def planned_collectives(plan: Plan, stage: int = 0) -> Counter[Issued]:
    """Returns the plan's collectives of a stage in the recorder's terms."""
    counts: Counter[Issued] = Counter()
    for line in plan.collectives:
        if stage in line.stages and line.kind != "shard_slice":
            counts[Issued(line.kind, line.axes, line.bytes)] += line.count
    return counts


def total_bytes(counts: Counter[Issued]) -> dict[tuple[str, tuple[str, ...]], int]:
    """Returns bytes by kind and axes."""
    totals: dict[tuple[str, tuple[str, ...]], int] = {}
    for one, count in counts.items():
        key = (one.kind, one.axes)
        totals[key] = totals.get(key, 0) + one.bytes * count
    return totals


