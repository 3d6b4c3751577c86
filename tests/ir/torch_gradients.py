#!/usr/bin/env python3
"""Writes tests/ir/torch_gradients.txt: PyTorch's gradients of the op cases.

    TBC_PRINT_GRADIENT_CASES=cases.txt build/bin/op-tests --gtest_filter="*TorchGradient*"
    python3 tests/ir/torch_gradients.py cases.txt > tests/ir/torch_gradients.txt

Needs PyTorch (any version from 1.13 on, CPU). Run it after adding a differentiable op; the table is
committed. A case is a line `CASE mnemonic|operand types|attributes`, the operands (f64), and the cotangent of the
first result. For each the table repeats the first line and gives the cotangents of the operands that have one.
Example: `CASE mul|2xf32,2xf32|` with operands 1 2 and 3 4 and the cotangent 1 1 gives 3 4 and 1 2.

Each function below defines an op in PyTorch's own terms, without code of tbc.
"""

import inspect
import re
import sys

import torch
import torch.nn.functional as F


def attributes(text):
    """`strides = array<i64: 2, 3>, groups = 1 : i64, causal = true` as a dict."""
    result = {}
    for name, value in re.findall(r"(\w+) = (array<i64(?:: [-\d, ]*)?>|\"[^\"]*\"|[^,]+)", text):
        if value.startswith("array"):
            result[name] = [int(number) for number in re.findall(r"-?\d+", value[len("array<i64"):])]
        elif value.startswith('"'):
            result[name] = value.strip('"')
        elif value in ("true", "false"):
            result[name] = value == "true"
        else:
            number = value.split(" : ")[0]
            result[name] = float(number) if re.search(r"[.e]", number) else int(number)
    return result


OPS = {}


def op(function):
    OPS[function.__name__.rstrip("_")] = function
    return function


def unary(**functions):
    OPS.update({name: (lambda f: lambda a, x: f(x))(f) for name, f in functions.items()})


def binary(**functions):
    OPS.update({name: (lambda f: lambda a, x, y: f(x, y))(f) for name, f in functions.items()})


unary(neg=torch.neg, abs=torch.abs, exp=torch.exp, log=torch.log, sqrt=torch.sqrt, rsqrt=torch.rsqrt,
      reciprocal=torch.reciprocal, tanh=torch.tanh, erf=torch.erf, sigmoid=torch.sigmoid, relu=torch.relu,
      sin=torch.sin, cos=torch.cos, atan=torch.atan, silu=F.silu, cast=lambda x: x.double(), tan=torch.tan,
      asin=torch.asin, acos=torch.acos, sinh=torch.sinh, cosh=torch.cosh, asinh=torch.asinh, acosh=torch.acosh,
      atanh=torch.atanh, floor=torch.floor, ceil=torch.ceil, round=torch.round, sign=torch.sign,
      round_even=torch.round)
binary(add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div, pow=torch.pow, maximum=torch.maximum,
       minimum=torch.minimum)


@op
def select(a, condition, x, y):
    return torch.where(condition != 0, x, y)


@op
def broadcast(a, x, result):
    shape = [1] * len(result)
    for dim, target in enumerate(a["dims"]):
        shape[target] = x.shape[dim]
    return x.reshape(shape).expand(result)


@op
def transpose(a, x):
    return x.permute(a["permutation"])


@op
def reshape(a, x, result):
    return x.reshape(result)


@op
def slice_(a, x):
    return x.narrow(a["dim"], a["offset"], a["size"])


@op
def concat(a, *xs):
    return torch.cat(xs, a["dim"])


@op
def pad(a, x):
    widths = [0, 0] * x.dim()
    widths[2 * a["dim"]:2 * a["dim"] + 2] = [a["high"], a["low"]]
    return F.pad(x, widths[::-1])


@op
def reduce_sum(a, x):
    return x.sum(a["dims"])


@op
def running_sum(a, x):
    y = x.flip(a["dim"]) if a["reverse"] else x
    y = y.cumsum(a["dim"]) - (y if a["exclusive"] else 0)
    return y.flip(a["dim"]) if a["reverse"] else y


@op
def reduce_max(a, x):
    return x.amax(a["dims"])


@op
def einsum(a, x, y):
    return torch.einsum(x, a["lhs_labels"], y, a["rhs_labels"], a["out_labels"])


@op
def gather(a, table, indices):
    picked = table.index_select(a["dim"], indices.flatten())
    return picked.reshape(table.shape[:a["dim"]] + indices.shape + table.shape[a["dim"] + 1:])


