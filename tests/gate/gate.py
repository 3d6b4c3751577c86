"""The static performance gate: kernels of Programs for GPUs against the numbers of a device, without one.

usage: gate.py BUILD_DIR CASE [--cluster h100-sxm]

Compiles the Program of a case, at the shapes of a real run, and judges its kernels (tests/gate/Gate.h). Prints the
worst of them. known.json lists the kernels that fail today, each with a criterion and the reason. Exit code 1:
a kernel fails and is not listed, or is listed and no longer fails. Example of an entry's kernel:
"reduce_sum+cast -> 768xf32", its ops and the type of its largest result.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Two layers have the same kernels as any number of layers.
GPT2 = "gpt2 --layers 2 --hidden 768 --heads 12 --ffn 3072 --vocab 50257 --seq 1024"
LLAMA = "llama --layers 2 --hidden 2048 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --seq 2048"
MOE = "llama --layers 1 --hidden 1024 --heads 16 --kv-heads 4 --ffn 2048 --experts 8 --vocab 32000 --seq 1024"
BERT = "bert --layers 1 --hidden 768 --heads 12 --ffn 3072 --vocab 30522 --seq 512"
CASES = {
    "gpt2": {"new": GPT2, "plan": "--batch 16 --seq 1024 --clip-norm 1"},
    "llama": {"new": LLAMA, "plan": "--batch 4 --seq 2048"},
    "moe": {"new": MOE, "plan": "--batch 2 --seq 1024"},
    # The padding mask is an input, so attention is neither causal nor full.
    "bert": {"new": BERT, "plan": "--batch 32 --seq 512 --fix attention_mask=input"},
    "resnet": {"model": "resnet-8b", "plan": "--batch 1024"},
}
PRINTED = 12


def checked(command, **options):
    """Runs a command and returns its stdout. Exits with all output if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def rows_of(build, case, cluster):
    """Compiles a Program. Returns the judged kernels, as printed by kernel-gate."""
    binaries = Path(build).resolve() / "bin"
    with tempfile.TemporaryDirectory() as folder:
        if "new" in case:
            model = Path(folder, "model.onnx")
            checked([binaries / "tbc", "new", *case["new"].split(), "-o", model])
        else:
            model = ROOT / "models" / f"{case['model']}.onnx"
        plan = ["--gpus", "1", "--mesh", "dp=1", "--cluster", cluster, "--precision", "bf16", *case["plan"].split()]
        checked([binaries / "tbc", "plan", model, *plan, "-o", "plan.json"], cwd=folder)
        target = ["--target", "cuda", "--arch", "sm_90"]
        checked([binaries / "tbc", "compile", "plan.json", *target, "-o", "program"], cwd=folder)
        return json.loads(checked([binaries / "kernel-gate", "program", cluster], cwd=folder))


def name_of(row):
    """Returns a name such as "reduce_sum+cast -> 768xf32". More than 8 ops are shortened to the
    first three and the count."""
    ops = row["kernel"].split("+")
    most = 8
    what = "+".join(ops) if len(ops) <= most else "+".join(ops[:3]) + f"+... ({len(ops)} ops)"
    return f"{what} -> {row['result']}"


def judge(rows, known):
    """Returns the faults, one sentence each. `known`: the entries of one case."""
    failing = {(name_of(row), criterion) for row in rows for criterion in row["failed"]}
    listed = [(kernel, entry["criterion"]) for entry in known for kernel in entry["kernels"]]
    wrong = [f"{kernel} fails on {criterion} and is not in known.json" for kernel, criterion in sorted(failing - set(listed))]
    for kernel, criterion in sorted(set(listed) - failing):
        wrong.append(f"{kernel} no longer fails on {criterion}: remove it from known.json")
    wrong += [f"{kernel} is listed twice for {criterion}" for kernel, criterion in sorted(set(listed)) if listed.count((kernel, criterion)) > 1]
    wrong += [f"an entry for {entry['criterion']} has no reason" for entry in known if not entry.get("reason")]
    return wrong


def lost_seconds(row):
    return (row["seconds"] - row["ideal_seconds"]) * row["launches"]


def table(rows):
    """Returns a table of the kernels that lose most time against the speed of memory."""
    lines = [f"{'kernel':58} {'times':>5} {'blocks':>8} {'MB':>8} {'in flight':>10} {'instr/B':>8} {'sectors':>7} {'us':>9} {'ideal':>7}  fails on"]
    for row in sorted(rows, key=lost_seconds, reverse=True)[:PRINTED]:
        lines.append(
            f"{name_of(row):58.58} {row['launches']:5} {row['blocks']:8} {row['moved_bytes'] / 1e6:8.1f} "
            f"{row['bytes_in_flight'] / 1e3:7.0f} kB {row['instructions_per_byte']:8.3f} {row['sector_ratio']:7.2f} "
            f"{'>' if row['is_cut'] else ' '}{row['seconds'] * 1e6:8.0f} {row['ideal_seconds'] * 1e6:7.0f}  {', '.join(row['failed']) or '-'}"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--cluster", default="h100-sxm")
    options = parser.parse_args()
    rows = rows_of(options.build, CASES[options.case], options.cluster)
    known = json.loads((Path(__file__).parent / "known.json").read_text(encoding="utf-8"))
    failing = [row for row in rows if row["failed"]]
    print(f"{options.case} on {options.cluster}: {len(rows)} kernels judged, {len(failing)} fail, and lose {sum(map(lost_seconds, failing)) * 1e3:.1f} ms a step")
    if rows:
        print(f"needed: {rows[0]['needed_in_flight'] / 1e3:.0f} kB in flight, at most {rows[0]['balance']:.2f} instructions a byte, at most 2 times the fewest sectors")
    print(table(rows))
    wrong = judge(rows, [entry for entry in known if entry["model"] == options.case])
    if not rows:
        wrong.append("no kernel was judged")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
