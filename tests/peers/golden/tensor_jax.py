import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "fsdp": 2, "tp": 2}
MICRO_BATCHES = 2  # of 4 samples over all ranks
INPUTS = P(("dp", "fsdp", ))  # of a micro-batch
RESIDUAL = P(("dp", "fsdp"))  # activations between blocks
RECOMPUTE, WEAKER_RECOMPUTE = "none", "none"
RECOMPUTED_BLOCKS = 2  # of 2; the others have the weaker mode

PARAMETERS = {
    "lm_head.weight": (P("fsdp", "tp"), P(None, "tp"), P("fsdp", "tp")),
    "transformer.h.0.attn.c_attn.bias": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.0.attn.c_attn.weight": (P("fsdp", "tp"), P(None, "tp"), P("fsdp", "tp")),
    "transformer.h.0.attn.c_proj.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.attn.c_proj.weight": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.0.ln_1.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.ln_1.weight": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.ln_2.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.ln_2.weight": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.mlp.c_fc.bias": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.0.mlp.c_fc.weight": (P("fsdp", "tp"), P(None, "tp"), P("fsdp", "tp")),
    "transformer.h.0.mlp.c_proj.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.0.mlp.c_proj.weight": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.1.attn.c_attn.bias": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.1.attn.c_attn.weight": (P("fsdp", "tp"), P(None, "tp"), P("fsdp", "tp")),
    "transformer.h.1.attn.c_proj.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.attn.c_proj.weight": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.1.ln_1.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.ln_1.weight": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.ln_2.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.ln_2.weight": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.mlp.c_fc.bias": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.h.1.mlp.c_fc.weight": (P("fsdp", "tp"), P(None, "tp"), P("fsdp", "tp")),
    "transformer.h.1.mlp.c_proj.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.h.1.mlp.c_proj.weight": (P(("tp", "fsdp")), P("tp"), P(("tp", "fsdp"))),
    "transformer.ln_f.bias": (P("fsdp"), P(), P("fsdp")),
    "transformer.ln_f.weight": (P("fsdp"), P(), P("fsdp")),
    "transformer.wpe.weight": (P("fsdp"), P(), P("fsdp")),
}


def make_mesh(devices=None):
    """Returns the plan's mesh. Ranks are devices in their order, the last axis the fastest."""
    devices = jax.devices() if devices is None else devices
    ranks = int(np.prod(list(AXES.values())))
    if len(devices) != ranks:
        raise ValueError(f"the plan is for {ranks} devices, and there are {len(devices)}")
    return Mesh(np.asarray(devices).reshape(tuple(AXES.values())), tuple(AXES))


def place(parameters, mesh, form=0):
    """Puts {name: array} where the plan stores it (form 0), reads it (1), or has its states (2)."""
    unknown = sorted(set(parameters) ^ set(PARAMETERS))
    if unknown:
        raise ValueError(f"parameters differ from the plan's: {', '.join(unknown[:5])}")
    return {
        name: jax.device_put(value, NamedSharding(mesh, PARAMETERS[name][form]))
        for name, value in parameters.items()
    }


def constrained(parameters, mesh, form):
    """The same within jit."""
    return {
        name: jax.lax.with_sharding_constraint(value, NamedSharding(mesh, PARAMETERS[name][form]))
        for name, value in parameters.items()
    }


def residual(value, mesh):
    """Places an activation between blocks as the plan does."""
    return value if RESIDUAL is None else jax.lax.with_sharding_constraint(value, NamedSharding(mesh, RESIDUAL))


def checkpointed(block, index):
    """Returns the function of block `index` with the plan's recompute."""
    mode = RECOMPUTE if index < RECOMPUTED_BLOCKS else WEAKER_RECOMPUTE
    if mode == "none":
        return block
    return jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable if mode == "selective" else None)


def make_step(loss, mesh):
    """Returns a jitted function of parameters and a global batch: the loss and its gradients.

    `loss(parameters, inputs)` is the mean over the samples of a micro-batch. Gradients lie as the
    optimizer's states do.
    """

    def step(parameters, batch):
        parts = jax.tree.map(lambda x: x.reshape(MICRO_BATCHES, -1, *x.shape[1:]), batch)

        def micro_batch(total, part):
            part = jax.tree.map(
                lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*tuple(INPUTS)[: x.ndim]))), part
            )
            value, gradients = jax.value_and_grad(lambda p: loss(constrained(p, mesh, 1), part))(parameters)
            return jax.tree.map(lambda a, b: a + b / MICRO_BATCHES, total, (value, gradients)), None

        zeros = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, parameters))
        zeros = (zeros[0].astype(jax.eval_shape(loss, parameters, jax.tree.map(lambda x: x[0], parts)).dtype), zeros[1])
        (value, gradients), _ = jax.lax.scan(micro_batch, zeros, parts)
        return value, constrained(gradients, mesh, 2)

    return jax.jit(step)
