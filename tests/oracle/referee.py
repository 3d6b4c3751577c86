"""PyTorch as the referee: trains a model of models.py by autograd, and exports it to ONNX."""

import copy
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

import samples
from models import BATCH
from subject import STEPS

PERTURBATIONS = 16  # of the weights, for a second judgement
NOISE_SEEDS = 8  # input seeds for comparing f32 with f64, as in `tbc verify`


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by its name in tbc, with all its numbers.

    Adam's epsilon equals its rate here. A step is rate * m / (sqrt(v) + epsilon), so it scales an
    error of the gradient by at most rate / epsilon = 1. At PyTorch's 1e-8, rounding noise of 1e-9
    in a gradient of zero would become steps of a tenth of the rate in a random direction. The
    results could not be compared.
    """

    name: str
    rate: float
    decay: float
    clip: float

    def flags(self):
        """Returns the flags of `tbc plan`."""
        flags = ["--optimizer", self.name, "--weight-decay", str(self.decay), "--clip-norm", str(self.clip)]
        if self.name == "sgd-momentum":
            return [*flags, "--momentum", "0.9"]
        return [*flags, "--epsilon", str(self.rate), "--beta1", "0.9", "--beta2", "0.95"]

    def make(self, parameters):
        if self.name == "sgd-momentum":
            return torch.optim.SGD(parameters, self.rate, momentum=0.9, weight_decay=self.decay)
        kind = torch.optim.Adam if self.name == "adam" else torch.optim.AdamW
        return kind(parameters, self.rate, betas=(0.9, 0.95), eps=self.rate, weight_decay=self.decay)


def optimizers(seed):
    """Returns the three optimizers that a seed is trained with; half of the seeds clip."""
    clip = 0.5 if seed % 2 else 1e30
    return [Optimizer("sgd-momentum", 0.05, 0.01, clip), Optimizer("adam", 0.01, 0.02, clip), Optimizer("adamw", 0.01, 0.1, clip)]


def label_shape(model):
    """Returns the shape of the labels of STEPS global batches."""
    with torch.no_grad():
        count = STEPS * BATCH
        inputs = torch.zeros(count, *model.input_shape, dtype=torch.int64 if model.vocabulary else torch.float32)
        shape = copy.deepcopy(model.module)(inputs).shape
    return tuple(shape[:-1] if model.classes else shape)


def data(model, seed):
    """Returns inputs and labels of STEPS global batches, as numpy arrays with samples along the
    first dim.
    """
    shapes = (STEPS * BATCH, *model.input_shape), label_shape(model)
    inputs, labels = samples.batches(seed, shapes[0], model.vocabulary, shapes[1], model.classes)
    types = [np.int64 if below else np.float32 for below in (model.vocabulary, model.classes)]
    return np.array(inputs, dtype=types[0]).reshape(shapes[0]), np.array(labels, dtype=types[1]).reshape(shapes[1])


def loss_of(model, output, labels):
    if model.classes:
        return functional.cross_entropy(output.reshape(-1, model.classes), labels.reshape(-1))
    return functional.mse_loss(output, labels)


def train(model, optimizer, inputs, labels, dtype):
    """Returns the record (compare.py) of STEPS steps from the model's initial weights."""
    module = copy.deepcopy(model.module).to(dtype).train()
    named = dict(module.named_parameters())
    stepper = optimizer.make(list(named.values()))
    convert = lambda array: torch.from_numpy(array) if array.dtype == np.int64 else torch.from_numpy(array).to(dtype)
    record = {}
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        stepper.zero_grad()
        loss = loss_of(model, module(convert(inputs[part])), convert(labels[part]))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(named.values()), optimizer.clip)
        stepper.step()
        record[f"loss {step + 1}"] = numpy_of(loss)
        record[f"norm {step + 1}"] = numpy_of(norm)
        if step in (0, STEPS - 1):
            add_state(record, module, named, stepper, step + 1)
    return record


def add_state(record, module, named, stepper, step):
    for name, parameter in named.items():
        state = stepper.state[parameter]
        record[f"{name} after {step}"] = numpy_of(parameter)
        for key, suffix in (("momentum_buffer", "m"), ("exp_avg", "m"), ("exp_avg_sq", "v")):
            if state.get(key) is not None:
                record[f"{name}.{suffix} after {step}"] = numpy_of(state[key])
    for name, buffer in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            record[f"{name} after {step}"] = numpy_of(buffer)


def numpy_of(tensor):
    return tensor.detach().to(torch.float64).numpy().copy()


def judge(model, optimizer, inputs, labels, noise_inputs):
    """Returns the exact record, and pairs of records in f32 and f64 for these inputs and
    `noise_inputs`.
    """
    exact = train(model, optimizer, inputs, labels, torch.float64)
    noise = [(train(model, optimizer, inputs, labels, torch.float32), exact)]
    for more in noise_inputs:
        noise.append(tuple(train(model, optimizer, *more, dtype) for dtype in (torch.float32, torch.float64)))
    return exact, noise


def perturbed(model, optimizer, inputs, labels, exact):
    """Pairs as those of `judge`: runs in f32 from weights with random errors of one ulp, and `exact`.

    Other inputs do not show how sensitive these inputs are. Example: where a norm divides by a small deviation, errors of
    one rounding grow by its inverse, and any other order of summation is such an error. Source: stochastic arithmetic,
    Vignes, "A stochastic arithmetic for reliable scientific computation", 1993.
    """
    pairs = []
    for draw in range(PERTURBATIONS):
        generator = torch.Generator().manual_seed(draw)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.module.parameters():
                ulps = torch.randint(-1, 2, parameter.shape, generator=generator)
                parameter.mul_(1 + ulps * 2.0**-23)
        pairs.append((train(other, optimizer, inputs, labels, torch.float32), exact))
    return pairs


def constants(model):
    """Returns the names of float buffers other than batch-norm statistics. ONNX does not
    distinguish these constants from weights.
    """
    return [name for name, buffer in model.module.named_buffers()
            if buffer.is_floating_point() and not name.endswith(("running_mean", "running_var"))]


def export(model, inputs, path):
    """Writes the ONNX file, in training form, with a dynamic batch.

    Tracing runs the model once and so updates running statistics. The file holds the updated ones,
    so `model` gets them too.
    """
    module = copy.deepcopy(model.module).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.from_numpy(inputs[:BATCH]),), str(path), training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False, input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "b"}, "y": {0: "b"}}, opset_version=17)
    model.module.load_state_dict(module.state_dict())
