"""More models of transformers for text: hybrids, encoders with other mixers, encoders with decoders."""

import torch
from torch import nn

from kinds import (
    BATCH,
    LEFT_OUT,
    MOE,
    SEQ,
    VOCAB,
    Kind,
    Tokens,
    config_of,
    decoder,
    encoder,
    ids,
    kind,
)

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEQ2SEQ = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
}


# --- Decoders beside plain attention. ---


@kind
def jamba():
    return decoder(
        config_of(
            "JambaConfig",
            **MOE,
            num_experts=4,
            use_mamba_kernels=False,
            mamba_d_state=4,
            mamba_dt_rank=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
        )
    )


@kind
def zamba2():
    return decoder(
        config_of(
            "Zamba2Config",
            num_hidden_layers=3,
            layers_block_type=["mamba", "hybrid", "mamba"],
            num_key_value_heads=4,
            n_mamba_heads=8,
            mamba_headdim=8,
            mamba_d_state=8,
            mamba_ngroups=1,
            chunk_size=8,
            num_mem_blocks=1,
            use_mem_rope=True,
            attention_head_dim=16,
            attention_hidden_size=64,
            head_dim=LEFT_OUT,
        )
    )


@kind
def nemotron_h():
    return decoder(
        config_of(
            "NemotronHConfig",
            num_hidden_layers=LEFT_OUT,
            layers_block_type=["mamba", "mlp", "attention"],
            mamba_num_heads=8,
            mamba_head_dim=8,
            ssm_state_size=8,
            n_groups=1,
            chunk_size=8,
        )
    )


@kind
def rwkv():
    return decoder(config_of("RwkvConfig", attention_hidden_size=32, context_length=64))


@kind
def xlstm():
    return decoder(
        config_of("xLSTMConfig", num_heads=4, chunk_size=8, mode="train", head_dim=LEFT_OUT, num_blocks=2)
    )


@kind
def recurrent_gemma():
    return decoder(
        config_of("RecurrentGemmaConfig", num_hidden_layers=3, lru_width=32, attention_window_size=8)
    )


@kind
def lfm2():
    return decoder(config_of("Lfm2Config", layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False))


@kind
def minimax():
    return decoder(
        config_of(
            "MiniMaxConfig",
            **MOE,
            num_local_experts=4,
            layer_types=["linear_attention", "full_attention"],
            block_size=8,
        )
    )


@kind
def deepseek_v2():
    return decoder(
        config_of(
            "DeepseekV2Config",
            **MOE,
            n_routed_experts=4,
            n_shared_experts=1,
            moe_intermediate_size=24,
            first_k_dense_replace=1,
            q_lora_rank=None,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            num_key_value_heads=4,
            topk_method="greedy",
            head_dim=LEFT_OUT,
        )
    )


@kind
def glm4_moe():
    return decoder(
        config_of(
            "Glm4MoeConfig",
            **MOE,
            n_routed_experts=4,
            n_shared_experts=1,
            moe_intermediate_size=24,
            first_k_dense_replace=1,
            use_qk_norm=True,
        )
    )


@kind
def phimoe():
    return decoder(config_of("PhimoeConfig", **MOE, num_local_experts=4))


@kind
def llama4():
    return decoder(
        config_of(
            "Llama4TextConfig",
            num_experts_per_tok=1,
            num_local_experts=4,
            intermediate_size_mlp=48,
            attention_chunk_size=8,
            interleave_moe_layer_step=2,
        )
    )


@kind
def xlnet():
    return encoder("XLNetLMHeadModel", config_of("XLNetConfig", d_model=32, n_layer=2, n_head=4, d_inner=48, dropout=0.0,
                                                   max_position_embeddings=LEFT_OUT))


# --- Encoders with other mixers. ---


@kind
def longformer():
    return encoder("LongformerForMaskedLM", config_of("LongformerConfig", **QUIET, attention_window=8))


@kind
def big_bird():
    return encoder(
        "BigBirdForMaskedLM",
        config_of("BigBirdConfig", **QUIET, attention_type="block_sparse", block_size=2, num_random_blocks=1),
    )


@kind
def nystromformer():
    return encoder(
        "NystromformerForMaskedLM",
        config_of("NystromformerConfig", **QUIET, num_landmarks=4, segment_means_seq_len=SEQ, conv_kernel_size=5),
    )


@kind
def fnet():
    import transformers

    config = config_of("FNetConfig", hidden_dropout_prob=0.0)
    return Kind(Tokens(transformers.FNetForMaskedLM(config)), {"input_ids": ids()}, ())


