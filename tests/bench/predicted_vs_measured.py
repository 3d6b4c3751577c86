#!/usr/bin/env python3
"""Compares predicted with measured step times of ten plans on this machine, of 2 and 4 processes.

    tests/bench/predicted_vs_measured.py --tbc build/bin/tbc [--steps 5] [--rounds 2] [--cluster FILE]

Calibrates this machine first, unless a cluster file is given. It does so with as many ranks as each
plan has, because ranks share the cores. Trains a GPT of 4 layers and width 256 under each plan; all
plans run in turns, once per round. Measured is the median over all steps but the first of every
run; predicted is the value in plan.json.

Also prints the CPU time of a step: that of all ranks divided by the cores available to them.
Example: 2 ranks with 1 s of CPU time each, on 2 cores, took 1 s. On a busy machine this is the time
of the step alone, except for the time in which every rank waits (a pipeline's bubble).

Prints the error of each plan, their mean, and how many of the 45 pairs are in the predicted order.
Pairs measured within 5 % of each other are left out and counted.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

import step_bench

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


def calibrate(tbc, folder):
    """Returns a cluster file for each number of processes."""
    clusters = {}
    for ranks in sorted({ranks for ranks, _, _ in PLANS}):
        clusters[ranks] = os.path.join(folder, f"{ranks}.toml")
        checked([tbc, "calibrate", "--ranks", str(ranks), "-o", clusters[ranks]])
    return clusters


def prepare(tbc, folder, clusters):
    """Compiles all plans and returns their predicted seconds."""
    checked([tbc, "new", "gpt2", "--layers", "4", "--hidden", "256", "--ffn", "1024", "--heads", "4", "--vocab", "8192", "--seq",
             str(SEQUENCE), "-o", "model.onnx"], cwd=folder)
    predicted = []
    for number, (ranks, mesh, flags) in enumerate(PLANS):
        checked([tbc, "plan", "model.onnx", "--gpus", str(ranks), "--mesh", mesh, "--batch", str(BATCH), "--seq",
                 str(SEQUENCE), "--cluster", clusters[ranks], "--precision", "f32", "--recompute", "none", "-o",
                 f"plan{number}.json", *flags], cwd=folder)
        checked([tbc, "compile", f"plan{number}.json", "-o", f"program{number}"], cwd=folder)
        with open(os.path.join(folder, f"plan{number}.json"), encoding="utf-8") as file:
            predicted.append(json.load(file)["step_seconds"])
    return predicted


def run(tbc, folder, number, steps):
    """Returns wall seconds, and CPU seconds of all ranks, of each step but the first."""
    log = os.path.join(folder, "log.jsonl")
    command = [tbc, "run", f"program{number}", "--init-weights", "1", "--steps", str(1 + steps), "--log", log]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        cpu = [step_bench.cpu_seconds(job.pid) for line in job.stdout if line.startswith("step ")]
        errors = job.stderr.read()
    if job.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{errors}")
    with open(log, encoding="utf-8") as file:
        seconds = [json.loads(line)["seconds"] for line in file]
    return seconds[1:], [(cpu[-1] - cpu[0]) / steps]


def measure(tbc, folder, steps, rounds):
    """Returns the median seconds of a step under each plan, by wall time and by CPU time."""
    cores = len(os.sched_getaffinity(0))
    seconds, shares = [[] for _ in PLANS], [[] for _ in PLANS]
    for _ in range(rounds):
        for number, (ranks, _, _) in enumerate(PLANS):
            by_clock, cpu = run(tbc, folder, number, steps)
            seconds[number] += by_clock
            shares[number] += [total / min(ranks, cores) for total in cpu]
    return [[statistics.median(of) for of in times] for times in (seconds, shares)]


def verdict(predicted, measured):
    """Returns the mean error, and the number of pairs in the predicted order."""
    errors = [abs(p / m - 1) for p, m in zip(predicted, measured)]
    pairs = [(a, b) for a, b in itertools.combinations(range(len(PLANS)), 2)
             if abs(measured[a] - measured[b]) > 0.05 * max(measured[a], measured[b])]
    right = sum((predicted[a] < predicted[b]) == (measured[a] < measured[b]) for a, b in pairs)
    return (f"mean error {statistics.mean(errors):.0%}; {right} of {len(pairs)} pairs in the order predicted, "
            f"{len(PLANS) * (len(PLANS) - 1) // 2 - len(pairs)} within 5 % of each other")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cluster", help="cluster file or preset (default: calibrate)")
    options = parser.parse_args()
    tbc = os.path.abspath(options.tbc)
    with tempfile.TemporaryDirectory() as folder:
        clusters = {ranks: os.path.abspath(options.cluster) if os.path.exists(options.cluster) else options.cluster
                    for ranks, _, _ in PLANS} if options.cluster else calibrate(tbc, folder)
        predicted = prepare(tbc, folder, clusters)
        measured, shares = measure(tbc, folder, options.steps, options.rounds)
    print(f"{'plan':56} {'predicted':>10} {'by clock':>10} {'error':>8} {'of cores':>10} {'error':>8}")
    for (ranks, mesh, flags), p, m, s in zip(PLANS, predicted, measured, shares):
        print(f"{f'{ranks} processes, {mesh} ' + ' '.join(flags):56} {1e3 * p:7.1f} ms {1e3 * m:7.1f} ms {p / m - 1:+8.0%}"
              f" {1e3 * s:7.1f} ms {p / s - 1:+8.0%}")
    print(f"by clock: {verdict(predicted, measured)}")
    print(f"of cores: {verdict(predicted, shares)}")


if __name__ == "__main__":
    main()
