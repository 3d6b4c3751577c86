"""usage: structure.py [--list [N]] [ROOT]

Measures the shape of the code: lengths of functions and files, methods of classes, and includes.

Exit code 0: every value is within its limit; 1: one is above it. `--list` names the N longest
functions and files, the largest classes, and the files of each include circle (default 10).

A function is counted from its first line to its closing brace; a lambda is part of its function.
Example: of 200 functions, two with 60 lines are 1.0 % over 50.
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from checks import Tree
from classes import methods
from knots import components
from layers import LAYERS, layer_of

LONG_FUNCTION, LONG_FILE = 50, 600
# A value above its limit fails.
LIMITS = {
    "% of functions over 50 lines": 1.3,
    "files over 600 lines": 0,
    "files over 600 lines in tests": 5,
    "methods of the largest class": 70,
    "arrows between rooms that close a circle": 0,
    "files of the largest include circle": 5,
}

_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
_CLASS = re.compile(r"\b(class|struct|union)\s+(?:\w+\([^)]*\)\s*)?(\w+)[^()]*$")
_NAMESPACE = re.compile(r'\bnamespace\b[^()]*$|\bextern\s*$')
_NAME = re.compile(r"(~?[\w:]+|operator\s*\S+)\s*\(")
_INCLUDE = re.compile(r'(?m)^#include "([^"]+)\.h"')


def functions(text):
    """Returns (name, lines) of every function with a body in the text of a C++ file."""
    text = _NOISE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    found, scopes, begin = [], [], 0
    for at, char in enumerate(text):
        inside = "function" in scopes or "other" in scopes
        if char == "{":
            statement = text[begin:at]
            kind = "other" if inside else _kind(statement)
            if kind == "function":
                first = begin + len(statement) - len(statement.lstrip())
                found.append([_NAME.search(statement).group(1), first, None])
            scopes.append(kind)
            if kind in ("class", "namespace"):
                begin = at + 1
        elif char == "}" and scopes:
            kind = scopes.pop()
            if kind == "function":
                found[-1][2] = at
            if not ("function" in scopes or "other" in scopes) and kind != "other":
                begin = at + 1
        elif char == ";" and not inside:
            begin = at + 1
    return [(name, text.count("\n", first, last) + 1) for name, first, last in found if last is not None]


def _kind(statement):
    """Returns the kind of the scope that begins behind `statement`."""
    statement = re.sub(r"\btemplate\s*<[^{;]*?>\s*(?=\n|\w)", "", statement)
    if _NAMESPACE.search(statement):
        return "namespace"
    if _CLASS.search(statement) or re.search(r"\b(class|struct|union)\s+\w+[^()=]*$", statement):
        return "class"
    if "(" in statement and not re.search(r"(^|[^=!<>])=\s*$", statement) and _NAME.search(statement):
        # `: member{value}` of a constructor: the body is a later brace, which begins at `)` or `}`.
        return "function"
    return "other"


class Shape:
    """The measures of one tree."""

    def __init__(self, tree):
        self.functions, self.files, self.classes, self.units = [], [], [], {}
        sources = [path for path in tree.ending(".cpp", ".h")]
        for path in sources:
            text = tree.text(path)
            self.files.append((text.count("\n"), path))
            if path.startswith("tests/"):
                continue
            self.functions += [(lines, f"{path}: {name}") for name, lines in functions(text)]
            if path.endswith(".h"):
                self.classes += [(count, f"{path}: {name}") for name, count in methods(text).items()]
            self.units.setdefault(path.rsplit(".", 1)[0], set()).update(_INCLUDE.findall(text))
        for unit, used in self.units.items():
            self.units[unit] = {name for name in used if name in self.units and name != unit}
        self.files += [(tree.text(path).count("\n"), path) for path in tree.ending(".py", ".td")]
        for measured in (self.functions, self.files, self.classes):
            measured.sort(reverse=True)

    def circles(self):
        """Returns the units that include each other, the largest circle first."""
        parts = [sorted(part) for part in components(self.units) if len(part) > 1]
        return sorted(parts, key=len, reverse=True)

    def room_arrows(self):
        """Returns the includes between rooms (room, used room) that close a circle of rooms."""
        uses = defaultdict(set)
        for unit, used in self.units.items():
            room = layer_of(unit + ".h")
            uses[room].update(other for other in map(layer_of, (name + ".h" for name in used)) if other != room)
        for room in list(uses):
            for used in uses[room]:
                uses.setdefault(used, set())
        number = {room: index for index, part in enumerate(components(uses)) for room in part}
        return sorted((a, b) for a in uses for b in uses[a] if number[a] == number[b])

    def long_files(self, in_tests):
        return [(lines, path) for lines, path in self.files if lines > LONG_FILE and path.startswith("tests/") == in_tests]

    def values(self):
        lengths = [lines for lines, _ in self.functions]
        long = sum(1 for lines in lengths if lines > LONG_FUNCTION)
        return {
            "rooms": len(LAYERS),
            "functions": len(lengths),
            "median lines of a function": median(lengths or [0]),
            "functions over 50 lines": long,
            "% of functions over 50 lines": round(100 * long / max(len(lengths), 1), 2),
            "lines of the longest function": max(lengths, default=0),
            "files over 600 lines": len(self.long_files(False)),
            "files over 600 lines in tests": len(self.long_files(True)),
            "methods of the largest class": self.classes[0][0] if self.classes else 0,
            "arrows between rooms that close a circle": len(self.room_arrows()),
            "files of the largest include circle": max(map(len, self.circles()), default=1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="?", type=int, const=10, metavar="N")
    parser.add_argument("root", nargs="?", default=Path(__file__).parents[2])
    options = parser.parse_args()
    tree = Tree(options.root)
    if not tree.files:
        sys.exit(f"{tree.root} holds no files")
    shape = Shape(tree)
    failed = False
    for name, value in shape.values().items():
        limit = LIMITS.get(name)
        is_over = limit is not None and value > limit
        failed |= is_over
        print(f"{name:44} {value:>8}" + ("" if limit is None else f"  limit {limit}") + ("  OVER" if is_over else ""))
    if options.list:
        for title, rows in (("functions", shape.functions), ("files", shape.files), ("classes", shape.classes)):
            print(f"\n{title}:")
            print("\n".join(f"{count:6} {where}" for count, where in rows[: options.list]))
        print("\ninclude circles:")
        print("\n".join(", ".join(part) for part in shape.circles()))
        for room, used in shape.room_arrows():
            print(f"{room} includes {used}, which needs it")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
