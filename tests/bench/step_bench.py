#!/usr/bin/env python3
"""Compares a training step with PyTorch's, on the same cores, in one run.

    tests/bench/step_bench.py --tbc build/bin/tbc [--model gpt2|resnet50] [--cases one,compiled,dp,fsdp,tp,pp]
                              [--precision f32|bf16] [--steps 2] [--rounds 2]

gpt2: GPT-2-small-shaped, 12 layers, width 768, vocabulary 50257, untied head; batch 4, sequence 256
(1,024 tokens). resnet50: batch 8, 224 x 224, 1000 classes, batch norm in training mode; PyTorch
writes its ONNX file (which needs the package onnx), or --onnx FILE names one. Both use AdamW.

Cases:
- `one` process beside PyTorch's eager mode, and beside torch.compile (`compiled`);
- two processes beside DistributedDataParallel (`dp`), fully_shard (`fsdp`), DTensor's tensor
  parallelism (`tp`) and torch.distributed.pipelining (`pp`, 1F1B with a micro-batch of one sample);
  the last three exist only for gpt2.

tbc and PyTorch run every case in turns. Prints tokens (images) per second and, steadier on a busy
machine, per CPU second of all processes, over the steps after the first (with torch.compile, the
third). Also prints the peak of resident memory, summed over processes. The round with the least CPU
time counts. If PyTorch cannot be imported, it is left out and the output says so.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import torch_steps

BATCH, SEQUENCE = 4, 256
IMAGES, SIDE = 8, 224
UNITS = {"gpt2": ("tokens", BATCH * SEQUENCE), "resnet50": ("images", IMAGES)}

TORCH_MODELS = {}
TORCH_MODELS["gpt2"] = r"""
class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        b, s, d = x.shape
        heads = self.qkv(self.ln1(x)).view(b, s, -1, 3, d // self.h)  # of the rank, where they are split
        q, k, v = (t.transpose(1, 2) for t in heads.unbind(3))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

class GPT(nn.Module):
    def __init__(self, v=50257, d=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(1024, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h))

model = GPT()
x, labels = torch.randint(0, 50257, (BATCH, SEQUENCE + 1)).unfold(1, SEQUENCE, 1).transpose(0, 1)
""".replace("BATCH", str(BATCH)).replace("SEQUENCE", str(SEQUENCE))

TORCH_MODELS["resnet50"] = r"""
class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x), inplace=True)

class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
        blocks, inputs = [], 64
        for width, count, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks, self.average, self.fc = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d(1), nn.Linear(2048, 1000)
    def forward(self, x):
        x = self.blocks(self.pool(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return self.fc(self.average(x).flatten(1))

model = ResNet50()
x, labels = torch.randn(IMAGES, 3, SIDE, SIDE), torch.randint(0, 1000, (IMAGES,))
if len(sys.argv) > 4:
    torch.onnx.export(model, (x,), sys.argv[4], dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["input"], output_names=["logits"],
                      dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}})
    sys.exit()
