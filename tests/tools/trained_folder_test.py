"""usage: trained_folder_test.py TBC SOURCE_DIR

`tbc checkpoint consolidate --like`: what --init-weights reads comes back byte for byte where nothing
was trained: two files with an index, transposed weights, names with fewer modules, a tensor that no
parameter takes. Trained weights are those of the checkpoint. Wrong calls leave no folder behind.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import safetensors_file

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()


class TrainedFolderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        # A vocabulary that is padded over tp.
        cls.tbc("plan", SOURCE / "models/tiny-llama.onnx", "--gpus", "2", "--mesh", "tp=2", "--batch", "4", "--seq", "16", "--precision", "f32", "-o", "plan.json")
        cls.tbc("compile", "plan.json", "-o", "program")
        cls.initializers = json.loads((cls.folder / "program/run.json").read_text())["initializers"]
        cls.write_original(cls.folder / "original")
        cls.tbc("run", "program", "--steps", "1", "--lr", "0", "--init-weights", "original", "--checkpoint", "same")
        cls.tbc("run", "program", "--steps", "2", "--lr", "0.01", "--init-weights", "original", "--checkpoint", "trained")

    @classmethod
    def tbc(cls, *words, code=0):
        run = subprocess.run([TBC, *map(str, words)], cwd=cls.folder, capture_output=True, text=True, timeout=300)
        assert run.returncode == code, f"{words}: exit code {run.returncode}\n{run.stdout}{run.stderr}"
        return run.stdout if code == 0 else run.stderr

    @classmethod
    def write_original(cls, folder):
        folder.mkdir()
        draw, shards, numbers = random.Random(1), [{}, {}], {}
        for index, initializer in enumerate(cls.initializers):
            shape = initializer["shape"]
            if initializer.get("transposed"):
                shape = shape[::-1]
            size = 1
            for extent in shape:
                size *= extent
            name = initializer.get("path") or initializer["name"]
            data = struct.pack(f"<{size}e", *(draw.uniform(-0.1, 0.1) for _ in range(size)))
            shards[index % 2][name] = ("F16", shape, data)
        shards[1]["rotary.inv_freq"] = ("F32", [2], struct.pack("<2f", 1, 0.5))
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        for name, shard in zip(names, shards):
            safetensors_file.write(folder / name, shard)
            numbers.update({tensor: name for tensor in shard})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": numbers}))
        (folder / "config.json").write_text('{"model_type": "llama"}')
        (folder / "tokenizer.model").write_bytes(b"\x00\x01")
        (folder / "pytorch_model.bin").write_bytes(b"other weights")

    def test_it_has_transposed_and_copied_tensors(self):
        self.assertTrue(any(initializer.get("transposed") for initializer in self.initializers))

    def test_untrained_weights_come_back_byte_for_byte(self):
        text = self.tbc("checkpoint", "consolidate", "same", "--like", "original", "--program", "program", "-o", "copy")
        count = len(self.initializers)
        self.assertIn(f"{count} of {count + 1} tensors trained", text)
        self.assertEqual(sorted(os.listdir(self.folder / "copy")), sorted(set(os.listdir(self.folder / "original")) - {"pytorch_model.bin"}))
        for name in os.listdir(self.folder / "copy"):
            before, after = self.folder / "original" / name, self.folder / "copy" / name
            if name.endswith(".safetensors"):
                self.assertEqual(safetensors_file.read(before), safetensors_file.read(after))
                self.assertEqual([*safetensors_file.read(before)[0]], [*safetensors_file.read(after)[0]])
            else:
                self.assertEqual(before.read_bytes(), after.read_bytes())

    def test_trained_weights_are_those_of_the_checkpoint(self):
        self.tbc("checkpoint", "consolidate", "trained", "--like", "original", "--program", "program", "-o", "new")
        self.tbc("checkpoint", "consolidate", "trained", "-o", "exact.safetensors")
        exact, _ = safetensors_file.read(self.folder / "exact.safetensors")
        new = {}
        for file in (self.folder / "new").glob("*.safetensors"):
            new.update(safetensors_file.read(file)[0])
        for initializer in self.initializers:
            name, shape = initializer["name"], initializer["shape"]
            dtype, whole, data = exact[name]
            values = struct.unpack(f"<{len(data) // 4}f", data)
            if whole != shape:  # padding rows
                values = values[:shape[0] * shape[1]]
                self.assertEqual(whole[1:], shape[1:])
            if initializer.get("transposed"):
                values = [values[row * shape[1] + column] for column in range(shape[1]) for row in range(shape[0])]
            self.assertEqual(new[initializer.get("path") or name][2], struct.pack(f"<{len(values)}e", *values), name)

    def test_a_single_file_has_no_files_beside_it(self):
        safetensors_file.write(self.folder / "all.safetensors", {name: tensor for file in sorted((self.folder / "original").glob("*.safetensors"))
                                                                 for name, tensor in safetensors_file.read(file)[0].items()})
        self.tbc("checkpoint", "consolidate", "same", "--like", "all.safetensors", "--program", "program", "-o", "single")
        self.assertEqual(os.listdir(self.folder / "single"), ["all.safetensors"])

    def test_what_is_refused(self):
        self.tbc("plan", SOURCE / "models/tiny-mlp.onnx", "--gpus", "1", "--batch", "4", "--precision", "f32", "-o", "mlp.json")
        self.tbc("compile", "mlp.json", "-o", "mlp", "--no-kernels")
        (self.folder / "full").mkdir()
        (self.folder / "full/file").write_text("")
        (self.folder / "empty").mkdir()
        like = ["--like", "original", "--program", "program"]
        before = set(os.listdir(self.folder))
        for words, message in (
            ([*like, "-o", "full"], "full is there already"), (["--like", "original", "-o", "x"], "requires --program"),
            (["--program", "program", "-o", "x"], "requires --like"), ([*like, "--optimizer", "-o", "x"], "excludes"),
            (["--like", "original", "--program", "mlp", "-o", "x"], "not of the model that the checkpoint is of"),
            (["--like", "empty", "--program", "program", "-o", "x"], "has neither"),
            (["--like", "original", "--program", "absent", "-o", "x"], "absent"),
        ):  # fmt: skip
            self.assertIn(message, self.tbc("checkpoint", "consolidate", "same", *words, code=2))
        self.assertIn("cannot create", self.tbc("checkpoint", "consolidate", "same", *like, "-o", "missing/x", code=1))
        self.assertEqual(set(os.listdir(self.folder)), before)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
