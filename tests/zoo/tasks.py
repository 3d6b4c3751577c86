"""Models of the zoo by their tasks: geometry, proteins, forecasts, ranking, speech, codes, bytes, denoising."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from idioms import WIDTH
from kinds import BATCH, SEQ, VOCAB, Kind, ids, kind
from recent import RmsNorm, rotate
from sequences import Block, tokens_kind


def mlp(*widths):
    """Linear layers with SiLU between them."""
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


# --- Space. ---


@kind
def nerf():
    """A radiance field: sines of positions, and colours along a ray weighted by the light that is left."""

    class Field(nn.Module):
        def __init__(self, bands=4):
            super().__init__()
            self.register_buffer("bands", 2.0 ** torch.arange(bands))
            self.body, self.density = mlp(3 + 6 * bands, WIDTH, WIDTH), nn.Linear(WIDTH, 1)
            self.colour = mlp(WIDTH + 3, 16, 3)

        def forward(self, origin, direction, depth):
            x = origin[:, None] + direction[:, None] * depth[..., None]
            angles = (x[..., None] * self.bands).flatten(-2)
            h = self.body(torch.cat([x, angles.sin(), angles.cos()], -1))
            steps = F.pad(depth[:, 1:] - depth[:, :-1], (0, 1), value=0.1).abs()
            alpha = 1 - torch.exp(-F.relu(self.density(h)[..., 0]) * steps)
            left = torch.cumsum(torch.log(1 - alpha + 1e-6), -1)
            weight = alpha * torch.exp(F.pad(left[:, :-1], (1, 0)))
            wide = direction[:, None].expand(-1, depth.shape[1], -1)
            return (weight[..., None] * self.colour(torch.cat([h, wide], -1)).sigmoid()).sum(1)

    return Kind(Field(), {"origin": torch.randn(BATCH, 3), "direction": torch.randn(BATCH, 3),
                          "depth": torch.randn(BATCH, 12)}, loss="mse")


@kind
def continuous_filters():
    """SchNet: messages over pairs of atoms, filtered by a network of their distance, and a sum over atoms."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, WIDTH)
            self.register_buffer("centres", torch.linspace(0, 5, 16))
            self.filters = nn.ModuleList(mlp(16, WIDTH, WIDTH) for _ in range(2))
            self.inner = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
            self.outer = nn.ModuleList(mlp(WIDTH, WIDTH, WIDTH) for _ in range(2))
            self.head = mlp(WIDTH, 16, 1)

        def forward(self, atoms, positions):
            offsets = positions[:, :, None] - positions[:, None]
            distance = (offsets.square().sum(-1) + 1e-6).sqrt()
            basis = torch.exp(-10 * (distance[..., None] - self.centres).square())
            near = 0.5 * (torch.cos(distance * math.pi / 5) + 1) * (distance < 5)
            x = self.embed(atoms)
            for filters, inner, outer in zip(self.filters, self.inner, self.outer):
                weight = filters(basis) * near[..., None]
                x = x + outer((weight * inner(x)[:, None]).sum(2))
            return self.head(x).sum(1)

    return Kind(Net(), {"atoms": torch.randint(0, 20, (BATCH, 6)), "positions": torch.randn(BATCH, 6, 3)}, loss="mse")


@kind
def triangles():
    """A block of AlphaFold 3's pairs: triangle products in both directions, and attention along rows with a bias."""

    class Pairs(nn.Module):
        def __init__(self, width=16, heads=4):
            super().__init__()
            self.heads, self.embed = heads, nn.Embedding(21, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
            self.ab = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
            self.gate = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
            self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
            self.qkv, self.bias = nn.Linear(width, 3 * width), nn.Linear(width, heads)
            self.project = nn.Linear(width, width)
            self.head = nn.Linear(width, 8)

        def forward(self, tokens):
            x = self.embed(tokens)
            z = x[:, :, None] + x[:, None]
            for i, rule in enumerate(("bikc,bjkc->bijc", "bkic,bkjc->bijc")):
                h = self.norms[i](z)
                a, b, ga, gb = self.ab[i](h).chunk(4, -1)
                product = torch.einsum(rule, a * ga.sigmoid(), b * gb.sigmoid())
                z = z + self.out[i](product / 4) * self.gate[i](h).sigmoid()
            h = self.norms[2](z)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(2, 3) for t in self.qkv(h).chunk(3, -1))
            bias = self.bias(h).permute(0, 3, 1, 2)[:, None]
            weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias).softmax(-1)
            z = z + self.project((weights @ v).transpose(2, 3).flatten(3))
            return self.head(self.norms[3](z))

    return Kind(Pairs(), {"tokens": torch.randint(0, 21, (BATCH, 8))})


