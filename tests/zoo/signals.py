"""More models of transformers and diffusers: sound, time series, diffusion."""

import torch
from torch import nn

from kinds import BATCH, SMALL, VOCAB, Kind, Logits, ids, kind
from library import SEQ2SEQ

# --- Sound. ---

SPEECH = {
    **SMALL,
    "vocab_size": VOCAB,
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "hidden_dropout": 0.0,
    "layerdrop": 0.0,
}


class Sound(Logits):
    def forward(self, input_values):
        return super().forward(input_values=input_values)


def sound(model_class, config_class, name="logits", loss="cross-entropy", shape=(320,), **options):
    import transformers

    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**options))
    return Kind(Sound(model, name), {"input_values": torch.randn(BATCH, *shape)}, (), loss)


@kind
def sew():
    return sound("SEWForCTC", "SEWConfig", **SPEECH, squeeze_factor=2)


@kind
def conformer():
    return sound(
        "Wav2Vec2ConformerForCTC",
        "Wav2Vec2ConformerConfig",
        **SPEECH,
        position_embeddings_type="relative",
        conv_depthwise_kernel_size=3,
        max_source_positions=64,
        conformer_conv_dropout=0.0,
    )


@kind
def wavlm():
    return sound("WavLMForCTC", "WavLMConfig", **SPEECH, num_buckets=8, max_bucket_distance=16)


@kind
def audio_spectrogram():
    return sound(
        "ASTForAudioClassification", "ASTConfig", shape=(32, 16), **SMALL, patch_size=8, max_length=32,
        num_mel_bins=16, frequency_stride=4, time_stride=4, num_labels=10,
    )


@kind
def encodec_decoder():
    import transformers

    config = transformers.EncodecConfig(
        num_filters=4, hidden_size=16, upsampling_ratios=[2, 2], num_residual_layers=1, num_lstm_layers=1,
        codebook_size=16, kernel_size=3, last_kernel_size=3, codebook_dim=16,
    )
    model = transformers.EncodecModel(config)

    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = model.encoder, model.decoder

        def forward(self, sound):
            return self.decoder(self.encoder(sound))

    return Kind(Codec(), {"sound": torch.randn(BATCH, 1, 64)}, (), "mse")


@kind
def speech_to_text():
    import transformers

    config = transformers.Speech2TextConfig(
        **{**SEQ2SEQ, "max_source_positions": 64, "max_target_positions": 64, "max_position_embeddings": 64},
        input_feat_per_channel=8, input_channels=1, conv_channels=16, num_conv_layers=2, conv_kernel_sizes=(3, 3),
    )
    model = transformers.Speech2TextForConditionalGeneration(config)

    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_features, decoder_input_ids):
            return self.model(
                input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False
            ).logits

    return Kind(Speech(), {"input_features": torch.randn(BATCH, 32, 8), "decoder_input_ids": ids(10)}, ())


# --- Time series. ---


@kind
def patchtst():
    import transformers

    config = transformers.PatchTSTConfig(
        num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, d_model=32, num_hidden_layers=2,
        num_attention_heads=4, ffn_dim=48, prediction_length=8, scaling="std", loss="mse", attention_dropout=0.0,
        ff_dropout=0.0, head_dropout=0.0, path_dropout=0.0, positional_dropout=0.0, do_mask_input=False,
    )

    class Series(Logits):
        def forward(self, past_values):
            return super().forward(past_values=past_values)

    return Kind(
        Series(transformers.PatchTSTForPrediction(config), "prediction_outputs"),
        {"past_values": torch.randn(BATCH, 32, 3)},
        (),
        "mse",
    )


@kind
def autoformer():
    import transformers

    config = transformers.AutoformerConfig(
        prediction_length=4, context_length=12, input_size=1, lags_sequence=[1, 2], d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
        decoder_ffn_dim=24, num_time_features=1, moving_average=3, label_length=4, dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0,
    )
    model = transformers.AutoformerForPrediction(config)

    class Series(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, past_values, past_time, future_values, future_time):
            result = self.model(
                past_values=past_values, past_time_features=past_time, past_observed_mask=torch.ones_like(past_values),
                future_values=future_values, future_time_features=future_time, return_dict=True, use_cache=False,
            )
            return result.params[0]

    return Kind(
        Series(),
        {
            "past_values": torch.randn(BATCH, 14),
            "past_time": torch.randn(BATCH, 14, 1),
            "future_values": torch.randn(BATCH, 4),
            "future_time": torch.randn(BATCH, 4, 1),
        },
        (),
        "mse",
    )


