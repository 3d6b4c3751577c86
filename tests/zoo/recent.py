"""Models of the zoo as people train them in 2026: state spaces, latent and sparse attention, routed experts, flows."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from idioms import WIDTH
from kinds import BATCH, KINDS, VOCAB, Kind, config_of, decoder, distinct, ids, kind
from sequences import Block, tokens_kind


class RmsNorm(nn.Module):
    """As nn.RMSNorm, which TorchScript's exporter lacks."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


# --- States instead of keys. ---


@kind
def gated_delta():
    """Gated delta rule (Qwen3-Next, Kimi Linear) in chunks: an inverse by forward substitution, a state per chunk."""

    class Delta(nn.Module):
        def __init__(self, heads=2, dim=8, chunk=8):
            super().__init__()
            self.heads, self.dim, self.chunk = heads, dim, chunk
            self.qkv, self.gates = nn.Linear(WIDTH, 3 * heads * dim), nn.Linear(WIDTH, 2 * heads)
            self.mix = nn.Conv1d(3 * heads * dim, 3 * heads * dim, 4, groups=3 * heads * dim, padding=3)
            self.log_rate, self.shift = nn.Parameter(torch.zeros(heads)), nn.Parameter(torch.ones(heads))
            self.norm, self.out = RmsNorm(dim), nn.Linear(heads * dim, WIDTH)
            self.gate = nn.Linear(WIDTH, heads * dim)

        def forward(self, x):
            batch, length, _ = x.shape
            mixed = F.silu(self.mix(self.qkv(x).transpose(1, 2))[..., :length]).transpose(1, 2)
            q, k, v = (part.view(batch, length, self.heads, self.dim).transpose(1, 2) for part in mixed.chunk(3, -1))
            q, k = F.normalize(q, dim=-1) / math.sqrt(self.dim), F.normalize(k, dim=-1)
            beta, rate = self.gates(x).chunk(2, -1)
            beta = beta.sigmoid().transpose(1, 2)
            decay = (-self.log_rate.exp() * F.softplus(rate + self.shift)).transpose(1, 2)
            parts = [t.unflatten(2, (-1, self.chunk)) for t in (q, k, v, k * beta[..., None], v * beta[..., None])]
            q, k, v, k_beta, v_beta = parts
            decay = decay.unflatten(2, (-1, self.chunk)).cumsum(-1)
            lower = torch.ones(self.chunk, self.chunk, dtype=torch.bool).tril()
            ratio = ((decay[..., :, None] - decay[..., None, :]).tril().exp()) * lower
            strict = torch.triu(torch.ones(self.chunk, self.chunk, dtype=torch.bool))
            inverse = -((k_beta @ k.transpose(-1, -2)) * ratio).masked_fill(strict, 0)
            for i in range(1, self.chunk):
                row, above = inverse[..., i, :i].clone(), inverse[..., :i, :i].clone()
                inverse[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
            inverse = inverse + torch.eye(self.chunk)
            v, k_decayed = inverse @ v_beta, inverse @ (k_beta * decay.exp()[..., None])
            state = torch.zeros(batch, self.heads, self.dim, self.dim)
            outs = []
            for i in range(length // self.chunk):
                q_i, k_i, d_i = q[:, :, i], k[:, :, i], decay[:, :, i]
                new = v[:, :, i] - k_decayed[:, :, i] @ state
                inside = (q_i @ k_i.transpose(-1, -2) * ratio[:, :, i]).tril()
                outs.append((q_i * d_i[..., None].exp()) @ state + inside @ new)
                state = state * d_i[:, :, -1, None, None].exp() + (
                    k_i * (d_i[:, :, -1, None] - d_i).exp()[..., None]).transpose(-1, -2) @ new
            out = torch.stack(outs, 2).flatten(2, 3).transpose(1, 2)
            return x + self.out((self.norm(out) * F.silu(self.gate(x).view_as(out))).flatten(2))

    return tokens_kind(Delta(), sequence=())


@kind
def mamba2():
    """Mamba-2's state space duality: sums over segments, chunks by einsum, beside a block of attention."""

    def segment_sum(x):
        length = x.size(-1)
        x = x[..., None].expand(*x.shape, length)
        x = x.masked_fill(~torch.tril(torch.ones(length, length, dtype=torch.bool), diagonal=-1), 0)
        return x.cumsum(-2).masked_fill(~torch.tril(torch.ones(length, length, dtype=torch.bool)), -math.inf)

    class Mamba(nn.Module):
        def __init__(self, heads=4, dim=8, states=6, chunk=8):
            super().__init__()
            self.sizes, self.heads, self.dim, self.chunk = [32, 32 + 2 * states, heads], heads, dim, chunk
            self.states = states
            self.inner = nn.Linear(WIDTH, sum(self.sizes), bias=False)
            self.conv = nn.Conv1d(self.sizes[1], self.sizes[1], 4, groups=self.sizes[1], padding=3)
            self.shift, self.log_a, self.skip = (nn.Parameter(torch.ones(heads) / 2) for _ in range(3))
            self.norm, self.out = RmsNorm(32), nn.Linear(32, WIDTH, bias=False)

        def forward(self, u):
            z, xbc, dt = self.inner(u).split(self.sizes, -1)
            dt = F.softplus(dt + self.shift)
            xbc = F.silu(self.conv(xbc.transpose(1, 2)).transpose(1, 2)[:, : u.shape[1]])
            x, b, c = xbc.split([32, self.states, self.states], -1)
            x = x.unflatten(-1, (self.heads, self.dim))
            values = (x * dt[..., None]).unflatten(1, (-1, self.chunk))
            a = (-self.log_a.exp() * dt).unflatten(1, (-1, self.chunk)).permute(0, 3, 1, 2)
            b, c = (t[:, :, None].expand(-1, -1, self.heads, -1).unflatten(1, (-1, self.chunk)) for t in (b, c))
            total = a.cumsum(-1)
            inside = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, segment_sum(a).exp(), values)
            states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, (total[..., -1:] - total).exp(), values)
            states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
            between = segment_sum(F.pad(total[..., -1], (1, 0))).exp()
            states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
            across = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, total.exp())
            y = (inside + across).flatten(1, 2) + x * self.skip[:, None]
            return u + self.out(self.norm(y.flatten(2) * F.silu(z)))

    return tokens_kind(nn.Sequential(Mamba(), Block()), sequence=())


