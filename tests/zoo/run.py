"""usage: run.py --tbc build/bin/tbc [--kinds A,B] [--forms dynamo,script] [--opset N] [--sample] [--folder F]
              [--resume FILE]

Exports models of real libraries in both forms, and asks of each whether tbc
- counts PyTorch's parameters, but for tied weights that an exporter folds into a copy (then it trains them tied);
- trains three steps as PyTorch does: loss, norm of gradients, and every parameter of the same name;
- recognises it (composites; warnings of what stays decomposed);
- plans it on 8 and 64 devices, and verifies two meshes of 4.

A file holds less than the module. PyTorch is compared as the file has it, and the row says so:
- held: buffers of floats that TorchScript's file cannot tell from parameters; tbc gets them by --constant;
- opened: parameters that the warning "nothing in the file says" names; tbc gets them by --parameter;
- frozen: parameters without requires_grad, which no file tells; tbc gets them by --freeze;
- detached: ops Detach in the file, written as docs/export.md says;
- plain: tbc warned that the dynamo exporter has folded parameters, so the file is of optimize=False, as it says.
tbc trains batch norms with the statistics of a batch, in PyTorch they are put in training mode for that.

A third form, `library`, is written by transformers' own exporter, for its decoders alone. Their experts are matmuls of
sorted rows there (grouped_mm).

One row per model and form; JSON lines go to --resume FILE, whose models are skipped. --sample runs six models. What
PyTorch's exporter refuses is listed apart.

Exit code: 0 no row differs or fails, 1 some do, 77 a package is missing (tests/zoo/make-venv makes the environment).
"""

import argparse
import contextlib
import json
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TOKENIZERS_PARALLELISM"] = "false"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))

SKIPPED = 77

try:
    import diffusers  # noqa: F401
    import numpy as np
    import onnx
    import onnxscript
    import peft  # noqa: F401
    import torch
    import transformers  # noqa: F401

    import guests  # noqa: F401  adds kinds, as others below
    import idioms  # noqa: F401
    import kinds
    import library  # noqa: F401
    import losses  # noqa: F401
    import mixtures  # noqa: F401
    import newcomers  # noqa: F401
    import objectives  # noqa: F401
    import pictures  # noqa: F401
    import recent  # noqa: F401
    import sequences  # noqa: F401
    import signals  # noqa: F401
    import strangers  # noqa: F401
    import subject
    import tasks  # noqa: F401
    import visitors  # noqa: F401
    import written  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; tests/zoo/make-venv FOLDER makes the environment")
    sys.exit(SKIPPED)

STEPS, BATCH, RATE = 3, 4, 0.05
FORMS = ("dynamo", "script")
MESHES = ("tp=2,dp=2", "pp=2,fsdp=2")
SAMPLE = ("gemma2.dynamo", "t5.script", "qwen3-moe.script", "qwen3-moe.library", "swin.script", "deepseek-v3.script")
# Bounds of relative errors: loss, norm of gradients, change of a parameter. Correct runs are below 3e-7, 3e-6 and 2e-4
# in f32. In bf16 PyTorch's own runs differ by roundings of 2^-8.
BOUNDS = {torch.float32: (1e-5, 1e-4, 2e-3), torch.bfloat16: (2e-3, 2e-2, 1.0)}


class Refused(Exception):
    """Raised if tbc ends with an error; the text is its first line."""


@contextlib.contextmanager
def silence():
    """Exporters print to standard output, also from C++."""
    sys.stdout.flush()
    kept, sink = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(sink)


