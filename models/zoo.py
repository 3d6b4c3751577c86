"""The models of this folder as PyTorch modules: one entry of MODELS per .onnx file.

Every model is built from hyper-parameters and a fixed seed; nothing is pretrained or downloaded. Dropout is
in the module; `reference.py` switches it off, because two frameworks never draw the same numbers.

Shape letters: B batch, T sequence, D width, H heads, E experts, F hidden width of an expert.
"""

import math
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

SEED_WEIGHTS = 1234
SEED_VECTORS = 99
DROPOUT = 0.1


@dataclass(frozen=True)
class Model:
    """How one file is made.

    `build`      makes the module, under SEED_WEIGHTS.
    `input_name` graph input; `input_shape` for one sample, `vocabulary` > 0 for token inputs.
    `exporter`   "dynamo", or "torchscript" where batch norm has to stay in training mode.
    `training`   export in training mode: dropout and batch norm stay as they train.
    """

    build: Callable[[], nn.Module]
    input_name: str
    input_shape: tuple
    vocabulary: int = 0
    classes: int = 10
    exporter: str = "dynamo"
    opset: int = 18
    training: bool = False


class TinyMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(32, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, input):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(input)))))


# -- Residual convolution nets ------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.down is None else self.down(x)))


class SmallResNet(nn.Module):
    """`widths`: one residual block each; a block that widens also halves the image."""

    def __init__(self, widths, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = len(widths)
        for i, (inputs, outputs) in enumerate(zip((widths[0], *widths), widths)):
            setattr(self, f"layer{i + 1}", BasicBlock(inputs, outputs, 2 if outputs > inputs else 1))
        self.avg = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(self.blocks):
            x = getattr(self, f"layer{i + 1}")(x)
        x = torch.flatten(self.avg(x), 1)
        return self.fc(x if self.dropout is None else self.dropout(x))


# -- Transformers of our own ---------------------------------------------------------------------------


class SelfAttention(nn.Module):
    """Fused query, key and value projection; `causal`: position i sees positions <= i."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x_BTD):
        batch, length, width = x_BTD.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in self.qkv(x_BTD).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Pre-norm block around `mlp`."""

    def __init__(self, width, heads, mlp, causal):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = mlp
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class SkipTransformer(nn.Module):
    """U-shaped: block i of the second half reads the output of block (layers - 1 - i) of the first.

    Classifies an image given as T patches of 24 numbers. The outermost skip spans the whole network, so a
    pipeline sends it from its first stage to its last.
    """

    def __init__(self, layers=8, width=32, heads=4, patches=16):
        super().__init__()
        half = layers // 2
        make = lambda: TransformerBlock(  # noqa: E731
            width,
            heads,
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
            causal=False,
        )
        self.embed = nn.Linear(24, width)
        self.position = nn.Parameter(torch.zeros(1, patches, width))
        self.down = nn.ModuleList(make() for _ in range(half))
        self.up = nn.ModuleList(make() for _ in range(half))
        self.merge = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(half))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)
        nn.init.normal_(self.position, std=0.1)

    def forward(self, input):
        x = self.embed(input) + self.position
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for merge, block in zip(self.merge, self.up):
            x = block(merge(torch.cat((x, skips.pop()), dim=-1)))
        return self.head(self.norm(x).mean(dim=1))


class MixtureOfExperts(nn.Module):
    """Each token goes to the `top` of E experts that its router likes best.

    Written densely: every expert computes every token, and the weights of those not chosen are zero. So
    the graph has no shape that depends on data.
    """

    def __init__(self, width, experts, hidden, top):
        super().__init__()
        self.top, self.experts = top, experts
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down = nn.Parameter(torch.empty(experts, width, hidden))
        nn.init.normal_(self.gate_up, std=1 / math.sqrt(width))
        nn.init.normal_(self.down, std=1 / math.sqrt(hidden))

    def forward(self, x_BTD):
        x_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        probability_NE = torch.softmax(self.router(x_ND), dim=-1)
        weight_NK, expert_NK = torch.topk(probability_NE, self.top, dim=-1)
        weight_NK = weight_NK / weight_NK.sum(dim=-1, keepdim=True)
        chosen_NKE = functional.one_hot(expert_NK, self.experts).to(weight_NK.dtype)
        weight_NE = (chosen_NKE * weight_NK.unsqueeze(-1)).sum(dim=1)
        gate_ENF, up_ENF = torch.einsum("nd,efd->enf", x_ND, self.gate_up).chunk(2, dim=-1)
        y_END = torch.einsum("enf,edf->end", functional.silu(gate_ENF) * up_ENF, self.down)
        return torch.einsum("end,ne->nd", y_END, weight_NE).reshape(x_BTD.shape)


