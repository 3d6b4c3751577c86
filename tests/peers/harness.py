"""Runs plans on Gloo processes of this machine, and compares them with serial PyTorch.

A world of N processes is forked once and runs all cases with N ranks, so that importing PyTorch and
transformers is paid for once.
"""

from __future__ import annotations

import copy
import datetime
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
SOURCE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "models")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
import zoo  # noqa: E402

from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

import tbc  # noqa: E402
import tbc.torch  # noqa: E402
from tbc.torch.collectives import Issued, planned_collectives  # noqa: E402
from tbc.torch.onnx_file import write_onnx  # noqa: E402

TBC = Path(os.environ.get("TBC", SOURCE / "build/bin/tbc"))
STEPS = 10  # torch_plans_test.py takes fewer without --all
# Hugging Face's BERT makes a bias that its forward does not read, if embeddings are not tied.
UNUSED = {"masked-bert": ("cls.predictions.bias",)}
TOLERANCE = 1e-9


def vit():
    import transformers

    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=16, patch_size=4,
        num_labels=10))  # fmt: skip


# Models without a file in models/: they are exported as tbc.plan exports a module.
EXPORTED = {"tiny-vit": zoo.Model(vit, "pixel_values", (3, 16, 16))}
MODELS = {**zoo.MODELS, **zoo.MASKED, **EXPORTED}


@dataclass(frozen=True)
class Case:
    """A model of models/ and the flags of its plan."""

    model: str
    mesh: str
    flags: str = "--batch 8 --precision f32"

    @property
    def name(self) -> str:
        return f"{self.model} {self.mesh} {self.flags}"

    @property
    def ranks(self) -> int:
        sizes = [int(part.split("=")[1]) for part in self.mesh.split(",")]
        result = 1
        for size in sizes:
            result *= size
        return result


@dataclass
class Result:
    """What a case gave. `issued` and `planned` are of one step, by pipeline stage."""

    serial: list[float]
    plan: tbc.Plan
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    losses_f32: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)  # by rank: parameters between steps
    planned_bytes: list[int] = field(default_factory=list)
    issued: dict[int, Counter[Issued]] = field(default_factory=dict)
    planned: dict[int, Counter[Issued]] = field(default_factory=dict)
    debugged: dict[int, Counter[str]] = field(default_factory=dict)  # by kind, of torch's CommDebugMode
    warned: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def error(self) -> float:
        if len(self.losses) != len(self.serial):
            return float("inf")
        return max(abs(a - b) / abs(b) for a, b in zip(self.losses, self.serial))


def module_of(name: str) -> torch.nn.Module:
    """Returns the module of a model in f64, without dropout."""
    if name not in zoo.MODELS:
        torch.manual_seed(zoo.SEED_WEIGHTS)
        module = MODELS[name].build()
        zoo.vary_vectors(module)
    else:
        module = zoo.build(name)
    for child in module.modules():
        if isinstance(child, torch.nn.Dropout):
            child.p = 0.0
    if hasattr(module, "config"):
        module.eval()  # dropout of attention is a function there
    return module.double()


def data_of(name: str, batch: int, seed: int = 7) -> tuple[object, torch.Tensor]:
    """Returns inputs and labels of a global batch."""
    model = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    if model.vocabulary:
        tokens = torch.randint(0, model.vocabulary, (batch, 16), generator=generator)
        labels = torch.randint(0, model.vocabulary, (batch, 16), generator=generator)
        if name == "masked-bert":
            lengths = torch.randint(4, 17, (batch, 1), generator=generator)
            mask = (torch.arange(16) < lengths).long()
            return {"input_ids": tokens, "attention_mask": mask}, labels.masked_fill(mask == 0, -100)
        return tokens, labels
    inputs = torch.randn(batch, *model.input_shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, model.classes, (batch,), generator=generator)


def map_batch(inputs, function):
    return {key: function(value) for key, value in inputs.items()} if isinstance(inputs, dict) else function(inputs)