# --- Forecasts. ---


@kind
def quantile_forecast():
    """N-BEATS stacks of forward and backward forecasts, trained by the pinball loss of three quantiles."""

    class Stack(nn.Module):
        def __init__(self, past=24, ahead=6):
            super().__init__()
            self.past, self.ahead = past, ahead
            self.blocks = nn.ModuleList(mlp(past, WIDTH, past + 3 * ahead) for _ in range(3))
            self.register_buffer("quantiles", torch.tensor([0.1, 0.5, 0.9]))

        def forward(self, series, target):
            scale = series.abs().mean(1, keepdim=True) + 1e-3
            rest, total = series / scale, 0
            for block in self.blocks:
                back, ahead = block(rest).split([self.past, 3 * self.ahead], 1)
                rest, total = rest - back, total + ahead
            error = target[..., None] / scale[..., None] - total.unflatten(1, (self.ahead, 3))
            return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).sum(-1).mean()

    return Kind(Stack(), {"series": torch.randn(BATCH, 24), "target": torch.randn(BATCH, 6)}, loss="loss")


@kind
def mixture_density():
    """A GRU whose states give mixtures of Gaussians: the logarithm of a sum of densities for each step."""

    class Density(nn.Module):
        def __init__(self, parts=3):
            super().__init__()
            self.parts, self.cell, self.head = parts, nn.GRU(4, WIDTH, batch_first=True), nn.Linear(WIDTH, 3 * parts)

        def forward(self, series, target):
            logits, mean, spread = self.head(self.cell(series)[0]).chunk(3, -1)
            spread = F.softplus(spread) + 0.05
            density = -0.5 * ((target[..., None] - mean) / spread).square() - spread.log() - 0.5 * math.log(2 * math.pi)
            return -torch.logsumexp(logits.log_softmax(-1) + density, -1).mean()

    return Kind(Density(), {"series": torch.randn(BATCH, 10, 4), "target": torch.randn(BATCH, 10)}, loss="loss")


@kind
def conv_lstm():
    """A recurrent net of convolutions over the frames of a video, and a decoder by nearest upsampling."""

    class Video(nn.Module):
        def __init__(self, width=8):
            super().__init__()
            self.width, self.encode = width, nn.Conv2d(3, width, 3, stride=2, padding=1)
            self.cell = nn.Conv2d(2 * width, 4 * width, 3, padding=1)
            self.decode = nn.Conv2d(width, 3, 3, padding=1)

        def forward(self, frames):
            h = c = torch.zeros_like(self.encode(frames[:, 0]))
            for i in range(frames.shape[1]):
                gates = self.cell(torch.cat([self.encode(frames[:, i]), h], 1))
                enter, forget, update, out = gates.chunk(4, 1)
                c = forget.sigmoid() * c + enter.sigmoid() * update.tanh()
                h = out.sigmoid() * c.tanh()
            return self.decode(F.interpolate(h, scale_factor=2.0, mode="nearest"))

    return Kind(Video(), {"frames": torch.randn(BATCH, 3, 3, 16, 16)}, loss="mse")


# --- Ranking. ---


@kind
def sampled_softmax():
    """A sequence of items, and for each step a softmax over its next item and sampled ones, corrected by frequency."""

    class Sampled(nn.Module):
        def __init__(self):
            super().__init__()
            self.items, self.body = nn.Embedding(VOCAB, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
            self.shift = nn.Embedding(VOCAB, 1)

        def forward(self, history, following, negatives, frequency):
            h = self.body(self.items(history))[0]
            right = (h * self.items(following)).sum(-1, keepdim=True) + self.shift(following)
            wrong = torch.einsum("btd,bkd->btk", h, self.items(negatives)) + self.shift(negatives).transpose(1, 2)
            wrong = wrong - frequency.abs().add(0.1).log()[:, None]
            wrong = wrong.masked_fill(negatives[:, None] == following[..., None], -1e4)
            return -torch.cat([right, wrong], -1).log_softmax(-1)[..., 0].mean(-1)

    return Kind(Sampled(), {"history": ids(8), "following": ids(8), "negatives": ids(6),
                            "frequency": torch.randn(BATCH, 6)}, loss="loss")


@kind
def momentum_contrast():
    """MoCo: a positive and a queue of negatives, which no gradient reaches, by one softmax."""

    class Momentum(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = mlp(12, WIDTH, 16), mlp(12, WIDTH, 16)
            self.key.requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(16, 20), dim=0))

        def forward(self, first, second):
            q, k = F.normalize(self.query(first), dim=1), F.normalize(self.key(second), dim=1)
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue], 1) / 0.2
            return F.cross_entropy(scores, torch.zeros(first.shape[0], dtype=torch.long))

    return Kind(Momentum(), {"first": torch.randn(BATCH, 12), "second": torch.randn(BATCH, 12)}, loss="loss")


