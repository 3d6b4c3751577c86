#!/usr/bin/env python3
"""Compares the cost model of collectives with measured ones, and fits its constants. Python standard
library only.

usage: collectives.py DATA [--clusters FOLDER] [--from BYTES] [--rows]

DATA holds collectives.csv: one measured collective per row. Prints, for each table (one source, GPU,
group and collective):
- preset: the error with the constants of the cluster presets,
- fitted: the error with constants fitted on the tables of its family,
- left out: the error with constants fitted on the other tables of its family.

error = |predicted - measured| / measured. A family is one GPU, within a node or between nodes. The
rate of a row's network cards is scaled as accuracy.py scales it. Example: a table of 16 H100 on two
nodes is left out if its constants come from the tables of 64 and 256 H100.

`seconds` is planner/cost/Cost.cpp again, in Python. A test holds the two together.
"""

import argparse
import copy
import csv
import math
import statistics
import tomllib
from collections import defaultdict
from pathlib import Path

# Family of a GPU and its preset.
GPUS = {"a100": "a100-80gb-sxm", "a100-80gb": "a100-80gb-sxm", "h100-80gb": "h100-sxm", "h200": "h100-sxm"}
# Nominal rate of a node's cards in the tables, as part of the preset's, where it differs: p4de has 400
# Gbit/s (Amazon EC2 documentation).
CARDS = {"p4de": 0.25}
KINDS = ("all_reduce", "all_gather", "reduce_scatter")
# The constants that a family fits.
WITHIN = ("start_seconds", "latency_seconds", "ring_step_seconds", "small_fraction", "bytes_per_second", "switch_bytes_per_second")
BETWEEN = ("start_seconds", "latency_seconds", "ring_step_seconds", "small_fraction", "bytes_per_second")


def levels(ranks):
    return math.ceil(math.log2(max(1, ranks)))


def bandwidth(level, ranks):
    groups = {int(size): rate for size, rate in level.get("group_bytes_per_second", {}).items()}
    fitting = [size for size in groups if size >= ranks]
    return groups[min(fitting)] if fitting else level["bytes_per_second"]


def within(level, kind, n, data):
    passes = 2 if kind == "all_reduce" else 1
    wire, rate, ring = passes * (n - 1) / n * data, bandwidth(level, n), level.get("ring_step_seconds", 0)
    best = passes * levels(n) * level["latency_seconds"] + wire / (rate * level.get("small_fraction", 1))
    if ring:
        best = min(best, passes * (n - 1) * ring + wire / rate)
    if kind == "all_reduce" and level.get("switch_bytes_per_second"):
        best = min(best, 2 * n * ring + data / level["switch_bytes_per_second"])
    return level["start_seconds"] + best


def between(intra, inter, kind, n, nodes, data):
    each, is_sum = n // nodes, kind == "all_reduce"
    passes = 2 if is_sum else 1
    cards = inter["bytes_per_second"] * each
    wire, rate = passes * (n - 1) / n * data, min(bandwidth(intra, each), cards)
    if is_sum:
        hops = levels(each) * intra["latency_seconds"] + levels(nodes) * inter["latency_seconds"]
    else:
        hops = (n - nodes) * intra["latency_seconds"] + (nodes - 1) * inter["latency_seconds"]
    best = passes * hops + wire / (rate * inter.get("small_fraction", 1))
    inner, ring = intra.get("ring_step_seconds", 0), inter.get("ring_step_seconds", 0)
    if ring:
        best = min(best, passes * (n - 1) * max(inner, ring) + wire / rate)
        if is_sum:
            inside = 2 * (n - 1) / n / bandwidth(intra, each)
            if intra.get("switch_bytes_per_second"):
                inside = min(inside, 1 / intra["switch_bytes_per_second"])
            depth = levels(nodes)
            best = min(best, 2 * ((each - 1) * inner + depth * ring) + data * max((2 * depth - 1) / cards, inside))
    return inter["start_seconds"] + best


def seconds(network, kind, n, nodes, data):
    """Returns the seconds of a collective of `data` bytes over n ranks on so many nodes, all full."""
    if nodes == 1:
        return within(network["intra_node"], kind, n, data)
    return between(network["intra_node"], network["inter_node"], kind, n, nodes, data)


