#!/usr/bin/env python3
"""Checks that the planner's own plan is at least as fast as published layouts. Standard library only.

usage: published.py [--tbc PROGRAM] [--only NAME ..] [--plans FOLDER]

Plans each job twice by the same cost model: free, and with its published layout pinned. Decisions
that the layout leaves open, e.g. recomputation, are chosen for it. Prints both, and the gap of the
free plan to its proven bound. Exit code 1 if a published layout is faster than the free plan, or
does not fit.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

LLAMA3 = ["llama", "--vocab", "128256", "--kv-heads", "8"]
MODELS = {
    "gpt3-175b": ["gpt2", "--layers", "96", "--hidden", "12288", "--heads", "96", "--ffn", "49152", "--vocab", "51200", "--seq", "2048"],
    "llama3-8b": [*LLAMA3, "--layers", "32", "--hidden", "4096", "--heads", "32", "--ffn", "14336"],
    "llama3-70b": [*LLAMA3, "--layers", "80", "--hidden", "8192", "--heads", "64", "--ffn", "28672"],
}
# Name, model, flags of the job, flags of the published layout, and its source.
JOBS = [
    ("gpt3-175b/1024", "gpt3-175b", "--cluster a100-80gb-sxm --gpus 1024 --batch 1536 --seq 2048",
     "--mesh pp=8,dp=16,tp=8 --schedule interleaved --virtual-stages 3",
     "Narayanan et al., SC 2021, section 5.1"),
    ("llama3-8b/8", "llama3-8b", "--gpus 8 --batch 16 --seq 8192", "--mesh fsdp=8 --micro-batch 2",
     "torchtitan, arXiv 2410.06511, table 1"),
    ("llama3-8b/64", "llama3-8b", "--gpus 64 --batch 96 --seq 8192",
     "--mesh fsdp=8,tp=8 --micro-batch 12", "torchtitan, asynchronous TP"),
    ("llama3-8b/128", "llama3-8b", "--gpus 128 --batch 256 --seq 8192",
     "--mesh fsdp=128 --micro-batch 2", "torchtitan, arXiv 2410.06511, table 3"),
    ("llama3-70b/1024", "llama3-70b", "--gpus 1024 --batch 2048 --seq 8192",
     "--mesh pp=4,dp=32,cp=2,tp=4 --zero 1 --schedule interleaved --virtual-stages 5",
     "NVIDIA DGX Cloud benchmarking, Llama 3.1 70B"),
]


def plan(tbc, model, flags, path):
    """Returns (plan as JSON, CPU seconds), or (error text, 0)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run([tbc, "plan", model, *flags, "-o", path], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        return run.stderr.strip(), 0
    return json.loads(Path(path).read_text()), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def describe(answer):
    mesh = " ".join(f"{axis}={size}" for axis, size in answer["mesh"].items() if size > 1)
    schedule = "" if answer["schedule"] == "none" else ", " + answer["schedule"]
    return f"{mesh}, micro-batch {answer['micro_batch']} x {answer['accumulation']}{schedule}, recompute {answer['recompute']['mode']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tbc", default=str(Path(__file__).resolve().parents[2] / "build/bin/tbc"))
    parser.add_argument("--only", action="append", help="only this job (repeatable)")
    parser.add_argument("--plans", type=Path, help="keep the plans here")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.plans or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, model, asked, layout, source in JOBS:
            if options.only and name not in options.only:
                continue
            file = Path(scratch, model + ".onnx")
            if not file.exists():
                subprocess.run([options.tbc, "new", *MODELS[model], "-o", file], check=True, stdout=subprocess.DEVNULL)
            to = str(folder / name.replace("/", "-"))
            published, _ = plan(options.tbc, file, asked.split() + layout.split(), to + "-published.json")
            free, seconds = plan(options.tbc, file, asked.split(), to + "-free.json")
            print(f"{name}: {asked}\n  published ({source}): {layout}")
            for answer in (published, free):
                if isinstance(answer, str):
                    print("  " + answer.replace("\n", "\n  "))
                    failed = True
            if isinstance(published, str) or isinstance(free, str):
                continue
            theirs, ours = (answer["step_seconds"] for answer in (published, free))
            bound = free["lower_bound_seconds"]
            print(f"    {describe(published)}: {theirs:.3f} s")
            print(f"  free: {describe(free)}: {ours:.3f} s, {100 * (ours / theirs - 1):+.1f} %,"
                  f" gap {100 * (ours / bound - 1):.1f} %, planned in {seconds:.1f} CPU seconds", flush=True)
            failed |= ours > theirs
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
