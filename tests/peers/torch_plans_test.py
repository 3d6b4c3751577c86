"""usage: torch_plans_test.py TBC [--all] [--only TEXT]

Plans of models/, and of a ViT, run in PyTorch on 2, 4 and 8 Gloo processes. For each: the losses of
ten steps in f64 are those of serial PyTorch (of bf16 plans to 2^-8), each rank has the planned bytes of parameters, and the
collectives are the plan's but for differences with a known reason. PyTorch's CommDebugMode counts
as many of each kind. Prints a table of them.

--all runs the whole table of docs/pytorch.md (about five minutes), else a part of each kind with
four steps.
--only runs the cases whose name contains TEXT.

Exit code: 0 all agree, 1 some differ, 77 PyTorch 2.11 or transformers is missing (prints so).
"""

import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tbc")
parser.add_argument("--all", action="store_true")
parser.add_argument("--only", default="")
options = parser.parse_args()
os.environ["TBC"] = os.path.abspath(options.tbc)
os.environ["CUDA_VISIBLE_DEVICES"] = ""

try:
    import torch
    import transformers  # noqa: F401

    if not torch.__version__.startswith("2.11."):
        raise ImportError(f"PyTorch is {torch.__version__}, not 2.11")
except ImportError as error:
    print(f"skipped: {error}; tests/peers/make-venv makes an environment")
    sys.exit(77)

import harness  # noqa: E402
from comparison import REASONS, compare, debug_differences  # noqa: E402
from harness import TOLERANCE, Case, run_cases  # noqa: E402

if not options.all:
    harness.STEPS = 4

F = "--batch 8 --precision f32 "
VIT = "tiny-vit"
GPT2, LLAMA, BERT, RESNET, MOE, MLP = "tiny-gpt2", "tiny-llama", "masked-bert", "tiny-resnet", "moe-8l", "tiny-mlp"
CUT = {GPT2: "transformer.h.1.*", LLAMA: "model.layers.1.*", BERT: "bert.encoder.layer.1.*", MOE: "blocks.4.*", VIT: "vit.layers.1.*"}
FOUR = " ".join(f"--pin transformer.h.{block}.*=begin" for block in (2, 4, 6))


# DTensor has no convolution over tp.
WHOLE = {VIT: " --pin vit.embeddings.patch_embeddings.projection.*=whole"}


def plain(model, mesh):
    return Case(model, mesh, F.strip() + (WHOLE.get(model, "") if "tp" in mesh else ""))


def pipeline(model, mesh, flags="--schedule 1f1b --micro-batch 2"):
    return Case(model, mesh, f"{F}{flags} --pin {CUT[model]}=begin")


QUICK = [
    Case(GPT2, "dp=2"),
    Case(GPT2, "dp=2", "--batch 8 --precision bf16 --zero 0 --micro-batch 2"),
    Case(RESNET, "dp=2", "--batch 8 --precision bf16 --zero 0"),
    Case(GPT2, "fsdp=2"),
    Case(GPT2, "tp=2"),
    Case(LLAMA, "tp=2", F + "--recompute full"),
    Case(RESNET, "dp=2"),
    Case(MOE, "fsdp=2"),
    Case(GPT2, "dp=2", F + "--strategy zero1 --micro-batch 2 --clip-norm 1"),
    pipeline(GPT2, "pp=2"),
    Case(BERT, "fsdp=2,tp=2"),
    plain(VIT, "fsdp=2,tp=2"),
    Case(LLAMA, "fsdp=2,tp=2"),
    Case(LLAMA, "dp=2,fsdp=2"),
    pipeline(GPT2, "pp=2,dp=2,tp=2"),
]

