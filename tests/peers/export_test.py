"""usage: export_test.py TBC SOURCE_DIR [--update]

`tbc export` without any other package: every target's output as text (golden/), the plans that each
target refuses, its warnings, and the scripts of --launcher. --update writes golden/ again.
"""

import ast
import collections
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from export_cases import ENDINGS, EXPRESSED, PLANS, Exporter

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
GOLDEN = SOURCE / "tests/peers/golden"
TARGETS = ("megatron", "torchtitan", "deepspeed", "accelerate", "lightning", "jax")

# One output of each target, and each form of each target once.
GOLDEN_OUTPUTS = (
    "pipeline megatron", "uneven megatron", "context megatron", "experts megatron", "f16 megatron",
    "interleaved torchtitan", "fsdp torchtitan", "zero2 deepspeed", "grad-op deepspeed", "f16 deepspeed",
    "hybrid accelerate", "ddp accelerate", "ddp lightning", "hybrid lightning", "zero1 lightning", "tensor jax",
)  # fmt: skip

# Keys of plan.json that annotations of ONNX have to keep.
DECISIONS = ("mesh", "micro_batch", "accumulation", "schedule", "placement", "stages", "strategies", "parameters",
             "recompute", "offload", "context", "sequence_order", "prefetch", "bucket_bytes", "step_seconds")  # fmt: skip

# Words that an error must have, by plan and target: the part of the plan, and the remedy.
REFUSED = {
    "fsdp megatron": ("ZeRO-3", "--zero 1"),
    "hybrid deepspeed": ("hybrid sharding", "fsdp alone"),
    "pipeline deepspeed": ("tp=2", "pp=2", "--to megatron"),
    "pipeline lightning": ("tp=2", "pp=2", "--to torchtitan"),
    "pipeline jax": ("pp=2", "--to torchtitan"),
    "zero2 torchtitan": ("ZeRO-2", "offload of optimizer"),
    "f16 torchtitan": ("f16", "--precision bf16"),
    "zero1 accelerate": ("ZeRO-1", "--to deepspeed"),
    "experts deepspeed": ("ep=4",),
    "context deepspeed": ("cp=2",),
    "gpipe megatron": ("schedule gpipe", "--schedule 1f1b"),
    "vee megatron": ("V shape", "--placement loop", "begins inside a block"),
    "padded pytorch": ("vocabulary of 50257 is padded to 50304", "lm_head.weight", "--pad-vocabulary 1"),
}

# Warnings by plan and target.
WARNED = {
    "fsdp deepspeed": {"RecomputeInScript"},
    "grad-op deepspeed": {"KeptParameters"},
    "f16 deepspeed": {"GradientType"},
    "context megatron": {"ContextOrder", "VectorDecay"},
    "experts megatron": {"RouterInModel", "VectorDecay"},
    "context torchtitan": {"ContextSharding"},
    "tensor jax": {"ContiguousSegments"},
    "zero1 jax": {"PrecisionInLoss", "ClippingInOptimizer"},
    "zero1 lightning": {"BatchInScript", "DeepSpeedPackage", "GradientType"},
    "pipeline megatron": {"TableForm", "VectorDecay"},
    "ddp megatron": {"VectorDecay"},
    "ddp pytorch": {"PaddedVocabulary"},
    "ddp torchtitan": {"PaddedVocabulary"},
    "hybrid accelerate": {"BatchInScript", "GradientType", "WrapPolicy"},
    "hybrid lightning": {"BatchInScript", "GatherUnit", "GradientType"},
}


