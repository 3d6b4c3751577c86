"""More models of the zoo that are written by hand: sequence models, losses by recursion, flows, autoencoders."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from kinds import BATCH, SEQ, VOCAB, Kind, config_of, ids, kind

WIDTH = 32


# --- Other sequence models. ---


class Block(nn.Module):
    """A transformer's block with causal attention."""

    def __init__(self, width=WIDTH, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Written(nn.Module):
    """Embedding, a body, and logits of every token."""

    def __init__(self, body):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(VOCAB, WIDTH), body, nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


def tokens_kind(body, length=SEQ, sequence=("tokens",)):
    return Kind(Written(body), {"tokens": ids(length)}, sequence)


@kind
def looped():
    """One block with tied weights, four times, with the input added each time."""

    class Looped(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.mix = Block(), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x):
            state = torch.zeros_like(x)
            for _ in range(4):
                state = self.block(self.mix(torch.cat([state, x], -1)))
            return state

    return tokens_kind(Looped())


@kind
def mixture_of_depths():
    """A router picks half of the tokens; a block mixes those alone, and they are scattered back."""

    class Depths(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.router = Block(), Block(), nn.Linear(WIDTH, 1)

        def forward(self, x):
            x = self.first(x)
            scores = self.router(x)[..., 0]
            chosen, places = scores.topk(SEQ // 2, dim=1)
            places, order = places.sort(dim=1)
            wide = places[..., None].expand(-1, -1, WIDTH)
            weights = chosen.gather(1, order).sigmoid()[..., None]
            update = self.second(x.gather(1, wide)) * weights
            return x.scatter_add(1, wide, update)

    return tokens_kind(Depths(), sequence=())


@kind
def retnet():
    """Retention: decayed linear attention in its parallel form."""

    class Retention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.gate, self.out, self.group = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GroupNorm(4, WIDTH)
            self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(4.0))))

        def forward(self, x):
            batch, length, _ = x.shape
            normed = self.norm(x)
            q, k, v = self.qkv(normed).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            index = torch.arange(length, device=x.device)
            distance = (index[:, None] - index[None]).to(x.dtype)
            mask = torch.where(distance >= 0, (self.decay[:, None, None] * distance).exp(), 0.0)
            mixed = ((q @ k.transpose(-1, -2)) * mask / math.sqrt(8)) @ v
            mixed = self.group(mixed.transpose(1, 2).reshape(batch * length, WIDTH)).view(batch, length, WIDTH)
            return x + self.out(F.silu(self.gate(normed)) * mixed)

    return tokens_kind(nn.Sequential(Retention(), Retention()))


