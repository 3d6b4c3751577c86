"""Runs a libFuzzer target for a while, from the kept corpus.

usage: run_fuzzer.py PROGRAM CORPUS WORK

Fuzzes for TBC_FUZZ_SECONDS (default 60), from TBC_FUZZ_SEED (default 1: the same build tries the
same inputs in the same order; 0: another seed each time). New inputs go to WORK/NAME-corpus, which
the next run starts from as well. An input that breaks a promise stays in WORK and is named.

`-merge=1` of libFuzzer extracts a small corpus from a large one. Example:
    PROGRAM -merge=1 tests/fuzz/corpus/NAME WORK/NAME-corpus
"""

import os
import pathlib
import subprocess
import sys


def main():
    program, corpus, work = sys.argv[1:]
    seconds = int(os.environ.get("TBC_FUZZ_SECONDS", "60"))
    if seconds <= 0:
        sys.exit("TBC_FUZZ_SECONDS must be a number of seconds")
    if not any(pathlib.Path(corpus).iterdir()):
        sys.exit(f"{corpus} is empty")
    seed = int(os.environ.get("TBC_FUZZ_SEED", "1"))
    name = pathlib.Path(program).name
    grown = pathlib.Path(work) / f"{name}-corpus"
    grown.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([
        program, str(grown), corpus, f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20", "-rss_limit_mb=3072",
        "-max_len=65536", f"-artifact_prefix={work}/{name}-", "-print_final_stats=1", "-verbosity=0",
    ], stderr=subprocess.PIPE, text=True)
    print("\n".join(line for line in done.stderr.splitlines() if "# Uses:" not in line)[-6000:])
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
