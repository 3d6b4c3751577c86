"""More models of transformers: pictures and video."""

import torch
from torch import nn

from kinds import BATCH, NO_DROPOUT, PATCHES, SEQ, SMALL, VOCAB, Kind, Pixels, config_of, ids, image, keep_scale, kind

# --- Pictures. ---


def pixels(model_class, config_class, size=32, name=0, loss="cross-entropy", **options):
    import transformers

    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**options))
    return Kind(Pixels(model, name), {"pixel_values": torch.randn(BATCH, 3, size, size)}, (), loss)


@kind
def swinv2():
    return pixels(
        "Swinv2ForImageClassification",
        "Swinv2Config",
        name="logits",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
        drop_path_rate=0.0,
    )


@kind
def convnextv2():
    return pixels(
        "ConvNextV2ForImageClassification",
        "ConvNextV2Config",
        name="logits",
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 2, 1],
        num_labels=10,
    )


@kind
def efficientnet():
    return pixels(
        "EfficientNetForImageClassification",
        "EfficientNetConfig",
        name="logits",
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=320,
        num_labels=10,
        dropout_rate=0.0,
        drop_connect_rate=0.0,
    )


@kind
def mobilevit():
    return pixels(
        "MobileViTForImageClassification",
        "MobileViTConfig",
        name="logits",
        size=64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=4,
        num_labels=10,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )


@kind
def levit():
    return pixels(
        "LevitForImageClassification",
        "LevitConfig",
        name="logits",
        size=64,
        image_size=64,
        hidden_sizes=[16, 32, 32],
        num_attention_heads=[2, 4, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
        drop_path_rate=0,
        mlp_ratio=[2, 2, 2],
        attention_ratio=[2, 2, 2],
        num_labels=10,
    )


@kind
def segformer():
    return pixels(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        size=64,
        name="logits",
        loss="mse",
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
        num_labels=5,
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
    )


@kind
def dpt():
    return pixels(
        "DPTForDepthEstimation",
        "DPTConfig",
        name="predicted_depth",
        loss="mse",
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        is_hybrid=False,
        num_labels=1,
    )


@kind
def depth_anything():
    import transformers

    backbone = transformers.Dinov2Config(
        **{**PATCHES, "num_hidden_layers": 4}, mlp_ratio=2, out_indices=[1, 2, 3, 4], reshape_hidden_states=False,
        apply_layernorm=True,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, patch_size=8, reassemble_hidden_size=32, neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=8, head_hidden_size=8,
    )
    model = transformers.DepthAnythingForDepthEstimation(config)
    return Kind(Pixels(model, "predicted_depth"), {"pixel_values": torch.randn(BATCH, 3, 32, 32)}, (), "mse")


def small_resnet():
    import transformers

    return transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage1", "stage2"], layer_type="basic"
    )


@kind
def detr():
    import transformers

    config = transformers.DetrConfig(
        backbone_config=small_resnet(),
        use_timm_backbone=False,
        backbone=None,
        use_pretrained_backbone=False,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_queries=6,
        num_labels=5,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    return image(transformers.DetrForObjectDetection(config), 64)


@kind
def deformable_detr():
    import transformers

    config = transformers.DeformableDetrConfig(
        backbone_config=small_resnet(),
        use_timm_backbone=False,
        backbone=None,
        use_pretrained_backbone=False,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        encoder_n_points=2,
        decoder_n_points=2,
        num_feature_levels=2,
        num_queries=6,
        num_labels=5,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        tie_word_embeddings=False,
    )
    return image(transformers.DeformableDetrForObjectDetection(config), 64)


@kind
def rt_detr():
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 24, 32],
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        decoder_in_channels=[32, 32, 32],
        d_model=32,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        decoder_n_points=2,
        num_queries=6,
        num_denoising=0,
        num_labels=5,
        dropout=0.0,
        hidden_expansion=0.5,
    )
    return image(transformers.RTDetrForObjectDetection(config), 64)


