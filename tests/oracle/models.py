"""Random models in PyTorch, each from its seed alone.

A model is a chain of layers over one value: an image [b, c, h, w], a sequence [b, s, d] or rows [b,
d]. A layer may change the kind. Sizes are small and mostly odd. Only `module.parameters()` is
trained: masks and tables are buffers or constants.

Example: `make(7)` returns a `Model` whose `module(x)` takes `x` of shape [BATCH,
*model.input_shape].
"""

import math
import random
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

BATCH = 4


@dataclass
class Model:
    """A module with its input and its loss.

    `vocabulary` > 0: inputs are token numbers below it, else floats. `classes` > 0: the loss is
    cross-entropy over that many classes along the last dim of the output. `classes` = 0: it is the
    mean squared difference to labels of the output's shape. `layers` names the model's layers, for
    reports. `has_batch_norm`: a micro-batch must be the whole batch.
    """

    module: nn.Module
    input_shape: tuple
    vocabulary: int
    classes: int
    layers: list = field(default_factory=list)
    has_batch_norm: bool = False


class Apply(nn.Module):
    """A function without parameters as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return x + self.body(x)


class Scaled(nn.Module):
    """x * body(x)."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return x * self.body(x)


class Concat(nn.Module):
    """Concatenates x and body(x) along `dim`."""

    def __init__(self, body, dim):
        super().__init__()
        self.body, self.dim = body, dim

    def forward(self, x):
        return torch.cat([x, self.body(x)], self.dim)


class Twice(nn.Module):
    """Applies the same layer twice: shared weights."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(torch.tanh(self.body(x)))


class Attention(nn.Module):
    """Self-attention over [b, s, d].

    `causal` masks later positions by a buffer of -inf, or by a large negative number added to the
    scores. `kv_heads` < heads shares keys and values among heads.
    """

    def __init__(self, width, heads, kv_heads, length, causal):
        super().__init__()
        self.heads, self.kv_heads, self.each, self.causal = heads, kv_heads, width // heads, causal
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, kv_heads * self.each, bias=False)
        self.v = nn.Linear(width, kv_heads * self.each)
        self.out = nn.Linear(width, width)
        above = torch.ones(length, length).triu(1)
        if causal == "additive":
            self.register_buffer("mask", above * -1e9)
        elif causal == "fill":
            self.register_buffer("mask", above.bool())

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda y, heads: y.reshape(batch, length, heads, self.each).transpose(1, 2)
        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.kv_heads), split(self.v(x), self.kv_heads)
        if self.kv_heads < self.heads:
            times = self.heads // self.kv_heads
            k, v = (y[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, self.heads, length, self.each) for y in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(self.each)
        if self.causal == "additive":
            scores = scores + self.mask
        elif self.causal == "fill":
            scores = scores.masked_fill(self.mask, float("-inf"))
        mixed = torch.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Recurrent(nn.Module):
    """An RNN, GRU or LSTM over [b, s, d] with all its outputs."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        return self.cell(x)[0]


class Positions(nn.Module):
    """Adds a learnt vector per position."""

    def __init__(self, length, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width) * 0.1)

    def forward(self, x):
        return x + self.table


class Scale(nn.Module):
    """Multiplies by a learnt factor per element of the last dim, or by one for all."""

    def __init__(self, width):
        super().__init__()
        self.factor = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * self.factor


class Gate(nn.Module):
    """Multiplies x by the sigmoid of a learnt mixture of its last dim, by an einsum."""

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(width, width) * 0.3)

    def forward(self, x):
        return x * torch.sigmoid(torch.einsum("...i,ij->...j", x, self.mix))


