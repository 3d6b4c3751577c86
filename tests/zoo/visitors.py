"""Kinds whose files of the dynamo exporter were refused when they were first written."""

import torch
from torch import nn
from torch.nn import functional as F

from kinds import BATCH, VOCAB, Kind, ids, kind


@kind
def standardized_weights():
    """NFNet, BiT: rows of weights are standardized by batch_norm without running statistics."""

    class Standardized(nn.Conv2d):
        def __init__(self, *sizes):
            super().__init__(*sizes, padding=1)
            self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

        def forward(self, x):
            rows = self.weight.reshape(1, self.out_channels, -1)
            weight = F.batch_norm(rows, None, None, weight=self.gain.view(-1), training=True, momentum=0.0)
            return F.conv2d(x, weight.reshape_as(self.weight), self.bias, padding=1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = Standardized(3, 8, 3), Standardized(8, 8, 3), nn.Linear(8, 5)

        def forward(self, pixel_values):
            x = F.silu(self.first(pixel_values))
            return self.head((x + 0.2 * self.second(x)).mean((2, 3)))

    return Kind(Model(), {"pixel_values": torch.randn(BATCH, 3, 8, 8)})


@kind
def pixart():
    """A squeeze of a dim that is not 1, which leaves it."""
    from diffusers import PixArtTransformer2DModel

    model = PixArtTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2,
        cross_attention_dim=32, sample_size=8, caption_channels=16, use_additional_conditions=False)

    class Pixart(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, hidden_states, encoder_hidden_states, timestep):
            return self.model(hidden_states, encoder_hidden_states, timestep, return_dict=False)[0]

    examples = {"hidden_states": torch.randn(BATCH, 4, 8, 8), "encoder_hidden_states": torch.randn(BATCH, 6, 16),
                "timestep": torch.randint(0, 1000, (BATCH,))}
    return Kind(Pixart(), examples, loss="mse")


@kind
def edge_maxima():
    """A graph net with a list of edges in each sample: sums and maxima of messages."""

    class Edges(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.embed, self.head = nn.Linear(6, width), nn.Linear(width, 3)
            self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

        def forward(self, nodes, source, target):
            x, count = self.embed(nodes), nodes.size(1)

            def rows(i):
                return (i % count)[..., None].expand(-1, -1, x.size(-1))

            message = F.relu(self.message(torch.cat([x.gather(1, rows(source)), x.gather(1, rows(target))], -1)))
            total, largest = (torch.zeros_like(x).scatter_reduce(1, rows(target), message, how)
                              for how in ("sum", "amax"))
            return self.head(self.update(torch.cat([total, largest], -1)).relu().mean(1))

    return Kind(Edges(), {"nodes": torch.randn(BATCH, 8, 6), "source": ids(11), "target": ids(11)})


@kind
def rotary_rows():
    """CodeGen: its table of sines is read by GatherND, and limits the length."""
    from kinds import config_of, decoder

    config = config_of("CodeGenConfig", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, resid_pdrop=0.0, embd_pdrop=0.0,
                       attn_pdrop=0.0, n_positions=64)
    return decoder(config)


@kind
def box_losses():
    """Boxes of torchvision: areas are assigned where a mask is true, and the mask is of data."""

    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(VOCAB, 16), nn.Linear(16, 4)

        def forward(self, tokens, wanted):
            low, high = self.head(self.words(tokens)).unflatten(-1, (2, 2)).unbind(-2)
            first, last = torch.max(low, -wanted[..., :2].abs()), torch.min(high.abs(), wanted[..., 2:].abs())
            mask = (last > first).all(-1)
            area = torch.zeros_like(mask, dtype=low.dtype)
            area[mask] = (last[..., 0][mask] - first[..., 0][mask]) * (last[..., 1][mask] - first[..., 1][mask])
            return (1 - area).square().mean()

    return Kind(Boxes(), {"tokens": ids(6), "wanted": torch.randn(BATCH, 6, 4)}, loss="loss")


@kind
def padded_lists():
    """Sums over padded lists, whose padding_idx is not trained, and a smoothed loss, both left out of their nodes."""

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.items, self.head = nn.Embedding(5, 8, padding_idx=0), nn.Linear(8, 5)

        def forward(self, items, label):
            scores = self.head(self.items(items % 5).sum(1).tanh())
            return F.cross_entropy(scores, label % 5, label_smoothing=0.1)

    return Kind(Padded(), {"items": ids(9), "label": ids(1)[:, 0]}, loss="loss")


@kind
def mixed_pictures():
    """Probabilities in place of labels, smoothed, with class weights."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 5)
            self.register_buffer("weights", torch.rand(5) + 0.5)

        def forward(self, x, label, share):
            scores = self.head(self.conv(x).relu().mean((2, 3)))
            other = F.one_hot((label + 1) % 5, 5) * (1 - share[:, None])
            targets = F.one_hot(label % 5, 5) * share[:, None] + other
            return F.cross_entropy(scores, targets, self.weights, label_smoothing=0.1)

    examples = {"x": torch.randn(BATCH, 3, 16, 16), "label": ids(1)[:, 0], "share": torch.rand(BATCH)}
    return Kind(Mixed(), examples, loss="loss")