def here(numbers, wanted):
    """One at the entries with a wanted number, padding aside: [wanted.., v]."""
    return (numbers == wanted.unsqueeze(-1)).double() * (numbers >= 0)


@op
def embedding(a, table, indices, numbers, last):
    return here(numbers, torch.where(indices < 0, indices + last + 1, indices)) @ table


@op
def class_sums(a, x, m, labels, numbers, last):
    return ((x - m.unsqueeze(-1)).exp() * (numbers >= 0)).sum(-1)  # the first result


@op
def scatter_add(a, updates, indices, result):
    # The transpose of gather: one row after the other.
    table = torch.zeros(result, dtype=torch.float64)
    dims = list(range(a["dim"], a["dim"] + indices.dim()))
    return table.index_add(a["dim"], indices.flatten(), updates.flatten(dims[0], dims[-1]))


@op
def topk(a, x, result):
    return x.topk(result[a["dim"]], a["dim"], a["largest"]).values


@op
def gather_elements(a, x, indices):
    return x.gather(a["dim"], indices)


@op
def scatter_elements_add(a, updates, indices, result):
    return torch.zeros(result, dtype=torch.float64).scatter_add(a["dim"], indices, updates)


def padded(x, pads, value=0.0):
    """Pads the spatial dims by `pads`: all low ends, then all high ends."""
    spatial = len(pads) // 2
    widths = []
    for dim in reversed(range(spatial)):
        widths += [pads[dim], pads[spatial + dim]]
    return F.pad(x, widths, value=value)


@op
def conv(a, x, w):
    spatial = len(a["strides"])
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    return function(padded(x, a["pads"]), w, stride=a["strides"], dilation=a["dilations"], groups=a["groups"])


@op
def max_pool(a, x):
    return F.max_pool2d(padded(x, a["pads"], -float("inf")), a["kernel"], a["strides"], dilation=a["dilations"])


@op
def avg_pool(a, x):
    function = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(a["kernel"])]
    sums = function(padded(x, a["pads"]), a["kernel"], a["strides"])
    if a["count_include_pad"]:
        return sums
    return sums / function(padded(torch.ones_like(x), a["pads"]), a["kernel"], a["strides"])


@op
def softmax(a, x):
    return F.softmax(x, a["dim"])


@op
def layer_norm(a, x, w, b):
    return F.layer_norm(x, w.shape, w, b, a["epsilon"])


@op
def rms_norm(a, x, w):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + a["epsilon"]) * w


@op
def batch_norm(a, x, scale, bias, mean, variance):
    # Not F.batch_norm: it gives no gradient for the statistics.
    shape = [1, -1] + [1] * (x.dim() - 2)
    normal = (x - mean.reshape(shape)) / torch.sqrt(variance.reshape(shape) + a["epsilon"])
    return normal * scale.reshape(shape) + bias.reshape(shape)


@op
def gelu(a, x):
    return F.gelu(x, approximate=a["approximate"])


@op
def swiglu(a, gate, up):
    return F.silu(gate) * up


@op
def rotary(a, x, cos, sin):
    if a.get("token_major"):  # heads lie between positions and columns
        heads = x.reshape(*x.shape[:2], -1, 2 * cos.shape[-1]).transpose(1, 2)
        plain = {**a, "token_major": False}
        return rotary(plain, heads, cos, sin).transpose(1, 2).reshape(x.shape)
    interleaved = a.get("interleaved")
    low, high = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, -1)
    if cos.dim() == 3:  # one table per sample
        shape = [x.shape[0]] + [1] * (x.dim() - 3) + list(cos.shape[1:])
        cos, sin = cos.reshape(shape), sin.reshape(shape)
    sin = -sin if a["inverse"] else sin
    parts = [low * cos - high * sin, high * cos + low * sin]
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


def head_major(a, tensor, letter):
    if letter.upper() in a["token_major"]:
        heads = a["key_heads"] if letter in "kv" else a["heads"]
        tensor = tensor.unflatten(-1, (heads, -1))
        return tensor.transpose(1, 2)
    return tensor.transpose(1, 2) if letter in a["token_major"] else tensor


