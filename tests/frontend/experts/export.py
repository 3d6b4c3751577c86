#!/usr/bin/env python3
"""Writes mixtures of experts in the forms that people export, by both of PyTorch's exporters.

    tests/frontend/experts/export.py        every .onnx of this folder, and expected.txt
    tests/frontend/experts/export.py -s FORM ...    only these, by the TorchScript exporter

Needs the environment of models/make-venv; tests read only the files. expected.txt has a line per file: the
file, then the result of PyTorch's module on the input 0.05 * ((7 i) mod 41) - 1 at position i.

Shape letters: B batch, T sequence, D width, F width of an expert, E experts, K chosen.
"""

import contextlib
import io
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import onnx  # noqa: E402
import onnx.numpy_helper  # noqa: E402
import torch  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

HERE = Path(__file__).resolve().parent
D, F, E, K, BATCH, SEQ = 8, 12, 4, 2, 3, 7
LOWERED = ("bf16_gathered", "bf16_index_put")
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


class Bf16Router(Mixture):
    """Weights in bf16 but for the router's, which are in f32 and so are its results."""

    def route(self, x):
        return super().route(x.to(self.gate.weight.dtype))


class Bf16IndexAdd(Bf16Router, IndexAdd):
    """transformers 4 and 5: the product with the f32 weights is in f32, the sum in bf16."""


class Bf16IndexAddBack(Bf16Router, IndexAdd):
    """transformers 4: the router's weights are cast to the type of the tokens."""

    def route(self, x):
        weights, chosen = super().route(x)
        return weights.to(x.dtype), chosen


class Bf16Masked(Bf16Router, Masked):
    """The sum of the choices' weights is cast; everything is summed in f32."""


class Bf16Scattered(Bf16Router, Scattered):
    """The matrix of weights is in f32."""


class Bf16Stacked(Bf16Router, Stacked):
    pass


class Bf16Dense(Bf16Router, Dense):
    pass


class Rank3(Mixture):
    """Tokens stay [batch, seq, width]."""

    def route(self, x):
        weights = functional.softmax(self.gate(x), dim=-1, dtype=torch.float)
        weights, chosen = torch.topk(weights, K, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen

    def forward(self, h_BTD):
        return self.mix(h_BTD, *self.route(h_BTD))

    def full(self, weights, chosen):
        return torch.zeros(*chosen.shape[:-1], E).scatter(-1, chosen, weights)


class Rank3Masked(Rank3):
    def mix(self, x, weights, chosen):
        result = torch.zeros_like(x)
        for e in range(E):
            mine = torch.where(chosen == e, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
            result = result + mine * self.experts[e](x)
        return result


class Rank3Scattered(Rank3):
    def mix(self, x, weights, chosen):
        full = self.full(weights, chosen)
        result = torch.zeros_like(x)
        for e in range(E):
            result = result + self.experts[e](x) * full[..., e : e + 1]
        return result


class Rank3Stacked(Rank3):
    def mix(self, x, weights, chosen):
        results = torch.stack([expert(x) for expert in self.experts], -2)
        return (results * self.full(weights, chosen).unsqueeze(-1)).sum(-2)


class Rank3Einsum(Rank3):
    """Stacked weights and einsums over tokens [batch, seq]."""

    def __init__(self):
        super().__init__()
        self.experts = Bank()

    def mix(self, x, weights, chosen):
        bank = self.experts
        both = torch.einsum("bth,efh->btef", x, bank.up) + bank.up_bias
        gate, up = both.chunk(2, dim=-1)
        inner = functional.silu(gate) * up
        results = torch.einsum("btef,ehf->bteh", inner, bank.down) + bank.down_bias
        return torch.einsum("bteh,bte->bth", results, self.full(weights, chosen))


class Bf16Rank3Scattered(Bf16Router, Rank3Scattered):
    pass


FORMS = {
    "index_add": IndexAdd,
    "index_add_bias": lambda: IndexAdd(Plain),
    "index_put": IndexPut,
    "scattered": lambda: Scattered(Fused),
    "masked": Masked,
    "stacked": lambda: Stacked(Plain),
    "gathered": Gathered,
    "dense": Dense,
    "bf16_index_add": Bf16IndexAdd,
    "bf16_index_add_back": Bf16IndexAddBack,
    "bf16_masked": Bf16Masked,
    "bf16_scattered": lambda: Bf16Scattered(Fused),
    "bf16_stacked": lambda: Bf16Stacked(Plain),
    "bf16_dense": Bf16Dense,
    "rank3_masked": Rank3Masked,
    "rank3_scattered": lambda: Rank3Scattered(Fused),
    "rank3_stacked": lambda: Rank3Stacked(Plain),
    "rank3_einsum": Rank3Einsum,
    "bf16_rank3_scattered": Bf16Rank3Scattered,
}


def strip(path):
    """Removes metadata with file names of the machine that exported."""
    model = onnx.load(path)
    for node in model.graph.node:
        for entry in [entry for entry in node.metadata_props if entry.key in DROPPED]:
            node.metadata_props.remove(entry)
    del model.graph.value_info[:]
    onnx.save(model, path)


def convert(module, dtype):
    """Converts all weights but the router's to `dtype`."""
    router = module.gate.weight.data
    module.to(dtype)
    module.gate.weight.data = router


def elements(tensor):
    """Returns the floats of a tensor."""
    return onnx.numpy_helper.to_array(tensor).reshape(-1).astype(float).tolist()


def lower(form, exporter):
    """Writes a file of `form` in bf16, as PyTorch would: the router's weight stays in f32, and operands
    of two types are cast to f32. For forms that PyTorch 1.13 cannot export in bf16. Returns the line of
    expected.txt.
    """
    types, casts = {}, {}
    model = onnx.load(HERE / f"{form}-{exporter}.onnx")
    graph = model.graph
    factors = {name for node in graph.node if node.op_type in ("MatMul", "Gemm") for name in node.input}
    router = {i.name for i in graph.initializer if i.name in factors and set(i.dims) == {D, E}}
    old = {i.name: i for i in graph.initializer}
    for initializer in old.values():
        if initializer.data_type != TensorProto.FLOAT or not initializer.dims:
            continue
        types[initializer.name] = TensorProto.FLOAT
        if initializer.name not in router:
            types[initializer.name] = TensorProto.BFLOAT16
            rounded = torch.tensor(elements(initializer)).to(torch.bfloat16).view(torch.int16)
            initializer.data_type = TensorProto.BFLOAT16
            initializer.raw_data = rounded.numpy().tobytes()
    for value in [*graph.input, *graph.output]:
        types[value.name] = TensorProto.BFLOAT16
        value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    result = graph.output[0].name
    nodes, numbers = [], {}

    def cast(value, dtype):
        if (value, dtype) not in casts:
            casts[value, dtype] = f"{value}_as_{dtype}"
            nodes.append(helper.make_node("Cast", [value], [casts[value, dtype]], to=dtype))
        return casts[value, dtype]

    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].t.data_type == TensorProto.FLOAT:
            numbers[node.output[0]] = node
        given = {types[name] for name in node.input if name in types}
        if given and node.op_type not in ("Shape", "TopK"):
            wide = TensorProto.FLOAT if len(given) > 1 else given.pop()
            if result in node.output and wide != TensorProto.BFLOAT16:
                wide = TensorProto.BFLOAT16
            for i, name in enumerate(node.input):
                if name in numbers:  # numbers take the type of the tensor
                    attribute = numbers[name].attribute[0]
                    if wide == TensorProto.BFLOAT16:
                        number = helper.make_tensor("", wide, attribute.t.dims, elements(attribute.t))
                        nodes.append(helper.make_node("Constant", [], [f"{name}_{i}"], value=number))
                        node.input[i] = f"{name}_{i}"
                elif types.get(name, wide) != wide:
                    node.input[i] = cast(name, wide)
            if node.op_type == "Cast":
                wide = node.attribute[0].i
            if node.op_type not in ("Equal", "Greater", "Less"):
                for name in node.output:
                    types.setdefault(name, wide)
        elif node.op_type == "TopK":
            types[node.output[0]] = types[node.input[0]]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / f"bf16_{form}-{exporter}.onnx")
    return expected_of(f"bf16_{form}-{exporter}.onnx", make_module(form), torch.bfloat16)