@kind
def masked_speech():
    """wav2vec 2.0: convolutions over a wave, masked steps, and a contrast with steps of the same clip by index."""

    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv1d(1, 16, 10, 5), nn.GELU(), nn.Conv1d(16, WIDTH, 3, 2), nn.GELU())
            self.norm, self.hidden = nn.LayerNorm(WIDTH), nn.Parameter(torch.randn(WIDTH))
            self.body, self.left, self.right = Block(), nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16)

        def forward(self, wave, mask, negatives):
            x = self.norm(self.stem(wave[:, None]).transpose(1, 2))
            c = self.left(self.body(torch.where(mask[..., None], self.hidden, x)))
            target = F.normalize(self.right(x), dim=-1)
            index = negatives.flatten(1)[..., None].expand(-1, -1, 16)
            others = target.gather(1, index).unflatten(1, (negatives.shape[1], -1))
            right = (F.normalize(c, dim=-1) * target).sum(-1, keepdim=True)
            wrong = torch.einsum("btd,btnd->btn", F.normalize(c, dim=-1), others)
            loss = -(torch.cat([right, wrong], -1) / 0.1).log_softmax(-1)[..., 0]
            return (loss * mask).sum() / mask.sum().clamp(min=1)

    return Kind(Speech(), {"wave": torch.randn(BATCH, 160), "mask": torch.rand(BATCH, 15) > 0.5,
                           "negatives": torch.randint(0, 15, (BATCH, 15, 4))}, loss="loss")


# --- Codes. ---


