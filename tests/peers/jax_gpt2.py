"""A plain JAX GPT-2 with the parameters of models/tiny-gpt2.onnx, serial and on a plan's mesh."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
HEADS = 4


def make_parameters(plan):
    generator = np.random.default_rng(0)
    result = {}
    for group in plan["layout"]["parameters"]:
        for name in expand(group["names"]):
            noise = generator.standard_normal(group["shape"]) * 0.05
            result[name] = noise + (1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    return result


def expand(patterns):
    """Example: ["h.{0..1}.fc"] gives ["h.0.fc", "h.1.fc"]."""
    for pattern in patterns:
        if "{" not in pattern:
            yield pattern
            continue
        before, _, rest = pattern.partition("{")
        span, _, after = rest.partition("}")
        first, last = map(int, span.split(".."))
        yield from (f"{before}{i}{after}" for i in range(first, last + 1))


def norm(x, p, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def linear(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def block(x, p, name):
    batch, length, width = x.shape
    q, k, v = jnp.split(linear(norm(x, p, name + ".ln_1"), p, name + ".attn.c_attn"), 3, axis=-1)
    heads = [part.reshape(batch, length, HEADS, -1).swapaxes(1, 2) for part in (q, k, v)]
    scores = heads[0] @ heads[1].swapaxes(-1, -2) / np.sqrt(width // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    mixed = (jax.nn.softmax(scores) @ heads[2]).swapaxes(1, 2).reshape(batch, length, width)
    x = x + linear(mixed, p, name + ".attn.c_proj")
    inner = jax.nn.gelu(linear(norm(x, p, name + ".ln_2"), p, name + ".mlp.c_fc"))
    return x + linear(inner, p, name + ".mlp.c_proj")


def forward(p, batch, exported=None, mesh=None):
    tokens, labels = batch
    x = p["lm_head.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for index in range(2):
        run = lambda x, p, index=index: block(x, p, f"transformer.h.{index}")  # noqa: E731
        if exported is not None:
            x = exported.residual(x, mesh)
            run = exported.checkpointed(run, index)
        x = run(x, p)
    logits = norm(x, p, "transformer.ln_f") @ p["lm_head.weight"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def compare(test, exported, plan):
    """Compares the loss and all gradients of the exported step with the serial ones."""
    parameters = make_parameters(plan)
    generator = np.random.default_rng(1)
    length = plan["job"]["sequence"]
    batch = tuple(generator.integers(0, 256, (plan["job"]["batch"], length)) for _ in range(2))
    expected, gradients = jax.jit(jax.value_and_grad(forward))(parameters, batch)
    mesh = exported.make_mesh(jax.devices()[: int(np.prod(list(exported.AXES.values())))])
    placed = exported.place(parameters, mesh)
    step = exported.make_step(lambda p, b: forward(p, b, exported, mesh), mesh)
    loss, parallel = step(placed, batch)
    test.assertAlmostEqual(float(loss), float(expected), delta=1e-9 * float(expected))
    for name, gradient in gradients.items():
        np.testing.assert_allclose(np.asarray(parallel[name]), gradient, rtol=1e-7, atol=1e-10, err_msg=name)
        stored = placed[name].sharding.shard_shape(placed[name].shape)
        held = int(np.prod(stored))
        test.assertEqual(held, held_elements(plan, name), name)


def held_elements(plan, name):
    """The elements of a parameter that a rank holds between steps, without padding."""
    axes = {axis["axis"]: axis["size"] for axis in plan["layout"]["axes"]}
    for group in plan["layout"]["parameters"]:
        if name in expand(group["names"]):
            parts = 1
            for dim in group["stored"]["dims"]:
                names = dim if isinstance(dim, list) else [a for factor in dim["segments"][0] for a in factor["axes"]]
                parts *= int(np.prod([axes[axis] for axis in names]))
            parts *= int(np.prod([axes[axis] for axis in group["stored"].get("flat", [])]))
            return int(np.prod(group["shape"])) // parts
    raise KeyError(name)