def model_file(name: str, folder: Path) -> Path:
    """Returns the ONNX file of a model, exported once if models/ has none."""
    if name not in EXPORTED:
        return SOURCE / "models" / f"{name}.onnx"
    file = folder / f"{name}.onnx"
    if not file.exists():
        # In a process of its own: the exporter starts threads of autograd, which the ranks' fork does not survive.
        writer = multiprocessing.get_context("fork").Process(target=_write, args=(name, file))
        writer.start()
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"{name} was not exported: its process ended with {writer.exitcode}")
    return file


def _write(name: str, file: Path) -> None:
    logging.disable(logging.WARNING)  # the exporter's, about packages that are not there
    example = torch.zeros(2, *MODELS[name].input_shape)
    write_onnx(module_of(name).float(), {MODELS[name].input_name: example}, file)


def make_plan(case: Case, folder: Path) -> Path:
    file = folder / (case.name.replace(" ", "_").replace("/", "_") + ".json")
    flags = case.flags.split()
    if MODELS[case.model].vocabulary:
        flags += ["--seq", "16", "--pad-vocabulary", "1"]
    if case.model == "masked-bert":
        flags += ["--fix", "attention_mask=input"]
    command = [TBC, "plan", model_file(case.model, folder), "--gpus", case.ranks, "--mesh", case.mesh,
               "--no-dropout", *flags, "-o", file]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr}")
    return file


def serial_losses(case: Case, plan: tbc.Plan) -> list[float]:
    """Trains the module by PyTorch alone, on the whole batch, with the plan's optimizer."""
    module = module_of(case.model)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
    limit = plan.setting.get("clip_norm")
    losses = []
    for step in range(STEPS):
        inputs, labels = data_of(case.model, plan.batch, step)
        optimizer.zero_grad()
        total = 0.0
        count = (labels != -100).sum()
        size = plan.batch // plan.accumulation  # micro-batches over all ranks: batch norm sees them
        for index in range(plan.accumulation):
            part = map_batch(inputs, lambda value: value[index * size : (index + 1) * size])  # noqa: B023
            output = module(**part) if isinstance(part, dict) else module(part)
            logits = getattr(output, "logits", output).flatten(0, -2)
            target = labels[index * size : (index + 1) * size].flatten()
            loss = torch.nn.functional.cross_entropy(logits, target, reduction="sum") / count
            loss.backward()
            total += loss.item()
        if limit is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), limit)
        optimizer.step()
        losses.append(total)
    return losses


def run_case(case: Case, plan_file: Path, result: Result) -> None:
    """Runs the plan on this rank of the world."""
    plan = tbc.Plan.load(plan_file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel = tbc.torch.parallelize(module_of(case.model), plan, UNUSED.get(case.model, ()))
    result.warned = sorted({type(w.message).__name__ for w in caught if isinstance(w.message, tbc.torch.PlanWarning)})
    optimizer = tbc.torch.optimizer(parallel, lr=1e-3)
    mine = 0
    for _, parameter, _ in parallel.planned():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        mine += local.numel() * 4  # of the plan's f32
    result.bytes = [0] * plan.ranks
    dist.all_gather_object(result.bytes, mine)
    for step in range(STEPS):
        inputs, labels = data_of(case.model, plan.batch, step)
        done = tbc.torch.train_step(parallel, optimizer, map_batch(inputs, parallel.local), parallel.local(labels))
        result.losses.append(done.loss)
        result.norms.append(done.norm)
    planned = 0
    for p in plan.parameters.values():
        kind = "optimizer_state" if p.gather == "step" else "stored"
        stages = {s.stage for s in plan.stages if p.name in s.parameters}
        if parallel.mesh.coordinate("pp") not in stages:
            continue
        planned += p.placements[kind].local_elements(p.shape, plan.mesh) * 4
    result.planned_bytes = [0] * plan.ranks
    dist.all_gather_object(result.planned_bytes, planned)
    record_f32(case, plan, result)


def record_f32(case: Case, plan: tbc.Plan, result: Result) -> None:
    """Records the second step in f32, the plan's precision, so that bytes compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallel = tbc.torch.parallelize(module_of(case.model).float(), plan, UNUSED.get(case.model, ()))
    optimizer = tbc.torch.optimizer(parallel, lr=1e-3)
    for step in range(2):
        inputs, labels = data_of(case.model, plan.batch, step)
        inputs = map_batch(inputs, lambda value: value.float() if value.is_floating_point() else value)
        recorder, debug = tbc.torch.CollectiveRecorder(parallel.mesh), CommCounts()
        with debug, recorder:
            done = tbc.torch.train_step(parallel, optimizer, map_batch(inputs, parallel.local), parallel.local(labels))
        result.losses_f32.append(done.loss)
    stages = [None] * plan.ranks
    dist.all_gather_object(stages, (parallel.mesh.coordinate("pp"), recorder.counts, debugged(debug)))
    for stage, counts, kinds in reversed(stages):
        result.issued[stage] = counts
        result.debugged[stage] = kinds
        result.planned[stage] = planned_collectives(plan, stage)


class CommCounts(CommDebugMode):
    """CommDebugMode's counts, without its tracker of modules.

    The tracker's hooks on every module's backward do not go together with FSDP2's and with checkpointing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.advanced_module_tracker = types.SimpleNamespace(
            name="Global", is_bw=False, activation_checkpointing=False, module_parents_dict={"Global": set()},
            __enter__=lambda: None, __exit__=lambda *_: None)  # fmt: skip


