"""usage: onnx_models_test.py TBC SOURCE_DIR LIBRARY   (with PyTorch and onnx)

`tbc.plan` takes an onnx.ModelProto and a torch.nn.Module: the plans are those of the files. A module
keeps a dynamic batch and sequence, and `tbc.torch.parallelize` matches its parameters.
"""

import os
import sys
import unittest
import warnings
from pathlib import Path

SOURCE, os.environ["TBC_LIBRARY"] = Path(sys.argv[2]).resolve(), str(Path(sys.argv[3]).resolve())
del sys.argv[1:4]
sys.path.insert(0, str(SOURCE / "python"))

import onnx  # noqa: E402
import torch  # noqa: E402

import tbc  # noqa: E402

SMALL = {"gpus": 4, "batch": 8, "seq": 32, "precision": "f32", "pad_vocabulary": 1}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(96, 32)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))
        self.head = torch.nn.Linear(32, 96, bias=False)

    def forward(self, tokens, scale=None):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return self.head(x)


class Fixed(Model):
    def forward(self, tokens):
        return super().forward(tokens).reshape(2, 8, 96)


class Positions(Model):
    """Its table of positions has the length of the example inputs."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.zeros(8, 96))

    def forward(self, tokens):
        return super().forward(tokens) + self.positions


class Fresh(torch.nn.Module):
    """Its biases are zeros still, and its batch norm could be merged with the convolution."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 10)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, pixels):
        return self.head(self.norm(self.conv(pixels)).relu().mean((2, 3)))


class Loop(Model):
    """Unrolled over the samples of the example inputs."""

    def forward(self, tokens):
        return torch.stack([super(Loop, self).forward(tokens[sample]) for sample in range(int(tokens.shape[0]))])


class ModelsTest(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", tbc.TbcWarning)

    def test_proto_is_its_file(self):
        file = SOURCE / "models/tiny-gpt2.onnx"
        plans = [tbc.plan(model, **SMALL).json for model in (file, onnx.load(file))]
        for plan in plans:
            plan["model"].pop("path")
            plan["model"].pop("hash")
        self.assertEqual(*plans)

    def test_module_is_planned_at_any_batch_and_matched(self):
        module = Model()
        inputs = torch.zeros(2, 8, dtype=torch.long)
        plan = tbc.plan(module, inputs=inputs, mesh={"fsdp": 2, "tp": 2}, **SMALL)
        self.assertEqual((plan.batch, plan.ranks), (8, 4))
        self.assertEqual(set(plan.parameters), {name for name, _ in module.named_parameters()})
        self.assertTrue(module.training)
        by_name = tbc.plan(module, inputs={"tokens": inputs}, mesh={"fsdp": 2, "tp": 2}, **SMALL)
        self.assertEqual(plan.diff(by_name), [])

    def test_a_fresh_module_keeps_all_its_parameters(self):
        module = Fresh()
        plan = tbc.plan(module, inputs=torch.zeros(2, 3, 8, 8), gpus=2, batch=8, precision="f32")
        self.assertEqual(set(plan.parameters), {name for name, _ in module.named_parameters()})

    def test_a_static_sequence_is_repaired_and_a_static_batch_refused(self):
        inputs = torch.zeros(2, 8, dtype=torch.long)
        with self.assertWarnsRegex(tbc.TbcWarning, r"Positions: the sequence is fixed at 8 tokens.*shape of 8 for .*shape\[1\]"):
            plan = tbc.plan(Positions(), inputs=inputs, mesh={"fsdp": 2, "tp": 2}, **{**SMALL, "seq": 8})
        self.assertEqual((plan.batch, plan.parameters["positions"].shape), (8, (8, 96)))
        with self.assertRaisesRegex(tbc.ModelRejected, r"Loop cannot be .* dynamic batch: .* shape of 2 for .*shape\[0\]"):
            tbc.plan(Loop(), inputs=inputs, gpus=2)

    def test_refusals_name_the_module(self):
        inputs = torch.zeros(2, 8, dtype=torch.long)
        with self.assertRaisesRegex(TypeError, "a Model needs example inputs"):
            tbc.plan(Model(), gpus=2)
        with self.assertRaisesRegex(tbc.ModelRejected, "Model: batch and sequence .* 2 or more"):
            tbc.plan(Model(), inputs=inputs[:1], gpus=2)
        with self.assertRaisesRegex(tbc.ModelRejected, "Fixed: node 'node_view' .Reshape.: .* fixed batch size"):
            tbc.plan(Fixed(), inputs=inputs, gpus=2)
        with self.assertRaisesRegex(TypeError, "inputs= is for a torch.nn.Module"):
            tbc.plan(SOURCE / "models/tiny-gpt2.onnx", inputs=inputs, gpus=2)


unittest.main(verbosity=2)
