"""usage: judge_test.py TBC SOURCE_DIR

`tbc judge`: three published configurations with their models, and broken ones, each refused by the
name of its problem.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()

GPT2 = "--bf16 --micro-batch-size 4 --global-batch-size 64 --seq-length 256"

STAGES = f"--pipeline-model-parallel-size 2 --num-layers 12 {GPT2}"

# Flags of Megatron-LM for gpt2 (12 layers, 12 heads) on 16 GPUs, the name of the problem, and a word of it.
MEGATRON = (
    (f"--tensor-model-parallel-size 7 {GPT2}", "Heads", "12 attention heads"),
    (f"--tensor-model-parallel-size 7 {GPT2}", "Ranks", "tp=7"),
    (f"--tensor-model-parallel-size 8 {GPT2}", "Heads", "tp=8"),
    (f"torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py {GPT2}", "Ranks", "32 processes"),
    (f"--pipeline-model-parallel-size 8 --num-layers 12 {GPT2}", "Layers", "8 stages"),
    (f"--pipeline-model-parallel-size 2 --num-layers 12 --num-layers-per-virtual-pipeline-stage 4 {GPT2}", "Layers",
     "chunks of 4"),
    (f"--num-layers 24 {GPT2}", "Layers", "24 layers"),
    (f"--num-attention-heads 16 {GPT2}", "Heads", "16 attention heads"),
    (f"--hidden-size 1024 {GPT2}", "Hidden", "1024"),
    ("--bf16 --micro-batch-size 3 --global-batch-size 64 --seq-length 256", "Batch", "no multiple"),
    ("--bf16 --global-batch-size 64 --seq-length 256", "Batch", "--micro-batch-size"),
    (f"--tensor-model-paralel-size 2 {GPT2}", "UnknownKey", "did you mean --tensor-model-parallel-size"),
    (f"--use-distributed-optimiser {GPT2}", "UnknownKey", "did you mean --use-distributed-optimizer"),
    (f"--fp16 {GPT2}", "Precision", "--fp16"),
    (f"--use-torch-fsdp2 --use-distributed-optimizer {GPT2}", "Zero", "--use-torch-fsdp2"),
    (f"--data-parallel-sharding-strategy optim_grads_params {GPT2}", "Zero", "--use-megatron-fsdp"),
    (f"--optimizer-cpu-offload {GPT2}", "Offload", "--use-distributed-optimizer"),
    (f"--recompute-granularity full {GPT2}", "Recompute", "--recompute-method"),
    (f"--recompute-granularity some {GPT2}", "Recompute", "some"),
    (f"--recompute-granularity selective --recompute-modules layernorm mpl {GPT2}", "Recompute", "has no mpl"),
    (f"--expert-model-parallel-size 4 {GPT2}", "Experts", "--num-experts"),
    (f"--num-virtual-stages-per-pipeline-rank 2 {GPT2}", "Schedule", "without a pipeline"),
    (f"--tensor-model-parallel-size two {GPT2}", "Value", '"two"'),
    (f"{STAGES} --pipeline-model-parallel-layout Ettt|tttL", "Layers", "has 6 layers"),
    (f"{STAGES} --pipeline-model-parallel-layout Et*6|t*6|L", "Schedule", "3 parts"),
    (f"{STAGES} --pipeline-model-parallel-layout Exx|t*12L", "Value", "Exx"),
    (f"{STAGES} --pipeline-model-parallel-layout t*6|t*6L", "Layers", "its only E"),
    (f"{STAGES} --pipeline-model-parallel-layout Et*9999999999|L", "Value", "E, t, m and L"),
    (f"{STAGES} --num-virtual-stages-per-pipeline-rank 4", "Layers", "into 4 chunks"),
    (f"{STAGES} --decoder-first-pipeline-num-layers 12", "Layers", "0 layers"),
    (f"{STAGES} --decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 6", "Layers", "not all 12"),
    (f"{STAGES} --account-for-loss-in-pipeline-split", "Layers", "13 layers"),
    (f"--rampup-batch-size 16 16 {GPT2}", "Batch", "a number of samples"),
    (f"--rampup-batch-size 16 20 1000 {GPT2}", "Batch", "does not reach 64"),
    (f"--rampup-batch-size 128 16 1000 {GPT2}", "Batch", "does not reach 64"),
    (f"--expert-tensor-parallel-size 3 {GPT2}", "Ranks", "expert tp=3"),
    (f"--make-vocab-size-divisible-by 2097152 {GPT2}", "Vocabulary", "up to 1048576"),
)  # fmt: skip

DEEPSPEED = (
    ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, "Batch", "128 samples"),
    ({"train_batch_size": 65}, "Batch", "no multiple of 16"),
    ({"zero_optimization": {"stage": 2}}, "Batch", "required"),
    ({"train_batch_size": 64, "zero_optimization": {"stage": 4}}, "Zero", "not 4"),
    ({"train_batch_size": 64, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, "Offload",
     "the stage is 0"),
    ({"train_batch_size": 64, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "Offload", "stage 3"),
    ({"train_batch_size": 64, "zero_optimisation": {"stage": 2}}, "UnknownKey", "zero_optimization.stage"),
    ({"train_batch_size": 64, "bf16": {"enabled": True}, "fp16": {"enabled": True}}, "Precision", "both"),
)  # fmt: skip

TORCHTITAN = (
    ("[parallelism]\ntensor_parallel_degree = 8\n", "Heads", "tp=8"),
    ("[parallelism]\ndata_parallel_shard_degree = 3\n", "Ranks", "16 data ranks"),
    ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'F1B1'\n", "Schedule", "F1B1"),
    ("[parallelism]\ntensor_paralel_degree = 2\n", "UnknownKey", "parallelism.tensor_parallel_degree"),
    ("[training]\nlocal_batch_size = 6\n[parallelism]\npipeline_parallel_degree = 2\n"
     "pipeline_parallel_microbatch_size = 4\n", "Batch", "micro-batches of 4"),
    ("[activation_checkpoint]\nmode = 'all'\n", "Recompute", "all"),
)  # fmt: skip

ACCELERATE = (
    ("distributed_type: FSDP\nnum_processes: 8\n", "Ranks", "8 processes"),
    ("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_dp_shard_size: 3\n", "Ranks", "16 data ranks"),
    ("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu\n", "Offload", "stage 3"),
    ("distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_foward: true\n", "UnknownKey", "fsdp_reshard_after_forward"),
)

TITAN_PYTHON = '''
from torchtitan.config import ParallelismConfig, TrainingConfig

DEGREE = 2


def sharded() -> Trainer.Config:
    """Keywords, a constant, a comment."""
    model_spec = model_registry("debugmodel")
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(vocab=size(model_spec)),
        ),
        model_spec=model_spec,
        optimizer=default_adamw(lr=8e-4),
        training=TrainingConfig(local_batch_size=4, seq_len=256),  # of tokens
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2, data_parallel_shard_degree=-1,
            tensor_parallel_degree=DEGREE,
        ),
        activation_checkpoint=FullAC.Config(),
    )


def selective():
    config = sharded()
    assert config.model_spec is not None
    config.training.steps = 20
    config.activation_checkpoint = SelectiveAC.Config()
    return config


def misspelt():
    config = sharded()
    config.parallelism = ParallelismConfig(tensor_paralel_degree=2)
    return config
'''

LLAMA = ["llama", "--vocab", "128256", "--kv-heads", "8"]


class JudgeTest(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)

    def judge(self, configuration, model, gpus, *flags):
        if str(configuration).startswith("--"):  # else these were flags of tbc
            configuration = f"pretrain_gpt.py {configuration}"
        command = [TBC, "judge", configuration, "--model", model, "--gpus", str(gpus), "--json", *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        self.assertTrue(done.stdout, done.stderr)
        return done.returncode, json.loads(done.stdout)

    def refuse(self, configuration, name, word, *flags):
        with self.subTest(configuration=str(configuration), name=name):
            code, answer = self.judge(configuration, SOURCE / "models/gpt2.onnx", 16, "--seq", "256", *flags)
            self.assertEqual(code, 4)
            self.assertFalse(answer["legal"])
            found = [problem["text"] for problem in answer["problems"] if problem["name"] == name]
            self.assertTrue(any(word in text for text in found), answer["problems"])

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_broken_megatron(self):
        for flags, name, word in MEGATRON:
            self.refuse(flags, name, word)

    def test_broken_deepspeed(self):
        for content, name, word in DEEPSPEED:
            self.refuse(self.file("ds.json", json.dumps(content)), name, word)

    def test_broken_torchtitan(self):
        for text, name, word in TORCHTITAN:
            self.refuse(self.file("job.toml", text), name, word)

    def test_broken_accelerate(self):
        for text, name, word in ACCELERATE:
            self.refuse(self.file("accelerate.yaml", text), name, word, "--batch", "64")

    def test_legal_ones(self):
        model = SOURCE / "models/gpt2.onnx"
        ds = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2},
              "bf16": {"enabled": True}}  # fmt: skip
        cases = (
            (f"--tensor-model-parallel-size 2 --use-distributed-optimizer {GPT2}", "dp=8 tp=2, ZeRO-1"),
            (self.file("ds.json", json.dumps(ds)), "dp=16, ZeRO-2"),
            ("per_device_train_batch_size=4 bf16=True fsdp=full_shard", "fsdp=16, ZeRO-3"),
        )
        for configuration, words in cases:
            code, answer = self.judge(configuration, model, 16, "--seq", "256")
            self.assertEqual(code, 0, answer)
            self.assertIn(words, answer["judged"]["plan"])
            self.assertEqual(answer["judged"]["memory"], "fits")
            self.assertLessEqual(answer["instead"]["seconds"]["value"], answer["judged"]["seconds"]["value"] * 1.001)

    def test_python_of_torchtitan(self):
        """A function is read: its keywords, its assignments, and the function of the file that it calls."""
        model = SOURCE / "models/gpt2.onnx"
        file = self.file("registry.py", TITAN_PYTHON)
        code, answer = self.judge(f"{file}:sharded", model, 16, "--alone")
        self.assertEqual(code, 0, answer)
        self.assertEqual(answer["notes"], ["the vocabulary of 50257 does not divide over tp=2: every rank is taken to have "
                                           "as many rows as the fullest, 25129"])  # fmt: skip
        self.assertIn("dp=2 fsdp=4 tp=2, ZeRO-3, micro-batch 4 x 1, recompute full", answer["judged"]["plan"])
        code, answer = self.judge(f"{file}:selective", model, 16, "--alone")
        self.assertIn("dp=2 fsdp=4 tp=2", answer["judged"]["plan"])
        self.assertIn("recompute selective", answer["judged"]["plan"])
        self.refuse(f"{file}:misspelt", "UnknownKey", "parallelism.tensor_parallel_degree")
        for configuration, words in (
            (file, "name one, as in"),
            (f"{file}:shared", "did you mean"),
        ):
            command = [TBC, "judge", str(configuration), "--model", model, "--gpus", "16"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        conditional = self.file("conditional.py", "def planned():\n    config = base()\n    if BIG:\n        pass\n    return config\n")
        done = subprocess.run([TBC, "judge", conditional, "--model", model, "--gpus", "16"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("conditional.py, line 3: 'if' decides at run time", done.stderr)

    def test_exported_python_is_judged_as_its_plan(self):
        plan, file = self.folder / "plan.json", self.folder / "titan.py"
        flags = ["--gpus", "8", "--mesh", "fsdp=8", "--batch", "64", "--micro-batch", "4", "--seq", "256", "--recompute", "full"]
        model = SOURCE / "models/gpt2.onnx"
        subprocess.run([TBC, "plan", model, *flags, "-o", plan], check=True, capture_output=True)
        subprocess.run([TBC, "export", plan, "--to", "torchtitan", "-o", file], check=True, capture_output=True)
        _, answer = self.judge(file, model, 8, "--alone")
        self.assertIn("fsdp=8, ZeRO-3, micro-batch 4 x 2, recompute full", answer["judged"]["plan"])
        self.assertIn("llama3_debugmodel", answer["notes"][0])

    def test_an_exported_mixture_is_judged_as_its_plan(self):
        """Flags of Megatron-LM name the experts that ep divides: 2 on each of 2 ranks, and 1 on each of 4."""
        model = SOURCE / "models/moe-8l.onnx"
        plan, file = self.folder / "plan.json", self.folder / "plan.args"
        for mesh, grouped in (("dp=4,ep=2", True), ("dp=2,ep=4", False)):
            with self.subTest(mesh):
                flags = ["--gpus", "8", "--mesh", mesh, "--zero", "0", "--batch", "64", "--seq", "32", "--recompute", "none"]
                subprocess.run([TBC, "plan", model, *flags, "-o", plan], check=True, capture_output=True)
                subprocess.run([TBC, "export", plan, "--to", "megatron", "-o", file], check=True, capture_output=True)
                words = [line for line in file.read_text().splitlines() if not line.startswith("#")]
                self.assertIn("--num-experts 4", words)
                self.assertEqual("--moe-grouped-gemm" in words, grouped)
                code, answer = self.judge(" ".join(words), model, 8, "--alone")
                self.assertEqual((code, answer["problems"]), (0, []))
                self.assertIn(mesh.replace(",", " "), answer["judged"]["plan"])
                kept = [word for word in words if not word.startswith("--num-experts")]
                _, answer = self.judge(" ".join(kept), model, 8, "--alone")
                self.assertEqual([problem["name"] for problem in answer["problems"]], ["Experts"])

    def plan_of(self, model, *flags):
        """Plans for Megatron-LM; returns the seconds, and the exported flags."""
        plan, file = self.folder / "plan.json", self.folder / "plan.args"
        subprocess.run([TBC, "plan", model, "--executor", "megatron", *flags, "-o", plan], check=True, capture_output=True)
        subprocess.run([TBC, "export", plan, "--to", "megatron", "-o", file], check=True, capture_output=True)
        words = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        prediction = json.loads(plan.read_text())["prediction"]
        return (prediction["low_seconds"] + prediction["high_seconds"]) / 2, " ".join(words)

    def test_exported_flags_have_the_time_of_their_plan(self):
        """Cuts and chunks are those of the layout, and kernels make values again as in the plan."""
        model = SOURCE / "models/gpt2.onnx"
        for name, pins in (("layout", ["--mesh", "pp=2,dp=4", "--schedule", "interleaved", "--virtual-stages", "2"]),
                           ("dp", ["--mesh", "dp=8", "--micro-batch", "16"])):  # fmt: skip
            with self.subTest(name):
                seconds, flags = self.plan_of(model, "--gpus", "8", "--batch", "256", "--seq", "1024", *pins)
                self.assertEqual("--pipeline-model-parallel-layout" in flags, name == "layout", flags)
                code, answer = self.judge(flags, model, 8, "--alone")
                self.assertEqual(code, 0, answer)
                self.assertAlmostEqual(answer["judged"]["seconds"]["value"], seconds, delta=1e-9)

    def test_stages_are_cut_as_the_flags_say(self):
        model = SOURCE / "models/gpt2.onnx"
        seconds = {}
        for flags in ("", "--decoder-first-pipeline-num-layers 3", "--pipeline-model-parallel-layout Et*3|t*9L",
                      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
                      "--num-layers-per-virtual-pipeline-stage 2",
                      "--pipeline-model-parallel-layout Ett|(tt|)*4ttL"):  # fmt: skip
            code, answer = self.judge(f"{STAGES} {flags}", model, 16, "--alone")
            self.assertEqual(code, 0, answer)
            self.assertFalse([note for note in answer["notes"] if "cut by tbc" in note], answer)
            seconds[flags] = answer["judged"]["seconds"]["value"]
        even, first, layout, counted, chunks, chunked = seconds.values()
        self.assertEqual((first, counted, chunks), (layout, even, chunked))
        self.assertGreater(first, 1.05 * even)
        self.assertNotEqual(chunks, even)

    def test_layers_are_recomputed_as_the_flags_say(self):
        """Megatron recomputes so many layers of each chunk, or all of a shorter one."""
        model, block = SOURCE / "models/gpt2.onnx", "--recompute-granularity full --recompute-method block --recompute-num-layers"
        selective = "--recompute-granularity selective"
        for flags, words, notes in (
            (f"{STAGES} --num-layers-per-virtual-pipeline-stage 3 {block} 3", "recompute full", []),
            (f"{GPT2} {block} 100", "recompute full", []),
            (f"{STAGES} --decoder-first-pipeline-num-layers 3 {block} 4", "recompute full 7/",
             ["tbc recomputes the first 7 layers, not the first 4 of each chunk"]),
            (f"{GPT2} {selective} --recompute-modules core_attn layernorm", "recompute selective", []),
            (f"{GPT2} {selective} --recompute-modules mlp", "recompute selective", ["--recompute-modules mlp: judged as "]),
            (f"{GPT2} {selective}", "recompute none", ["recompute of core_attn alone: judged as none"]),
            (f"{GPT2} --recompute-activations", "recompute none", ["recompute of core_attn alone: judged as none"]),
        ):
            with self.subTest(flags):
                code, answer = self.judge(flags, model, 8, "--alone")
                self.assertEqual((code, answer["problems"]), (0, []))
                plan = answer["judged"]["plan"]
                self.assertTrue(words in plan if words.endswith("/") else plan.endswith(words), plan)
                kept = [note for note in answer["notes"] if "recompute" in note]
                self.assertEqual([note[: len(start)] for note, start in zip(kept, notes, strict=True)], notes)

    def test_keys_without_a_form_in_a_plan_are_noted(self):
        titan = "[training]\nlocal_batch_size = 4\nglobal_batch_size = 64\ndtype = 'bfloat16'\n[quantize.linear.float8]\nrecipe_name = 'tensorwise'\n"
        ds = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "zero_quantized_weights": True},
              "bf16": {"enabled": True}}  # fmt: skip
        for configuration, keys in (
            (f"{GPT2} --fp4-format e2m1 --exp-avg-dtype bf16 --main-grads-dtype fp32", ["--fp4-format e2m1", "--exp-avg-dtype bf16"]),
            (self.file("job.toml", titan), ["quantize.linear.float8.recipe_name", "training.dtype bfloat16"]),
            (self.file("ds.json", json.dumps(ds)), ["zero_optimization.zero_quantized_weights"]),
        ):
            with self.subTest(keys):
                _, answer = self.judge(configuration, SOURCE / "models/gpt2.onnx", 8, "--seq", "256", "--alone")
                notes = [note for note in answer["notes"] if "left out, though" in note]
                self.assertEqual([note[: len(key)] for note, key in zip(sorted(notes), sorted(keys), strict=True)], sorted(keys))

    def test_matmuls_in_fp8(self):
        """Megatron-LM's format and torchtitan's converter are judged at the rate of 8 bits."""
        model = self.folder / "wide.onnx"
        subprocess.run([TBC, "new", "llama", "--layers", "4", "--hidden", "4096", "--heads", "32", "--ffn", "14336", "--vocab", "32000",
                        "-o", model], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        flags = "--bf16 --micro-batch-size 2 --global-batch-size 16 --seq-length 4096"
        titan = "[training]\nlocal_batch_size = 2\nglobal_batch_size = 16\nseq_len = 4096\n"
        for own, inFp8 in ((flags, flags + " --fp8-format hybrid"),
                           (self.file("own.toml", titan), self.file("fp8.toml", titan + "[model]\nconverters = ['float8']\n"))):
            seconds = [self.judge(configuration, model, 8, "--alone")[1]["judged"]["seconds"]["value"] for configuration in (own, inFp8)]
            self.assertLess(seconds[1], 0.95 * seconds[0])

    def test_nothing_is_recomputed_to_fit(self):
        """Without recompute the upper end of the memory is over the limit, so some blocks would be recomputed."""
        model = self.folder / "7b.onnx"
        subprocess.run([TBC, "new", "llama", "--layers", "32", "--hidden", "4096", "--heads", "32", "--ffn", "11008",
                        "--vocab", "32000", "-o", model], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        flags = "--bf16 --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 --use-distributed-optimizer"
        _, answer = self.judge(flags, model, 8, "--alone")
        self.assertTrue(answer["judged"]["plan"].endswith("recompute none"), answer)
        self.assertEqual(answer["judged"]["memory"], "tight")

    def test_gradients_have_the_type_of_the_configuration(self):
        config = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1},
                  "bf16": {"enabled": True}}  # fmt: skip
        wide = config | {"data_types": {"grad_accum_dtype": "fp32"}}
        peaks = []
        for content in (config, wide):
            _, answer = self.judge(self.file("ds.json", json.dumps(content)), SOURCE / "models/gpt2.onnx", 8, "--seq", "256", "--alone")
            peaks.append(answer["judged"]["bytes"]["value"])
        for more in (" --grad-reduce-in-bf16", ""):
            _, answer = self.judge(f"{GPT2}{more}", SOURCE / "models/gpt2.onnx", 8, "--alone")
            peaks.append(answer["judged"]["bytes"]["value"])
        parameters = 124_439_808
        self.assertAlmostEqual(peaks[1] - peaks[0], 2 * parameters, delta=0.1 * parameters)
        self.assertAlmostEqual(peaks[3] - peaks[2], 2 * parameters, delta=0.1 * parameters)

    def test_vocabularies_are_padded_as_megatron_does(self):
        """To a multiple of 128 x tp, of any size; the answer says so."""
        flags = "--tensor-model-parallel-size 4 --bf16 --micro-batch-size 4 --global-batch-size 16 --seq-length 16"
        model = self.folder / "small.onnx"
        subprocess.run([TBC, "new", "llama", "--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "128", "--vocab", "255",
                        "-o", model], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        for more, padded in (("", "512, a multiple of 128 x tp=4"),
                             ("--make-vocab-size-divisible-by 1", "256, a multiple of 1 x tp=4")):  # fmt: skip
            code, answer = self.judge(f"{flags} {more}", model, 4, "--alone")
            self.assertEqual((code, answer["problems"]), (0, []))
            self.assertEqual(answer["notes"], [f"the vocabulary of 255 is padded to {padded}"])

    def test_other_frameworks_keep_the_vocabulary(self):
        """The time is that of a plan without padding, and there is nothing to note."""
        model, plan = SOURCE / "models/gpt2.onnx", self.folder / "plan.json"
        ds = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3},
              "bf16": {"enabled": True}}  # fmt: skip
        titan = "[training]\nlocal_batch_size = 4\nglobal_batch_size = 64\n[activation_checkpoint]\nmode = 'none'\n"
        for name, file in (("deepspeed", self.file("ds.json", json.dumps(ds))), ("torchtitan", self.file("job.toml", titan))):
            with self.subTest(name):
                code, answer = self.judge(file, model, 8, "--seq", "256", "--alone")
                self.assertEqual((code, answer["notes"]), (0, []), answer)
                flags = ["--executor", name, "--gpus", "8", "--mesh", "fsdp=8", "--zero", "3", "--batch", "64", "--micro-batch", "4",
                         "--seq", "256", "--recompute", "none", "--pad-vocabulary", "1"]  # fmt: skip
                subprocess.run([TBC, "plan", model, *flags, "-o", plan], check=True, capture_output=True)
                self.assertEqual(answer["judged"]["bytes"]["low"], json.loads(plan.read_text())["prediction"]["low_bytes"])

    def test_flags_of_experts_and_of_growing_batches_are_not_dropped(self):
        model, batch = SOURCE / "models/moe-8l.onnx", "--bf16 --micro-batch-size 4 --global-batch-size 64 --seq-length 32"
        experts = f"--tensor-model-parallel-size 2 --num-experts 4 {batch} --expert-tensor-parallel-size"
        for flags, notes in (
            (f"{experts} 2", []),
            (f"{experts} 1", ["--expert-tensor-parallel-size 1 is left out"]),
            (f"{batch} --rampup-batch-size 32 16 1000", ["--rampup-batch-size 32 16 1000: the step is that of the full batch"]),
        ):
            code, answer = self.judge(flags, model, 4, "--alone")
            self.assertEqual((code, answer["problems"]), (0, []), answer)
            kept = [note for note in answer["notes"] if note.startswith("--")]
            self.assertEqual([note[: len(start)] for note, start in zip(kept, notes, strict=True)], notes)
        # Four ranks of one stage have 4 x 1, which tbc has no mesh for, and not 4 x 2.
        for flags, name in ((f"{experts} 1", "Planner"), (f"{experts} 2", "Ranks"), (experts.rsplit(" ", 1)[0], "Ranks")):
            _, answer = self.judge(f"{flags} --expert-model-parallel-size 4", model, 4, "--alone")
            self.assertEqual([problem["name"] for problem in answer["problems"]], [name], answer)

    def test_what_runs_out_of_memory(self):
        model = self.folder / "8b.onnx"
        subprocess.run([TBC, "new", *LLAMA, "--layers", "32", "--hidden", "4096", "--heads", "32", "--ffn", "14336", "-o", model],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        flags = "--bf16 --micro-batch-size 4 --global-batch-size 64 --seq-length 8192"
        code, answer = self.judge(flags, model, 8, "--alone")
        self.assertEqual(code, 4)
        self.assertTrue(answer["legal"])
        self.assertEqual(answer["judged"]["memory"], "does not fit")

    def test_published(self):
        """Published configurations are legal and have their mesh; predicted beside published in docs/commands/judge.md."""
        gpt3 = ["gpt2", "--layers", "96", "--hidden", "12288", "--heads", "96", "--ffn", "49152", "--vocab", "51200",
                "--seq", "2048"]  # fmt: skip
        big = [*LLAMA, "--layers", "80", "--hidden", "8192", "--heads", "64", "--ffn", "28672"]
        huge = [*LLAMA, "--layers", "126", "--hidden", "16384", "--heads", "128", "--ffn", "53248"]
        megatron = (
            "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --num-layers 96 --hidden-size 12288 "
            "--num-attention-heads 96 --seq-length 2048 --micro-batch-size 1 --global-batch-size 1536 --fp16 "
            "--num-layers-per-virtual-pipeline-stage 4 --recompute-granularity full --recompute-method uniform "
            "--recompute-num-layers 1"
        )
        titan = "[training]\nlocal_batch_size = {batch}\nseq_len = 8192\n[parallelism]\ndata_parallel_shard_degree = -1\n" \
            "tensor_parallel_degree = 8\n[activation_checkpoint]\nmode = 'full'\n"  # fmt: skip
        cases = (
            ("gpt3", gpt3, megatron, 1024, "pp=8 dp=16 tp=8", ["--cluster", "a100-80gb-sxm"]),
            ("70b", big, titan.format(batch=8), 256, "fsdp=32 tp=8", []),
            ("405b", huge, titan.format(batch=2), 512, "fsdp=64 tp=8", []),
        )
        for name, model, configuration, gpus, mesh, flags in cases:
            with self.subTest(name):
                path = self.folder / f"{name}.onnx"
                subprocess.run([TBC, "new", *model, "-o", path], check=True, stdout=subprocess.DEVNULL)
                if configuration.startswith("["):
                    configuration = self.file(f"{name}.toml", configuration)
                _, answer = self.judge(configuration, path, gpus, "--alone", *flags)
                self.assertTrue(answer["legal"], answer["problems"])
                self.assertIn(mesh, answer["judged"]["plan"])
                self.assertEqual(answer["executor"], answer["kind"])
                seconds = answer["judged"]["seconds"]
                self.assertLess(seconds["low"], seconds["high"])
                if name == "gpt3":  # 34 days for 300 G tokens, Narayanan et al., SC 2021
                    self.assertTrue(seconds["low"] < 30.8 < seconds["high"], seconds)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
