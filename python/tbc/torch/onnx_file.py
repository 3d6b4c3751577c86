"""Exports a torch.nn.Module for `tbc.plan`."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import torch

from tbc.failures import ModelRejected

_OPSET = 18


def named_inputs(module: torch.nn.Module, inputs: Any) -> dict[str, Any]:
    """Returns example inputs by the names of `forward`. Example: a tensor of tokens is {"tokens": ..}."""
    if inputs is None:
        raise TypeError(f"a {type(module).__name__} needs example inputs: inputs=(tensor, ...)")
    if isinstance(inputs, dict):
        return dict(inputs)
    values = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return dict(zip(inspect.signature(module.forward).parameters, values))


def dynamic_axes(inputs: dict[str, Any]) -> dict[str, dict[int, str]]:
    """Returns names for the dims that may change: dim 0 is the batch, dim 1 of integers the sequence.

    Example: tokens of shape (2, 8) have {0: "batch", 1: "seq"}; an image has {0: "batch"}.
    """
    axes = {}
    for name, value in inputs.items():
        is_sequence = value.dim() == 2 and not value.is_floating_point()
        axes[name] = {0: "batch", 1: "seq"} if is_sequence else {0: "batch"}
    return axes


def write_onnx(module: torch.nn.Module, inputs: Any, path: Path) -> None:
    """Writes a module with dynamic batch and sequence, so that masks and tables stay computed.

    Raises ModelRejected, naming the module, if its export fails or would hold a fixed batch.
    """
    examples = named_inputs(module, inputs)
    kind = type(module).__name__
    axes = dynamic_axes(examples)
    if any(value.shape[dim] < 2 for name, value in examples.items() for dim in axes[name]):
        # The exporter takes a size of 1 for a constant.
        raise ModelRejected(f"{kind}: batch and sequence of the example inputs must be 2 or more [TBC0301]", 3)
    was_training = module.training
    module.eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module, (), kwargs=examples, dynamo=True, dynamic_shapes=axes, input_names=list(examples),
                output_names=["logits"], opset_version=_OPSET, verbose=False,
            )  # fmt: skip
            program.save(str(path), external_data=True)
    except Exception as error:
        raise ModelRejected(f"{kind} cannot be exported to ONNX: {error}; docs/export.md has the remedies [TBC0301]", 3) from error
    finally:
        module.train(was_training)
