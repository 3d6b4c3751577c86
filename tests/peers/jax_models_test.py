"""usage: jax_models_test.py TBC   (with jax2onnx and Flax)

Models of JAX, exported by jax2onnx with a dynamic batch, train one step of SGD as JAX computes it:
the loss, and the gradient of each parameter. Their composites are recognized.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

TBC = Path(sys.argv.pop(1)).resolve()
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402
from jax2onnx import to_onnx  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

BATCH = 8
F32, I32 = jnp.float32, jnp.int32


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.before = nnx.LayerNorm(width, rngs=rngs)
        self.between = nnx.RMSNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.before(x), mask=mask)
        return x + self.down(nnx.silu(self.up(self.between(x))))


class Gpt(nnx.Module):
    """Masks after the softmax, labels by GatherND, norms with a fast variance."""

    def __init__(self, rngs):
        self.tokens = nnx.Embed(96, 32, rngs=rngs)
        self.positions = nnx.Embed(16, 32, rngs=rngs)
        self.blocks = nnx.List([Block(32, rngs) for _ in range(2)])
        self.head = nnx.Linear(32, 96, use_bias=False, rngs=rngs)

    def __call__(self, tokens, labels):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(jnp.arange(length))[None]
        mask = nnx.make_causal_mask(jnp.ones((1, length)))
        for block in self.blocks:
            x = block(x, mask)
        log_softmax = jax.nn.log_softmax(self.head(x), -1)
        return -jnp.mean(jnp.take_along_axis(log_softmax, labels[..., None], -1))


class Scan(nnx.Module):
    """Weights of three layers that a loop carries."""

    def __init__(self, rngs):
        normal = nnx.initializers.normal(0.1)
        self.weights = nnx.Param(normal(rngs.params(), (3, 32, 32)))
        self.biases = nnx.Param(normal(rngs.params(), (3, 32)))
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x, labels):
        def layer(x, parameters):
            weight, bias = parameters
            return x + jnp.tanh(x @ weight + bias), None

        x, _ = jax.lax.scan(layer, x, (self.weights[...], self.biases[...]))
        return cross_entropy(self.head(x), labels)


class Experts(nnx.Module):
    """Two of eight experts, chosen by a one-hot of the top k."""

    def __init__(self, rngs):
        normal = nnx.initializers.normal(0.1)
        self.router = nnx.Linear(32, 8, use_bias=False, rngs=rngs)
        self.up = nnx.Param(normal(rngs.params(), (8, 32, 48)))
        self.down = nnx.Param(normal(rngs.params(), (8, 48, 32)))

    def __call__(self, x, target):
        values, chosen = jax.lax.top_k(jax.nn.softmax(self.router(x), -1), 2)
        values = values / values.sum(-1, keepdims=True)
        weights = jnp.sum(jax.nn.one_hot(chosen, 8) * values[..., None], -2)
        hidden = jax.nn.silu(jnp.einsum("btd,edf->btef", x, self.up[...]))
        each = jnp.einsum("btef,efd->bted", hidden, self.down[...])
        return jnp.mean((jnp.einsum("bted,bte->btd", each, weights) - target) ** 2)


class Conv(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 16, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.GroupNorm(16, num_groups=4, rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x, labels):
        return cross_entropy(self.head(nnx.relu(self.norm(self.conv(x))).mean((1, 2))), labels)


class Twice(nnx.Module):
    """A layer with two calls: the file has its weights for each of them."""

    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=32, decode=False, rngs=rngs)

    def __call__(self, chosen, rejected):
        margin = (self.attention(chosen) - self.attention(rejected)).sum((1, 2))
        return -jax.nn.log_sigmoid(0.1 * margin).mean()


def randomized(model, seed):
    """Makes all parameters random: they are found in the file by their data."""
    rng = np.random.RandomState(seed)
    graph, state = nnx.split(model)
    state = jax.tree.map(lambda x: x + 0.1 * rng.randn(*x.shape).astype(x.dtype), state)
    return nnx.merge(graph, state)


def samples(shapes, seed):
    rng = np.random.RandomState(seed)
    return [
        rng.randint(0, 10, (BATCH, *shape)).astype(np.int32) if dtype == I32 else rng.randn(BATCH, *shape).astype(np.float32)
        for shape, dtype in shapes
    ]


class JaxModels(unittest.TestCase):
    def tbc(self, *args):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        done = subprocess.run([TBC, *map(str, args)], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{args}\n{done.stdout}\n{done.stderr}")
        return done

    def check(self, model, shapes, composites):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        model = randomized(model(nnx.Rngs(0)), seed=1)
        (batch,) = jax.export.symbolic_shape("batch")
        file = to_onnx(model, [jax.ShapeDtypeStruct((batch, *shape), dtype) for shape, dtype in shapes])
        onnx.save(file, self.folder / "model.onnx")
        loss = file.graph.output[0].name

        found = json.loads(self.tbc("check", "model.onnx", "--loss", loss, "--json").stdout)["composites"]
        self.assertEqual({name: found.get(name, 0) for name in composites}, composites)

        inputs = samples(shapes, seed=2)
        data = []
        for info, values in zip(file.graph.input, inputs):
            np.save(self.folder / f"{info.name}.npy", values)
            data += ["--data", f"{info.name}={info.name}.npy"]
        self.tbc("plan", "model.onnx", "--loss", loss, "--cluster", "cpu-local", "--gpus", 2, "--mesh", "dp=2",
                 "--batch", BATCH, "--precision", "f32", "--optimizer", "sgd", "-o", "plan.json")  # fmt: skip
        self.tbc("compile", "plan.json", "-o", "program")
        self.tbc("run", "program", "--nproc", 2, "--threads", 1, *data, "--steps", 1, "--lr", 1, "--log", "log.jsonl",
                 "--checkpoint", "saved")  # fmt: skip
        self.tbc("checkpoint", "consolidate", "saved", "-o", "state.safetensors")
        lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        logged = next(line["loss"] for line in lines if "loss" in line)

        expected, gradients = nnx.value_and_grad(lambda m: m(*map(jnp.asarray, inputs)))(model)
        self.assertAlmostEqual(logged / float(expected), 1, delta=2e-6)
        trained = load_file(self.folder / "state.safetensors")
        before = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
        parameters = jax.tree.leaves(nnx.state(model, nnx.Param))
        for value, gradient in zip(parameters, jax.tree.leaves(gradients), strict=True):
            value, gradient = np.asarray(value), np.asarray(gradient)
            if value.ndim == 4:  # kernels of convolutions are stored with channels first
                value, gradient = value.transpose(3, 2, 0, 1), gradient.transpose(3, 2, 0, 1)
            names = [n for n, x in before.items() if x.size == value.size and np.array_equal(x.ravel(), value.ravel())]
            names = [name for name in names if name in trained]
            self.assertEqual(len(names), 1, f"one tensor with the data of a parameter of shape {value.shape} is trained")
            actual = before[names[0]].astype(np.float64) - trained[names[0]].astype(np.float64)
            error = np.abs(actual.ravel() - gradient.ravel()).max()
            # The new parameter is rounded to f32.
            self.assertLessEqual(error, 1e-5 * np.abs(gradient).max() + 2e-7, names[0])

    def test_gpt(self):
        self.check(Gpt, [((16,), I32), ((16,), I32)], {"attention": 2, "layer_norm": 2, "rms_norm": 2, "cross_entropy": 1})

    def test_scan(self):
        self.check(Scan, [((32,), F32), ((), I32)], {"cross_entropy": 1})

    def test_experts(self):
        self.check(Experts, [((6, 32), F32), ((6, 32), F32)], {"routed_experts": 1})

    def test_twice(self):
        self.check(Twice, [((6, 32), F32), ((6, 32), F32)], {"attention": 2})

    def test_conv(self):
        self.check(Conv, [((16, 16, 3), F32), ((), I32)], {"cross_entropy": 1})


if __name__ == "__main__":
    unittest.main()