def content(file):
    """The lines of an output that are no comments: those name the plan's fingerprint."""
    return "".join(line for line in file.read_text().splitlines(True) if not line.startswith("#"))


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.exporter = Exporter(TBC, SOURCE, Path(cls.kept.name))

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def test_which_targets_express_which_plans(self):
        for name in PLANS:
            for target in TARGETS:
                done = self.exporter.export(name, target)
                with self.subTest(plan=name, target=target):
                    self.assertEqual(done.returncode, 0 if target in EXPRESSED[name].split() else 2, done.stderr)

    def test_free_plans_for_an_executor_are_expressed(self):
        """The search keeps to plans that the executor runs, so its target takes them."""
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "llama.onnx"
            self.exporter.run("new", "llama", "--layers", 12, "--hidden", 1024, "--heads", 16, "--kv-heads", 4, "--ffn", 2816,
                              "--vocab", 32000, "-o", model)
            for executor, target in (("megatron", "megatron"), ("nemo", "megatron"), ("torchtitan", "torchtitan"),
                                     ("deepspeed", "deepspeed")):
                for gpus, limit in ((8, "80GiB"), (64, "6GiB")):
                    plan = Path(folder) / f"{executor}.plan.json"
                    self.exporter.run("plan", model, "--gpus", gpus, "--batch", 4 * gpus, "--seq", 2048, "--precision", "bf16",
                                      "--executor", executor, "--memory-limit", limit, "-o", plan)
                    with self.subTest(executor=executor, gpus=gpus):
                        written = Path(folder) / (executor + ENDINGS.get(target, ".py"))
                        self.exporter.run("export", plan, "--to", target, "-o", written)

    def test_decay_is_that_of_matrices(self):
        """Megatron decays matrices and no vectors, so it trains as the plan where that has the same."""
        with tempfile.TemporaryDirectory() as folder:
            model, plan, flags = (Path(folder) / name for name in ("model.onnx", "plan.json", "flags.sh"))
            self.exporter.run("new", "llama", "--layers", 2, "--hidden", 256, "--heads", 4, "--ffn", 512, "--vocab", 1024, "-o", model)
            for arguments, names in (
                ([], {"VectorDecay"}),
                (["--no-decay", "*norm*"], set()),
                (["--weight-decay", 0], set()),
                (["--no-decay", "*norm*", "--no-decay", "*embed*"], {"MatrixDecay"}),
            ):
                self.exporter.run("plan", model, "--gpus", 2, "--batch", 8, "--seq", 64, "--executor", "megatron", *arguments, "-o", plan)
                done = subprocess.run([TBC, "export", plan, "--to", "megatron", "-o", flags], capture_output=True, text=True, check=True)
                with self.subTest(arguments):
                    self.assertEqual(set(re.findall(r"warning: (\w+):", done.stderr)), names, done.stderr)

    def test_matmuls_in_fp8(self):
        """Megatron's flags have them, and are judged with the time of the plan; others refuse them or warn."""
        with tempfile.TemporaryDirectory() as folder:
            model, plan, flags = (Path(folder) / name for name in ("model.onnx", "plan.json", "flags.sh"))
            self.exporter.run("new", "llama", "--layers", 4, "--hidden", 2048, "--heads", 16, "--ffn", 5632, "--vocab", 32000, "-o", model)
            seconds = []
            for precision in ("own", "fp8"):
                self.exporter.run("plan", model, "--gpus", 8, "--batch", 64, "--seq", 2048, "--executor", "megatron",
                                  "--matmul-precision", precision, "-o", plan)
                seconds.append(json.loads(plan.read_text())["step_seconds"])
            self.assertLess(seconds[1], seconds[0])
            self.exporter.run("export", plan, "--to", "megatron", "-o", flags)
            lines = [line for line in flags.read_text().splitlines() if not line.startswith("#")]
            self.assertIn("--fp8-format hybrid", lines)
            answer = self.exporter.run("judge", "pretrain_gpt.py " + " ".join(lines), "--model", model, "--gpus", 8, "--seq", 2048,
                                       "--alone", "--json")
            self.assertAlmostEqual(json.loads(answer)["judged"]["seconds"]["value"], seconds[1], delta=0.01 * seconds[1])
            self.exporter.run("plan", model, "--gpus", 8, "--batch", 64, "--seq", 2048, "--executor", "torchtitan",
                              "--matmul-precision", "fp8", "-o", plan)
            written = Path(folder) / "job.py"
            self.exporter.run("export", plan, "--to", "torchtitan", "-o", written)
            self.assertIn("Float8LinearConverter", written.read_text())
            for target in ("pytorch", "lightning", "accelerate", "jax"):
                with self.subTest(target), self.assertRaisesRegex(Exception, "matmuls in fp8"):
                    self.exporter.run("export", plan, "--to", target, "-o", Path(folder) / ("refused" + ENDINGS.get(target, ".py")))

    def test_free_plans_for_megatron_can_run(self):
        """tp divides heads and groups of queries, and splits no layers that Megatron has not."""
        models = (
            (["gpt2", "--hidden", 1600, "--ffn", 6400, "--heads", 25, "--vocab", 50257, "--seq", 1024], 1024, 64, 16, "12GiB"),
            (["llama", "--hidden", 4096, "--ffn", 14336, "--heads", 32, "--kv-heads", 2, "--vocab", 32000], 2048, 8, 4, "20GiB"),
            (["llama", "--hidden", 2048, "--ffn", 5632, "--heads", 16, "--experts", 8, "--vocab", 32000], 1024, 8, 2, "40GiB"),
            (["t5", "--hidden", 1024, "--ffn", 4096, "--heads", 16, "--vocab", 32128], 512, 8, 2, "6GiB"),
        )
        with tempfile.TemporaryDirectory() as folder:
            model, plan, flags = (Path(folder) / name for name in ("model.onnx", "plan.json", "flags.sh"))
            for arguments, tokens, gpus, batch, limit in models:
                self.exporter.run("new", *arguments, "--layers", 8, "-o", model)
                self.exporter.run("plan", model, "--gpus", gpus, "--batch", batch, "--seq", tokens, "--executor", "megatron",
                                  "--memory-limit", limit, "-o", plan)
                with self.subTest(model=arguments):
                    self.exporter.run("export", plan, "--to", "megatron", "-o", flags)
                    lines = [line for line in flags.read_text().splitlines() if not line.startswith("#")]
                    if "--experts" not in arguments:  # whose number is no flag of a plan
                        self.exporter.run("judge", "pretrain_gpt.py " + " ".join(lines), "--model", model, "--gpus", gpus,
                                          "--alone")

    def test_outputs(self):
        for case in GOLDEN_OUTPUTS:
            name, target = case.split()
            done = self.exporter.export(name, target)
            output = self.exporter.output(name, target)
            with self.subTest(case):
                self.assertEqual(done.returncode, 0, done.stderr)
                golden = GOLDEN / output.name
                if "--update" in sys.argv:
                    golden.write_text(content(output))
                self.assertEqual(content(output), golden.read_text())

    def test_refusals_name_the_part_and_the_remedy(self):
        for case, words in REFUSED.items():
            done = self.exporter.export(*case.split())
            with self.subTest(case):
                self.assertEqual(done.returncode, 2)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_warnings_have_names(self):
        for case, names in WARNED.items():
            done = self.exporter.export(*case.split())
            with self.subTest(case):
                self.assertEqual(set(re.findall(r"warning: (\w+):", done.stderr)), names)
                output = self.exporter.output(*case.split())
                if output.suffix != ".json":  # JSON has no comments
                    for name in names:
                        self.assertIn(f"# {name}: ", output.read_text())

    def test_megatron_recomputes_as_many_blocks_as_the_plan(self):
        """One stage has all blocks, which its chunk does not name one by one."""
        plan, flags = self.exporter.folder / "part.plan.json", self.exporter.folder / "part.args"
        self.exporter.run("plan", SOURCE / "models/gpt2.onnx", "--gpus", 8, "--mesh", "dp=8", "--zero", 0, "--batch", 64,
                          "--micro-batch", 4, "--seq", 256, "--recompute", "full:3", "-o", plan)
        self.exporter.run("export", plan, "--to", "megatron", "-o", flags)
        self.assertIn("--recompute-num-layers 3\n", flags.read_text())
        self.assertIn("transformer.h.0 to 11", self.exporter.run("export", plan, "--to", "dot", "-o", "-"))

    def test_deepspeed_sums_gradients_in_the_plans_type(self):
        """tbc's programs sum in f32, those of DeepSpeed in the type of the parameters."""
        plan, file = self.exporter.folder / "type.plan.json", self.exporter.folder / "type.json"
        for executor, types in (("tbc", {"grad_accum_dtype": "fp32"}), ("deepspeed", None)):
            self.exporter.run("plan", SOURCE / "models/gpt2.onnx", "--gpus", 8, "--mesh", "dp=8", "--zero", 1, "--batch", 64,
                              "--seq", 256, "--executor", executor, "-o", plan)
            self.exporter.run("export", plan, "--to", "deepspeed", "-o", file)
            with self.subTest(executor):
                config = json.loads(file.read_text())
                self.assertEqual(config.get("data_types"), types)
                self.assertEqual(config.get("communication_data_type"), "fp32" if types else None)

    def test_a_script_of_pytorch_imports_each_module_once(self):
        self.assertEqual(self.exporter.export("ddp", "pytorch").returncode, 0)
        tree = ast.parse(self.exporter.output("ddp", "pytorch").read_text())
        modules = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
        self.assertEqual(len(modules), len(set(modules)), modules)

    def test_a_plan_that_was_edited_is_refused(self):
        plan = self.exporter.plan("ddp")
        plan["bucket_bytes"] = 1234
        edited = self.exporter.folder / "edited.plan.json"
        edited.write_text(json.dumps(plan))
        done = subprocess.run([TBC, "export", edited, "--to", "deepspeed", "-o", "-"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--derive", done.stderr)

    def test_names_of_modules(self):
        plan = self.exporter.folder / "ddp.plan.json"
        self.exporter.plan("ddp")
        for name in ("my-plan.py", "plan.txt", "1.py"):
            file = self.exporter.folder / name
            done = subprocess.run([TBC, "export", plan, "--to", "jax", "-o", file], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("Python module", done.stderr)
            self.assertFalse(file.exists())

    def test_launchers(self):
        starts = {"torchrun": "torchrun --nnodes=2 --nproc-per-node=8", "slurm": "srun ", "mpirun": "mpirun -np 16"}
        for launcher, start in starts.items():
            done = self.exporter.export("pipeline", "megatron", "--launcher", launcher)
            self.assertEqual(done.returncode, 0, done.stderr)
            script = self.exporter.output("pipeline", "megatron").with_suffix(".sh")
            text = script.read_text()
            with self.subTest(launcher):
                self.assertIn(start, text)
                self.assertIn("CUDA_DEVICE_MAX_CONNECTIONS=1", text)
                self.assertIn("NCCL_NVLS_ENABLE=1", text)
                self.assertTrue(script.stat().st_mode & 0o100)
                subprocess.run(["bash", "-n", script], check=True)

    def test_a_launcher_starts_every_rank_once(self):
        """Runs the scripts with launchers that print their arguments."""
        self.exporter.export("hybrid", "accelerate", "--launcher", "torchrun")
        self.exporter.export("ddp", "deepspeed", "--launcher", "torchrun")
        self.exporter.export("pipeline", "megatron", "--launcher", "mpirun")
        folder = self.exporter.folder / "bin"
        folder.mkdir(exist_ok=True)
        for word in ("torchrun", "accelerate", "mpirun"):
            tool = folder / word
            tool.write_text('#!/bin/sh\necho "$(basename "$0") $@"\n')
            tool.chmod(0o755)
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "NODE_RANK": "1", "MASTER_ADDR": "first"}
        for name, target, expected in (
            ("ddp", "deepspeed", "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 --master-addr=first "
             "--master-port=29500 train.py --deepspeed --deepspeed_config ddp_deepspeed.json more"),
            ("hybrid", "accelerate", "accelerate launch --config_file hybrid_accelerate.yaml --machine_rank 1 "
             "--main_process_ip first --main_process_port 29500 train.py more"),
        ):  # fmt: skip
            script = self.exporter.output(name, target).with_suffix(".sh")
            done = subprocess.run([script, "more"], capture_output=True, text=True, env=environment)
            self.assertEqual(done.stdout.strip(), expected, done.stderr)
        script = self.exporter.output("pipeline", "megatron").with_suffix(".sh")
        done = subprocess.run([script], capture_output=True, text=True, env={**environment, "HOSTS": "a,b"})
        self.assertIn(" --map-by ppr:8:node --rank-by slot --host a:8,b:8 ", done.stdout)  # a host alone has one slot

    def test_launchers_that_cannot_start_a_target(self):
        for case, launcher, word in (
            ("tensor jax", "torchrun", "Slurm or MPI"),
            ("hybrid accelerate", "mpirun", "accelerate launch"),
            ("ddp dot", "torchrun", "nothing that runs"),
        ):
            done = self.exporter.export(*case.split(), "--launcher", launcher)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)

    def test_pytorch_script_defines_every_name_once(self):
        """The script joins modules of the package, which must not hide each other's names."""
        for name in ("tensor", "interleaved"):
            done = self.exporter.export(name, "pytorch")
            self.assertEqual(done.returncode, 0, done.stderr)
            tree = ast.parse(self.exporter.output(name, "pytorch").read_text())
            defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            assigned = {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
                        if isinstance(target, ast.Name)}  # fmt: skip
            counts = collections.Counter([*defined, *assigned])
            self.assertEqual([word for word, count in counts.items() if count > 1], [])
            assigned = [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
                        if isinstance(target, ast.Name) and target.id != "DTensor"]  # fmt: skip
            self.assertEqual(len(assigned), len(set(assigned)))
            self.assertEqual("Pipeline" in defined, name == "interleaved")

    def test_onnx_round_trip(self):
        """A model exported with its plan as annotations is planned with equal decisions, without a flag for them."""
        for name in ("tensor", "context", "experts", "vee", "pipeline", "grad-op", "zero2", "hybrid"):
            with self.subTest(name):
                first = self.plan_copy(name)
                self.exporter.run("export", first, "--to", "onnx", "-o", first.parent / "annotated.onnx")
                second = first.parent / "again.json"
                job = re.findall(r"--(?:gpus|batch|seq|precision|pad-vocabulary) \S+", PLANS[name])
                self.exporter.run("plan", first.parent / "annotated.onnx", *" ".join(job).split(), "-o", second)
                plans = [json.loads(file.read_text()) for file in (first, second)]
                for key in DECISIONS:
                    self.assertEqual(plans[0].get(key), plans[1].get(key), key)
                self.assertEqual(plans[0]["layout"]["parameters"], plans[1]["layout"]["parameters"])

    def plan_copy(self, name):
        """Plans a copy of the model without its external weights, which planning does not read."""
        folder = self.exporter.folder / f"copy-{name}"
        folder.mkdir()
        model, *flags = PLANS[name].split()
        shutil.copy(SOURCE / "models" / f"{model}.onnx", folder)
        self.exporter.run("plan", folder / f"{model}.onnx", *flags, "--top", "1", "-o", folder / "plan.json")
        return folder / "plan.json"

    def test_onnx_refusals(self):
        plan = self.plan_copy("ddp")
        away = self.exporter.folder / "away.onnx"
        for output, word in ((away, "in gpt2.onnx.data beside it"), (plan.parent / "gpt2.onnx", "is the model itself")):
            done = subprocess.run([TBC, "export", plan, "--to", "onnx", "-o", output], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)
        self.assertFalse(away.exists())

    def test_dot(self):
        done = self.exporter.export("uneven", "dot")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.exporter.output("uneven", "dot").read_text()
        self.assertIn("transformer.h.0 to 6", text)
        self.assertIn("chunk0 -> chunk1", text)
        self.assertEqual(text.count("{"), text.count("}"))

    def test_mlir_is_the_ir_of_tbc_plan(self):
        done = self.exporter.export("tensor", "mlir")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.exporter.output("tensor", "mlir").read_text()
        self.assertIn('#tbc.mesh<"dp"=2, "fsdp"=2, "tp"=2>', text)
        model, *flags = PLANS["tensor"].split()
        printed = self.exporter.run("plan", SOURCE / "models" / f"{model}.onnx", *flags, "--emit", "ir", "--full")
        self.assertEqual(text, printed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
