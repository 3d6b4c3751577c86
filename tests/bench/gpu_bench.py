#!/usr/bin/env python3
"""Checks training on GPUs and measures its speed. tests/bench/gpu.sh runs all of it.

    tests/bench/gpu_bench.py losses --tbc build/bin/tbc [--json FILE] [--target cuda|cpu]
    tests/bench/gpu_bench.py graphs --tbc build/bin/tbc [--json FILE] [--target cuda|cpu]
    tests/bench/gpu_bench.py repeats --tbc build/bin/tbc [--json FILE] [--target cuda|cpu]
    tests/bench/gpu_bench.py speed --tbc build/bin/tbc [--json FILE] [--target cuda|cpu] [--seconds S] [--only NAME]

losses: tiny-gpt2 for ten steps under data, sharded data, tensor and pipeline parallelism, a hybrid,
and with states and residuals offloaded to the host. Each rank is a process. If there are
fewer GPUs, two or four ranks share one; to NCCL each is a host of its own. Every loss must be within 1e-4
of one process on CPUs.

graphs: tiny-gpt2 with --cuda-graphs off and on, alone and under data and sharded data parallelism.
Losses must be within 1e-4 of each other (alone: equal bits). Prints the seconds of a step of each.

repeats: tiny-gpt2 twice with --deterministic, alone and under data parallelism. Losses must be
equal bit for bit.

speed: seconds of a training step of GPT-2-124M (batch 16 x 1024), a Llama of 1B (batch 4 x 2048)
and ResNet-50 (batch 128; needs PyTorch and the package onnx for its file), all in bf16, beside
torch.compile, or eager PyTorch where that fails, if PyTorch finds a GPU. Also prints the model's
share of the plan's peak FLOP/s (MFU), the prediction for this GPU (gpu_devices.py), and the memory
in use beside the planned memory. Then the same with --benchmark, and with --matmul-precision fp8, if
there is time. A model that does not finish in its share of --seconds is reported as such. Goals are
printed beside the results; missing one is no failure.

--target cpu runs the same on CPUs, to try this program out.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import gpu_devices
import torch_models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MESHES = [(1, "dp=1"), (2, "dp=2"), (2, "fsdp=2"), (2, "tp=2"), (2, "pp=2"), (4, "dp=2,tp=2")]
STEPS, TOLERANCE = 10, 1e-4
SPEED = {
    "gpt2-124m": {"new": ["gpt2", "--seq", "1024"], "plan": ["--batch", "16", "--seq", "1024"], "torch": "gpt2", "inputs": "x, labels = torch.randint(0, 50257, (16, 1025)).unfold(1, 1024, 1).transpose(0, 1)"},
    "llama-1b": {"new": ["llama", "--layers", "16", "--hidden", "2048", "--heads", "32", "--kv-heads", "8", "--ffn", "8192",
                         "--vocab", "32000", "--seq", "2048"], "plan": ["--batch", "4", "--seq", "2048"], "mfu": 0.5},
    "resnet50": {"plan": ["--batch", "128"], "torch": "resnet50",
                 "inputs": "x, labels = torch.randn(128, 3, 224, 224), torch.randint(0, 1000, (128,))\n"
                           "model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))"},
}
TORCH_STEP = r"""
import json, statistics, sys, time
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

def median_of(forward):
    seconds = []
    for step in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = forward(x)
            loss = F.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[3:])

found = {"eager": median_of(model)}
found["seconds"] = found["eager"]
try:
    found["seconds"] = found["compiled"] = median_of(torch.compile(model))
except Exception as error:
    print(error, file=sys.stderr)
    found["not_compiled"] = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
print(json.dumps({**found, "peak_bytes": torch.cuda.max_memory_allocated()}))
"""


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def number_of_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(tbc, program, ranks, steps, log, folder, gpus, flags=()):
    """Runs one process per rank, as a launcher would. If there are fewer GPUs than ranks, each rank
    sees one GPU and is a host of its own to NCCL.
    """
    base = {**os.environ, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()), "TBC_JOB_TOKEN": "of this bench"}
    processes = []
    for rank in range(ranks):
        environment = {**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        if 0 < gpus < ranks:
            environment.update(NCCL_HOSTID=f"host{rank}", CUDA_VISIBLE_DEVICES=str(rank % gpus))
        processes.append(subprocess.Popen(
            [tbc, "run", program, "--init-weights", "1", "--steps", str(steps), "--log", log, *flags], cwd=folder, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        sys.exit(f"{program} failed:\n" + "".join(said))
    with open(os.path.join(folder, log), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train_tiny(options, folder, ranks, mesh, target, flags=(), plan_flags=(), compile_flags=()):
    """Trains tiny-gpt2 and returns the log's entry of each step."""
    tbc, model = os.path.abspath(options.tbc), os.path.join(ROOT, "models", "tiny-gpt2.onnx")
    gpus = number_of_gpus() if target == "cuda" else 0
    name = "-".join([mesh.replace(",", "-"), target, *plan_flags]).replace("--", "")
    micro = ["--micro-batch", "2"] if "pp" in mesh else []
    checked([tbc, "plan", model, "--gpus", str(ranks), "--mesh", mesh, "--batch", "8", "--seq", "16", "--precision", "f32", *micro,
             *plan_flags, "-o", f"{name}.json"], cwd=folder)
    checked([tbc, "compile", f"{name}.json", "--target", target, "-o", name, *compile_flags], cwd=folder)
    return run_ranks(tbc, name, ranks, options.steps, f"{name}.jsonl", folder, gpus, flags)