@op
def attention(a, q, k, v, *masks):
    if order := a.get("token_major"):
        q, k, v = head_major(a, q, "q"), head_major(a, k, "k"), head_major(a, v, "v")
        o = attention({**a, "token_major": ""}, q, k, v, *masks)
        o = o.transpose(1, 2) if "o" in order.lower() else o
        return o.flatten(2) if "O" in order else o
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) * a["scale"]
    s, t = scores.shape[-2:]
    ahead = torch.arange(t)[None, :] - torch.arange(t - s, t)[:, None]
    conditions = [ahead <= 0 if a["causal"] else ahead == ahead]
    if "left" in a:
        conditions[0] = conditions[0] & (ahead >= -a["left"])
    if "right" in a:
        conditions[0] = conditions[0] & (ahead <= a["right"])
    masks = list(masks)
    if a.get("soft_cap"):
        scores = torch.tanh(scores / a["soft_cap"]) * a["soft_cap"]
    for letters in filter(None, a.get("biases", "").split(",")):
        bias = masks.pop(0)
        scores = scores + bias[tuple(slice(None) if letter in letters else None for letter in "bhst")]
    sink = masks.pop(0) if a.get("sink") else None
    if a.get("key_mask"):
        conditions.append((masks.pop(0) != 0)[:, None, None, :])
    if a.get("segments"):
        conditions.append((masks.pop(0)[:, :, None] == masks.pop(0)[:, None, :])[:, None])
    if a.get("ordered"):
        conditions[0] = conditions[0] & (masks.pop(0)[:, :, None] >= masks.pop(0)[:, None, :])[:, None]
    rows = a.get("hidden_rows", "zero")
    lowest = torch.finfo(scores.dtype).min
    allowed = conditions[0]
    for condition in conditions[1:]:
        allowed = allowed & condition
    allowed = allowed.expand(scores.shape)
    hidden = ~allowed.any(-1, keepdim=True)
    kept = 1
    if a.get("drops_out"):
        scaled = {"ratio": a["dropout"], "seed": a["dropout_seed"], "key": a["dropout_key"]}
        kept = dropout_train(scaled, torch.ones_like(scores), *masks)
    if sink is not None:
        column = sink[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores.masked_fill(~allowed, -float("inf")), column], -1)
        return scores.softmax(-1)[..., :-1] * kept @ v
    if rows == "nearest":  # one mask after the other; such numbers leave nothing of a score
        scores = scores.masked_fill(hidden, 0.0)
        penalties = [torch.zeros_like(scores).masked_fill(~c, lowest / 4) for c in conditions]
        return (scores + sum(penalties)).softmax(-1) * kept @ v
    if rows == "window":  # the future is -inf, the rest the lowest number
        scores = scores.masked_fill(~allowed, lowest).masked_fill(~conditions[0], -float("inf"))
        return scores.softmax(-1) * kept @ v
    if rows == "mean":
        return scores.masked_fill(~allowed, lowest).softmax(-1) * kept @ v
    if rows == "scores":
        return (scores + torch.where(allowed, 0.0, -1e4)).softmax(-1) * kept @ v
    weights = scores.masked_fill(~allowed & ~hidden, -float("inf")).softmax(-1)
    return torch.where(hidden, 0.0, weights) * kept @ v


@op
def cross_entropy(a, logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=a["ignore_index"],
                           label_smoothing=a.get("label_smoothing", 0.0), reduction="none").reshape(labels.shape)


@op
def conv_grad_input(a, cotangent, w, result):
    # The transposed convolution. Its result lacks elements inside the padding that no window reaches.
    spatial = len(a["strides"])
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[spatial]
    x = function(cotangent, w, stride=a["strides"], groups=a["groups"], dilation=a["dilations"])
    for dim in range(spatial):
        size = result[2 + dim]
        missing = a["pads"][dim] + size - x.shape[2 + dim]
        if missing > 0:
            x = F.pad(x, [0, 0] * (spatial - 1 - dim) + [0, missing])
        x = x.narrow(2 + dim, a["pads"][dim], size)
    return x


@op
def routed_experts(a, x, weights, w_in, w_out):
    activation = {"silu": F.silu, "relu": F.relu, "gelu": F.gelu,
                  "gelu_tanh": lambda p: F.gelu(p, approximate="tanh")}[a["activation"]]
    p = torch.einsum("th,efh->tef", x, w_in)
    if a["gated"]:
        gate, up = p.chunk(2, -1)
        inner = activation(gate) * up
    else:
        inner = activation(p)
    return torch.einsum("tef,eof,te->to", inner, w_out, weights)


def slots(weights, capacity, weighted):
    """[g, t, e, c]: 1, or the weight, where token t has slot c of expert e."""
    chosen = weights != 0
    place = chosen.long().cumsum(1) - 1
    taken = (chosen & (place < capacity))[..., None]
    one_hot = F.one_hot(place.clamp(0, capacity - 1), capacity) * taken
    return one_hot * weights[..., None] if weighted else one_hot.to(weights.dtype)