def debugged(debug: CommDebugMode) -> Counter[str]:
    """Returns the number of collectives that CommDebugMode saw, by kind."""
    kinds = {"reduce_scatter": "reduce_scatter", "allgather": "all_gather", "all_gather": "all_gather", "all_reduce": "all_reduce",
             "allreduce": "all_reduce", "all_to_all": "all_to_all", "alltoall": "all_to_all", "broadcast": "broadcast"}  # fmt: skip
    counts: Counter[str] = Counter()
    for op, count in debug.get_comm_counts().items():
        name = str(op).rpartition(".")[2].strip("_")
        counts[next((kind for prefix, kind in kinds.items() if name.startswith(prefix)), name)] += count
    return counts


def _world(rank: int, cases: list[tuple[Case, Path, list[float]]], folder: str, ranks: int, queue) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{ranks}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=30))
    for case, plan_file, serial in cases:
        result = Result(copy.copy(serial), tbc.Plan.load(plan_file))
        try:
            run_case(case, plan_file, result)
        except Exception:  # noqa: BLE001: the case's verdict; the others go on
            result.problem = traceback.format_exc()
            print(f"rank {rank}: {result.problem}", file=sys.stderr, flush=True)
        problems = [""] * ranks
        dist.all_gather_object(problems, result.problem)
        result.problem = next((p for p in problems if p), "")
        if rank == 0:
            queue.put((case, result))
        if result.problem:
            break  # groups of the case may be out of step
    dist.destroy_process_group()


def run_cases(cases: list[Case], report: Callable[[Case, Result], None]) -> dict[Case, Result]:
    """Plans and runs all cases, and calls `report` with each result.

    Cases after a failed one of the same size run in a new world.
    """
    results: dict[Case, Result] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serial: dict[tuple, list[float]] = {}
        todo = []
        for case in cases:
            plan_file = make_plan(case, folder)
            plan = tbc.Plan.load(plan_file)
            key = (case.model, plan.batch, plan.accumulation, plan.setting.get("clip_norm"))
            if key not in serial:
                serial[key] = serial_losses(case, plan)
            todo.append((case, plan_file, serial[key]))
        context = multiprocessing.get_context("fork")
        for ranks in sorted({case.ranks for case in cases}):
            left = [entry for entry in todo if entry[0].ranks == ranks]
            while left:
                store = folder / f"store{ranks}"
                store.unlink(missing_ok=True)
                queue = context.SimpleQueue()
                workers = [context.Process(target=_world, args=(rank, left, name, ranks, queue)) for rank in range(ranks)]
                for worker in workers:
                    worker.start()
                done = 0
                while any(worker.is_alive() for worker in workers) or not queue.empty():
                    if queue.empty():
                        time.sleep(0.05)
                        continue
                    case, result = queue.get()
                    results[case] = result
                    report(case, result)
                    done += 1
                left = left[done:] if done else []
    return results