ALL = [
    *QUICK,
    *(plain(model, mesh) for model in (GPT2, LLAMA, BERT, VIT, MLP)
      for mesh in ("dp=2", "fsdp=2", "tp=2", "dp=4", "fsdp=4", "dp=2,fsdp=2", "dp=2,tp=2", "fsdp=2,tp=2", "dp=2,fsdp=2,tp=2")),
    *(Case(model, mesh) for model in (RESNET, MOE) for mesh in ("dp=2", "fsdp=2", "dp=4", "fsdp=4", "dp=2,fsdp=2", "fsdp=8")),
    *(Case(GPT2, "dp=2", F + f"--strategy {name} --micro-batch 2") for name in ("ddp", "zero1", "zero2")),
    Case(GPT2, "fsdp=2", F + "--strategy shard-grad-op --micro-batch 2"),
    *(Case(model, mesh, F + f"--recompute {mode}") for model in (GPT2, LLAMA) for mesh in ("fsdp=2", "tp=2", "fsdp=2,tp=2")
      for mode in ("full", "selective")),
    *(pipeline(model, mesh) for model in (GPT2, LLAMA, VIT, MOE) for mesh in ("pp=2", "pp=2,dp=2", "pp=2,fsdp=2")),
    *(pipeline(model, mesh) for model in (GPT2, LLAMA) for mesh in ("pp=2,tp=2", "pp=2,dp=2,tp=2", "pp=2,fsdp=2,tp=2")),
    pipeline(GPT2, "pp=2", "--schedule gpipe --micro-batch 2"),
    Case("gpt2-8l", "pp=2", F + "--micro-batch 1 --schedule zero-bubble --pin transformer.h.4.*=begin"),
    Case("gpt2-8l", "pp=2", F + f"--micro-batch 1 --schedule interleaved --virtual-stages 2 {FOUR}"),
    Case("gpt2-8l", "pp=2", F + f"--micro-batch 1 --schedule zero-bubble --virtual-stages 2 --placement v {FOUR}"),
    Case("gpt2-8l", "pp=4", F + f"--micro-batch 1 --schedule 1f1b {FOUR}"),
]  # fmt: skip


def verdict(result):
    """Returns the row's columns, and whether the case is as expected."""
    if result.problem:
        return ["failed", "", "", "", result.problem.strip().splitlines()[-1]], False
    # The distance of two numbers in bf16: CPUs with matmuls of their own for bf16 round sums elsewhere.
    tolerance, tolerance_f32 = (2**-8, 2**-8) if result.plan.json["job"]["precision"] == "bf16" else (TOLERANCE, 1e-5)
    is_close = result.error <= tolerance and all(
        abs(a / b - 1) < tolerance_f32 for a, b in zip(result.losses_f32, result.serial))
    has_bytes = result.bytes == result.planned_bytes
    # FSDP leaves the padding to the last rank; the plan pads every rank.
    is_padded = "UnevenShardWarning" in result.warned and max(result.bytes) == max(result.planned_bytes)
    reasons, unexplained = compare(result.plan, result)
    debug = debug_differences(result)
    collectives = "; ".join(unexplained) or ", ".join(sorted(reasons - {"scalars"})) or "equal"
    return [f"{result.error:.0e}", "equal" if has_bytes else "padded" if is_padded else "differ", collectives,
            "; ".join(debug) or "equal"], is_close and (has_bytes or is_padded) and not unexplained and not debug  # fmt: skip


def main():
    cases = list(dict.fromkeys(ALL if options.all else QUICK))
    cases = [case for case in cases if options.only in case.name]
    good: set[Case] = set()
    used: set[str] = set()

    def report(case, result):
        columns, is_good = verdict(result)
        if is_good:
            good.add(case)
            used.update(compare(result.plan, result)[0])
        flags = case.flags.replace(F.strip(), "").strip() or "as planned"
        row = " | ".join([case.model, case.mesh.replace(",", " "), flags, *columns])
        print(f"{'' if is_good else 'DIFFERS '}| {row} |", flush=True)

    print("| model | mesh | flags | loss, largest relative error | bytes per rank | collectives | CommDebugMode |")
    print("|---|---|---|---|---|---|---|", flush=True)
    results = run_cases(cases, report)
    for name in sorted(used):
        print(f"{name}: {REASONS[name]}")
    for case in cases:
        if case not in results:
            print(f"{case.name}: no result, its world ended")
    print(f"{len(cases)} plans, {len(cases) - len(good)} differ")
    sys.exit(0 if cases and len(good) == len(cases) else 1)


if __name__ == "__main__":
    main()
