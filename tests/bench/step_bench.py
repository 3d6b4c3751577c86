#!/usr/bin/env python3
"""Compares training steps with PyTorch's, on the same cores, in one run.

    tests/bench/step_bench.py --tbc build/bin/tbc [--models gpt2,llama,bert,vit,resnet50]
                              [--cases one,compiled,accumulated,dp,fsdp,tp,pp] [--precision f32|bf16]
                              [--steps 3] [--rounds 5] [--threads 1]

Models (torch_models.py), written with nn.Linear; PyTorch exports their ONNX files, which needs the
package onnx, so that both sides compute the same:

| model | sizes | batch |
|---|---|---|
| gpt2 | 12 layers of 768, vocabulary 50,257, untied head | 4 x 256 tokens |
| llama | 3 layers of 512, 8 heads over 4 groups, vocabulary 8,000 | 4 x 100 tokens |
| bert | 6 layers of 384, norms behind, vocabulary 8,000 | 4 x 137 tokens |
| vit | 6 layers of 384, patches of 16 | 8 images of 224 |
| resnet50 | batch norm in training mode | 8 images of 224 |

Cases: `one` process beside PyTorch's eager mode, beside torch.compile of model and loss
(`compiled`), and with micro-batches of one sample (`accumulated`); two processes beside
DistributedDataParallel (`dp`), fully_shard (`fsdp`), DTensor's tensor parallelism with
loss_parallel (`tp`) and torch.distributed.pipelining (`pp`, 1F1B with a micro-batch of a sample).
The last two exist for gpt2 and llama, fsdp for models of `blocks`.

PyTorch uses fused AdamW (TP: foreach). Both sides run each case in turns, each round in new
processes; warm-up is left out (one step; three with torch.compile). Prints CPU seconds of a step,
of all processes, and the peak of their resident memory: the median of the rounds [lowest ..
highest]. A ratio is of the two sides of one round; above 1, tbc needs less. Aims: `one` 1.25,
`compiled` 1.0, `accumulated`, `dp` and `pp` 1.2, `fsdp` and `tp` 1.5. If stopped, it prints the
rounds that it has.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch_models
import torch_steps

# Flags of the plan; number of processes; the aim.
CASES = {
    "one": ([], 1, 1.25),
    "compiled": ([], 1, 1.0),
    "accumulated": (["--micro-batch", "1"], 1, 1.2),
    "dp": (["--mesh", "dp=2"], 2, 1.2),
    "fsdp": (["--mesh", "fsdp=2"], 2, 1.5),
    "tp": (["--mesh", "tp=2"], 2, 1.5),
    "pp": (["--mesh", "pp=2", "--micro-batch", "1", "--schedule", "1f1b"], 2, 1.2),
}


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def exists(model, case):
    """Whether the case can be run of the model by PyTorch's own APIs."""
    if case in ("tp", "pp"):
        return model in torch_models.SPLITTABLE
    return case != "fsdp" or "self.blocks = nn.ModuleList" in torch_models.MODELS[model][0]


def prepare(options, tbc, folder, model, cases):
    """Compiles a program for each case, in a folder of its name."""
    samples, length, unit = torch_models.MODELS[model][1:]
    checked([sys.executable, "-c", torch_models.code(model), "0", "f32", "1", "model.onnx"], cwd=folder)
    flags = ["--batch", str(samples), *(["--seq", str(length)] if unit == "tokens" else [])]
    for case in cases:
        mesh, ranks = CASES[case][:2]
        checked([tbc, "plan", "model.onnx", "--gpus", str(ranks), "--cluster", "cpu-local", "--recompute", "none", "--precision",
                 options.precision, *flags, *mesh, "-o", f"{case}.json"], cwd=folder)
        checked([tbc, "compile", f"{case}.json", "-o", case], cwd=folder)


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
    """Returns wall and CPU seconds of a step, and the peak memory in bytes."""
    ranks = CASES[case][1]
    log = os.path.join(folder, "log.jsonl")
    command = [tbc, "run", case, "--init-weights", "1", "--steps", str(1 + options.steps), "--threads", str(options.threads),
               "--log", log]
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
    return sum(line["seconds"] for line in lines[1:]) / options.steps, (cpu[-1] - cpu[0]) / options.steps, peak


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torch_step(model, case, options):
    """Returns the same for PyTorch."""
    ranks = CASES[case][1]
    code = torch_models.code(model) + torch_steps.CASES[case] + torch_steps.STEPS
    words = [str(options.steps), options.precision, str(options.threads)]
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
            sys.exit(f"PyTorch failed, {model} {case}:\n{err}")
        results.append([float(word) for word in out.split()])
    walls, cpus, peaks = zip(*results)
    return max(walls) / options.steps, sum(cpus) / options.steps, sum(peaks)


def spread(values, form):
    """Returns the median and the range, as text: 0.68 [0.65 .. 0.71]."""
    return f"{statistics.median(values):{form}} [{min(values):{form}} .. {max(values):{form}}]"


def row(model, case, rounds):
    """Returns the line of a case; `rounds` are pairs of results, tbc's and PyTorch's."""
    ours, theirs = zip(*rounds)
    by_cpu = [torch[1] / tbc[1] for tbc, torch in rounds]
    by_clock = [torch[0] / tbc[0] for tbc, torch in rounds]
    memory = [f"{max(side[2] for side in sides) / 2**20:,.0f}" for sides in (ours, theirs)]
    return (f"| {model} | {case} | {spread([side[1] for side in ours], '.3f')} | {spread([side[1] for side in theirs], '.3f')} | "
            f"{spread(by_cpu, '.2f')} | {CASES[case][2]} | {spread(by_clock, '.2f')} | {memory[0]}, {memory[1]} |")


def print_rows(model, rounds):
    for case, of in rounds.items():
        if of:
            print(row(model, case, of), flush=True)


def main():
    # A limit of time ends it as Ctrl-C does: with the rows of the rounds that it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--models", default=",".join(torch_models.MODELS), help="default: %(default)s")
    parser.add_argument("--cases", default="one", help="or all, or some of " + ", ".join(CASES))
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    cases, models = list(CASES) if options.cases == "all" else options.cases.split(","), options.models.split(",")
    for name, known in [*((case, CASES) for case in cases), *((model, torch_models.MODELS) for model in models)]:
        if name not in known:
            parser.error(f"'{name}' is not one of {', '.join(known)}")
    wide = "with" if "avx512f" in open("/proc/cpuinfo", encoding="utf-8").read() else "without"
    print(f"{options.precision}, {options.threads} threads a process, {options.rounds} rounds of {options.steps} steps, "
          f"a CPU {wide} AVX-512, {time.strftime('%Y-%m-%d')}")
    print("| model | case | tbc, CPU s | PyTorch, CPU s | ratio | aim | by the clock | peaks, MiB |", flush=True)
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for model in models:
        existing = [case for case in cases if exists(model, case)]
        with tempfile.TemporaryDirectory() as folder:
            prepare(options, tbc, folder, model, existing)
            rounds = {case: [] for case in existing}
            try:
                for _ in range(options.rounds):
                    for case in existing:
                        rounds[case].append((tbc_step(tbc, folder, case, options), torch_step(model, case, options)))
            except KeyboardInterrupt:
                print_rows(model, rounds)
                sys.exit(f"stopped in {model}; its rows have {', '.join(str(len(of)) for of in rounds.values())} rounds")
        print_rows(model, rounds)


if __name__ == "__main__":
    main()
