"""Models and losses of the zoo that are written by hand: graph nets, recommenders, preferences, policies, scans.

Where the loss is a part of the model, the model returns one loss per sample or their mean (Kind.loss is "loss").
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import kinds
from kinds import BATCH, SEQ, VOCAB, Kind, MaskedTokens, Tokens, config_of, ids, kind

WIDTH = 32


def frozen(module):
    """Returns `module`, whose parameters are not trained."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module


def llama(layers=2):
    import transformers

    config = config_of("LlamaConfig", num_hidden_layers=layers)
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa")


def logits_of(model, tokens):
    return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits


def label_logarithms(model, tokens):
    """Returns the log probability of each sequence's tokens, [batch]."""
    logits = logits_of(model, tokens)[:, :-1].log_softmax(-1)
    return logits.gather(-1, tokens[:, 1:, None])[..., 0].sum(-1)


# --- Graphs: a batch of small graphs with edges as data. ---


@kind
def gcn():
    """A graph convolution: messages are summed at their targets by index_add over all graphs' nodes."""

    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, 5)

        def spread(self, x, source, target):
            messages = x.gather(1, source[..., None].expand(-1, -1, x.shape[-1]))
            summed = torch.zeros_like(x).scatter_add(1, target[..., None].expand(-1, -1, x.shape[-1]), messages)
            ones = torch.ones_like(target, dtype=x.dtype)
            degree = torch.zeros_like(x[..., 0]).scatter_add(1, target, ones)
            return summed / degree.clamp(min=1)[..., None]

        def forward(self, nodes, source, target):
            x = self.first(self.spread(nodes, source, target)).relu()
            x = self.second(self.spread(x, source, target)).relu()
            return self.head(x)

    return Kind(
        Gcn(),
        {
            "nodes": torch.randn(BATCH, 12, 8),
            "source": torch.randint(0, 12, (BATCH, 30)),
            "target": torch.randint(0, 12, (BATCH, 30)),
        },
    )


@kind
def gat():
    """Graph attention: a softmax over the edges that reach a node, by scatter_reduce."""

    class Gat(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.key, self.query = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)
            self.head = nn.Linear(WIDTH, 5)

        def forward(self, nodes, source, target):
            x = self.value(nodes)
            wide = source[..., None].expand(-1, -1, WIDTH)
            scores = F.leaky_relu(self.key(x)[..., 0].gather(1, source) + self.query(x)[..., 0].gather(1, target), 0.2)
            weights = scores.exp()
            total = torch.zeros_like(x[..., 0]).scatter_add(1, target, weights)
            weights = weights / (total.gather(1, target) + 1e-9)
            messages = x.gather(1, wide) * weights[..., None]
            summed = torch.zeros_like(x).scatter_add(1, target[..., None].expand(-1, -1, WIDTH), messages)
            return self.head(F.elu(summed).mean(1))

    return Kind(
        Gat(),
        {
            "nodes": torch.randn(BATCH, 12, 8),
            "source": torch.randint(0, 12, (BATCH, 30)),
            "target": torch.randint(0, 12, (BATCH, 30)),
        },
    )


@kind
def graph_transformer():
    """Attention over nodes with a bias by distance and by edge, as Graphormer."""

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.distance = nn.Embedding(20, WIDTH), nn.Embedding(16, 4)
            self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, 5)

        def forward(self, atoms, distances):
            x = self.embed(atoms)
            batch, nodes, _ = x.shape
            q, k, v = self.qkv(self.norm(x)).view(batch, nodes, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            bias = self.distance(distances).permute(0, 3, 1, 2)
            weights = (q @ k.transpose(-1, -2) / math.sqrt(8) + bias).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, nodes, WIDTH))
            return self.head(x.mean(1))

    return Kind(
        Graph(), {"atoms": torch.randint(0, 20, (BATCH, 12)), "distances": torch.randint(0, 16, (BATCH, 12, 12))}
    )


@kind
def pointnet():
    """Points are ranked by distance; each point's nearest ones are gathered and pooled (EdgeConv)."""

    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            self.edge = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            self.head = nn.Linear(WIDTH, 5)

        def forward(self, points):
            distances = (points[:, :, None] - points[:, None]).square().sum(-1)
            nearest = distances.topk(4, largest=False).indices
            wide = nearest.flatten(1)[..., None].expand(-1, -1, 3)
            around = points.gather(1, wide).unflatten(1, (-1, 4))
            center = points[:, :, None].expand(-1, -1, 4, -1)
            return self.head(self.edge(torch.cat([center, around - center], -1)).amax(2).amax(1))

    return Kind(Points(), {"points": torch.randn(BATCH, 16, 3)})


