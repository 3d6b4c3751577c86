#!/usr/bin/env python3
"""Predicted beside measured step times of ten plans on this machine, of 2 and 4 processes.

    tests/bench/predicted_vs_measured.py --tbc build/bin/tbc [--steps 5] [--rounds 2] [--cluster FILE]

Calibrates this machine first, unless a cluster file is given. A GPT of 4 layers, width 256, is trained under each plan; all
plans run in turns, in each round once. Measured is the median over all steps but the first of every run, predicted what
plan.json says. Printed are the error of each, their mean, and how many of the 45 pairs are in the order predicted: pairs
that lie within 5 % of each other measured are left out and counted. More processes than cores share them, which calibration
measures as well (`--ranks`).
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

BATCH, SEQUENCE = 8, 128
PLANS = [
    (2, "dp=2", []),
    (2, "dp=2", ["--zero", "1"]),
    (2, "fsdp=2", []),
    (2, "tp=2", []),
    (2, "pp=2", ["--micro-batch", "2", "--schedule", "1f1b"]),
    (2, "dp=2", ["--micro-batch", "1"]),
    (4, "dp=4", []),
    (4, "dp=2,tp=2", []),
    (4, "pp=2,dp=2", ["--micro-batch", "1", "--schedule", "1f1b"]),
    (4, "fsdp=4", []),
]


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def prepare(tbc, folder, cluster):
    """Compiles all plans; the predicted seconds of each."""
    checked([tbc, "new", "gpt2", "--layers", "4", "--hidden", "256", "--ffn", "1024", "--heads", "4", "--vocab", "8192", "--seq",
             str(SEQUENCE), "-o", "model.onnx"], cwd=folder)
    predicted = []
    for number, (ranks, mesh, flags) in enumerate(PLANS):
        checked([tbc, "plan", "model.onnx", "--gpus", str(ranks), "--mesh", mesh, "--batch", str(BATCH), "--seq",
                 str(SEQUENCE), "--cluster", cluster, "--precision", "f32", "--recompute", "none", "-o",
                 f"plan{number}.json", *flags], cwd=folder)
        checked([tbc, "compile", f"plan{number}.json", "-o", f"program{number}"], cwd=folder)
        with open(os.path.join(folder, f"plan{number}.json"), encoding="utf-8") as file:
            predicted.append(json.load(file)["step_seconds"])
    return predicted


def measure(tbc, folder, steps, rounds):
    """The median seconds of a step under each plan."""
    seconds = [[] for _ in PLANS]
    for _ in range(rounds):
        for number in range(len(PLANS)):
            log = os.path.join(folder, "log.jsonl")
            checked([tbc, "run", f"program{number}", "--init-weights", "1", "--steps", str(1 + steps), "--log", log],
                    cwd=folder)
            with open(log, encoding="utf-8") as file:
                seconds[number] += [json.loads(line)["seconds"] for line in file][1:]
    return [statistics.median(of) for of in seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cluster", help="cluster file or preset (default: calibrate)")
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    with tempfile.TemporaryDirectory() as folder:
        cluster = options.cluster or os.path.join(folder, "here.toml")
        if os.path.exists(cluster):
            cluster = os.path.abspath(cluster)
        if not options.cluster:
            checked([tbc, "calibrate", "--ranks", "4", "-o", cluster])
        predicted = prepare(tbc, folder, cluster)
        measured = measure(tbc, folder, options.steps, options.rounds)
    print(f"{'plan':56} {'predicted':>10} {'measured':>10} {'error':>8}")
    errors = []
    for (ranks, mesh, flags), p, m in zip(PLANS, predicted, measured):
        errors.append(p / m - 1)
        print(f"{f'{ranks} processes, {mesh} ' + ' '.join(flags):56} {1e3 * p:7.1f} ms {1e3 * m:7.1f} ms {errors[-1]:+8.0%}")
    pairs = [(a, b) for a, b in itertools.combinations(range(len(PLANS)), 2)
             if abs(measured[a] - measured[b]) > 0.05 * max(measured[a], measured[b])]
    right = sum((predicted[a] < predicted[b]) == (measured[a] < measured[b]) for a, b in pairs)
    print(f"mean error {statistics.mean(map(abs, errors)):.0%}; {right} of {len(pairs)} pairs in the order predicted, "
          f"{len(PLANS) * (len(PLANS) - 1) // 2 - len(pairs)} within 5 % of each other")


if __name__ == "__main__":
    main()