@kind
def hyena():
    """Long convolutions by the Fourier transform, with gates."""

    class Hyena(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.short = nn.Conv1d(3 * WIDTH, 3 * WIDTH, 3, padding=2, groups=3 * WIDTH)
            self.filter = nn.Parameter(torch.randn(WIDTH, SEQ) * 0.1)

        def forward(self, x):
            length = x.shape[1]
            u = self.short(self.inner(x).transpose(1, 2))[..., :length]
            a, b, v = u.chunk(3, dim=1)
            spectrum = torch.fft.rfft(self.filter, n=2 * SEQ) * torch.fft.rfft(v * a, n=2 * SEQ)
            mixed = torch.fft.irfft(spectrum, n=2 * SEQ)[..., :length]
            return x + self.out((mixed * b).transpose(1, 2))

    return tokens_kind(Hyena(), sequence=())


@kind
def linear_attention():
    """Causal linear attention by cumulative sums, with elu + 1 features."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, 8).unbind(2)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            state = torch.einsum("blhd,blhe->blhde", k, v).cumsum(1)
            scale = torch.einsum("blhd,blhd->blh", q, k.cumsum(1))
            mixed = torch.einsum("blhd,blhde->blhe", q, state) / scale[..., None]
            return x + self.out(mixed.reshape(batch, length, WIDTH))

    return tokens_kind(nn.Sequential(Linear(), Linear()))


@kind
def minimal_gru():
    """A gated recurrence in log space: a parallel scan by cumulative sums and logcumsumexp's form."""

    class Recurrence(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            gate = self.gate(x)
            keep = (-F.softplus(gate)).cumsum(1)
            added = (-F.softplus(-gate) - keep).exp() * self.value(x)
            return x + keep.exp() * added.cumsum(1)

    return tokens_kind(Recurrence())


@kind
def soft_moe():
    """Every expert takes slots, which are mixtures of all tokens."""

    class SoftMoe(nn.Module):
        def __init__(self):
            super().__init__()
            self.slots = nn.Parameter(torch.randn(WIDTH, 4, 2) * 0.2)
            self.up = nn.Parameter(torch.randn(4, WIDTH, 48) * 0.1)
            self.down = nn.Parameter(torch.randn(4, 48, WIDTH) * 0.1)

        def forward(self, x):
            scores = torch.einsum("btd,dep->btep", x, self.slots)
            slots = torch.einsum("btep,btd->bepd", scores.softmax(1), x)
            slots = torch.einsum("bepf,efd->bepd", F.gelu(torch.einsum("bepd,edf->bepf", slots, self.up)), self.down)
            return x + torch.einsum("btep,bepd->btd", scores.flatten(2).softmax(-1).view_as(scores), slots)

    return tokens_kind(nn.Sequential(Block(), SoftMoe()))


@kind
def switch_capacity():
    """Switch experts with a capacity: one-hot dispatch and combine tensors, as Mesh TensorFlow."""

    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(WIDTH, 4, bias=False)
            self.up = nn.Parameter(torch.randn(4, WIDTH, 48) * 0.1)
            self.down = nn.Parameter(torch.randn(4, 48, WIDTH) * 0.1)

        def forward(self, x):
            gates = self.router(x).softmax(-1)
            chosen = F.one_hot(gates.argmax(-1), 4).to(x.dtype)
            places = (chosen.cumsum(1) - 1) * chosen
            capacity = 8
            kept = chosen * (places < capacity)
            dispatch = kept[..., None] * F.one_hot(places.sum(-1).long().clamp(max=capacity - 1), capacity)[:, :, None]
            slots = torch.einsum("btec,btd->ebcd", dispatch, x)
            slots = F.relu(torch.einsum("ebcd,edf->ebcf", slots, self.up))
            slots = torch.einsum("ebcf,efd->ebcd", slots, self.down)
            combine = dispatch * (gates * chosen).sum(-1)[..., None, None]
            return x + torch.einsum("btec,ebcd->btd", combine, slots)

    return tokens_kind(nn.Sequential(Block(), Switch()))


@kind
def kan():
    """Kolmogorov-Arnold: splines on each edge, by Cox-de Boor's recursion."""

    class Kan(nn.Module):
        def __init__(self, inner, outer, grid=5, order=3):
            super().__init__()
            self.order = order
            self.register_buffer("knots", torch.arange(-order, grid + order + 1) / grid * 2.0 - 1.0)
            self.base, self.spline = nn.Linear(inner, outer), nn.Linear(inner * (grid + order), outer, bias=False)

        def forward(self, x):
            knots, wide = self.knots, x[..., None]
            bases = ((wide >= knots[:-1]) & (wide < knots[1:])).to(x.dtype)
            for k in range(1, self.order + 1):
                left = (wide - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1]) * bases[..., :-1]
                right = (knots[k + 1 :] - wide) / (knots[k + 1 :] - knots[1:-k]) * bases[..., 1:]
                bases = left + right
            return self.base(F.silu(x)) + self.spline(bases.flatten(-2))

    return Kind(nn.Sequential(Kan(8, 16), Kan(16, 5)), {"input": torch.randn(BATCH, 8).tanh()})


@kind
def mlp_mixer():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, WIDTH, 8, stride=8)
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
            self.tokens = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(2)
            )
            self.channels = nn.ModuleList(
                nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH)) for _ in range(2)
            )
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, pixel_values):
            x = self.patch(pixel_values).flatten(2).transpose(1, 2)
            for i in range(2):
                x = x + self.tokens[i](self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
                x = x + self.channels[i](self.norms[2 * i + 1](x))
            return self.head(x.mean(1))

    return Kind(Mixer(), {"pixel_values": torch.randn(BATCH, 3, 32, 32)})


@kind
def neural_ode():
    """Four fixed Runge-Kutta steps of a network with one set of weights."""

    class Ode(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = nn.Sequential(nn.Linear(9, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))
            self.head = nn.Linear(8, 5)

        def slope(self, time, x):
            return self.field(torch.cat([x, torch.full_like(x[:, :1], time)], -1))

        def forward(self, input):
            x, step = input, 0.25
            for i in range(4):
                time = i * step
                a = self.slope(time, x)
                b = self.slope(time + step / 2, x + step / 2 * a)
                c = self.slope(time + step / 2, x + step / 2 * b)
                d = self.slope(time + step, x + step * c)
                x = x + step / 6 * (a + 2 * b + 2 * c + d)
            return self.head(x)

    return Kind(Ode(), {"input": torch.randn(BATCH, 8)})


@kind
def focal_dice():
    """Segmentation with a focal and a dice loss in the graph."""

    class Segment(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
            self.up, self.head = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 1)

        def forward(self, pixel_values, mask):
            target = (mask > 0).to(pixel_values.dtype)
            left = self.down(pixel_values)
            logits = self.head(torch.cat([left, self.up(self.middle(left))], 1))
            p = logits.sigmoid()
            entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
            hit = p * target + (1 - p) * (1 - target)
            focal = ((0.25 * target + 0.75 * (1 - target)) * (1 - hit) ** 2 * entropy).mean((1, 2, 3))
            overlap = (p * target).sum((1, 2, 3))
            dice = 1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
            return focal + dice

    return Kind(
        Segment(),
        {"pixel_values": torch.randn(BATCH, 3, 16, 16), "mask": torch.randn(BATCH, 1, 16, 16)},
        loss="loss",
    )


@kind
def crf():
    """A linear-chain CRF's negative log likelihood over a bidirectional LSTM, by the forward algorithm."""

    class Crf(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCAB, 16)
            self.lstm = nn.LSTM(16, 8, bidirectional=True, batch_first=True)
            self.emit, self.moves = nn.Linear(16, 5), nn.Parameter(torch.randn(5, 5) * 0.1)

        def forward(self, tokens, tags):
            scores = self.emit(self.lstm(self.embed(tokens))[0])
            score = scores.gather(2, tags[..., None])[..., 0].sum(1)
            score = score + self.moves[tags[:, :-1], tags[:, 1:]].sum(1)
            alpha = scores[:, 0]
            for i in range(1, 8):
                alpha = torch.logsumexp(alpha[:, :, None] + self.moves, 1) + scores[:, i]
            return torch.logsumexp(alpha, 1) - score

    return Kind(Crf(), {"tokens": ids(8), "tags": torch.randint(0, 5, (BATCH, 8)).fill_(4)}, loss="loss")


@kind
def ctc():
    """CTC's loss by its forward recursion over 2n + 1 states, in the graph."""

    class Ctc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 12, 1))

        def forward(self, frames, labels):
            logs = self.net(frames).transpose(1, 2).log_softmax(-1)
            blank = torch.zeros_like(labels)
            states = torch.stack([blank, labels], -1).flatten(1)
            states = torch.cat([states, blank[:, :1]], 1)
            emitted = logs.gather(2, states[:, None].expand(-1, logs.shape[1], -1))
            skip = torch.cat([blank[:, :1], blank[:, :1], states[:, 2:] - states[:, :-2]], 1) != 0
            skip = skip & (states != 0)
            low = torch.full_like(emitted[:, 0], -1e4)
            alpha = torch.cat([emitted[:, 0, :2], low[:, 2:]], 1)
            for i in range(1, 10):
                one = torch.cat([low[:, :1], alpha[:, :-1]], 1)
                two = torch.where(skip, torch.cat([low[:, :2], alpha[:, :-2]], 1), low)
                alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + emitted[:, i]
            return -torch.logsumexp(alpha[:, -2:], 1)

    return Kind(Ctc(), {"frames": torch.randn(BATCH, 8, 10), "labels": torch.randint(3, 12, (BATCH, 4))}, loss="loss")