def losses(options, folder):
    def train(ranks, mesh, target, **more):
        return [line["loss"] for line in train_tiny(options, folder, ranks, mesh, target, **more)]

    # Compiled kernels need a linker, which machines with GPUs may lack.
    reference, report, failed = train(1, "dp=1", "cpu", compile_flags=["--no-kernels"]), {}, False
    for ranks, mesh, *flags in [*MESHES, (1, "dp=1", "--offload", "all")]:
        found = train(ranks, mesh, options.target, plan_flags=flags)
        difference = max(abs(a - b) / abs(b) for a, b in zip(found, reference))
        is_right = len(found) == options.steps and difference <= TOLERANCE
        failed |= not is_right
        what = " ".join([mesh, *flags])
        report[what] = {"ranks": ranks, "losses": found, "largest_difference": difference, "right": is_right}
        print(f"{what:12} {ranks} ranks: loss {found[0]:.4f} to {found[-1]:.4f}, at most {difference:.1e} from one process: "
              f"{'right' if is_right else 'WRONG'}")
    return report, failed


def graphs(options, folder):
    ways, report, failed = ["off", "on" if options.target == "cuda" else "auto"], {}, False
    for ranks, mesh in MESHES[:3]:
        lines = {way: train_tiny(options, folder, ranks, mesh, options.target, ["--cuda-graphs", way]) for way in ways}
        found = {way: [line["loss"] for line in lines[way]] for way in ways}
        seconds = {way: statistics.median(line["seconds"] for line in lines[way][min(3, options.steps - 1):]) for way in ways}
        difference = max(abs(a - b) / abs(b) for a, b in zip(*found.values()))
        is_right = len(found["off"]) == options.steps and difference <= (0 if ranks == 1 else TOLERANCE)
        failed |= not is_right
        report[mesh] = {"losses": found, "seconds": seconds, "largest_difference": difference, "right": is_right}
        print(f"{mesh:12} a step {' and '.join(f'{seconds[way]:.6f} s with graphs {way}' for way in ways)}: "
              f"{'right' if is_right else f'WRONG, {difference:.1e} apart'}")
    return report, failed


def repeats(options, folder):
    report, failed = {}, False
    for ranks, mesh in MESHES[:2]:
        found = [[line["loss"] for line in train_tiny(options, folder, ranks, mesh, options.target, ["--deterministic"])]
                 for _ in range(2)]
        is_right = found[0] == found[1] and len(found[0]) == options.steps
        failed |= not is_right
        report[mesh] = {"losses": found, "right": is_right}
        print(f"{mesh:12} twice: {'the same bits' if is_right else 'WRONG'}")
    return report, failed


