#!/usr/bin/env python3
"""Compares the planner's predictions with published measurements. Python standard library only.

usage: accuracy.py DATA [--tbc PROGRAM] [--either-version] [--source GROUP ..] [--limit N] [--worst N] [--json FILE] [--set PRESET:SECTION.KEY=VALUE ..]
       accuracy.py DATA --read FILE      report again what --json wrote
       accuracy.py DATA --gate FILE      exit code 1 if the errors are larger than those in FILE
       accuracy.py DATA --keep FILE      write the errors to FILE, for --gate

DATA holds runs.csv and memory.csv: one row per published run or memory figure, with the model, the
layout and the measured value. Every usable row is predicted with its layout and its executor
pinned: `tbc new` makes the model, and one `tbc plan --job` costs all rows. The figures are those
that `tbc plan --executor X` prints.

error = |predicted - measured| / measured. The figure of a source is the mean over its rows. The
overall figure is the mean over sources, so a sweep of many rows does not dominate a table of few.
Example: sources with errors of 10 % (50 rows) and 20 % (2 rows) give 15 %.

Columns of the tables:

- bias: the mean of predicted / measured - 1.
- inside: rows within the printed interval.
- scaled: the error if predictions are multiplied by one factor, fitted on all sources.
- left out: the error with a factor fitted on the other sources of the GPU. A factor is the mean of
  the sources' median log(measured / predicted), with one source of factor 1 beside them.
- width: the half-width of an interval that holds 90 % of the rows of the other sources (equal
  weights); held: the rows of this source within it.

- A row with a property that tbc cannot express is not guessed. It is counted as unsupported, with
  the reason. So is a row that ends in an error.
- A row predicted as something close to it is counted under "taken as".
"""

import argparse
import csv
import functools
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

GIB = 2**30

# The cluster preset of each measured GPU.
CLUSTERS = {
    "": "a100-80gb-sxm",  # Galvatron's memory components, which depend on no GPU
    "a100": "a100-80gb-sxm",  # vTrain: the memory size is not stated, and no memory row depends on it
    "a100-40gb": "a100-40gb-sxm",
    "a100-80gb": "a100-80gb-sxm",
    "h100-80gb": "h100-sxm",
    "h200": "h200-sxm",
    "v100-32gb": "v100-32gb",
    "v100-16gb": "v100-16gb",
    "b200": "b200",
    "a800-80gb": "a800-80gb-sxm",
    "h800-80gb": "h800-sxm",
    "h20": "h20-sxm",
    "gb300": "gb300-nvl72",
}
# The executor of each source. A column "executor" of the data comes first.
EXECUTORS = {
    "dgxc-llama3.1": "nemo",
    "galvatron": "galvatron",
    "internevo": "internevo",
    "korthikanti": "megatron",
    "litgpt-thunder": "litgpt",
    "llm-foundry": "llm-foundry",
    "megatron-sc21-t1": "megatron",
    "megatron-sc21-t2": "deepspeed",
    "nanotron": "nanotron",
    "torchtitan": "torchtitan",
    "vtrain-multi": "megatron",
    "vtrain-single": "megatron",
    "zero-bubble": "megatron",
}
# GPUs without a preset, as a preset with other constants, by section of its file.
# h100-96gb-500w: 96 GB of HBM2e at 2.4 TB/s and 500 W, whose peak lies between those of H100 SXM and NVL, 0.84 of it
# (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md). Assumed: rates of matmuls and attention fall with
# the cube root of the power, to 0.89.
POWER = (500 / 700) ** (1 / 3)
VARIANTS = {
    "h100-96gb-500w": ("h100-sxm", (("device", "memory_bytes", 102_000_000_000), ("device", "memory_bytes_per_second", 2.4e12),
                                    ("kernel.matmul", "flops_fraction", 0.72 * POWER), ("kernel.fp8_matmul", "flops_fraction", 0.64 * POWER),
                                    ("kernel.attention", "flops_fraction", 0.5 * POWER),
                                    ("kernel.causal_attention", "flops_fraction", 0.5 * POWER))),
}
# The words of variants that no executor has the times of. torchtitan's is compiled.
UNKNOWN_VARIANTS = {"torchtitan": ("eager", "async-tp", "rowwise")}
# The only words of `pp_split`.
SHORT_ENDS = "first and last stage one layer fewer"
# Another version that may have run pipelines, where the data do not say which. With --either-version the
# nearer prediction counts. nanotron's sweep mixes its release with a branch whose hosts sleep for 0.6 s at
# each neighbour and micro-batch (docs/accuracy.md), so pipelines differ by a factor of 2 to 15.
OTHER_VERSIONS = {"nanotron": "nanotron-polling"}
# The nominal network rate of a node in those presets, Gbit/s.
NODE_GBIT = {"a100-80gb-sxm": 1600, "a100-40gb-sxm": 1600, "h100-sxm": 3200, "h200-sxm": 3200, "v100-32gb": 800, "v100-16gb": 800, "b200": 3200,
             "a800-80gb-sxm": 1600, "h800-sxm": 3200, "h20-sxm": 3200, "gb300-nvl72": 57600}
