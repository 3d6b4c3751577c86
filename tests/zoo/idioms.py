"""Models of the zoo that are written by hand in other idioms: labels of einsums, masks, bags, pictures, volumes."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from kinds import BATCH, SEQ, VOCAB, Kind, ids, kind
from sequences import Block, tokens_kind

WIDTH = 32


# --- Attention and sequences. ---


@kind
def odd_einsum():
    """Attention and a bilinear form by einsums with repeated, unsorted and elided labels."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Parameter(torch.randn(4, WIDTH, 8) / 6) for _ in range(3))
            self.out, self.form = nn.Parameter(torch.randn(4, 8, WIDTH) / 6), nn.Parameter(torch.randn(8, 8, 8) / 8)

        def forward(self, x):
            q, k, v = (torch.einsum("zyx,wxq->ywzq", x, weight) for weight in (self.q, self.k, self.v))
            scores = torch.einsum("ihbd,jhbd->bhij", q, k) / math.sqrt(8)
            mixed = torch.einsum("bhij,jhbd->ibhd", scores.softmax(-1), v)
            mixed = mixed + torch.einsum("...a,abc,...b->...c", mixed, self.form, mixed)
            return x + torch.einsum("tbhd,hdo->bto", mixed, self.out)

    return tokens_kind(Odd())


@kind
def blockwise_attention():
    """Attention block by block of keys with a running row max and row sum, as in ring attention."""

    class Blockwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            total, row_sum = torch.zeros_like(q), torch.zeros_like(q[..., :1])
            row_max = torch.full_like(q[..., :1], -1e9)
            for keys, values in zip(k.chunk(4, 2), v.chunk(4, 2)):
                scores = q @ keys.transpose(-1, -2) / math.sqrt(8)
                larger = torch.maximum(row_max, scores.amax(-1, keepdim=True))
                weights, old = (scores - larger).exp(), (row_max - larger).exp()
                total, row_sum = total * old + weights @ values, row_sum * old + weights.sum(-1, keepdim=True)
                row_max = larger
            return x + self.out((total / row_sum).transpose(1, 2).flatten(2))

    return tokens_kind(Blockwise(), sequence=())


@kind
def multi_query():
    """One head of keys and values, expanded to all heads; rotary positions by complex numbers' real form."""

    class MultiQuery(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 16), nn.Linear(WIDTH, WIDTH)

        def rotate(self, x):
            angles = torch.arange(x.shape[2])[:, None] * 1e4 ** (-torch.arange(0, 8, 2) / 8)
            real, imaginary = x.unflatten(-1, (4, 2)).unbind(-1)
            cos, sin = angles.cos(), angles.sin()
            return torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], -1).flatten(-2)

        def forward(self, x):
            batch, length, _ = x.shape
            q = self.q(x).view(batch, length, 4, 8).transpose(1, 2)
            k, v = self.kv(x)[:, None].expand(-1, 4, -1, -1).chunk(2, -1)
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / math.sqrt(8)
            mixed = torch.where(mask, scores, torch.finfo(scores.dtype).min).softmax(-1) @ v
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return tokens_kind(MultiQuery())


@kind
def complex_rotary():
    """Rotary positions as products of complex numbers, as Llama's first code."""

    class ComplexRotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            angles = torch.outer(torch.arange(SEQ).float(), 1e4 ** (-torch.arange(0, 8, 2) / 8))
            self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

        def rotate(self, x):
            turned = torch.view_as_complex(x.unflatten(-1, (4, 2))) * self.turns
            return torch.view_as_real(turned).flatten(-2)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return tokens_kind(ComplexRotary(), sequence=())


@kind
def relative_shift():
    """Scores by content and by distance; the second are shifted by a pad and a view, as in Transformer-XL."""

    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.distance = nn.Parameter(torch.randn(4, SEQ, 8) / 3)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            position = F.pad(q @ self.distance.transpose(-1, -2), (1, 0)).view(batch, 4, length + 1, length)[:, :, 1:]
            scores = (q @ k.transpose(-1, -2) + position.reshape(batch, 4, length, length)) / math.sqrt(8)
            mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
            mixed = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return tokens_kind(Shift(), sequence=())


