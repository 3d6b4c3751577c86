"""usage: exports_accepted_test.py TBC SOURCE_DIR PACKAGE

The outputs of `tbc export` in the packages that read them: the package's own class or parser reads
each output, and the numbers that it then has are the plan's. Runs in the environment that
make-venv FOLDER PACKAGE makes.
"""

import importlib
import inspect
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from export_cases import EXPRESSED, Exporter

TBC, SOURCE, PACKAGE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]


class Case(unittest.TestCase):
    """Exports every plan that the package expresses."""

    target = ""

    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.exporter = Exporter(TBC, SOURCE, Path(cls.kept.name))
        sys.path.insert(0, cls.kept.name)

    @classmethod
    def tearDownClass(cls):
        sys.path.remove(cls.kept.name)
        cls.kept.cleanup()

    def outputs(self):
        """Returns the name, plan and output of each plan."""
        names = [name for name, targets in EXPRESSED.items() if self.target in targets.split()]
        self.assertGreaterEqual(len(names), 5)
        result = []
        for name in names:
            done = self.exporter.export(name, self.target)
            self.assertEqual(done.returncode, 0, done.stderr)
            result.append((name, self.exporter.plan(name), self.exporter.output(name, self.target)))
        return result

    def module(self, file):
        return importlib.import_module(file.stem)


def data_ranks(plan):
    return plan["mesh"]["dp"] * plan["mesh"]["fsdp"] * plan["mesh"]["ep"]