@kind
def residual_codes():
    """Residual vector quantization of three code books, with commitment losses, as speech codecs have it."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = mlp(16, WIDTH, 8), mlp(8, WIDTH, 16)
            self.books = nn.ModuleList(nn.Embedding(20, 8) for _ in range(3))

        def forward(self, x):
            z = self.encode(x)
            rest, total, losses = z, 0, 0
            for book in self.books:
                distance = rest.square().sum(-1, keepdim=True) - 2 * rest @ book.weight.T + book.weight.square().sum(-1)
                code = book(distance.argmin(-1))
                losses = losses + (code - rest.detach()).square().mean() + 0.25 * (code.detach() - rest).square().mean()
                total, rest = total + code, rest - code.detach()
            again = self.decode(z + (total - z).detach())
            return (again - x).square().mean() + losses

    return Kind(Residual(), {"x": torch.randn(BATCH, 6, 16)}, loss="loss")


# --- Text. ---


@kind
def byte_patches():
    """Bytes pooled to patches by attention, a causal body over patches, and bytes that read their patch (BLT)."""

    class Patches(nn.Module):
        def __init__(self, size=4):
            super().__init__()
            self.size, self.embed, self.local = size, nn.Embedding(256, WIDTH), Block()
            self.query, self.kv = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, 2 * WIDTH)
            self.body, self.out, self.head = Block(), Block(), nn.Linear(WIDTH, 256)
            self.up = nn.Linear(WIDTH, WIDTH)

        def forward(self, text):
            x = self.local(self.embed(text))
            k, v = self.kv(x).reshape(x.shape[0], -1, self.size, 2 * WIDTH).chunk(2, -1)
            weights = (k @ self.query / WIDTH ** 0.5).softmax(-1)
            patches = self.body((weights[..., None] * v).sum(2))
            before = F.pad(patches, (0, 0, 1, 0))[:, :-1]
            return self.head(self.out(x + self.up(before).repeat_interleave(self.size, 1)))

    return Kind(Patches(), {"text": torch.randint(0, 256, (BATCH, SEQ))})


@kind
def speedrun():
    """A decoder with squared ReLU, norms of queries and keys, values of the first layer, and capped logits."""

    class Layer(nn.Module):
        def __init__(self, heads=4):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
            self.mix, self.norms = nn.Parameter(torch.tensor([0.5])), nn.ModuleList(RmsNorm(WIDTH) for _ in range(2))

        def forward(self, x, first):
            qkv = self.qkv(self.norms[0](x)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv)
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            positions = torch.arange(x.shape[1], device=x.device)
            v = v if first is None else self.mix * v + (1 - self.mix) * first
            h = F.scaled_dot_product_attention(rotate(q, positions), rotate(k, positions), v, is_causal=True, scale=3.0)
            x = x + self.out(h.transpose(1, 2).flatten(2))
            return x + self.down(F.relu(self.up(self.norms[1](x))).square()), v if first is None else first

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(3)), RmsNorm(WIDTH)

        def forward(self, tokens):
            x, first = self.embed(tokens), None
            for layer in self.layers:
                x, first = layer(x, first)
            return 15 * torch.tanh(self.head(self.norm(x)) / 15)

    return Kind(Model(), {"tokens": ids()})


@kind
def test_time_training():
    """TTT: a matrix of each sample takes a step of gradient descent per chunk, on its own reconstruction."""

    class Inner(nn.Module):
        def __init__(self, chunk=8, dim=8):
            super().__init__()
            self.chunk, self.qkv, self.rate = chunk, nn.Linear(WIDTH, 3 * dim), nn.Linear(WIDTH, 1)
            self.start = nn.Parameter(torch.randn(dim, dim) / 8)
            self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, WIDTH)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            rate = self.rate(x).sigmoid() / self.chunk
            state, outs = self.start.expand(x.shape[0], -1, -1), []
            for i in range(0, x.shape[1], self.chunk):
                part = slice(i, i + self.chunk)
                error = k[:, part] @ state - v[:, part]
                scores = torch.tril(q[:, part] @ k[:, part].transpose(1, 2))
                outs.append(q[:, part] @ state - scores @ (rate[:, part] * error))
                state = state - k[:, part].transpose(1, 2) @ (rate[:, part] * error)
            return x + self.out(self.norm(torch.cat(outs, 1)))

    return tokens_kind(nn.Sequential(Inner(), Inner()), sequence=())


# --- Denoising. ---


@kind
def masked_diffusion():
    """LLaDA: tokens masked at a rate of each sample, cross entropy of those divided by the rate."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mask = nn.Embedding(VOCAB, WIDTH), nn.Parameter(torch.randn(WIDTH))
            self.body = nn.ModuleList(nn.MultiheadAttention(WIDTH, 4, batch_first=True) for _ in range(2))
            self.mlp, self.head = mlp(WIDTH, 64, WIDTH), nn.Linear(WIDTH, VOCAB)

        def forward(self, tokens, noise, rate):
            t = rate.abs().clamp(max=0.9) * 0.9 + 0.1
            hidden = noise.abs() < t[:, None]
            x = torch.where(hidden[..., None], self.mask, self.embed(tokens))
            for layer in self.body:
                x = x + layer(x, x, x, need_weights=False)[0]
            loss = F.cross_entropy(self.head(x + self.mlp(x)).transpose(1, 2), tokens, reduction="none")
            return (loss * hidden / t[:, None]).mean(1)

    return Kind(Masked(), {"tokens": ids(), "noise": torch.randn(BATCH, SEQ), "rate": torch.randn(BATCH)}, loss="loss")


@kind
def video_dit():
    """A transformer over patches of a video: rotary positions in three dims, adaLN-zero, a rectified flow's loss."""

    class Layer(nn.Module):
        def __init__(self, heads=2):
            super().__init__()
            self.heads, self.modulate = heads, nn.Linear(WIDTH, 6 * WIDTH)
            self.qkv, self.out, self.mlp = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), mlp(WIDTH, 64, WIDTH)

        def forward(self, x, condition, positions):
            a, b, c, d, e, f = self.modulate(F.silu(condition))[:, None].chunk(6, -1)
            h = F.layer_norm(x, (WIDTH,)) * (1 + a) + b
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
            q, k = (torch.cat([rotate(part, place) for part, place in zip(t.split([4, 6, 6], -1), positions)], -1)
                    for t in (q, k))
            x = x + c * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + f * self.mlp(F.layer_norm(x, (WIDTH,)) * (1 + d) + e)

    class Video(nn.Module):
        def __init__(self, frames=2, rows=4, columns=4):
            super().__init__()
            self.patch = nn.Conv3d(3, WIDTH, (1, 2, 2), (1, 2, 2))
            self.time, self.layers = mlp(1, WIDTH, WIDTH), nn.ModuleList(Layer() for _ in range(2))
            self.head = nn.Linear(WIDTH, 12)
            grid = torch.meshgrid(torch.arange(frames), torch.arange(rows), torch.arange(columns), indexing="ij")
            for name, axis in zip(("frame", "row", "column"), grid):
                self.register_buffer(name, axis.flatten())

        def forward(self, video, noise, time):
            t = time.sigmoid()[:, None, None, None, None]
            x = self.patch((1 - t) * video + t * noise).flatten(2).transpose(1, 2)
            condition = self.time(time.sigmoid()[:, None])
            for layer in self.layers:
                x = layer(x, condition, (self.frame, self.row, self.column))
            flow = F.unfold((noise - video).transpose(1, 2).flatten(0, 1), 2, stride=2)
            flow = flow.transpose(1, 2).reshape(video.shape[0], -1, 12)
            return (self.head(x) - flow).square().mean((1, 2))

    shape = (BATCH, 3, 2, 8, 8)
    return Kind(Video(), {"video": torch.randn(shape), "noise": torch.randn(shape), "time": torch.randn(BATCH)},
                loss="loss")


