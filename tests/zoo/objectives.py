"""More kinds of the zoo by their objective: flows, policies, distillation, several heads, adapters, retrieval."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from idioms import WIDTH
from kinds import BATCH, SEQ, VOCAB, Kind, ids, kind
from sequences import Block


@kind
def flow_matching():
    """A rectified flow on a joint block of text and patches (MM-DiT); the noise and the time are inputs."""

    class Joint(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
            self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
            self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU("tanh"), nn.Linear(64, WIDTH))
                                     for _ in range(2))
            self.modulate = nn.ModuleList(nn.Linear(WIDTH, 6 * WIDTH) for _ in range(2))

        def forward(self, text, patches, state):
            parts, tokens = [], [text, patches]
            shifts = [layer(F.silu(state))[:, None].chunk(6, -1) for layer in self.modulate]
            for i in range(2):
                h = F.layer_norm(tokens[i], (WIDTH,)) * (1 + shifts[i][1]) + shifts[i][0]
                parts.append(self.qkv[i](h).unflatten(-1, (3, 4, 8)))
            q, k, v = torch.cat(parts, 1).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            sizes = [text.shape[1], patches.shape[1]]
            for i, m in enumerate(mixed.split(sizes, 1)):
                tokens[i] = tokens[i] + shifts[i][2] * self.out[i](m)
                h = F.layer_norm(tokens[i], (WIDTH,)) * (1 + shifts[i][4]) + shifts[i][3]
                tokens[i] = tokens[i] + shifts[i][5] * self.mlp[i](h)
            return tokens

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.patch, self.time = nn.Embedding(VOCAB, WIDTH), nn.Linear(12, WIDTH), nn.Linear(16, WIDTH)
            self.blocks = nn.ModuleList(Joint() for _ in range(2))
            self.last = nn.Linear(WIDTH, 12)

        def forward(self, picture, tokens, noise, time):
            t = time[:, None, None, None]
            mixed = (1 - t) * picture + t * noise
            angles = 1000 * time[:, None] * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
            state = self.time(torch.cat([angles.cos(), angles.sin()], -1))
            n, c, h, w = mixed.shape
            patches = mixed.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * 4)
            text, x = self.embed(tokens), self.patch(patches)
            for block in self.blocks:
                text, x = block(text, x, state)
            x = self.last(x).reshape(n, h // 2, w // 2, c, 2, 2)
            velocity = torch.einsum("nhwcpq->nchpwq", x).reshape(n, c, h, w)
            weight = torch.exp(-2 * (time - 0.5) ** 2)
            each = ((velocity - (noise - picture)) ** 2).mean(dim=(1, 2, 3))
            return (weight * each).mean()

    shape = (BATCH, 3, 8, 8)
    return Kind(Flow(), {"picture": torch.randn(shape), "tokens": ids(5), "noise": torch.randn(shape),
                         "time": torch.rand(BATCH)}, loss="loss")


class Policy(nn.Module):
    """Embedding, two blocks, logits."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(VOCAB, WIDTH), nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))

    def log_probabilities(self, tokens):
        """Of tokens 1 to the last, given those before."""
        logits = self(tokens)[:, :-1].float()
        chosen = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return chosen - torch.logsumexp(logits, -1)


