#!/usr/bin/env python3
"""A training step of a GPT-2-small-shaped model beside PyTorch's, on the same cores, in one run.

    tests/bench/step_bench.py --tbc build/bin/tbc [--precision f32|bf16] [--steps 3] [--rounds 2]

12 layers, width 768, vocabulary 50257, untied head; batch 4, sequence 256 (1,024 tokens), AdamW. Both are run in turns.
Printed are tokens per second and, steadier on a busy machine, tokens per CPU second: from the difference of a run of 1 step
and one of 1 + N, so that start, loading and the first step count for neither; and the peak of resident memory beside what
was planned. PyTorch is left out, and that is said, where it cannot be imported.
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
TOKENS = BATCH * SEQUENCE

TORCH_STEP = r"""
import resource, sys, time, torch
import torch.nn as nn, torch.nn.functional as F
steps, precision, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(1)

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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
x = torch.randint(0, 50257, (BATCH, SEQUENCE + 1))
begin = None
for step in range(steps + 1):
    if step == 1:
        begin = (time.perf_counter(), time.process_time())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x[:, :-1])
    loss = F.cross_entropy(logits.float().view(-1, 50257), x[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(time.perf_counter() - begin[0], time.process_time() - begin[1],
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
""".replace("BATCH", str(BATCH)).replace("SEQUENCE", str(SEQUENCE))


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def prepare(tbc, folder, precision):
    """Compiles the step; the arena's bytes as planned."""
    checked([tbc, "new", "gpt2", "--untied", "--seq", "1024", "-o", "model.onnx"], cwd=folder)
    checked([tbc, "plan", "model.onnx", "--gpus", "1", "--batch", str(BATCH), "--seq", str(SEQUENCE), "--cluster",
             "cpu-local", "--recompute", "none", "--precision", precision, "-o", "plan.json"], cwd=folder)
    checked([tbc, "compile", "plan.json", "-o", "program"], cwd=folder)
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        return json.load(file)


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


def torch_step(steps, precision, threads):
    done = subprocess.run([sys.executable, "-c", TORCH_STEP, str(steps), precision, str(threads)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print("PyTorch is left out:", done.stderr.strip().splitlines()[-1])
        return None
    return tuple(float(word) for word in done.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    with tempfile.TemporaryDirectory() as folder:
        prepare(tbc, folder, options.precision)
        best = {}
        for _ in range(options.rounds):
            found = {"tbc": tbc_step(tbc, folder, options.steps, options.threads),
                     "torch": torch_step(options.steps, options.precision, options.threads)}
            for name, result in found.items():
                if result and (name not in best or result[1] < best[name][1]):
                    best[name] = result
    tokens = TOKENS * options.steps
    print(f"{options.precision}, {options.threads} threads, {time.strftime('%Y-%m-%d')}")
    for name, (wall, cpu, peak) in best.items():
        print(f"{name:6} {tokens / wall:8.1f} tokens/s {tokens / cpu:8.1f} tokens per CPU second"
              f" {peak / 2**30:6.2f} GiB at most")
    if len(best) == 2:
        ratio = best["torch"][1] / best["tbc"][1]
        print(f"ratio  {best['torch'][0] / best['tbc'][0]:8.2f} by time  {ratio:8.2f} by CPU time")


if __name__ == "__main__":
    main()
