#!/usr/bin/env python3
"""A training step beside PyTorch's (eager), on the same cores, in one run.

    tests/bench/step_bench.py --tbc build/bin/tbc [--model gpt2|resnet50] [--precision f32|bf16] [--steps 3] [--rounds 2]

gpt2: GPT-2-small-shaped, 12 layers, width 768, vocabulary 50257, untied head; batch 4, sequence 256 (1,024 tokens). resnet50:
batch 8, 224 x 224, 1000 classes, batch norm in training mode; PyTorch writes its ONNX file (which needs the package onnx), or
--onnx FILE names one. Both with AdamW. The two are run in turns. Printed are tokens (images) per second and, steadier on a busy
machine, per CPU second: from the difference of a run of 1 step and one of 1 + N, so that start, loading and the first step count
for neither; and the peak of resident memory beside what was planned. PyTorch is left out, and that is said, where it cannot be
imported.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

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
        q, k, v = (t.view(b, s, self.h, d // self.h).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(d, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, d))
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

TORCH_STEP = r"""
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
begin = None
for step in range(steps + 1):
    if step == 1:
        begin = (time.perf_counter(), time.process_time())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x)
    loss = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(time.perf_counter() - begin[0], time.process_time() - begin[1],
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def prepare(options, tbc, folder):
    """Compiles the step."""
    target = ["--gpus", "1", "--cluster", "cpu-local", "--recompute", "none", "--precision", options.precision]
    model = os.path.join(folder, "model.onnx")
    if options.model == "gpt2":
        checked([tbc, "new", "gpt2", "--untied", "--seq", "1024", "-o", model])
        target += ["--batch", str(BATCH), "--seq", str(SEQUENCE)]
    else:
        target += ["--batch", str(IMAGES)]
        if options.onnx:
            model = os.path.abspath(options.onnx)
        else:
            checked([sys.executable, "-c", TORCH_BEGIN + TORCH_MODELS["resnet50"], "0", "f32", "1", model])
    checked([tbc, "plan", model, *target, "-o", "plan.json"], cwd=folder)
    checked([tbc, "compile", "plan.json", "-o", "program"], cwd=folder)


def timed_run(tbc, folder, steps, threads):
    """CPU seconds and peak resident bytes of a run, and the seconds of its steps."""
    log = os.path.join(folder, "log.jsonl")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    checked([tbc, "run", "program", "--init-weights", "1", "--steps", str(steps), "--threads", str(threads), "--log",
             log], cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, encoding="utf-8") as file:
        seconds = [json.loads(line)["seconds"] for line in file]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, after.ru_maxrss * 1024, seconds


def tbc_step(tbc, folder, steps, threads):
    """Wall and CPU seconds of `steps` steps after the first, and the peak of memory."""
    cpu_one, _, _ = timed_run(tbc, folder, 1, threads)
    cpu, peak, seconds = timed_run(tbc, folder, 1 + steps, threads)
    return sum(seconds[1:]), cpu - cpu_one, peak


def torch_step(options):
    code = TORCH_BEGIN + TORCH_MODELS[options.model] + TORCH_STEP
    done = subprocess.run([sys.executable, "-c", code, str(options.steps), options.precision, str(options.threads)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print("PyTorch is left out:", done.stderr.strip().splitlines()[-1])
        return None
    return tuple(float(word) for word in done.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--model", choices=list(UNITS), default="gpt2")
    parser.add_argument("--onnx", help="the file of --model resnet50")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    with tempfile.TemporaryDirectory() as folder:
        prepare(options, tbc, folder)
        best = {}
        for _ in range(options.rounds):
            found = {"tbc": tbc_step(tbc, folder, options.steps, options.threads),
                     "torch": torch_step(options)}
            for name, result in found.items():
                if result and (name not in best or result[1] < best[name][1]):
                    best[name] = result
    unit, count = UNITS[options.model]
    done = count * options.steps
    print(f"{options.model} {options.precision}, {options.threads} threads, {time.strftime('%Y-%m-%d')}")
    for name, (wall, cpu, peak) in best.items():
        print(f"{name:6} {done / wall:8.1f} {unit}/s {done / cpu:8.1f} {unit} per CPU second"
              f" {peak / 2**30:6.2f} GiB at most")
    if len(best) == 2:
        ratio = best["torch"][1] / best["tbc"][1]
        print(f"ratio  {best['torch'][0] / best['tbc'][0]:8.2f} by time  {ratio:8.2f} by CPU time")


if __name__ == "__main__":
    main()
