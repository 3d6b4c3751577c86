"""Models of the zoo that mix: samples of a batch, pictures and text, experts, positions by content."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from idioms import WIDTH
from kinds import BATCH, SEQ, VOCAB, Kind, ids, kind
from sequences import Block, tokens_kind
from tasks import mlp


# --- Samples that meet. ---


class Encoder(nn.Module):
    """Unit vectors of token lists: a mean and two layers."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(VOCAB, WIDTH), mlp(WIDTH, WIDTH, 16)

    def forward(self, tokens):
        return F.normalize(self.body(self.embed(tokens).mean(1)), dim=-1)


@kind
def hard_negatives():
    """One encoder of queries and passages: positives and hard negatives of all samples are candidates, [2 batch]."""

    class Ranking(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = Encoder()

        def forward(self, query, positive, negative):
            q = self.encode(query)
            candidates = torch.cat([self.encode(positive), self.encode(negative)])
            return F.cross_entropy(20 * q @ candidates.T, torch.arange(q.shape[0]))

    return Kind(Ranking(), {"query": ids(6), "positive": ids(6), "negative": ids(6)}, loss="loss", meets=True)


@kind
def passage_lists():
    """A list of passages for each query, the first one right; those of all samples are candidates."""

    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = Encoder()

        def forward(self, query, passages):
            batch, count, length = passages.shape
            candidates = self.encode(passages.view(batch * count, length))
            return F.cross_entropy(self.encode(query) @ candidates.T / 0.1, torch.arange(batch) * count)

    passages = torch.randint(3, VOCAB, (BATCH, 3, 5))
    return Kind(Lists(), {"query": ids(6), "passages": passages}, loss="loss", meets=True)


@kind
def captions():
    """CoCa: a contrast of pictures and texts, and captions by cross attention, in one loss."""

    class Captions(nn.Module):
        def __init__(self):
            super().__init__()
            self.picture, self.embed, self.block = mlp(12, WIDTH, WIDTH), nn.Embedding(VOCAB, WIDTH), Block()
            self.cross, self.head = nn.MultiheadAttention(WIDTH, 4, batch_first=True), nn.Linear(WIDTH, VOCAB)
            self.scale = nn.Parameter(torch.tensor([1.0]))

        def forward(self, patches, text):
            picture, words = self.picture(patches), self.block(self.embed(text))
            u, v = F.normalize(picture.mean(1), dim=-1), F.normalize(words[:, -1], dim=-1)
            scores = u @ v.t() * self.scale.exp()
            labels = torch.arange(scores.shape[0])
            contrast = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2
            words = words + self.cross(words, picture, picture, need_weights=False)[0]
            logits = self.head(words[:, :-1]).reshape(-1, VOCAB)
            return contrast + 2 * F.cross_entropy(logits, text[:, 1:].reshape(-1))

    return Kind(Captions(), {"patches": torch.randn(BATCH, 5, 12), "text": ids(8)}, loss="loss", meets=True)


# --- Places chosen by data. ---


@kind
def picture_tokens():
    """Features of a picture are put at its tokens by masked_scatter, as in LLaVA and Qwen-VL."""

    class Fusion(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.head = nn.Embedding(VOCAB, WIDTH), Block(), nn.Linear(WIDTH, VOCAB)
            self.project = mlp(12, WIDTH, WIDTH)

        def forward(self, tokens, order, patches):
            x = self.embed(tokens)
            places = order.topk(patches.shape[1], -1).indices
            mask = torch.zeros_like(tokens).scatter(1, places, 1) == 1
            x = x.masked_scatter(mask[..., None].expand_as(x), self.project(patches))
            return self.head(self.block(x))

    return Kind(Fusion(), {"tokens": ids(16), "order": torch.randn(BATCH, 16), "patches": torch.randn(BATCH, 5, 12)})


@kind
def chosen_tokens():
    """The state of the largest token and of a span's ends, by x[arange(batch), i]."""

    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.head = nn.Embedding(VOCAB, WIDTH), Block(), nn.Linear(3 * WIDTH, 5)

        def forward(self, tokens, order):
            x, samples = self.block(self.embed(tokens)), torch.arange(tokens.shape[0])
            ends = order.topk(2, -1).indices
            parts = [x[samples, tokens.argmax(-1)], x[samples[:, None], ends].flatten(1)]
            return self.head(torch.cat(parts, -1))

    return Kind(Chosen(), {"tokens": ids(9), "order": torch.randn(BATCH, 9)})


@kind
def pointer_network():
    """Points are chosen one by one: the input of each step is the state of the point of the last one."""

    class Pointers(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.cell = nn.LSTM(2, WIDTH, batch_first=True), nn.LSTMCell(WIDTH, WIDTH)
            self.key, self.query, self.score = (nn.Linear(WIDTH, out) for out in (WIDTH, WIDTH, 1))

        def forward(self, points):
            states, (h, c) = self.encode(points)
            h, c, x = h[0], c[0], states.mean(1)
            taken, scores = torch.zeros_like(points[..., 0]), []
            for _ in range(3):
                h, c = self.cell(x, (h, c))
                hidden = torch.tanh(self.key(states) + self.query(h)[:, None])
                scores.append(self.score(hidden).squeeze(-1) - 100 * taken)
                chosen = scores[-1].argmax(-1)
                taken = taken.scatter(1, chosen[:, None], 1.0)
                x = states[torch.arange(states.shape[0]), chosen]
            return torch.stack(scores, 1)

    return Kind(Pointers(), {"points": torch.randn(BATCH, 6, 2)})


# --- Experts. ---


@kind
def expert_choice():
    """Each expert chooses half of the tokens of its sequence."""

    class Choice(nn.Module):
        def __init__(self, experts=4, inner=SEQ):
            super().__init__()
            self.attention, self.router = Block(), nn.Linear(WIDTH, experts, bias=False)
            self.up = nn.Parameter(torch.randn(experts, WIDTH, inner) / 6)
            self.down = nn.Parameter(torch.randn(experts, inner, WIDTH) / 6)

        def forward(self, x):
            x = self.attention(x)
            scores = self.router(x).softmax(-1).transpose(1, 2)
            gates, places = scores.topk(x.shape[1] // 2, dim=-1)
            index = places[..., None].expand(-1, -1, -1, WIDTH)
            chosen = torch.gather(x[:, None].expand(-1, scores.shape[1], -1, -1), 2, index)
            y = F.gelu(torch.einsum("becw,ewi->beci", chosen, self.up))
            y = torch.einsum("beci,eiw->becw", y, self.down) * gates[..., None]
            return x + torch.zeros_like(x).scatter_add(1, index.flatten(1, 2), y.flatten(1, 2))

    return tokens_kind(Choice(), sequence=())


@kind
def product_keys():
    """Each token takes 4 of 64 tiny experts, found by two halves of a key (PEER)."""

    class Keys(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(WIDTH, 16)
            self.first, self.second = (nn.Parameter(torch.randn(8, 8)) for _ in range(2))
            self.up, self.down = nn.Embedding(64, WIDTH), nn.Embedding(64, WIDTH)

        def forward(self, x):
            a, b = self.query(x).chunk(2, -1)
            first, i = (a @ self.first.t()).topk(4, -1)
            second, j = (b @ self.second.t()).topk(4, -1)
            scores = (first[..., :, None] + second[..., None, :]).flatten(-2)
            expert = (i[..., :, None] * 8 + j[..., None, :]).flatten(-2)
            scores, best = scores.topk(4, -1)
            expert = expert.gather(-1, best)
            h = F.gelu(torch.einsum("bnw,bnkw->bnk", x, self.up(expert))) * scores.softmax(-1)
            return x + torch.einsum("bnk,bnkw->bnw", h, self.down(expert))

    return tokens_kind(Keys())


# --- Scores and layers. ---


@kind
def forgetting():
    """A bias of cumulated logarithms of forget gates (Forgetting Transformer)."""

    class Forgetting(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.gate, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 4), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            gone = F.logsigmoid(self.gate(x)).transpose(1, 2).cumsum(-1)
            scores = q @ k.transpose(-1, -2) / math.sqrt(8) + (gone[..., :, None] - gone[..., None, :])
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return tokens_kind(Forgetting())


@kind
def layer_mix():
    """ELMo's mix of layers: a softmax over learned weights, and a factor."""

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))
            self.weight, self.factor = nn.Parameter(torch.randn(3)), nn.Parameter(torch.tensor([1.3]))

        def forward(self, x):
            layers = []
            for block in self.blocks:
                x = block(x)
                layers.append(x)
            return self.factor * (torch.stack(layers) * self.weight.softmax(0).view(-1, 1, 1, 1)).sum(0)

    return tokens_kind(Mix())


@kind
def actions():
    """HSTU: attention by SiLU without a softmax, biases of positions and of buckets of time, and a gate."""

    class Actions(nn.Module):
        def __init__(self):
            super().__init__()
            self.item, self.uvqk = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
            self.first, self.second, self.out = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
            self.position, self.time = nn.Parameter(torch.randn(2 * SEQ - 1) / 5), nn.Embedding(16, 1)

        def forward(self, items, times):
            x, length = self.item(items), items.shape[1]
            u, *parts = F.silu(self.uvqk(self.first(x))).chunk(4, -1)
            v, q, k = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in parts)
            place = torch.arange(length)
            distance = place[:, None] - place[None, :]
            gap = (times[:, :, None] - times[:, None, :]).abs().clamp(min=1).float()
            bucket = (gap.log() / 0.301).long().clamp(0, 15)
            bias = self.position[distance + SEQ - 1] + self.time(bucket).squeeze(-1)[:, None]
            mixed = (F.silu(q @ k.transpose(-1, -2) + bias) / length * (distance >= 0)) @ v
            x = x + self.out(self.second(mixed.transpose(1, 2).flatten(2)) * u)
            return x @ self.item.weight.t()

    return Kind(Actions(), {"items": ids(), "times": torch.randint(0, 1000, (BATCH, SEQ))})
