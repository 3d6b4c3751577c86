#!/usr/bin/env python3
"""Counts the GPU programs that builds of tbc emit, beside what their plans predict.

Each job is planned for one H100, compiled for it, and counted by `tbc program show --roofline`. No GPU is needed.

    tests/bench/programs.py build/bin/tbc
    tests/bench/programs.py build-before/bin/tbc build/bin/tbc

Columns:
    launches    of the device, per step
    GB          moved by all kernels, per step; "ours" without libraries
    roofline    ms of all kernels at the device's peaks, the sum of the two that follow
    library     ms of those in cuBLASLt and cuDNN
    ours        ms of kernels that tbc generates
    static      ms: each kernel at the roofline, divided by the fraction of its peak that such kernels reach
    plan        ms that `tbc plan` predicts
    plan/static their quotient

Fractions are no numbers of the planner. Large bf16 matmuls of cuBLAS on an H100 reach 600 to 750 of 989 TFLOP/s
(FlashAttention-3, arXiv 2407.08608, figure 5): 0.7. The others were measured on an H200 (docs/gpus.md): attention
0.53 forward and 0.45 backward, elementwise kernels 0.81 to 0.86 of their bytes, routed experts 0.36 and 0.34 of the
peak, of which the roofline of their instructions allows 0.629. Kernels bound by their launch take that time.

Exit code 0; 1 if a job fails or its quotient is further from 1 than --most percent; 2 for a usage error.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LLAMA = "llama --layers 22 --hidden 2048 --heads 32 --kv-heads 4 --ffn 5632 --vocab 32000"
MOE = "llama --layers 2 --hidden 1024 --heads 16 --kv-heads 16 --ffn 2816 --experts 8 --vocab 32000"
# Attention of tbc's own: capped scores, windows and heads of 256; a padding mask.
GEMMA = "gemma2 --layers 2 --hidden 2304 --heads 8 --kv-heads 4 --head-dim 256 --ffn 9216 --vocab 32000"
BERT = "bert --layers 4 --hidden 768 --heads 12 --ffn 3072 --vocab 30522 --seq 512"

# Name, model (a file of models/, or arguments of `tbc new`), flags of `tbc plan`.
JOBS = [
    ("gpt2-124m 16x1024", "gpt2.onnx", "--batch 16 --seq 1024 --micro-batch 16"),
    ("gpt2-124m clip", "gpt2.onnx", "--batch 16 --seq 1024 --micro-batch 16 --clip-norm 1"),
    ("llama-1.1b 4x2048", LLAMA, "--batch 4 --seq 2048 --micro-batch 4"),
    ("resnet-8b 128", "resnet-8b.onnx", "--batch 128 --micro-batch 128"),
    ("moe 2 layers 8x1024", MOE, "--batch 8 --seq 1024 --micro-batch 8"),
    ("gemma2 2 layers 4x2048", GEMMA, "--batch 4 --seq 2048 --micro-batch 4"),
    ("bert 4 layers 32x512", BERT, "--batch 32 --seq 512 --micro-batch 32 --fix attention_mask=input"),
]

# Of the roofline, by executor and bound. Attention is the only op of cuDNN but convolution, which counts alike.
REACHED = {("cuDNN", "flops"): 0.49, ("kernel", "memory"): 0.84, ("kernel", "flops"): 0.35 / 0.629}

COLUMNS = ["launches", "GB", "ours GB", "roofline", "library", "ours", "static", "plan", "plan/static"]


def run(command, folder):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stderr}")
    return done.stdout


def count(tbc, model, flags, fraction, folder):
    """Returns the row of one job, by column."""
    path = ROOT / "models" / model
    if not model.endswith(".onnx"):
        path = folder / "model.onnx"
        run([tbc, "new", *model.split(), "-o", path], folder)
    job = "--gpus 1 --cluster h100-sxm --mesh dp=1 --precision bf16 --recompute none"
    run([tbc, "plan", path, *job.split(), *flags.split(), "-o", "plan.json"], folder)
    run([tbc, "compile", "plan.json", "--target", "cuda", "--arch", "sm_90", "-o", "program"], folder)
    table = json.loads(run([tbc, "program", "show", "program", "--roofline", "--json"], folder))
    plan = json.loads((folder / "plan.json").read_text())
    kernels = [kernel for stage in table["stages"] for kernel in stage["kernels"]]

    def total(field, libraries):
        return sum(kernel[field] for kernel in kernels if (kernel["by"] != "kernel") == libraries)

    ours, library = total("seconds", False) * 1e3, total("seconds", True) * 1e3
    reached = {**REACHED, ("cuBLASLt", "flops"): fraction, ("cuBLASLt", "memory"): REACHED["kernel", "memory"]}
    static = sum(kernel["seconds"] / reached.get((kernel["by"], kernel["bound"]), 1) for kernel in kernels) * 1e3
    # The parts of a step add up to it; hidden communication is not one of them.
    parts = plan["prediction"]["time"]
    predicted = sum(seconds for part, seconds in parts.items() if not part.startswith("hidden")) * 1e3
    return {
        "launches": sum(kernel["launches"] for kernel in kernels),
        "GB": (total("bytes", False) + total("bytes", True)) / 1e9,
        "ours GB": total("bytes", False) / 1e9,
        "roofline": ours + library,
        "library": library,
        "ours": ours,
        "static": static,
        "plan": predicted,
        "plan/static": predicted / static,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tbc", nargs="+", type=Path, help="programs to count, the oldest first")
    parser.add_argument("--library-fraction", type=float, default=0.7, metavar="F",
                        help="of its peak that a matmul reaches (default: 0.7)")
    parser.add_argument("--only", default="", help="jobs whose name has this text")
    parser.add_argument("--most", type=float, metavar="PERCENT", help="most that a plan may differ from the static time")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args()
    if not 0 < args.library_fraction <= 1:
        parser.error("--library-fraction is above 0 and at most 1")
    for tbc in args.tbc:
        if not tbc.is_file():
            parser.error(f"{tbc} is no file")
    rows = []
    for name, model, flags in JOBS:
        if args.only not in name:
            continue
        for tbc in args.tbc:
            with tempfile.TemporaryDirectory() as folder:
                row = count(tbc.resolve(), model, flags, args.library_fraction, Path(folder))
            rows.append({"job": name, "tbc": str(tbc), **row})
    if args.json:
        print(json.dumps({"format": "tbc-bench-programs", "version": 1,
                          "library_fraction": args.library_fraction, "rows": rows}, indent=1))
        return
    print_table(rows)
    far = [row["job"] for row in rows if args.most is not None and abs(row["plan/static"] - 1) * 100 > args.most]
    if far:
        sys.exit(f"more than {args.most:g} % from the static time: {', '.join(far)}")


def print_table(rows):
    width = max(len(row["job"]) for row in rows)
    print(" " * width, *(f"{column:>11}" for column in COLUMNS))
    for row in rows:
        cells = [f"{row[c]:11.0f}" if c == "launches" else f"{row[c]:11.2f}" if c == "plan/static" else
                 f"{row[c]:11.1f}" for c in COLUMNS]
        print(f"{row['job']:{width}}", *cells)


if __name__ == "__main__":
    main()
