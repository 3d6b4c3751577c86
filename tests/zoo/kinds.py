"""The zoo's models: small configurations of real code (transformers, diffusers, peft).

KINDS maps a name to a function that makes a Kind. Nothing is downloaded: weights are random, and no two tensors are
equal, for exporters join equal initializers into one.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

BATCH, SEQ, VOCAB = 2, 24, 97


@dataclass
class Kind:
    """A model with an example batch.

    module: its forward takes the examples by name and returns one tensor; examples: by input name, dim 0 is the
    batch; sequence: inputs whose dim 1 is the sequence; flags: further flags of `tbc plan`; meets: whether the samples
    of the batch meet, so that a step has one micro-batch.
    """

    module: nn.Module
    examples: dict
    sequence: tuple = ()
    loss: str = "cross-entropy"
    flags: list = field(default_factory=list)
    meets: bool = False


KINDS = {}
# Whether decoders take an attention mask (TorchScript cannot export them without), and how experts are computed.
MASKED = False
EXPERTS = "eager"


def distinct(make):
    """Makes a kind and perturbs its parameters and statistics, so that none are equal."""
    made = make()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter += (0.02 * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)
        for name, buffer in made.module.named_buffers():
            if "running_" in name:
                buffer += 0.02 * torch.rand(buffer.shape, generator=generator)
    return made


def kind(make):
    """Adds `make` to KINDS."""
    KINDS[make.__name__.replace("_", "-")] = lambda: distinct(make)
    return make


class Logits(nn.Module):
    """Calls a Hugging Face model and returns the first of its results."""

    def __init__(self, model, name="logits", **fixed):
        super().__init__()
        self.model, self.name, self.fixed = model, name, fixed

    def forward(self, **inputs):
        result = self.model(**inputs, **self.fixed)
        return result[self.name] if isinstance(self.name, str) else result[0]


class Tokens(Logits):
    def forward(self, input_ids):
        return super().forward(input_ids=input_ids)


class MaskedTokens(Logits):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids=input_ids, attention_mask=attention_mask)


class Pixels(Logits):
    def forward(self, pixel_values):
        return super().forward(pixel_values=pixel_values)


def ids(length=SEQ, vocabulary=VOCAB):
    return torch.randint(3, vocabulary, (BATCH, length))


def decoder(config, dtype=torch.float32, **attributes):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(
        config, attn_implementation=attributes.pop("attention", "eager"), dtype=dtype
    )
    if hasattr(config, "num_experts_per_tok"):
        model.set_experts_implementation(EXPERTS)
    if MASKED:
        return Kind(
            MaskedTokens(model, use_cache=False),
            {"input_ids": ids(), "attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)},
            ("input_ids", "attention_mask"),
        )
    return Kind(Tokens(model, use_cache=False), {"input_ids": ids()}, ("input_ids",))


# For an option of config_of that a configuration derives from others.
LEFT_OUT = object()


def config_of(name, **options):
    import transformers

    base = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attention_dropout=0.0,
    )
    options = {key: value for key, value in {**base, **options}.items() if value is not LEFT_OUT}
    return getattr(transformers, name)(**options)


# Decoders: the configuration's class, its options, the attention, and the dtype.
MOE = {"num_experts_per_tok": 2}
QWEN_MOE = {**MOE, "num_experts": 4, "moe_intermediate_size": 24, "norm_topk_prob": True}
DEEPSEEK = {
    **MOE,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
GEMMA = {"sliding_window": 8, "query_pre_attn_scalar": 8}
GPT_OSS = {**MOE, "num_local_experts": 4, "sliding_window": 8}
GPT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
MAMBA = {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 1, "expand": 2, "chunk_size": 8}
DECODERS = {
    "llama": ("LlamaConfig", {}, "sdpa", torch.float32),
    "qwen3": ("Qwen3Config", {}, "sdpa", torch.float32),
    "gemma2": ("Gemma2Config", GEMMA, "eager", torch.float32),
    "gemma3": ("Gemma3TextConfig", GEMMA, "eager", torch.float32),
    "phi3": ("Phi3Config", {"sliding_window": None}, "sdpa", torch.float32),
    "olmo2": ("Olmo2Config", {}, "sdpa", torch.float32),
    "opt": ("OPTConfig", {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0}, "eager", torch.float32),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4, "hidden_dropout": 0.0}, "eager", torch.float32),
    "mixtral": ("MixtralConfig", {**MOE, "num_local_experts": 4}, "eager", torch.float32),
    "mixtral-bf16": ("MixtralConfig", {**MOE, "num_local_experts": 4}, "eager", torch.bfloat16),
    "qwen3-moe": ("Qwen3MoeConfig", QWEN_MOE, "eager", torch.float32),
    "qwen3-moe-bf16": ("Qwen3MoeConfig", QWEN_MOE, "eager", torch.bfloat16),
    "deepseek-v3": ("DeepseekV3Config", DEEPSEEK, "eager", torch.float32),
    "deepseek-v3-bf16": ("DeepseekV3Config", DEEPSEEK, "eager", torch.bfloat16),
    "gpt-oss": ("GptOssConfig", GPT_OSS, "eager", torch.float32),
    "gpt-oss-bf16": ("GptOssConfig", GPT_OSS, "eager", torch.bfloat16),
    "mamba2": ("Mamba2Config", MAMBA, "eager", torch.float32),
    "mistral": ("MistralConfig", {"sliding_window": 8}, "sdpa", torch.float32),
    "qwen2": ("Qwen2Config", {}, "sdpa", torch.float32),
    "qwen2-moe": ("Qwen2MoeConfig", {**QWEN_MOE, "shared_expert_intermediate_size": 40}, "eager", torch.float32),
    "olmoe": ("OlmoeConfig", {**MOE, "num_experts": 4}, "eager", torch.float32),
    "gemma": ("GemmaConfig", {}, "sdpa", torch.float32),
    "phi": ("PhiConfig", {"num_key_value_heads": 4}, "sdpa", torch.float32),
    "gpt2": ("GPT2Config", {**GPT, "n_positions": 64}, "sdpa", torch.float32),
    "gpt-neox": ("GPTNeoXConfig", {"hidden_dropout": 0.0}, "sdpa", torch.float32),
    "gptj": ("GPTJConfig", {**GPT, "rotary_dim": 4}, "eager", torch.float32),
    "falcon": ("FalconConfig", {"hidden_dropout": 0.0, "head_dim": LEFT_OUT}, "eager", torch.float32),
    "mpt": ("MptConfig", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}, "eager", torch.float32),
    "stablelm": ("StableLmConfig", {}, "sdpa", torch.float32),
    "starcoder2": ("Starcoder2Config", {"residual_dropout": 0.0, "embedding_dropout": 0.0}, "sdpa", torch.float32),
    "cohere": ("CohereConfig", {}, "sdpa", torch.float32),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.25, "logits_scaling": 2.0}, "sdpa", torch.float32),
    "glm": ("GlmConfig", {}, "sdpa", torch.float32),
    "nemotron": ("NemotronConfig", {}, "sdpa", torch.float32),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2}, "sdpa", torch.float32),
}
for _name, (_config, _options, _attention, _dtype) in DECODERS.items():
    KINDS[_name] = partial(
        distinct, lambda c=_config, o=_options, a=_attention, d=_dtype: decoder(config_of(c, **o), d, attention=a)
    )


@kind
def t5():
    import transformers

    config = transformers.T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    )
    model = transformers.T5ForConditionalGeneration(config)

    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, decoder_input_ids):
            return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits

    return Kind(Seq2Seq(), {"input_ids": ids(), "decoder_input_ids": ids()}, ())


def encoder(model_class, config, **options):
    import transformers

    model = getattr(transformers, model_class)._from_config(config, **options)
    return Kind(
        MaskedTokens(model),
        {"input_ids": ids(), "attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)},
        ("input_ids", "attention_mask"),
    )


@kind
def modernbert():
    return encoder(
        "ModernBertForMaskedLM",
        config_of("ModernBertConfig", local_attention=8, cls_token_id=1, sep_token_id=2),
        attn_implementation="eager",
    )


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Encoders: the model's class, the configuration's class, its options.
ENCODERS = {
    "bert": ("BertForMaskedLM", "BertConfig", NO_DROPOUT),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", NO_DROPOUT),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**NO_DROPOUT, "embedding_size": 16}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**NO_DROPOUT, "embedding_size": 16}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "dropout": 0.0},
    ),
    "funnel": (
        "FunnelForMaskedLM",
        "FunnelConfig",
        {
            "d_model": 32,
            "block_sizes": [1, 1],
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "hidden_dropout": 0.0,
            "num_hidden_layers": LEFT_OUT,
        },
    ),
}
for _name, (_model, _config, _options) in ENCODERS.items():
    KINDS[_name] = partial(distinct, lambda m=_model, c=_config, o=_options: encoder(m, config_of(c, **o)))


@kind
def deberta():
    return encoder(
        "DebertaV2ForMaskedLM",
        config_of(
            "DebertaV2Config",
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_biased_input=False,
            share_att_key=True,
            position_buckets=8,
            norm_rel_ebd="layer_norm",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
    )


@kind
def mpnet():
    return encoder(
        "MPNetForMaskedLM", config_of("MPNetConfig", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )


def keep_scale(model):
    """Makes the temperature of a contrastive `model` a scalar buffer: the dynamo exporter folds its exponential."""
    scale = model.logit_scale.data.reshape(())
    del model.logit_scale
    model.register_buffer("logit_scale", scale)
    return model


@kind
def clip():
    import transformers

    text = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=SEQ,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    vision = dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8
    )
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))

    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = keep_scale(model)

        def forward(self, input_ids, pixel_values):
            return self.model(input_ids=input_ids, pixel_values=pixel_values, return_loss=True).loss

    examples = {"input_ids": ids(), "pixel_values": torch.randn(BATCH, 3, 16, 16)}
    return Kind(Clip(), examples, loss="loss", meets=True)


@kind
def clip_text():
    import transformers

    config = transformers.CLIPTextConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=SEQ,
        projection_dim=16,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return Kind(
        Tokens(transformers.CLIPTextModelWithProjection(config), "text_embeds"), {"input_ids": ids()}, (), "mse"
    )


@kind
def whisper():
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=VOCAB,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        dropout=0.0,
    )
    model = transformers.WhisperForConditionalGeneration(config)

    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_features, decoder_input_ids):
            return self.model(
                input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False
            ).logits

    return Kind(Speech(), {"input_features": torch.randn(BATCH, 8, 32), "decoder_input_ids": ids(16)}, ())


def image(model, size=32):
    return Kind(Pixels(model), {"pixel_values": torch.randn(BATCH, 3, size, size)}, ())


@kind
def vit():
    import transformers

    return image(
        transformers.ViTForImageClassification(
            transformers.ViTConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                image_size=32,
                patch_size=8,
                num_labels=10,
            )
        )
    )


# Classifiers of images: the model's class, the configuration's class, its options.
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
PATCHES = {**SMALL, "image_size": 32, "patch_size": 8, "num_labels": 10}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 10}
IMAGES = {
    "deit": ("DeiTForImageClassification", "DeiTConfig", PATCHES),
    "beit": ("BeitForImageClassification", "BeitConfig", {**PATCHES, "drop_path_rate": 0.0}),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", {**PATCHES, "mlp_ratio": 2}),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {**STAGES, "embedding_size": 8}),
    "regnet": ("RegNetForImageClassification", "RegNetConfig", {**STAGES, "embedding_size": 8, "groups_width": 8}),
    "poolformer": (
        "PoolFormerForImageClassification",
        "PoolFormerConfig",
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_labels": 10, "drop_path_rate": 0.0},
    ),
}


def classifier(model_class, config_class, options):
    import transformers

    return image(getattr(transformers, model_class)(getattr(transformers, config_class)(**options)))


for _name, _row in IMAGES.items():
    KINDS[_name] = partial(distinct, partial(classifier, *_row))


@kind
def swin():
    import transformers

    return image(
        transformers.SwinForImageClassification(
            transformers.SwinConfig(
                image_size=32,
                patch_size=2,
                embed_dim=16,
                depths=[2, 2],
                num_heads=[2, 4],
                window_size=4,
                num_labels=10,
                hidden_dropout_prob=0.0,
                drop_path_rate=0.0,
            )
        )
    )


@kind
def convnext():
    import transformers

    return image(
        transformers.ConvNextForImageClassification(
            transformers.ConvNextConfig(
                hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], num_labels=10, drop_path_rate=0.0
            )
        )
    )


@kind
def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, sample, timestep, encoder_hidden_states):
            return self.model(sample, timestep, encoder_hidden_states, return_dict=False)[0]

    return Kind(
        Unet(),
        {
            "sample": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.randint(0, 1000, (BATCH,)),
            "encoder_hidden_states": torch.randn(BATCH, 6, 16),
        },
        (),
        "mse",
    )


@kind
def dit():
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        norm_num_groups=4,
        sample_size=8,
        num_embeds_ada_norm=10,
        dropout=0.0,
    )

    class Dit(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, hidden_states, timestep, class_labels):
            return self.model(hidden_states, timestep=timestep, class_labels=class_labels, return_dict=False)[0]

    return Kind(
        Dit(),
        {
            "hidden_states": torch.randn(BATCH, 4, 8, 8),
            "timestep": torch.randint(0, 1000, (BATCH,)),
            "class_labels": torch.randint(0, 10, (BATCH,)),
        },
        (),
        "mse",
    )


@kind
def vae():
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
    )

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, sample):
            return self.model.decode(self.model.encode(sample).latent_dist.mode()).sample

    return Kind(Vae(), {"sample": torch.randn(BATCH, 3, 16, 16)}, (), "mse")


@kind
def reward():
    import transformers

    config = config_of("LlamaConfig", num_labels=1)
    model = transformers.LlamaForSequenceClassification._from_config(config, attn_implementation="sdpa")
    return Kind(Tokens(model, use_cache=False), {"input_ids": ids()}, ("input_ids",), "mse")


@kind
def dlrm():
    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(4))
            self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(8 + 10, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, dense, sparse):
            x = self.bottom(dense)
            rows = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], 1)
            products = rows @ rows.transpose(1, 2)
            i, j = torch.tril_indices(5, 5, -1)
            return self.top(torch.cat([x, products[:, i, j]], 1))

    return Kind(Dlrm(), {"dense": torch.randn(BATCH, 13), "sparse": torch.randint(0, 50, (BATCH, 4, 3))}, ())


@kind
def lora():
    from peft import LoraConfig, get_peft_model
    import transformers

    model = transformers.LlamaForCausalLM._from_config(config_of("LlamaConfig"), attn_implementation="sdpa")
    model = get_peft_model(
        model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    )
    return Kind(
        Tokens(model, use_cache=False),
        {"input_ids": ids()},
        ("input_ids",),
        flags=[
            "--freeze",
            "*base*",
            "--freeze",
            "*norm*",
            "--freeze",
            "*embed*",
            "--freeze",
            "*mlp*",
            "--freeze",
            "*[ko]_proj*",
            "--freeze",
            "*lm_head*",
        ],
    )


@kind
def wav2vec2():
    import transformers

    config = transformers.Wav2Vec2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        conv_dim=(8, 8),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        num_feat_extract_layers=2,
        hidden_dropout=0.0,
        layerdrop=0.0,
    )

    class Speech(Logits):
        def forward(self, input_values):
            return super().forward(input_values=input_values)

    return Kind(Speech(transformers.Wav2Vec2ForCTC(config)), {"input_values": torch.randn(BATCH, 320)}, ())
