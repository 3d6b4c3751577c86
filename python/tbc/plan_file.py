"""`Plan`: plan.json as Python objects. docs/plan.md has the meaning of every key."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tbc.errors import PlanError
from tbc.fingerprint import check_fingerprint
from tbc.names import expand

VERSION = 6


@dataclass(frozen=True)
class Interval:
    """A prediction: the expected value, and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest device. `verdict` is "fits", "tight" or "does not fit"."""

    bytes: Interval
    limit_bytes: int
    verdict: str


@dataclass(frozen=True)
class Factor:
    """A part of a dim: `size` blocks, split over `axes`."""

    size: int
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Dim:
    """How a dim is split: in equal contiguous parts over `axes`, or by `segments` of factors."""

    axes: tuple[str, ...] = ()
    segments: tuple[tuple[Factor, ...], ...] = ()

    @property
    def all_axes(self) -> set[str]:
        """The axes that split this dim in any form."""
        return set(self.axes) | {axis for segment in self.segments for factor in segment for axis in factor.axes}


@dataclass(frozen=True)
class Placement:
    """Where the elements of a tensor lie. Axes that are not named hold replicas."""

    dims: tuple[Dim, ...]
    partial: tuple[str, ...] = ()
    partial_max: tuple[str, ...] = ()
    flat: tuple[str, ...] = ()
    padding: int = 0

    def local_elements(self, shape: tuple[int, ...], mesh: Mapping[str, int]) -> int:
        """Returns how many elements a rank has, padding included.

        Example: shape (64, 256) with dims [[], ["tp"]] and flat ["fsdp"] on fsdp=2, tp=2 has 4096.
        """
        parts = math.prod(mesh[axis] for dim in self.dims for axis in dim.all_axes)
        elements = math.prod(shape) // parts
        shards = math.prod(mesh[axis] for axis in self.flat)
        return -(-elements // shards)


@dataclass(frozen=True)
class Tensor:
    """An activation or an input: its shape in one micro-batch over all data ranks, and placement."""

    shape: tuple[int, ...]
    dtype: str
    placement: Placement


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model, by module path."""

    name: str
    initializer: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool
    gather: str
    summed: tuple[int, ...]
    placements: dict[str, Placement]