@kind
def torch_transformer():
    """nn.Transformer with a boolean mask of padded keys."""

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, WIDTH)
            self.body = nn.Transformer(WIDTH, 4, 1, 1, 48, 0.0, batch_first=True, norm_first=True)
            self.head = nn.Linear(WIDTH, VOCAB)

        def forward(self, source, target, padded):
            length = target.shape[1]
            causal = torch.triu(torch.full((length, length), -math.inf), 1)
            return self.head(self.body(
                self.source(source), self.target(target), tgt_mask=causal, src_key_padding_mask=padded,
                memory_key_padding_mask=padded))

    padded = torch.zeros(BATCH, 9, dtype=torch.bool)
    padded[1, 6:] = True
    return Kind(Translator().train(), {"source": ids(9), "target": ids(7), "padded": padded})


@kind
def checkpointed():
    """Blocks under torch.utils.checkpoint, their parameters in a list and a dict, the head tied."""

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.blocks = nn.Embedding(VOCAB, WIDTH), nn.ModuleList(Block() for _ in range(2))
            self.scales = nn.ParameterList(torch.ones(WIDTH) for _ in range(2))
            self.last = nn.ParameterDict({"scale": torch.ones(WIDTH), "bias": torch.zeros(VOCAB)})

        def forward(self, tokens):
            x = self.embed(tokens)
            for block, scale in zip(self.blocks, self.scales):
                x = x + checkpoint(block, x, use_reentrant=False) * scale
            x = F.rms_norm(x, (WIDTH,), self.last["scale"], 1e-6)
            return F.linear(x, self.embed.weight, self.last["bias"])

    return Kind(Checkpointed(), {"tokens": ids()}, ("tokens",))


@kind
def packed_lstm():
    """A bidirectional LSTM over samples of lengths that are data."""

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 5)
            self.lstm = nn.LSTM(WIDTH, 16, 2, batch_first=True, bidirectional=True)

        def forward(self, tokens, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
            _, (state, _) = self.lstm(packed)
            return self.head(torch.cat([state[-2], state[-1]], -1))

    return Kind(Packed(), {"tokens": ids(9), "lengths": torch.full((BATCH,), 9)})


@kind
def stacked_gru():
    """Two layers of a bidirectional GRU, and attention of the last state over all of them."""

    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCAB, WIDTH)
            self.gru = nn.GRU(WIDTH, 16, 2, batch_first=True, bidirectional=True)
            self.score, self.head = nn.Bilinear(WIDTH, WIDTH, 1), nn.Linear(2 * WIDTH, 5)

        def forward(self, tokens):
            states, _ = self.gru(self.embed(tokens))
            last = states[:, -1:].expand_as(states).contiguous()
            weights = self.score(last, states).softmax(1)
            return self.head(torch.cat([(weights * states).sum(1), last[:, 0]], -1))

    return Kind(Stacked(), {"tokens": ids(9)})


@kind
def running_statistics():
    """Running sums, maxima and products over positions, forward and backward."""

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(5 * WIDTH, WIDTH)

        def forward(self, x):
            y = self.first(x)
            count = torch.arange(1, x.shape[1] + 1)[:, None]
            means, largest = y.cumsum(1) / count, y.cummax(1).values
            kept = y.sigmoid().cumprod(1)
            log_sums = y.flip(1).logcumsumexp(1).flip(1)
            return x + self.second(torch.cat([means, largest, kept, log_sums, y.roll(1, 1)], -1))

    return tokens_kind(Running(), 9, ())