class MoeTransformer(nn.Module):
    """A causal language model whose blocks all have experts."""

    def __init__(self, layers=8, width=24, heads=4, experts=4, hidden=32, top=2, vocabulary=64, context=32):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, heads, MixtureOfExperts(width, experts, hidden, top), causal=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.dropout(self.tokens(input_ids) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# -- Hugging Face's classes ----------------------------------------------------------------------------


def gpt2(layers=2, width=64, vocabulary=256, context=64, dropout=0.0, **options):
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        initializer_range=0.1,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        **options,
    )
    return GPT2LMHeadModel(config)


def llama(layers=2, width=64, hidden=128, vocabulary=256, context=64, dropout=0.0, **options):
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        initializer_range=0.1,
        attention_dropout=dropout,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        **options,
    )
    return LlamaForCausalLM(config)


def bert(layers=2, width=32, vocabulary=96, context=32):
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=context,
        initializer_range=0.1,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="eager",
    )
    return BertForMaskedLM(config)


# Attention as plain ops, so that dropout on its probabilities is a node of the graph.
_eager = {"attn_implementation": "eager"}

MODELS = {
    "tiny-mlp": Model(TinyMLP, "input", (32,)),
    "tiny-gpt2": Model(gpt2, "input_ids", (32,), vocabulary=256),
    "tiny-llama": Model(llama, "input_ids", (32,), vocabulary=256),
    "tiny-resnet": Model(
        lambda: SmallResNet((16, 32, 64)),
        "input",
        (3, 16, 16),
        exporter="torchscript",
        opset=17,
        training=True,
    ),
    # A tied matrix of up to 8192 elements would be stored twice, once transposed: hence the vocabulary.
    "gpt2-8l": Model(
        lambda: gpt2(8, 32, vocabulary=320, context=32, dropout=DROPOUT, **_eager),
        "input_ids",
        (16,),
        vocabulary=320,
        training=True,
    ),
    "llama-8l": Model(
        lambda: llama(8, 32, 64, vocabulary=64, context=32, dropout=DROPOUT, **_eager),
        "input_ids",
        (16,),
        vocabulary=64,
        training=True,
    ),
    "resnet-8b": Model(
        lambda: SmallResNet((8, 8, 8, 16, 16, 16, 24, 24), dropout=DROPOUT),
        "input",
        (3, 16, 16),
        exporter="torchscript",
        opset=17,
        training=True,
    ),
    "unet-8l": Model(SkipTransformer, "input", (16, 24), training=True),
    "moe-8l": Model(MoeTransformer, "input_ids", (16,), vocabulary=64, training=True),
}


# Without reference runs. `input_name` is the second input, beside input_ids, from which the mask follows: padding,
# or positions that start again with each document of a packed sequence.
MASKED = {
    "masked-bert": Model(bert, "attention_mask", (16,), vocabulary=96, exporter="torchscript", opset=17),
    "packed-llama": Model(
        lambda: llama(2, 32, 64, vocabulary=96, context=32), "position_ids", (16,), vocabulary=96
    ),
}


def vary_vectors(module):
    """Moves norms and biases away from 1 and 0.

    There, a mistake in their gradients or their layout could hide, and exporters merge equal ones and drop
    zeros.
    """
    generator = torch.Generator().manual_seed(SEED_VECTORS)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def build(name):
    """Returns the module of MODELS[name] with its initial weights, the same ones every time."""
    torch.manual_seed(SEED_WEIGHTS)
    module = MODELS[name].build()
    vary_vectors(module)
    return module.train(MODELS[name].training)
