"""usage: new_model_test.py TBC SOURCE_DIR

Tests `tbc new`: published parameter counts, models that import and are raised like exports, errors
that name the remedy.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1))) if len(sys.argv) > 2 else (None, None)

# Published parameter counts, from the safetensors headers of the named Hugging Face repositories.
PUBLISHED = [
    ("gpt2", 124_439_808),  # openai-community/gpt2
    ("gpt2 --layers 48 --hidden 1600 --heads 25 --ffn 6400", 1_557_611_200),  # openai-community/gpt2-xl
    ("llama", 8_030_261_248),  # meta-llama/Meta-Llama-3-8B
    ("llama --layers 80 --hidden 8192 --heads 64 --kv-heads 8 --ffn 28672", 70_553_706_496),  # Meta-Llama-3-70B
    ("mpt", 6_649_286_656),  # mosaicml/mpt-7b
    ("neox", 20_554_567_680),  # EleutherAI/gpt-neox-20b
    ("bloom", 176_247_271_424),  # bigscience/bloom
    ("bloom --layers 24 --hidden 1024 --heads 16 --ffn 4096", 559_214_592),  # bigscience/bloom-560m
    ("bert", 109_514_298),  # google-bert/bert-base-uncased, with its head for masked tokens
    ("bert --layers 24 --hidden 1024 --heads 16 --ffn 4096", 335_174_458),  # google-bert/bert-large-uncased
    ("vit", 86_567_656),  # google/vit-base-patch16-224
    ("vit --layers 24 --hidden 1024 --heads 16 --ffn 4096", 304_326_632),  # google/vit-large-patch16-224
]

# The entries of these repositories' config.json that define the graph.
CONFIGS = {
    "mistralai/Mixtral-8x7B-v0.1": (46_702_792_704, {
        "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
        "num_experts_per_tok": 2, "rms_norm_eps": 1e-05, "rope_theta": 1e6, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 32000}),
    "Qwen/Qwen2-7B": (7_615_616_512, {
        "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
        "rope_theta": 1e6, "use_sliding_window": False, "sliding_window": 131072, "tie_word_embeddings": False,
        "vocab_size": 152064}),
    "TinyLlama/TinyLlama-1.1B": (1_100_048_384, {
        "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
        "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4, "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False, "vocab_size": 32000}),
    "EleutherAI/pythia-70m": (70_426_624, {
        "model_type": "gpt_neox", "hidden_act": "gelu", "hidden_size": 512, "intermediate_size": 2048,
        "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_pct": 0.25, "use_parallel_residual": True,
        "tie_word_embeddings": False, "vocab_size": 50304}),
    "openai-community/gpt2-medium": (354_823_168, {
        "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1024, "n_head": 16, "n_layer": 24,
        "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257}),
}

SMALL = "--layers 2 --hidden 64 --heads 4 --ffn 128"
# Two layers of every family, and the composites that the importer must find in them.
SMALL_MODELS = {
    f"gpt2 {SMALL} --vocab 100 --seq 32": {"attention": 2, "layer_norm": 5, "gelu": 2},
    f"llama {SMALL} --kv-heads 2 --vocab 100": {"attention": 2, "rms_norm": 5, "rotary": 4},
    f"llama {SMALL} --vocab 100 --experts 4": {"attention": 2, "rms_norm": 5, "routed_experts": 2},
    f"mpt {SMALL} --vocab 100 --no-alibi": {"attention": 2, "layer_norm": 5, "gelu": 2},
    f"neox {SMALL} --vocab 100": {"attention": 2, "layer_norm": 5, "rotary": 4},
    f"bloom {SMALL} --vocab 100 --no-alibi": {"attention": 2, "layer_norm": 6},
    f"nemotron {SMALL} --kv-heads 2 --vocab 100": {"attention": 2, "layer_norm": 5, "rotary": 4},
    f"grok {SMALL} --kv-heads 2 --vocab 100 --experts 4": {"attention": 2, "rms_norm": 9, "routed_experts": 2},
    f"bert {SMALL} --vocab 100 --seq 32": {"attention": 2, "layer_norm": 6, "gelu": 3},
    f"vit {SMALL} --image 32 --patch 8 --classes 10": {"attention": 2, "layer_norm": 5, "gelu": 2},
}


class NewModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tbc(self, *arguments):
        return subprocess.run([TBC, *arguments], cwd=self.folder.name, capture_output=True, text=True, timeout=300)

    def write(self, name, value):
        Path(self.folder.name, name).write_text(value if isinstance(value, str) else json.dumps(value))

    def parameters(self, *arguments):
        run = self.tbc("new", *arguments, "-o", "m.onnx")
        self.assertEqual(run.returncode, 0, run.stderr)
        return int(run.stdout.split(" parameters")[0].split()[-1])

    def test_parameters_are_those_published(self):
        for arguments, count in PUBLISHED:
            with self.subTest(arguments):
                self.assertEqual(self.parameters(*arguments.split()), count)

    def test_configs_describe_the_same(self):
        for name, (count, config) in CONFIGS.items():
            self.write("config.json", config)
            with self.subTest(name):
                self.assertEqual(self.parameters("--from", "config.json"), count)

    def test_models_import_and_are_raised(self):
        for arguments, composites in SMALL_MODELS.items():
            with self.subTest(arguments):
                count = self.parameters(*arguments.split())
                run = self.tbc("check", "m.onnx", "--json")
                self.assertEqual(run.returncode, 0, run.stderr)
                found = json.loads(run.stdout)
                self.assertEqual(found["parameters"], count)
                for name, number in composites.items():
                    self.assertEqual(found["composites"].get(name), number, (name, found["composites"]))

    def test_they_are_planned_and_layers_have_names(self):
        self.tbc("new", *f"llama {SMALL} --vocab 128".replace("--layers 2", "--layers 4").split(), "-o", "m.onnx")
        run = self.tbc("plan", "m.onnx", "--gpus", "4", "--seq", "64", "-o", "plan.json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("model.layers.*", run.stdout)
        verify = self.tbc("verify", "plan.json")
        self.assertEqual(verify.returncode, 0, verify.stderr)

    def test_alibi_is_written(self):
        """ALiBi is a bias of the attention's scores."""
        for kind in ("mpt", "bloom"):
            self.parameters(*f"{kind} {SMALL} --vocab 100".split())
            run = self.tbc("check", "m.onnx", "--json")
            self.assertEqual(run.returncode, 0, run.stderr)
            composites = json.loads(run.stdout)["composites"]
            self.assertGreater(composites.get("attention", 0), 0)
            self.assertNotIn("softmax", composites)

    def test_the_same_bytes_twice(self):
        self.parameters(*next(iter(SMALL_MODELS)).split())
        first = Path(self.folder.name, "m.onnx").read_bytes()
        self.parameters(*next(iter(SMALL_MODELS)).split())
        self.assertEqual(Path(self.folder.name, "m.onnx").read_bytes(), first)

    def test_mistakes_are_named(self):
        self.write("odd.json", {"model_type": "lama"})
        self.write("cut.json", '{"model_type": "gp')
        self.write("window.json", {**CONFIGS["mistralai/Mixtral-8x7B-v0.1"][1], "sliding_window": 4096})
        self.write("missing.json", {"model_type": "gpt2", "n_layer": 2})
        for arguments, message in (
            ("gpt3", "gpt3"),
            ("", "name a kind of model"),
            ("gpt2 --heads 7", "--heads 7 does not divide --hidden 768"),
            ("llama --kv-heads 5", "--kv-heads 5 does not divide --heads 32"),
            ("gpt2 --kv-heads 4", "--kv-heads"),
            ("gpt2 --hidden 1024", "--ffn"),
            ("bert --experts 4", "--experts"),
            ("llama --no-alibi", "--no-alibi"),
            ("vit --patch 15", "--patch 15 does not divide --image 224"),
            ("llama --experts 4 --experts-per-token 5", "--experts-per-token 5"),
            ("--from odd.json", "did you mean llama?"),
            ("--from cut.json", "no JSON object"),
            ("--from window.json", "sliding_window"),
            ("--from missing.json", '"n_embd" is missing'),
            ("--from absent.json", "absent.json"),
            ("bert --from missing.json", "missing.json"),
        ):
            with self.subTest(arguments):
                run = self.tbc("new", *arguments.split(), "-o", "m.onnx")
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(message, run.stderr)
                self.assertFalse(Path(self.folder.name, "m.onnx").exists())


if __name__ == "__main__":
    unittest.main()
