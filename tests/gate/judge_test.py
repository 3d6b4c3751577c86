"""Checks that gate.py finds unlisted failures and outdated entries."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import gate  # noqa: E402


def row(kernel, failed, result="768xf32"):
    return {"kernel": kernel, "result": result, "failed": failed}


def expect(found, wanted):
    if found != wanted:
        sys.exit(f"found {found}\nwanted {wanted}")


def main():
    known = [{"model": "m", "criterion": "parallelism", "reason": "one block", "kernels": ["reduce_sum -> 768xf32"]}]
    slow, fast = row("reduce_sum", ["parallelism"]), row("add", [])
    expect(gate.judge([slow, fast], known), [])
    expect(gate.judge([slow, row("transpose", ["coalescing"])], known), ["transpose -> 768xf32 fails on coalescing and is not in known.json"])
    expect(gate.judge([row("reduce_sum", ["parallelism"], "64xf32"), slow], known), ["reduce_sum -> 64xf32 fails on parallelism and is not in known.json"])
    expect(gate.judge([row("reduce_sum", ["parallelism", "instructions"])], known), ["reduce_sum -> 768xf32 fails on instructions and is not in known.json"])
    expect(gate.judge([row("reduce_sum", []), fast], known), ["reduce_sum -> 768xf32 no longer fails on parallelism: remove it from known.json"])
    expect(gate.judge([fast], known), ["reduce_sum -> 768xf32 no longer fails on parallelism: remove it from known.json"])
    expect(gate.judge([slow], known + known), ["reduce_sum -> 768xf32 is listed twice for parallelism"])
    expect(gate.judge([slow], [{**known[0], "reason": ""}]), ["an entry for parallelism has no reason"])
    expect(gate.name_of(row("+".join("abcdefghij"), [])), "a+b+c+... (10 ops) -> 768xf32")


if __name__ == "__main__":
    main()