@kind
def rwkv7():
    """RWKV-7's time mixing: shifts of tokens by lerp, low-rank gates, a state with a rank-one removal per token."""

    class TimeMix(nn.Module):
        def __init__(self, heads=4, dim=8):
            super().__init__()
            self.heads, self.dim = heads, dim
            self.mix = nn.Parameter(torch.rand(6, 1, 1, WIDTH))
            self.r, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.low = nn.ParameterList(torch.randn(WIDTH, 4) / 6 for _ in range(3))
            self.high = nn.ParameterList(torch.randn(4, WIDTH) / 2 for _ in range(3))
            self.w0, self.a0 = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 1, WIDTH))
            self.removal, self.bonus = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(heads, dim))
            self.shift, self.norm = nn.ZeroPad2d((0, 0, 1, -1)), nn.GroupNorm(heads, WIDTH, eps=64e-5)

        def forward(self, x):
            batch, length, width = x.shape
            r, w, k, v, a, g = x + (self.shift(x) - x) * self.mix
            r, k, v = self.r(r), self.k(k), self.v(v)
            w = -F.softplus(-(self.w0 + torch.tanh(w @ self.low[0]) @ self.high[0])) - 0.5
            a = torch.sigmoid(self.a0 + (a @ self.low[1]) @ self.high[1])
            g = torch.sigmoid(g @ self.low[2]) @ self.high[2]
            kk = F.normalize((k * self.removal).view(batch, length, self.heads, -1), dim=-1, p=2.0)
            k = k * (1 + (a - 1) * 0.5)
            w = torch.exp(-torch.exp(w))
            r, w, k, v, a = (t.view(batch, length, self.heads, self.dim) for t in (r, w, k, v, a))
            state = torch.zeros(batch, self.heads, self.dim, self.dim)
            outs = []
            for t in range(length):
                gone = state @ -kk[:, t, :, :, None] @ (kk[:, t] * a[:, t])[:, :, None, :]
                state = state * w[:, t, :, None, :] + gone + v[:, t, :, :, None] @ k[:, t, :, None, :]
                outs.append((state @ r[:, t, :, :, None]).view(batch, width))
            out = self.norm(torch.stack(outs, 1).view(batch * length, width)).view(batch, length, width)
            bonus = (r * k * self.bonus).sum(-1, keepdim=True) * v
            return x + self.o((out + bonus.view(batch, length, width)) * g)

    return tokens_kind(TimeMix(), 8, sequence=())