# Functions along the last dim that keep the shape, by their name in reports.
FUNCTIONS = {
    "abs": lambda x: torch.abs(x) + 0.1 * x,
    "clamp": lambda x: x.clamp(-0.8, 1.2),
    "cube": lambda x: x.pow(3) * 0.2,
    "cumulative sum": lambda x: x.cumsum(-1) * 0.5,
    "exp": lambda x: torch.exp(x * 0.5) - 1,
    "flip": lambda x: x.flip(-1) * 0.7 + x,
    "log": lambda x: torch.log1p(x * x),
    "log softmax": lambda x: functional.log_softmax(x, -1),
    "maximum": lambda x: torch.maximum(x, x.flip(-1) * 0.5),
    "normalize": lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 0.1),
    "roll": lambda x: torch.roll(x, 1, -1) - x * 0.3,
    "root": lambda x: torch.sqrt(x * x + 0.5),
    "sine": lambda x: torch.sin(x) + 0.3 * x,
    "standardize": lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 0.2).sqrt(),
    "where": lambda x: torch.where(x > 0.1, x * 0.5, x - 0.2),
}


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class TiedHead(nn.Module):
    """A token model that scores classes by its embedding table."""

    def __init__(self, embedding, body):
        super().__init__()
        self.embedding, self.body = embedding, body

    def forward(self, tokens):
        return self.body(self.embedding(tokens)) @ self.embedding.weight.t()