class PeakOfGpu(threading.Thread):
    """Samples the memory in use on GPU 0 ten times a second and keeps its peak."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.ends = 0, threading.Event()

    def run(self):
        command = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.ends.wait(0.1):
            try:
                used = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 2**20
            except (OSError, ValueError, subprocess.CalledProcessError):
                return
            self.peak = max(self.peak, used)

    def end(self):
        self.ends.set()
        self.join()
        return self.peak


def speed_of_tbc(options, name, folder, deadline):
    tbc, case = os.path.abspath(options.tbc), SPEED[name]
    model = os.path.join(folder, f"{name}.onnx")
    limit = lambda: max(1, deadline - time.monotonic())
    if "new" in case:
        checked([tbc, "new", *case["new"], "-o", model])
    else:
        code = torch_models.code(case["torch"])
        checked([sys.executable, "-c", code, "0", "f32", "1", model], timeout=limit())
    cluster, why = "cpu-local", "the CPUs of this machine"
    if options.target == "cuda":
        cluster, why = gpu_devices.cluster_for(gpu_devices.first_device(), options.calibrated)
    checked([tbc, "plan", model, "--gpus", "1", "--cluster", cluster,
             "--precision", "bf16", *case["plan"], "-o", f"{name}.json"], cwd=folder, timeout=limit())
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        plan = json.load(file)
    checked([tbc, "compile", f"{name}.json", "--target", options.target, "-o", name], cwd=folder, timeout=limit())
    watch = PeakOfGpu()
    if options.target == "cuda":
        watch.start()
    log = os.path.join(folder, f"{name}.jsonl")
    checked([tbc, "run", name, "--init-weights", "1", "--steps", "8", "--log", log], cwd=folder, timeout=limit())
    peak = watch.end() if options.target == "cuda" else 0
    seconds = median_step(log)
    report = {"cluster": why, "seconds": seconds, "predicted_seconds": plan["step_seconds"], "planned_peak_bytes": plan["peak_bytes"],
              "peak_bytes": peak}
    peak_flops = plan["cluster"]["peak_flops_per_second"]["bf16"]
    report["mfu"] = plan["prediction"]["model_flops"] / seconds / peak_flops
    if options.target == "cuda":
        report["benchmark"] = speed_with(["--benchmark"], "benchmark: ", tbc, name, folder, limit() / 2)
        report["fp8"] = speed_with(["--matmul-precision", "fp8"], "in fp8: ", tbc, name, folder, limit() / 2)
    return report


def median_step(log):
    with open(log, encoding="utf-8") as file:
        return statistics.median([json.loads(line)["seconds"] for line in file][3:])


def speed_with(flags, prefix, tbc, name, folder, limit):
    """Returns the seconds per step with `flags`, if there is time, and the first line of the output
    that begins with `prefix`.
    """
    log = os.path.join(folder, f"{name}{flags[0]}.jsonl")
    try:
        done = subprocess.run([tbc, "run", name, "--init-weights", "1", "--steps", "8", *flags, "--log", log], cwd=folder,
                              timeout=limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return {"left_out": "it did not end in time"}
    said = [line.removeprefix("tbc: ") for line in done.stderr.splitlines() if line.startswith("tbc: " + prefix)]
    if done.returncode != 0:
        return {"left_out": (done.stderr.strip().splitlines() or ["it failed"])[-1]}
    return {"seconds": median_step(log), "said": said[0] if said else "nothing was done so"}


def speed_of_torch(name, deadline):
    case = SPEED[name]
    if "torch" not in case:
        return {"left_out": "this bench has no such model for PyTorch"}
    code = torch_models.code(case["torch"], "torch.set_default_device('cuda')\n") + case["inputs"] + TORCH_STEP
    done = subprocess.run([sys.executable, "-c", code, "0", "bf16", "4"], capture_output=True, text=True,
                          timeout=max(1, deadline - time.monotonic()))
    if done.returncode != 0:
        return {"left_out": (done.stderr.strip().splitlines() or ["PyTorch failed"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def speed(options, folder):
    names = [options.only] if options.only else list(SPEED)
    begin, report, failed = time.monotonic(), {}, False
    for number, name in enumerate(names):
        deadline = begin + options.seconds * (number + 1) / len(names)
        try:
            found = {"tbc": speed_of_tbc(options, name, folder, deadline)}
        except subprocess.TimeoutExpired as late:
            found = {"tbc": {"left_out": f"{' '.join(late.cmd[1:3])} did not end in its share of {options.seconds} s"}}
            failed = True
        except LookupError as wrong:
            found, failed = {"tbc": {"left_out": str(wrong)}}, True
        except SystemExit as wrong:
            found = {"tbc": {"left_out": str(wrong)}}
            # Models without "new" need a file from PyTorch; without it there is no measurement.
            failed |= "new" in SPEED[name]
        if options.target == "cuda":
            try:
                found["torch"] = speed_of_torch(name, deadline)
            except subprocess.TimeoutExpired:
                found["torch"] = {"left_out": "it did not end in time"}
        ours, theirs = found["tbc"].get("seconds"), found.get("torch", {}).get("seconds")
        if ours and theirs:
            found["ratio"] = theirs / ours  # goal: >= 1
        report[name] = found
        print(f"{name}: " + ", ".join(f"{side} {result.get('seconds', result.get('left_out'))}" for side, result in found.items()
                                      if isinstance(result, dict)) +
              (f"; {found['ratio']:.2f} times PyTorch's speed (goal 1)" if "ratio" in found else "") +
              "".join(f"; with {flag} {found['tbc'][flag].get('seconds', found['tbc'][flag].get('left_out'))}"
                      for flag in ("benchmark", "fp8") if flag in found["tbc"]) +
              (f"; MFU {found['tbc']['mfu']:.3f}" + (f" (goal {SPEED[name]['mfu']})" if "mfu" in SPEED[name] else "")
               if "mfu" in found["tbc"] else ""))
    return report, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["losses", "graphs", "repeats", "speed"])
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--json")
    parser.add_argument("--target", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--steps", type=int, default=STEPS, help="of losses, graphs and repeats")
    parser.add_argument("--only", choices=list(SPEED))
    parser.add_argument("--calibrated", help="of speed: the cluster file to plan for where the GPU has no preset")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report, failed = {"losses": losses, "graphs": graphs, "repeats": repeats, "speed": speed}[options.part](options, folder)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
