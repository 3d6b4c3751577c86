"""usage: measured_test.py TBC

Predicts steps that were measured on an H200 (docs/gpus.md, "Measured on an H200"): one GPU, bf16, no recompute. Every
measured step must lie within the printed interval, and the mean error must stay below 10 %.

The preset's rate of reductions was fitted on kernels of these steps; all else is older than the measurements.
"""

import json
import sys
import tempfile
from pathlib import Path

from programs import ROOT, run

# Model (a file of models/, or arguments of tbc new), flags of tbc plan, measured seconds.
ROWS = [
    ("gpt2.onnx", "--batch 16 --seq 1024 --micro-batch 16", 37.3e-3),
    ("bert", "--batch 32 --seq 512 --micro-batch 32", 35.2e-3),
]
MOST = 0.10


def main():
    tbc, errors = Path(sys.argv[1]).resolve(), []
    for model, flags, measured in ROWS:
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
              f"measured {measured * 1e3:.1f} ms")
        if not low <= measured <= high:
            sys.exit("the measured step is outside of the interval")
    mean = sum(errors) / len(errors)
    print(f"mean error {mean:.1%}, at most {MOST:.0%}")
    if mean > MOST:
        sys.exit("predictions have moved away from what was measured")


if __name__ == "__main__":
    main()