@kind
def external_memory():
    """A memory that is addressed by cosine similarity, and written by outer products, step by step."""

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.start, self.controller = nn.Parameter(torch.randn(6, 8)), nn.GRUCell(WIDTH + 8, WIDTH)
            self.key, self.erase, self.add = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)

        def forward(self, x):
            memory = self.start.expand(x.shape[0], -1, -1)
            state, read, states = x[:, 0], memory[:, 0], []
            for step in range(x.shape[1]):
                state = self.controller(torch.cat([x[:, step], read], -1), state)
                weights = (3 * F.cosine_similarity(self.key(state)[:, None], memory, dim=-1)).softmax(-1)[..., None]
                memory = memory * (1 - weights * self.erase(state).sigmoid()[:, None])
                memory = memory + weights * self.add(state)[:, None]
                read = (weights * memory).sum(1)
                states.append(state)
            return torch.stack(states, 1)

    return tokens_kind(Memory(), 6, ())


@kind
def pointer_generator():
    """A distribution over the vocabulary mixed with copies of the source's tokens, by scatter_add."""

    class Pointer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix = nn.Embedding(VOCAB, WIDTH), nn.Linear(2 * WIDTH, 1)
            self.query, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, VOCAB)

        def forward(self, source, target):
            keys, query = self.embed(source), self.query(self.embed(target))
            weights = (query @ keys.transpose(-1, -2)).softmax(-1)
            both = torch.cat([query, weights @ keys], -1)
            gate, words = self.mix(both).sigmoid(), self.head(both).softmax(-1)
            places = source[:, None].expand(-1, target.shape[1], -1)
            copies = torch.zeros_like(words).scatter_add(-1, places, weights)
            return (gate * words + (1 - gate) * copies + 1e-9).log()

    return Kind(Pointer(), {"source": ids(9), "target": ids(7)})


@kind
def fourier_mixing():
    """Modes of a real Fourier transform are weighted and transformed back, as in Fourier neural operators."""

    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.real, self.imaginary = nn.Parameter(torch.randn(6, WIDTH)), nn.Parameter(torch.randn(6, WIDTH))
            self.local = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            modes = torch.fft.rfft(x, dim=1)
            modes = modes[:, :6] * torch.complex(self.real, self.imaginary)
            return F.gelu(torch.fft.irfft(modes, n=16, dim=1) + self.local(x))

    return tokens_kind(Fourier(), 16, ())


# --- Sets, graphs, tables. ---


