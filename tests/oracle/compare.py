"""Decides whether two trainings of one model differ by more than rounding.

A *record* maps names to arrays of f64, for steps 1 to 3:
- "loss 1", "norm 1": the norm is of all gradients, before clipping;
- "P after 1", "P after 3": every parameter and buffer P;
- "P.m after 1": SGD's momentum or Adam's first moment, i.e. the gradient times a known factor;
- "P.v after 1": Adam's second moment. Both moments also after step 3.

The bound is that of docs/design.md, section 4, but for the factor of steps. Per array:

    4 × the largest |f32 − f64| of PyTorch's own runs over some input seeds
    + one f32 ulp of the array's largest magnitude
    + 2^-24 of the largest magnitude among all arrays of its kind, for moments, times the steps that they sum

Second moments are compared by their square roots. No number here was tuned to a model.
"""

import math

import numpy as np


class Difference(Exception):
    """Raised for the first array that is missing, of another shape, not finite, or beyond its
    bound.
    """


def kind_of(name):
    """Returns "m" or "v" for a moment, "loss" or "" for others. Example: `kind_of("fc.weight.m
    after 1")` is "m".
    """
    tensor = name.rsplit(" after ", 1)[0] if " after " in name else ""
    return tensor[-1] if tensor.endswith((".m", ".v")) else ""


def compared(name, array):
    """Returns the array to compare: itself, or the square roots of a second moment."""
    array = np.asarray(array, dtype=np.float64)
    return np.sqrt(array) if kind_of(name) == "v" else array


def largest(array):
    return float(np.max(np.abs(array))) if array.size else 0.0


def ulp(magnitude):
    """Returns one unit in the last place of an f32. Example: `ulp(1.0)` is 2^-23."""
    return float(np.spacing(np.float32(min(magnitude, 3e38))))


def bounds(exact, noise):
    """Returns the bound of every array of `exact`. `noise`: pairs of records of PyTorch in f32 and
    f64, one per input seed.
    """
    largest_of_kind = {}
    for name, array in exact.items():
        kind = kind_of(name)
        if kind:
            step = name.rsplit(" ", 1)[1]
            key = kind, step
            largest_of_kind[key] = max(largest_of_kind.get(key, 0.0), largest(compared(name, array)))
    result = {}
    for name, array in exact.items():
        error = max(largest(compared(name, single[name]) - compared(name, double[name])) for single, double in noise)
        step = name.rsplit(" ", 1)[-1]
        floor = largest_of_kind.get((kind_of(name), step), 0.0) * 2.0**-24 * int(step)
        result[name] = 4 * error + ulp(largest(compared(name, array))) + floor
    return result


def order(name):
    """Returns a sort key in order of computation: step, then loss, norm, moments, parameters."""
    step = int(name.rsplit(" ", 1)[1])
    rank = 0 if name.startswith("loss ") else 1 if name.startswith("norm ") else 2 if kind_of(name) else 3
    return step, rank, name


def check(exact, limits, made):
    """Returns the largest error in units of its bound; raises Difference for the first array beyond it."""
    worst = 0.0
    for name in sorted(exact, key=order):
        if name not in made:
            raise Difference(f"{name}: tbc has no such tensor")
        want, have = compared(name, exact[name]), compared(name, made[name])
        if want.shape != have.shape:
            raise Difference(f"{name}: shape {list(have.shape)}, PyTorch has {list(want.shape)}")
        if not np.all(np.isfinite(have)):
            raise Difference(f"{name}: not finite")
        error = np.abs(have - want)
        if largest(error) > limits[name]:
            place = np.unravel_index(int(np.argmax(error)), error.shape)
            raise Difference(f"{name}{[int(i) for i in place]}: {have[place]:.9g}, PyTorch in f64 {want[place]:.9g}; "
                             f"off by {largest(error):.3g}, bound {limits[name]:.3g}")
        if limits[name] > 0:
            worst = max(worst, largest(error) / limits[name])
    if math.isnan(worst):
        raise Difference("an error is no number")
    return worst
