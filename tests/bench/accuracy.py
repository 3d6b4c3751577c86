#!/usr/bin/env python3
"""How far the planner's predictions are from published measurements. Python standard library only.

usage: accuracy.py DATA [--tbc PROGRAM] [--source GROUP ..] [--limit N] [--worst N] [--json FILE] [--set PRESET:SECTION.KEY=VALUE ..]

DATA holds runs.csv and memory.csv: one row per published run or memory figure, with model, layout and what was measured.
Every usable row is predicted with its layout pinned: the model is made by `tbc new`, all rows are costed by one
`tbc plan --job`. error = |predicted - measured| / measured; the figure of a source is the mean over its rows, the figure of
all is the mean over sources, so that a sweep does not drown a table.

What a row says and tbc cannot be told is not guessed: such rows are counted as unsupported, with the reason. What is
predicted as something near it is counted too, under "taken as".
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

GIB = 2**30

# The preset that describes a GPU of the measurements.
CLUSTERS = {
    "": "a100-80gb-sxm",  # Galvatron's parts of memory, which depend on no GPU
    "a100": "a100-80gb-sxm",  # vTrain: the memory size is not stated, and no memory row depends on it
    "a100-40gb": "a100-40gb-sxm",
    "a100-80gb": "a100-80gb-sxm",
    "h100-80gb": "h100-sxm",
    "h200": "h200-sxm",
    "v100-32gb": "v100-32gb",
    "v100-16gb": "v100-16gb",
    "b200": "b200",
}
# The nominal rate of a node's network in those presets, Gbit/s.
NODE_GBIT = {"a100-80gb-sxm": 1600, "a100-40gb-sxm": 1600, "h100-sxm": 3200, "h200-sxm": 3200, "v100-32gb": 800, "v100-16gb": 800, "b200": 3200}
PRECISIONS = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}
SCHEDULES = {"": "1f1b", "1f1b": "1f1b", "interleaved-1f1b": "interleaved", "zb-1p": "zero-bubble"}
# The kind, and what its flag for the MLP is: the kinds' own are left out.
FFN_KINDS = {"gpt2": "gelu", "llama": "swiglu", "mpt": "gelu", "neox": "gelu", "bloom": "gelu", "nemotron": "relu2", "grok": "geglu"}
# Attention that writes its scores of two bytes each, as Megatron's kernels did: forward writes them, scales, masks and normalises,
# drops out and multiplies (13 bytes a score), backward writes and reads as much and their cotangents (19). A score has 4 FLOPs for each
# element of a head in forward, 10 in backward. Nothing is skipped.
UNFUSED_BYTES_PER_FLOP = (13 + 19) / (4 + 10)
# Modules of normalisation by kind.
NORMS = {"llama": "*norm*", "gpt2": "*.ln_*"}
# The column of what is compared.
MEASURED = {"time": "step_time_s", "memory": "peak_mem_gib"}
STATES = ("parameters", "master weights", "gradients", "optimizer state")
PEAKS = ("saved residuals", "transients", "gathered parameters", "collective buffers")


class Unsupported(Exception):
    pass


def integer(cell, otherwise=None):
    return int(float(cell)) if cell else otherwise


def model_arguments(row, taken_as):
    """The arguments of `tbc new` for the model of a row."""
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


def layout(row, taken_as):
    """The keys of a job that pin the layout of a row."""
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
        # Every product with a matrix, as in Megatron: not its sequence alone.
        job["pin"] = ["*=tp"]
        if row["sp"] == "1" and row["kind"] in NORMS:
            # Its sequence parallelism splits what is between them, and gathers again in backward.
            job["pin"] += [NORMS[row["kind"]] + "=tp", NORMS[row["kind"]] + "=recompute"]
    if degree["dp"] * degree["cp"] > 1:
        job["zero"] = zero
    if degree["pp"] > 1:
        job["schedule"] = "interleaved" if degree["vpp"] > 1 else SCHEDULES[row["schedule"]]
        if degree["vpp"] > 1:
            job["virtual-stages"] = degree["vpp"]
    if row["recompute"] == "selective" and row["source_group"] == "korthikanti":
        # Of attention alone, which a kernel that keeps no scores does by itself.
        job["recompute"] = "none"
        taken_as["selective recomputation of attention as attention that keeps no scores"] += 1
    return job


def section(text, name):
    """Where the lines of a section of a cluster file begin and end."""
    head = f"[{name}]\n"
    begin = text.find(head)
    if begin < 0:
        sys.exit(f"accuracy.py: a cluster file without {head}")
    end = text.find("\n[", begin)
    return begin, len(text) if end < 0 else end


def changed(text, name, item, value):
    """A cluster file with another constant in a section, or one more."""
    begin, end = section(text, name)
    line = f"{item} = {value}"
    old = re.compile(rf"(?m)^{item} *=.*$")
    part = text[begin:end]
    part = old.sub(line, part) if old.search(part) else part.rstrip() + f"\n{line}\n"
    return text[:begin] + part + text[end:]


def whole_forward(answer):
    """The seconds of a step that runs all of forward again, as frameworks do: tbc leaves out what backward does not read, such as the last
    product of a block. Forward is a third of forward and backward; what the pipeline waits grows alike."""
    time = answer["time"]
    busy = time["compute"] + time["recompute"] + time["operands"]
    more = max(0.0, time["compute"] / 3 - time["recompute"])
    return answer["step_seconds"] + more * (1 + time["pipeline"] / busy)


class Clusters:
    """Presets, and presets with another network between nodes, as files."""

    def __init__(self, tbc, folder, changes=()):
        self.tbc, self.folder, self.known = tbc, Path(folder), {}
        self.changes = [re.fullmatch(r"([\w-]*):([\w.]+)\.(\w+)=(\S+)", change).groups() for change in changes]

    def of(self, row):
        preset = CLUSTERS.get(row["gpu"])
        if preset is None:
            raise Unsupported("GPU " + row["gpu"])
        gbit, per_node = row["inter_gbit_per_node"], integer(row["gpus_per_node"], 8)
        unfused = integer(row["hidden"]) // integer(row["heads"]) if row["attention"] == "unfused" else 0  # elements of a head
        key = (preset, gbit, per_node, unfused)
        if key not in self.known:
            text = subprocess.run([self.tbc, "cluster", preset], check=True, capture_output=True, text=True).stdout
            text = re.sub(r"(?m)^devices_per_node *=.*$", f"devices_per_node = {per_node}", text)
            if gbit:
                # The preset's figure is what is reached of its nominal rate: of another rate as much.
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


def predicted_gib(answer, row, taken_as):
    """The part of the predicted memory that a row measured, in GiB."""
    stages = [{line["name"]: line["bytes"] for line in stage["memory"]} for stage in answer["stages"]]
    # Bytes of weights, gradients and optimizer per parameter, where they are others than tbc's.
    held = [float(x) for x in row["state_bytes"].split("/")] if row["state_bytes"] else [2, 4, 12]
    if held != [2, 4, 12] and not row["mem_metric"].startswith("analytic"):  # whose sum is of 18 bytes, whatever they are
        taken_as[f"states of {row['state_bytes']} bytes for each parameter, in proportion to tbc's 2/4/12"] += 1
        for lines in stages:
            lines["gradients"] *= held[1] / 4
            for name in ("parameters", "master weights", "optimizer state"):
                lines[name] *= (held[0] + held[2]) / 14
    if row["mem_rank"] in ("0", "rank 0", "world rank 0") or "rank 0" in row["mem_rank"]:
        stages = stages[:1]
    component = row["mem_component"] or "total"
    outside = ["device context"]  # torch's figures are without it
    if "allocated" == row["mem_metric"]:
        outside.append("allocator margin")
    if "nvidia-smi" in row["mem_metric"]:
        outside = []

    def part(lines):
        if component == "total":
            return sum(lines.values()) - sum(lines.get(name, 0) for name in outside)
        names = {"states": STATES, "activations": ("saved residuals",), "activation_peak": PEAKS}.get(component)
        if names is None:
            raise Unsupported("memory part " + component)
        return sum(lines.get(name, 0) for name in names)

    return max(part(lines) for lines in stages) / GIB


def usable(path, words, sources):
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["usable_for"] in words]
    return [row for row in rows if not sources or row["source_group"] in sources]


def every(rows, limit):
    """At most `limit` rows of each source, evenly spaced."""
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


def report(what, results, worst, unit):
    """Prints the errors of {row, predicted, measured}; returns the macro-average."""
    by_source = defaultdict(list)
    for row, predicted, measured in results:
        by_source[row["source_group"]].append(predicted / measured - 1)
    lines = []
    for source, errors in sorted(by_source.items()):
        sizes = sorted(abs(e) for e in errors)
        lines.append([source, len(errors), percent(statistics.fmean(sizes)), percent(statistics.median(sizes)),
                      percent(sizes[int(0.9 * (len(sizes) - 1))]), f"{100 * statistics.fmean(errors):+.1f} %"])
    table(f"{what}: error per source", ["source", "rows", "mean", "median", "90 %", "bias"], lines)
    if not lines:
        return None
    macro = statistics.fmean(statistics.fmean(abs(e) for e in errors) for errors in by_source.values())
    everything = [e for errors in by_source.values() for e in errors]
    print(f"  macro-average {percent(macro)}, pooled {percent(statistics.fmean(abs(e) for e in everything))}")
    if unit == "GiB":
        under = sum(e < -0.02 for e in everything)
        print(f"  under-predicted by more than 2 %: {under} of {len(everything)} rows, {percent(under / len(everything))}")
    order = sorted(results, key=lambda r: -abs(r[1] / r[2] - 1))[:worst]
    table(f"{what}: worst rows", ["id", "predicted", "measured", "error"],
          [[row["id"], f"{p:.3g} {unit}", f"{m:.3g} {unit}", f"{100 * (p / m - 1):+.0f} %"] for row, p, m in order])
    return macro


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
                if not row[MEASURED[what]]:  # a run that ended out of memory, for one
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
        # A run and its memory row, and repeats, are one job; those of one model stand together.
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
    output = []
    for what, row, job in wanted:
        answer = jobs[job]
        if "error" in answer:
            refused[(row["source_group"], answer["error"]["message"].split("\n")[0][:100])] += 1
            continue
        try:
            if what == "time":
                predicted = whole_forward(answer) if row["recompute"] == "full" else answer["step_seconds"]
            else:
                predicted = predicted_gib(answer, row, taken_as)
        except Unsupported as why:
            refused[(row["source_group"], str(why))] += 1
            continue
        measured = float(row[MEASURED[what]])
        results[what].append((row, predicted, measured))
        output.append({"id": row["id"], "what": what, "predicted": predicted, "measured": measured, "fits": answer["fits"]})
    report("time", results["time"], options.worst, "s")
    report("memory", results["memory"], options.worst, "GiB")
    if taken_as:
        table("taken as something near it", ["what", "rows"], sorted(taken_as.items()))
    table("unsupported rows", ["source, reason", "rows"],
          [[f"{source}: {why}", count] for (source, why), count in sorted(refused.items())])
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in output))


if __name__ == "__main__":
    main()
