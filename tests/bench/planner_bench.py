#!/usr/bin/env python3
"""Measures the planner's time and checks its plans. Python standard library only.

usage: planner_bench.py [--tbc PROGRAM] [--only NAME ..] [--models FOLDER] [--curves] [--rate] [--verify] [--json FILE]

Plans ten jobs once each, import included. Prints CPU seconds, wall seconds, peak memory, step time,
the gap to the proven bound, and the search's evaluations per CPU second spent on them
(docs/planning.md).

--curves plans one Llama with 8 to 128 layers, and on 8 to 4096 devices.
--rate costs configurations of one model by `plan --job` and prints how many per second.
--verify runs every plan shrunk against the serial program (`tbc verify`, which also compares the
collectives of the Program with the predicted ones). Exit code 1 if one differs.

Models are made by `tbc new`, or read from models/. --models names a folder of exports, which are
preferred. The search runs on all cores (`taskset -c 0` gives it one). Compare times only within one
machine and run, and wall times only on an idle machine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LLAMA3 = ["llama", "--vocab", "128256", "--kv-heads", "8"]
NEW = {
    "gpt2-xl": ["gpt2", "--layers", "48", "--hidden", "1600", "--ffn", "6400", "--heads", "25", "--vocab", "50257", "--seq", "1024", "--tied"],
    "bert-large": ["bert", "--layers", "24", "--hidden", "1024", "--ffn", "4096", "--heads", "16", "--vocab", "30522", "--seq", "512"],
    "llama3-8b": [*LLAMA3, "--layers", "32", "--hidden", "4096", "--heads", "32", "--ffn", "14336"],
    "llama3-70b": [*LLAMA3, "--layers", "80", "--hidden", "8192", "--heads", "64", "--ffn", "28672"],
    "llama3-405b": [*LLAMA3, "--layers", "126", "--hidden", "16384", "--heads", "128", "--ffn", "53248"],
    "gpt3-175b": ["gpt2", "--layers", "96", "--hidden", "12288", "--ffn", "49152", "--heads", "96", "--vocab", "51200", "--seq", "2048", "--tied"],
    "mixtral-8x7b": ["llama", "--layers", "32", "--hidden", "4096", "--heads", "32", "--kv-heads", "8", "--ffn", "14336", "--vocab", "32000",
                     "--experts", "8", "--experts-per-token", "2"],
}
# Models with an export of another name.
EXPORTS = {"mixtral-8x7b": "mixtral-8x7b-dense"}
# The model and the flags of each job. resnet50 has no kind in `tbc new`: without an export the
# small one of models/ replaces it.
JOBS = {
    "gpt2/16": ("gpt2", "--gpus 16"),
    "gpt2-xl/16": ("gpt2-xl", "--gpus 16"),
    "bert-large/64": ("bert-large", "--gpus 64"),
    "resnet50/16": ("resnet50", "--gpus 16"),
    "tiny-mlp/4": ("tiny-mlp", "--gpus 4 --batch 32"),
    "llama3-8b/64": ("llama3-8b", "--gpus 64 --seq 4096"),
    "llama3-70b/1024": ("llama3-70b", "--gpus 1024 --seq 4096"),
    "llama3-405b/4096": ("llama3-405b", "--gpus 4096 --seq 4096"),
    "gpt3-175b/1024": ("gpt3-175b", "--cluster a100-80gb-sxm --gpus 1024 --batch 1536 --seq 2048"),
    "mixtral-8x7b/64": ("mixtral-8x7b", "--gpus 64 --seq 4096"),
}


class Models:
    """Finds model files, and makes missing ones."""

    def __init__(self, tbc, folder, exports):
        self.tbc, self.folder, self.exports = tbc, Path(folder), exports

    def new(self, arguments, name):
        file = self.folder / f"{name}.onnx"
        if not file.exists():
            subprocess.run([self.tbc, "new", *arguments, "-o", file], check=True, stdout=subprocess.DEVNULL)
        return file

    def of(self, name):
        export = self.exports and self.exports / f"{EXPORTS.get(name, name)}.onnx"
        if export and export.exists():
            return export
        if name in NEW:
            return self.new(NEW[name], name)
        return ROOT / "models" / f"{'resnet-8b' if name == 'resnet50' else name}.onnx"


def measured(command, **options):
    """Runs a command. Returns the finished process with its output, CPU seconds, wall seconds, and
    peak memory in MiB.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, **options)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return process.returncode, *texts, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def plan(tbc, model, flags, to):
    """Makes one plan. Returns a row of the table, or the error."""
    code, _, err, seconds, wall, mib = measured([tbc, "plan", str(model), *flags, "-o", str(to), "--verbose"])
    if code:
        return {"error": err.strip().splitlines()[0] if err.strip() else f"exit code {code}", "cpu_seconds": seconds, "wall_seconds": wall, "peak_mib": mib}
    answer = json.loads(to.read_text())
    bound = answer["lower_bound_seconds"]
    counts = re.search(r"search: (\d+) evaluations in ([0-9.]+) CPU s", err)
    return {"cpu_seconds": seconds, "wall_seconds": wall, "peak_mib": mib, "step_seconds": answer["step_seconds"],
            "evaluations": int(counts[1]), "evaluation_seconds": float(counts[2]),
            "gap": answer["step_seconds"] / bound - 1 if bound else None,
            "mesh": " ".join(f"{axis}={size}" for axis, size in answer["mesh"].items() if size > 1)}


