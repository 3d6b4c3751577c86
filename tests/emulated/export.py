"""Writes the C functions of a library that stands for one of NVIDIA's: each calls the function of a table.

usage: export.py HEADER LISTS TABLE INCLUDES OUTPUT

HEADER has macros LISTS (comma-separated) of the form `X(name, symbol, parameters ...)`, as runtime/cuda has them.
TABLE is an expression of the table of functions; INCLUDES a header that declares it. Example: from
`X(memFree, cuMemFree_v2, DeviceAddress address)` comes
`extern "C" DriverCode cuMemFree_v2(DeviceAddress address) { return TABLE.memFree(address); }`.
"""

import re
import sys
from pathlib import Path


def functions(text, name):
    """Yields (name, symbol, parameters) of each function in a list."""
    begin = text.index(f"#define {name}(X)")
    lines = []
    for line in text[begin:].splitlines():
        lines.append(line.rstrip("\\ "))
        if not line.endswith("\\"):
            break
    body = " ".join(lines[1:])
    for match in re.finditer(r"X\(([^()]*)\)", body):
        yield tuple(part.strip() for part in match.group(1).split(",", 2))


def export(function, result, table):
    """Returns the text of one function."""
    name, symbol, *rest = function
    parameters = rest[0] if rest else ""
    named = [parameter.strip() for parameter in parameters.split(",") if parameter.strip()]
    arguments = ", ".join(re.search(r"(\w+)$", parameter).group(1) for parameter in named)
    return f"{result} {symbol}({', '.join(named)}) {{ return {table}.{name}({arguments}); }}"


def main():
    header, lists, table, include, output = sys.argv[1:]
    text = Path(header).read_text(encoding="utf-8")
    result = {"Driver": "DriverCode", "Nccl": "NcclCode", "CublasLt": "CublasCode", "Cudnn": "CudnnCode"}
    lines = [f'#include "{include}"', "using namespace tbc::cuda;", 'extern "C" {']
    for name in lists.split(","):
        for function in functions(text, name):
            lines.append(export(function, result[Path(header).stem], table))
    lines.append("}")
    Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