class Maker:
    """Draws one model. `shape` is the current value's, without the batch."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.layers = []
        self.modules = []
        self.has_batch_norm = False

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def add(self, name, module, shape):
        self.layers.append(name)
        self.modules.append(module)
        self.shape = tuple(shape)

    def activation(self):
        name = self.pick("ReLU", "Tanh", "Sigmoid", "GELU", "SiLU", "ELU", "LeakyReLU", "Softplus", "Hardswish")
        return name, getattr(nn, name)()

    def make(self):
        kind = self.pick("image", "image", "image", "tokens", "tokens", "sequence", "rows")
        vocabulary, embedding = 0, None
        if kind == "image":
            input_shape = (self.pick(1, 2, 3, 4), self.pick(4, 5, 6, 7, 8, 9, 12), self.pick(4, 5, 6, 7, 8, 9))
            self.shape = input_shape
        elif kind == "tokens":
            vocabulary, width = self.pick(5, 7, 11, 16), self.pick(4, 6, 8, 12)
            input_shape = (self.pick(2, 3, 5, 7, 8),)
            embedding = nn.Embedding(vocabulary, width)
            self.shape = (*input_shape, width)
        elif kind == "sequence":
            input_shape = self.shape = (self.pick(2, 3, 5, 7, 9), self.pick(3, 4, 6, 8))
        else:
            input_shape = self.shape = (self.pick(3, 5, 8, 13),)
        for _ in range(self.random.randint(2, 6)):
            self.add_layer()
        if embedding is not None and len(self.shape) == 2 and self.shape[1] == embedding.weight.shape[1] and self.chance(0.4):
            self.layers.append("tied head")
            module = TiedHead(embedding, nn.Sequential(*self.modules))
            return Model(module, input_shape, vocabulary, vocabulary, self.layers, self.has_batch_norm)
        if embedding is not None:
            self.modules.insert(0, embedding)
            self.layers.insert(0, "Embedding")
        return self.finish(input_shape, vocabulary)

    def finish(self, input_shape, vocabulary):
        while len(self.shape) == 3:
            self.image_to_other()
        if len(self.shape) == 2 and self.chance(0.5):
            self.to_rows()
        classes = self.pick(0, 2, 3, 5, 7)
        outputs = classes or self.pick(1, 2, 3, 4)
        self.add("head", nn.Linear(self.shape[-1], outputs), (*self.shape[:-1], outputs))
        return Model(nn.Sequential(*self.modules), input_shape, vocabulary, classes, self.layers, self.has_batch_norm)

    def add_layer(self):
        if self.chance(0.15):
            name = self.pick(*FUNCTIONS)
            self.add(name, Apply(FUNCTIONS[name]), self.shape)
            return
        [self.add_to_rows, self.add_to_sequence, self.add_to_image][len(self.shape) - 1]()

    # -- Rows ------------------------------------------------------------------------------------------

    def add_to_rows(self):
        (width,) = self.shape
        choice = self.pick("linear", "linear", "norm", "batch norm", "activation", "residual", "gather", "split", "glu", "shared", "gate",
                           "prelu", "largest", "stack")
        if choice == "linear":
            outputs = self.pick(3, 4, 5, 7, 8)
            self.add(choice, nn.Linear(width, outputs, bias=self.chance(0.7)), (outputs,))
        elif choice == "norm":
            self.add("layer norm", nn.LayerNorm(width), self.shape)
        elif choice == "batch norm":
            self.has_batch_norm = True
            self.add(choice, nn.BatchNorm1d(width), self.shape)
        elif choice == "activation":
            name, module = self.activation()
            self.add(name, module, self.shape)
        elif choice == "residual":
            body = nn.Sequential(nn.Linear(width, 5), self.activation()[1], nn.Linear(5, width))
            self.add(choice, Residual(body), self.shape)
        elif choice == "gather":
            places = [self.random.randrange(width) for _ in range(self.pick(2, 3, 5))]
            self.add(choice, Apply(lambda x: x[:, torch.tensor(places)]), (len(places),))
        elif choice == "split" and width % 2 == 0:
            self.add(choice, Apply(lambda x: torch.cat([x[:, width // 2:], x[:, : width // 2] * 2], 1)), self.shape)
        elif choice == "glu" and width % 2 == 0:
            self.add(choice, nn.GLU(1), (width // 2,))
        elif choice == "shared":
            self.add(choice, Twice(nn.Linear(width, width)), self.shape)
        elif choice == "gate":
            self.add(choice, Gate(width), self.shape)
        elif choice == "prelu":
            self.add(choice, nn.PReLU(self.pick(1, width)), self.shape)
        elif choice == "largest" and width > 3:
            self.add(choice, Apply(lambda x: torch.cat([x.topk(2, 1).values, x[:, ::2]], 1)), (2 + (width + 1) // 2,))
        elif choice == "stack" and width <= 8:
            self.add(choice, Apply(lambda x: torch.stack([x, x * x, x.roll(1, 1)], 1)), (3, width))

    # -- Sequences -------------------------------------------------------------------------------------

    def add_to_sequence(self):
        length, width = self.shape
        choice = self.pick("attention", "attention", "mlp", "swiglu", "norm", "rms norm", "recurrent", "recurrent", "positions",
                           "conv1d", "linear", "scale", "shared", "softmax", "to rows", "shift", "to image", "gate", "take",
                           "outer", "batch norm")
        if choice == "attention":
            heads = self.pick(*[h for h in (1, 2, 3, 4) if width % h == 0])
            kv_heads = self.pick(*[h for h in (1, 2, heads) if heads % h == 0])
            causal = self.pick("", "additive", "fill")
            attention = Attention(width, heads, kv_heads, length, causal)
            name = f"attention {heads}/{kv_heads} {causal}".strip()
            self.add(name, Residual(nn.Sequential(nn.LayerNorm(width), attention)), self.shape)
        elif choice == "mlp":
            hidden = self.pick(5, 8, 12)
            body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            self.add(choice, Residual(body), self.shape)
        elif choice == "swiglu":
            self.add(choice, Residual(SwiGlu(width, self.pick(5, 8))), self.shape)
        elif choice == "norm":
            self.add("layer norm", nn.LayerNorm(width), self.shape)
        elif choice == "rms norm":
            self.add(choice, RmsNorm(width), self.shape)
        elif choice == "recurrent":
            kind, hidden, both = self.pick("RNN", "GRU", "LSTM"), self.pick(2, 3, 5), self.chance(0.3)
            layers = 2 if self.chance(0.2) else 1
            cell = getattr(nn, kind)(width, hidden, layers, batch_first=True, bidirectional=both, bias=self.chance(0.8))
            self.add(f"{kind} x{layers}{' both ways' if both else ''}", Recurrent(cell), (length, hidden * (2 if both else 1)))
        elif choice == "positions":
            self.add(choice, Positions(length, width), self.shape)
        elif choice == "conv1d":
            outputs = self.pick(3, 4, 6)
            body = nn.Sequential(Apply(lambda x: x.transpose(1, 2)), nn.Conv1d(width, outputs, 3, padding=1),
                                 Apply(lambda x: x.transpose(1, 2)))
            self.add(choice, body, (length, outputs))
        elif choice == "linear":
            outputs = self.pick(3, 4, 6, 8)
            self.add(choice, nn.Linear(width, outputs, bias=self.chance(0.7)), (length, outputs))
        elif choice == "scale":
            self.add(choice, Scale(width), self.shape)
        elif choice == "shared":
            self.add(choice, Twice(nn.Linear(width, width)), self.shape)
        elif choice == "softmax":
            self.add(choice, Apply(lambda x: torch.softmax(x, -1) * x), self.shape)
        elif choice == "gate":
            self.add(choice, Gate(width), self.shape)
        elif choice == "take":
            places = [self.random.randrange(length) for _ in range(self.pick(2, 3, 4))]
            self.add(choice, Apply(lambda x: x[:, torch.tensor(places)]), (len(places), width))
        elif choice == "outer" and length <= 6:
            self.add(choice, Apply(lambda x: (x @ x.transpose(1, 2)) * 0.3), (length, length))
        elif choice == "batch norm":
            self.has_batch_norm = True
            body = nn.Sequential(Apply(lambda x: x.transpose(1, 2)), nn.BatchNorm1d(width), Apply(lambda x: x.transpose(1, 2)))
            self.add(choice, body, self.shape)
        elif choice == "shift" and length > 2:
            self.add(choice, Apply(lambda x: x[:, 1:] - x[:, :-1]), (length - 1, width))
        elif choice == "to rows" and self.chance(0.4):
            self.to_rows()
        elif choice == "to image" and self.chance(0.4) and length * width >= 6:
            self.add(choice, Apply(lambda x: x.unsqueeze(1)), (1, length, width))

    def to_rows(self):
        length, width = self.shape
        choice = self.pick("mean", "last", "max", "flatten")
        if choice == "mean":
            self.add("mean over the sequence", Apply(lambda x: x.mean(1)), (width,))
        elif choice == "last":
            self.add("last of the sequence", Apply(lambda x: x[:, -1]), (width,))
        elif choice == "max":
            self.add("largest of the sequence", Apply(lambda x: x.amax(1)), (width,))
        else:
            self.add("flatten", nn.Flatten(), (length * width,))

    # -- Images ----------------------------------------------------------------------------------------

    def add_to_image(self):
        channels, height, width = self.shape
        choice = self.pick("conv", "conv", "conv", "batch norm", "batch norm", "group norm", "instance norm", "layer norm",
                           "activation", "activation", "max pool", "average pool", "global pool", "residual", "concat",
                           "shared", "transposed conv", "pad", "crop", "upsample", "to other", "reflect", "shuffle",
                           "squeeze and excite")
        if choice == "conv":
            self.conv(nn.Conv2d)
        elif choice == "transposed conv":
            outputs, kernel, stride = self.pick(2, 3, 4), self.pick(2, 3), self.pick(1, 2)
            grown = [(size - 1) * stride + kernel for size in (height, width)]
            if max(grown) <= 12:
                self.add(choice, nn.ConvTranspose2d(channels, outputs, kernel, stride), (outputs, *grown))
        elif choice == "batch norm":
            self.has_batch_norm = True
            self.add(choice, nn.BatchNorm2d(channels), self.shape)
        elif choice == "group norm":
            groups = self.pick(*[g for g in (1, 2, channels) if channels % g == 0])
            if height * width * channels // groups > 1:
                self.add(choice, nn.GroupNorm(groups, channels), self.shape)
        elif choice == "instance norm" and height * width > 1:
            self.add(choice, nn.InstanceNorm2d(channels, affine=True), self.shape)
        elif choice == "layer norm":
            self.add(choice, nn.LayerNorm([channels, height, width]), self.shape)
        elif choice == "activation":
            name, module = self.activation()
            self.add(name, module, self.shape)
        elif choice in ("max pool", "average pool"):
            self.pool(choice)
        elif choice == "global pool":
            self.add(choice, nn.AdaptiveAvgPool2d(1), (channels, 1, 1))
        elif choice == "residual":
            body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), self.activation()[1])
            self.add(choice, Residual(body), self.shape)
        elif choice == "concat" and channels <= 6:
            self.add(choice, Concat(nn.Conv2d(channels, 2, 1), 1), (channels + 2, height, width))
        elif choice == "shared":
            self.add(choice, Twice(nn.Conv2d(channels, channels, 3, padding=1)), self.shape)
        elif choice == "pad" and max(height, width) <= 9:
            self.add(choice, Apply(lambda x: functional.pad(x, (1, 0, 2, 1))), (channels, height + 3, width + 1))
        elif choice == "reflect" and 2 < max(height, width) <= 9 and min(height, width) > 1:
            self.add(choice, nn.ReflectionPad2d(1), (channels, height + 2, width + 2))
        elif choice == "shuffle" and channels % 4 == 0 and max(height, width) <= 6:
            self.add(choice, nn.PixelShuffle(2), (channels // 4, 2 * height, 2 * width))
        elif choice == "squeeze and excite":
            body = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.ReLU(), nn.Conv2d(2, channels, 1), nn.Sigmoid())
            self.add(choice, Scaled(body), self.shape)
        elif choice == "crop" and height > 3 and width > 3:
            self.add(choice, Apply(lambda x: x[:, :, 1:, :-1]), (channels, height - 1, width - 1))
        elif choice == "upsample" and max(height, width) <= 6:
            self.add(choice, nn.Upsample(scale_factor=2, mode="nearest"), (channels, 2 * height, 2 * width))
        elif choice == "to other" and self.chance(0.5):
            self.image_to_other()

    def conv(self, kind):
        channels, *sizes = self.shape
        kernel, stride, padding, dilation = self.pick(1, 2, 3, 3), self.pick(1, 1, 2), self.pick(0, 1), self.pick(1, 1, 1, 2)
        made = [(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes]
        groups = self.pick(*[g for g in (1, 1, channels) if channels % g == 0])
        outputs = groups * self.pick(1, 2) if groups > 1 else self.pick(2, 3, 4, 5, 8)
        if min(made) >= 1:
            module = kind(channels, outputs, kernel, stride, padding, dilation, groups, bias=self.chance(0.7))
            self.add(f"conv {kernel}/{stride}", module, (outputs, *made))

    def pool(self, name):
        channels, *sizes = self.shape
        kernel, stride, padding = self.pick(2, 2, 3), self.pick(1, 2, 2, 3), self.pick(0, 0, 1)
        ceil = self.chance(0.2)
        made = []
        for size in sizes:
            spare = size + 2 * padding - kernel
            count = (-(-spare // stride) if ceil else spare // stride) + 1
            if ceil and (count - 1) * stride >= size + padding:
                count -= 1
            made.append(count)
        if min(size + 2 * padding - kernel for size in sizes) < 0 or min(made) < 1 or 2 * padding > kernel:
            return
        if name == "max pool":
            module = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil)
        else:
            module = nn.AvgPool2d(kernel, stride, padding, ceil_mode=False, count_include_pad=self.chance(0.5))
            made = [(size + 2 * padding - kernel) // stride + 1 for size in sizes]
        self.add(f"{name} {kernel}/{stride}", module, (channels, *made))

    def image_to_other(self):
        channels, height, width = self.shape
        choice = self.pick("rows", "rows", "mean", "sequence")
        if choice == "rows" and channels * height * width <= 128:
            self.add("flatten", nn.Flatten(), (channels * height * width,))
        elif choice == "sequence" and height * width <= 25:
            self.add("pixels as a sequence", Apply(lambda x: x.flatten(2).transpose(1, 2)), (height * width, channels))
        else:
            self.add("mean over the image", Apply(lambda x: x.mean((2, 3))), (channels,))


def make(seed):
    """Returns the model of a seed, the same on every machine with the same PyTorch."""
    torch.manual_seed(seed)
    model = Maker(seed).make()
    with torch.no_grad():  # noise on all parameters, because a bias of zero would hide its effect
        for parameter in model.module.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model
