"""Kinds that found attentions and losses without a composite, and without a warning."""

import torch
from torch import nn
from torch.nn import functional as F

from kinds import BATCH, VOCAB, Kind, ids, kind
from strangers import Causal, Language, Projected, merge


def language(mixer):
    return Kind(Language(mixer), {"input_ids": ids()}, ("input_ids",))


def later(x):
    """True at the pairs of a query and a later key."""
    return torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)


@kind
def softmax_one():
    """exp(z) / (1 + the sum): one column of zeros more, without a value."""

    class Quiet(Projected):
        def forward(self, x):
            q, k, v = self.split(x)
            scores = (q @ k.transpose(-1, -2) / 8 ** 0.5).masked_fill(later(x), -1e9)
            return self.out(merge(F.pad(scores, (1, 0)).softmax(-1)[..., 1:] @ v))

    return language(Quiet)


@kind
def sigmoid_attention():
    """Weights by a sigmoid: they are held, and tbc warns with their price."""

    class Sigmoid(Projected):
        def forward(self, x):
            q, k, v = self.split(x)
            scores = q @ k.transpose(-1, -2) / 8 ** 0.5 - 3
            return self.out(merge(scores.masked_fill(later(x), float("-inf")).sigmoid() @ v))

    return language(Sigmoid)


@kind
def stick_breaking():
    """Stick-breaking attention: weights by running sums of log-sigmoids."""

    class Stick(Projected):
        def forward(self, x):
            q, k, v = self.split(x)
            z = q @ k.transpose(-1, -2) / 8 ** 0.5
            hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu()
            kept, left = F.logsigmoid(z).masked_fill(hidden, -1e5), F.logsigmoid(-z).masked_fill(hidden, 0)
            return self.out(merge((kept + left.flip(-1).cumsum(-1).flip(-1) - left).exp() @ v))

    return language(Stick)


@kind
def talking_heads():
    """Mixes of heads before and behind the softmax."""

    class Talking(Projected):
        def __init__(self, width):
            super().__init__(width)
            self.before, self.behind = (nn.Parameter(torch.randn(4, 4) / 2) for _ in range(2))

        def forward(self, x):
            q, k, v = self.split(x)
            scores = torch.einsum("bhij,hg->bgij", q @ k.transpose(-1, -2) / 8 ** 0.5, self.before)
            weights = scores.masked_fill(later(x), -1e9).softmax(-1)
            return self.out(merge(torch.einsum("bhij,hg->bgij", weights, self.behind) @ v))

    return language(Talking)


@kind
def mixed_shifts():
    """Keys and values mixed with those before; mix[0] of a parameter with two rows is no position."""

    class Shifted(Projected):
        def __init__(self, width):
            super().__init__(width)
            self.mix = nn.Parameter(torch.rand(2, 4))

        def forward(self, x):
            q, k, v = self.split(x)
            a, b = self.mix[0][None, :, None, None], self.mix[1][None, :, None, None]
            k, v = (p * t + (1 - p) * F.pad(t[:, :, :-1], (0, 0, 1, 0)) for p, t in ((a, k), (b, v)))
            return self.out(merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    return language(Shifted)


@kind
def mapped_experts():
    """Experts of torch.vmap with biases; the sum over them is no attention."""

    class Experts(nn.Module):
        def __init__(self, width, count=4, inner=16):
            super().__init__()
            self.router = nn.Linear(width, count)
            sizes = (width, inner), (inner, width)
            self.first, self.second = (nn.Parameter(torch.randn(count, *size) / 5) for size in sizes)
            self.bias, self.shift = (nn.Parameter(torch.randn(count, size) / 5) for size in (inner, width))

        def forward(self, x):
            def one(first, bias, second, shift, x):
                return F.gelu(x @ first + bias) @ second + shift

            each = torch.vmap(one, in_dims=(0, 0, 0, 0, None))(self.first, self.bias, self.second, self.shift, x)
            gates = self.router(x)
            least = gates.topk(2, -1).values[..., -1:]
            return torch.einsum("ebnd,bne->bnd", each, gates.masked_fill(gates < least, float("-inf")).softmax(-1))

    return language(Experts)


def log_probabilities(model, tokens):
    """Returns log-probabilities of the tokens but the first; tokens: [rows, n]."""
    return model(tokens)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


@kind
def joined_preferences():
    """SimPO: both answers in one batch, log-probabilities per token of an answer."""

    class Preferences(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Language(Causal, layers=1)

        def forward(self, chosen, rejected):
            tokens = torch.cat([chosen, rejected])
            mask = (tokens[:, 1:] != 0).float()
            good, bad = ((log_probabilities(self.model, tokens) * mask).sum(-1) / mask.sum(-1)).chunk(2)
            return -F.logsigmoid(2 * (good - bad) - 0.5).mean()

    return Kind(Preferences(), {"chosen": ids(12), "rejected": ids(12)}, loss="loss", meets=True)


@kind
def sequence_ratios():
    """GSPO: ratios of whole answers, advantages within a group of answers, a divergence from a reference."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Language(Causal, layers=1)

        def forward(self, tokens, old, reference, reward, mask):
            log = log_probabilities(self.model, tokens.flatten(0, 1)).view_as(old)
            advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
            count, kept = mask.sum(-1).clamp(min=1), mask.float()
            ratio = (((log - old) * kept).sum(-1) / count).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            far = reference - log
            return (0.04 * ((far.exp() - far - 1) * kept).sum(-1) / count - gain).mean()

    answers = {"old": -4 + 0.1 * torch.randn(BATCH, 4, 7), "reference": -4 + 0.1 * torch.randn(BATCH, 4, 7)}
    return Kind(Policy(), {"tokens": torch.randint(3, VOCAB, (BATCH, 4, 8)), **answers, "reward": torch.randn(BATCH, 4),
                           "mask": torch.ones(BATCH, 4, 7, dtype=torch.bool)}, loss="loss")


@kind
def smoothed_labels():
    """Cross entropy by logsumexp, with smoothing and a z-loss: its log-softmax is held, and tbc warns."""

    class Smooth(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Language(Causal, layers=1)

        def forward(self, input_ids, labels):
            logits = self.model(input_ids)
            total, chosen = logits.logsumexp(-1), logits.gather(-1, labels[..., None]).squeeze(-1)
            return (total - 0.9 * chosen - 0.1 * logits.mean(-1) + 1e-4 * total ** 2).mean()

    return Kind(Smooth(), {"input_ids": ids(12), "labels": ids(12)}, loss="loss")