# --- Attention. ---


def rotate(x, positions, base=1e4):
    """Rotates pairs (i, i + d/2) of the last dim; x: [batch, heads, tokens, d]."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * base ** (-torch.arange(half) / half)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


@kind
def latent_attention():
    """Multi-head latent attention: low-rank queries and keys, one rotary key of all heads; sigmoid-routed experts."""

    class Latent(nn.Module):
        def __init__(self, heads=4, plain=8, turned=4, rank=12):
            super().__init__()
            self.heads, self.plain, self.turned, self.rank = heads, plain, turned, rank
            self.norm = RmsNorm(WIDTH, eps=1e-6)
            self.q_down, self.q_norm = nn.Linear(WIDTH, rank, bias=False), RmsNorm(rank, eps=1e-6)
            self.q_up = nn.Linear(rank, heads * (plain + turned), bias=False)
            self.kv_down, self.kv_norm = nn.Linear(WIDTH, rank + turned, bias=False), RmsNorm(rank, eps=1e-6)
            self.kv_up = nn.Linear(rank, heads * 2 * plain, bias=False)
            self.out = nn.Linear(heads * plain, WIDTH, bias=False)

        def forward(self, x):
            batch, length, _ = x.shape
            h, places = self.norm(x), torch.arange(length)
            q = self.q_up(self.q_norm(self.q_down(h))).view(batch, length, self.heads, -1).transpose(1, 2)
            q_plain, q_turned = q.split([self.plain, self.turned], -1)
            latent, k_turned = self.kv_down(h).split([self.rank, self.turned], -1)
            kv = self.kv_up(self.kv_norm(latent)).view(batch, length, self.heads, -1).transpose(1, 2)
            k_plain, v = kv.split([self.plain, self.plain], -1)
            k_turned = rotate(k_turned[:, None], places).expand(-1, self.heads, -1, -1)
            q = torch.cat([q_plain, rotate(q_turned, places)], -1)
            k = torch.cat([k_plain, k_turned], -1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=(self.plain + self.turned) ** -0.5)
            return x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    class Experts(nn.Module):
        """A shared expert, and four of which two are chosen by sigmoids plus a bias that is no parameter."""

        def __init__(self, count=4, inner=16):
            super().__init__()
            self.norm, self.router = RmsNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, count, bias=False)
            self.register_buffer("bias", torch.linspace(-0.1, 0.1, count), persistent=False)
            self.gate_up = nn.Parameter(torch.randn(count, WIDTH, 2 * inner) / 6)
            self.down = nn.Parameter(torch.randn(count, inner, WIDTH) / 4)
            self.shared = nn.Sequential(nn.Linear(WIDTH, inner), nn.SiLU(), nn.Linear(inner, WIDTH))

        def forward(self, x):
            h = self.norm(x)
            scores = self.router(h).sigmoid()
            chosen = (scores + self.bias).topk(2, -1).indices
            weights = scores.gather(-1, chosen)
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5
            dense = torch.zeros_like(scores).scatter(-1, chosen, weights)
            gate, up = torch.einsum("btd,edf->ebtf", h, self.gate_up).chunk(2, -1)
            each = torch.einsum("ebtf,efd->ebtd", F.silu(gate) * up, self.down)
            return x + torch.einsum("ebtd,bte->btd", each, dense) + self.shared(h)

    return tokens_kind(nn.Sequential(Latent(), Experts()))


@kind
def sinks_and_windows():
    """Sliding and global layers in turn, learned sinks, gates on heads, norms of queries and keys, capped logits."""

    class Layer(nn.Module):
        def __init__(self, window):
            super().__init__()
            self.window = window
            self.qkv, self.out = nn.Linear(WIDTH, 4 * 8 + 2 * 2 * 8), nn.Linear(WIDTH, WIDTH)
            self.q_norm, self.k_norm, self.gate = RmsNorm(8), RmsNorm(8), nn.Linear(WIDTH, 4)
            self.sinks = nn.Parameter(torch.randn(4))

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).split([32, 16, 16], -1)
            q, k, v = (t.view(batch, length, -1, 8).transpose(1, 2) for t in (q, k, v))
            places = torch.arange(length)
            q, k = rotate(self.q_norm(q), places), rotate(self.k_norm(k), places)
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            far = places[:, None] - places
            keep = far >= 0
            if self.window:
                keep = keep & (far < self.window)
            scores = (q @ k.transpose(2, 3) / math.sqrt(8)).masked_fill(~keep, -math.inf)
            sinks = self.sinks[None, :, None, None].expand(batch, -1, length, 1)
            weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
            mixed = (weights @ v) * self.gate(x).sigmoid().transpose(1, 2)[..., None]
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    class Capped(nn.Module):
        def forward(self, x):
            return 5.0 * torch.tanh(x / 5.0)

    return tokens_kind(nn.Sequential(Layer(6), Layer(None), Layer(6), Capped()))


@kind
def differential_attention():
    """The difference of two softmaxes (Diff Transformer), with a learned weight of the second."""

    class Differential(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
            self.a, self.b = nn.Parameter(torch.randn(2, 4) / 4), nn.Parameter(torch.randn(2, 4) / 4)
            self.norm, self.out = RmsNorm(8), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            q = self.q(x).view(batch, length, 8, 4).transpose(1, 2)
            k = self.k(x).view(batch, length, 8, 4).transpose(1, 2)
            v = self.v(x).view(batch, length, 4, 8).transpose(1, 2)
            mask = torch.triu(torch.full((length, length), float("-inf")), 1)
            weights = (q @ k.transpose(-1, -2) / 2 + mask).softmax(-1, dtype=torch.float32)
            weights = weights.view(batch, 4, 2, length, length)
            second = (self.a[0] * self.b[0]).sum().exp() - (self.a[1] * self.b[1]).sum().exp() + 0.2
            mixed = self.norm((weights[:, :, 0] - second * weights[:, :, 1]) @ v) * 0.8
            return x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))

    return tokens_kind(Differential())


@kind
def native_sparse():
    """Native sparse attention: compressed blocks, the best two blocks, and a window, mixed by gates."""

    class Sparse(nn.Module):
        def __init__(self, block=4, heads=4):
            super().__init__()
            self.block, self.heads = block, heads
            self.qkv, self.gates = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * heads)
            self.compress, self.out = nn.Linear(block * 8, 8), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).view(batch, length, 3, self.heads, 8).permute(2, 0, 3, 1, 4)
            blocks = length // self.block
            k_blocks, v_blocks = (self.compress(t.reshape(batch, self.heads, blocks, self.block * 8)) for t in (k, v))
            places, ends = torch.arange(length), (torch.arange(blocks) + 1) * self.block - 1
            seen = places[:, None] >= ends
            scores = (q @ k_blocks.transpose(2, 3) / math.sqrt(8)).masked_fill(~seen, -1e9)
            weights = scores.softmax(-1) * seen
            coarse = weights @ v_blocks
            best = torch.zeros_like(weights).scatter(-1, weights.topk(2, -1).indices, 1.0) > 0
            own = places[:, None] // self.block == torch.arange(blocks)
            fine = (best | own).repeat_interleave(self.block, -1) & (places[:, None] >= places)
            chosen = F.scaled_dot_product_attention(q, k, v, attn_mask=fine)
            near = (places[:, None] >= places) & (places[:, None] - places < 5)
            window = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
            a, b, c = self.gates(x).sigmoid().view(batch, length, self.heads, 3).transpose(1, 2).unbind(-1)
            mixed = coarse * a[..., None] + chosen * b[..., None] + window * c[..., None]
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return tokens_kind(Sparse(), sequence=())


@kind
def altup():
    """Gemma 3n's parts: streams updated in turn, low-rank residuals, embeddings per layer, sparse activations."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.route, self.norm, self.block = nn.Linear(WIDTH, 3, bias=False), RmsNorm(WIDTH), Block()
            self.predict, self.correct = nn.Linear(3, 9, bias=False), nn.Linear(3, 3, bias=False)
            self.scale, self.gate, self.back = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
            self.left, self.right = nn.Linear(WIDTH, 6, bias=False), nn.Linear(6, WIDTH, bias=False)

        def forward(self, streams, extra):
            routes = torch.tanh(self.route(self.norm(streams[0]) * WIDTH**-1.0))
            weights = self.predict(routes).reshape(*routes.shape[:-1], 3, 3).permute(0, 1, 3, 2)
            predicted = (streams.permute(1, 2, 3, 0) @ weights).permute(3, 0, 1, 2) + streams
            active = predicted[0]
            out = (self.block(active) + active + self.right(self.left(active))) / math.sqrt(2.0)
            cut = out.mean(-1, keepdim=True) + 0.5 * out.std(-1, keepdim=True, unbiased=False)
            out = out + F.gelu(F.relu(out - cut), approximate="tanh")
            innovation = (out - active).repeat(3, 1, 1, 1)
            rates = (self.correct(torch.tanh(self.route(self.norm(out)))) + 1.0).permute(2, 0, 1).unsqueeze(-1)
            streams = predicted + innovation * rates
            first = self.back(F.gelu(self.gate(streams[0] * self.scale)) * extra)
            return torch.cat([streams[:1], streams[1:] + first])

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.extra = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, 16)
            self.widen = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
            self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, VOCAB)

        def forward(self, tokens):
            x = self.embed(tokens) * math.sqrt(WIDTH)
            extra = self.extra(tokens).view(*tokens.shape, 2, 8)
            size = x.square().mean(-1, keepdim=True).sqrt()
            others = [layer(x) for layer in self.widen]
            others = [other * size / torch.maximum(other.square().mean(-1, keepdim=True), torch.tensor(1e-5)).sqrt()
                      for other in others]
            streams = torch.stack([x, *others])
            for i, layer in enumerate(self.layers):
                streams = layer(streams, extra[:, :, i])
            return self.head(streams.mean(0))

    return Kind(Nested(), {"tokens": ids()}, ("tokens",))


