"""tbc as the subject: plans, compiles and runs a model, and reads back its results."""

import json
import os
import shlex
import shutil
import subprocess

STEPS = 3
SECONDS = 900  # a command counts as hanging after this; machines may be busy


class Refused(Exception):
    """Raised if tbc refuses the model or the mesh with a reason (exit codes 3 and 4)."""


class Failed(Exception):
    """Raised if a command fails in any other way; the text has the command and its output."""


def refusal(code, text):
    """Returns the reason of a refusal in one line; None for other exit codes. An impossible pin is
    a usage error of `plan`.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason") if code in (3, 4) else None


class Tbc:
    """Commands of one program, in their own folder. `cache`: folder of compiled kernels, kept
    between commands.
    """

    def __init__(self, program, folder, cache):
        self.program, self.folder = str(program), folder
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}

    def run(self, *arguments):
        command = [self.program, *map(str, arguments)]
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS, check=False,
                                  env=self.environment)
        except subprocess.TimeoutExpired:
            raise Failed(f"{shlex.join(command)}\nno end after {SECONDS} s") from None
        if reason := refusal(done.returncode, done.stderr):
            raise Refused(reason)
        if done.returncode != 0:
            raise Failed(f"{shlex.join(command)}\nexit code {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def trained(self, constants):
        """Returns the `constants` that tbc would train; they must be frozen."""
        if not constants:
            return []
        report = json.loads(self.run("check", "model.onnx", "--json"))
        names = {entry["name"] for entry in report["parameter_tensors"]}
        return [name for name in constants if name in names]

    def train(self, mesh, ranks, batch, micro_batch, flags, rate, loss, frozen):
        """Trains model.onnx on x.npy and labels.npy in the folder. Returns the STEPS lines of
        log.jsonl; checkpoints are in `saved`. `flags`: of `tbc plan`, for the optimizer.
        """
        for leftover in ("saved", "program"):
            shutil.rmtree(self.folder / leftover, ignore_errors=True)
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        freeze = [word for name in frozen for word in ("--freeze", name)]
        self.run("plan", "model.onnx", "--gpus", ranks, "--cluster", "cpu-local", "--mesh", mesh, "--batch", batch,
                 "--micro-batch", micro_batch, "--precision", "f32", "--loss", loss, *flags, *freeze, "-o", "plan.json")
        self.run("compile", "plan.json", "-o", "program")
        self.run("run", "program", "--nproc", ranks, "--threads", 1, "--timeout", SECONDS // 3, "--data", "x=x.npy", "--data", "labels=labels.npy",
                 "--no-shuffle", "--steps", STEPS, "--lr", rate, "--log", "log.jsonl",
                 "--checkpoint", "saved", "--every", 1, "--keep", STEPS)
        return [json.loads(line) for line in (self.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]

    def record(self, lines):
        """Returns the record (compare.py) of the last `train`."""
        import numpy as np  # not needed by table_test.py

        record = {}
        for entry in lines:
            record[f"loss {entry['step']}"] = np.array(entry["loss"])
            if "gradient_norm" in entry:
                record[f"norm {entry['step']}"] = np.array(entry["gradient_norm"])
        for step in (1, STEPS):
            self.run("checkpoint", "consolidate", f"saved/step-{step:08}", "--optimizer", "-o", "state.safetensors")
            for name, array in read_safetensors(self.folder / "state.safetensors", np).items():
                record[f"{name} after {step}"] = array
        return record


def read_safetensors(path, np):
    """Returns the f32 tensors of a file, as f64."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + size]).items():
        if entry.get("dtype") == "F32":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(content[begin:end], dtype="<f4").astype(np.float64).reshape(entry["shape"])
    return tensors