PRECISIONS = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp8": "bf16"}
SCHEDULES = {"": "1f1b", "1f1b": "1f1b", "interleaved-1f1b": "interleaved", "zb-1p": "zero-bubble"}
# The MLP activation of each model kind. Rows with another one are unsupported.
FFN_KINDS = {"gpt2": "gelu", "llama": "swiglu", "mpt": "gelu", "neox": "gelu", "bloom": "gelu", "nemotron": "relu2", "grok": "geglu"}
# Unfused attention that writes its scores in two bytes each, like Megatron's kernels. Forward
# writes them, scales, masks, normalises, applies dropout and multiplies: 13 bytes per score.
# Backward writes and reads the same and the cotangents: 19 bytes. A score costs 4 FLOPs per element
# of a head in forward and 10 in backward. No masked score is skipped.
UNFUSED_BYTES_PER_FLOP = (13 + 19) / (4 + 10)
# Globs of the normalisation modules, by kind.
NORMS = {"llama": "*norm*", "gpt2": "*.ln_*"}
# The module behind the last layer, by kind.
NORM_AT_END = {"gpt2": "transformer.ln_f.*"}
# Module path of the layers, by kind.
LAYERS = {"gpt2": "transformer.h", "bloom": "transformer.h", "mpt": "transformer.blocks", "neox": "gpt_neox.layers",
          "llama": "model.layers", "nemotron": "model.layers", "grok": "model.layers"}
# Memory verdicts of `tbc plan`, in the order in which it prefers them.
VERDICTS = ("fits", "tight", "does not fit")
# The column of the measured value.
MEASURED = {"time": "step_time_s", "memory": "peak_mem_gib"}
# The memory lines of tbc that make up each component; "total" is all lines.
PARTS = {
    "total": (),
    "states": ("parameters", "master weights", "gradients", "optimizer state", "executor states"),
    "activations": ("saved residuals", "executor residuals"),
    "activation_peak": ("saved residuals", "executor residuals", "executor logits", "transients", "gathered parameters", "collective buffers"),
}


class Unsupported(Exception):
    pass


def integer(cell, otherwise=None):
    return int(float(cell)) if cell else otherwise


def model_arguments(row, taken_as):
    """Returns the arguments of `tbc new` for the model of a row."""
    kind = row["kind"]
    if kind not in FFN_KINDS:
        raise Unsupported(f"model kind {kind}")
    if row["ffn_kind"] != FFN_KINDS[kind]:
        raise Unsupported(f"{row['ffn_kind']} in {kind}")
    arguments = [kind]
    for flag, column in (("--layers", "layers"), ("--hidden", "hidden"), ("--heads", "heads"), ("--ffn", "ffn_hidden"),
                         ("--vocab", "vocab")):
        if not row[column]:
            raise Unsupported(f"no {column}")
        arguments += [flag, str(integer(row[column]))]
    if kind in ("llama", "nemotron", "grok") and row["kv_heads"]:
        arguments += ["--kv-heads", str(integer(row["kv_heads"]))]
    if row["experts"]:
        arguments += ["--experts", row["experts"], "--experts-per-token", row["experts_top_k"] or "2"]
    if kind == "gpt2":
        arguments += ["--seq", row["seq"]]
    if row["tied"] != "":
        arguments.append("--tied" if row["tied"] == "1" else "--untied")
    if kind in ("mpt", "bloom"):
        arguments.append("--no-alibi")
        taken_as["ALiBi left out, as inside the attention kernel"] += 1
    return arguments


