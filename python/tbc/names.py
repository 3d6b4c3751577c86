"""Lists of names in plan.json (docs/plan.md, "The layout")."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RANGE = re.compile(r"(?<!\{)\{(\d+)\.\.(\d+)(?:\.\.(\d+))?\}")


def expand(patterns: Iterable[str]) -> list[str]:
    """Returns the names that patterns stand for.

    Example: ["h.{0..4..2}.fc", "a{{b"] gives ["h.0.fc", "h.2.fc", "h.4.fc", "a{b"].
    """
    names: list[str] = []
    for pattern in patterns:
        found = _RANGE.search(pattern)
        if not found:
            names.append(_plain(pattern))
            continue
        first, last, step = (int(part or 1) for part in found.groups())
        before, after = _plain(pattern[: found.start()]), _plain(pattern[found.end() :])
        names.extend(f"{before}{number}{after}" for number in range(first, last + 1, step))
    return names


def _plain(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")
