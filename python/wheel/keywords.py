#!/usr/bin/env python3
"""Writes python/tbc/keywords.py, the types of the keywords, from the flags of libtbc.so.

usage: TBC_LIBRARY=build/wheel/tbc/lib/libtbc.so python/wheel/keywords.py [--check]
"""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "tbc"
sys.path.insert(0, str(PACKAGE.parent))

from tbc.library import flag_table  # noqa: E402

COMMANDS = ("check", "judge", "new", "plan", "size")
# Flags that a function of its own gives, or that change the form of the answer.
LEFT_OUT = {"json", "emit", "full", "job"}
TYPES = {"switch": "bool", "integer": "int", "number": "float", "text": "str"}
HEADER = '''"""Types of the keywords of tbc.plan and its like: the flags of the commands.

Written by python/wheel/keywords.py from the flags themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict, Union

if TYPE_CHECKING:
    from tbc.cluster import Cluster

Text = Union[str, "os.PathLike[str]"]
Pairs = Union[str, Mapping[str, object]]
Texts = Union[str, Iterable[str], Mapping[str, object]]
'''


def type_of(flag: dict) -> str:
    if flag["name"] == "cluster":
        return 'Union[Text, "Cluster"]'
    if flag["name"] == "mesh":
        return "Pairs"
    if flag["kind"] == "text":
        return "Texts" if flag["isList"] else "Text"
    return TYPES[flag["kind"]]


def text() -> str:
    lines = [HEADER]
    for command in COMMANDS:
        lines.append(f"\nclass {command.capitalize()}Keywords(TypedDict, total=False):\n"
                     f'    """Flags of `tbc {command}`."""\n')  # fmt: skip
        for flag in flag_table()[command]["flags"]:
            name = flag["name"].replace("-", "_")
            if flag["name"] in LEFT_OUT or (command == "new" and name == "output"):
                continue
            name += "_" if keyword.iskeyword(name) else ""
            help_lines = flag["help"].replace("\n", " ")
            comment = f"    # {help_lines}"
            while len(comment) > 98:
                cut = comment.rfind(" ", 0, 98)
                lines.append(comment[:cut])
                comment = "    # " + comment[cut + 1 :]
            lines += [comment, f"    {name}: {type_of(flag)}"]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    file = PACKAGE / "keywords.py"
    if "--check" in sys.argv[1:]:
        if file.read_text() != text():
            sys.exit(f"{file} is not what the flags say; {Path(__file__).name} writes it")
        return
    file.write_text(text())


if __name__ == "__main__":
    main()
