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
    ("mixtral", 46_702_792_704),  # mistralai/Mixtral-8x7B-v0.1
    ("qwen2", 7_615_616_512),  # Qwen/Qwen2-7B
    ("qwen2_moe", 14_315_784_192),  # Qwen/Qwen1.5-MoE-A2.7B
    ("qwen3", 8_190_735_360),  # Qwen/Qwen3-8B
    ("qwen3_moe", 30_532_122_624),  # Qwen/Qwen3-30B-A3B
    ("gemma2", 9_241_705_984),  # google/gemma-2-9b
    ("gemma3", 999_885_952),  # google/gemma-3-1b-pt
    ("phi", 2_779_683_840),  # microsoft/phi-2
    ("phi3", 3_821_079_552),  # microsoft/Phi-3-mini-4k-instruct
    ("olmo", 6_888_095_744),  # allenai/OLMo-7B-hf
    ("olmo2", 7_298_617_344),  # allenai/OLMo-2-1124-7B
    ("olmoe", 6_919_161_856),  # allenai/OLMoE-1B-7B-0924
    # deepseek-ai/DeepSeek-V3 without its 62nd layer; transformers counts the same.
    ("deepseek_v3", 671_026_404_352),
    ("t5", 222_903_552),  # google-t5/t5-base
    ("modernbert", 149_655_232),  # answerdotai/ModernBERT-base
    ("dit", 675_129_632),  # DiT-XL/2 of facebookresearch/DiT, with its table of positions
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
    "mistralai/Mistral-7B-v0.1": (7_241_732_096, {
        "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 32000}),
    "Qwen/Qwen3-0.6B": (596_049_920, {
        "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
        "use_sliding_window": False, "vocab_size": 151936}),
    "google/gemma-2-2b": (2_614_341_888, {
        "model_type": "gemma2", "attention_bias": False, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216,
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000}),
    "deepseek-ai/DeepSeek-V3": (671_026_404_352, {
        "model_type": "deepseek_v3", "attention_bias": False, "first_k_dense_replace": 3, "hidden_act": "silu",
        "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
        "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
        "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": False,
        "topk_group": 4, "v_head_dim": 128, "vocab_size": 129280}),
    "google/flan-t5-base": (247_577_856, {
        "model_type": "t5", "d_ff": 2048, "d_kv": 64, "d_model": 768, "feed_forward_proj": "gated-gelu",
        "layer_norm_epsilon": 1e-06, "num_decoder_layers": 12, "num_heads": 12, "num_layers": 12,
        "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32,
        "tie_word_embeddings": False, "vocab_size": 32128}),
    "answerdotai/ModernBERT-large": (395_881_664, {
        "model_type": "modernbert", "attention_bias": False, "classifier_bias": False, "decoder_bias": True,
        "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "hidden_activation": "gelu",
        "hidden_size": 1024, "intermediate_size": 2624, "local_attention": 128, "local_rope_theta": 10000.0,
        "mlp_bias": False, "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 16,
        "num_hidden_layers": 28, "vocab_size": 50368}),
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
    f"mixtral {SMALL} --kv-heads 2 --vocab 100": {"attention": 2, "rms_norm": 5, "routed_experts": 2},
    f"qwen2 {SMALL} --kv-heads 2 --vocab 100": {"attention": 2, "rms_norm": 5, "swiglu": 2},
    f"qwen2_moe {SMALL} --vocab 100 --experts 8": {"attention": 2, "routed_experts": 2, "swiglu": 2},
    f"qwen3 {SMALL} --kv-heads 2 --vocab 100 --head-dim 16": {"attention": 2, "rms_norm": 9, "rotary": 4},
    f"qwen3_moe {SMALL} --kv-heads 2 --vocab 100 --head-dim 16 --experts 8": {"attention": 2, "routed_experts": 2},
    f"gemma2 {SMALL} --kv-heads 2 --vocab 100 --head-dim 16": {"attention": 2, "rms_norm": 9, "rotary": 4},
    f"gemma3 {SMALL} --kv-heads 2 --vocab 100 --head-dim 16": {"attention": 2, "rms_norm": 13, "rotary": 4},
    f"phi {SMALL} --vocab 100": {"attention": 2, "layer_norm": 3, "rotary": 4},
    f"phi3 {SMALL} --vocab 100": {"attention": 2, "rms_norm": 5, "swiglu": 2},
    f"olmo {SMALL} --vocab 100": {"attention": 2, "layer_norm": 5, "swiglu": 2},
    f"olmo2 {SMALL} --vocab 100": {"attention": 2, "rms_norm": 9, "swiglu": 2},
    f"olmoe {SMALL} --vocab 100 --experts 8": {"attention": 2, "rms_norm": 9, "routed_experts": 2},
    f"deepseek_v3 {SMALL.replace('2', '5', 1)} --vocab 100 --experts 16 --experts-per-token 4":
        {"attention": 5, "rms_norm": 21, "routed_experts": 2},
    f"t5 {SMALL} --vocab 100": {"attention": 6, "rms_norm": 12},
    f"modernbert {SMALL.replace('2', '4', 1)} --vocab 100": {"attention": 4, "layer_norm": 10, "rotary": 8},
    f"dit {SMALL} --image 16": {"attention": 2, "layer_norm": 5, "silu": 4},
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
        self.write("window.json", {**CONFIGS["Qwen/Qwen2-7B"][1], "use_sliding_window": True})
        kinds = ["sliding_attention", "full_attention", "full_attention"]
        self.write("uneven.json", {**CONFIGS["google/gemma-2-2b"][1], "layer_types": kinds})
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
            ("gpt2 --image 224", "--image: gpt2 has no pictures"),
            ("llama --classes 10", "--classes: llama has no pictures"),
            ("vit --vocab 1000", "--vocab: vit has no tokens"),
            ("dit --seq 64", "--seq: dit has no tokens"),
            ("vit --untied", "--untied: vit has no tokens"),
            ("llama --experts-per-token 2", "--experts-per-token needs --experts"),
            ("vit --patch 15", "--patch 15 does not divide --image 224"),
            ("llama --experts 4 --experts-per-token 5", "--experts-per-token 5"),
            ("--from odd.json", "did you mean llama?"),
            ("--from cut.json", "no JSON object"),
            ("--from window.json", "use_sliding_window"),
            ("--from uneven.json", "layer_types"),
            ("deepseek_v3 --experts 100", "8 groups"),
            ("nemotron --experts 4", "not of nemotron"),
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