class Megatron(Case):
    target = "megatron"

    def flags(self, file):
        """The flags of an output as fields. Example: {"tensor_model_parallel_size": "2"}."""
        flags = {}
        for line in file.read_text().splitlines():
            if not line.startswith("#"):
                flag, _, value = line.partition(" ")
                flags[flag.removeprefix("--").replace("-", "_")] = value
        return flags

    def test_configurations(self):
        import dataclasses

        from megatron.core import ModelParallelConfig
        from megatron.core.distributed import DistributedDataParallelConfig
        from megatron.core.optimizer import OptimizerConfig
        from megatron.core.transformer import TransformerConfig

        # Fields with another name than their flag, and flags of the training loop (pretrain_gpt.py).
        renamed = {"ddp_bucket_size": "bucket_size", "num_experts": "num_moe_experts"}
        loop = {"global_batch_size", "micro_batch_size", "seq_length", "num_layers_per_virtual_pipeline_stage"}
        classes = (TransformerConfig, OptimizerConfig, DistributedDataParallelConfig)
        for _, plan, file in self.outputs():
            flags = self.flags(file)
            values = {klass: {} for klass in classes}
            for flag, text in flags.items():
                field = renamed.get(flag, flag)
                owners = [k for k in classes if field in {f.name for f in dataclasses.fields(k)}]
                self.assertTrue(owners or flag in loop or flag in ("sgd_momentum", "use_distributed_optimizer"), flag)
                for owner in owners:
                    kind = {f.name: str(f.type) for f in dataclasses.fields(owner)}[field]
                    value = True if text == "" else text
                    if field == "cp_comm_type":
                        value = text.replace("allgather", "all_gather")
                    elif "List" in kind or "list[str]" in kind:
                        value = text.split()
                    elif "int" in kind and text.lstrip("-").isdigit():
                        value = int(text)
                    elif "float" in kind:
                        value = float(text)
                    values[owner][field] = value
            mesh = plan["mesh"]
            heads = 8
            extra = {}
            if "num_layers_per_virtual_pipeline_stage" in flags:
                per_stage = int(flags["num_layers"]) // mesh["pp"]
                extra["virtual_pipeline_model_parallel_size"] = per_stage // int(flags["num_layers_per_virtual_pipeline_stage"])
            if mesh["pp"] > 1:
                import torch

                extra["pipeline_dtype"] = torch.bfloat16
            values[TransformerConfig].pop("cp_comm_type", None) if mesh["cp"] == 1 else None
            config = TransformerConfig(hidden_size=64 * heads, num_attention_heads=heads, **values[TransformerConfig], **extra)
            shared = {f.name for f in dataclasses.fields(ModelParallelConfig)}
            ModelParallelConfig(**{k: v for k, v in {**values[TransformerConfig], **extra}.items() if k in shared})
            OptimizerConfig(**values[OptimizerConfig])
            DistributedDataParallelConfig(**values[DistributedDataParallelConfig])
            self.assertEqual(config.tensor_model_parallel_size, mesh["tp"])
            self.assertEqual(config.pipeline_model_parallel_size, mesh["pp"])
            self.assertEqual(config.context_parallel_size, mesh["cp"])
            self.assertEqual(config.expert_model_parallel_size, mesh["ep"])
            self.assertEqual(int(flags["micro_batch_size"]), plan["micro_batch"])
            self.assertEqual(int(flags["global_batch_size"]), plan["job"]["batch"])
            self.assertEqual(config.bf16, plan["job"]["precision"] == "bf16")
            self.assertEqual("use_distributed_optimizer" in flags, plan["parameters"]["default"]["zero"] == 1)
            self.check_layout(config, plan)

    def check_layout(self, config, plan):
        layout = config.pipeline_model_parallel_layout
        if not layout:
            return
        from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

        if not isinstance(layout, PipelineParallelLayerLayout):
            layout = PipelineParallelLayerLayout(layout, config.pipeline_model_parallel_size)
        layout.validate_layer_layout(config.num_layers, config.mtp_num_layers)
        for chunk, begin in enumerate(plan["stage_names"]):
            layers = sum(str(kind).endswith("decoder") for row in layout.layout[:chunk] for part in row for kind in part)
            if chunk:
                self.assertIn(f".{layers}.", begin + ".")

    @unittest.skipUnless("MEGATRON_LM" in os.environ, "MEGATRON_LM names no checkout of Megatron-LM core_v0.16")
    def test_argument_parser(self):
        """The whole parser with its checks, where a checkout of Megatron-LM is there: the wheel lacks it."""
        import megatron
        import torch

        megatron.__path__.append(os.environ["MEGATRON_LM"] + "/megatron")
        arguments = importlib.import_module("megatron.training.arguments")
        model = "--hidden-size 768 --num-attention-heads 12 --max-position-embeddings 1024 --tokenizer-type NullTokenizer " \
            "--vocab-size 50257 --lr 1e-4 --train-iters 3 --transformer-impl local".split()  # fmt: skip
        for name, plan, file in self.outputs():
            flags = [word for line in file.read_text().splitlines() if not line.startswith("#") for word in line.split()]
            ranks = {"WORLD_SIZE": str(len(plan["mesh"]) and data_ranks(plan) * plan["mesh"]["pp"] * plan["mesh"]["tp"]
                                       * plan["mesh"]["cp"]), "RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # fmt: skip
            device = types.SimpleNamespace(major=9, minor=0)
            with (
                mock.patch.dict(os.environ, ranks),
                mock.patch.object(sys, "argv", ["pretrain_gpt.py", *flags, *model]),
                mock.patch.object(torch.cuda, "get_device_properties", return_value=device),
                mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
            ):
                parsed = arguments.validate_args(arguments.parse_args())
            self.assertEqual(parsed.data_parallel_size, data_ranks(plan), name)
            self.assertEqual(parsed.tensor_model_parallel_size, plan["mesh"]["tp"])


class Torchtitan(Case):
    """torchtitan 0.3 needs a newer torch to import its models, so its dataclasses are the referee."""

    target = "torchtitan"

    def test_configurations(self):
        from torchtitan.config import ParallelismConfig, TrainingConfig
        from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

        for _, plan, file in self.outputs():
            module = self.module(file)
            base = types.SimpleNamespace(training=TrainingConfig(), parallelism=ParallelismConfig())
            with mock.patch.object(module, "base", return_value=base):
                config = module.planned()
            mesh, parallelism, training = plan["mesh"], config.parallelism, config.training
            self.assertIsInstance(parallelism, ParallelismConfig)
            self.assertEqual(parallelism.data_parallel_replicate_degree, mesh["dp"])
            self.assertEqual(parallelism.data_parallel_shard_degree, mesh["fsdp"] * mesh["ep"])
            self.assertEqual(parallelism.tensor_parallel_degree, mesh["tp"])
            self.assertEqual(parallelism.pipeline_parallel_degree, mesh["pp"])
            self.assertEqual(parallelism.context_parallel_degree, mesh["cp"])
            self.assertEqual(training.global_batch_size, plan["job"]["batch"])
            micro_batch = parallelism.pipeline_parallel_microbatch_size if mesh["pp"] > 1 else training.local_batch_size
            self.assertEqual(micro_batch, plan["micro_batch"])
            steps = training.global_batch_size // (training.local_batch_size * data_ranks(plan))
            per_step = training.local_batch_size // micro_batch
            self.assertEqual(steps * per_step, plan["accumulation"])
            kinds = {"none": type(None), "full": FullAC.Config, "selective": SelectiveAC.Config}
            self.assertIsInstance(config.activation_checkpoint, kinds[plan["recompute"]["mode"].split()[0]])
            if mesh["pp"] > 1:
                self.check_schedule(parallelism, plan)

    def check_schedule(self, parallelism, plan):
        from torch.distributed.pipelining.schedules import get_schedule_class

        get_schedule_class(parallelism.pipeline_parallel_schedule)
        parts = parallelism.module_fqns_per_model_part
        self.assertEqual(len(parts), len(plan["stages"]))
        layers = [name for part in parts for name in part if name.startswith("layers.")]
        self.assertEqual(layers, [f"layers.{i}" for i in range(len(layers))])
        for part, begin in zip(parts[1:], plan["stage_names"][1:], strict=True):
            self.assertIn("." + part[0].split(".")[1] + ".", begin + ".")


class DeepSpeed(Case):
    target = "deepspeed"

    def test_configurations(self):
        from deepspeed.runtime.config import DeepSpeedConfig

        for _, plan, file in self.outputs():
            # DeepSpeed takes the ranks from an initialized process group, which one process cannot be.
            size = mock.patch("deepspeed.comm.get_world_size", return_value=data_ranks(plan))
            with size, mock.patch("deepspeed.comm.get_rank", return_value=0):
                config = DeepSpeedConfig(str(file))
            self.assertEqual(config.train_batch_size, plan["job"]["batch"])
            self.assertEqual(config.train_micro_batch_size_per_gpu, plan["micro_batch"])
            self.assertEqual(config.gradient_accumulation_steps, plan["accumulation"])
            default = plan["parameters"]["default"]
            self.assertEqual(int(config.zero_optimization_stage), default["zero"] if default["zero_axes"] else 0)
            self.assertEqual(config.zero_config.offload_optimizer is not None, plan["offload"]["optimizer"])
            precision = plan["job"]["precision"]
            self.assertEqual(config.bfloat16_config.enabled, precision == "bf16")
            self.assertEqual(config.float16_config.enabled, precision == "f16")
            self.assertEqual(config.gradient_clipping, plan["job"]["settings"].get("clip_norm", 0))
            self.assertEqual(config.optimizer_name, "adamw")


class Accelerate(Case):
    target = "accelerate"

    def test_configurations(self):
        from accelerate.commands.config.config_args import load_config_from_file
        from accelerate.commands.launch import launch_command_parser, _validate_launch_command
        from accelerate.parallelism_config import ParallelismConfig

        for _, plan, file in self.outputs():
            config = load_config_from_file(str(file))
            mesh = plan["mesh"]
            self.assertEqual(config.num_processes, data_ranks(plan) * mesh["tp"] * mesh["cp"])
            self.assertEqual(config.mixed_precision, {"bf16": "bf16", "f16": "fp16", "f32": "no"}[plan["job"]["precision"]])
            arguments = launch_command_parser().parse_args(["--config_file", str(file), "train.py"])
            arguments = _validate_launch_command(arguments)[0]
            self.assertEqual(arguments.num_processes, config.num_processes)
            sizes = {
                key.removeprefix("parallelism_config_"): value
                for key, value in config.parallelism_config.items()
                if key.endswith("_size")
            }
            if not sizes:
                self.assertEqual(str(config.distributed_type).split(".")[-1], "MULTI_GPU")
                continue
            parsed = ParallelismConfig(**sizes)
            self.assertEqual(parsed.dp_replicate_size, mesh["dp"])
            self.assertEqual(parsed.dp_shard_size, mesh["fsdp"])
            self.assertEqual(parsed.tp_size, mesh["tp"])
            self.assertTrue(arguments.use_fsdp)
            self.assertEqual(int(arguments.fsdp_version), 2)
            reshards = plan["parameters"]["default"]["zero"] == 3 and not plan["parameters"]["default"]["keep_gathered"]
            self.assertEqual(str(arguments.fsdp_reshard_after_forward).lower(), str(reshards).lower())


class Lightning(Case):
    target = "lightning"

    def test_trainers(self):
        from lightning.pytorch import Trainer
        from lightning.pytorch.strategies import DDPStrategy

        known = set(inspect.signature(Trainer.__init__).parameters)
        for name, plan, file in self.outputs():
            module = self.module(file)
            made, strategy = self.make(module)
            self.assertLessEqual(set(made), known, name)
            self.assertEqual(made["devices"] * made["num_nodes"], data_ranks(plan), name)
            self.assertEqual(made["accumulate_grad_batches"], plan["accumulation"], name)
            self.assertEqual(module.BATCH_SIZE, plan["micro_batch"], name)
            self.check_strategy(strategy, plan)
            if isinstance(strategy, DDPStrategy):
                cpu = {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "precision": "32-true"}
                Trainer(**{**made, **cpu, "logger": False, "enable_checkpointing": False})

    def make(self, module):
        """Returns the Trainer's arguments, and the strategy or the arguments of a DeepSpeedStrategy."""
        import torch

        made = {}
        block = [torch.nn.Linear] if "block" in inspect.signature(module.make_trainer).parameters else []
        with mock.patch.object(module, "Trainer", side_effect=lambda **fields: made.update(fields)):
            if not hasattr(module, "DeepSpeedStrategy"):
                module.make_trainer(*block)
                return made, made["strategy"]
            # Its constructor asks for the package deepspeed, which has an environment of its own.
            with mock.patch.object(module, "DeepSpeedStrategy") as strategy:
                module.make_trainer()
            return made, strategy.call_args.kwargs

    def check_strategy(self, strategy, plan):
        from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy

        default = plan["parameters"]["default"]
        zero = default["zero"] if default["zero_axes"] else 0
        if zero == 0:
            self.assertIsInstance(strategy, DDPStrategy)
            self.assertEqual(strategy._ddp_kwargs["bucket_cap_mb"], plan["bucket_bytes"] / 2**20)
        elif zero < 3:
            self.assertLessEqual(set(strategy), set(inspect.signature(DeepSpeedStrategy.__init__).parameters))
            self.assertEqual(strategy["stage"], zero)
            self.assertEqual(strategy["offload_optimizer"], plan["offload"]["optimizer"])
        else:
            self.assertIsInstance(strategy, FSDPStrategy)
            is_hybrid = plan["mesh"]["dp"] > 1
            word = "HYBRID_SHARD" if is_hybrid else "SHARD_GRAD_OP" if default["keep_gathered"] else "FULL_SHARD"
            self.assertEqual(strategy.sharding_strategy.name, word)
            mesh = (plan["mesh"]["dp"], plan["mesh"]["fsdp"])
            self.assertEqual(strategy.kwargs.get("device_mesh"), mesh if is_hybrid else None)


class Jax(Case):
    target = "jax"

    def test_specs(self):
        from jax.sharding import PartitionSpec

        for _, plan, file in self.outputs():
            module = self.module(file)
            axes = {axis["axis"]: axis["size"] for axis in plan["layout"]["axes"]}
            self.assertEqual(module.AXES, axes)
            self.assertEqual(module.MICRO_BATCHES, plan["accumulation"])
            for specs in module.PARAMETERS.values():
                for spec in specs:
                    self.assertIsInstance(spec, PartitionSpec)

    def test_loss_and_gradients_equal_serial(self):
        import jax_gpt2

        for name in ("tensor", "jax-fsdp", "jax-recompute"):
            with self.subTest(name):
                done = self.exporter.export(name, "jax")
                self.assertEqual(done.returncode, 0, done.stderr)
                jax_gpt2.compare(self, self.module(self.exporter.output(name, "jax")), self.exporter.plan(name))


if __name__ == "__main__":
    suite = {"megatron": Megatron, "torchtitan": Torchtitan, "deepspeed": DeepSpeed, "accelerate": Accelerate,
             "lightning": Lightning, "jax": Jax}[PACKAGE]  # fmt: skip
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(suite))
    sys.exit(not result.wasSuccessful())
