"""Checks that docs/design.md agrees with the code: rooms, ops, interfaces, exit codes."""

import re

from layers import LAYERS

DOCUMENT = "docs/design.md"
_NAME = re.compile(r"`([^`]+)`")


def design_names(tree):
    """The table of rooms is layers.py. The number of ops, the interfaces and the exit codes are
    those of the code.
    """
    text = tree.text(DOCUMENT)
    return _rooms(text) + _ops(text, tree) + _interfaces(text, tree) + _exit_codes(text, tree)


def _rooms(text):
    listed, room = {}, None
    for first, second in re.findall(r"(?m)^\| (`[\w/]+`|) ?\| (.*) \|$", text):
        room = first.strip("`") or room
        if room in LAYERS:
            listed.setdefault(room, set()).update(_NAME.findall(second))
    complaints = [f"{DOCUMENT}: has no row for the room {room}" for room in LAYERS if room not in listed]
    for room, uses in listed.items():
        uses &= set(LAYERS)
        for name in sorted(uses ^ LAYERS[room].uses):
            verb = "may not use" if name in uses else "may use"
            complaints.append(f"{DOCUMENT}: {room} {verb} {name} (tests/project/layers.py)")
    return complaints


def _ops(text, tree):
    definitions = [path for path in tree.ending(".td") if path.startswith("ir/")]
    count = sum(len(re.findall(r"(?m)^def Tbc_\w+Op\b", tree.text(path))) for path in definitions)
    match = re.search(r"has (\d+) ops", text)
    if match is None or int(match.group(1)) != count:
        return [f"{DOCUMENT}: says '{match.group(0) if match else ''}', the dialect has {count} ops"]
    return []


def _interfaces(text, tree):
    defined = set(re.findall(r"(?m)^def (\w+OpInterface)\b", tree.text("ir/TbcInterfaces.td")))
    named = set(re.findall(r"`(\w+OpInterface)`", text))
    return [f"{DOCUMENT}: {name} is {'named' if name in named else 'defined'} only" for name in sorted(defined ^ named)]


def _exit_codes(text, tree):
    codes = {0} | {int(number) for number in re.findall(r"\b[A-Z]\w* = (\d+),", tree.text("runtime/abi/Status.h"))}
    section = text.split("## 7.")[1].split("\n## ")[0]
    listed = {int(number) for number in re.findall(r"(?m)^\| (\d+) \|", section)}
    return [f"{DOCUMENT}: exit code {code} is in {'it' if code in listed else 'the code'} only"
            for code in sorted(codes ^ listed)]
