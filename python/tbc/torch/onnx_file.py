"""Exports a torch.nn.Module for `tbc.plan`."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import torch

from tbc.failures import ModelRejected, TbcWarning

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

    A module with a table of as many tokens as the examples have keeps its sequence fixed: a TbcWarning says so.

    Raises ModelRejected, naming the module, if its export fails or would hold a fixed batch.
    """
    examples = named_inputs(module, inputs)
    kind = type(module).__name__
    axes = dynamic_axes(examples)
    if any(value.shape[dim] < 2 for name, value in examples.items() for dim in axes[name]):
        # The exporter takes a size of 1 for a constant.
        raise ModelRejected(f"{kind}: batch and sequence of the example inputs must be 2 or more [TBC0301]", 3)
    first = _write(module, examples, axes, path)
    if first is None:
        return
    lengths = sorted({value.shape[1] for name, value in examples.items() if 1 in axes[name]})
    if lengths and _write(module, examples, {name: {0: "batch"} for name in examples}, path) is None:
        warnings.warn(
            f"{kind}: the sequence is fixed at {lengths[0]} tokens, as in the example inputs, and seq= changes nothing: {_cause(first)}",
            TbcWarning, stacklevel=2)  # fmt: skip
        return
    raise ModelRejected(
        f"{kind} cannot be exported to ONNX with a dynamic batch: {_cause(first)}; docs/export.md has the remedies [TBC0301]", 3
    ) from first


def _write(module: torch.nn.Module, examples: dict[str, Any], axes: dict[str, dict[int, str]], path: Path) -> Exception | None:
    """Exports with these dynamic axes. Returns the error if that fails."""
    was_training = module.training
    module.eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module, (), kwargs=examples, dynamo=True, dynamic_shapes=axes, input_names=list(examples),
                output_names=["logits"], opset_version=_OPSET, verbose=False,
                optimize=False,  # which drops biases that are zeros still, and merges batch norms
            )  # fmt: skip
            program.save(str(path), external_data=True)
    except Exception as error:  # noqa: BLE001: of any kind that the module or the exporter raises
        return error
    finally:
        module.train(was_training)
    return None


def _cause(error: BaseException) -> str:
    """Returns the first error behind one of the exporter, which begins with general advice, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if "shape[" in line), lines[0] if lines else type(error).__name__).rstrip(".")
    return text if len(text) <= 300 else text[:300] + "…"
