"""Kinds that found missing warnings, wrong warnings and refusals when they were first written."""

import torch
from torch import nn
from torch.nn import functional as F

from kinds import BATCH, VOCAB, Kind, ids, kind
from strangers import Causal, Language, Projected, heads, merge


@kind
def divergence_of_the_batch():
    """KTO: each answer is compared with the mean divergence of the batch, which tbc warns of."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.reference = Language(Causal, 1), Language(Causal, 1).requires_grad_(False)

        def logarithms(self, model, tokens):
            chosen = model(tokens)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])
            return chosen.sum((1, 2))

        def forward(self, tokens, wanted):
            ratio = self.logarithms(self.policy, tokens) - self.logarithms(self.reference, tokens).detach()
            mean = ratio.mean().detach().clamp(min=0)
            return (1 - torch.sigmoid(0.1 * torch.where(wanted, ratio - mean, mean - ratio))).mean()

    examples = {"tokens": ids(12), "wanted": torch.tensor([True, False])}
    return Kind(Model(), examples, loss="loss", meets=True)


@kind
def decays():
    """Linear attention over the whole sequence, with a decay for each head: its weights are held."""

    class Decays(Projected):
        def forward(self, x):
            q, k, v = (F.silu(part) for part in self.split(x))
            slopes = torch.exp2(-2.0 * torch.arange(1, 5, device=x.device))[:, None, None]
            place = torch.arange(x.size(1), device=x.device)
            distance = (place[:, None] - place[None]).float()
            decay = torch.where(distance >= 0, torch.exp(-slopes * distance.clamp(min=0)), 0.0)
            return self.out(merge(((q @ k.transpose(-1, -2)) * decay) @ v))

    return Kind(Language(Decays), {"input_ids": ids()}, ("input_ids",))


@kind
def unit_weights():
    """nGPT: rows of weights and states have the norm 1. The layers are no pairs of queries and keys."""

    def unit(x, dim=-1):
        return F.normalize(x, dim=dim)

    class Model(nn.Module):
        def __init__(self, width=32, layers=2):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, width), nn.Parameter(torch.randn(VOCAB, width))

            def stack(*shape):
                return nn.ParameterList(nn.Parameter(torch.randn(*shape)) for _ in range(layers))

            self.qkv, self.out = stack(3 * width, width), stack(width, width)
            self.up, self.down = stack(96, width), stack(width, 48)
            self.steps = nn.Parameter(torch.full((layers, 2, width), 0.05))
            self.scale, self.gains = nn.Parameter(torch.ones(layers, 8)), nn.Parameter(torch.ones(VOCAB))

        def forward(self, input_ids):
            x = unit(self.embed(input_ids))
            for i, (qkv, out, up, down) in enumerate(zip(self.qkv, self.out, self.up, self.down)):
                q, k, v = (heads(part, 4) for part in F.linear(x, unit(qkv)).chunk(3, -1))
                q, k = unit(q) * self.scale[i], unit(k) * self.scale[i]
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=8**0.5)
                x = unit(x + self.steps[i, 0] * (unit(F.linear(merge(y), unit(out, 0))) - x))
                left, right = F.linear(x, unit(up)).chunk(2, -1)
                y = F.linear(left * F.silu(right * 32**0.5), unit(down, 0))
                x = unit(x + self.steps[i, 1] * (unit(y) - x))
            return F.linear(x, unit(self.head)) * self.gains

    return Kind(Model(), {"input_ids": ids()}, ("input_ids",))


@kind
def projected_returns():
    """C51: the target's distribution of returns is projected on atoms, into zeros of the example's batch."""

    class Model(nn.Module):
        def __init__(self, atoms=11):
            super().__init__()

            def made():
                return nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 3 * atoms))

            self.online, self.target, self.atoms = made(), made().requires_grad_(False), atoms
            self.register_buffer("returns", torch.linspace(-2, 2, atoms))

        def at(self, values, action):
            return values.gather(1, action[:, None, None].expand(-1, 1, self.atoms))[:, 0]

        def forward(self, state, action, reward, after):
            with torch.no_grad():
                weights = self.target(after).unflatten(1, (3, self.atoms)).softmax(-1)
                weights = self.at(weights, (weights * self.returns).sum(-1).argmax(1))
                moved = ((reward[:, None] + 0.9 * self.returns).clamp(-2, 2) + 2) / 0.4
                low = moved.floor().long().clamp(max=self.atoms - 1)
                part, high = moved - moved.floor(), (low + 1).clamp(max=self.atoms - 1)
                wanted = torch.zeros_like(weights)
                wanted = wanted.scatter_add(1, low, weights * (1 - part)).scatter_add(1, high, weights * part)
            values = self.online(state).unflatten(1, (3, self.atoms))
            return -(wanted * self.at(values, action[:, 0] % 3).log_softmax(-1)).sum(-1).mean()

    examples = {"state": torch.randn(BATCH, 8), "action": ids(1), "reward": torch.randn(BATCH),
                "after": torch.randn(BATCH, 8)}
    return Kind(Model(), examples, loss="loss")


@kind
def one_normaliser():
    """GFlowNet: the logarithm of the sum of all rewards is a parameter of one number."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.back = Language(Causal, 1), nn.Linear(32, VOCAB)
            self.normaliser = nn.Parameter(torch.zeros(()))

        def forward(self, tokens, reward):
            forth = self.model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).sum((1, 2))
            back = self.back(self.model.embed(tokens[:, 1:])).log_softmax(-1)
            back = back.gather(-1, tokens[:, :-1, None]).sum((1, 2))
            return (self.normaliser + forth - reward - back).square().mean() / 100

    return Kind(Model(), {"tokens": ids(10), "reward": torch.randn(BATCH)}, loss="loss")


