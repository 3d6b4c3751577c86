#!/usr/bin/env python3
"""Compares the planner's predictions with published measurements. Python standard library only.

usage: accuracy.py DATA [--tbc PROGRAM] [--source GROUP ..] [--limit N] [--worst N] [--json FILE] [--set PRESET:SECTION.KEY=VALUE ..]

DATA holds runs.csv and memory.csv: one row per published run or memory figure, with the model, the
layout and the measured value. Every usable row is predicted with its layout pinned: `tbc new` makes
the model, and one `tbc plan --job` costs all rows.

error = |predicted - measured| / measured. The figure of a source is the mean over its rows. The
overall figure is the mean over sources, so a sweep of many rows does not dominate a table of few.
Example: sources with errors of 10 % (50 rows) and 20 % (2 rows) give 15 %.

- A row with a property that tbc cannot express is not guessed. It is counted as unsupported, with
  the reason.
- A row predicted as something close to it is counted under "taken as".
- frameworks.py adds the memory that the row's framework keeps and tbc does not. The error without
  it is printed as well.
"""

import argparse
import csv
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

import frameworks

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
}
# The nominal network rate of a node in those presets, Gbit/s.
NODE_GBIT = {"a100-80gb-sxm": 1600, "a100-40gb-sxm": 1600, "h100-sxm": 3200, "h200-sxm": 3200, "v100-32gb": 800, "v100-16gb": 800, "b200": 3200}
PRECISIONS = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}
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
# Module path of the layers, by kind.
LAYERS = {"gpt2": "transformer.h", "bloom": "transformer.h", "mpt": "transformer.blocks", "neox": "gpt_neox.layers",
          "llama": "model.layers", "nemotron": "model.layers", "grok": "model.layers"}