# --- Recommenders and retrieval. ---


@kind
def deepfm():
    class DeepFm(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.factors = nn.Embedding(100, 1), nn.Embedding(100, 8)
            self.register_buffer("offsets", torch.arange(6) * 16)
            self.deep = nn.Sequential(
                nn.Linear(48, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
            )

        def forward(self, fields):
            fields = fields + self.offsets
            x = 0.1 * self.factors(fields)
            pairs = 0.5 * (x.sum(1).square() - x.square().sum(1)).sum(1, keepdim=True)
            return self.linear(fields).sum(1) + pairs + self.deep(x.flatten(1))

    return Kind(DeepFm(), {"fields": torch.randint(0, 16, (BATCH, 6))}, loss="mse")


@kind
def dlrm_embedding():
    """Sums of table rows by Embedding and a mask, as EmbeddingBag that exporters can write."""

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(4))
            self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(8 + 10, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, dense, sparse):
            x = self.bottom(dense)
            rows = torch.stack([x] + [table(sparse[:, i]).sum(1) for i, table in enumerate(self.tables)], 1)
            products = rows @ rows.transpose(1, 2)
            i, j = torch.tril_indices(5, 5, -1)
            return self.top(torch.cat([x, products[:, i, j]], 1))

    return Kind(Dlrm(), {"dense": torch.randn(BATCH, 13), "sparse": torch.randint(0, 50, (BATCH, 4, 3))})


class Tower(nn.Module):
    def __init__(self, size=VOCAB):
        super().__init__()
        self.embed, self.layer = nn.Embedding(size, WIDTH), nn.Linear(WIDTH, 16)

    def forward(self, tokens):
        return F.normalize(self.layer(self.embed(tokens).mean(1)), dim=-1)


@kind
def two_tower():
    """In-batch negatives: each sample's candidates are the batch's."""

    class TwoTower(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = Tower(), Tower()
            self.scale = nn.Parameter(torch.full([1], 7.0))  # the dynamo exporter would fold its exponential

        def forward(self, users, items):
            scores = self.user(users) @ self.item(items).T * self.scale
            return -scores.log_softmax(-1).diagonal().mean()

    return Kind(TwoTower(), {"users": ids(6), "items": ids(5)}, loss="loss", meets=True)


def matched_towers():
    """Returns the towers of pictures and texts, and a function of their inputs to unit vectors [batch, WIDTH]."""
    towers = nn.ModuleDict({"picture": Tower(), "text": Tower()})

    def embed(pictures, texts):
        return F.normalize(towers["picture"](pictures), dim=-1), F.normalize(towers["text"](texts), dim=-1)

    return towers, embed


@kind
def clip_loss():
    """The symmetric loss of CLIP: cross entropy along both dims of the scores of all pairs."""

    class ClipLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers, self.embed = matched_towers()

        def forward(self, pictures, texts):
            u, v = self.embed(pictures, texts)
            scores = u @ v.t() / 0.07
            labels = torch.arange(scores.shape[0], device=scores.device)
            return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2

    return Kind(ClipLoss(), {"pictures": ids(6), "texts": ids(5)}, loss="loss", meets=True)


@kind
def siglip_loss():
    """The loss of SigLIP: each pair is judged by itself, and the sum is divided by the samples."""

    class SiglipLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers, self.embed = matched_towers()
            self.bias = nn.Parameter(torch.full([1], -10.0))

        def forward(self, pictures, texts):
            u, v = self.embed(pictures, texts)
            scores = u @ v.t() * 10 + self.bias
            samples = scores.shape[0]
            signs = 2 * torch.eye(samples, device=scores.device) - torch.ones(samples, samples, device=scores.device)
            return -F.logsigmoid(signs * scores).sum() / samples

    return Kind(SiglipLoss(), {"pictures": ids(6), "texts": ids(5)}, loss="loss", meets=True)


@kind
def info_nce():
    """InfoNCE by its formula: the score of the positive pair less the logarithm of the sum over its row."""

    class InfoNce(nn.Module):
        def __init__(self):
            super().__init__()
            self.towers, self.embed = matched_towers()

        def forward(self, pictures, texts):
            u, v = self.embed(pictures, texts)
            scores = u @ v.t() / 0.1
            return (torch.logsumexp(scores, dim=1) - torch.diagonal(scores)).mean()

    return Kind(InfoNce(), {"pictures": ids(6), "texts": ids(5)}, loss="loss", meets=True)



@kind
def colbert():
    """Late interaction: the largest similarity of each query token, summed."""

    class Colbert(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 16)

        def encode(self, tokens):
            return F.normalize(self.out(F.gelu(self.mix(self.embed(tokens)))), dim=-1)

        def forward(self, query, positive, negative):
            q = self.encode(query)
            good = (q @ self.encode(positive).transpose(1, 2)).amax(-1).sum(-1)
            bad = (q @ self.encode(negative).transpose(1, 2)).amax(-1).sum(-1)
            return F.softplus(bad - good)

    return Kind(Colbert(), {"query": ids(5), "positive": ids(9), "negative": ids(9)}, loss="loss")


@kind
def triplet():
    class Triplet(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = Tower()

        def forward(self, anchor, positive, negative):
            return F.triplet_margin_loss(
                self.tower(anchor), self.tower(positive), self.tower(negative), margin=1.0, reduction="none"
            )

    return Kind(Triplet(), {"anchor": ids(5), "positive": ids(5), "negative": ids(5)}, loss="loss")


# --- Preferences, policies, teachers. ---


@kind
def dpo():
    class Dpo(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.reference = llama(), frozen(llama())

        def forward(self, chosen, rejected):
            margin = label_logarithms(self.policy, chosen) - label_logarithms(self.policy, rejected)
            reference = label_logarithms(self.reference, chosen) - label_logarithms(self.reference, rejected)
            return -F.logsigmoid(0.1 * (margin - reference))

    return Kind(Dpo(), {"chosen": ids(), "rejected": ids()}, loss="loss", flags=["--freeze", "reference.*"])


@kind
def orpo():
    class Orpo(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = llama()

        def forward(self, chosen, rejected):
            good = label_logarithms(self.policy, chosen) / (SEQ - 1)
            bad = label_logarithms(self.policy, rejected) / (SEQ - 1)
            odds = good - bad - (torch.log1p(-good.exp()) - torch.log1p(-bad.exp()))
            return -good - 0.1 * F.logsigmoid(odds)

    return Kind(Orpo(), {"chosen": ids(), "rejected": ids()}, loss="loss")


@kind
def distillation():
    class Distillation(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = llama(1), frozen(llama(2))

        def forward(self, tokens):
            student, teacher = logits_of(self.student, tokens), logits_of(self.teacher, tokens)
            hard = F.cross_entropy(student[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").mean(-1)
            soft = F.kl_div(
                (student / 2).log_softmax(-1), (teacher / 2).log_softmax(-1), reduction="none", log_target=True
            )
            return 0.5 * hard + 2 * soft.sum(-1).mean(-1)

    return Kind(Distillation(), {"tokens": ids()}, loss="loss", flags=["--freeze", "teacher.*"])


@kind
def ppo():
    """The clipped surrogate, a value loss and an entropy bonus over recorded steps."""

    class Ppo(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
            self.actor, self.critic = nn.Linear(WIDTH, 9), nn.Linear(WIDTH, 1)

        def forward(self, observation, action, old, advantage, returns):
            x = self.body(observation)
            logarithms = self.actor(x).log_softmax(-1)
            ratio = (logarithms.gather(1, action[:, None])[:, 0] - old).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            entropy = -(logarithms.exp() * logarithms).sum(-1)
            value = (self.critic(x)[:, 0] - returns).square()
            return (-surrogate + 0.5 * value - 0.01 * entropy).mean()

    return Kind(
        Ppo(),
        {
            "observation": torch.randn(BATCH, 8),
            "action": torch.full((BATCH,), 8),
            "old": torch.randn(BATCH),
            "advantage": torch.randn(BATCH),
            "returns": torch.randn(BATCH),
        },
        loss="loss",
    )


# --- Adapters. ---


def adapted(config):
    from peft import get_peft_model

    model, examples = get_peft_model(llama(), config), {"input_ids": ids()}
    if kinds.MASKED:
        examples["attention_mask"] = torch.ones(BATCH, SEQ, dtype=torch.int64)
    return Kind(
        (MaskedTokens if kinds.MASKED else Tokens)(model, use_cache=False),
        examples,
        tuple(examples),
        flags=[flag for glob in ("*base*", "*norm*", "*embed*", "*lm_head*", "*mlp*weight", "*[ko]_proj*")
               for flag in ("--freeze", glob)],
    )


@kind
def dora():
    from peft import LoraConfig

    return adapted(
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, use_dora=True)
    )


@kind
def ia3():
    from peft import IA3Config

    return adapted(IA3Config(target_modules=["q_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]))