@kind
def vq_vae():
    """A quantised bottleneck with the straight-through estimator and a commitment loss."""

    class VqVae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Conv2d(3, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1))
            self.codes = nn.Embedding(24, 8)
            self.decode = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), nn.ReLU(),
                                        nn.Conv2d(16, 3, 1))

        def forward(self, pixel_values):
            z = self.encode(pixel_values).permute(0, 2, 3, 1)
            distances = (z[..., None, :] - self.codes.weight).square().sum(-1)
            code = self.codes(distances.argmin(-1))
            loss = (code - z.detach()).square().mean((1, 2, 3)) + 0.25 * (code.detach() - z).square().mean((1, 2, 3))
            out = self.decode((z + (code - z).detach()).permute(0, 3, 1, 2))
            return loss + (out - pixel_values).square().mean((1, 2, 3))

    return Kind(VqVae(), {"pixel_values": torch.randn(BATCH, 3, 16, 16)}, loss="loss")


@kind
def flow():
    """RealNVP: affine couplings with the log determinant in the loss."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(
                nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8)) for _ in range(4)
            )

        def forward(self, input):
            x, total = input, 0.0
            for net in self.nets:
                a, b = x.chunk(2, -1)
                scale, shift = net(a).chunk(2, -1)
                scale = scale.tanh()
                total = total + scale.sum(-1)
                x = torch.cat([b * scale.exp() + shift, a], -1)
            return 0.5 * x.square().sum(-1) + 4 * math.log(2 * math.pi) - total

    return Kind(Flow(), {"input": torch.randn(BATCH, 8)}, loss="loss")


@kind
def slot_attention():
    """Slots compete by a softmax over slots, and a GRU cell updates them three times."""

    class Slots(nn.Module):
        def __init__(self):
            super().__init__()
            self.start = nn.Parameter(torch.randn(4, 16))
            self.norm, self.slot_norm = nn.LayerNorm(16), nn.LayerNorm(16)
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.cell, self.head = nn.GRUCell(16, 16), nn.Linear(16, 5)

        def forward(self, features):
            x = self.norm(features)
            k, v = self.k(x), self.v(x)
            slots = self.start.expand(x.shape[0], -1, -1)
            for _ in range(3):
                weights = (k @ self.q(self.slot_norm(slots)).transpose(1, 2) / 4).softmax(-1) + 1e-8
                weights = weights / weights.sum(1, keepdim=True)
                update = weights.transpose(1, 2) @ v
                slots = self.cell(update.reshape(-1, 16), slots.reshape(-1, 16)).view(-1, 4, 16)
            return self.head(slots)

    return Kind(Slots(), {"features": torch.randn(BATCH, 20, 16)})


@kind
def sinkhorn():
    """An optimal transport loss of two point sets, ten Sinkhorn steps in log space."""

    class Sinkhorn(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 4))

        def forward(self, first, second):
            cost = torch.cdist(self.net(first), self.net(second)) if False else (
                (self.net(first)[:, :, None] - self.net(second)[:, None]).square().sum(-1))
            f, g = torch.zeros_like(cost[:, :, 0]), torch.zeros_like(cost[:, 0])
            for _ in range(10):
                f = -torch.logsumexp(g[:, None] - cost - math.log(8), 2)
                g = -torch.logsumexp(f[:, :, None] - cost - math.log(8), 1)
            plan = (f[:, :, None] + g[:, None] - cost - 2 * math.log(8)).exp()
            return (plan * cost).sum((1, 2))

    return Kind(Sinkhorn(), {"first": torch.randn(BATCH, 8, 3), "second": torch.randn(BATCH, 8, 3)}, loss="loss")


@kind
def wavenet():
    """Dilated causal convolutions with gates and skip connections."""

    class Wavenet(nn.Module):
        def __init__(self):
            super().__init__()
            self.gates = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, 2, dilation=2**i) for i in range(3))
            self.outs = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, 1) for _ in range(3))

        def forward(self, x):
            x = x.transpose(1, 2)
            total = torch.zeros_like(x)
            for i in range(3):
                a, b = self.gates[i](F.pad(x, (2**i, 0))).chunk(2, 1)
                rest, skip = self.outs[i](a.tanh() * b.sigmoid()).chunk(2, 1)
                x, total = x + rest, total + skip
            return total.relu().transpose(1, 2)

    return tokens_kind(Wavenet())


@kind
def seq2seq_rnn():
    """An LSTM encoder and decoder with Luong attention."""

    class Translate(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(VOCAB, 16), nn.Embedding(VOCAB, 16)
            self.encoder, self.decoder = nn.LSTM(16, 16, batch_first=True), nn.LSTM(16, 16, batch_first=True)
            self.score, self.mix, self.head = nn.Linear(16, 16, bias=False), nn.Linear(32, 16), nn.Linear(16, VOCAB)

        def forward(self, source, target):
            memory, state = self.encoder(self.source(source))
            x, _ = self.decoder(self.target(target), state)
            weights = (self.score(x) @ memory.transpose(1, 2)).softmax(-1)
            return self.head(self.mix(torch.cat([x, weights @ memory], -1)).tanh())

    return Kind(Translate(), {"source": ids(7), "target": ids(6)})


@kind
def masked_autoencoder():
    """Patches are shuffled by noise; a quarter is encoded, the rest restored from a learned token."""

    class Mae(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.encoder, self.decoder = nn.Linear(12, WIDTH), Block(), Block()
            self.places, self.token = nn.Parameter(torch.randn(16, WIDTH)), nn.Parameter(torch.randn(1, 1, WIDTH))
            self.head = nn.Linear(WIDTH, 12)

        def forward(self, patches, noise):
            order = noise.argsort(1)
            back = order.argsort(1)
            x = self.embed(patches) + self.places
            kept = x.gather(1, order[:, :4, None].expand(-1, -1, WIDTH))
            rest = self.token.expand(x.shape[0], 12, -1)
            x = torch.cat([self.encoder(kept), rest], 1).gather(1, back[..., None].expand(-1, -1, WIDTH))
            error = (self.head(self.decoder(x + self.places)) - patches).square().mean(-1)
            hidden = (back >= 4).to(error.dtype)
            return (error * hidden).sum(1) / hidden.sum(1)

    return Kind(Mae(), {"patches": torch.randn(BATCH, 16, 12), "noise": torch.randn(BATCH, 16)}, loss="loss")


@kind
def reward_pairs():
    """A Bradley-Terry reward model on BERT: the last token's value of a chosen and a rejected answer."""
    import transformers

    config = config_of("BertConfig", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertModel._from_config(config, attn_implementation="eager", add_pooling_layer=False)

    class Reward(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.value = model, nn.Linear(WIDTH, 1)

        def score(self, tokens):
            mask = torch.ones_like(tokens)
            return self.value(self.model(input_ids=tokens, attention_mask=mask).last_hidden_state[:, -1])[:, 0]

        def forward(self, chosen, rejected):
            return -F.logsigmoid(self.score(chosen) - self.score(rejected)).mean()

    return Kind(Reward(), {"chosen": ids(), "rejected": ids()}, loss="loss")