def show(name, row):
    took = f"{name:20} {row['cpu_seconds']:7.2f} CPU s {row['wall_seconds']:7.2f} s {row['peak_mib']:7.0f} MiB"
    if "error" in row:
        print(f"  {took}  {row['error']}", flush=True)
        return
    gap = "" if row["gap"] is None else f"{100 * row['gap']:5.1f} %"
    rate = row["evaluations"] / max(row["evaluation_seconds"], 1e-3)
    print(f"  {took}  step {row['step_seconds']:9.4f} s  gap {gap:>7}  {rate / 1000:7.0f}k/s  {row['mesh']}", flush=True)


def curves(tbc, models, folder):
    """Prints seconds against layers on 64 devices, and against devices with 32 layers."""
    print("\nSeconds against layers and devices: Llama, 4096 wide, vocabulary 32000")
    rows = {}
    for layers, gpus in [(n, 64) for n in (8, 16, 32, 64, 128)] + [(32, n) for n in (8, 32, 128, 512, 2048, 4096)]:
        arguments = ["llama", "--vocab", "32000", "--layers", str(layers), "--hidden", "4096", "--heads", "32", "--ffn", "11008"]
        name = f"{layers} layers/{gpus}"
        rows[name] = plan(tbc, models.new(arguments, f"curve-{layers}"), ["--gpus", str(gpus), "--seq", "4096"], folder / "curve.json")
        show(name, rows[name])
    return rows


def rate(tbc, models, folder):
    """Prints pinned configurations per CPU second, of one model in one process."""
    jobs = [{"model": str(models.of("llama3-8b")), "gpus": dp * tp * pp, "mesh": f"pp={pp},dp={dp},tp={tp}", "zero": 1, "batch": 64 * dp,
             "micro-batch": micro, "seq": 4096, "recompute": again, **({"schedule": "1f1b"} if pp > 1 else {})}
            for tp in (1, 2, 4, 8) for pp in (1, 2, 4) for dp in (2, 4, 8) for micro in (1, 2) for again in ("none", "full")]
    file = folder / "rate.jsonl"
    file.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    code, out, err, seconds, wall, mib = measured([tbc, "plan", "--job", str(file)])
    if code not in (0, 1):
        sys.exit(f"planner_bench.py: plan --job: {err}")
    wrong = sum("error" in json.loads(line) for line in out.splitlines())
    print(f"\nplan --job: {len(jobs)} configurations of llama3-8b in {seconds:.1f} CPU seconds, {len(jobs) / seconds:.1f} a CPU second,"
          f" {len(jobs) / wall:.1f} a second, {mib:.0f} MiB, {wrong} refused", flush=True)
    return {"configurations": len(jobs), "cpu_seconds": seconds, "wall_seconds": wall, "refused": wrong}


def verify(tbc, name, to):
    """Returns whether the shrunk plan equals the serial program and has the predicted collectives.
    """
    code, out, err, seconds, _, _ = measured([tbc, "verify", str(to), "--residues-only"])
    lines = [line for line in out.splitlines() if "verified" in line or "FAILED" in line or "collectives per step" in line]
    lines = lines or (err.strip() or out.strip() or "no output").splitlines()[:3]
    print(f"    {'ok' if code == 0 else 'WRONG'} ({seconds:.1f} CPU seconds): {'; '.join(lines)}", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tbc", default=str(ROOT / "build/bin/tbc"))
    parser.add_argument("--only", action="append", help="only this job (repeatable)")
    parser.add_argument("--models", type=Path, help="folder of exports")
    parser.add_argument("--plans", type=Path, help="keep the plans here")
    parser.add_argument("--curves", action="store_true", help="also against layers and devices")
    parser.add_argument("--rate", action="store_true", help="also configurations a second")
    parser.add_argument("--verify", action="store_true", help="run every plan, shrunk")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    tbc = str(Path(options.tbc).resolve())
    failed, output = False, {"jobs": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.plans or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = Models(tbc, scratch, options.models and options.models.resolve())
        print("seconds and memory of planning, import included; step time and gap of the plan; evaluations a CPU second")
        for name, (model, flags) in JOBS.items():
            if options.only and name not in options.only:
                continue
            to = folder / (name.replace("/", "-") + ".json")
            row = output["jobs"][name] = plan(tbc, models.of(model), flags.split(), to)
            show(name, row)
            failed |= "error" in row
            if options.verify and "error" not in row:
                row["verified"] = verify(tbc, name, to)
                failed |= not row["verified"]
        if options.curves:
            output["curves"] = curves(tbc, models, folder)
        if options.rate:
            output["rate"] = rate(tbc, models, folder)
    if options.json:
        options.json.write_text(json.dumps(output, indent=2) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
