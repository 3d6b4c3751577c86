#!/usr/bin/env python3
"""Writes the .onnx files of this folder and PyTorch's training runs under reference/.

    models/export.py                    every model
    models/export.py tiny-gpt2 moe-8l   some
    models/export.py --check            writes nothing: tells whether the committed files are what it would write

Needs the packages of models/README.md, in an environment of their own; building and testing tbc needs none
of this. inputs.npz is drawn once: where it exists it is kept.
"""

import argparse
import collections
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import reference  # noqa: E402
import zoo  # noqa: E402

HERE = Path(__file__).resolve().parent
# Metadata that names files of the machine that exported, or repeats the graph in another notation.
DROPPED_METADATA = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")
# Weights above this many bytes leave a weight-free file.
INLINE_BYTES = 1024
# Runs beside SGD and AdamW, by model.
EXTRA_RUNS = {"tiny-gpt2": {"adamw_clip_accum": {"kind": "adamw", "micro_batches": 4, "clip": 1.0}}}


# -- ONNX ----------------------------------------------------------------------------------------------


def export_onnx(module, path, examples, axes, exporter, opset, training):
    """Writes `module` to `path`. `examples`: a tensor per graph input; `axes` names their dynamic dims."""
    inputs = list(examples)
    options = {"input_names": inputs, "output_names": ["logits"], "opset_version": opset}
    if exporter == "dynamo":
        shapes = {name: axes for name in inputs}
        program = torch.onnx.export(
            module, kwargs=examples, dynamo=True, dynamic_shapes=shapes, verbose=False, **options
        )
        program.save(str(path))
    else:
        mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
        torch.onnx.export(
            module,
            tuple(examples.values()),
            str(path),
            dynamo=False,
            training=mode,
            do_constant_folding=False,
            dynamic_axes={name: axes for name in (*inputs, "logits")},
            **options,
        )
    file = onnx.load(path)
    for holder in (file.graph, *file.graph.node, *file.graph.value_info, *file.graph.input, *file.graph.output):
        kept = [entry for entry in holder.metadata_props if entry.key not in DROPPED_METADATA]
        del holder.metadata_props[:]
        holder.metadata_props.extend(kept)
    del file.metadata_props[:]
    onnx.save(file, path)


def export_model(name, module, path):
    model = zoo.MODELS[name]
    torch.manual_seed(0)
    if model.vocabulary:
        example = torch.zeros(2, 8, dtype=torch.long)
        axes = {0: "batch", 1: "seq"}
    else:
        example = torch.randn(2, *model.input_shape)
        axes = {0: "batch"}
    examples = {model.input_name: example}
    export_onnx(module, path, examples, axes, model.exporter, model.opset, model.training)


def export_gpt2(path):
    """Writes GPT-2 small as Hugging Face defines it, its weights as references to a file that is not kept."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(zoo.SEED_WEIGHTS)
    module = GPT2LMHeadModel(GPT2Config(use_cache=False)).eval()
    zoo.vary_vectors(module)
    names = ("input_ids", "attention_mask")
    # Not one tensor for both: the exporter would take their dims for the same ones.
    examples = {name: torch.ones(2, 8, dtype=torch.long) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, path.name)
        export_onnx(module, whole, examples, {0: "batch", 1: "seq"}, "dynamo", 18, training=False)
        onnx.save(
            onnx.load(whole),
            whole,
            save_as_external_data=True,
            location=f"{path.name}.data",
            size_threshold=INLINE_BYTES,
        )
        path.write_bytes(whole.read_bytes())


def export_masked(name, path):
    """Writes zoo.MASKED[name]: what its mask follows from is an input."""
    model = zoo.MASKED[name]
    torch.manual_seed(zoo.SEED_WEIGHTS)
    module = model.build().eval()
    zoo.vary_vectors(module)
    positions = torch.arange(8).expand(2, 8).contiguous()
    # Not one tensor for both: the exporter would take their dims for the same ones.
    examples = {
        name: positions.clone() if name == "position_ids" else torch.ones(2, 8, dtype=torch.long)
        for name in ("input_ids", model.input_name)
    }
    export_onnx(module, path, examples, {0: "batch", 1: "seq"}, model.exporter, model.opset, training=False)


def initializers(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


def match_parameters(module, stored):
    """Returns for each parameter of `module` the initializer that holds it, found by its values.

    Exporters transpose linear weights and give them new names, so names say nothing.
    """
    found = {}
    for name, parameter in module.named_parameters():
        value = parameter.detach().numpy()
        candidates = [
            {"initializer": n, "transposed": transposed}
            for n, array in stored.items()
            for transposed in (False, True)
            if not (transposed and array.ndim != 2)
            and np.array_equal(array.T if transposed else array, value)
        ]
        if len(candidates) != 1:
            raise RuntimeError(f"parameter {name} is in {len(candidates)} initializers, expected 1")
        found[name] = candidates[0]
    return found


def onnx_logits(path, input_name, value):
    """Returns the logits of the file at `path`, with dropout off, by ONNX's own reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    file = onnx.load(path)
    for node in file.graph.node:
        if node.op_type == "Dropout":
            del node.input[1:]  # no ratio, no training_mode
    return ReferenceEvaluator(file).run(["logits"], {input_name: value})[0]


# -- Reference runs --------------------------------------------------------------------------------------


def as_initializers(arrays, places):
    """Returns `arrays`, keyed by parameter, keyed by initializer and in its layout."""
    result = {}
    for name, array in arrays.items():
        place = places.get(name, {"initializer": name, "transposed": False})
        result[place["initializer"]] = np.ascontiguousarray(array.T if place["transposed"] else array)
    return result


