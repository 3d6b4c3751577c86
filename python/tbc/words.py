"""Keywords of Python as flags of the command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tbc.failures import error_of
from tbc.library import flag_table


def words(command: str, positionals: Iterable[Any], keywords: Mapping[str, Any]) -> list[str]:
    """Returns the words of a command line.

    A keyword is a flag with dashes as underscores; one that is a word of Python has an underscore
    behind it (`from_`). True sets a switch; None and False leave the flag out. A mapping is
    NAME=VALUE: joined by commas, or repeated where the flag is repeatable.

    Example: words("plan", ["m.onnx"], {"gpus": 8, "mesh": {"dp": 2, "tp": 4}}) is
    ["plan", "--gpus=8", "--mesh=dp=2,tp=4", "--", "m.onnx"].
    """
    flags = {flag["name"]: flag for flag in flag_table().get(command, {}).get("flags", ())}
    repeatable = {name for name, flag in flags.items() if flag["isList"]}
    line = [command]
    for keyword, value in keywords.items():
        name = keyword.rstrip("_").replace("_", "-")
        if value is True and flags.get(name, {}).get("kind", "switch") != "switch":
            # The next flag would be its value.
            raise error_of(2, f"{keyword}: True is for switches, and --{name} takes a value [TBC0202]")
        line += _flag(name, value, name in repeatable)
    texts = [_text(value) for value in positionals]
    return [*line, "--", *texts] if texts else line


def _flag(name: str, value: Any, is_repeatable: bool) -> list[str]:
    flag = "--" + name
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        value = [f"{key}={_text(part)}" for key, part in value.items()]
    if not isinstance(value, str | bytes | os.PathLike) and isinstance(value, Iterable):
        parts = [_text(part) for part in value]
        return [f"{flag}={part}" for part in parts] if is_repeatable else [f"{flag}={','.join(parts)}"]
    return [f"{flag}={_text(value)}"]


def _text(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        return os.fsdecode(value)
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)
