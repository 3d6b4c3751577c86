"""The fingerprint of a plan's decisions, by which a layout knows the decisions that it follows from.

The same text and hash as `decisionsFingerprint` of planner/plan/PlanWrite.cpp: FNV-1a, 64 bits, of
the decisions as canonical text.
"""

from __future__ import annotations

import json
from typing import Any

from tbc.errors import PlanError

_WIDTH = 100
_DECISIONS = (
    "model", "job", "mesh", "micro_batch", "accumulation", "schedule", "placement", "context", "stages", "strategies",
    "parameters", "recompute", "offload", "prefetch", "bucket_bytes", "gather_bytes",
    "sequence_order",
)  # fmt: skip


def check_fingerprint(content: dict[str, Any]) -> None:
    """Raises PlanError if decisions were edited after the layout was written."""
    if content["layout"].get("decisions") != decisions_fingerprint(content):
        raise PlanError(
            'decisions were edited after the key "layout" was written; tbc explain PLAN --derive FILE writes it again'
        )


def decisions_fingerprint(content: dict[str, Any]) -> str:
    """Returns 16 hexadecimal digits. A moved plan keeps its fingerprint."""
    decisions = {key: content[key] for key in _DECISIONS if key in content}
    decisions["model"] = {key: value for key, value in decisions["model"].items() if key != "path"}
    value = 0xCBF29CE484222325
    for byte in canonical_text(decisions).encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def canonical_text(content: dict[str, Any]) -> str:
    """Returns JSON in the form in which tbc writes plan.json."""
    return _text(content, 0, 0) + "\n"


def _scalar(value: Any) -> str:
    # Python writes an exponent from 1e16 on, nlohmann/json from 1e15 on. Example: 1.979e+15.
    if isinstance(value, float) and 1e15 <= abs(value) < 1e16:
        digits = repr(abs(value)).replace(".", "").rstrip("0")
        return ("-" if value < 0 else "") + digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + "e+15"
    return json.dumps(value, ensure_ascii=False)


def _one_line(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_one_line(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_one_line, value)) + "]"
    return _scalar(value)


def _text(value: Any, depth: int, used: int) -> str:
    line = _one_line(value)
    if not isinstance(value, dict | list) or len(line.encode()) < max(0, _WIDTH - used):
        return line
    indent = " " * (depth + 1)
    if isinstance(value, dict):
        keys = [f"{_scalar(key)}: " for key in sorted(value)]
        items = [value[key] for key in sorted(value)]
    else:
        keys, items = [""] * len(value), value
    lines = [indent + key + _text(item, depth + 1, len((indent + key).encode())) for key, item in zip(keys, items)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return first + "\n" + ",\n".join(lines) + "\n" + " " * depth + last