@kind
def perceiver():
    import transformers

    config = transformers.PerceiverConfig(
        vocab_size=VOCAB,
        num_latents=8,
        d_latents=32,
        d_model=24,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
        max_position_embeddings=SEQ,
        attention_probs_dropout_prob=0.0,
    )

    class Perceiver(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.PerceiverForMaskedLM(config)

        def forward(self, input_ids, attention_mask):
            return self.model(inputs=input_ids, attention_mask=attention_mask).logits

    return Kind(
        Perceiver(), {"input_ids": ids(), "attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)}, ()
    )


@kind
def reformer():
    import transformers

    config = config_of(
        "ReformerConfig",
        attn_layers=["local", "local"],
        axial_pos_embds=False,
        attention_head_size=8,
        feed_forward_size=48,
        local_attn_chunk_length=8,
        hidden_dropout_prob=0.0,
        local_attention_probs_dropout_prob=0.0,
        is_decoder=False,
        num_hidden_layers=LEFT_OUT,
    )
    return Kind(Tokens(transformers.ReformerForMaskedLM(config)), {"input_ids": ids()}, ())


@kind
def layoutlm():
    import transformers

    config = config_of("LayoutLMConfig", **QUIET, max_2d_position_embeddings=128)
    model = transformers.LayoutLMForMaskedLM(config)

    class Layout(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, bbox, attention_mask):
            low, size = bbox[..., :2], bbox[..., 2:]
            boxes = torch.cat([low, low + size], -1)
            return self.model(input_ids=input_ids, bbox=boxes, attention_mask=attention_mask).logits

    return Kind(
        Layout(),
        {
            "input_ids": ids(),
            "bbox": torch.randint(0, 50, (BATCH, SEQ, 4)),
            "attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64),
        },
        ("input_ids", "bbox", "attention_mask"),
    )


@kind
def esm():
    return encoder(
        "EsmForMaskedLM",
        config_of("EsmConfig", **QUIET, position_embedding_type="rotary", token_dropout=True, mask_token_id=3),
        attn_implementation="eager",
    )


# --- Encoders with decoders. ---


class Seq2Seq(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits


def seq2seq(model_class, config, **options):
    import transformers

    model = getattr(transformers, model_class)._from_config(config, **options)
    return Kind(Seq2Seq(model), {"input_ids": ids(), "decoder_input_ids": ids(16)}, ())


@kind
def bart():
    import transformers

    return seq2seq("BartForConditionalGeneration", transformers.BartConfig(**SEQ2SEQ), attn_implementation="sdpa")


@kind
def pegasus_x():
    import transformers

    config = transformers.PegasusXConfig(**SEQ2SEQ, block_size=8, num_global_tokens=4)
    return seq2seq("PegasusXForConditionalGeneration", config)


@kind
def led():
    import transformers

    options = {**SEQ2SEQ, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}
    config = transformers.LEDConfig(**options, attention_window=8)
    return seq2seq("LEDForConditionalGeneration", config)


@kind
def nllb_moe():
    import transformers

    config = transformers.NllbMoeConfig(
        **SEQ2SEQ, num_experts=2, expert_capacity=64, encoder_sparse_step=2, decoder_sparse_step=2,
        moe_eval_capacity_token_fraction=4.0,  # a number of the example's tokens in the file
    )
    return seq2seq("NllbMoeForConditionalGeneration", config)


@kind
def switch_transformers():
    import transformers

    config = transformers.SwitchTransformersConfig(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_sparse_encoder_layers=1,
        num_decoder_layers=2,
        num_sparse_decoder_layers=1,
        num_heads=4,
        num_experts=2,
        dropout_rate=0.0,
        expert_capacity=64,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    return seq2seq("SwitchTransformersForConditionalGeneration", config)


@kind
def prophetnet():
    import transformers

    config = transformers.ProphetNetConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        ngram=2,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        disable_ngram_loss=True,
    )
    return seq2seq("ProphetNetForConditionalGeneration", config)


@kind
def t5gemma():
    import transformers

    part = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=8,
        query_pre_attn_scalar=8,
        max_position_embeddings=64,
        attention_dropout=0.0,
    )
    config = transformers.T5GemmaConfig(
        encoder=part, decoder={**part, "cross_attention_hidden_size": 32}, dropout_rate=0.0, vocab_size=VOCAB
    )
    return seq2seq("T5GemmaForConditionalGeneration", config, attn_implementation="eager")
