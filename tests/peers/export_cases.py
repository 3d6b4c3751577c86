"""Plans that `tbc export` writes for each target, and plans that it refuses. Python alone."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Plans by name. All decisions that an output shows are pinned.
PLANS = {
    "ddp": "gpt2 --gpus 16 --mesh dp=16 --batch 512 --micro-batch 16 --seq 256 --recompute none --bucket-size 25MiB",
    "fsdp": "gpt2 --gpus 8 --mesh fsdp=8 --zero 3 --batch 64 --micro-batch 4 --seq 256 --recompute full --strategy fsdp",
    "grad-op": "gpt2 --gpus 8 --mesh fsdp=8 --strategy shard-grad-op --batch 64 --micro-batch 4 --seq 256 --recompute none",
    "hybrid": "gpt2 --gpus 16 --mesh dp=2,fsdp=8 --strategy hybrid-shard --batch 64 --micro-batch 2 --seq 256 --recompute full",
    "zero1": "gpt2 --gpus 8 --mesh dp=8 --zero 1 --batch 64 --micro-batch 4 --seq 256 --recompute none --clip-norm 1",
    "zero2": "gpt2 --gpus 8 --mesh fsdp=8 --zero 2 --batch 64 --micro-batch 4 --seq 256 --recompute none --offload optimizer",
    "f16": "gpt2 --gpus 8 --mesh dp=8 --zero 0 --batch 64 --micro-batch 8 --seq 256 --recompute none --precision f16",
    "pipeline": "gpt2 --gpus 16 --mesh pp=2,dp=4,tp=2 --zero 1 --batch 64 --micro-batch 2 --seq 256 --schedule 1f1b "
    "--recompute none --pin transformer.h.6.*=begin",
    "uneven": "gpt2 --gpus 8 --mesh pp=2,dp=4 --zero 0 --batch 64 --micro-batch 2 --seq 256 --schedule 1f1b "
    "--recompute full --pin transformer.h.7.*=begin",
    "interleaved": "llama-8l --gpus 8 --mesh pp=2,fsdp=4 --strategy fsdp --batch 64 --micro-batch 2 --seq 64 "
    "--schedule interleaved --virtual-stages 2 --recompute none --pin model.layers.2.*=begin "
    "--pin model.layers.4.*=begin --pin model.layers.6.*=begin",
    "tensor": "tiny-gpt2 --gpus 8 --mesh dp=2,fsdp=2,tp=2 --zero 3 --batch 8 --micro-batch 1 --seq 16 --precision f32 "
    "--recompute none --pad-vocabulary 1",
    "jax-fsdp": "tiny-gpt2 --gpus 8 --mesh fsdp=8 --zero 3 --batch 16 --micro-batch 1 --seq 16 --precision f32 "
    "--recompute none --pad-vocabulary 1",
    "jax-dp": "tiny-gpt2 --gpus 4 --mesh dp=4 --zero 1 --batch 8 --micro-batch 1 --seq 16 --precision f32 "
    "--recompute none --pad-vocabulary 1",
    "jax-recompute": "tiny-gpt2 --gpus 4 --mesh fsdp=2,tp=2 --batch 8 --micro-batch 2 --seq 16 --precision f32 "
    "--recompute full --pad-vocabulary 1",
    "context": "tiny-llama --gpus 4 --mesh cp=2,dp=2 --zero 0 --context all-gather --sequence-order contiguous --batch 8 "
    "--micro-batch 2 --seq 16 --recompute none --precision f32",
    "experts": "moe-8l --gpus 8 --mesh ep=4,dp=2 --zero 0 --batch 64 --recompute none",
    "padded": "gpt2 --gpus 4 --mesh dp=2,tp=2 --zero 0 --batch 8 --micro-batch 1 --seq 256 --recompute none",
    "gpipe": "llama-8l --gpus 2 --mesh pp=2 --schedule gpipe --batch 8 --micro-batch 1 --seq 64 --recompute none "
    "--pin model.layers.4.*=begin",
    "vee": "llama-8l --gpus 4 --mesh pp=2,tp=2 --schedule zero-bubble --virtual-stages 2 --placement v --batch 16 "
    "--micro-batch 1 --seq 64 --recompute none",
}

# The targets that express a plan.
EXPRESSED = {
    "ddp": "megatron torchtitan deepspeed accelerate lightning jax",
    "fsdp": "torchtitan deepspeed accelerate lightning jax",
    "grad-op": "torchtitan deepspeed accelerate lightning jax",
    "hybrid": "torchtitan accelerate lightning jax",
    "zero1": "megatron deepspeed lightning jax",
    "zero2": "deepspeed lightning",
    "f16": "megatron deepspeed accelerate lightning jax",
    "pipeline": "megatron",
    "uneven": "megatron torchtitan",
    "interleaved": "torchtitan",
    "tensor": "torchtitan accelerate jax",
    "jax-fsdp": "torchtitan deepspeed accelerate lightning jax",
    "jax-dp": "megatron deepspeed lightning jax",
    "jax-recompute": "torchtitan accelerate jax",
    "context": "megatron torchtitan jax",
    "experts": "megatron jax",
    "padded": "megatron torchtitan jax",
    "gpipe": "torchtitan",
    "vee": "",
}

ENDINGS = {"deepspeed": ".json", "accelerate": ".yaml", "megatron": ".args"}


@dataclass(frozen=True)
class Exporter:
    """Runs tbc in a folder of plans."""

    tbc: Path
    source: Path
    folder: Path

    def plan(self, name: str) -> dict:
        """Returns the plan of PLANS, made once."""
        file = self.folder / f"{name}.plan.json"
        if not file.exists():
            model, *flags = PLANS[name].split()
            model = self.source / "models" / f"{model}.onnx"
            self.run("plan", model, *flags, "--top", "1", "-o", file)
        return json.loads(file.read_text())

    def output(self, name: str, target: str) -> Path:
        ending = ENDINGS.get(target, ".py")
        return self.folder / f"{name.replace('-', '_')}_{target}{ending}"

    def export(self, name: str, target: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """Exports a plan. The caller looks at the exit code."""
        self.plan(name)
        command = [self.tbc, "export", self.folder / f"{name}.plan.json", "--to", target, "-o", self.output(name, target)]
        return subprocess.run([*map(str, command), *flags], capture_output=True, text=True, check=False)

    def run(self, *arguments: object) -> str:
        done = subprocess.run([str(self.tbc), *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"tbc {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout
