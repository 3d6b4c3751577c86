"""usage: profile_test.py BUILD_DIR

Profiles two ranks on emulated GPUs, whose time is that of the events around each kernel. The profile must hold what the
same plan does on CPUs, each block must enclose its instructions, and -v must count the same work.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(command, folder, **environment):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stderr


def counts(events, rank):
    """How often a rank communicates, by block and kind."""
    return collections.Counter((event["args"]["block"], event["args"]["op"]) for event in events
                               if event["pid"] == rank and event["cat"] == "communication")


def events_of(path):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def main():
    build = Path(sys.argv[1]).resolve()
    tbc = build / "bin" / "tbc"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([tbc, "plan", ROOT / "models" / "tiny-gpt2.onnx", "--gpus", 2, "--mesh", "fsdp=2", "--cluster", "h100-sxm",
             "--batch", 4, "--seq", 8, "-o", "plan.json"], folder)
        emulated = {"LD_LIBRARY_PATH": str(build / "emulated-gpu"), "TBC_EMULATED_GPUS": "2"}
        run([tbc, "compile", "plan.json", "--target", "cuda", "-o", "program"], folder)
        said = run([tbc, "run", "program", "--nproc", 2, "--init-weights", 1, "--steps", 3, "-v", "--profile", "trace.json",
                    "--checkpoint", "saved"], folder, **emulated)
        # A run that is at its end has no step to time, and is no error.
        run([tbc, "run", "program", "--nproc", 2, "--steps", 3, "-v", "--checkpoint", "saved", "--resume"], folder, **emulated)
        run([tbc, "compile", "plan.json", "--target", "cpu", "--no-kernels", "-o", "on-cpus"], folder)
        run([tbc, "run", "on-cpus", "--nproc", 2, "--init-weights", 1, "--steps", 2, "--profile", "cpus.json"], folder)
        events, on_cpus = events_of(folder / "trace.json"), events_of(folder / "cpus.json")

    table = {}
    for line in said.splitlines():
        if found := re.fullmatch(r"  (\S.*?) +(\d+) x +([\d.]+) ms +[\d.]+ %", line):
            table[found[1]] = int(found[2])
    assert "kernels of rank 0 took" in said and len(table) > 10, said

    for rank in (0, 1):
        mine = [event for event in events if event["pid"] == rank]
        blocks = [event for event in mine if event["tid"] == 0]
        work = [event for event in mine if event["tid"] != 0]
        assert [block["name"] for block in blocks] == ["forward", "backward", "update"], blocks
        for event in work:
            block = next(block for block in blocks if block["name"] == event["args"]["block"])
            # Times are in microseconds, of which doubles of this size hold tenths.
            assert block["ts"] <= event["ts"] + 1, (block, event)
            assert event["ts"] + event["dur"] <= block["ts"] + block["dur"] + 1, (block, event)
        assert counts(events, rank) == counts(on_cpus, rank), (counts(events, rank), counts(on_cpus, rank))
    # What a library executes with an earlier instruction has an event without work.
    gathers = sum(count for (_, kind), count in counts(events, 0).items() if kind == "all_gather")
    assert gathers > 0 and table["all_gather"] == gathers, table
    assert sum(table.values()) <= sum(event["pid"] == 0 and event["tid"] != 0 for event in events), table


if __name__ == "__main__":
    main()
