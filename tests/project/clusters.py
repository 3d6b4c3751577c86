"""Checks of the cluster presets: every number has its source, and docs/clusters.md agrees with the
files.
"""

import re
from pathlib import Path

FOLDER = "planner/clusters/"
DOCUMENT = "docs/clusters.md"

_NUMBER = re.compile(r"([\w-]+)\s*=\s*[-+]?[\d.]")
_HEADER = re.compile(r"\[([\w.-]+)\]")
# The forms of a source: a maker's document, a paper, a repository with commit or thread, or a
# statement that the number is assumed or measured.
_SOURCE = re.compile(
    r"data sheet|white paper|documentation|arXiv|by the standard|\bassumed?\b|\bmeasured\b"
    r"|[\w.-]+/[\w.-]+(#\d+| [0-9a-f]{7,40}\b)",
    re.IGNORECASE,
)
_SAME = re.compile(r"\bsame (table|fit|folder|data sheet|paper|AWS table)", re.IGNORECASE)
_PRESET = re.compile(r"\b(?:as for|see) ([a-z][a-z0-9-]*\d[a-z0-9-]*)", re.IGNORECASE)


def presets(tree):
    """Returns the paths of all presets by name, sorted."""
    return {Path(path).stem: path for path in tree.files if path.startswith(FOLDER) and path.endswith(".toml")}


def cluster_sources(tree):
    """Every number of a preset has a comment with its source above it.

    A comment covers the lines below it up to the next comment or empty line. "As for NAME" and "see
    NAME" refer to another preset, "same table" to an earlier source of the file.
    """
    names = presets(tree)
    complaints = [] if names else [f"{FOLDER} holds no preset"]
    for name, path in names.items():
        comment, cited, fresh = "", False, True
        for number, line in tree.lines(path):
            text = line.strip()
            if text.startswith("#"):
                comment, fresh = (text[1:] if fresh else comment + text[1:]), False
                continue
            fresh = True
            if not text:
                comment = ""
            elif match := _NUMBER.match(text):
                reason = _why_not(comment, cited, name, names)
                if reason:
                    complaints.append(f"{path}:{number}: {match.group(1)} {reason}")
                cited = cited or bool(_SOURCE.search(comment))
    return complaints


def _why_not(comment, cited, name, names):
    """Returns why `comment` is not the source of a number of preset `name`, or None if it is."""
    if not comment.strip():
        return "has no comment above it"
    others = _PRESET.findall(comment)
    for other in others:
        if other == name or other not in names:
            return f"is as for {other}, which is no other preset"
    if others or _SOURCE.search(comment) or (cited and _SAME.search(comment)):
        return None
    return "has a comment without a source: name a data sheet, paper, repository and commit, or say assumed"


def cluster_table(tree):
    """The table of docs/clusters.md has one row per preset with the numbers of its file."""
    names = presets(tree)
    found = {}
    for number, line in tree.lines(DOCUMENT):
        match = re.match(r"\| `([\w-]+)` \|", line)
        if match and match.group(1) in names | found:
            found[match.group(1)] = (number, line)
    complaints = []
    for name, path in names.items():
        row = table_row(name, values(tree.text(path)))
        if name not in found:
            complaints.append(f"{DOCUMENT}: has no row for {name}: {row}")
        elif found[name][1] != row:
            complaints.append(f"{DOCUMENT}:{found[name][0]}: differs from {path}, which makes it: {row}")
    order = sorted(found, key=lambda name: found[name][0])
    if order != sorted(order):
        complaints.append(f"{DOCUMENT}: the rows are not sorted by name")
    return complaints


def values(text):
    """Returns the numbers of a preset by dotted key."""
    section, result = "", {}
    for line in text.splitlines():
        if header := _HEADER.match(line):
            section = header.group(1) + "."
        elif _NUMBER.match(line):
            key, value = line.split("=", 1)
            result[section + key.strip()] = float(value.split("#")[0].replace("_", ""))
    return result


def table_row(name, value):
    cells = [
        f"`{name}`",
        f"{value['devices_per_node']:.0f}",
        f"{value['device.memory_bytes'] / 2**30:.1f}",
        f"{value['device.peak_flops_per_second.bf16'] / 1e12:.0f}",
        f"{value['device.memory_bytes_per_second'] / 1e9:.0f}",
        f"{value['network.intra_node.bytes_per_second'] / 1e9:.1f}",
        f"{value['network.inter_node.bytes_per_second'] / 1e9:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"
