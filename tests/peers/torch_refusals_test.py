"""usage: torch_refusals_test.py TBC SOURCE_DIR

A plan that PyTorch cannot express, or that belongs to another module, is refused with the name of
the part and a remedy. The example of docs/pytorch.md runs as written.

Exit code 77: PyTorch 2.11 is missing.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ["TBC"] = os.path.abspath(sys.argv[1])
os.environ["CUDA_VISIBLE_DEVICES"] = ""
TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve())

try:
    import torch
    import transformers  # noqa: F401

    if not torch.__version__.startswith("2.11."):
        raise ImportError(f"PyTorch is {torch.__version__}, not 2.11")
except ImportError as error:
    print(f"skipped: {error}; tests/peers/make-venv makes an environment")
    sys.exit(77)

from harness import Case, make_plan, module_of  # noqa: E402

import tbc  # noqa: E402
import tbc.torch  # noqa: E402
from tbc.torch.matching import match_parameters  # noqa: E402
from tbc.torch.problems import PaddedVocabularyWarning  # noqa: E402

F = "--batch 8 --precision f32 "


class Ranks:
    """A process group whose other ranks do not exist: enough to refuse a plan."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __enter__(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=self.ranks, store=FakeStore())

    def __exit__(self, *error):
        torch.distributed.destroy_process_group()


class RefusalsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def plan(self, *case):
        return tbc.Plan.load(make_plan(Case(*case), Path(self.folder.name)))

    def refused(self, pattern, plan, module, error=tbc.torch.NotExpressible, ranks=None, unused=()):
        with Ranks(ranks or plan.ranks), self.assertRaisesRegex(error, pattern):
            tbc.torch.parallelize(module, plan, unused)

    def test_axes_and_ops_without_a_form(self):
        for case, pattern in (
            (("moe-8l", "ep=2"), "the mesh has the axis ep.*plan without ep"),
            (("tiny-llama", "cp=2"), "the mesh has the axis cp.*plan without cp"),
            (("tiny-resnet", "tp=2"), r"Conv2d\) has parameters that the plan splits over tp.*=whole"),
            (("moe-8l", "tp=2"), r"MixtureOfExperts\) has parameters that the plan splits over tp.*=whole"),
            (("tiny-gpt2", "dp=2", F + "--offload optimizer"), "plan with --offload none"),
            (("tiny-gpt2", "dp=2", "--batch 8 --precision f16"), "plan with --precision bf16"),
        ):
            with self.subTest(case):
                self.refused(pattern, self.plan(*case), module_of(case[0]))

    def test_a_cut_inside_a_block(self):
        plan = self.plan("tiny-gpt2", "pp=2", F + "--schedule 1f1b --micro-batch 2 --pin transformer.h.0.mlp.*=begin")
        self.refused(r"stages begin at transformer.h.0.mlp.*--pin 'BLOCK.\*=begin'", plan, module_of("tiny-gpt2"))

    def test_other_modules_and_other_worlds(self):
        plan = self.plan("tiny-gpt2", "dp=2")
        self.refused("a parameter of the module, not of the plan", plan, module_of("tiny-llama"), tbc.PlanError)
        module = module_of("tiny-gpt2")
        module.transformer.h[1].mlp.c_fc.weight = torch.nn.Parameter(torch.zeros(64, 100))
        self.refused(r"h.1.mlp.c_fc.weight has the shape \[64, 100\], and \[64, 256\]", plan, module, tbc.PlanError)
        self.refused("the plan is for 2 ranks, and 4 processes run", plan, module_of("tiny-gpt2"), tbc.PlanError, ranks=4)
        with self.assertRaisesRegex(tbc.PlanError, "not initialized: start with torchrun"):
            tbc.torch.parallelize(module_of("tiny-gpt2"), plan)

    def test_a_parameter_that_forward_does_not_read_must_be_named(self):
        plan = self.plan("masked-bert", "dp=2")
        self.refused("cls.predictions.bias .* name it in `unused`", plan, module_of("masked-bert"), tbc.PlanError)
        module = module_of("masked-bert")
        with Ranks(2):
            tbc.torch.parallelize(module, plan, ["cls.predictions.bias"])
        self.assertFalse(module.cls.predictions.bias.requires_grad)

    def test_a_padded_vocabulary(self):
        file = Path(self.folder.name, "padded.json")
        with torch.device("meta"):
            module = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
        for mesh in ("tp=2", "dp=2"):
            command = [TBC, "plan", SOURCE / "models/gpt2.onnx", "--gpus", "2", "--mesh", mesh, "--batch", "8", "-o", file]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            if mesh == "tp=2":
                self.refused(r"lm_head.weight .*50257.*padded to \[50304.*over tp: plan with --pad-vocabulary 1",
                             tbc.Plan.load(file), module)
                continue
            with self.assertWarnsRegex(PaddedVocabularyWarning, r"50257.*without the plan's padding to \[50304"):
                matches = match_parameters(module, tbc.Plan.load(file))
            self.assertEqual(len(matches), len(list(module.parameters())))


class ExampleTest(unittest.TestCase):
    """docs/pytorch.md: the files and commands of its example."""

    def test_the_example_trains(self):
        page = (SOURCE / "docs/pytorch.md").read_text()
        files = dict(re.findall(r"(?ms)^```python\n# (\w+\.py)\n(.*?)^```", page))
        (commands,) = re.findall(r"(?ms)^```\n(python export\.py\n.*?)^```", page)
        self.assertEqual(set(files), {"model.py", "export.py", "train.py"})
        bin_ = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{bin_}:{TBC.parent}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE / "python"),
                       "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                Path(folder, name).write_text(text)
            done = subprocess.run(["bash", "-euc", commands], cwd=folder, env=environment, capture_output=True, text=True,
                                  timeout=300, check=False)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
        self.assertEqual(len(losses), 20, done.stdout)
        self.assertLess(losses[-1], 0.7 * losses[0])


if __name__ == "__main__":
    unittest.main()
