"""Writes models/reference/steps/*.npz: what PyTorch makes of small given gradients and logits, in float64 but for half.npz.

optimizers.npz   `gradients` [steps, 2, 3], `initial` [2, 3], and per optimizer its parameter after every step
scaled.npz       the same with torch.amp.GradScaler: `gradients` (of the loss, not scaled; some not finite), and per
                 optimizer NAME its parameter, NAME_scale and NAME_tracker after every step
half.npz         y = x @ w in float16, with a float32 master copy of w, mse, SGD and a GradScaler; one x is huge: `x`
                 [steps, 4, 3], `labels`, `w`, and after every step `master`, `scale`, `loss`
muon.npz         `SHAPE_gradients` [5, rows, columns] and `SHAPE_initial` of a `wide` and a `tall` weight of torch.nn.Linear, and
                 SHAPE_CASE, the weight after every step of torch.optim.Muon without its cast to bfloat16
adagrad.npz      the same as adafactor.npz by torch.optim.Adagrad
adafactor.npz    the same as muon.npz for a `vector`, a `matrix` and a `stack` of matrices, by torch.optim.Adafactor
losses.npz       logits = x @ w; per loss its value and the gradient of w, over the whole batch
"""

import pathlib
import unittest.mock

import numpy as np
import torch

STEPS = 12
OUT = pathlib.Path(__file__).parent / "reference" / "steps"

# name -> optimizer, clipping of the gradients before it
OPTIMIZERS = {
    "sgd_decay": (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05), None),
    "sgd_nesterov": (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
        None,
    ),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), None),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6), None),
    "clip_norm": (
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.nn.utils.clip_grad_norm_(p, 1.5),
    ),
    "clip_value": (
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.nn.utils.clip_grad_value_(p, 0.5),
    ),
}

LOSSES = {
    "plain": {},
    "smoothed": {"label_smoothing": 0.2},
}


# name -> optimizer, clipping of the gradients before it
SCALED = {
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01), None),
    "adam_clip_norm": (
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.nn.utils.clip_grad_norm_(p, 1.5),
    ),
    "sgd_nesterov": (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
        None,
    ),
}


def make_scaler(init_scale, growth_interval):
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
    scaler.scale(torch.zeros(1))  # makes its state
    return scaler


def scaled(rng):
    gradients = rng.standard_normal((STEPS, 2, 3))
    gradients[2, 1, 0] = np.inf
    gradients[3, 0, 2] = np.nan
    gradients[8, 0, 0] = -np.inf
    result = {"gradients": gradients, "initial": rng.standard_normal((2, 3))}
    for name, (make, clip) in SCALED.items():
        parameter = torch.nn.Parameter(torch.tensor(result["initial"]))
        optimizer, scaler = make([parameter]), make_scaler(8.0, 2)
        values, scales, trackers = [], [], []
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient) * scaler.get_scale()
            scaler.unscale_(optimizer)
            if clip:
                clip([parameter])
            scaler.step(optimizer)
            scaler.update()
            values.append(parameter.detach().numpy().copy())
            scales.append(scaler.get_scale())
            trackers.append(scaler._get_growth_tracker())
        result[name] = np.stack(values)
        result[name + "_scale"] = np.array(scales)
        result[name + "_tracker"] = np.array(trackers)
    return result


def half(rng):
    """Mixed precision by hand: a GradScaler refuses gradients in float16, those of the master copy it takes."""
    steps = 8
    x = rng.standard_normal((steps, 4, 3)).astype(np.float32)
    labels = rng.standard_normal((steps, 4, 5)).astype(np.float32)
    w = rng.standard_normal((3, 5)).astype(np.float32)
    x[4] *= 60000  # x @ w is beyond 65504
    master = torch.nn.Parameter(torch.tensor(w))
    optimizer, scaler = torch.optim.SGD([master], lr=0.125), make_scaler(2.0**18, 2)
    masters, scales, losses = [], [], []
    for inputs, targets in zip(torch.tensor(x), torch.tensor(labels)):
        narrow = master.detach().half().requires_grad_()
        y = inputs.half() @ narrow
        loss = torch.nn.functional.mse_loss(y.float(), targets)
        scaler.scale(loss).backward()
        master.grad = narrow.grad.float()
        scaler.step(optimizer)
        scaler.update()
        masters.append(master.detach().numpy().copy())
        scales.append(scaler.get_scale())
        losses.append(loss.item())
    return {
        "x": x, "labels": labels, "w": w,
        "master": np.stack(masters), "scale": np.array(scales), "loss": np.array(losses),
    }  # fmt: skip