# The column of the measured value.
MEASURED = {"time": "step_time_s", "memory": "peak_mem_gib"}
# The memory lines of tbc that make up each component; "total" is all lines.
PARTS = {
    "total": (),
    "states": ("parameters", "master weights", "gradients", "optimizer state"),
    "activations": ("saved residuals",),
    "activation_peak": ("saved residuals", "transients", "gathered parameters", "collective buffers"),
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
    Example: 16 layers, pp=2 and a head as expensive as 4 layers give ([11, 5], []).
    """
    pp, layers = integer(row["pp"], 1), integer(row["layers"])
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
    if row["pp_split"]:
        raise Unsupported("a stage split in words")
    if row["precision"] not in PRECISIONS:
        raise Unsupported(row["precision"])
    if row["schedule"] not in SCHEDULES:
        raise Unsupported("schedule " + row["schedule"])
    zero = integer(row["zero"], 0)
    group = integer(row["zero_group"], degree["dp"] * degree["cp"])
    mesh = {"pp": degree["pp"], "tp": degree["tp"], "cp": degree["cp"]}
    if row.get("mem_component") == "activations" and row["attention"] == "unfused" and row["recompute"] == "none":
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
    if degree["tp"] > 1:
        # Megatron splits every matmul, not only the sequence.
        job["pin"] = ["*=tp"]
        if row["sp"] == "1" and row["kind"] in NORMS:
            # Megatron's sequence parallelism splits the ops between them, and gathers again in
            # backward.
            job["pin"] += [NORMS[row["kind"]] + "=tp", NORMS[row["kind"]] + "=recompute"]
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
        job["pin"] = [f"*.{name}=keep" for name in ("q_proj", "v_proj", "self_attn.attention", "gate_proj", "down_proj")]
    if row["recompute"] == "selective" and row["source_group"] == "korthikanti":
        # Only attention is recomputed. A kernel that keeps no scores does so by itself.
        job["recompute"] = "none"
        taken_as["selective recomputation of attention as attention that keeps no scores"] += 1
    return job


def section(text, name):
    """Returns the begin and end offsets of a section of a cluster file."""
    head = f"[{name}]\n"
    begin = text.find(head)
    if begin < 0:
        sys.exit(f"accuracy.py: a cluster file without {head}")
    end = text.find("\n[", begin)
    return begin, len(text) if end < 0 else end


def changed(text, name, item, value):
    """Returns a cluster file with a constant of a section replaced or added."""
    begin, end = section(text, name)
    line = f"{item} = {value}"
    old = re.compile(rf"(?m)^{item} *=.*$")
    part = text[begin:end]
    part = old.sub(line, part) if old.search(part) else part.rstrip() + f"\n{line}\n"
    return text[:begin] + part + text[end:]


def whole_forward(answer):
    """Returns the step's seconds if all of forward is recomputed, as frameworks do.

    tbc leaves out the ops that backward does not read, such as the last matmul of a block. Forward
    is a third of forward and backward. The pipeline's waiting time grows in proportion.
    """
    time = answer["time"]
    busy = time["compute"] + time["recompute"] + time["operands"]
    more = max(0.0, time["compute"] / 3 - time["recompute"])
    return answer["step_seconds"] + more * (1 + time["pipeline"] / busy)


class Clusters:
    """Writes cluster files: presets, and presets with another network between nodes."""

    def __init__(self, tbc, folder, changes=()):
        self.tbc, self.folder, self.known = tbc, Path(folder), {}
        self.changes = [re.fullmatch(r"([\w-]*):([\w.]+)\.(\w+)=(\S+)", change).groups() for change in changes]

    def of(self, row):
        preset = CLUSTERS.get(row["gpu"])
        if preset is None and "mem_component" in row:
            preset = "h100-sxm"  # the memory of a pinned layout depends on no GPU
        if preset is None:
            raise Unsupported("GPU " + row["gpu"])
        gbit, per_node = row["inter_gbit_per_node"], integer(row["gpus_per_node"], 8)
        unfused = integer(row["hidden"]) // integer(row["heads"]) if row["attention"] == "unfused" else 0  # elements of a head
        key = (preset, gbit, per_node, unfused)
        if key not in self.known:
            text = subprocess.run([self.tbc, "cluster", preset], check=True, capture_output=True, text=True).stdout
            text = re.sub(r"(?m)^devices_per_node *=.*$", f"devices_per_node = {per_node}", text)
            if gbit:
                # Scales the preset's achieved rate in proportion to the nominal rate.
                head, found, tail = text.partition("[network.inter_node]")
                rate = re.search(r"(?m)^bytes_per_second *= *([0-9.e+]+)", tail)
                if not rate:
                    sys.exit(f"accuracy.py: cluster {preset} has no network.inter_node.bytes_per_second")
                each = float(rate[1]) * float(gbit) / NODE_GBIT[preset]
                tail = tail[: rate.start()] + f"bytes_per_second = {each:.6g}" + tail[rate.end() :]
                text = head + found + tail
            for of, name, item, value in self.changes:
                if preset.startswith(of):
                    text = changed(text, name, item, value)
            if unfused:
                for item, value in (("executed_fraction", 1.0), ("bytes_per_flop", UNFUSED_BYTES_PER_FLOP / unfused)):
                    text = changed(text, "kernel.causal_attention", item, value)
            file = self.folder / f"cluster-{len(self.known)}.toml"
            file.write_text(text)
            self.known[key] = str(file)
        return self.known[key]


def held_stage(row, index, lines):
    """Returns the sizes that decide how much memory the row's framework adds on a pipeline stage
    (`frameworks.Stage`).
    """
    pp, vpp, tp = integer(row["pp"], 1), integer(row["vpp"], 1), integer(row["tp"], 1)
    data = integer(row["dp"], 1) * integer(row["cp"], 1)
    steps = integer(row["global_batch"]) // (integer(row["micro_batch"]) * integer(row["dp"], 1))
    counts = (chunk_layers(row) or ([integer(row["layers"]) / pp] * pp, []))[0]
    if vpp > 1:  # Korthikanti et al., section 4.2.3: the first stage has most in flight
        layers = integer(row["layers"]) * (1 + (pp - 1) / (pp * vpp))
    else:
        layers = (counts[index] if index < len(counts) else 0) * min(pp - index, steps)
    tokens = integer(row["micro_batch"]) * integer(row["seq"]) // integer(row["cp"], 1)
    hidden = integer(row["hidden"])
    return frameworks.Stage(
        tokens=tokens, layers=layers, hidden=hidden, ffn=integer(row["ffn_hidden"]),
        keys=hidden // integer(row["heads"]) * integer(row["kv_heads"], integer(row["heads"])),
        logits=tokens * integer(row["vocab"]) // tp if index + 1 == pp else 0,
        parameters=lines["parameters"] / 2 * (data if row["zero"] == "3" else 1), tp=tp,
        sequence=tp if row["sp"] == "1" else 1, data=data, batch=integer(row["micro_batch"]), zero=integer(row["zero"], 0),
        recompute=row["recompute"] == "full", ends=(index == 0) + (index + 1 == pp), joints=(index > 0) + (index + 1 < pp))


def predicted_gib(answer, row, taken_as):
    """Returns the measured component of the predicted memory, in GiB: (with the framework's
    additions, without).
    """
    stages = [{line["name"]: line["bytes"] for line in stage["memory"]} for stage in answer["stages"]]
    kept = [frameworks.kept(row, held_stage(row, index, lines), lines) for index, lines in enumerate(stages)]
    # Bytes of weights, gradients and optimizer per parameter, if they differ from tbc's.
    held = [float(x) for x in row["state_bytes"].split("/")] if row["state_bytes"] else [2, 4, 12]
    # An analytic figure sums 18 bytes in any case.
    if held != [2, 4, 12] and not row["mem_metric"].startswith("analytic"):
        taken_as[f"states of {row['state_bytes']} bytes for each parameter, in proportion to tbc's 2/4/12"] += 1
        for lines in stages:
            lines["gradients"] *= held[1] / 4
            for name in ("parameters", "master weights", "optimizer state"):
                lines[name] *= (held[0] + held[2]) / 14
    if "rank 0" in row["mem_rank"]:
        stages, kept = stages[:1], kept[:1]
    elif "rank 7" in row["mem_rank"]:  # of eight ranks
        stages, kept = stages[-1:], kept[-1:]
    component = row["mem_component"] or "total"
    outside = ["device context"]  # torch's figures exclude it
    if "allocated" == row["mem_metric"] or component != "total":
        outside.append("allocator margin")
    if "nvidia-smi" in row["mem_metric"]:
        outside = []
    if component not in PARTS:
        raise Unsupported("memory part " + component)

    def part(lines):
        names = PARTS[component] or set(lines) - set(outside)
        return sum(lines.get(name, 0) for name in names)

    own = [part(lines) for lines in stages]
    with_kept = [bytes_ + sum(more for where, _, more in terms if component in ("total", *where)) for bytes_, terms in zip(own, kept)]
    return max(with_kept) / GIB, max(own) / GIB


def usable(path, words, sources):
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["usable_for"] in words]
    return [row for row in rows if not sources or row["source_group"] in sources]


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


def report(what, results, worst, unit, bare=None):
    """Prints the errors of (row, predicted, measured) triples. `bare`: errors by source without the
    frameworks' additions.
    """
    by_source = defaultdict(list)
    for row, predicted, measured in results:
        by_source[row["source_group"]].append(predicted / measured - 1)
    lines = []
    for source, errors in sorted(by_source.items()):
        sizes = sorted(abs(e) for e in errors)
        lines.append([source, len(errors), percent(statistics.fmean(sizes)), percent(statistics.median(sizes)),
                      percent(sizes[int(0.9 * (len(sizes) - 1))]), f"{100 * statistics.fmean(errors):+.1f} %"])
        if bare:
            lines[-1].append(percent(statistics.fmean(abs(e) for e in bare[source])))
    table(f"{what}: error per source", ["source", "rows", "mean", "median", "90 %", "bias"] + (["mean, tbc's alone"] if bare else []), lines)
    if not lines:
        return
    macro = macro_average(by_source.values())
    everything = [e for errors in by_source.values() for e in errors]
    print(f"  macro-average {percent(macro)}, pooled {percent(statistics.fmean(abs(e) for e in everything))}")
    if unit == "GiB":
        under = sum(e < -0.02 for e in everything)
        print(f"  under-predicted by more than 2 %: {under} of {len(everything)} rows, {percent(under / len(everything))}")
    order = sorted(results, key=lambda r: -abs(r[1] / r[2] - 1))[:worst]
    table(f"{what}: worst rows", ["id", "predicted", "measured", "error"],
          [[row["id"], f"{p:.3g} {unit}", f"{m:.3g} {unit}", f"{100 * (p / m - 1):+.0f} %"] for row, p, m in order])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of runs.csv and memory.csv")
    parser.add_argument("--tbc", default=str(Path(__file__).resolve().parents[2] / "build/bin/tbc"))
    parser.add_argument("--source", action="append", help="only this source_group (repeatable)")
    parser.add_argument("--limit", type=int, default=0, help="rows of each source, evenly spaced (default: all)")
    parser.add_argument("--worst", type=int, default=10, help="worst rows to print")
    parser.add_argument("--json", type=Path, help="write every prediction here, a line each")
    parser.add_argument("--set", action="append", default=[], metavar="PRESET:SECTION.KEY=VALUE",
                        help="another constant in the presets whose names begin so, to fit it (repeatable)")
    options = parser.parse_args()
    tbc = str(Path(options.tbc).resolve())

    runs = every(usable(options.data / "runs.csv", ("time", "both"), options.source), options.limit)
    memory = every(usable(options.data / "memory.csv", ("memory",), options.source), options.limit)
    refused, taken_as = Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        clusters = Clusters(tbc, folder, options.set)
        models, jobs, wanted = {}, {}, []
        for what, rows in (("time", runs), ("memory", memory)):
            for row in rows:
                if not row[MEASURED[what]]:  # e.g. a run that ended out of memory
                    refused[(row["source_group"], "nothing was measured")] += 1
                    continue
                try:
                    arguments = tuple(model_arguments(row, taken_as))
                    job = {**layout(row, taken_as), "cluster": clusters.of(row)}
                except Unsupported as why:
                    refused[(row["source_group"], str(why))] += 1
                    continue
                if arguments not in models:
                    models[arguments] = str(Path(folder, f"model-{len(models)}.onnx"))
                    subprocess.run([tbc, "new", *arguments, "-o", models[arguments]], check=True, stdout=subprocess.DEVNULL)
                job["model"] = models[arguments]
                wanted.append((what, row, json.dumps(job, sort_keys=True)))
        # Equal jobs are costed once: a run and its memory row, and repeats. Sorting keeps the jobs
        # of one model together.
        for _, _, job in wanted:
            jobs.setdefault(job, None)
        order = sorted(jobs, key=lambda job: (json.loads(job)["model"], job))
        file = Path(folder, "jobs.jsonl")
        file.write_text("".join(job + "\n" for job in order))
        start = time.monotonic()
        run = subprocess.run([tbc, "plan", "--job", file], capture_output=True, text=True)
        seconds = time.monotonic() - start
        if run.returncode not in (0, 1):
            sys.exit(f"accuracy.py: tbc plan --job: {run.stderr}")
        for job, line in zip(order, run.stdout.splitlines(), strict=True):
            jobs[job] = json.loads(line)
        print(f"{len(order)} configurations of {len(models)} models in {seconds:.1f} s: {len(order) / max(seconds, 1e-9):.1f} a second")

    results = {"time": [], "memory": []}
    bare, output = defaultdict(list), []
    for what, row, job in wanted:
        answer = jobs[job]
        if "error" in answer:
            refused[(row["source_group"], answer["error"]["message"].split("\n")[0][:100])] += 1
            continue
        measured = float(row[MEASURED[what]])
        try:
            if what == "time":
                predicted = whole_forward(answer) if row["recompute"] == "full" else answer["step_seconds"]
            else:
                predicted, own = predicted_gib(answer, row, taken_as)
                bare[row["source_group"]].append(own / measured - 1)
        except Unsupported as why:
            refused[(row["source_group"], str(why))] += 1
            continue
        results[what].append((row, predicted, measured))
        output.append({"id": row["id"], "what": what, "predicted": predicted, "measured": measured, "fits": answer["fits"]})
    report("time", results["time"], options.worst, "s")
    report("memory", results["memory"], options.worst, "GiB", bare)
    if bare:
        everything = [e for errors in bare.values() for e in errors]
        print(f"  of tbc's memory alone, without what frameworks keep: macro-average {percent(macro_average(bare.values()))}, "
              f"{sum(e < -0.02 for e in everything)} of {len(everything)} rows under-predicted by more than 2 %")
    if taken_as:
        table("taken as something near it", ["what", "rows"], sorted(taken_as.items()))
    table("unsupported rows", ["source, reason", "rows"],
          [[f"{source}: {why}", count] for (source, why), count in sorted(refused.items())])
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in output))


if __name__ == "__main__":
    main()
