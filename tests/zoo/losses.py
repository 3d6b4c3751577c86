"""Losses of the zoo that are parts of a model: means with weights, sums of means, recursions, statistics of the batch.

Such a model returns one loss per sample, or one number (Kind.loss is "loss").
"""

import torch
from torch import nn
from torch.nn import functional as F

from idioms import WIDTH
from kinds import BATCH, SEQ, VOCAB, Kind, ids, kind
from sequences import Block


@kind
def label_losses():
    """Cross entropy with smoothing, class weights and ignored labels, and a z-loss."""

    class Losses(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.head = nn.Embedding(VOCAB, WIDTH), Block(), nn.Linear(WIDTH, VOCAB)
            self.register_buffer("classes", torch.linspace(0.5, 1.5, VOCAB))

        def forward(self, tokens, targets):
            logits = self.head(self.block(self.embed(tokens)))
            labels = targets.masked_fill(targets < 20, -100)
            smooth = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
            weighted = F.cross_entropy(logits.transpose(-1, -2), targets, weight=self.classes, reduction="none").mean()
            return smooth + weighted + 1e-3 * logits.logsumexp(-1).square().mean()

    return Kind(Losses(), {"tokens": ids(), "targets": ids()}, loss="loss", meets=True)


@kind
def masked_mean_loss():
    """A loss that is divided by the number of the batch's valid tokens, as masked language models'."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.head = nn.Embedding(VOCAB, WIDTH), Block(), nn.Linear(WIDTH, VOCAB)

        def forward(self, tokens, targets, masked):
            logits = self.head(self.block(self.embed(tokens)))
            each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
            weights = masked.to(each.dtype)
            return (each * weights).sum() / weights.sum().clamp(min=1.0)

    masked = torch.arange(SEQ).expand(BATCH, -1) % 3 == 0
    return Kind(Masked(), {"tokens": ids(), "targets": ids(), "masked": masked}, loss="loss")


@kind
def regression_losses():
    """Quantile, Huber and mixture-density losses, by torch.where and logsumexp."""

    class Regression(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.quantiles = nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh()), nn.Linear(WIDTH, 3)
            self.mixture = nn.Linear(WIDTH, 12)
            self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

        def forward(self, x, target):
            hidden = self.body(x)
            error = target[:, None] - self.quantiles(hidden)
            quantile = torch.maximum(self.levels * error, (self.levels - 1) * error).sum(-1)
            huber = F.smooth_l1_loss(self.quantiles(hidden)[:, 1], target, reduction="none", beta=0.5)
            weight, mean, width = self.mixture(hidden).chunk(3, -1)
            normal = torch.distributions.Normal(mean, F.softplus(width) + 0.1)
            density = torch.logsumexp(weight.log_softmax(-1) + normal.log_prob(target[:, None]), -1)
            return quantile + huber - density

    return Kind(Regression(), {"x": torch.randn(BATCH, 6), "target": torch.randn(BATCH)}, loss="loss")


@kind
def variational():
    """A reconstruction summed over pixels, a divergence summed over a code, and the norm of a weight."""

    class Variational(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(16, 12), nn.Linear(6, 16)

        def forward(self, picture, noise):
            mean, logarithm = self.encode(picture).chunk(2, -1)
            again = self.decode(mean + (0.5 * logarithm).exp() * noise)
            divergence = -0.5 * (1 + logarithm - mean.square() - logarithm.exp()).sum() / picture.shape[0]
            reconstruction = (again - picture).square().sum(-1).mean()
            return reconstruction + 0.1 * divergence + 1e-3 * self.encode.weight.square().sum()

    return Kind(Variational(), {"picture": torch.randn(BATCH, 16), "noise": torch.randn(BATCH, 6)}, loss="loss")


@kind
def soft_dtw():
    """Soft dynamic time warping: a recursion over a grid of costs, by soft minima."""

    class Warping(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(3, 8)

        def forward(self, first, second):
            cost = torch.cdist(self.encode(first), self.encode(second)).square()
            rows, columns = cost.shape[1:]
            infinite = torch.full_like(cost[:, 0, 0], 1e4)
            above = [torch.zeros_like(infinite)] + [infinite] * columns
            for i in range(rows):
                row = [infinite]
                for j in range(columns):
                    least = -torch.logsumexp(-torch.stack([above[j], above[j + 1], row[j]]), 0)
                    row.append(cost[:, i, j] + least)
                above = row
            return above[-1]

    return Kind(Warping(), {"first": torch.randn(BATCH, 5, 3), "second": torch.randn(BATCH, 4, 3)}, loss="loss")


@kind
def sim_clr():
    """The loss of SimCLR: two views of each sample are joined, and each has 2 n - 1 candidates."""

    class SimClr(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))

        def forward(self, first, second):
            n = first.shape[0]
            z = F.normalize(self.encode(torch.cat([first, second])), dim=-1)
            scores = (z @ z.T / 0.2).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
            labels = torch.cat([torch.arange(n) + n, torch.arange(n)])
            return F.cross_entropy(scores, labels)

    return Kind(SimClr(), {"first": torch.randn(BATCH, 6), "second": torch.randn(BATCH, 6)}, loss="loss", meets=True)


@kind
def vic_reg():
    """Variance, invariance and covariance of embeddings over the batch."""

    class VicReg(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))

        def forward(self, first, second):
            a, b = self.encode(first), self.encode(second)
            loss = 25 * F.mse_loss(a, b)
            for z in (a, b):
                z = z - z.mean(0)
                loss = loss + 25 * F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
                covariance = z.T @ z / (z.shape[0] - 1)
                loss = loss + (covariance.square().sum() - covariance.diagonal().square().sum()) / 8
            return loss

    return Kind(VicReg(), {"first": torch.randn(BATCH, 6), "second": torch.randn(BATCH, 6)}, loss="loss", meets=True)
