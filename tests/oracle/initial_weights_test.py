"""usage: initial_weights_test.py TBC

Weights saved by PyTorch start a Program like the same weights in the model's own file. Tests two
models of one class, exported by torch.onnx. Their linear layers have transposed weights under
generated names, one of them square.
"""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

TBC = str(Path(sys.argv.pop(1)).resolve())


class Model(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.table = torch.nn.Embedding(50, 8)
        self.square = torch.nn.Linear(8, 8)
        self.up = torch.nn.Linear(8, 12)
        self.out = torch.nn.Linear(12, 50, bias=False)

    def forward(self, tokens):
        hidden = torch.tanh(self.square(self.table(tokens)))
        return self.out(torch.tanh(self.up(hidden)))


def save(path, model):
    """Writes the safetensors format: header length, header, elements."""
    header, data = {}, b""
    for name, tensor in model.state_dict().items():
        elements = tensor.numpy().astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(elements)]
        }
        data += elements
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class InitialWeightsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tbc(self, *arguments):
        return subprocess.run([TBC, *arguments], cwd=self.folder.name, capture_output=True, text=True, timeout=300)

    def program(self, name, model):
        """Exports, plans and compiles a model over two ranks."""
        axes = {"tokens": {0: "batch"}, "logits": {0: "batch"}}
        torch.onnx.export(
            model, (torch.zeros(2, 5, dtype=torch.int64),), str(Path(self.folder.name, name + ".onnx")),
            input_names=["tokens"], output_names=["logits"], dynamic_axes=axes, opset_version=14,
        )
        flags = ["--gpus", "2", "--mesh", "tp=2", "--batch", "4", "--precision", "f32", "-o", name + ".json"]
        for arguments in (["plan", name + ".onnx", *flags], ["compile", name + ".json", "-o", name]):
            run = self.tbc(*arguments)
            self.assertEqual(run.returncode, 0, run.stderr)

    def losses(self, *arguments):
        run = self.tbc("run", *arguments, "--steps", "3", "--log", "log")
        self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line)["loss"] for line in Path(self.folder.name, "log").read_text().splitlines()]

    def test_saved_weights_are_those_of_the_exported_model(self):
        one, other = Model(seed=1), Model(seed=2)
        self.program("one", one)
        self.program("other", other)
        save(Path(self.folder.name, "other.safetensors"), other)
        self.assertEqual(self.losses("one", "--init-weights", "other.safetensors"), self.losses("other"))
        self.assertNotEqual(self.losses("one"), self.losses("other"))

    def test_an_empty_path_is_a_usage_error(self):
        run = self.tbc("run", "program", "--init-weights", "")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--init-weights", run.stderr)


if __name__ == "__main__":
    unittest.main()
