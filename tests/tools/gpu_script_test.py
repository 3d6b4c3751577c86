"""usage: gpu_script_test.py gpu.sh

Runs tests/bench/gpu.sh without a GPU, and with programs that stand for those that it runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = ["machine", "doctor", "conformance", "kernels", "libraries", "pytorch", "bandwidth", "calibration", "losses", "graphs", "repeats", "speed"]


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


def run(gpu_sh, folder, *flags, **stubs):
    """What the script does where nvidia-smi, the programs and python3 do what the stubs say."""
    for name in ("comm-conformance", "cuda-kernels", "run-reference", "tbc"):
        script(folder / "build" / "bin" / name, stubs.get(name.replace("-", "_"), "echo '90 GB/s'"))
    script(folder / "path" / "nvidia-smi", stubs.get("smi", "exit 0"))
    # Of --json FILE, the last but one word here, it writes one.
    script(folder / "path" / "python3", stubs.get("python", 'while [[ $1 != --json ]]; do shift; done; echo \'{"x": 1}\' >"$2"'))
    done = subprocess.run(["bash", gpu_sh, *flags, folder / "build", folder / "results"], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{folder / 'path'}:{os.environ['PATH']}"})
    result = folder / "results" / "gpu.json"
    return done, json.loads(result.read_text()) if result.exists() else None


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def main():
    gpu_sh = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), smi="exit 9")
        expect(done.returncode == 77 and result is None, "no GPU is exit code 77")
        expect("gpu.sh: skipped: nvidia-smi finds no GPU" in done.stderr, "why it is skipped")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = subprocess.run(["bash", gpu_sh, folder / "nothing", folder / "results"], capture_output=True, text=True,
                               env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"})
        expect(empty.returncode == 77 and "skipped" in empty.stderr, "nothing there is exit code 77")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name))
        expect(done.returncode == 0, f"all passed: {done.stdout}{done.stderr}")
        expect([part for part in result if part != "version"] == PARTS, f"the parts: {list(result)}")
        expect(all(result[part]["verdict"] == "passed" for part in PARTS), "every verdict")
        expect(result["losses"]["measured"] == {"x": 1}, "what was measured")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), comm_conformance="echo 'Running 0 tests'", tbc="exit 3")
        expect(done.returncode == 1, "a failure is exit code 1")
        expect(result["doctor"]["verdict"] == "failed", "a part that fails")
        expect(result["conformance"]["verdict"] == "failed", "a suite of which nothing ran")
        expect(result["kernels"]["verdict"] == "passed", "the parts after it")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), smi="[[ $1 == -L ]] || sleep 60")
        expect(done.returncode == 1, "a part that does not end is a failure")
        expect(result["machine"]["verdict"] == "took longer than 10 s", f"and said: {result['machine']}")
    with tempfile.TemporaryDirectory() as name:
        script(Path(name, "build", "emulated-gpu", "libcuda.so.1"), "")
        done, result = run(gpu_sh, Path(name), "--emulated", smi="exit 9")
        expect(done.returncode == 0, f"all passed on the emulator: {done.stdout}{done.stderr}")
        left_out = [part for part in PARTS if result[part]["verdict"].startswith("left out: an emulator has no ")]
        expect(left_out == ["machine", "bandwidth", "calibration", "speed"], f"what is left out: {left_out}")
        expect(all(f"{part:12} left out" in done.stdout for part in left_out), "each by name")


if __name__ == "__main__":
    main()