@kind
def kept_tokens():
    """Mixture of recursions: one block runs again on the tokens that a router keeps, in their order."""

    class Model(nn.Module):
        def __init__(self, width=32):
            super().__init__()
            self.model = Language(Causal, 1)
            self.routers = nn.ModuleList(nn.Linear(width, 1) for _ in range(2))

        def block(self, x):
            x = x + self.model.mixers[0](self.model.norms[0](x))
            return x + self.model.mlps[0](self.model.norms[1](x))

        def forward(self, input_ids):
            x = self.block(self.model.embed(input_ids))
            for router, count in zip(self.routers, (16, 8)):
                weights = router(x).squeeze(-1).sigmoid()
                chosen = weights.topk(count, 1).indices.sort(1).values
                rows = chosen[..., None].expand(-1, -1, x.size(-1))
                kept = x.gather(1, rows)
                again = kept + self.block(kept) * weights.gather(1, chosen)[..., None]
                x = x.scatter(1, rows, again)
            return self.model.head(x)

    return Kind(Model(), {"input_ids": ids()})


@kind
def turned_weights():
    """OFT: blocks of inputs are turned by rotations, a Cayley transform as a series, before frozen weights."""

    class Turned(nn.Module):
        def __init__(self, linear, size=8):
            super().__init__()
            self.linear, self.size = linear.requires_grad_(False), size
            self.angles = nn.Parameter(torch.randn(linear.in_features // size, size * (size - 1) // 2) / 20)
            places = torch.zeros(size * (size - 1) // 2, size, size)
            row, column = torch.triu_indices(size, size, 1)
            places[torch.arange(len(row)), row, column] = 1
            self.register_buffer("places", places - places.transpose(1, 2), persistent=False)

        def forward(self, x):
            skew = torch.einsum("na,abc->nbc", self.angles, self.places)
            power, turn = skew, torch.eye(self.size, device=x.device) + 2 * skew
            for _ in range(3):
                power = power @ skew
                turn = turn + 2 * power
            y = torch.einsum("...nb,nbc->...nc", x.unflatten(-1, (-1, self.size)), turn)
            return self.linear(y.flatten(-2))

    model = Language(Causal)
    for mixer in model.mixers:
        mixer.qkv, mixer.out = Turned(mixer.qkv), Turned(mixer.out)
    return Kind(model, {"input_ids": ids()}, ("input_ids",))


@kind
def layer_gains():
    """Elements of one parameter scale the layers: the dynamo exporter folds each to a number."""

    class Gains(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.gains = Language(Causal), nn.Parameter(torch.ones(2))

        def forward(self, input_ids):
            x = self.model.embed(input_ids)
            for i, mixer in enumerate(self.model.mixers):
                x = x + self.gains[i] * mixer(self.model.norms[i](x))
            return self.model.head(x)

    return Kind(Gains(), {"input_ids": ids()}, ("input_ids",))


@kind
def multiplied_mask():
    """GPT-1: scores are multiplied by the causal table before -10,000 is added to the others."""

    class Multiplied(Projected):
        def forward(self, x):
            q, k, v = self.split(x)
            seen = torch.ones(x.size(1), x.size(1), device=x.device).tril()
            scores = q @ k.transpose(-1, -2) / 8 ** 0.5
            return self.out(merge((scores * seen - 1e4 * (1 - seen)).softmax(-1) @ v))

    return Kind(Language(Multiplied), {"input_ids": ids()}, ("input_ids",))