@kind
def sam():
    import transformers

    config = transformers.SamConfig(
        vision_config=dict(
            hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=32,
            patch_size=8, window_size=2, global_attn_indexes=[1], mlp_dim=48, num_pos_feats=8,
        ),
        prompt_encoder_config=dict(hidden_size=16, image_size=32, patch_size=8, mask_input_channels=4),
        mask_decoder_config=dict(
            hidden_size=16, mlp_dim=24, num_hidden_layers=1, num_attention_heads=2, iou_head_hidden_dim=16,
        ),
    )
    model = transformers.SamModel(config)

    class Sam(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixel_values, points):
            return self.model(pixel_values=pixel_values, input_points=points, multimask_output=True).pred_masks

    return Kind(
        Sam(), {"pixel_values": torch.randn(BATCH, 3, 32, 32), "points": torch.rand(BATCH, 1, 2, 2)}, (), "mse"
    )


@kind
def videomae():
    import transformers

    config = transformers.VideoMAEConfig(**PATCHES, num_frames=4, tubelet_size=2)
    return Kind(
        Pixels(transformers.VideoMAEForVideoClassification(config)),
        {"pixel_values": torch.randn(BATCH, 4, 3, 32, 32)},
        (),
    )


@kind
def timesformer():
    import transformers

    config = transformers.TimesformerConfig(**PATCHES, num_frames=4)
    return Kind(
        Pixels(transformers.TimesformerForVideoClassification(config)),
        {"pixel_values": torch.randn(BATCH, 4, 3, 32, 32)},
        (),
    )


# --- Pictures and text. ---


@kind
def llava():
    import transformers

    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**{**PATCHES, "image_size": 16}),
        text_config=config_of("LlamaConfig"),
        image_token_index=96,
        image_token_id=96,
        vision_feature_layer=-1,
    )
    model = transformers.LlavaForConditionalGeneration._from_config(config, attn_implementation="eager")

    class Llava(nn.Module):
        """The first four tokens of a sample are its picture."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, pixel_values):
            picture = torch.full_like(input_ids[:, :4], 96)
            tokens = torch.cat([picture, input_ids.clamp(max=95)], 1)
            mask = torch.ones_like(tokens)
            return self.model(
                input_ids=tokens, attention_mask=mask, pixel_values=pixel_values, use_cache=False
            ).logits

    return Kind(Llava(), {"input_ids": ids(12), "pixel_values": torch.randn(BATCH, 3, 16, 16)}, ())


@kind
def blip2_qformer():
    import transformers

    config = transformers.Blip2QFormerConfig(
        **SMALL, vocab_size=VOCAB, encoder_hidden_size=24, cross_attention_frequency=1, **NO_DROPOUT
    )
    model = transformers.Blip2QFormerModel(config)

    class Queries(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            self.queries = nn.Parameter(torch.randn(1, 6, 32))

        def forward(self, picture):
            queries = self.queries.expand(picture.shape[0], -1, -1)
            return self.model(query_embeds=queries, encoder_hidden_states=picture).last_hidden_state

    return Kind(Queries(), {"picture": torch.randn(BATCH, 10, 24)}, (), "mse")


@kind
def siglip():
    import transformers

    text = {**SMALL, "vocab_size": VOCAB, "max_position_embeddings": SEQ, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "projection_size": 32}
    vision = {**SMALL, "image_size": 16, "patch_size": 8}
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))

    class Siglip(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = keep_scale(model)

        def forward(self, input_ids, pixel_values):
            return self.model(input_ids=input_ids, pixel_values=pixel_values, return_loss=True).loss

    examples = {"input_ids": ids(), "pixel_values": torch.randn(BATCH, 3, 16, 16)}
    return Kind(Siglip(), examples, loss="loss", meets=True)


@kind
def vilt():
    import transformers

    config = transformers.ViltConfig(**PATCHES, vocab_size=VOCAB, max_position_embeddings=SEQ, max_image_length=-1,
                                     **NO_DROPOUT)
    model = transformers.ViltForQuestionAnswering(config)

    class Vilt(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, pixel_values):
            mask = torch.ones_like(pixel_values[:, 0], dtype=torch.int64)
            return self.model(input_ids=input_ids, pixel_values=pixel_values, pixel_mask=mask).logits

    return Kind(Vilt(), {"input_ids": ids(8), "pixel_values": torch.randn(BATCH, 3, 32, 32)}, ())