@dataclass(frozen=True)
class Module:
    """The activations that enter and leave a module."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Stage:
    """One chunk of the model and its pipeline stage."""

    chunk: int
    stage: int
    first_op: str
    begin: str
    modules: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Collective:
    """Equal collectives of a step on each rank of `stages`; `bytes` of one execution on one rank."""

    kind: str
    axes: tuple[str, ...]
    bytes: int
    count: int
    purpose: str
    cause: str
    stages: tuple[int, ...]


@dataclass(frozen=True)
class Recomputed:
    """A module of whose `of` forward ops `ops` are recomputed in backward."""

    module: str
    ops: int
    of: int


def _dim(json_dim: Any) -> Dim:
    if isinstance(json_dim, list):
        return Dim(axes=tuple(json_dim))
    segments = json_dim["segments"]
    return Dim(segments=tuple(tuple(Factor(f["size"], tuple(f["axes"])) for f in segment) for segment in segments))


def _placement(entry: Mapping[str, Any]) -> Placement:
    return Placement(
        tuple(_dim(dim) for dim in entry["dims"]),
        tuple(entry.get("partial", ())),
        tuple(entry.get("partial_max", ())),
        tuple(entry.get("flat", ())),
        entry.get("padding", 0),
    )


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    return Tensor(tuple(entry["shape"]), entry["dtype"], _placement(entry))


@dataclass(frozen=True)
class Plan:
    """A plan of `tbc plan`.

    Example::

        plan = tbc.Plan.load("plan.json")
        plan.mesh                                    # {"fsdp": 2, "tp": 2}
        plan.parameters["lm_head.weight"].placements["stored"].flat  # ("fsdp",)
    """

    json: dict[str, Any] = field(repr=False)
    mesh: dict[str, int]
    schedule: str
    micro_batch: int
    accumulation: int
    memory: Memory
    time: Interval
    parameters: dict[str, Parameter] = field(repr=False)
    modules: dict[str, Module] = field(repr=False)
    stages: tuple[Stage, ...] = field(repr=False)
    collectives: tuple[Collective, ...] = field(repr=False)
    recompute: tuple[Recomputed, ...] = field(repr=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a plan file. Raises PlanError with the file's name if it is no plan of this version."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PlanError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise PlanError(f"{path} is not JSON: {error}") from error
        try:
            return cls.from_json(content)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        """Returns the plan of parsed JSON. Raises PlanError."""
        if not isinstance(content, dict) or content.get("format") != "tbc-plan":
            raise PlanError('this is not a plan: the key "format" must be "tbc-plan"')
        if content.get("version") != VERSION:
            raise PlanError(f"version {content.get('version')} of plan.json; this package reads version {VERSION}: plan again")
        layout = content.get("layout")
        if not layout or "modules" not in layout:
            raise PlanError('the plan has no complete key "layout"; tbc explain PLAN --derive FILE writes it')
        check_fingerprint(content)
        try:
            return cls._parse(content, layout)
        except (KeyError, TypeError, IndexError) as error:
            raise PlanError(f"the plan is damaged: {type(error).__name__} {error}; plan again") from error

    @classmethod
    def _parse(cls, content: dict[str, Any], layout: dict[str, Any]) -> Plan:
        prediction = content["prediction"]
        return cls(
            json=content,
            mesh={axis["axis"]: axis["size"] for axis in layout["axes"]},
            schedule=content["schedule"],
            micro_batch=content["micro_batch"],
            accumulation=content["accumulation"],
            memory=Memory(
                Interval(content["peak_bytes"], prediction["low_bytes"], prediction["high_bytes"]),
                prediction["limit_bytes"],
                content["memory"],
            ),
            time=Interval(content["step_seconds"], prediction["low_seconds"], prediction["high_seconds"]),
            parameters=_parameters(layout),
            modules={
                name: Module(name, tuple(map(_tensor, group["inputs"])), tuple(map(_tensor, group["outputs"])))
                for group in layout["modules"]
                for name in expand(group["names"])
            },
            stages=_stages(content, layout),
            collectives=tuple(
                Collective(c["kind"], tuple(c["axes"]), c["bytes"], c["count"], c["purpose"], c["cause"], tuple(c["stages"]))
                for c in layout["collectives"]
            ),
            recompute=tuple(
                Recomputed(name, group["ops"], group["of"])
                for group in layout["recompute"]
                for name in expand(group["modules"])
            ),
        )

    @property
    def ranks(self) -> int:
        """Processes that run the plan."""
        return math.prod(self.mesh.values())

    @property
    def batch(self) -> int:
        """Samples of a step, over all ranks."""
        return int(self.json["job"]["batch"])

    @property
    def data_axes(self) -> tuple[str, ...]:
        """The axes that split the batch, the slowest first."""
        return tuple(axis for axis in self.mesh if axis in ("dp", "fsdp", "ep"))

    @property
    def data_size(self) -> int:
        """Ranks that divide the batch among them."""
        return math.prod(self.mesh[axis] for axis in self.data_axes)

    @property
    def setting(self) -> dict[str, float]:
        """The numbers of the step that were given (docs/training.md), such as "clip_norm"."""
        return dict(self.json["job"]["settings"])

    def bindings(self, kind: str) -> list[str]:
        """The arguments of bindings of a kind. Example: "no-decay" gives the globs of --no-decay."""
        return [key[len(kind) + 1 :] for key in self.json["job"]["bindings"] if key.startswith(kind + " ")]


def _parameters(layout: Mapping[str, Any]) -> dict[str, Parameter]:
    parameters = {}
    for group in layout["parameters"]:
        kinds = [kind for kind in ("stored", "used", "gradient", "optimizer_state") if kind in group]
        placements = {kind: _placement(group[kind]) for kind in kinds}
        for name in expand(group["names"]):
            parameters[name] = Parameter(
                name, layout["initializers"].get(name, name), tuple(group["shape"]), group["dtype"], group["trained"],
                group["gather"]["lifetime"], tuple(group.get("summed", ())), placements,
            )  # fmt: skip
    return parameters


def _stages(content: Mapping[str, Any], layout: Mapping[str, Any]) -> tuple[Stage, ...]:
    begins = content["stage_names"] or [""] * len(layout["chunks"])
    return tuple(
        Stage(chunk["chunk"], chunk["stage"], chunk["first_op"], begin, tuple(expand(chunk["modules"])),
              tuple(expand(chunk["parameters"])))
        for chunk, begin in zip(layout["chunks"], begins, strict=True)
    )  # fmt: skip