""".replace("IMAGES", str(IMAGES)).replace("SIDE", str(SIDE))

TORCH_BEGIN = r"""
import resource, sys, time, torch
import torch.nn as nn, torch.nn.functional as F
steps, precision, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(1)
"""

# Flags of the plan; number of processes.
CASES = {
    "one": ([], 1),
    "compiled": ([], 1),
    "dp": (["--mesh", "dp=2"], 2),
    "fsdp": (["--mesh", "fsdp=2"], 2),
    "tp": (["--mesh", "tp=2"], 2),
    "pp": (["--mesh", "pp=2", "--micro-batch", "1", "--schedule", "1f1b"], 2),
}


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def model_file(options, tbc, folder):
    """Returns the path of the ONNX file, and the flags of its plan."""
    model = os.path.join(folder, "model.onnx")
    if options.model == "gpt2":
        checked([tbc, "new", "gpt2", "--untied", "--seq", "1024", "-o", model])
        return model, ["--batch", str(BATCH), "--seq", str(SEQUENCE)]
    if options.onnx:
        return os.path.abspath(options.onnx), ["--batch", str(IMAGES)]
    checked([sys.executable, "-c", TORCH_BEGIN + TORCH_MODELS["resnet50"], "0", "f32", "1", model])
    return model, ["--batch", str(IMAGES)]


def prepare(options, tbc, folder, cases):
    """Compiles a program for each case, in a folder of its name."""
    model, flags = model_file(options, tbc, folder)
    for case in cases:
        mesh, ranks = CASES[case]
        checked([tbc, "plan", model, "--gpus", str(ranks), "--cluster", "cpu-local", "--recompute", "none", "--precision",
                 options.precision, *flags, *mesh, "-o", "plan.json"], cwd=folder)
        checked([tbc, "compile", "plan.json", "-o", case], cwd=folder)


def cpu_seconds(pid):
    """Returns the CPU seconds of a process and its children, running or ended."""
    def fields(of):
        with open(f"/proc/{of}/stat", encoding="utf-8") as file:
            return [int(word) for word in file.read().rsplit(")", 1)[1].split()[11:15]]
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        children = file.read().split()
    ticks = 0
    for child in children:
        try:
            ticks += sum(fields(child)[:2])
        except OSError:
            pass  # it has ended, so its time is in its parent's
    return (ticks + sum(fields(pid))) / os.sysconf("SC_CLK_TCK")


def tbc_step(tbc, folder, case, options):
    """Returns wall and CPU seconds of the steps after the first, and the peak memory in bytes."""
    ranks = CASES[case][1]
    log = os.path.join(folder, "log.jsonl")
    command = [tbc, "run", case, "--init-weights", "1", "--steps", str(1 + options.steps), "--threads",
               str(max(1, options.threads // ranks)), "--log", log]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        # A line is printed at the end of each step.
        cpu = [cpu_seconds(job.pid) for line in job.stdout if line.startswith("step ")]
        errors = job.stderr.read()
    if job.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{errors}")
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    # The largest rank's peak times the number of ranks: they are alike except for pipeline stages.
    peak = ranks * max(line["resident_bytes"] for line in lines)
    return sum(line["seconds"] for line in lines[1:]), cpu[-1] - cpu[0], peak


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torch_step(case, options):
    """Returns the same for PyTorch, or None with a message if it cannot run."""
    ranks = CASES[case][1]
    code = TORCH_BEGIN + TORCH_MODELS[options.model] + torch_steps.CASES[case] + torch_steps.STEPS
    words = [str(options.steps), options.precision, str(max(1, options.threads // ranks))]
    port = str(free_port())
    jobs = []
    for rank in range(ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        jobs.append(subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, env={**os.environ, **place}))
    results = []
    for job in jobs:
        out, err = job.communicate()
        if job.returncode != 0:
            for other in jobs:
                other.kill()
            print("PyTorch is left out:", err.strip().splitlines()[-1])
            return None
        results.append(tuple(float(word) for word in out.split()))
    walls, cpus, peaks = zip(*results)
    return max(walls), sum(cpus), sum(peaks)


def report(options, case, best):
    unit, count = UNITS[options.model]
    done = count * options.steps
    for name, (wall, cpu, peak) in best.items():
        print(f"{case:9} {name:6} {done / wall:8.1f} {unit}/s {done / cpu:8.1f} {unit} per CPU second"
              f" {peak / 2**30:6.2f} GiB at most")
    if len(best) == 2:
        print(f"{case:9} ratio  {best['torch'][0] / best['tbc'][0]:8.2f} by time  {best['torch'][1] / best['tbc'][1]:8.2f} by "
              "CPU time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--model", choices=list(UNITS), default="gpt2")
    parser.add_argument("--cases", default="one", help=", ".join(CASES))
    parser.add_argument("--onnx", help="the file of --model resnet50")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all processes of a case together")
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    cases = options.cases.split(",")
    for case in cases:
        if case not in CASES or (options.model != "gpt2" and case in ("fsdp", "tp", "pp")):
            sys.exit(f"--cases {case}: of {options.model} there is no such case; see --help")
    print(f"{options.model} {options.precision}, {options.threads} threads, {time.strftime('%Y-%m-%d')}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        prepare(options, tbc, folder, cases)
        best = {case: {} for case in cases}
        for _ in range(options.rounds):
            for case in cases:
                found = {"tbc": tbc_step(tbc, folder, case, options), "torch": torch_step(case, options)}
                for name, result in found.items():
                    if result and (name not in best[case] or result[1] < best[case][name][1]):
                        best[case][name] = result
    for case in cases:
        report(options, case, best[case])


if __name__ == "__main__":
    main()