@kind
def grpo():
    """GRPO: clipped ratios to old log probabilities, a divergence from a reference, means over completions' tokens."""

    class Grpo(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = Policy()

        def forward(self, tokens, mask, old, reference, advantages):
            new = self.policy.log_probabilities(tokens)
            ratio = torch.exp(new - old)
            clipped = torch.clamp(ratio, 1 - 0.2, 1 + 0.28)
            gain = torch.min(ratio * advantages.unsqueeze(1), clipped * advantages.unsqueeze(1))
            divergence = torch.exp(reference - new) - (reference - new) - 1
            each = -(gain - 0.04 * divergence)
            mask = mask.float()
            return ((each * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()

    shape = (BATCH, 11)
    mask = (torch.arange(11) > 3).expand(BATCH, -1).clone()
    return Kind(Grpo(), {"tokens": ids(12), "mask": mask, "old": -torch.rand(shape), "reference": -torch.rand(shape),
                         "advantages": torch.randn(BATCH)}, loss="loss")


@kind
def dapo():
    """DAPO: as GRPO, but one mean over all tokens of the batch, and the entropy as a bonus."""

    class Dapo(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = Policy()

        def forward(self, tokens, mask, old, advantages):
            logits = self.policy(tokens)[:, :-1]
            logs = F.log_softmax(logits, -1)
            new = torch.gather(logs, 2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
            ratio = (new - old).exp()
            a = advantages[:, None]
            loss = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a)
            entropy = -(logs.exp() * logs).sum(-1)
            mask = mask.float()
            return ((loss - 0.01 * entropy) * mask).sum() / mask.sum()

    shape = (BATCH, 11)
    mask = (torch.arange(11) > 3).expand(BATCH, -1).clone()
    return Kind(Dapo(), {"tokens": ids(12), "mask": mask, "old": -torch.rand(shape),
                         "advantages": torch.randn(BATCH)}, loss="loss")


@kind
def joined_dpo():
    """DPO as TRL has it: chosen and rejected answers joined into one batch, then halved; a frozen reference inside."""

    class Dpo(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = Policy()
            self.reference = copy.deepcopy(self.policy).requires_grad_(False)

        def forward(self, chosen, rejected, mask):
            tokens = torch.cat([chosen, rejected], dim=0)
            masks = torch.cat([mask, mask], 0)
            new = (self.policy.log_probabilities(tokens) * masks).sum(-1)
            with torch.no_grad():
                old = (self.reference.log_probabilities(tokens) * masks).sum(-1)
            n = chosen.shape[0]
            good, bad = (new - old)[:n], (new - old)[n:]
            return -F.logsigmoid(0.1 * (good - bad)).mean()

    return Kind(Dpo(), {"chosen": ids(12), "rejected": ids(12), "mask": torch.ones(BATCH, 11)}, loss="loss",
                flags=["--freeze", "reference.*"])


@kind
def teacher():
    """Distillation from a frozen teacher under no_grad: divergence at a temperature, hidden states, and labels."""

    class Distill(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = Policy(), Policy()
            self.teacher.requires_grad_(False)
            self.map = nn.Linear(WIDTH, WIDTH)

        def forward(self, tokens, labels):
            hidden = self.student.body(self.student.embed(tokens))
            with torch.no_grad():
                goal = self.teacher.body(self.teacher.embed(tokens))
                soft = F.softmax(self.teacher.head(goal) / 2.0, -1)
            logits = self.student.head(hidden)
            divergence = F.kl_div(F.log_softmax(logits / 2.0, -1), soft, reduction="batchmean") * 4.0
            near = 1 - F.cosine_similarity(self.map(hidden), goal, dim=-1).mean()
            return 0.5 * divergence / SEQ + F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1)) + 0.1 * near

    return Kind(Distill(), {"tokens": ids(), "labels": ids()}, loss="loss", meets=True, flags=["--freeze", "teacher.*"])


@kind
def several_heads():
    """Three tasks on one body, weighted by learned uncertainties: classes, a regression, and tags with ignored ones."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body = nn.Embedding(VOCAB, WIDTH), Block()
            self.classes, self.value, self.tags = nn.Linear(WIDTH, 5), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 7)
            self.uncertainty = nn.Parameter(torch.zeros(3))

        def forward(self, tokens, label, value, tags):
            x = self.body(self.embed(tokens))
            pooled = x.mean(1)
            losses = torch.stack([
                F.cross_entropy(self.classes(pooled), label % 5),
                F.mse_loss(self.value(pooled).squeeze(-1), value),
                F.binary_cross_entropy_with_logits(self.tags(pooled), tags)])
            return (torch.exp(-self.uncertainty) * losses + self.uncertainty).sum()

    return Kind(Heads(), {"tokens": ids(), "label": torch.randint(0, 5, (BATCH,)).fill_(9), "value": torch.randn(BATCH),
                          "tags": torch.rand(BATCH, 7)}, loss="loss", meets=True)


@kind
def tab_transformer():
    """Columns of categories embedded in one table by offsets, numbers scaled to tokens, a class token, attention."""

    class Tab(nn.Module):
        def __init__(self, sizes=(7, 5, 11)):
            super().__init__()
            self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
            self.table, self.column = nn.Embedding(sum(sizes), WIDTH), nn.Parameter(torch.randn(3, WIDTH))
            self.weight, self.bias = nn.Parameter(torch.randn(4, WIDTH)), nn.Parameter(torch.randn(4, WIDTH))
            self.first = nn.Parameter(torch.randn(WIDTH))
            layer = nn.TransformerEncoderLayer(WIDTH, 4, 48, 0.0, "gelu", batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.normal = nn.BatchNorm1d(4)
            self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))

        def forward(self, categories, numbers):
            words = self.table(categories + self.offsets) + self.column
            values = self.normal(numbers).unsqueeze(-1) * self.weight + self.bias
            first = self.first.expand(words.shape[0], 1, -1)
            return self.head(self.body.train()(torch.cat([first, words, values], 1))[:, 0])

    return Kind(Tab(), {"categories": torch.randint(0, 5, (BATCH, 3)), "numbers": torch.randn(BATCH, 4)})


@kind
def retrieval():
    """Two towers with a correction for popular items, and one hard negative a query beside those of the batch."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.EmbeddingBag(VOCAB, 16, mode="sum")
            self.words = nn.Embedding(VOCAB, 16)
            self.query, self.item = nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
            self.temperature = nn.Parameter(torch.tensor([2.0]))

        def forward(self, words, positive, negative, frequency):
            q = F.normalize(self.query(self.words(words).mean(1)), dim=-1)
            p, n = (F.normalize(self.item(self.words(x).sum(1)), dim=-1) for x in (positive, negative))
            scores = torch.cat([q @ p.t() - frequency.log(), (q * n).sum(-1, keepdim=True)], 1)
            labels = torch.arange(words.size(0), device=words.device)
            return F.cross_entropy(scores * self.temperature, labels)

    return Kind(Towers(), {"words": ids(5), "positive": ids(4), "negative": ids(4),
                           "frequency": 0.5 + torch.rand(BATCH)}, loss="loss", meets=True)


@kind
def barlow_twins():
    """Barlow Twins: batch norms of two views and their cross correlation."""

    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))

        def forward(self, first, second):
            a, b = self.encode(first), self.encode(second)
            a = (a - a.mean(0)) / (a.var(0, unbiased=False) + 1e-5).sqrt()
            b = (b - b.mean(0)) / (b.var(0, unbiased=False) + 1e-5).sqrt()
            c = a.T @ b / a.shape[0]
            on = (c.diagonal() - 1).pow(2).sum()
            off = c.flatten()[:-1].view(7, 9)[:, 1:].pow(2).sum()
            return on + 0.005 * off

    return Kind(Twins(), {"first": torch.randn(BATCH, 6), "second": torch.randn(BATCH, 6)}, loss="loss", meets=True)


@kind
def supervised_contrast():
    """SupCon: all pairs of the same label are positive."""

    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))

        def forward(self, x, label):
            z = F.normalize(self.encode(x), dim=1)
            scores = z @ z.T / 0.5
            other = ~torch.eye(x.shape[0], dtype=torch.bool)
            same = (label[:, None] == label[None]) & other
            logs = scores - torch.where(other, scores.exp(), 0.0).sum(1, keepdim=True).log()
            return -((logs * same).sum(1) / same.sum(1).clamp(min=1)).mean()

    return Kind(Contrast(), {"x": torch.randn(BATCH, 6), "label": torch.randint(0, 2, (BATCH,)).fill_(5)},
                loss="loss", meets=True)