@kind
def informer():
    import transformers

    config = transformers.InformerConfig(
        prediction_length=4, context_length=12, input_size=1, lags_sequence=[1, 2], d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
        decoder_ffn_dim=24, num_time_features=1, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        attention_type="prob", sampling_factor=1,
    )
    model = transformers.InformerForPrediction(config)

    class Series(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, past_values, past_time, future_values, future_time):
            result = self.model(
                past_values=past_values, past_time_features=past_time, past_observed_mask=torch.ones_like(past_values),
                future_values=future_values, future_time_features=future_time, return_dict=True, use_cache=False,
            )
            return result.params[0]

    return Kind(
        Series(),
        {
            "past_values": torch.randn(BATCH, 14),
            "past_time": torch.randn(BATCH, 14, 1),
            "future_values": torch.randn(BATCH, 4),
            "future_time": torch.randn(BATCH, 4, 1),
        },
        (),
        "mse",
    )


@kind
def decision_transformer():
    import transformers

    config = transformers.DecisionTransformerConfig(
        state_dim=5, act_dim=3, hidden_size=32, n_layer=2, n_head=4, n_inner=48, max_ep_len=64, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    model = transformers.DecisionTransformerModel(config)

    class Decision(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, states, actions, returns, timesteps):
            mask = torch.ones_like(timesteps)
            return self.model(
                states=states, actions=actions, rewards=returns, returns_to_go=returns, timesteps=timesteps,
                attention_mask=mask, return_dict=True,
            ).action_preds

    return Kind(
        Decision(),
        {
            "states": torch.randn(BATCH, 6, 5),
            "actions": torch.randn(BATCH, 6, 3),
            "returns": torch.randn(BATCH, 6, 1),
            "timesteps": torch.randint(0, 64, (BATCH, 6)),
        },
        (),
        "mse",
    )


# --- Diffusers. ---


class Denoiser(nn.Module):
    """Calls a model of diffusers with its inputs by name; `fixed` are buffers that every sample shares."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model, self.names = model, list(fixed)
        for name, value in fixed.items():
            self.register_buffer(name, value)

    def call(self, **inputs):
        fixed = {name: getattr(self, name) for name in self.names}
        return self.model(**inputs, **fixed, return_dict=False)[0]


class Flux(Denoiser):
    def forward(self, hidden_states, encoder_hidden_states, pooled_projections, timestep):
        return self.call(
            hidden_states=hidden_states, encoder_hidden_states=encoder_hidden_states,
            pooled_projections=pooled_projections, timestep=timestep,
        )


@kind
def flux():
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=12, guidance_embeds=False, axes_dims_rope=(2, 2, 4),
    )
    places = torch.stack([torch.zeros(16), torch.arange(16) // 4, torch.arange(16) % 4], -1)
    return Kind(
        Flux(model, img_ids=places, txt_ids=torch.zeros(6, 3)),
        {
            "hidden_states": torch.randn(BATCH, 16, 4),
            "encoder_hidden_states": torch.randn(BATCH, 6, 16),
            "pooled_projections": torch.randn(BATCH, 12),
            "timestep": torch.rand(BATCH),
        },
        (),
        "mse",
    )


@kind
def sd3():
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=12, out_channels=4,
        pos_embed_max_size=8, qk_norm="rms_norm",
    )
    return Kind(
        Flux(model),
        {
            "hidden_states": torch.randn(BATCH, 4, 8, 8),
            "encoder_hidden_states": torch.randn(BATCH, 6, 16),
            "pooled_projections": torch.randn(BATCH, 12),
            "timestep": torch.rand(BATCH),
        },
        (),
        "mse",
    )


@kind
def sdxl():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=16,
        attention_head_dim=(2, 4), transformer_layers_per_block=(1, 2), use_linear_projection=True,
        addition_embed_type="text_time", addition_time_embed_dim=4, projection_class_embeddings_input_dim=36,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )

    class Sdxl(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, sample, timestep, encoder_hidden_states, text_embeds, time_ids):
            added = {"text_embeds": text_embeds, "time_ids": time_ids}
            return self.model(
                sample, timestep, encoder_hidden_states, added_cond_kwargs=added, return_dict=False
            )[0]

    return Kind(
        Sdxl(),
        {
            "sample": torch.randn(BATCH, 4, 16, 16),
            "timestep": torch.randint(0, 1000, (BATCH,)),
            "encoder_hidden_states": torch.randn(BATCH, 6, 16),
            "text_embeds": torch.randn(BATCH, 12),
            "time_ids": torch.rand(BATCH, 6),
        },
        (),
        "mse",
    )


@kind
def controlnet():
    from diffusers import ControlNetModel

    model = ControlNetModel(
        in_channels=4, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=16,
        attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        conditioning_embedding_out_channels=(8, 16),
    )

    class Control(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, sample, timestep, encoder_hidden_states, picture):
            down, middle = self.model(sample, timestep, encoder_hidden_states, picture, return_dict=False)
            return torch.cat([x.flatten(1) for x in (*down, middle)], 1)

    return Kind(
        Control(),
        {
            "sample": torch.randn(BATCH, 4, 8, 8),
            "timestep": torch.randint(0, 1000, (BATCH,)),
            "encoder_hidden_states": torch.randn(BATCH, 6, 16),
            "picture": torch.randn(BATCH, 3, 16, 16),
        },
        (),
        "mse",
    )
