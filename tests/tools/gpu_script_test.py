"""usage: gpu_script_test.py gpu.sh

Runs tests/bench/gpu.sh without a GPU, and with stubs in place of the programs that it runs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

STAGES = {
    "one-gpu": ["machine", "doctor", "kernels", "libraries", "pytorch", "conformance", "losses", "graphs", "repeats", "bandwidth", "calibration", "speed"],
    "node": ["meshes", "killed", "stopped"],
    "nodes": ["nodes"],
}
PARTS = [part for parts in STAGES.values() for part in parts]
# GPUs as nvidia-smi names them, and the preset of each.
DEVICES = {
    "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA H200": "h200-sxm", "NVIDIA B200": "b200",
    "NVIDIA GB300": "gb300-nvl72", "NVIDIA H800": "h800-sxm", "NVIDIA H20": "h20-sxm", "NVIDIA A800-SXM4-80GB": "a800-80gb-sxm",
    "NVIDIA GB200": "gb200-nvl72", "NVIDIA A100-SXM4-80GB": "a100-80gb-sxm", "NVIDIA A100-SXM4-40GB": "a100-40gb-sxm",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie", "Tesla V100-SXM2-16GB": "v100-16gb", "Tesla V100-SXM2-32GB": "v100-32gb",
    "NVIDIA L4": "l4", "NVIDIA L40S": "l40s", "NVIDIA GeForce RTX 4090": "rtx4090",
    "NVIDIA H100 NVL": None, "NVIDIA L40": None, "NVIDIA A100-PCIE-40GB": None, "NVIDIA GeForce RTX 4090 D": None, "Tesla T4": None, "": None,
}


TWO_GPUS = "echo 'GPU 0: H100'; echo 'GPU 1: H100'"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


def run(gpu_sh, folder, *flags, **stubs):
    """Runs the script with stubs for nvidia-smi, the programs and python3. Returns the process and
    its JSON result, or None.
    """
    for name in ("comm-conformance", "cuda-kernels", "run-reference", "tbc"):
        script(folder / "build" / "bin" / name, stubs.get(name.replace("-", "_"), "echo '90 GB/s'"))
    script(folder / "path" / "nvidia-smi", stubs.get("smi", TWO_GPUS))
    # Writes FILE of `--json FILE`.
    script(folder / "path" / "python3", stubs.get("python", 'while [[ $1 != --json ]]; do shift; done; echo \'{"x": 1}\' >"$2"'))
    done = subprocess.run(["bash", gpu_sh, *flags, folder / "build", folder / "results"], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{folder / 'path'}:{os.environ['PATH']}"})
    result = folder / "results" / stubs.get("result", "gpu.json")
    return done, json.loads(result.read_text()) if result.exists() else None


def expect(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def check_devices(bench, folder):
    """The cluster to plan for is that of this machine's GPU."""
    sys.path.insert(0, str(bench))
    import gpu_devices

    for device, preset in DEVICES.items():
        expect(gpu_devices.preset_of(device) == preset, f"the preset of {device!r}: {gpu_devices.preset_of(device)}")
    measured = Path(folder, "cluster.toml")
    measured.touch()
    expect(gpu_devices.cluster_for("Tesla T4", str(measured))[0] == str(measured), "a GPU without a preset is measured")
    expect(gpu_devices.cluster_for("NVIDIA H200", str(measured))[0] == "h200-sxm", "a preset comes first")
    try:
        gpu_devices.cluster_for("Tesla T4", None)
    except LookupError as wrong:
        expect("measure it: tbc calibrate" in str(wrong), f"what to do: {wrong}")
    else:
        sys.exit("failed: a GPU of which nothing is known has no cluster")


def main():
    gpu_sh = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        check_devices(gpu_sh.parent, name)
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
        passed = [part for part in PARTS if result[part]["verdict"] == "passed"]
        expect(passed == PARTS[:-1], f"every verdict: {result}")
        expect("start it by a launcher: torchrun --nnodes 2 --nproc-per-node 2 " in result["nodes"]["verdict"], "how nodes are started")
        expect({stage: [part for part in PARTS if result[part]["stage"] == stage] for stage in STAGES} == STAGES, "the stages")
        expect(result["losses"]["measured"] == {"x": 1}, "what was measured")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), comm_conformance="echo 'Running 0 tests'", tbc="exit 3")
        expect(done.returncode == 1, "a failure is exit code 1")
        expect(result["doctor"]["verdict"] == "failed", "a part that fails")
        expect(result["conformance"]["verdict"] == "failed", "a suite of which nothing ran")
        expect(result["kernels"]["verdict"] == "passed", "the parts after it")
        expect(result["doctor"]["look_at"].startswith("the lines that begin with wrong"), "where to look")
        expect("look at: NCCL: NCCL_DEBUG=WARN" in done.stdout and "look_at" not in result["kernels"], f"it is printed: {done.stdout}")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), smi="echo 'GPU 0: H100'")
        expect(done.returncode == 0, "one GPU is enough")
        expect(all(result[part]["verdict"] == "left out: this machine has 1 GPU" for part in STAGES["node"]), "what one GPU cannot show")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), "--nodes", Path(name), result="gpu-nodes-0.json")
        expect(done.returncode == 0 and list(result) == ["version", "nodes"], f"a rank of several nodes: {done.stdout}{done.stderr}")
        done, result = run(gpu_sh, Path(name), "--nodes", Path(name), result="gpu-nodes-0.json", python="exit 1")
        expect(done.returncode == 1 and "look at: whether meshes passed on each node" in done.stdout, "where to look between nodes")
    with tempfile.TemporaryDirectory() as name:
        done, result = run(gpu_sh, Path(name), smi=f"if [[ $1 == -L ]]; then {TWO_GPUS}; else sleep 60; fi")
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
