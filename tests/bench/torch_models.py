"""The models of step_bench.py and gpu_bench.py, as PyTorch code.

Each text defines `model`, `x` and `labels`, and SAMPLES of them. All linear layers are nn.Linear,
whose weights are [out, in]. With a fifth argument the program writes the model's ONNX file there
(needs the package onnx) and ends: both sides then compute the same model.

Transformers have `blocks`, a list of alike modules. Those that can be cut by PyTorch's own APIs for
tensor parallelism and pipelining (`SPLITTABLE`) also have `embed`, `norm`, `head`, and per block
the names of their linear layers in COLUMNS and ROWS; the first CUT blocks are the first of two stages.
"""

BEGIN = r"""
import math, resource, sys, time, torch
import torch.nn as nn, torch.nn.functional as F
steps, precision, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(1)
"""

EXPORT = r"""
if len(sys.argv) > 4:
    torch.onnx.export(model, (x,), sys.argv[4], dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["input"], output_names=["logits"],
                      dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}})
    sys.exit()
"""

GPT2 = r"""
class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.head_size = d // h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        b, s, d = x.shape
        heads = self.qkv(self.ln1(x)).view(b, s, -1, 3, self.head_size)  # of the rank, where they are split
        q, k, v = (t.transpose(1, 2) for t in heads.unbind(3))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

class GPT(nn.Module):
    def __init__(self, v=50257, d=768, layers=12, heads=12):
        super().__init__()
        self.embed, self.positions = nn.Embedding(v, d), nn.Embedding(1024, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
    def forward(self, x):
        h = self.embed(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))

COLUMNS, ROWS, CUT = ["qkv", "up"], ["out", "down"], 9  # the head takes as long as three blocks
model = GPT()
x, labels = torch.randint(0, 50257, (SAMPLES, 257)).unfold(1, 256, 1).transpose(0, 1)
"""

LLAMA = r"""
class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

def rotated(x, cos, sin):  # [b, h, s, d]
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin

class Block(nn.Module):
    def __init__(self, d, h, groups, f):
        super().__init__()
        self.head_size, self.repeats = d // h, h // groups
        self.norm1, self.norm2 = RMSNorm(d), RMSNorm(d)
        self.q, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, groups * self.head_size, bias=False)
        self.v = nn.Linear(d, groups * self.head_size, bias=False)
        self.gate, self.up = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False)
        self.down = nn.Linear(f, d, bias=False)
    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        y = self.norm1(x)
        q, k, v = (layer(y).view(b, s, -1, self.head_size).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (t.repeat_interleave(self.repeats, dim=1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

class Llama(nn.Module):
    def __init__(self, v=8000, d=512, layers=3, heads=8, groups=4, f=1376, length=100):
        super().__init__()
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, d // heads, 2) / (d // heads)))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.embed, self.norm = nn.Embedding(v, d), RMSNorm(d)
        self.blocks = nn.ModuleList(Block(d, heads, groups, f) for _ in range(layers))
        self.head = nn.Linear(d, v, bias=False)
    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, self.cos, self.sin)
        return self.head(self.norm(h))

COLUMNS, ROWS, CUT = ["q", "k", "v", "gate", "up"], ["out", "down"], 2
model = Llama()
x, labels = torch.randint(0, 8000, (SAMPLES, 101)).unfold(1, 100, 1).transpose(0, 1)
"""

# Encoder blocks with a norm behind each addition (BERT) or before each part (ViT).
ENCODER = r"""
class Block(nn.Module):
    def __init__(self, d, h, first):
        super().__init__()
        self.head_size, self.first = d // h, first
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def attend(self, x):
        b, s, _ = x.shape
        q, k, v = (layer(x).view(b, s, -1, self.head_size).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, -1))
    def forward(self, x):
        if self.first:
            x = x + self.attend(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))
"""

BERT = ENCODER + r"""
class BERT(nn.Module):
    def __init__(self, v=8000, d=384, layers=6, heads=6, length=137):
        super().__init__()
        self.embed, self.positions, self.norm = nn.Embedding(v, d), nn.Embedding(length, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(Block(d, heads, False) for _ in range(layers))
        self.head = nn.Linear(d, v)
    def forward(self, x):
        h = self.norm(self.embed(x) + self.positions(torch.arange(x.shape[1])))
        for block in self.blocks:
            h = block(h)
        return self.head(h)

model = BERT()
x, labels = torch.randint(0, 8000, (2, SAMPLES, 137))
"""

VIT = ENCODER + r"""
class ViT(nn.Module):
    def __init__(self, d=384, layers=6, heads=6, classes=1000):
        super().__init__()
        self.patches, self.cls = nn.Conv2d(3, d, 16, 16), nn.Parameter(torch.zeros(1, 1, d))
        self.positions = nn.Parameter(torch.randn(1, 197, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads, True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)
    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.cls.expand(x.shape[0], -1, -1), h), dim=1) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])

model = ViT()
x, labels = torch.randn(SAMPLES, 3, 224, 224), torch.randint(0, 1000, (SAMPLES,))
"""

RESNET50 = r"""
class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x), inplace=True)

class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
        blocks, inputs = [], 64
        for width, count, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks, self.average, self.fc = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d(1), nn.Linear(2048, 1000)
    def forward(self, x):
        x = self.blocks(self.pool(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return self.fc(self.average(x).flatten(1))

model = ResNet50()
x, labels = torch.randn(SAMPLES, 3, 224, 224), torch.randint(0, 1000, (SAMPLES,))
"""

# Code; samples of a step; units of a sample.
MODELS = {
    "gpt2": (GPT2, 4, 256, "tokens"),
    "llama": (LLAMA, 4, 100, "tokens"),
    "bert": (BERT, 4, 137, "tokens"),
    "vit": (VIT, 8, 1, "images"),
    "resnet50": (RESNET50, 8, 1, "images"),
}

SPLITTABLE = ("gpt2", "llama")


def code(model, before=""):
    """Returns the text of a model, from its imports to its export; `before` stands behind the imports."""
    text, samples = MODELS[model][:2]
    return BEGIN + before + text.replace("SAMPLES", str(samples)) + EXPORT