@kind
def deep_sets():
    """Sums, means and maxima of the valid elements of a set; the mask is an input of booleans."""

    class Sets(nn.Module):
        def __init__(self):
            super().__init__()
            self.each = nn.Sequential(nn.Linear(5, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
            self.head = nn.Linear(96, 5)

        def forward(self, elements, valid):
            x, wide = self.each(elements), valid.unsqueeze(-1)
            total = (x * wide).sum(1)
            mean = total / valid.sum(1, keepdim=True).clamp(min=1)
            largest = torch.where(valid.any(1, keepdim=True), x.masked_fill(~wide, -1e4).amax(1), 0.0)
            return self.head(torch.cat([total, mean, largest], -1))

    return Kind(Sets(), {"elements": torch.randn(BATCH, 7, 5), "valid": torch.ones(BATCH, 7, dtype=torch.bool)})


@kind
def topk_pooling():
    """The nodes with the largest scores are kept, with the edges among them (graph U-Net)."""

    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.project, self.head = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, 5)

        def forward(self, nodes, edges):
            x = self.first(edges @ nodes).relu()
            scores, kept = (x @ self.project / self.project.norm()).topk(5, dim=1)
            x = x.gather(1, kept[..., None].expand(-1, -1, WIDTH)) * scores.tanh()[..., None]
            edges = edges.gather(1, kept[..., None].expand(-1, -1, edges.shape[2]))
            edges = edges.gather(2, kept[:, None].expand(-1, 5, -1))
            return self.head(self.second(edges @ x).relu().mean(1))

    return Kind(Pool(), {"nodes": torch.randn(BATCH, 12, 8), "edges": torch.randn(BATCH, 12, 12)})


@kind
def mixed_table():
    """Columns of a table: 32-bit ids, bins of numbers by bucketize, one-hot flags, and missing values."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.ids, self.bins = nn.Embedding(50, 8), nn.EmbeddingBag(9, 8, mode="sum")
            self.register_buffer("edges", torch.linspace(-2, 2, 8))
            self.body = nn.Sequential(nn.Linear(24 + 5, WIDTH), nn.BatchNorm1d(WIDTH), nn.PReLU(), nn.Linear(WIDTH, 3))

        def forward(self, number, code):
            code = code.long()
            number = torch.nan_to_num(torch.where(number.abs() > 2.5, torch.zeros_like(number), number))
            bins = (number[..., None] > self.edges).sum(-1)
            flags = F.one_hot(code[:, 0] % 5, 5).to(number.dtype)
            return self.body(torch.cat([self.ids(code).flatten(1), self.bins(bins), flags], -1))

    number = torch.randn(BATCH, 4)
    return Kind(Table(), {"number": number, "code": torch.randint(0, 50, (BATCH, 2), dtype=torch.int32)})


@kind
def embedding_bag():
    """Means and maxima of the rows of each sample, with nn.EmbeddingBag."""

    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.largest = nn.EmbeddingBag(50, 8, mode="mean"), nn.EmbeddingBag(50, 8, mode="max")
            self.weighted, self.head = nn.EmbeddingBag(50, 8, mode="sum"), nn.Linear(24, 5)

        def forward(self, codes, weights):
            bags = [self.mean(codes), self.largest(codes), self.weighted(codes, None, weights)]
            return self.head(torch.cat(bags, -1))

    return Kind(Bags(), {"codes": torch.randint(0, 50, (BATCH, 6)), "weights": torch.rand(BATCH, 6)})


# --- Pictures, sound, volumes. ---


@kind
def norm_parametrizations():
    """Weight norm of a convolution, spectral norm of a linear layer, a low-rank addition to a weight."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = parametrizations.weight_norm(nn.Conv1d(4, WIDTH, 5, padding=2, dilation=1))
            self.dense = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
            self.base, self.up = nn.Linear(WIDTH, 5), nn.Parameter(torch.randn(5, 2))
            self.down = nn.Parameter(torch.randn(2, WIDTH))

        def forward(self, signal):
            x = F.leaky_relu(self.conv(signal), 0.1).mean(-1)
            x = F.softsign(self.dense(x))
            return F.linear(x, self.base.weight + 0.5 * self.up @ self.down, self.base.bias)

    return Kind(Normed(), {"signal": torch.randn(BATCH, 4, 20)})


@kind
def gated_audio():
    """Dilated, grouped convolutions over time with gates, group norms and strided pooling."""

    class Audio(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv1d(1, WIDTH, 8, stride=4)
            self.gates = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, 3, dilation=d, groups=2) for d in (1, 2, 4))
            self.norms, self.head = nn.ModuleList(nn.GroupNorm(4, WIDTH) for _ in range(3)), nn.Linear(WIDTH, 5)

        def forward(self, sound):
            x = self.first(sound)
            for gate, norm in zip(self.gates, self.norms):
                x = x + F.glu(gate(F.pad(norm(x), (2 * gate.dilation[0], 0))), 1)
            return self.head(F.avg_pool1d(x, 3, 2, 1).flatten(2).std(-1))

    return Kind(Audio(), {"sound": torch.randn(BATCH, 1, 100)})


@kind
def volumes():
    """Three-dimensional convolutions down and up, with instance norms."""

    class Volumes(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8, affine=True), nn.ELU(), nn.MaxPool3d(2))
            self.middle = nn.Conv3d(8, 16, (1, 3, 3), padding=(0, 1, 1))
            self.up, self.last = nn.ConvTranspose3d(16, 8, 2, stride=2), nn.Conv3d(16, 2, 1)

        def forward(self, volume):
            skip = self.down[2](self.down[1](self.down[0](volume)))
            x = self.up(F.hardswish(self.middle(self.down[3](skip))))
            return self.last(torch.cat([x, skip], 1)).permute(0, 2, 3, 4, 1)

    return Kind(Volumes(), {"volume": torch.randn(BATCH, 1, 4, 8, 8)})


