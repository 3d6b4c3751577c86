"""usage: measured_test.py TBC

Predicts steps that were measured on an H200 (docs/gpus.md, "Measured on an H200"): one GPU, bf16, no recompute. Every
measured step, less the kernels that are gone since, must lie within the printed interval, and the mean error must stay
below 10 %.

The preset's rate of reductions was fitted on kernels of these steps; all else is older than the measurements.
"""

import json
import sys
import tempfile
from pathlib import Path

from programs import ROOT, run

# Slices, reshapes and transposes around attention: all of those of GPT-2. BERT had two thirds of them, for it has as
# many tokens of 768 columns in 12 layers, and q, k and v apart. The gradient of cross-entropy of GPT-2 takes 0.8 ms for
# its 3.3 GB, at the rate of elementwise kernels.
AROUND_ATTENTION = 4.0e-3
AROUND_ATTENTION_OF_BERT = AROUND_ATTENTION * 2 / 3
SEARCH_OF_LABELS = 3.0e-3 - 0.8e-3
# Sums over the rows of 25 norms, 1.9 GB at the measured 0.34 to 0.49 of 4.8 TB/s, less partial sums of 0.1 GB.
COLUMN_SUMS = 0.9e-3

# Model (a file of models/, or arguments of tbc new), flags of tbc plan, measured seconds, of which are gone.
ROWS = [
    ("gpt2.onnx", "--batch 16 --seq 1024 --micro-batch 16", 37.3e-3,
     AROUND_ATTENTION + SEARCH_OF_LABELS + COLUMN_SUMS),
    ("bert", "--batch 32 --seq 512 --micro-batch 32", 35.2e-3, AROUND_ATTENTION_OF_BERT + COLUMN_SUMS),
]
MOST = 0.10


def main():
    tbc, errors = Path(sys.argv[1]).resolve(), []
    for model, flags, then, gone in ROWS:
        measured = then - gone
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = ROOT / "models" / model
            if not model.endswith(".onnx"):
                path = folder / "model.onnx"
                run([tbc, "new", *model.split(), "-o", path], folder)
            job = "--gpus 1 --cluster h200-sxm --mesh dp=1 --precision bf16 --recompute none"
            run([tbc, "plan", path, *job.split(), *flags.split(), "-o", "plan.json"], folder)
            plan = json.loads((folder / "plan.json").read_text())
        low, high = plan["prediction"]["low_seconds"], plan["prediction"]["high_seconds"]
        errors.append(abs(plan["step_seconds"] / measured - 1))
        print(f"{model[:24]:24} predicted {plan['step_seconds'] * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f}), "
              f"measured {then * 1e3:.1f} ms, {gone * 1e3:.1f} ms of them gone")
        if not low <= measured <= high:
            sys.exit("the measured step is outside of the interval")
    mean = sum(errors) / len(errors)
    print(f"mean error {mean:.1%}, at most {MOST:.0%}")
    if mean > MOST:
        sys.exit("predictions have moved away from what was measured")


if __name__ == "__main__":
    main()
