"""usage: export_pytorch_test.py TBC SOURCE_DIR

Scripts of `tbc export --to pytorch`, started by torchrun on Gloo processes of this machine without
the package tbc: their losses are those of serial PyTorch.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
STEPS = 3

# By name: ranks and flags of the plan of tiny-gpt2.
PLANS = {
    "data": (2, "--mesh dp=2 --zero 0 --recompute none"),
    "sharded": (4, "--mesh fsdp=2,tp=2 --zero 3 --recompute full --clip-norm 0.5"),
    "zero2": (2, "--mesh fsdp=2 --zero 2 --recompute selective"),
    "bf16": (2, "--mesh dp=2 --zero 0 --recompute none --precision bf16 --micro-batch 2"),
    "bf16 on tp": (4, "--mesh dp=2,tp=2 --zero 0 --recompute none --precision bf16"),
    "pipeline": (4, "--mesh pp=2,tp=2 --zero 0 --schedule 1f1b --recompute none --pin transformer.h.1.*=begin"),
}

# Runs the last step of a script with Gloo's threads at the lowest priority on one core, as a busy machine may: they are
# late to release the tensors of the last collective, which aborts a rank whose interpreter has ended by then.
LATE = f"""
import os, runpy, sys
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
sys.path.insert(0, os.getcwd())
all_reduce = dist.all_reduce
core = {{max(os.sched_getaffinity(0))}}
steps = []
register_optimizer_step_post_hook(lambda *arguments: steps.append(arguments))

def late(*arguments, **options):
    if len(steps) < {STEPS - 1}:
        return all_reduce(*arguments, **options)
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, core)
        with open("/proc/self/task/%d/comm" % thread) as name:
            if name.read().startswith("pt_gloo"):
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    return all_reduce(*arguments, **options)

dist.all_reduce = late
runpy.run_path("train.py", run_name="__main__")
"""

# The file that a user writes beside the script.
MODEL = f"""
import sys
sys.path.insert(0, {str(SOURCE / "models")!r})
import torch
import zoo


def make_model():
    module = zoo.build("tiny-gpt2")
    for child in module.modules():
        if isinstance(child, torch.nn.Dropout):
            child.p = 0.0
    return module.eval().double()


def batches(plan):
    for step in range({STEPS}):
        generator = torch.Generator().manual_seed(step)
        yield tuple(torch.randint(0, 256, (plan.batch, 16), generator=generator) for _ in range(2))
"""

SERIAL = """
import sys, types
import torch
import model
module = model.make_model()
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
for tokens, labels in model.batches(types.SimpleNamespace(batch=8)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(module(tokens).logits.flatten(0, 1), labels.flatten())
    loss.backward()
    if sys.argv[1] != "none":
        torch.nn.utils.clip_grad_norm_(module.parameters(), float(sys.argv[1]))
    optimizer.step()
    print(repr(loss.item()))
"""

REFUSED = {
    "--mesh cp=2,dp=2 --zero 0 --sequence-order contiguous": "cp=2",
    "--mesh dp=4 --zero 1 --offload optimizer": "offload of optimizer",
    "--mesh pp=4 --schedule 1f1b": "begins inside a block",
}


def ends(text):
    """Returns a text of at most 8,000 characters: both ends of a longer one."""
    return text if len(text) <= 8000 else f"{text[:4000]}\n… {len(text) - 8000} characters …\n{text[-4000:]}"


class ExportPyTorchTest(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "late.py").write_text(LATE)
        self.environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def export(self, ranks, flags):
        model = SOURCE / "models/tiny-gpt2.onnx"
        precision = [] if "--precision" in flags else ["--precision", "f32"]
        micro_batch = [] if "--micro-batch" in flags else ["--micro-batch", "1"]
        plan = [TBC, "plan", model, "--gpus", str(ranks), "--batch", "8", *micro_batch, "--seq", "16", "--no-dropout",
                "--pad-vocabulary", "1", *precision, *flags.split(), "-o", self.folder / "plan.json"]  # fmt: skip
        done = subprocess.run(plan, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        export = [TBC, "export", self.folder / "plan.json", "--to", "pytorch", "-o", self.folder / "train.py"]
        return subprocess.run(export, capture_output=True, text=True)

    def python(self, *arguments):
        done = subprocess.run([sys.executable, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, self.logs(done))
        return done.stdout

    def torchrun(self, ranks, script):
        """Returns the ranks' output. Each start has a port of its own, and each rank files of its own in logs/."""
        shutil.rmtree(self.folder / "logs", ignore_errors=True)
        return self.python("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
                           "--log-dir", self.folder / "logs", "--tee", "3", script)  # fmt: skip

    def logs(self, done):
        """Returns outputs of a failed start, first torchrun's and then each rank's, with both ends of long ones."""
        texts = {"stdout": done.stdout, "stderr": done.stderr}
        texts |= {str(file.relative_to(self.folder)): file.read_text(errors="replace")
                  for file in sorted(self.folder.glob("logs/**/*.log"))}  # fmt: skip
        return "\n".join(f"== {name}\n{ends(text)}" for name, text in texts.items())

    def test_losses_equal_serial(self):
        for name, (ranks, flags) in PLANS.items():
            with self.subTest(name):
                done = self.export(ranks, flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                text = (self.folder / "train.py").read_text()
                self.assertNotRegex(text, r"(?m)^\s*(from|import) tbc\b")
                clip = re.search(r"--clip-norm (\S+)", flags)
                serial = self.python("-c", SERIAL, clip[1] if clip else "none").split()
                output = self.torchrun(ranks, "late.py" if ranks == 2 else "train.py")
                losses = re.findall(r"step \d+ loss (\S+)", output)
                self.assertEqual(len(losses), STEPS, output)
                tolerance = 1e-3 if "bf16" in flags else 1e-9
                for mine, other in zip(losses, serial, strict=True):
                    self.assertAlmostEqual(float(mine), float(other), delta=tolerance * float(other))

    def test_refusals(self):
        for flags, word in REFUSED.items():
            with self.subTest(flags):
                done = self.export(4, flags)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