@kind
def joint_prediction():
    """I-JEPA: from the patches of a context a predictor guesses those of a target, which a frozen encoder makes."""

    class Joint(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.places = nn.Linear(48, WIDTH), nn.Parameter(torch.randn(16, WIDTH))
            self.encoder, self.target, self.predictor = (mlp(WIDTH, 48, WIDTH) for _ in range(3))
            self.target.requires_grad_(False)
            self.mix, self.hole = nn.MultiheadAttention(WIDTH, 4, batch_first=True), nn.Parameter(torch.randn(WIDTH))

        def forward(self, patches, context, goal):
            x = self.patch(patches) + self.places
            wide = [index[..., None].expand(-1, -1, WIDTH) for index in (context, goal)]
            known = self.encoder(x.gather(1, wide[0]))
            query = self.hole + self.places[goal]
            guess = self.predictor(self.mix(query, known, known, need_weights=False)[0])
            truth = F.layer_norm(self.target(x), (WIDTH,)).detach().gather(1, wide[1])
            return F.smooth_l1_loss(guess, truth, reduction="none").mean((1, 2))

    return Kind(Joint(), {"patches": torch.randn(BATCH, 16, 48), "context": torch.randint(0, 16, (BATCH, 8)),
                          "goal": torch.randint(0, 16, (BATCH, 4))}, loss="loss")


@kind
def matched_boxes():
    """DETR's loss for matches that are data: classes with a weight of the empty one, distances, overlaps."""

    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, WIDTH, 4, 4), nn.ReLU())
            self.queries, self.cross = nn.Parameter(torch.randn(6, WIDTH)), nn.MultiheadAttention(
                WIDTH, 4, batch_first=True)
            self.classes, self.boxes = nn.Linear(WIDTH, 9), mlp(WIDTH, WIDTH, 4)

        def forward(self, picture, match, labels, boxes):
            memory = self.stem(picture).flatten(2).transpose(1, 2)
            queries = self.queries.expand(picture.shape[0], -1, -1)
            x = queries + self.cross(queries, memory, memory, need_weights=False)[0]
            found, truth = self.boxes(x).sigmoid().gather(1, match[..., None].expand(-1, -1, 4)), boxes.sigmoid()
            hit = match[:, None] == torch.arange(6)[:, None]
            target = torch.where(hit.any(-1), (hit * labels[:, None]).amax(-1), 8)
            weight = torch.where(target == 8, 0.1, 1.0)
            kind_loss = F.cross_entropy(self.classes(x).transpose(1, 2), target, reduction="none") * weight
            low = torch.maximum(found[..., :2] - found[..., 2:] / 2, truth[..., :2] - truth[..., 2:] / 2)
            high = torch.minimum(found[..., :2] + found[..., 2:] / 2, truth[..., :2] + truth[..., 2:] / 2)
            shared = (high - low).clamp(min=0).prod(-1)
            union = found[..., 2:].prod(-1) + truth[..., 2:].prod(-1) - shared
            outer = ((found[..., 2:] + truth[..., 2:]) / 2 + (found[..., :2] - truth[..., :2]).abs()).prod(-1)
            overlap = shared / union - (outer - union) / outer
            return kind_loss.mean(1) + (found - truth).abs().sum(-1).mean(1) + (1 - overlap).mean(1)

    return Kind(Boxes(), {"picture": torch.randn(BATCH, 3, 16, 16), "match": torch.tensor([[0, 2, 3], [5, 1, 4]]),
                          "labels": torch.tensor([[1, 8, 2], [0, 5, 3]]), "boxes": torch.randn(BATCH, 3, 4)},
                loss="loss")