@kind
def hyper_connections():
    """Streams of residuals mixed by a matrix that Sinkhorn's steps make doubly stochastic."""

    class Layer(nn.Module):
        def __init__(self, streams=4):
            super().__init__()
            self.block, self.norm = Block(), RmsNorm(streams * WIDTH)
            self.maps = nn.Linear(streams * WIDTH, streams * streams + 2 * streams)
            self.streams = streams

        def forward(self, x):
            n = self.streams
            read, write, mix = self.maps(self.norm(x.flatten(2))).split([n, n, n * n], -1)
            mix = mix.unflatten(-1, (n, n)).exp()
            for _ in range(3):
                mix = mix / mix.sum(-1, keepdim=True)
                mix = mix / mix.sum(-2, keepdim=True)
            out = self.block((read.sigmoid()[..., None] * x).sum(2))
            return mix @ x + 2 * write.sigmoid()[..., None] * out[:, :, None]

    class Streams(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x):
            x = x[:, :, None].repeat(1, 1, 4, 1)
            for layer in self.layers:
                x = layer(x)
            return x.sum(2)

    return tokens_kind(Streams())


@kind
def multi_token():
    """Two heads for the next tokens (MTP): each joins its state with the embedding of a later token."""

    class Ahead(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body = nn.Embedding(VOCAB, WIDTH), nn.Sequential(Block(), Block())
            self.joins = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH, bias=False) for _ in range(2))
            self.norms, self.blocks = nn.ModuleList(RmsNorm(WIDTH) for _ in range(4)), nn.ModuleList([Block(), Block()])
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            x = self.embed(tokens)
            state = self.body(x)
            loss = F.cross_entropy(self.head(state[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            for depth in range(2):
                later = x[:, depth + 1 :]
                state = state[:, : later.shape[1]]
                joined = torch.cat([self.norms[2 * depth](state), self.norms[2 * depth + 1](later)], -1)
                state = self.blocks[depth](self.joins[depth](joined))
                logits, labels = self.head(state[:, :-1]), tokens[:, depth + 2 :]
                loss = loss + 0.15 * F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
            return loss

    return Kind(Ahead(), {"tokens": ids()}, loss="loss", meets=True)


# --- Pictures, sound. ---


@kind
def registers_vit():
    """DINOv3's encoder: class token, registers, rotary positions of patches only, layer scales, SwiGLU."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.w12, self.w3 = nn.Linear(WIDTH, 96), nn.Linear(48, WIDTH)
            self.scale1, self.scale2 = nn.Parameter(0.1 * torch.ones(WIDTH)), nn.Parameter(0.1 * torch.ones(WIDTH))

        def turn(self, t, cos, sin):
            head, patches = t[:, :, :5], t[:, :, 5:]
            a, b = patches.chunk(2, -1)
            return torch.cat([head, patches * cos + torch.cat([-b, a], -1) * sin], 2)

        def forward(self, x, cos, sin):
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(self.turn(q, cos, sin), self.turn(k, cos, sin), v)
            x = x + self.scale1 * self.proj(mixed.transpose(1, 2).flatten(2))
            a, b = self.w12(self.norm2(x)).chunk(2, -1)
            return x + self.scale2 * self.w3(F.silu(a) * b)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, WIDTH, 4, 4)
            self.cls, self.registers = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 4, WIDTH))
            self.mask_token = nn.Parameter(torch.randn(1, WIDTH))
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(2)), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(2 * WIDTH, 10)

        def forward(self, pixel_values, masked):
            x = self.patch(pixel_values)
            rows, columns = x.shape[-2:]
            x = x.flatten(2).transpose(1, 2)
            x = torch.where(masked[..., None], self.mask_token[None], x)
            grid = torch.stack(torch.meshgrid(
                (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij"), -1)
            angles = (2 * math.pi * (2 * grid.flatten(0, 1) - 1)[:, :, None] / torch.tensor([1.0, 10.0])).flatten(1)
            angles = angles.tile(2)
            first = [self.cls.expand(x.shape[0], -1, -1), self.registers.expand(x.shape[0], -1, -1)]
            x = torch.cat([*first, x], 1)
            for layer in self.layers:
                x = layer(x, angles.cos(), angles.sin())
            x = self.norm(x)
            return self.head(torch.cat([x[:, 0], x[:, 5:].mean(1)], -1))

    return Kind(Encoder(), {"pixel_values": torch.randn(BATCH, 3, 16, 16), "masked": torch.rand(BATCH, 16) < 0.3})


# --- Decoders of transformers 5, by the configuration's class. ---

NEWER = {
    "apertus": "ApertusConfig",
    "arcee": "ArceeConfig",
    "hunyuan": "HunYuanDenseV1Config",
    "nanochat": "NanoChatConfig",
    "olmo3": "Olmo3Config",
    "seed-oss": "SeedOssConfig",
}
for _name, _config in NEWER.items():
    KINDS[_name] = partial(distinct, lambda c=_config: decoder(config_of(c), attention="sdpa"))
