#!/usr/bin/env python3
"""Writes mixtures of experts in the forms that people export, by both of PyTorch's exporters.

    tests/frontend/experts/export.py        every .onnx of this folder, and expected.txt

Needs the environment of models/make-venv; tests read only the files. expected.txt has a line per file: the
file, then the result of PyTorch's module on the input 0.05 * ((7 i) mod 41) - 1 at position i.

Shape letters: B batch, T sequence, D width, F width of an expert, E experts, K chosen.
"""

import contextlib
import io
import logging
import os
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import onnx  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

HERE = Path(__file__).resolve().parent
D, F, E, K, BATCH, SEQ = 8, 12, 4, 2, 3, 7
DROPPED = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(D, F, bias=False)
        self.w2 = nn.Linear(F, D, bias=False)
        self.w3 = nn.Linear(D, F, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Fused(nn.Module):
    """Gate and up in one projection, with biases."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(D, 2 * F)
        self.down = nn.Linear(F, D)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(functional.gelu(gate, approximate="tanh") * up)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(D, F)
        self.fc2 = nn.Linear(F, D)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x)))


class Mixture(nn.Module):
    def __init__(self, expert=Gated):
        super().__init__()
        self.gate = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList([expert() for _ in range(E)])

    def route(self, x):
        weights = functional.softmax(self.gate(x), dim=1, dtype=torch.float)
        weights, chosen = torch.topk(weights, K, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen

    def forward(self, h_BTD):
        x = h_BTD.view(-1, D)
        return self.mix(x, *self.route(x)).reshape(h_BTD.shape)


class IndexAdd(Mixture):
    """Mixtral, Qwen2-MoE and others in transformers 4: a mask of each expert's tokens, index_add."""

    def mix(self, x, weights, chosen):
        result = torch.zeros(x.shape, dtype=x.dtype)
        mask = functional.one_hot(chosen, num_classes=E).permute(2, 1, 0)
        for e in range(E):
            place, token = torch.where(mask[e])
            current = x[None, token].reshape(-1, D)
            current = self.experts[e](current) * weights[token, place, None]
            result.index_add_(0, token, current.to(x.dtype))
        return result


class IndexPut(Mixture):
    """Mistral's reference: rows of the result are read, added to, and written back."""

    def mix(self, x, weights, chosen):
        result = torch.zeros_like(x)
        for e in range(E):
            token, place = torch.where(chosen == e)
            result[token] += weights[token, place, None] * self.experts[e](x[token])
        return result


class Scattered(Mixture):
    """All experts on all tokens, by a column of a matrix of weights."""

    def mix(self, x, weights, chosen):
        full = torch.zeros(x.shape[0], E).scatter(1, chosen, weights)
        result = torch.zeros_like(x)
        for e in range(E):
            result = result + self.experts[e](x) * full[:, e : e + 1]
        return result


class Masked(Mixture):
    """The same, by the weights of the choices equal to the expert; and a shared expert (Qwen2-MoE)."""

    def __init__(self):
        super().__init__()
        self.shared = Gated()
        self.shared_gate = nn.Linear(D, 1, bias=False)

    def mix(self, x, weights, chosen):
        result = torch.zeros_like(x)
        for e in range(E):
            mine = torch.where(chosen == e, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
            result = result + mine * self.experts[e](x)
        return result + torch.sigmoid(self.shared_gate(x)) * self.shared(x)


class Stacked(Mixture):
    """The results of all experts as one tensor, a weighted sum of it."""

    def mix(self, x, weights, chosen):
        full = torch.zeros(x.shape[0], E).scatter(1, chosen, weights)
        results = torch.stack([expert(x) for expert in self.experts], 1)
        return (results * full.unsqueeze(-1)).sum(1)


class Bank(nn.Module):
    """The weights of all experts as tensors."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(E, 2 * F, D) * 0.4)
        self.up_bias = nn.Parameter(torch.randn(E, 2 * F) * 0.4)
        self.down = nn.Parameter(torch.randn(E, D, F) * 0.4)
        self.down_bias = nn.Parameter(torch.randn(E, D) * 0.4)


class Gathered(Mixture):
    """batched_mm of transformers 5: a copy of the weights for each choice of each token."""

    def __init__(self):
        super().__init__()
        self.experts = Bank()

    def mix(self, x, weights, chosen):
        rows, expert = x.repeat_interleave(K, dim=0), chosen.reshape(-1)
        bank = self.experts
        gate, up = (
            torch.bmm(bank.up[expert], rows.unsqueeze(-1)).squeeze(-1) + bank.up_bias[expert]
        ).chunk(2, dim=-1)
        inner = functional.silu(gate) * up
        rows = torch.bmm(bank.down[expert], inner.unsqueeze(-1)).squeeze(-1) + bank.down_bias[expert]
        return (rows * weights.reshape(-1).unsqueeze(-1)).view(-1, K, D).sum(dim=1)


class Dense(Mixture):
    """All experts on all tokens with stacked weights, as batched matmuls; gate and up apart."""

    def __init__(self):
        super().__init__()
        self.experts = Bank()
        self.gate_proj = nn.Parameter(torch.randn(E, D, F) * 0.4)

    def mix(self, x, weights, chosen):
        bank = self.experts
        full = torch.zeros(x.shape[0], E).scatter(1, chosen, weights)
        rows = x.unsqueeze(0).expand(E, -1, -1)
        up = torch.bmm(rows, bank.up[:, :F].transpose(1, 2)) + bank.up_bias[:, None, :F]
        inner = functional.relu(torch.bmm(rows, self.gate_proj)) * up
        results = torch.bmm(inner, bank.down.transpose(1, 2)) + bank.down_bias[:, None]
        return (results * full.transpose(0, 1).unsqueeze(-1)).sum(0)


FORMS = {
    "index_add": IndexAdd,
    "index_add_bias": lambda: IndexAdd(Plain),
    "index_put": IndexPut,
    "scattered": lambda: Scattered(Fused),
    "masked": Masked,
    "stacked": lambda: Stacked(Plain),
    "gathered": Gathered,
    "dense": Dense,
}


def strip(path):
    """Removes metadata with file names of the machine that exported."""
    model = onnx.load(path)
    for node in model.graph.node:
        for entry in [entry for entry in node.metadata_props if entry.key in DROPPED]:
            node.metadata_props.remove(entry)
    del model.graph.value_info[:]
    onnx.save(model, path)


def main():
    lines = []
    for name, make in FORMS.items():
        torch.manual_seed(11)
        module = make().eval()
        count = BATCH * SEQ * D
        x = torch.tensor([0.05 * ((7 * i) % 41) - 1 for i in range(count)]).reshape(BATCH, SEQ, D)
        options = {"input_names": ["x"], "output_names": ["y"]}
        for exporter in ("dynamo", "torchscript"):
            path = HERE / f"{name}-{exporter}.onnx"
            with contextlib.redirect_stdout(io.StringIO()):
                if exporter == "dynamo":
                    axes = {"h_BTD": {0: "batch", 1: "seq"}}
                    torch.onnx.export(
                        module, (x,), dynamo=True, dynamic_shapes=axes, verbose=False, opset_version=18,
                        **options,
                    ).save(str(path))
                else:
                    axes = {"x": {0: "batch", 1: "seq"}}
                    torch.onnx.export(
                        module, (x,), str(path), dynamo=False, opset_version=17, dynamic_axes=axes,
                        **options,
                    )
            strip(path)
            numbers = " ".join(f"{value:.6g}" for value in module(x).detach().reshape(-1).tolist())
            lines.append(f"{path.name} {numbers}")
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
