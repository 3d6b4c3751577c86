"""usage: train_text.py --tbc PATH [--model ONNX | --layers N --hidden N --heads N] [--steps N] [--batch N] [--seq N]
                    [--mesh MESH] [--lr RATE] [--seed N] [--bigrams]

Trains a language model on bytes of English text (the licences of Debian's base-files) from random
weights, in two processes. Kills a rank at a step drawn from a seed, resumes, and compares the loss
curve with an uninterrupted run's: they must be equal to the last bit. The loss must fall below the
entropy of the text's bytes; with --bigrams, below the entropy of a byte given the one before it, a
goal for a character-level model of some layers. Without --mesh the planner chooses.
"""

import argparse
import array
import collections
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def entropies(text):
    """Returns the entropy of a byte, and of a byte given the one before it, in nats."""
    single = collections.Counter(text)
    pairs = collections.Counter(zip(text, text[1:]))
    total = len(text)
    first = -sum(n / total * math.log(n / total) for n in single.values())
    both = -sum(n / (total - 1) * math.log(n / (total - 1)) for n in pairs.values())
    return first, both - first


def ranks_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def losses(log):
    return [(line["step"], line["loss"]) for line in map(json.loads, log.read_text().splitlines())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tbc", required=True)
    parser.add_argument("--model")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=32)
    parser.add_argument("--mesh")
    parser.add_argument("--lr", default="0.01")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bigrams", action="store_true")
    options = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="tbc-text-"))
    licences = sorted(path for path in Path("/usr/share/common-licenses").iterdir() if not path.is_symlink())
    text = b"".join(path.read_bytes() for path in licences)
    if len(text) < 50000:
        print("skipped: this system has no texts in /usr/share/common-licenses")
        return 77
    (folder / "tokens.bin").write_bytes(array.array("H", list(text)).tobytes())
    single, bigram = entropies(text)

    def tbc(*arguments):
        return [Path(options.tbc).resolve(), *map(str, arguments)]

    def call(*arguments):
        subprocess.run(tbc(*arguments), cwd=folder, check=True, stdout=subprocess.DEVNULL)

    model = Path(options.model or folder / "gpt.onnx").resolve()
    if not options.model:
        call("new", "gpt2", "--layers", options.layers, "--hidden", options.hidden, "--heads", options.heads, "--ffn",
             4 * options.hidden, "--vocab", 256, "--seq", options.seq, "-o", model)  # fmt: skip
    mesh = ["--mesh", options.mesh] if options.mesh else []
    call("plan", model, "--gpus", 2, "--cluster", "cpu-local", *mesh, "--batch", options.batch, "--seq", options.seq,
         "--precision", "f32", "-o", "plan.json")  # fmt: skip
    call("compile", "plan.json", "-o", "program")
    run = ["run", "program", "--data", "tokens.bin", "--steps", options.steps, "--init-weights", options.seed,
           "--lr", options.lr, "--lr-schedule", "cosine", "--warmup-steps", options.steps // 10]  # fmt: skip

    begin = time.monotonic()
    call(*run, "--log", "whole.jsonl")
    seconds = time.monotonic() - begin
    whole = losses(folder / "whole.jsonl")

    kill_after = random.Random(options.seed).randrange(options.steps // 4, 3 * options.steps // 4)
    broken = [*run, "--log", "broken.jsonl", "--checkpoint", "saved", "--every", max(1, options.steps // 8),
              "--async-checkpoint"]  # fmt: skip
    process = subprocess.Popen(tbc(*broken), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        if line.startswith(f"step {kill_after}/"):
            os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
            break
    process.stdout.read()
    code = process.wait()
    call(*broken, "--resume")
    resumed = losses(folder / "broken.jsonl")

    last = sum(loss for _, loss in whole[-max(1, len(whole) // 10) :]) / max(1, len(whole) // 10)
    bound = bigram if options.bigrams else single
    print(f"{len(text)} bytes; entropy of a byte {single:.3f}, given the one before {bigram:.3f} nats")
    print(f"loss {whole[0][1]:.3f} -> {last:.3f} in {len(whole)} steps, {seconds:.1f} s")
    print(f"killed after step {kill_after} (code {code}); resumed curve equal: {resumed == whole}")
    return 0 if last < bound and resumed == whole and code == 6 else 1


if __name__ == "__main__":
    sys.exit(main())