@op
def dispatch(a, x, weights):
    return torch.einsum("gtec,gth->gech", slots(weights, a["capacity"], a["weighted"]), x)


@op
def combine(a, x, weights):
    return torch.einsum("gtec,gech->gth", slots(weights, x.shape[2], a["weighted"]), x)


def flip(a, x):
    return x.flip(0) if a["reverse"] else x


@op
def lstm(a, x, r, h, c):
    size = h.shape[1]  # PyTorch's gates are i, f, g, o
    order = [*range(size), *range(2 * size, 4 * size), *range(size, 2 * size)]
    w = torch.eye(4 * size, dtype=x.dtype)[order]
    return flip(a, torch.lstm(flip(a, x), (h[None], c[None]), [w, r[order]], False, 1, 0.0, False, False, False)[0])


@op
def gru(a, x, r, bias, h):
    size = h.shape[1]
    if a["reset_after"]:  # PyTorch's gates are r, z, n
        order = [*range(size, 2 * size), *range(size), *range(2 * size, 3 * size)]
        w, zero = torch.eye(3 * size, dtype=x.dtype)[order], torch.zeros(3 * size, dtype=x.dtype)
        weights = [w, r[order], zero, torch.cat([zero[size:], bias])]
        return flip(a, torch.gru(flip(a, x), h[None], weights, True, 1, 0.0, False, False, False)[0])
    states = []
    for step in flip(a, x):
        z, reset = torch.sigmoid(step[:, : 2 * size] + h @ r[: 2 * size].T).chunk(2, -1)
        h = (1 - z) * torch.tanh(step[:, 2 * size :] + (reset * h) @ r[2 * size :].T + bias) + z * h
        states.append(h)
    return flip(a, torch.stack(states))


def philox(counter, key):
    """Philox 4x32-10 of Salmon et al. (2011), section 3.3."""
    word = 0xFFFFFFFF
    c, k = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k[0], high & word, (low >> 32) ^ c[3] ^ k[1], low & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


@op
def dropout(a, x):
    return x * 1


@op
def dropout_train(a, x, step, *indices):
    mask = torch.zeros_like(x)
    for place in torch.cartesian_prod(*[torch.arange(size) for size in x.shape]):
        number = sum(int(index[i]) for index, i in zip(indices, place))
        words = philox([number // 4 & 0xFFFFFFFF, number // 4 >> 32, int(step), a["key"]], [a["seed"], 0])
        mask[tuple(place)] = words[number % 4] >= int(a["ratio"] * 2**32)
    return x * mask / (1 - a["ratio"])


@op
def random_uniform(a, like):
    return like * 0  # of a gradient alone: the numbers are constants


def tensor(type_text, numbers):
    *shape, element = type_text.split("x")
    shape = [int(size) for size in shape]
    values = torch.tensor(numbers, dtype=torch.float64).reshape(shape)
    if not re.fullmatch(r"b?f\d+", element):
        return values.bool() if element == "i1" else values.long()
    return values.requires_grad_()


def main(path):
    print("# PyTorch's gradients of the op cases; made by tests/ir/torch_gradients.py")
    lines = iter(open(path).read().splitlines())
    for line in lines:
        mnemonic, types, results, attribute_text, wanted = line.removeprefix("CASE ").split("|")
        operands = [tensor(text, [float(number) for number in next(lines).split()]) for text in types.split(", ")]
        cotangent = torch.tensor([float(number) for number in next(lines).split()], dtype=torch.float64)
        if mnemonic not in OPS:
            sys.exit(f"{path}: no PyTorch meaning of '{mnemonic}': write one in tests/ir/torch_gradients.py")
        shape = [int(size) for size in results.split(", ")[0].split("x")[:-1]]
        wants_shape = "result" in inspect.signature(OPS[mnemonic]).parameters
        result = OPS[mnemonic](attributes(attribute_text), *operands, **({"result": shape} if wants_shape else {}))
        assert list(result.shape) == shape, (line, result.shape)
        sources = [operands[int(i)] for i in wanted.split()]
        gradients = torch.autograd.grad(result, sources, cotangent.reshape(shape), allow_unused=True)
        print(line)
        for source, gradient in zip(sources, gradients):
            gradient = torch.zeros_like(source) if gradient is None else gradient
            print(" ".join(f"{number:.11g}" for number in gradient.flatten().tolist()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
