"""Trains a module for 20 steps in PyTorch and records what a correct trainer must reproduce.

Everything runs on one CPU thread, in float32 and again in float64 from the same weights and inputs: the
distance between the two is what rounding alone does, and so the yardstick for anybody else's float32.
"""

import contextlib

import numpy as np
import torch
from torch import nn

STEPS = 20
BATCH = 8
SEED_INPUTS = 7

SGD = {"lr": 0.1, "momentum": 0}
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}


def make_inputs(model):
    """Returns input_k and label_k for k = 1..STEPS: a task that can be learned, the same every time."""
    rng = np.random.default_rng(SEED_INPUTS)
    inputs = {}
    if model.vocabulary:
        # A Markov chain: four likely successors per token.
        successors = rng.integers(0, model.vocabulary, (model.vocabulary, 4))
        for k in range(1, STEPS + 1):
            tokens = np.empty((BATCH, model.input_shape[0] + 1), np.int64)
            tokens[:, 0] = rng.integers(0, model.vocabulary, BATCH)
            for t in range(model.input_shape[0]):
                tokens[:, t + 1] = successors[tokens[:, t], rng.integers(0, 4, BATCH)]
            inputs[f"input_{k}"], inputs[f"label_{k}"] = tokens[:, :-1].copy(), tokens[:, 1:].copy()
        return inputs
    # Noise around one prototype per class.
    prototypes = rng.standard_normal((model.classes, *model.input_shape))
    for k in range(1, STEPS + 1):
        labels = rng.integers(0, model.classes, BATCH)
        noise = rng.standard_normal((BATCH, *model.input_shape))
        inputs[f"input_{k}"] = (0.5 * prototypes[labels] + noise).astype(np.float32)
        inputs[f"label_{k}"] = labels
    return inputs


@contextlib.contextmanager
def upcasts_to_double():
    """Inside, Python code that upcasts to float32 (norms, rotary tables, softmax) upcasts to float64."""
    single, to_single = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = single, to_single


def without_dropout(module):
    """Switches every dropout off, also those that Hugging Face applies as a function."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0
    return module


def logits_of(module, inputs):
    result = module(inputs)
    return result if isinstance(result, torch.Tensor) else result.logits


def cross_entropy(logits, labels):
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def optimizer_of(kind, parameters):
    if kind == "sgd":
        return torch.optim.SGD(parameters, **SGD)
    return torch.optim.AdamW(parameters, **ADAMW)


def train(module, inputs, kind, micro_batches=1, clip=None):
    """Trains `module` in place; returns a dict with

    losses      before each step's update, the mean over the global batch
    grad_norms  global norm of each step's gradient, before clipping
    gradients   of step 1, by parameter name
    logits      of step 1
    parameters  after the last step, by name; `buffers` likewise
    """
    precision = next(module.parameters()).dtype
    optimizer = optimizer_of(kind, module.parameters())
    record = {"losses": [], "grad_norms": []}
    for k in range(1, STEPS + 1):
        x, labels = torch.from_numpy(inputs[f"input_{k}"]), torch.from_numpy(inputs[f"label_{k}"])
        x = x.to(precision) if x.is_floating_point() else x
        optimizer.zero_grad()
        loss = 0.0
        for x_part, label_part in zip(x.chunk(micro_batches), labels.chunk(micro_batches)):
            logits = logits_of(module, x_part)
            part = cross_entropy(logits, label_part) / micro_batches
            part.backward()
            loss += part.item()
        record["losses"].append(loss)
        gradients = {name: p.grad for name, p in module.named_parameters()}
        missing = [name for name, gradient in gradients.items() if gradient is None]
        if missing:
            raise RuntimeError(f"no gradient for {missing}")
        norm = torch.stack([g.norm() for g in gradients.values()]).norm()
        record["grad_norms"].append(norm.item())
        if k == 1:
            record["logits"] = logits.detach().numpy().copy()
            record["gradients"] = {name: g.numpy().copy() for name, g in gradients.items()}
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    record["parameters"] = {n: p.detach().numpy().copy() for n, p in module.named_parameters()}
    record["buffers"] = {n: b.numpy().copy() for n, b in module.named_buffers() if "running_" in n}
    return record


def runs(make_module, inputs, kind, **options):
    """Returns the records of the same training in float32 and in float64."""
    single = train(without_dropout(make_module()), inputs, kind, **options)
    with upcasts_to_double():
        double = train(without_dropout(make_module()).double(), inputs, kind, **options)
    return single, double


def difference(single, double):
    """Returns the distances between two records that reference.json states."""

    def by_name(a, b):
        return {n: float(np.abs(a[n] - b[n]).max()) for n in a}

    parameters = by_name(single["parameters"], double["parameters"])
    return {
        "max_abs_loss_diff_f32_f64": float(
            np.abs(np.subtract(single["losses"], double["losses"])).max()
        ),
        "max_abs_param_diff_f32_f64": max(parameters.values()),
        "max_abs_grad_step1_diff": max(by_name(single["gradients"], double["gradients"]).values()),
        "first_loss": single["losses"][0],
        "last_loss": single["losses"][-1],
        "grad_norm_step1": single["grad_norms"][0],
        "param_diff_f32_f64_by_parameter": {n: float(f"{d:.2e}") for n, d in parameters.items()},
    }