def make_module(name):
    torch.manual_seed(11)
    return FORMS[name]().eval()


def tokens():
    count = BATCH * SEQ * D
    return torch.tensor([0.05 * ((7 * i) % 41) - 1 for i in range(count)]).reshape(BATCH, SEQ, D)


def expected_of(file, module, dtype):
    """Returns the line of expected.txt. In bf16 the weights are rounded, the results are not."""
    if dtype != torch.float:
        convert(module, dtype)
        convert(module, torch.float)
    numbers = module(tokens()).detach().reshape(-1).tolist()
    return f"{file} " + " ".join(f"{value:.6g}" for value in numbers)


def export(name, exporter):
    """Writes one file, and returns its line of expected.txt."""
    module = make_module(name)
    dtype = torch.bfloat16 if isinstance(module, Bf16Router) else torch.float
    if dtype != torch.float:
        convert(module, dtype)
    x = tokens()
    options = {"input_names": ["x"], "output_names": ["y"]}
    path = HERE / f"{name}-{exporter}.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        if exporter == "dynamo":
            axes = {"h_BTD": {0: "batch", 1: "seq"}}
            torch.onnx.export(
                module, (x.to(dtype),), dynamo=True, dynamic_shapes=axes, verbose=False, opset_version=18,
                **options,
            ).save(str(path))
        else:
            axes = {"x": {0: "batch", 1: "seq"}}
            options.update({"dynamo": False} if torch.__version__ >= "2" else {})
            torch.onnx.export(
                module, (x.to(dtype),), str(path), opset_version=17, dynamic_axes=axes, **options
            )
    strip(path)
    return expected_of(path.name, module, dtype)


def main():
    only = sys.argv[2:] if sys.argv[1:2] == ["-s"] else []
    expected = HERE / "expected.txt"
    lines = expected.read_text().splitlines() if only else []
    made = []
    for name in only or [*FORMS, *LOWERED]:
        if name in LOWERED:
            made.append(lower(name.removeprefix("bf16_"), "torchscript"))
        else:
            made += [export(name, way) for way in (["torchscript"] if only else ["dynamo", "torchscript"])]
    names = [line.split()[0] for line in made]
    lines = [line for line in lines if line.split()[0] not in names] + made
    expected.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