def read(path, least):
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            n, nodes, data = int(row["ranks"]), int(row["nodes"]), float(row["message_bytes"])
            if row["collective"] not in KINDS or row["gpu"] not in GPUS or data < least or n % nodes:
                continue
            factor = (2 if row["collective"] == "all_reduce" else 1) * (n - 1) / n
            measured = float(row["time_us"]) * 1e-6 if row["time_us"] else data * factor / float(row["busbw_GBps"]) * 1e-9
            scale = next((part for word, part in CARDS.items() if word in row["gpu_as_printed"]), 1)
            rows.append({"family": (GPUS[row["gpu"]], "between" if nodes > 1 else "within"), "cards": scale, "data": data,
                         "table": (row["source"], row["gpu"], n, nodes, row["collective"]), "n": n, "nodes": nodes,
                         "kind": row["collective"], "measured": measured, "id": row["id"]})
    return rows


def error(network, row):
    """Returns predicted / measured - 1."""
    if row["nodes"] > 1 and row["cards"] != 1:
        network = {**network, "inter_node": {**network["inter_node"],
                                             "bytes_per_second": network["inter_node"]["bytes_per_second"] * row["cards"]}}
    return seconds(network, row["kind"], row["n"], row["nodes"], row["data"]) / row["measured"] - 1


def by_table(rows):
    tables = defaultdict(list)
    for row in rows:
        tables[row["table"]].append(row)
    return tables


def fit(network, rows):
    """Returns the network with constants of least error on `rows`, by changes of one constant at a
    time. A table of k rows weighs as sqrt(k) tables of one row.
    """
    network = copy.deepcopy(network)
    side = "inter_node" if rows[0]["nodes"] > 1 else "intra_node"
    level = network[side]
    level.pop("group_bytes_per_second", None)
    free = [key for key in (BETWEEN if side == "inter_node" else WITHIN) if level.get(key)]
    tables = by_table(rows).values()

    def loss():
        return sum(math.sqrt(len(table)) * statistics.fmean(abs(math.log(1 + error(network, row))) for row in table) for table in tables)

    best, step = loss(), dict.fromkeys(free, 0.3)
    while max(step.values()) > 1e-3:
        for key in free:
            for sign in (1, -1):
                old = level[key]
                level[key] = old * math.exp(sign * step[key])
                if key == "small_fraction":
                    level[key] = min(1.0, level[key])
                now = loss()
                if now < best - 1e-9:
                    best, step[key] = now, min(0.5, step[key] * 1.2)
                    break
                level[key] = old
            else:
                step[key] *= 0.6
    return network


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of collectives.csv")
    parser.add_argument("--clusters", type=Path, default=Path(__file__).resolve().parents[2] / "planner/clusters", help="folder of cluster files")
    parser.add_argument("--from", type=float, default=32768, dest="least", help="smallest message, bytes (default: 32 KiB)")
    parser.add_argument("--rows", action="store_true", help="print the error of every row with the presets")
    options = parser.parse_args()

    presets = {name: tomllib.loads((options.clusters / f"{name}.toml").read_text())["network"] for name in sorted(set(GPUS.values()))}
    rows = read(options.data / "collectives.csv", options.least)
    families = defaultdict(list)
    for row in rows:
        families[row["family"]].append(row)
    everything = defaultdict(list)
    for family, members in sorted(families.items()):
        preset = presets[family[0]]
        fitted = fit(preset, members)
        level = fitted["inter_node" if family[1] == "between" else "intra_node"]
        print(f"\n{family[0]}, {family[1]} nodes: {len(members)} rows; fitted: " + ", ".join(f"{key} {value:.3g}" for key, value in level.items()))
        for table, its in by_table(members).items():
            others = [row for row in members if row["table"] != table]
            errors = {"preset": [error(preset, row) for row in its], "fitted": [error(fitted, row) for row in its]}
            if others:
                left_out = fit(preset, others)
                errors["left out"] = [error(left_out, row) for row in its]
            source, gpu, n, nodes, kind = table
            print(f"  {gpu:10} {n:4} on {nodes:2} {kind:15} {len(its):3} rows " +
                  "  ".join(f"{name} {100 * statistics.median(abs(e) for e in of):5.1f} %" for name, of in errors.items()) + f"  {source[:56]}")
            if options.rows:
                print("    " + " ".join(f"{row['data']:.3g}:{100 * e:+.0f}%" for row, e in zip(its, errors["preset"])))
            for name, of in errors.items():
                everything[name] += of
    for name, errors in everything.items():
        print(f"\n{name}: {len(errors)} rows, median {100 * statistics.median(abs(e) for e in errors):.1f} %, "
              f"mean {100 * statistics.fmean(abs(e) for e in errors):.1f} %", end="")
    print()


if __name__ == "__main__":
    main()
