"""Programs for GPUs on emulated ones: the losses of a few steps equal those of the same model on CPUs.

usage: programs.py BUILD_DIR MODEL [--ranks N --mesh MESH] [--plain | --refusal="LIBRARIES"] [--precision P]
                   [--steps N] [--tolerance T] [--plan="FLAGS"] [--run="FLAGS"]

--plain hides cuBLASLt and cuDNN, so that kernels of ours do everything; then every kernel of the Program has to
have been executed. With --refusal both are installed and do not start, and the run has to say so of LIBRARIES.
Any fault found by the emulator is a failure. Exit code: 0 or 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def checked(command, **options):
    """Runs a command and returns its stderr. Exits with all output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stderr


class Case:
    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.tbc = Path(options.build, "bin", "tbc").resolve()
        libraries = "emulated-gpu-plain" if options.plain else "emulated-gpu"
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(Path(options.build, libraries).resolve()),
            "TBC_EMULATED_STATISTICS": str(self.folder / "statistics"),
            "TBC_EMULATED_GPUS": str(options.ranks),
            "TBC_EMULATED_FOLDER": str(folder),
        }
        if options.refusal:
            self.environment["TBC_EMULATED_REFUSAL"] = "1"

    def train(self, ranks, mesh, target):
        """Plans, compiles and runs the model. Returns the losses of the steps."""
        options, name = self.options, target
        model = Path(__file__).resolve().parents[2] / "models" / f"{options.model}.onnx"
        plan = [self.tbc, "plan", model, "--gpus", str(ranks), "--mesh", mesh, "--precision", options.precision]
        checked([*plan, *options.plan, "-o", f"{name}.json"], cwd=self.folder)
        checked([self.tbc, "compile", f"{name}.json", "--target", target, "-o", name], cwd=self.folder)
        run = [self.tbc, "run", name, "--init-weights", "1", "--steps", str(options.steps), "--log", f"{name}.jsonl"]
        run += ["--timeout", "500", *options.run] if target == "cuda" else []
        said = checked(run, cwd=self.folder, env=self.environment)
        if "emulated GPU:" in said:
            sys.exit(said)
        if options.refusal and target == "cuda":
            for library in options.refusal:
                if f"starting {library}: {library} says" not in said:
                    sys.exit(f"the run does not say that {library} does not start:\n{said}")
        lines = (self.folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def not_executed(self):
        """Returns the Program's kernels without a launch, except kernels for fp8 runs."""
        listed = json.loads((self.folder / "cuda" / "kernels.cuda.json").read_text(encoding="utf-8"))
        launches = (self.folder / "statistics").read_text(encoding="utf-8").splitlines()
        executed = {json.loads(line)["kernel"] for line in launches}
        symbols = [kernel["symbol"] for kernel in listed["kernels"]]
        return [symbol for symbol in symbols if symbol not in executed and not symbol.startswith("tbc_fp8_")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--mesh", default="dp=1")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--refusal", type=str.split, default=[], help="libraries that the run has to name")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--plan", type=str.split, default=[], help="flags of tbc plan, in one word")
    parser.add_argument("--run", type=str.split, default=[], help="flags of tbc run, in one word")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = Case(options, folder)
        reference, found = case.train(1, "dp=1", "cpu"), case.train(options.ranks, options.mesh, "cuda")
        missing = case.not_executed() if options.plain or options.refusal else []
    difference = max(abs(a - b) / abs(b) for a, b in zip(found, reference))
    print(f"losses {found}, on CPUs {reference}: at most {difference:.1e} apart, {options.tolerance:.0e} is allowed")
    if len(found) != options.steps or difference > options.tolerance:
        return 1
    if missing:
        print(f"{len(missing)} kernels were not executed: {', '.join(missing)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
