"""Kinds that found faults of the import when they were first written."""

import torch
from torch import nn
from torch.nn import functional as F

from kinds import BATCH, VOCAB, Kind, ids, kind


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


class Language(nn.Module):
    """A language model of residual blocks: the layers that `mixer` makes, and an MLP after each."""

    def __init__(self, mixer, layers=2, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.mixers = nn.ModuleList(mixer(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(layers))
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for i, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps)):
            x = x + mixer(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.head(x)


class Projected(nn.Module):
    """The projections of an attention with `count` heads."""

    def __init__(self, width, count=4):
        super().__init__()
        self.count = count
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x):
        return [heads(part, self.count) for part in self.qkv(x).chunk(3, -1)]


class Causal(Projected):
    def forward(self, x):
        return self.out(merge(F.scaled_dot_product_attention(*self.split(x), is_causal=True)))


@kind
def contextual_positions():
    """CoPE: positions are sums of gates, and embeddings of positions are interpolated."""

    class Cope(Projected):
        def __init__(self, width, positions=8):
            super().__init__(width)
            self.positions = positions
            self.table = nn.Parameter(torch.randn(1, width // self.count, positions) * 0.3)

        def forward(self, x):
            q, k, v = self.split(x)
            scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
            keep = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
            scores = scores.masked_fill(~keep, -1e4)
            place = torch.sigmoid(scores).flip(-1).cumsum(-1).flip(-1).clamp(max=self.positions - 1)
            low, high = place.floor().long(), place.ceil().long()
            table = q @ self.table
            part = place - low
            scores = scores + table.gather(-1, high) * part + table.gather(-1, low) * (1 - part)
            return self.out(merge(scores.softmax(-1) @ v))

    return Kind(Language(Cope), {"input_ids": ids()}, ("input_ids",))


@kind
def linear_recurrence():
    """A diagonal linear recurrence by a scan in log2(positions) steps; its angles reach only sines and cosines."""

    class Scan(nn.Module):
        def __init__(self, width, states=16):
            super().__init__()
            self.rate, self.theta = nn.Parameter(torch.rand(states) - 1), nn.Parameter(torch.rand(states))
            self.real, self.imaginary = (nn.Linear(width, states, bias=False) for _ in range(2))
            self.out = nn.Linear(2 * states, width)

        def forward(self, x):
            size = torch.exp(-self.rate.exp())
            a, b = ((size * part).expand(x.size(1), -1) for part in (self.theta.cos(), self.theta.sin()))
            re, im = self.real(x), self.imaginary(x)
            step = 1
            while step < x.size(1):
                r, i = (F.pad(part, (0, 0, step, 0))[:, :-step] for part in (re, im))
                re, im = re + a * r - b * i, im + a * i + b * r
                p, q = F.pad(a, (0, 0, step, 0), value=1.0)[:-step], F.pad(b, (0, 0, step, 0))[:-step]
                a, b = a * p - b * q, a * q + b * p
                step *= 2
            return self.out(torch.cat([re, im], -1))

    return Kind(Language(Scan), {"input_ids": ids()})


@kind
def gated_chunks():
    """Gated linear attention by chunks, with a state of zeros for the samples of the example."""

    class Chunks(Projected):
        def __init__(self, width, size=8):
            super().__init__(width, 2)
            self.size, self.gate = size, nn.Linear(width, width)

        def forward(self, x):
            gate = heads(F.logsigmoid(self.gate(x)) / 16, self.count)
            q, k, v, gate = (part.unflatten(2, (-1, self.size)) for part in [*self.split(x), gate])
            gate = gate.cumsum(-2)
            last = gate[..., -1:, :]
            inside = (q * gate.exp() @ (k * (-gate).exp()).transpose(-1, -2)).tril()
            state, out = q.new_zeros(q.size(0), self.count, q.size(-1), v.size(-1)), []
            for i in range(q.size(2)):
                out.append(inside[:, :, i] @ v[:, :, i] + (q * gate.exp())[:, :, i] @ state)
                added = (k * (last - gate).exp())[:, :, i].transpose(-1, -2) @ v[:, :, i]
                state = state * last[:, :, i].transpose(-1, -2).exp() + added
            return self.out(merge(torch.stack(out, 2).flatten(2, 3)))

    return Kind(Language(Chunks), {"input_ids": ids()})


@kind
def dilated_segments():
    """LongNet: segments of every second token, put back by an assignment to a slice with steps."""

    class Dilated(Projected):
        def forward(self, x):
            total = 0
            for size, step in ((8, 1), (24, 2)):
                parts = [part.unflatten(1, (-1, size))[:, :, ::step].flatten(0, 1) for part in self.qkv(x).chunk(3, -1)]
                y = F.scaled_dot_product_attention(*(heads(part, self.count) for part in parts))
                spread = x.new_zeros(x.size(0), x.size(1) // size, size, x.size(-1))
                spread[:, :, ::step] = merge(y).view(x.size(0), -1, size // step, x.size(-1))
                total = total + spread.flatten(1, 2)
            return self.out(total)

    return Kind(Language(Dilated), {"input_ids": ids()})


@kind
def strided_windows():
    """Windows of keys by as_strided, as Longformer takes them."""

    class Windows(Projected):
        def forward(self, x, size=6):
            q, k, v = (part.contiguous() for part in self.split(x))
            b, h, n, e = q.shape

            def windows(part):
                part = F.pad(part, (0, 0, size, size))
                s = part.stride()
                return part.as_strided((b, h, n // size, 3 * size, e), (s[0], s[1], s[2] * size, s[2], s[3]))

            scores = q.view(b, h, n // size, size, e) @ windows(k).transpose(-1, -2) / e ** 0.5
            return self.out(merge((scores.softmax(-1) @ windows(v)).reshape(b, h, n, e)))

    return Kind(Language(Windows), {"input_ids": ids()})


@kind
def group_norms():
    """Group norms of heads in two layers: the exporter shares their scales of ones."""

    class Retention(Projected):
        def __init__(self, width):
            super().__init__(width)
            self.norm = nn.GroupNorm(self.count, width)

        def forward(self, x):
            q, k, v = self.split(x)
            y = merge((q @ k.transpose(-1, -2) / q.size(-1) ** 0.5).tril() @ v)
            return self.out(self.norm(y.flatten(0, 1)).view_as(y))

    return Kind(Language(Retention), {"input_ids": ids()}, ("input_ids",))


@kind
def last_states():
    """The last state of each sequence of a recurrence with positions first, x[lengths - 1, arange(batch)]."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(VOCAB, 16), nn.GRU(16, 16), nn.Linear(16, 7)

        def forward(self, input_ids, lengths):
            y, _ = self.rnn(self.embed(input_ids).transpose(0, 1))
            return self.head(y[lengths - 1, torch.arange(input_ids.size(0), device=y.device)])

    return Kind(Last(), {"input_ids": ids(12), "lengths": torch.tensor([12, 5])})


@kind
def null_vectors():
    """In-batch negatives beside learned vectors: a row has batch + 3 scores."""

    class Null(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.null = nn.Embedding(VOCAB, 16), nn.Parameter(torch.randn(3, 16))
            self.query, self.passage = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, query, passage):
            q, p = self.query(self.words(query).mean(1)), self.passage(self.words(passage).mean(1))
            scores = q @ torch.cat([p, self.null]).t() / 0.5
            return F.cross_entropy(scores, torch.arange(query.size(0), device=q.device))

    return Kind(Null(), {"query": ids(5), "passage": ids(6)}, loss="loss", meets=True)


@kind
def swapped_codes():
    """SwAV: codes of two views by Sinkhorn's iterations over the batch."""

    class Swap(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.prototypes = nn.Linear(24, 16), nn.Linear(16, 10, bias=False)

        def codes(self, scores):
            q = (scores / 0.5).exp().t()
            q = q / q.sum()
            for _ in range(3):
                q = q / q.sum(1, keepdim=True) / q.size(0)
                q = q / q.sum(0, keepdim=True) / q.size(1)
            return (q * q.size(1)).t()

        def forward(self, a, b):
            a, b = (self.prototypes(F.normalize(self.body(x), dim=-1)) for x in (a, b))
            pairs = [(self.codes(a.detach()), b), (self.codes(b.detach()), a)]
            return -sum((q * F.log_softmax(s / 0.1, -1)).sum(-1) for q, s in pairs).mean() / 2

    return Kind(Swap(), {"a": torch.randn(BATCH, 24), "b": torch.randn(BATCH, 24)}, loss="loss", meets=True)


@kind
def advantages():
    """PPO with advantages from a loop over time, normalised over the elements of all samples."""

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
            self.policy, self.value = nn.Linear(16, 9), nn.Linear(16, 1)

        def forward(self, states, action, old, reward, done):
            x = self.body(states)
            value = self.value(x).squeeze(-1)
            fixed, later, found = value.detach(), torch.zeros_like(old[:, 0]), []
            for t in reversed(range(6)):
                goes_on = 1 - done[:, t]
                later = reward[:, t] + 0.99 * fixed[:, t + 1] * goes_on - fixed[:, t] + 0.94 * goes_on * later
                found.append(later)
            advantage = torch.stack(found[::-1], 1)
            target = advantage + fixed[:, :-1]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            log = self.policy(x[:, :-1]).log_softmax(-1)
            ratio = (log.gather(-1, action[..., None]).squeeze(-1) - old).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            return (value[:, :-1] - target).pow(2).mean() - gain + 0.01 * (log.exp() * log).sum(-1).mean()

    action = torch.tensor([[8, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]])
    return Kind(Actor(), {"states": torch.randn(BATCH, 7, 8), "action": action, "old": torch.randn(BATCH, 6),
                          "reward": torch.randn(BATCH, 6), "done": torch.randn(BATCH, 6)}, loss="loss", meets=True)


@kind
def guessed_tokens():
    """Medusa: heads for later tokens, each with its own cross entropy; the labels are the input."""

    class Heads(nn.Module):
        def __init__(self, count=3):
            super().__init__()
            self.body = Language(Causal)
            self.heads = nn.ModuleList(nn.Linear(VOCAB, VOCAB) for _ in range(count))

        def forward(self, input_ids):
            x = self.body(input_ids)
            loss = F.cross_entropy(x[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
            for i, head in enumerate(self.heads):
                y = (x + F.silu(head(x)))[:, :-2 - i]
                loss = loss + 0.8 ** i * F.cross_entropy(y.reshape(-1, VOCAB), input_ids[:, 2 + i:].reshape(-1))
            return loss

    return Kind(Heads(), {"input_ids": ids(12)}, loss="loss")


@kind
def edge_convolutions():
    """DGCNN: neighbours in a list of the rows of all samples."""

    class Edges(nn.Module):
        def __init__(self, count=4):
            super().__init__()
            self.count = count
            self.first, self.second, self.head = nn.Conv2d(6, 16, 1), nn.Conv2d(32, 16, 1), nn.Linear(32, 5)

        def edges(self, x):
            b, c, n = x.shape
            near = 2 * x.transpose(2, 1) @ x
            near = near - (x ** 2).sum(1, keepdim=True) - (x ** 2).sum(1, keepdim=True).transpose(2, 1)
            i = near.topk(self.count, -1)[1] + torch.arange(b, device=x.device).view(-1, 1, 1) * n
            found = x.transpose(2, 1).contiguous().view(b * n, c)[i.view(-1)].view(b, n, self.count, c)
            own = x.transpose(2, 1).unsqueeze(2).expand(-1, -1, self.count, -1)
            return torch.cat([found - own, own], 3).permute(0, 3, 1, 2)

        def forward(self, points):
            a = F.leaky_relu(self.first(self.edges(points))).amax(-1)
            b = F.leaky_relu(self.second(self.edges(a))).amax(-1)
            return self.head(torch.cat([a, b], 1).amax(-1))

    return Kind(Edges(), {"points": torch.randn(BATCH, 3, 10)})


@kind
def first_preferences():
    """DPO at its first step, where policy and reference are equal, with margins of any size; masked means."""

    class Preference(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))

        def forward(self, good, bad, mask, push):
            margin = (self.rate(good) - self.rate(bad)).squeeze(-1)
            margin = margin - margin.detach()
            kept = mask.float()
            far = F.logsigmoid(margin - 200 * push.abs())
            return F.softplus(-margin).mean() - 0.01 * (far * kept).sum() / kept.sum()

    return Kind(Preference(), {"good": torch.randn(BATCH, 12), "bad": torch.randn(BATCH, 12),
                               "mask": torch.ones(BATCH, dtype=torch.bool), "push": torch.randn(BATCH)},
                loss="loss", meets=True)