@kind
def super_resolution():
    """Pixels are shuffled to a larger picture, over a bilinear enlargement of the input."""

    class Larger(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 12, 3, padding=1)
            self.slope = nn.PReLU(16)
            self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

        def forward(self, picture):
            x = self.slope(self.first(picture))
            x = x * F.hardsigmoid(self.excite(F.relu6(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
            base = F.interpolate(picture, scale_factor=2, mode="bilinear", align_corners=False)
            return base + F.pixel_shuffle(self.second(x), 2)

    return Kind(Larger(), {"picture": torch.randn(BATCH, 3, 8, 8)}, loss="mse")


@kind
def unet_transposed():
    """A U-Net with transposed convolutions of odd sizes, reflected borders, and cropped skips."""

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Conv2d(3, 16, 3, stride=2, padding=1, padding_mode="reflect")
            self.middle = nn.Conv2d(16, 16, 3)
            self.up = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
            self.last, self.norm = nn.Conv2d(11, 3, 3, padding=1, padding_mode="replicate"), nn.GroupNorm(2, 16)

        def forward(self, picture):
            x = F.mish(self.norm(self.middle(self.down(picture))))
            x = F.interpolate(self.up(x), size=(13, 13), mode="bicubic", align_corners=True)
            return self.last(torch.cat([x, picture[:, :, 1:-1, 1:-1]], 1))

    return Kind(Unet(), {"picture": torch.randn(BATCH, 3, 15, 15)}, loss="mse")


@kind
def local_windows():
    """Attention within overlapping windows by unfold, and the sum of overlaps by fold."""

    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.head = nn.Conv2d(3, 24, 1), nn.Linear(8, 5)

        def forward(self, picture):
            parts = F.unfold(self.qkv(picture), 4, stride=2).unflatten(1, (3, 8, 16))
            q, k, v = parts.permute(1, 0, 4, 3, 2).unbind(0)
            mixed = ((q @ k.transpose(-1, -2)) / math.sqrt(8)).softmax(-1) @ v
            whole = F.fold(mixed.permute(0, 3, 2, 1).flatten(1, 2), (8, 8), 4, stride=2)
            return self.head(whole.mean((2, 3)))

    return Kind(Local(), {"picture": torch.randn(BATCH, 3, 8, 8)})


@kind
def spatial_transformer():
    """A picture is warped by a predicted affine map."""

    class Warped(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 6))
            self.head = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))

        def forward(self, picture):
            theta = torch.eye(2, 3) + 0.1 * self.where(picture).view(-1, 2, 3)
            grid = F.affine_grid(theta, picture.shape, align_corners=False)
            return self.head(F.grid_sample(picture, grid, align_corners=False))

    return Kind(Warped(), {"picture": torch.randn(BATCH, 3, 8, 8)})


@kind
def clips():
    """Frames are samples of a convolution, then steps of a sequence."""

    class Clips(nn.Module):
        def __init__(self):
            super().__init__()
            self.frame, self.mix, self.head = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, video):
            batch, frames = video.shape[:2]
            x = self.frame(video.flatten(0, 1)).relu().mean((2, 3)).view(batch, frames, -1)
            x = x + self.mix(x.mean(1, keepdim=True)) - self.mix(torch.cat([x[:, 1:], x[:, :1]], 1))
            return self.head(x.amax(1))

    return Kind(Clips(), {"video": torch.randn(BATCH, 4, 3, 9, 9)})


@kind
def sample_loop():
    """A scripted loop over samples: each is scaled by its own sums and pooled by its own weights."""

    @torch.jit.script
    def pooled(x, weight):
        rows = []
        for i in range(x.shape[0]):
            scaled = x[i] / x[i].abs().sum(1, keepdim=True)
            rows.append((torch.matmul(scaled, weight).softmax(0)[:, None] * scaled).sum(0))
        return torch.stack(rows)

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 5)
            self.score = nn.Parameter(torch.randn(WIDTH))

        def forward(self, tokens):
            return self.head(pooled(self.embed(tokens), self.score))

    return Kind(Loop(), {"tokens": ids(9)})
