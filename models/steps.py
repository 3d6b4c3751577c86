"""Writes models/reference/steps/*.npz: what PyTorch makes of small given gradients and logits, in float64.

optimizers.npz   `gradients` [steps, 2, 3], `initial` [2, 3], and per optimizer its parameter after every step
losses.npz       logits = x @ w; per loss its value and the gradient of w, over the whole batch
"""

import pathlib

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


if __name__ == "__main__":
    main()