# name -> torch.optim.Muon
MUON = {
    "original": lambda p: torch.optim.Muon(p, lr=0.02),
    "match_rms": lambda p: torch.optim.Muon(p, lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    "plain": lambda p: torch.optim.Muon(p, lr=0.02, momentum=0.8, nesterov=False, ns_steps=3),
}


def muon(rng):
    """In float64: Muon casts to bfloat16 before its iterations, and that cast is left out here."""
    steps, result = 5, {}
    for shape, (rows, columns) in {"wide": (3, 5), "tall": (6, 4)}.items():
        gradients = rng.standard_normal((steps, rows, columns))
        initial = rng.standard_normal((rows, columns))
        result |= {shape + "_gradients": gradients, shape + "_initial": initial}
        for name, make in MUON.items():
            parameter = torch.nn.Parameter(torch.tensor(initial))
            optimizer = make([parameter])
            values = []
            for gradient in gradients:
                parameter.grad = torch.tensor(gradient)
                with unittest.mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
                    optimizer.step()
                values.append(parameter.detach().numpy().copy())
            result[shape + "_" + name] = np.stack(values)
    return result


# name -> torch.optim.Adafactor
ADAFACTOR = {
    "default": lambda p: torch.optim.Adafactor(p, lr=0.05),
    "every_limit": lambda p: torch.optim.Adafactor(
        p, lr=0.9, beta2_decay=-0.5, eps=(0.3, 2.0), d=1.5, weight_decay=0.1
    ),
}


# name -> torch.optim.Adagrad
ADAGRAD = {
    "default": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "every_setting": lambda p: torch.optim.Adagrad(
        p, lr=0.1, lr_decay=0.25, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-3
    ),
}


def stepped(rng, shapes, cases, steps=5):
    """Returns gradients, the initial value and the value after each step, by shape and case."""
    result = {}
    for shape, sizes in shapes.items():
        gradients, initial = rng.standard_normal((steps, *sizes)), rng.standard_normal(sizes)
        result |= {shape + "_gradients": gradients, shape + "_initial": initial}
        for name, make in cases.items():
            parameter = torch.nn.Parameter(torch.tensor(initial))
            optimizer = make([parameter])
            values = []
            for gradient in gradients:
                parameter.grad = torch.tensor(gradient)
                optimizer.step()
                values.append(parameter.detach().numpy().copy())
            result[shape + "_" + name] = np.stack(values)
    return result


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    optimizers = {
        "gradients": rng.standard_normal((STEPS, 2, 3)),
        "initial": rng.standard_normal((2, 3)),
    }
    # Some steps are clipped and some are not.
    optimizers["gradients"][::2] *= 0.25
    for name, (make, clip) in OPTIMIZERS.items():
        parameter = torch.nn.Parameter(torch.tensor(optimizers["initial"]))
        optimizer = make([parameter])
        values = []
        for gradient in optimizers["gradients"]:
            parameter.grad = torch.tensor(gradient)
            if clip:
                clip([parameter])
            optimizer.step()
            values.append(parameter.detach().numpy().copy())
        optimizers[name] = np.stack(values)
    np.savez(OUT / "optimizers.npz", **optimizers)

    # The two halves of the batch count different numbers of labels.
    labels = np.array([2, -100, 0, -100, -100, 3, 1, 4])
    losses = {"x": rng.standard_normal((8, 3)), "w": rng.standard_normal((3, 5)), "labels": labels}
    for name, options in LOSSES.items():
        w = torch.nn.Parameter(torch.tensor(losses["w"]))
        logits = torch.tensor(losses["x"]) @ w
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), **options)
        loss.backward()
        losses[name + "_loss"] = loss.detach().numpy().reshape(1)
        losses[name + "_gradient"] = w.grad.numpy()
    np.savez(OUT / "losses.npz", **losses)

    np.savez(OUT / "scaled.npz", **scaled(np.random.default_rng(12)))
    np.savez(OUT / "muon.npz", **muon(np.random.default_rng(14)))
    shapes = {"vector": (5,), "matrix": (3, 5), "stack": (2, 3, 4)}
    np.savez(OUT / "adafactor.npz", **stepped(np.random.default_rng(15), shapes, ADAFACTOR))
    np.savez(OUT / "adagrad.npz", **stepped(np.random.default_rng(16), {"matrix": (3, 5)}, ADAGRAD))
    np.savez(OUT / "half.npz", **half(np.random.default_rng(13)))


if __name__ == "__main__":
    main()
