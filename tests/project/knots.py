"""Checks that few units include each other in a circle."""

import re

MOST = 5
_INCLUDE = re.compile(r'(?m)^#include "([^"]+)\.h"')


def knots(tree):
    """A unit is a header with its source. Units that reach each other by their includes are a knot:
    one cannot be read, tested or moved without the others. Example: A.cpp includes B.h, and B.cpp
    includes A.h.
    """
    paths = [path for path in tree.ending(".h", ".cpp") if not path.startswith("tests/")]
    units = {path.rsplit(".", 1)[0] for path in paths}
    uses = {unit: set() for unit in units}
    for path in paths:
        unit = path.rsplit(".", 1)[0]
        uses[unit] |= {name for name in _INCLUDE.findall(tree.text(path)) if name in units and name != unit}
    return [
        f"{knot[0]}.h: {len(knot)} units include each other, at most {MOST} may: {', '.join(knot)}"
        for knot in sorted(sorted(part) for part in components(uses))
        if len(knot) > MOST
    ]


def components(uses):
    """Returns the strongly connected components. Source: Tarjan, Depth-first search and linear graph
    algorithms, 1972, without recursion.
    """
    number, lowest, path, on_path, found = {}, {}, [], set(), []
    for start in sorted(uses):
        work = [] if start in number else [(start, None)]
        while work:
            unit, rest = work.pop()
            if rest is None:
                number[unit] = lowest[unit] = len(number)
                path.append(unit)
                on_path.add(unit)
                rest = iter(sorted(uses[unit]))
            for used in rest:
                if used not in number:
                    work += [(unit, rest), (used, None)]
                    break
                if used in on_path:
                    lowest[unit] = min(lowest[unit], number[used])
            else:
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[unit])
                if lowest[unit] == number[unit]:
                    part = path[path.index(unit) :]
                    del path[path.index(unit) :]
                    on_path -= set(part)
                    found.append(part)
    return found
