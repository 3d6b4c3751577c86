"""usage: roofline_test.py TBC SOURCE_DIR

Tests `tbc program show --roofline`. FLOPs are those of the planner, bytes those of operands and
results. The seconds of every launch follow the formula of tools/roofline/Roofline.h.
"""

import json
import subprocess
import sys
import tempfile
import unittest

TBC, SOURCE = sys.argv[1], sys.argv[2]
# The ops that count for a model's FLOPs (docs/design.md, section 7).
COUNTED = ("einsum", "conv", "attention", "packed_attention", "routed_experts", "dispatch", "combine")
RECOMPUTING = ("attention", "packed_attention", "routed_experts")
MODELS = {
    "tiny-gpt2": "--batch 4 --seq 16",
    "masked-bert": "--batch 4 --seq 8",
    "moe-8l": "--batch 2 --seq 8",
    "resnet-8b": "--batch 4",
    "unet-8l": "--batch 2",
}


def tbc(*words, folder):
    return subprocess.run([TBC, *words], capture_output=True, text=True, cwd=folder)


class Roofline(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def tbc(self, *words):
        done = tbc(*words, folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def program(self, model, plan, compile_flags=(), cluster="h100-sxm", gpus="1"):
        file = model if model.endswith(".onnx") else f"{SOURCE}/models/{model}.onnx"
        self.tbc("plan", file, "--gpus", gpus, "--cluster", cluster, "--recompute", "none", *plan.split(), "-o", "plan.json")
        self.tbc("compile", "plan.json", *compile_flags, "-o", "program")

    def roofline(self, *flags):
        return json.loads(self.tbc("program", "show", "program", "--roofline", "--json", *flags))

    def kernels(self, *flags):
        return [kernel for stage in self.roofline(*flags)["stages"] for kernel in stage["kernels"]]

    def test_flops_are_those_of_the_plan(self):
        for model, plan in MODELS.items():
            with self.subTest(model):
                self.program(model, f"{plan} --mesh dp=1 --precision f32", ["--no-kernels"], "cpu-local")
                counted = [kernel for kernel in self.kernels("--all") if kernel["kernel"].startswith(COUNTED)]
                flops = sum(kernel["flops"] for kernel in counted if not kernel["kernel"].startswith(RECOMPUTING))
                for kind in RECOMPUTING:  # a gradient that makes a part of the forward again counts as twice the forward
                    forward, backward = (sum(kernel["flops"] for kernel in counted if kernel["kernel"].startswith(kind) and
                                             ("grad" in kernel["kernel"]) == is_backward) for is_backward in (False, True))  # fmt: skip
                    flops += forward + min(backward, 2 * forward)
                with open(f"{self.folder}/program/run.json", encoding="utf-8") as file:
                    self.assertEqual(flops, json.load(file)["model_flops"])

    def test_model_flops_are_three_times_those_of_the_forward(self):
        for model, batch, sequence in (("tiny-gpt2", 4, 16), ("tiny-llama", 2, 32)):
            with self.subTest(model):
                sizes = ("--seq", str(sequence))
                check = json.loads(self.tbc("check", f"{SOURCE}/models/{model}.onnx", *sizes, "--json"))
                for recompute in ("none", "full"):
                    plan = json.loads(self.tbc("plan", f"{SOURCE}/models/{model}.onnx", "--gpus", "1", "--batch", str(batch), *sizes,
                                               "--recompute", recompute, "--pad-vocabulary", "1", "--json"))  # fmt: skip
                    self.assertEqual(plan["prediction"]["model_flops"], 3 * batch * check["flops_per_sample"])

    def test_seconds_follow_the_formula(self):
        # 64 rows of 50,304 logits have a warp each: 8 blocks move 13 MB. The gradient of the
        # embedding takes several launches.
        self.tbc("new", *"gpt2 --layers 1 --hidden 64 --heads 2 --ffn 128 --vocab 50257 --seq 64 -o wide.onnx".split())
        self.program("wide.onnx", "--batch 1 --seq 64 --mesh dp=1 --precision bf16", ["--target", "cuda", "--arch", "sm_90"])
        bounds = set()
        for kernel in self.kernels("--all"):
            if kernel["by"] != "kernel" and "+" in kernel["kernel"]:
                continue  # with an epilogue, at another rate
            rate = 6.7e13 if kernel["by"] == "kernel" else 9.89e14
            seconds = max(kernel["bytes"] / 3.35e12, kernel["flops"] / rate)
            share = min(1, kernel["blocks"] / 132) if kernel.get("blocks") else 1
            wanted = max(5e-6 * kernel["launches"], seconds / share)
            self.assertAlmostEqual(kernel["seconds"] / wanted, 1, 9, kernel)
            bounds.add(kernel["bound"])
            self.assertEqual(kernel["bound"] == "launch", seconds / share < 5e-6 * kernel["launches"], kernel)
        self.assertEqual(bounds, {"launch", "memory", "blocks"})
        launches = {kernel["kernel"]: kernel["launches"] for kernel in self.kernels("--all")}
        self.assertEqual((launches["class_sums"], launches["embedding_grad"]), (1, 4))
        by = {kernel["by"] for kernel in self.kernels()}
        self.assertEqual(by, {"kernel", "cuBLASLt", "cuDNN"})

    def test_kinds_add_up_to_the_step(self):
        self.program("tiny-gpt2", "--batch 8 --micro-batch 2 --seq 16 --mesh pp=2 --precision f32", gpus="2", cluster="cpu-local")
        one, kinds = self.roofline("--all"), self.roofline()
        self.assertEqual(len(kinds["stages"]), 2)
        for launches, summed in zip(one["stages"], kinds["stages"]):
            for key in ("launches", "bytes", "flops", "seconds"):
                total = sum(kernel[key] for kernel in launches["kernels"])
                self.assertAlmostEqual(total / sum(kernel[key] for kernel in summed["kernels"]), 1, 9)
                self.assertAlmostEqual(total / summed[key], 1, 9)
            # Forward and backward run for each of four micro-batches.
            self.assertEqual({kernel["launches"] for kernel in launches["kernels"]}, {1, 4})
            seconds = [kernel["seconds"] for kernel in summed["kernels"]]
            self.assertEqual(seconds, sorted(seconds, reverse=True))
            self.assertLess(len(seconds), len(launches["kernels"]))

    def test_bytes_of_a_table_are_the_rows_that_are_read(self):
        self.program("tiny-gpt2", "--batch 1 --seq 16 --mesh dp=1 --precision f32", ["--no-kernels"], "cpu-local")
        reads = [kernel for kernel in self.kernels("--all") if kernel["kernel"] == "embedding"]
        # 16 rows of 64 f32, read and written, and the row numbers.
        rows = 16 * 64 * 4
        self.assertTrue(reads)
        for read in reads:
            self.assertGreaterEqual(read["bytes"], 2 * rows)
            self.assertLess(read["bytes"], 3 * rows)

    def test_the_cluster_can_be_another(self):
        self.program("tiny-mlp", "--batch 4 --mesh dp=1 --precision f32", ["--target", "cuda", "--arch", "sm_80"])
        self.assertEqual(self.roofline()["cluster"], "h100-sxm")
        a100 = self.roofline("--cluster", "a100-80gb-sxm")
        self.assertEqual((a100["cluster"], a100["multiprocessors"]), ("a100-80gb-sxm", 108))
        self.assertIsNone(self.roofline("--cluster", "mi300x")["multiprocessors"])
        text = self.tbc("program", "show", "program", "--roofline", "--cluster", "mi300x")
        self.assertIn("its multiprocessors are not known, so every kernel counts as filling the device", text)
        text = self.tbc("program", "show", "program", "--roofline")
        self.assertIn("132 multiprocessors", text)
        self.assertRegex(text, r"stage 0: \d+ launches a step, .* at the roofline, without communication")

    def test_errors_say_what_to_do(self):
        self.program("tiny-mlp", "--batch 4 --mesh dp=1 --precision f32", ["--no-kernels"], "cpu-local")
        for words, said in [
            (["program/program.json", "--roofline"], "has no plan.json beside it that names a cluster; name one: --cluster h100-sxm"),
            (["program", "--roofline", "--cluster", "h100-smx"], "h100-sxm"),
            (["program", "--cluster", "h100-sxm"], "--roofline"),
            (["program", "--json"], "--roofline"),
        ]:
            done = tbc("program", "show", *words, folder=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)
        self.tbc("program", "show", "program/program.json", "--roofline", "--cluster", "cpu-local")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