def chunk_layers(row):
    """Returns (layers of each chunk, first modules of the trailing chunks without layers).

    Returns None if pp does not divide the layers. Chunks have equal numbers of layers; embedding
    and head go with the first and the last. nanotron instead fills each stage until its cost passes
    its share (src/nanotron/models/base.py and get_block_compute_costs() of models/llama.py).
    Example: 16 layers, pp=2 and a head as expensive as 4 layers give ([11, 5], []). With short ends, 22 layers and pp=8
    give [2, 3, 3, 3, 3, 3, 3, 2], and three chunks of each stage have a layer each, but the first, with the embedding
    alone, and the last, with the norm and the head.
    """
    pp, layers = integer(row["pp"], 1), integer(row["layers"])
    if row.get("pp_split"):
        chunks = pp * integer(row["vpp"], 1)
        if row["pp_split"] != SHORT_ENDS or (layers + 2) % chunks or chunks < 3:
            raise Unsupported("a stage split in words: " + row["pp_split"])
        each = (layers + 2) // chunks
        return [each - 1] + [each] * (chunks - 2) + ([each - 1] if each > 1 else []), [] if each > 1 else [NORM_AT_END[row["kind"]]]
    if row["source_group"] != "nanotron":
        chunks = pp * integer(row["vpp"], 1)
        return None if layers % chunks else ([layers // chunks] * chunks, [])
    hidden = integer(row["hidden"])
    layer = 4 * hidden * hidden + 3 * integer(row["ffn_hidden"]) * hidden
    head = integer(row["vocab"]) * hidden
    blocks = [("embedding", 0)] + [("layer", layer)] * layers + [("model.norm.*", 0), ("lm_head*", head), ("loss*", 0)]
    total = layer * layers + head
    counts, heads, stage, sum_of = [0] * pp, [], 0, 0
    for name, cost in blocks:
        if name == "layer":
            counts[stage] += 1
        elif name != "embedding" and stage > 0 and not counts[stage] and (not heads or heads[-1][0] != stage):
            heads.append((stage, name))
        sum_of += cost
        if sum_of > total * (stage + 1) / pp and stage + 1 < pp:
            stage += 1
    with_layers = sum(1 for count in counts if count)
    if [of for of, _ in heads] != list(range(with_layers, pp)):
        raise Unsupported("a stage of the pipeline that has nothing to do")
    return counts[:with_layers], [name for _, name in heads]


def stage_begins(row):
    """Returns globs of the first modules of all chunks but the first; [] if they are unknown."""
    found = chunk_layers(row)
    if not found:
        return []
    counts, heads = found
    first, begins = 0, []
    for count in counts[:-1]:
        first += count
        begins.append(f"{LAYERS[row['kind']]}.{first}.*")
    return begins + heads


def layout(row, taken_as):
    """Returns the keys of a job that pin the layout of a row."""
    degree = {axis: integer(row[axis], 1) for axis in ("dp", "tp", "cp", "pp", "ep", "vpp")}
    if degree["ep"] > 1:
        raise Unsupported("ep")
    if row["offload"] not in ("", "none"):
        raise Unsupported("offload")
    for word in UNKNOWN_VARIANTS.get(row["source_group"], ()) if "mem_component" not in row else ():
        if word in row["variant"].replace("+", " ").split():
            raise Unsupported("variant " + word)
    if row["precision"] not in PRECISIONS:
        raise Unsupported(row["precision"])
    if row["schedule"] not in SCHEDULES:
        raise Unsupported("schedule " + row["schedule"])
    zero = integer(row["zero"], 0)
    group = integer(row["zero_group"], degree["dp"] * degree["cp"])
    mesh = {"pp": degree["pp"], "tp": degree["tp"], "cp": degree["cp"]}
    keeps_scores = row.get("mem_component") in ("activations", "activation_peak", "total")
    if keeps_scores and row["attention"] == "unfused" and row["recompute"] == "none":
        raise Unsupported("scores of attention kept for backward")
    if zero > 0 and degree["cp"] == 1 and 1 < group < degree["dp"]:
        if degree["dp"] % group:
            raise Unsupported("a ZeRO group that does not divide dp")
        mesh.update(dp=degree["dp"] // group, fsdp=group)
    else:
        mesh["fsdp" if zero == 3 else "dp"] = degree["dp"]
    job = {
        "gpus": integer(row["gpus"]),
        "batch": integer(row["global_batch"]),
        "micro-batch": integer(row["micro_batch"]),
        "mesh": ",".join(f"{axis}={size}" for axis, size in mesh.items() if size > 1) or "dp=1",
        "precision": PRECISIONS[row["precision"]],
        "recompute": row["recompute"] or "none",
        "seq": integer(row["seq"]),
    }
    if row["precision"] == "fp8":
        job["matmul-precision"] = "fp8"
    executor = row.get("executor") or EXECUTORS.get(row["source_group"])
    # Thunder compiles a model, but keeps the tensors that the eager one keeps, unless torch.compile does all of it.
    is_compiled = "Thunder" in row["variant"] if "mem_component" not in row else "torchcompile]" in row["variant"]
    if executor == "litgpt" and is_compiled:
        executor = "litgpt-compiled"
    if executor:
        job["executor"] = executor
    else:
        taken_as["run by tbc's own Programs: no executor is known"] += 1
    if degree["tp"] > 1:
        # Megatron's layout; its sequence parallelism splits the ops between matmuls too, and
        # gathers again in backward.
        splits_tokens = row["sp"] == "1" and row["kind"] in NORMS
        job["pin"] = ["*=megatron-sp", NORMS[row["kind"]] + "=recompute"] if splits_tokens else ["*=megatron"]
    if degree["dp"] * degree["cp"] > 1:
        job["zero"] = zero
    if degree["pp"] > 1:
        begins = stage_begins(row)
        if begins:
            job.setdefault("pin", []).extend(f"{name}=begin" for name in begins)
        else:
            taken_as["stages cut by tbc: layers that pp does not divide"] += 1
        job["schedule"] = "interleaved" if degree["vpp"] > 1 else SCHEDULES[row["schedule"]]
        if degree["vpp"] > 1:
            job["virtual-stages"] = degree["vpp"]
    if row["recompute"] == "selective" and row["source_group"] == "torchtitan":
        job["recompute"] = "full"
        job.setdefault("pin", []).extend(f"*.{name}=keep" for name in ("q_proj", "v_proj", "self_attn.attention", "gate_proj", "down_proj"))
    if row["recompute"] == "selective" and row["source_group"] == "korthikanti":
        # Only attention is recomputed. A kernel that keeps no scores does so by itself.
        job["recompute"] = "none"
        taken_as["selective recomputation of attention as attention that keeps no scores"] += 1
    return job


def changed(text, name, item, value):
    """Returns a cluster file with a constant of a section replaced or added."""
    head, line = f"[{name}]\n", f"{item} = {value}"
    begin = text.find(head)
    if begin < 0:
        return text.rstrip() + f"\n\n{head}{line}\n"
    end = text.find("\n[", begin)
    end = len(text) if end < 0 else end
    old = re.compile(rf"(?m)^{item} *=.*$")
    part = text[begin:end]
    part = old.sub(line, part) if old.search(part) else part.rstrip() + f"\n{line}\n"
    return text[:begin] + part + text[end:]


class Clusters:
    """Writes cluster files: presets, and presets with another network between nodes."""

    def __init__(self, tbc, folder, changes=()):
        self.tbc, self.folder, self.known = tbc, Path(folder), {}
        self.changes = [re.fullmatch(r"([\w-]*):([\w.]+)\.(\w+)=(\S+)", change).groups() for change in changes]

    def of(self, row):
        preset, changes = VARIANTS.get(row["gpu"], (CLUSTERS.get(row["gpu"]), ()))
        if preset is None and "mem_component" in row:
            preset = "h100-sxm"  # the memory of a pinned layout depends on no GPU
        if preset is None:
            raise Unsupported("GPU " + row["gpu"])
        gbit, per_node = row["inter_gbit_per_node"], integer(row["gpus_per_node"], 8)
        unfused = integer(row["hidden"]) // integer(row["heads"]) if row["attention"] == "unfused" else 0  # elements of a head
        key = (preset, changes, gbit, per_node, unfused)
        if key not in self.known:
            text = subprocess.run([self.tbc, "cluster", preset], check=True, capture_output=True, text=True).stdout
            text = re.sub(r"(?m)^devices_per_node *=.*$", f"devices_per_node = {per_node}", text)
            if gbit:
                # Scales the preset's achieved rate in proportion to the nominal rate.
                head, found, tail = text.partition("[network.inter_node]")
                rate = re.search(r"(?m)^bytes_per_second *= *([0-9.e+]+)", tail)
                if not rate or preset not in NODE_GBIT:
                    raise Unsupported(f"another network than that of {preset}")
                each = float(rate[1]) * float(gbit) / NODE_GBIT[preset]
                tail = tail[: rate.start()] + f"bytes_per_second = {each:.6g}" + tail[rate.end() :]
                text = head + found + tail
            for name, item, value in changes:
                text = changed(text, name, item, value)
            for of, name, item, value in self.changes:
                if preset.startswith(of):
                    text = changed(text, name, item, value)
            if unfused:
                if "[kernel.causal_attention]" not in text:  # a table of its own, as fast as attention
                    part = re.search(r"(?ms)^\[kernel\.attention\]\n(.*?)(?=^\[|\Z)", text)
                    if not part:
                        raise Unsupported(f"{preset} has no rates of attention")
                    text = text.rstrip() + "\n\n[kernel.causal_attention]\n" + part[1]
                for item, value in (("executed_fraction", 1.0), ("bytes_per_flop", UNFUSED_BYTES_PER_FLOP / unfused)):
                    text = changed(text, "kernel.causal_attention", item, value)
            file = self.folder / f"cluster-{len(self.known)}.toml"
            file.write_text(text)
            self.known[key] = str(file)
        return self.known[key]


@functools.lru_cache(None)
def predicted_states(executor, is_sharded):
    """Returns the bytes per parameter that an executor is predicted to keep: (gradient; weights in
    16 bits, master copy and optimizer state). `is_sharded`: the weights are (ZeRO-3).
    """
    file = Path(__file__).resolve().parents[2] / "planner/executors" / f"{executor}.toml"
    text = file.read_text() if file.exists() else ""
    width = re.search(r"(?m)^gradient_width *= *([0-9.]+)", text)
    casts = is_sharded and re.search(r"(?m)^stored_weights *= *false", text)
    return float(width[1]) if width else 4, 12 if casts else 14


def predicted_gib(answer, row, executor, taken_as):
    """Returns the measured component of the predicted memory in GiB: (with the executor's lines,
    without, low end, high end).
    """
    stages = [{line["name"]: line["bytes"] for line in stage["memory"]} for stage in answer["stages"]]
    # Bytes of weights, gradients and optimizer per parameter, if they differ from tbc's.
    held = [float(x) for x in row["state_bytes"].split("/")] if row["state_bytes"] else [2, 4, 12]
    # An analytic figure sums 18 bytes in any case.
    is_sharded = integer(row["zero"], 0) == 3 and integer(row["dp"], 1) * integer(row["cp"], 1) > 1
    gradient, others = predicted_states(executor, is_sharded)
    if held != [2, 4, 12] and (held[1], held[0] + held[2]) != (gradient, others) and not row["mem_metric"].startswith("analytic"):
        taken_as[f"states of {row['state_bytes']} bytes for each parameter, in proportion to tbc's 2/4/12"] += 1
        for lines in stages:
            lines["gradients"] *= held[1] / gradient
            for name in ("parameters", "master weights", "optimizer state"):
                lines[name] *= (held[0] + held[2]) / others
    if "rank 0" in row["mem_rank"]:
        stages = stages[:1]
    elif "rank 7" in row["mem_rank"]:  # of eight ranks
        stages = stages[-1:]
    component = row["mem_component"] or "total"
    outside = ["device context"]  # torch's figures exclude it
    if "allocated" == row["mem_metric"] or component != "total":
        outside.append("allocator margin")
    if "nvidia-smi" in row["mem_metric"]:
        outside = []
    if component not in PARTS:
        raise Unsupported("memory part " + component)

    def part(lines, without=()):
        names = PARTS[component] or set(lines) - set(outside)
        return sum(lines.get(name, 0) for name in names if name not in without) / GIB

    whole = max(part(lines) for lines in stages)
    # The interval of the largest stage, as a part of its program.
    peak = answer["peak_bytes"]
    return (whole, max(part(lines, ("executor states", "executor residuals", "executor logits")) for lines in stages),
            whole * answer["low_bytes"] / peak, whole * answer["high_bytes"] / peak)


def usable(path, words, sources):
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["usable_for"] in words]
    return [row for row in rows if not sources or row["source_group"] in sources]


def disturbed(rows):
    """Returns the ids of runs that took longer than a run of the same layout on fewer devices: the same
    but for the data ranks, the micro-batches of each, and ZeRO. More devices only divide the work.

    Example: 16 data ranks with 4 micro-batches each take 0.89 s. 32 with 2 that take 1.02 s were
    disturbed.
    """
    same = ("source_group", "model", "gpu", "seq", "global_batch", "precision", "tp", "cp", "pp", "vpp", "ep", "sp", "micro_batch",
            "recompute", "attention", "variant")
    layouts = defaultdict(list)
    for row in rows:
        if row.get("step_time_s"):
            layouts[tuple(row.get(key) for key in same)].append((integer(row["gpus"]), float(row["step_time_s"]), row["id"]))
    return {name for runs in layouts.values() for gpus, seconds, name in runs
            if any(fewer < gpus and shorter < seconds for fewer, shorter, _ in runs)}


def every(rows, limit):
    """Returns at most `limit` rows of each source, evenly spaced."""
    by_source = defaultdict(list)
    for row in rows:
        by_source[row["source_group"]].append(row)
    if not limit:
        return rows
    return [row for group in by_source.values() for row in group[:: max(1, math.ceil(len(group) / limit))]]


def table(title, head, rows):
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    print("\n" + title)
    for line in [head, *rows]:
        print("  " + "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))))


def percent(x):
    return f"{100 * x:.1f} %"


def macro_average(errors_by_source):
    return statistics.fmean(statistics.fmean(abs(e) for e in errors) for errors in errors_by_source)


def ratio(line):
    return math.log(line["measured"] / line["predicted"])


def factor(groups):
    """Returns the logarithm of the common factor of measured / predicted over groups of lines."""
    return sum(statistics.median(map(ratio, lines)) for lines in groups) / (len(groups) + 1)


def width(groups):
    """Returns the least w with 90 % of the weight of all lines in |measured / predicted - 1| <= w.
    Every group weighs the same.
    """
    weighted = sorted((abs(line["measured"] / line["predicted"] - 1), 1 / len(lines)) for lines in groups for line in lines)
    total = 0
    for size, weight in weighted:
        total += weight
        if total >= 0.9 * len(groups) - 1e-9:
            return size
    return None


def by(lines, key):
    groups = defaultdict(list)
    for line in lines:
        groups[line[key]].append(line)
    return dict(sorted(groups.items()))


def errors_of(lines, shift=0):
    """Returns predicted / measured - 1, with predictions multiplied by exp(shift)."""
    return [line["predicted"] * math.exp(shift) / line["measured"] - 1 for line in lines]


def mean_error(errors):
    return statistics.fmean(abs(error) for error in errors)


def report(what, lines, worst, unit):
    """Prints the errors of `lines`: dicts of source, gpu, executor, predicted, measured, low, high."""
    if not lines:
        print(f"\n{what}: no rows")
        return
    sources, rows, sums = by(lines, "source"), [], defaultdict(list)
    for source, its in sources.items():
        errors = errors_of(its)
        sizes = sorted(abs(error) for error in errors)
        # Memory depends on no GPU.
        kin = [group for group in sources.values() if what == "memory" or group[0]["gpu"] == its[0]["gpu"]]
        others = [group for group in kin if group is not its]
        every_other = [group for group in sources.values() if group is not its]
        scaled, left_out = mean_error(errors_of(its, factor(kin))), mean_error(errors_of(its, factor(others)))
        half = width(every_other)
        inside = statistics.fmean(line["low"] <= line["measured"] <= line["high"] for line in its)
        held = statistics.fmean(abs(line["measured"] / line["predicted"] - 1) <= half for line in its) if half is not None else math.nan
        low = statistics.fmean(error < -0.02 for error in errors)
        over = statistics.fmean(line["measured"] > 1.02 * line["high"] for line in its)
        for name, value in (("mean", mean_error(errors)), ("scaled", scaled), ("left out", left_out), ("inside", inside), ("held", held),
                            ("under", low), ("over", over)):
            sums[name].append(value)
        rows.append([source, its[0]["executor"], len(its), percent(mean_error(errors)), percent(statistics.median(sizes)),
                     percent(sizes[int(0.9 * (len(sizes) - 1))]), f"{100 * statistics.fmean(errors):+.1f} %", percent(scaled), percent(left_out),
                     percent(inside), percent(half) if half is not None else "-", percent(held)])
    table(f"{what}: error per source",
          ["source", "executor", "rows", "mean", "median", "90 %", "bias", "scaled", "left out", "inside", "width", "held"], rows)
    mean = {name: percent(statistics.fmean(value for value in values if value == value)) for name, values in sums.items()
            if any(value == value for value in values)}
    print(f"  macro-average {mean['mean']} over {len(sources)} sources; with factors: in-sample {mean['scaled']}, left out {mean['left out']}; "
          f"pooled {percent(mean_error(errors_of(lines)))} over {len(lines)} rows")
    print(f"  printed intervals hold {mean['inside']} (macro); those of the other sources' evidence {mean.get('held', '-')}")
    print(f"  too low by more than 2 %: {mean['under']} (macro); beyond the upper end by more than 2 %: {mean['over']}")
    table(f"{what}: error per executor", ["executor", "rows", "mean", "interval that holds 90 %"],
          [[executor, len(its), percent(mean_error(errors_of(its))), percent(width([its]))] for executor, its in by(lines, "executor").items()])
    order = sorted(lines, key=lambda line: -abs(line["predicted"] / line["measured"] - 1))[:worst]
    table(f"{what}: worst rows", ["id", "predicted", "measured", "error"],
          [[line["id"], f"{line['predicted']:.3g} {unit}", f"{line['measured']:.3g} {unit}",
            f"{100 * (line['predicted'] / line['measured'] - 1):+.0f} %"] for line in order])


def ranks(values):
    """Returns the rank of each value; equal values share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def spearman(first, second):
    a, b = ranks(first), ranks(second)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return math.nan
    return statistics.correlation(a, b)


def by_version(lines):
    """Returns lines by source, and by version of its executor: a sweep of both is two. Runs without a
    pipeline are the same in both.
    """
    groups = {}
    for source, its in by(lines, "source").items():
        for version in sorted({line.get("executor", "") for line in its}):
            # The variants of a source that are no versions of one another stay together.
            others = {line.get("executor", "") for line in its} - {version}
            if not any(OTHER_VERSIONS.get(other) == version or OTHER_VERSIONS.get(version) == other for other in others):
                groups[source] = its
            else:
                name = source if version in OTHER_VERSIONS else f"{source}, {version}"
                groups[name] = [line for line in its if line["executor"] == version or line.get("pp", 1) == 1]
    return groups


def rank(title, lines):
    """Prints how well layouts of one sweep are ranked: Spearman's correlation, the regret (measured
    time of the layout predicted fastest, relative to the fastest), and whether the fastest is among
    the three predicted fastest. Sweeps of fewer than four layouts are left out.

    "as planned" is the regret of the layout that `tbc plan` takes: by the memory verdict first, then
    by predicted time. Example: 8.7 s that are tight and 8.8 s that fit: the second is taken.
    """
    rows = []
    for source, its in by_version([line for line in lines if line["sweep"]]).items():
        found = []
        for sweep in by(its, "sweep").values():
            if len(sweep) < 4:
                continue
            best = min(line["measured"] for line in sweep)
            order = sorted(sweep, key=lambda line: line["predicted"])
            planned = min(order, key=lambda line: VERDICTS.index(line.get("verdict", "fits")))
            found.append((spearman([line["predicted"] for line in sweep], [line["measured"] for line in sweep]),
                          order[0]["measured"] / best - 1, any(line["measured"] == best for line in order[:3]),
                          planned["measured"] / best - 1))
        if found:
            rows.append([source, len(found), f"{statistics.fmean(f[0] for f in found if f[0] == f[0]):.2f}",
                         percent(statistics.fmean(f[1] for f in found)), percent(max(f[1] for f in found)),
                         percent(statistics.fmean(f[3] for f in found)), percent(max(f[3] for f in found)),
                         percent(statistics.fmean(f[2] for f in found))])
    if rows:
        table(title, ["source", "sweeps", "Spearman", "regret", "largest", "as planned", "largest", "best in top 3"], rows)


def make_model(tbc, arguments, path):
    run = subprocess.run([tbc, "new", *arguments, "-o", path], capture_output=True, text=True)
    if run.returncode:
        raise Unsupported("tbc new: " + run.stderr.strip().split("\n")[0][:100])
    return path


def cost(tbc, jobs, folder):
    """Returns the answers of `tbc plan --job` by job. Jobs after one that ends the program get an
    error.
    """
    # Sorting keeps the jobs of one model together.
    order = sorted(jobs, key=lambda job: (json.loads(job)["model"], job))
    file = Path(folder, "jobs.jsonl")
    answers, rest = {}, order
    while rest:
        file.write_text("".join(job + "\n" for job in rest))
        run = subprocess.run([tbc, "plan", "--job", file], capture_output=True, text=True)
        lines = [json.loads(line) for line in run.stdout.splitlines()][: len(rest)]
        answers.update(zip(rest, lines))
        rest = rest[len(lines):]
        if rest:
            message = (run.stderr.strip() or f"ended with code {run.returncode}").split("\n")[-1]
            answers[rest[0]] = {"error": {"message": "tbc plan --job: " + message}}
            rest = rest[1:]
    return answers


def predict(data, tbc, sources, limit, changes, versions):
    """Returns (predicted rows, unsupported rows by source and reason, approximations). `versions`: other
    versions of executors; the prediction that is nearer to the measured time is taken.
    """
    everything = usable(data / "runs.csv", ("time", "both"), sources)
    slower = disturbed(everything)
    runs = every(everything, limit)
    memory = every(usable(data / "memory.csv", ("memory",), sources), limit)
    refused, taken_as, lines = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        clusters, models, wanted = Clusters(tbc, folder, changes), {}, []
        for what, rows in (("time", runs), ("memory", memory)):
            for row in rows:
                try:
                    if not row[MEASURED[what]]:  # e.g. a run that ended out of memory
                        raise Unsupported("nothing was measured")
                    arguments = tuple(model_arguments(row, taken_as))
                    job = {**layout(row, taken_as), "cluster": clusters.of(row)}
                    if arguments not in models:
                        models[arguments] = make_model(tbc, arguments, str(Path(folder, f"model-{len(models)}.onnx")))
                except (Unsupported, ValueError, KeyError) as why:
                    refused[(row["source_group"], f"{type(why).__name__} {why}" if not isinstance(why, Unsupported) else str(why))] += 1
                    continue
                job["model"] = models[arguments]
                other = versions.get(job.get("executor")) if integer(row["pp"], 1) > 1 and what == "time" else None
                wanted.append((what, row, json.dumps(job, sort_keys=True),
                               json.dumps({**job, "executor": other}, sort_keys=True) if other else None))
        # Equal jobs are costed once: a run and its memory row, and repeats.
        start = time.monotonic()
        answers = cost(tbc, {job for _, _, *jobs in wanted for job in jobs if job}, folder)
        seconds = time.monotonic() - start
        print(f"{len(answers)} configurations of {len(models)} models in {seconds:.1f} s: {len(answers) / max(seconds, 1e-9):.1f} a second")
    for what, row, job, other in wanted:
        answer = answers[job]
        if other and "error" not in answer and "error" not in answers[other]:
            job = min((job, other), key=lambda one: abs(answers[one]["step_seconds"] - float(row[MEASURED[what]])))
            answer = answers[job]
        try:
            if "error" in answer:
                raise Unsupported(answer["error"]["message"].split("\n")[0][:100])
            if what == "time":
                predicted, own, low, high = answer["step_seconds"], answer["step_seconds"], answer["low_seconds"], answer["high_seconds"]
            else:
                predicted, own, low, high = predicted_gib(answer, row, json.loads(job).get("executor", "tbc"), taken_as)
            if not predicted > 0 or not float(row[MEASURED[what]]) > 0:
                raise Unsupported("a value of zero")
        except Unsupported as why:
            refused[(row["source_group"], str(why))] += 1
            continue
        lines.append({"id": row["id"], "what": what, "source": row["source_group"], "gpu": CLUSTERS.get(row["gpu"], row["gpu"])[:4],
                      "executor": json.loads(job).get("executor", "tbc"), "sweep": row["sweep"], "gpus": integer(row["gpus"]),
                      "pp": integer(row["pp"], 1), "disturbed": what == "time" and row["id"] in slower,
                      "predicted": predicted, "own": own, "low": low, "high": high, "measured": float(row[MEASURED[what]]),
                      "fits": answer["fits"], "verdict": answer["memory"]})
    return lines, refused, taken_as


# What --gate lets pass: rounding, and constants of a cluster file in the last digit.
GATE_ROOM = 0.001


def macro_errors(lines):
    """Returns the macro-average error of each kind of prediction, and the number of rows."""
    found = {}
    for what, its in by(lines, "what").items():
        found[what] = statistics.fmean(mean_error(errors_of(group)) for group in by(its, "source").values())
        found[what + " rows"] = len(its)
    return found


def gate(found, kept):
    """Returns what is worse in `found` than in `kept`, both of macro_errors()."""
    worse = []
    for what, value in kept.items():
        now = found.get(what, 0)
        if what.endswith(" rows") and now < value:
            worse.append(f"{what}: {now} are predicted, {value} were")
        elif not what.endswith(" rows") and now > value + GATE_ROOM:
            worse.append(f"{what}: macro-average error {percent(now)}, was {percent(value)}")
    return worse


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of runs.csv and memory.csv")
    parser.add_argument("--tbc", default=str(Path(__file__).resolve().parents[2] / "build/bin/tbc"))
    parser.add_argument("--source", action="append", help="only this source_group (repeatable)")
    parser.add_argument("--limit", type=int, default=0, help="rows of each source, evenly spaced (default: all)")
    parser.add_argument("--worst", type=int, default=10, help="worst rows to print")
    parser.add_argument("--json", type=Path, help="write every prediction here, a line each")
    parser.add_argument("--read", type=Path, help="report the predictions in this file instead of making them")
    parser.add_argument("--set", action="append", default=[], metavar="PRESET:SECTION.KEY=VALUE",
                        help="another constant in the presets whose names begin so, to fit it (repeatable)")
    parser.add_argument("--either-version", action="store_true",
                        help="take a run as of the version that is nearer to its time, where the data do not say which ran")
    parser.add_argument("--gate", type=Path, help="errors that must not grow")
    parser.add_argument("--keep", type=Path, help="write the errors here")
    options = parser.parse_args()
    refused, taken_as = Counter(), Counter()
    if options.read:
        lines = [json.loads(line) for line in options.read.read_text().splitlines()]
    else:
        versions = OTHER_VERSIONS if options.either_version else {}
        lines, refused, taken_as = predict(options.data, str(Path(options.tbc).resolve()), options.source, options.limit, options.set, versions)
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    times, memory = ([line for line in lines if line["what"] == what] for what in ("time", "memory"))
    report("time", times, options.worst, "s")
    rank("ranking of sweeps", times)
    rank("ranking of sweeps without disturbed runs", [line for line in times if not line.get("disturbed")])
    for executor, its in by([line for line in times if "executor" in line], "executor").items():
        if executor in OTHER_VERSIONS.values():
            print(f"\nruns taken as {executor}: {len(its)}")
    report("memory", memory, options.worst, "GiB")
    ran = [line for line in times if not line["fits"]]
    print(f"\nruns that are predicted not to fit: {len(ran)} of {len(times)}")
    if ran:
        table("by source", ["source", "rows"], [[source, len(its)] for source, its in by(ran, "source").items()])
    if taken_as:
        table("taken as something near it", ["what", "rows"], sorted(taken_as.items()))
    if refused:
        table("unsupported rows", ["source, reason", "rows"],
              [[f"{source}: {why}", count] for (source, why), count in sorted(refused.items())])
    if options.keep:
        options.keep.write_text(json.dumps(macro_errors(lines), indent=1) + "\n")
    if options.gate:
        for line in (worse := gate(macro_errors(lines), json.loads(options.gate.read_text()))):
            print(f"worse than {options.gate.name}: {line}", file=sys.stderr)
        return 1 if worse else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