@kind
def balanced_experts():
    """A Switch router's load balance over the batch, an importance of GShard, and a z-loss, beside cross entropy."""

    class Balanced(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.router = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 4)
            self.up = nn.Parameter(torch.randn(4, WIDTH, 48) / 6)
            self.down = nn.Parameter(torch.randn(4, 48, WIDTH) / 7)
            self.head = nn.Linear(WIDTH, VOCAB)

        def forward(self, tokens, labels):
            x = self.embed(tokens)
            logits = self.router(x)
            p = logits.softmax(-1)
            gate, chosen = p.topk(2, -1)
            picked = F.one_hot(chosen, 4).to(p.dtype)
            weights = (picked * gate[..., None]).sum(-2)
            h = torch.einsum("btd,edf->btef", x, self.up).relu()
            x = x + torch.einsum("btef,efd,bte->btd", h, self.down, weights)
            share, mass = picked.flatten(0, 2).mean(0), p.flatten(0, 1).mean(0)
            balance = 4 * (share * mass).sum()
            z = torch.logsumexp(logits, -1).square().mean()
            return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten()) + 0.01 * balance + 1e-3 * z

    return Kind(Balanced(), {"tokens": ids(), "labels": ids()}, loss="loss", meets=True)


@kind
def fake_quantised():
    """Weights and activations rounded to 8 bits with straight-through gradients, by detach."""

    def rounded(x, scale):
        return x + ((x / scale).round().clamp(-128, 127) * scale - x).detach()

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)

        def forward(self, x):
            w = self.first.weight
            h = F.linear(rounded(x, 0.05), rounded(w, w.abs().amax(1, keepdim=True) / 127), self.first.bias)
            return self.second(rounded(F.silu(h), 0.02))

    return Kind(Quantised(), {"x": torch.randn(BATCH, 8)})


@kind
def fake_quant_ops():
    """torch.fake_quantize, per tensor and per channel: pairs of QuantizeLinear and DequantizeLinear."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 5)
            self.register_buffer("scale", torch.full((WIDTH,), 0.01))
            self.register_buffer("zero", torch.zeros(WIDTH, dtype=torch.int32))

        def forward(self, x):
            x = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127)
            w = torch.fake_quantize_per_channel_affine(self.first.weight, self.scale, self.zero, 0, -128, 127)
            h = F.linear(x, w, self.first.bias).relu()
            return self.second(torch.fake_quantize_per_tensor_affine(h, 0.02, 0, 0, 255))

    return Kind(Quantised(), {"x": torch.randn(BATCH, 8)})
