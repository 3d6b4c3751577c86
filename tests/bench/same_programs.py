#!/usr/bin/env python3
"""Compares the Programs that two builds of tbc make of the same plans.

For changes that must not change any Program: every case is planned and compiled by both programs, and plan.json,
program.json and the manifest are compared byte by byte. Example:

    tests/bench/same_programs.py build-before/bin/tbc build/bin/tbc

A change of the IR's text changes the step's hash, and with it the hashes of files that name it; --but-hashes compares
everything else.

Exit code 0 if all are equal, 1 if a case differs or is refused by one of them, 2 for a usage error.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Model, devices, flags. They cover each strategy, schedule, recompute mode and offload.
CASES = [
    ("tiny-mlp", 1, "--batch 8"),
    ("tiny-gpt2", 4, "--batch 8 --mesh dp=2,tp=2"),
    ("tiny-gpt2", 4, "--batch 8 --mesh pp=2,dp=2 --schedule 1f1b --recompute full"),
    ("tiny-gpt2", 2, "--batch 8 --mesh pp=2 --schedule zero-bubble --placement v --virtual-stages 2"),
    ("tiny-llama", 4, "--batch 8 --mesh cp=2,tp=2 --context ring --sequence-order zigzag"),
    ("tiny-llama", 4, "--batch 8 --mesh fsdp=4 --strategy fsdp --recompute selective --bucket-size 1MiB --prefetch 2"),
    ("tiny-resnet", 4, "--batch 8 --mesh dp=4 --strategy zero2"),
    ("gpt2-8l", 8, "--mesh pp=2,dp=2,tp=2 --recompute full:4"),
    ("gpt2-8l", 8, "--mesh pp=4,tp=2 --schedule interleaved --virtual-stages 2 --batch 64"),
    ("gpt2-8l", 8, "--mesh fsdp=8 --offload all --batch 64"),
    ("llama-8l", 8, "--mesh dp=2,fsdp=2,tp=2 --recompute selective"),
    ("llama-8l", 8, "--mesh pp=2,cp=2,tp=2 --schedule zero-bubble --context all-gather --recompute full:2"),
    ("moe-8l", 8, "--mesh ep=4,tp=2 --recompute full"),
    ("unet-8l", 8, "--mesh dp=8 --recompute selective"),
    ("masked-bert", 4, "--batch 8 --mesh dp=2,tp=2"),
]


# Hashes of the step's text, or of a file that has one.
HASH = re.compile(rb'"(step_hash|decisions|program|sha256)": ?"[0-9a-f]{16,64}"')


def run(command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def program_of(tbc, case, folder):
    """Returns the files that `tbc` makes of `case` by name, or {"error": text} if it refuses."""
    model, gpus, flags = case
    folder.mkdir(parents=True)
    plan = folder / "plan.json"
    path = ROOT / "models" / f"{model}.onnx"
    done = run([tbc, "plan", path, "--gpus", gpus, "-o", plan, *flags.split()])
    if done.returncode == 0:
        done = run([tbc, "compile", plan, "--model", path, "-o", folder / "program", "--no-kernels"])
    if done.returncode != 0:
        return {"error": done.stderr.replace(str(folder), "FOLDER")}
    return {file.name: file.read_bytes() for file in [plan, *sorted((folder / "program").iterdir())] if file.name != "seal.json"}


def differing(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path, help="the tbc program to compare with")
    parser.add_argument("after", type=Path, help="the tbc program that was changed")
    parser.add_argument("--but-hashes", action="store_true", help="ignore the hash of the step and those made of it")
    parser.add_argument("--only", default="", help="cases whose model or flags contain this text")
    options = parser.parse_args()
    for program in (options.before, options.after):
        if not program.is_file():
            parser.error(f"{program} is no file")
    failures = 0
    for case in CASES:
        name = f"{case[0]} on {case[1]}, {case[2]}"
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            # Both use the same folder, because files name paths relative to it.
            results = []
            for tbc in (options.before, options.after):
                results.append(program_of(tbc.resolve(), case, Path(folder) / "case"))
                (Path(folder) / "case").rename(Path(folder) / f"case{len(results)}")
        if options.but_hashes:
            results = [{k: HASH.sub(rb'"\1"', v) if isinstance(v, bytes) else v for k, v in r.items()} for r in results]
        names = differing(*results)
        refused = "error" in results[0] or "error" in results[1]
        failures += bool(names) or refused
        verdict = "differs in " + ", ".join(names) if names else "refused by both" if refused else "same"
        print(f"{verdict}: {name}", flush=True)
        if refused:
            print(results[0].get("error", "") or results[1].get("error", ""), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
