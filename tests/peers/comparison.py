"""Compares the collectives that PyTorch issues with those of the plan, and names each difference."""

from __future__ import annotations

import math
from collections import Counter

from harness import Result

import tbc
from tbc.torch.collectives import Issued

REASONS = {
    "scalars": "the norm is always summed too, and in f64",
    "grouping": "FSDP gathers and reduces the parameters of a module together",
    "regather": "FSDP gathers a module's parameters again in backward, also those that backward does not read",
    "prefetch": "FSDP gathers a unit ahead in the order of one micro-batch, which a pipeline alternates with others",
    "kept": "a table outside of blocks is not looked up again, so not gathered again",
    "buckets": "buckets are cut at other parameters",
    "sends": "the plan sends the summands of an activation's gradient, autograd their sum",
    "tables": "the plan reduces the gradient of looked-up rows, PyTorch that of the table",
    "addition": "DTensor adds on parts and gathers the sum, or the gradient of a part",
}


def compare(plan: tbc.Plan, result: Result) -> tuple[set[str], list[str]]:
    """Returns the reasons of the differences, and the differences without a reason."""
    reasons: set[str] = set()
    unexplained: list[str] = []
    for stage, issued in sorted(result.issued.items()):
        planned = result.planned[stage]
        for key in sorted(_keys(issued) | _keys(planned)):
            a, b = _of(planned, key), _of(issued, key)
            if a == b:
                continue
            reason = _reason(plan, key, a, b, stage)
            if reason:
                reasons.add(reason)
            else:
                unexplained.append(f"stage {stage}: {key[0]} over {'+'.join(key[1])}: planned {dict(a)}, issued {dict(b)}")
    return reasons, unexplained


# Kinds that CommDebugMode of PyTorch 2.11 does not count.
UNCOUNTED = {"send"}


def debug_differences(result: Result) -> list[str]:
    """Returns where CommDebugMode counted other collectives than the recorder, by stage and kind."""
    differences = []
    for stage, seen in sorted(result.debugged.items()):
        issued: Counter[str] = Counter()
        for one, count in result.issued[stage].items():
            if one.kind not in UNCOUNTED:
                issued[one.kind] += count
        differences += [f"stage {stage}: {seen[kind]} {kind}, recorded {issued[kind]}"
                        for kind in sorted(seen.keys() | issued.keys()) if seen[kind] != issued[kind]]  # fmt: skip
    return differences


def _keys(counts: Counter[Issued]) -> set[tuple[str, tuple[str, ...]]]:
    return {(one.kind, one.axes) for one in counts}


def _of(counts: Counter[Issued], key: tuple[str, tuple[str, ...]]) -> Counter[int]:
    """Returns the count of each size in bytes."""
    return Counter({one.bytes: count for one, count in counts.items() if (one.kind, one.axes) == key})


def _reason(plan: tbc.Plan, key: tuple[str, tuple[str, ...]], planned: Counter[int], issued: Counter[int], stage: int) -> str:
    kind, axes = key
    if kind == "all_reduce" and axes == tuple(plan.mesh):
        scalars = {line.bytes for line in plan.collectives if line.purpose == "norm, flags and counts"}
        planned = planned - Counter(dict.fromkeys(scalars, 1))
        issued = issued - Counter({24: 1})
        if planned == issued:
            return "scalars"
    size = lambda counts: sum(one * count for one, count in counts.items())
    data_axes = {"dp", "fsdp", "ep"}
    data = set(axes) <= data_axes
    if data and size(planned) == size(issued):
        return "buckets" if kind == "all_reduce" and not _is_sharded(plan) else "grouping"
    rows = {line.bytes: line.count for line in plan.collectives
            if line.purpose == "between ops" and line.cause.endswith(" reduce_sum") and set(line.axes) <= data_axes}  # fmt: skip
    if data and rows and kind != "all_gather" and 0 <= size(issued) - size(planned - Counter(rows)) <= size(rows):
        return "tables"
    if data and kind == "all_gather":
        gathers = _gathers(plan, stage)
        if size(planned) < size(issued) <= 2 * sum(gathers):
            return "regather"
        ahead = max(gathers, default=0) // plan.accumulation
        if "pp" in plan.mesh and 2 * sum(gathers) < size(issued) <= 2 * sum(gathers) + ahead:
            return "prefetch"
        if plan.json["recompute"]["mode"] != "none" and size(planned) - size(issued) in gathers:
            return "kept"
    if kind == "send" and sum(issued.values()) == _sends(plan, stage) < sum(planned.values()):
        return "sends"
    if kind == "all_gather" and axes == ("tp",) and sum(issued.values()) <= sum(planned.values()) + 2 * plan.accumulation:
        return "addition"
    return ""


def _is_sharded(plan: tbc.Plan) -> bool:
    return any(p.gather != "always" for p in plan.parameters.values())


def _gathers(plan: tbc.Plan, stage: int) -> list[int]:
    """Returns bytes of one gather of each sharded parameter of a stage, over all micro-batches."""
    held = {name for s in plan.stages if s.stage == stage for name in s.parameters}
    sharded = [p for p in plan.parameters.values() if p.name in held and p.gather == "use"]
    shards = lambda p: math.prod(plan.mesh[axis] for axis in p.placements["stored"].flat)
    elements = [p.placements["stored"].local_elements(p.shape, plan.mesh) * shards(p) for p in sharded]  # with padding
    return [4 * count * plan.accumulation for count in elements]


def _sends(plan: tbc.Plan, stage: int) -> int:
    """Returns one send per cut in forward and one in backward, of each micro-batch."""
    stages = [chunk.stage for chunk in plan.stages]
    cuts = [(a, b) for a, b in zip(stages, stages[1:]) if a != b]
    return plan.accumulation * sum((a == stage) + (b == stage) for a, b in cuts)