def write_losses(path, record, norms):
    with open(path, "w", encoding="ascii") as file:
        file.write("step,loss,grad_norm\n" if norms else "step,loss\n")
        for k, (loss, norm) in enumerate(zip(record["losses"], record["grad_norms"]), start=1):
            file.write(f"{k},{loss:.8f},{norm:.8f}\n" if norms else f"{k},{loss:.8f}\n")


def write_reference(name, path, folder):
    """Trains the model that was exported to `path` and writes `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = HERE / "reference" / name / "inputs.npz"
    model = zoo.MODELS[name]
    inputs = dict(np.load(kept)) if kept.exists() else reference.make_inputs(model)
    np.savez_compressed(folder / "inputs.npz", **inputs)
    stored = initializers(path)

    def make_module():
        module = zoo.build(name)
        # Running statistics have seen the exporter's own forward pass; training starts from those.
        for buffer_name, buffer in module.named_buffers():
            if buffer_name in stored and "running_" in buffer_name:
                buffer.copy_(torch.from_numpy(stored[buffer_name].copy()))
        return module

    places = match_parameters(make_module(), stored)
    facts = {
        "model": path.name,
        "steps": reference.STEPS,
        "global_batch": reference.BATCH,
        "loss": "mean cross entropy over all positions: CE(logits.reshape(-1,V), label.reshape(-1))",
        "dropout": "off",
        "sgd": reference.SGD,
        "adamw": reference.ADAMW | {"decayed": "every parameter"},
        "parameter_to_initializer": places,
        "n_parameters": sum(p.numel() for p in make_module().parameters()),
        "torch": torch.__version__,
        "f32_vs_f64": {},
    }
    plain = {kind: {"kind": kind} for kind in ("sgd", "adamw")}
    for run, options in (plain | EXTRA_RUNS.get(name, {})).items():
        single, double = reference.runs(make_module, inputs, **options)
        norms = run not in plain
        write_losses(folder / f"losses_{run}.csv", single, norms)
        write_losses(folder / f"losses_{run}_f64.csv", double, norms)
        facts["f32_vs_f64"][run] = reference.difference(single, double)
        if run != "sgd":
            continue
        write_arrays(folder, name, single, double, places)
        logits = onnx_logits(path, model.input_name, inputs["input_1"])
        facts["max_abs_logit_diff_onnx_vs_torch"] = float(np.abs(logits - single["logits"]).max())
    (folder / "reference.json").write_text(json.dumps(facts, indent=1) + "\n")


def write_arrays(folder, name, single, double, places):
    """Writes the arrays of the SGD runs. The 8-layer models keep only what a test compares with, in f64."""
    np.savez_compressed(
        folder / "grads_step1_f64.npz", **as_initializers(double["gradients"], places)
    )
    if name.startswith("tiny-"):
        np.savez_compressed(folder / "logits_step1.npz", logits=single["logits"])
        np.savez_compressed(folder / "grads_step1.npz", **as_initializers(single["gradients"], places))
        np.savez_compressed(
            folder / "params_after_20_sgd.npz", **as_initializers(single["parameters"], places)
        )
    if single["buffers"]:
        np.savez_compressed(folder / "bn_running_after_20_sgd.npz", **single["buffers"])


# -- Comparing with what is committed ------------------------------------------------------------------


def shape_of(path):
    """Returns what must not differ between two exports of one model: ops, edges, weights' names and shapes."""
    graph = onnx.load(path, load_external_data=False).graph
    return (
        [(n.op_type, n.name, tuple(n.input), tuple(n.output)) for n in graph.node],
        [(i.name, tuple(i.dims), i.data_type) for i in graph.initializer],
    )


def compare(name, fresh, fresh_reference):
    """Returns sentences about what differs between the files just written and the committed ones."""
    committed = HERE / f"{name}.onnx"
    differences = []
    if shape_of(fresh) != shape_of(committed):
        ops = [collections.Counter(op for op, *_ in shape_of(p)[0]) for p in (fresh, committed)]
        differences.append(f"the graph differs: {ops[0] - ops[1]} more, {ops[1] - ops[0]} fewer")
    if fresh_reference is None:
        return differences
    old, new = initializers(committed), initializers(fresh)
    differences += [f"initializer {n} differs" for n in old if not np.array_equal(old[n], new.get(n))]
    for path in sorted(fresh_reference.glob("*_f64.csv")):
        a, b = (np.loadtxt(p, delimiter=",", skiprows=1) for p in (path, HERE / "reference" / name / path.name))
        if not np.allclose(a, b, rtol=0, atol=2e-8):  # the files hold eight decimals
            differences.append(f"{path.name} differs by {np.abs(a - b).max():.1e}")
    return differences


def main():
    names = ["gpt2", *zoo.MASKED, *zoo.MODELS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(names))
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    arguments = parser.parse_args()
    unknown = set(arguments.models) - set(names)
    if unknown:
        parser.error(f"unknown model {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    torch.set_num_threads(1)

    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) if arguments.check else HERE
        for name in arguments.models or names:
            path, folder = root / f"{name}.onnx", root / "reference" / name
            if name == "gpt2":
                export_gpt2(path)
                folder = None
            elif name in zoo.MASKED:
                export_masked(name, path)
                folder = None
            else:
                export_model(name, zoo.build(name), path)
                write_reference(name, path, folder)
            if not arguments.check:
                print(f"{name}: {path.stat().st_size} bytes")
                continue
            differences = compare(name, path, folder)
            failed |= bool(differences)
            print(f"{name}: {'; '.join(differences) or 'as committed'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
