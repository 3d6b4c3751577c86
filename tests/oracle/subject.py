"""tbc as the subject: plans, compiles and runs a model, and reads back what it computed."""

import json
import os
import shlex
import shutil
import subprocess

STEPS = 3
SECONDS = 900  # after which a command counts as hanging; machines may be busy


class Refused(Exception):
    """Raised where tbc does not take the model or the mesh and says why (exit codes 3 and 4)."""


class Failed(Exception):
    """Raised where a command fails in any other way; the text has the command and what it printed."""


def refusal(code, text):
    """The reason in one line if this is one, else None. A pin that a model cannot have is a usage error of `plan`."""
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason") if code in (3, 4) else None


class Tbc:
    """Commands of one program, in a folder of their own. `cache`: where compiled kernels are kept between them."""

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
        """Those of `constants` that tbc would train, to be frozen."""
        if not constants:
            return []
        report = json.loads(self.run("check", "model.onnx", "--json"))
        names = {entry["name"] for entry in report["parameter_tensors"]}
        return [name for name in constants if name in names]

    def train(self, mesh, ranks, batch, micro_batch, flags, rate, loss, frozen):
        """Trains model.onnx on x.npy and labels.npy in the folder: STEPS lines in log.jsonl, checkpoints in `saved`.
        Returns the lines. `flags`: of `tbc plan`, for the optimizer."""
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
        """The record (compare.py) of what `train` has left."""
        import numpy as np  # not needed where a table is compared (table_test.py)

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
    """The f32 tensors of a file, as f64."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + size]).items():
        if entry.get("dtype") == "F32":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(content[begin:end], dtype="<f4").astype(np.float64).reshape(entry["shape"])
    return tensors