class Named(torch.nn.Module):
    """A module whose tensors have their names in the model inside it, as transformers' exporter writes them."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **inputs):
        return self.module(**inputs)

    def named_parameters(self, *options, **named):
        return [(name.removeprefix("module.model."), p) for name, p in super().named_parameters(*options, **named)]

    def named_buffers(self, *options, **named):
        return [(name.removeprefix("module.model."), b) for name, b in super().named_buffers(*options, **named)]


def make(name, form):
    """Returns the Kind as the form needs it."""
    kinds.MASKED = form == "script"
    kinds.EXPERTS = {"script": "batched_mm", "library": "grouped_mm"}.get(form, "eager")
    torch.manual_seed(0)
    made = kinds.KINDS[name]()
    made.module.eval()
    if form == "library":
        made.module = Named(made.module)
    return made


def keep_detach():
    """Makes both exporters write tbc.Detach. Returns the translation table of the newer one."""
    schema = onnx.defs.OpSchema
    types = [f"tensor({name})" for name in ("float", "float16", "bfloat16", "double", "int64", "int32", "bool")]
    if not onnx.defs.has("Detach", "tbc"):
        onnx.defs.register_schema(schema(
            "Detach", "tbc", 1, inputs=[schema.FormalParameter("x", "T")],
            outputs=[schema.FormalParameter("y", "T")], type_constraints=[("T", types, "")]))
        torch.onnx.register_custom_op_symbolic(
            "aten::detach", lambda g, x: g.op("tbc::Detach", x).setType(x.type()), 9)
    ops = onnxscript.values.Opset("tbc", 1)
    return {torch.ops.aten.detach.default: lambda x: ops.Detach(x)}


def export_by_library(made, path, is_plain):
    """Exports a decoder of transformers by its own exporter."""
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model = made.module.module.model
    model.config.use_cache = False
    config = OnnxConfig(dynamic=True, optimize=not is_plain)
    onnx_ir.save(OnnxExporter().export(model, dict(made.examples), config=config).program, str(path))


def export(made, form, path, opset, is_plain=False):
    """Exports to `path`. The only output is `logits`, or `loss` if the loss is a part of the model. `is_plain`: the
    dynamo exporter folds no parameters.
    """
    names, outputs = list(made.examples), ["loss" if made.loss == "loss" else "logits"]
    axes = {name: [0, 1] if name in made.sequence else [0] for name in names}
    with silence():
        if form == "library":
            export_by_library(made, path, is_plain)
        elif form == "dynamo":
            shapes = {name: {dim: torch.export.Dim.DYNAMIC for dim in dims} for name, dims in axes.items()}
            torch.onnx.export(made.module, kwargs=made.examples, dynamo=True, dynamic_shapes=shapes, verbose=False,
                              opset_version=opset, input_names=names, output_names=outputs, optimize=not is_plain,
                              custom_translation_table=keep_detach()).save(str(path))
        else:
            keep_detach()
            labels = {name: {dim: ("batch", "sequence")[dim] for dim in dims} for name, dims in axes.items()}
            torch.onnx.export(made.module, tuple(made.examples.values()), str(path), dynamo=False,
                              opset_version=opset or 17, do_constant_folding=False, dynamic_axes=labels,
                              training=torch.onnx.TrainingMode.PRESERVE, custom_opsets={"tbc": 1},
                              input_names=names, output_names=outputs)


def data_of(made):
    """Returns the batch by input name, and the labels; None if the loss is a part of the model."""
    rng = np.random.default_rng(3)
    data = {}
    for name, example in made.examples.items():
        shape = (BATCH, *example.shape[1:])
        if name == "attention_mask":
            data[name] = np.ones(shape, np.int64)
        elif example.dtype.is_floating_point:
            data[name] = rng.standard_normal(shape).astype(np.float32)
            if bool((example > 0).all()):  # such as a frequency whose logarithm is taken
                data[name] = np.abs(data[name]) + np.float32(0.1)
        elif example.dtype == torch.bool:
            data[name] = rng.random(shape) < float(example.float().mean())
        else:
            data[name] = rng.integers(3, int(example.max()), shape).astype(example.numpy().dtype)
    with torch.no_grad():
        out = made.module(**{name: torch.from_numpy(array) for name, array in data.items()})
    if made.loss == "loss":
        return data, None
    if made.loss == "mse":
        return data, rng.standard_normal(out.shape).astype(np.float32)
    return data, rng.integers(0, out.shape[-1], out.shape[:-1])


def train_torch(made, data, labels):
    """Trains in place by SGD, the parameters that require gradients. Returns losses and norms."""
    for module in made.module.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.train()
    inputs = {name: torch.from_numpy(array) for name, array in data.items()}
    target = None if labels is None else torch.from_numpy(labels)
    trained = [p for p in made.module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE)
    record = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = made.module(**inputs).float()
        if made.loss == "loss":
            loss = out.mean()
        elif made.loss == "mse":
            loss = torch.nn.functional.mse_loss(out, target)
        else:
            loss = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))
        loss.backward()
        norms = [p.grad.double().norm() for p in trained if p.grad is not None]
        record.append((loss.item(), torch.stack(norms).norm().item()))
        optimizer.step()
    return record


class Tbc:
    """Commands in a folder. `seconds`: CPU time of the last one."""

    def __init__(self, program, folder):
        self.program, self.folder, self.seconds = str(Path(program).resolve()), folder, 0.0

    def __call__(self, *arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run([self.program, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=900, check=False)
        self.seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "warning:" not in line and line.strip()]
            raise Refused(f"{arguments[0]} ({done.returncode}): {lines[0] if lines else 'no reason'}")
        return done.stdout


def error_of(have, want):
    return abs(have - want) / max(abs(want), 1e-30)


def change_error(entry, state, before, after, floor):
    """Returns the error of a parameter relative to its largest change in PyTorch, plus `floor`; None if PyTorch has
    none of this name, or left it alone. Exporters transpose some weights; the closer of both orders counts.
    """
    name, have = entry["display_name"], state.get(entry["name"])
    if name not in after or have is None:
        return None
    want, change = after[name], np.abs(after[name] - before[name]).max()
    errors = [np.abs(array - want).max() for array in (have, have.T) if array.shape == want.shape]
    if not errors or change == 0:
        return None
    return float(min(errors) / (change + floor))


def precision_of(made):
    """Returns the --precision of the exported model: files in bf16 have no other."""
    return "bf16" if next(made.module.parameters()).dtype == torch.bfloat16 else "f32"


def train(tbc, made, tensors, flags):
    """Trains with tbc and PyTorch; returns the relative errors of loss, norm and parameters. `tensors`: of
    `tbc check --json`.
    """
    data, labels = data_of(made)
    before = {name: p.detach().float().numpy().copy() for name, p in made.module.named_parameters()}
    want = train_torch(made, data, labels)
    inputs = []
    if labels is not None:
        inputs = ["--data", "labels=labels.npy"]
        np.save(tbc.folder / "labels.npy", labels)
    for name, array in data.items():
        np.save(tbc.folder / f"{name}.npy", array)
        inputs += [] if name == "attention_mask" else ["--data", f"{name}={name}.npy"]
    tbc("plan", "model.onnx", "--gpus", 1, "--cluster", "cpu-local", "--batch", BATCH, "--precision", precision_of(made),
        "--optimizer", "sgd", "--clip-norm", "1e9", *flags, "-o", "train.json")
    tbc("compile", "train.json", "-o", "program")
    tbc("run", "program", "--threads", 1, *inputs, "--no-shuffle", "--steps", STEPS, "--lr", RATE, "--log", "log.jsonl",
        "--checkpoint", "saved", "--every", STEPS)
    have = [json.loads(line) for line in (tbc.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    tbc("checkpoint", "consolidate", f"saved/step-{STEPS:08}", "-o", "state.safetensors")
    state = subject.read_safetensors(tbc.folder / "state.safetensors", np)
    after = {name: p.detach().float().numpy() for name, p in made.module.named_parameters()}
    # Some gradients are truly zero, such as those of biases of keys; there PyTorch's are rounding.
    floor = 1e-3 * max(np.abs(after[name] - before[name]).max() for name in after)
    changes = [error for entry in tensors
               if (error := change_error(entry, state, before, after, floor)) is not None]
    if not changes:
        raise Refused("train: no parameter has its name in PyTorch")
    loss = max(error_of(line["loss"], pair[0]) for line, pair in zip(have, want))
    norm = max(error_of(line["gradient_norm"], pair[1]) for line, pair in zip(have, want))
    return loss, norm, max(changes)


def examine(name, form, opset, program, folder):
    """Returns the row of one model as a dict."""
    row = {"model": f"{name}.{form}", "result": "equal"}
    try:
        made = make(name, form)
        export(made, form, folder / "model.onnx", opset)
    except Exception as error:  # whatever an exporter raises
        return {**row, "result": "not exported", "what": f"{type(error).__name__}: {str(error).strip()[:160]}"}
    tbc = Tbc(program, folder)
    try:
        report = json.loads(tbc("check", "model.onnx", "--json", "--loss", made.loss))
        if any("optimize=False" in warning for warning in report["warnings"]):
            row["plain"] = True
            export(made, form, folder / "model.onnx", opset, is_plain=True)
            report = json.loads(tbc("check", "model.onnx", "--json", "--loss", made.loss))
        flags = ["--loss", made.loss, *made.flags]
        text = " ".join(report["warnings"])
        for tie in re.findall(r"--tie '([^']+)'", text):
            flags += ["--tie", tie]
        trained = {entry["name"]: entry for entry in report["parameter_tensors"]}
        held = [buffer for buffer, _ in made.module.named_buffers() if buffer in trained]
        asked = {entry["name"] for entry in report["constant_tensors"] if "--parameter" in text}
        asked |= set(re.findall(r"--parameter '([^']+)'", text)) - set(trained)
        opened = [name for name, _ in made.module.named_parameters() if name in asked]
        if held or opened:
            row["held"], row["opened"] = held, opened
            roles = [word for buffer in held for word in ("--constant", buffer)]
            roles += [word for parameter in opened for word in ("--parameter", parameter)]
            flags += roles
            report = json.loads(tbc("check", "model.onnx", "--json", "--loss", made.loss, *roles))
        names = {entry[key] for entry in report["parameter_tensors"] for key in ("name", "display_name")}
        frozen = [name for name, p in made.module.named_parameters() if not p.requires_grad and name in names]
        if frozen:
            row["frozen"] = len(frozen)
            flags += [word for name in frozen for word in ("--freeze", name)]
        nodes = onnx.load(folder / "model.onnx", load_external_data=False).graph.node
        if detached := sum(node.domain == "tbc" for node in nodes):
            row["detached"] = detached
        row["decomposed"] = text.count("stays decomposed") + text.count("stay decomposed")
        row["composites"] = report["composites"]
        length = ["--seq", kinds.SEQ] if made.sequence else []
        for gpus in (8, 64):
            plan = json.loads(tbc("plan", "model.onnx", "--gpus", gpus, *flags, "--json"))
            row[f"plan{gpus}"] = round(tbc.seconds, 2)
            row[f"mfu{gpus}"] = round(100 * plan["prediction"]["mfu"], 1)
        split = [] if made.meets else ["--micro-batch", 1]
        for mesh in MESHES:
            tbc("plan", "model.onnx", "--gpus", 4, "--mesh", mesh, "--batch", 8, *split, "--precision", precision_of(made),
                *flags, *length, "-o", "plan.json")
            tbc("verify", "plan.json")
            row["verify"] = round(max(row.get("verify", 0), tbc.seconds), 2)
        dtype = next(made.module.parameters()).dtype
        errors = train(tbc, made, report["parameter_tensors"], [*flags, *length])
        # Parameters that the model does not use are not in the file, and frozen ones behind a Detach are constants.
        used = [p for name, p in made.module.named_parameters() if p.grad is not None or name in names]
        row["parameters"] = report["parameters"] - sum(p.numel() for p in used)
        if row["parameters"] and "--tie" not in flags:
            row.update(result="differs", what=f"{row['parameters']:+} parameters")
        row["errors"] = [float(f"{error:.1e}") for error in errors]
        if row["result"] == "equal" and any(e > bound for e, bound in zip(errors, BOUNDS[dtype])):
            row.update(result="differs", what="errors of loss, norm, parameters: " + str(row["errors"]))
    except Refused as error:
        row.update(result="refused", what=str(error))
    except Exception as error:  # a row never ends the table
        row.update(result="failed", what=f"{type(error).__name__}: {str(error)[:300]}")
    return row


def line_of(row):
    if row["result"] == "not exported":
        return f"{row['model']:28} not exported: {row['what']}"
    composites = ", ".join(f"{op} {count}" for op, count in row.get("composites", {}).items()
                           if op in ("attention", "routed_experts", "softmax"))
    numbers = " ".join(f"{row.get(key, '-'):>6}" for key in ("mfu8", "mfu64", "plan8", "plan64", "verify"))
    missed = f" {row['decomposed']} decomposed;" if row.get("decomposed") else ""
    missed += f" {len(row['held'])} held;" if row.get("held") else ""
    missed += f" {len(row['opened'])} opened;" if row.get("opened") else ""
    missed += f" {row['frozen']} frozen;" if row.get("frozen") else ""
    missed += f" {row['detached']} detached;" if row.get("detached") else ""
    missed += " plain;" if row.get("plain") else ""
    remark = row.get("what", row.get("errors", ""))
    return f"{row['model']:28} {row['result']:8} {numbers}  {composites};{missed} {remark}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True, help="the program")
    parser.add_argument("--kinds", help="comma-separated; without it all")
    parser.add_argument("--forms", default=",".join(FORMS), help="of dynamo, script and library; without it the first two")
    parser.add_argument("--opset", type=int, help="operator set; without it the exporter's, and 17 for script")
    parser.add_argument("--sample", action="store_true", help=f"only {', '.join(SAMPLE)}")
    parser.add_argument("--folder", help="where to keep each model's files")
    parser.add_argument("--resume", help="file of JSON lines: its models are done, and new ones are added")
    options = parser.parse_args()
    names = options.kinds.split(",") if options.kinds else list(kinds.KINDS)
    for name in names:
        if name not in kinds.KINDS:
            parser.error(f"there is no kind {name}; there are {', '.join(kinds.KINDS)}")
    models = [f"{name}.{form}" for name in names for form in options.forms.split(",")]
    return options, list(SAMPLE) if options.sample else models


def main():
    torch.set_num_threads(1)
    options, models = parse()
    rows = {}
    if options.resume and Path(options.resume).exists():
        for text in Path(options.resume).read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            rows[row["model"]] = row
    print(f"{'model':28} {'result':8} {'MFU 8':>6} {'64':>6} {'plan 8':>6} {'64':>6} {'verify':>6}  (%, CPU s)")
    for model in models:
        if model not in rows:
            with tempfile.TemporaryDirectory(prefix="zoo-") as temporary:
                folder = Path(options.folder, model) if options.folder else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                rows[model] = examine(*model.split("."), options.opset, options.tbc, folder)
            if options.resume:
                with open(options.resume, "a", encoding="utf-8") as log:
                    log.write(json.dumps(rows[model]) + "\n")
        if rows[model]["result"] != "not exported":
            print(line_of(rows[model]), flush=True)
    chosen = [rows[model] for model in models]
    for row in chosen:
        if row["result"] == "not exported":
            print(line_of(row))
    counts = {}
    for row in chosen:
        counts[row["result"]] = counts.get(row["result"], 0) + 1
    print(f"{len(chosen)} models: " + ", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    sys.exit(1 if any(row["result"] not in ("equal", "not exported") for row in chosen) else 0)


if __name__ == "__main__":
    main()
