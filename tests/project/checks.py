"""Checks over the whole repository. Each function takes a Tree and returns complaints, one sentence
each.
"""

import re
import shutil
import subprocess
from pathlib import Path

from classes import classes
from clusters import cluster_sources, cluster_table
from design import design_names
from knots import knots
from labels import labels
from layers import COMMON_HEADERS, LAYERS, TOP, layer_of

CXX = (".cpp", ".h")
CODE = (*CXX, ".td", ".mlir", ".py", ".cmake")
MAX_LINES = 1000
# Files above these numbers of lines are listed as large.
WORTH_A_LOOK = {".cpp": 600, ".h": 180, ".td": 600, ".mlir": 150, ".py": 600}


class Skip(Exception):
    """Raised by a check that cannot run on this machine; the text gives the reason."""


class Tree:
    """The files of a checkout: tracked ones, and untracked ones that git does not ignore. Without
    git, all but build folders.
    """

    def __init__(self, root):
        self.root = Path(root)
        self.files = sorted(path for path in self._list() if (self.root / path).is_file())

    def _list(self):
        git = ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            listing = subprocess.run(git, capture_output=True, text=True, check=True).stdout
            return [path for path in listing.split("\0") if path]
        except (OSError, subprocess.CalledProcessError):
            everything = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
            return [path for path in everything if not re.match(r"(build[^/]*|\.git|\.venv)(/|$)", path)]

    def ending(self, *suffixes):
        return [path for path in self.files if path.endswith(suffixes)]

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def lines(self, path):
        """Yields (line number from 1, line)."""
        return enumerate(self.text(path).splitlines(), start=1)


# -- Layers --------------------------------------------------------------------------------------------

_INCLUDE = re.compile(r'\s*#\s*include\s+(["<])([^">]+)[">]')
# System headers of C and POSIX with slashes in their names.
_SYSTEM = {"sys", "linux", "netinet", "arpa", "bits"}


def includes(tree):
    """Every include stays within its layer's permissions (layers.py)."""
    complaints = []
    for path in tree.ending(*CXX):
        layer = layer_of(path)
        if layer is None:
            complaints.append(f"{path}: belongs to no layer; add its folder to tests/project/layers.py")
            continue
        for number, line in tree.lines(path):
            match = _INCLUDE.match(line)
            if match and layer not in TOP and (reason := _refuse(layer, match.group(2), match.group(1))):
                complaints.append(f"{path}:{number}: {layer} may not include {match.group(2)} ({reason})")
    return complaints


def _refuse(layer, header, bracket):
    """Returns why `layer` may not include `header`, or None if it may."""
    if header in COMMON_HEADERS:
        return None
    target = layer_of(header)
    if target is not None:
        if target == layer or target in LAYERS[layer].uses:
            return None
        return f"it may use {', '.join(sorted(LAYERS[layer].uses)) or 'no other layer'}"
    if bracket == '"' and "/" not in header:
        return "project headers are included from the root"
    first = header.split("/")[0]
    if "/" not in header or first in _SYSTEM or first in LAYERS[layer].outside:
        return None
    return "third-party headers of this layer: " + (", ".join(sorted(LAYERS[layer].outside)) or "none")


_LIBRARY = re.compile(r"tbc_library\(\s*([\w-]+)(.*?)\)", re.DOTALL)


def links(tree):
    """Every library links only libraries permitted to its layer, and pure layers link no MLIR."""
    libraries, complaints = {}, []
    for path in tree.ending("CMakeLists.txt"):
        text = "\n".join(line.split("#")[0] for line in tree.text(path).splitlines())
        for name, body in _LIBRARY.findall(text):
            libraries[name] = (path, layer_of(path), body.split())
    for name, (path, layer, words) in libraries.items():
        if layer is None or layer in TOP:
            continue
        if "MLIR" in words and "mlir" not in LAYERS[layer].outside:
            complaints.append(f"{path}: {name} is in {layer}, which needs no MLIR")
        for word in words:
            target = libraries.get(word, (None, layer, None))[1]
            if target != layer and target not in LAYERS[layer].uses:
                complaints.append(f"{path}: {name} is in {layer} and may not link {word} of {target}")
    return complaints


# -- Files ---------------------------------------------------------------------------------------------


def sizes(tree):
    """No code file has more than MAX_LINES lines. Long ones are printed."""
    complaints = []
    for path in tree.ending(*CODE):
        count = sum(1 for _ in tree.lines(path))
        if count > MAX_LINES:
            complaints.append(f"{path}: {count} lines, at most {MAX_LINES}; split it")
        elif count > WORTH_A_LOOK.get(Path(path).suffix, MAX_LINES):
            print(f"worth a look: {path} has {count} lines")
    return complaints


# Patterns that must not stay in a file, with the reason.
_FORBIDDEN = [
    (re.compile(r"(?<![\w.}/])/(root|home|work|Users)/"), "a path of one machine"),
    (re.compile(r"\.\./shared"), "a path outside the repository"),
    (re.compile(r"\b(pypi|pythonhosted|deb\.debian|registry\.npmjs)\.(org|net|com)\b"), "a package index by name"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "a mark of unfinished work"),
    (re.compile(r"\bissue #?\d", re.IGNORECASE), "a reference that only a tracker understands"),
]
_BINARY = (".onnx", ".npz", ".pb", ".png", ".data")
# These files contain the words.
_EXEMPT = ("tests/project/checks.py", "tests/project/checks_test.py")


def words(tree):
    """No file mentions one machine, one package index, or unfinished work."""
    complaints = []
    for path in tree.files:
        if path.endswith(_BINARY) or path in _EXEMPT:
            continue
        for number, line in tree.lines(path):
            complaints += [
                f"{path}:{number}: {reason}: {match.group(0)}"
                for pattern, reason in _FORBIDDEN
                if (match := pattern.search(line))
            ]
    return complaints


_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)")


def anchors(text):
    """Returns the anchors of a document's headings, as GitHub makes them. Example: "How does it
    work?" is #how-does-it-work.
    """
    headings = re.findall(r"(?m)^#+ +(.*)", re.sub(r"(?ms)^```.*?^```", "", text))
    return {"#" + re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def documents(tree):
    """Every relative link of a document leads to a file or folder, and to a heading if it names
    one.
    """
    complaints = []
    for path in tree.ending(".md"):
        for target, anchor in _LINK.findall(tree.text(path).replace("\n", " ")):
            if "://" in target:
                continue
            file = (tree.root / path).parent / target if target else tree.root / path
            if not file.exists():
                complaints.append(f"{path}: the link to {target} leads nowhere")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                complaints.append(f"{path}: {target or path} has no heading {anchor}")
    return complaints


# Rooms, for file names in documents. Capitals represent any name: ir/FAMILY.td.
_ROOMS = ("frontend", "ir", "passes", "planner", "codegen", "runtime", "tools", "tests", "models", "docs", ".ci")
_NAMED = re.compile(r"`((?:" + "|".join(re.escape(room) for room in _ROOMS) + r")/[\w./{},-]*)")


def named_files(tree):
    """Every file or folder of a room that a document names in backquotes exists. Example:
    `ir/Loss.{h,cpp}`, `tests/oracle`.
    """
    complaints = []
    for path in tree.ending(".md"):
        for number, line in tree.lines(path):
            for name in _NAMED.findall(line):
                stem, _, endings = name.partition("{")
                names = [stem + ending for ending in endings.rstrip("}").split(",")] if endings else [name]
                for each in names:
                    placeholder = re.search(r"\b([A-Z]{4,}|FooBar)\b", each)
                    if not placeholder and not (tree.root / each.rstrip("/.")).exists():
                        complaints.append(f"{path}:{number}: there is no {each}")
    return complaints


def formatting(tree):
    """Every C++ file is formatted by clang-format."""
    tool = shutil.which("clang-format-19")
    if tool is None:
        raise Skip("clang-format-19 is not installed (./bootstrap installs it)")
    files = tree.ending(*CXX)
    run = subprocess.run(
        [tool, "--dry-run", "--ferror-limit=1", *files], cwd=tree.root, capture_output=True, text=True
    )
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "-Wclang-format" in line})
    if run.returncode != 0 or (run.stderr and not wrong):
        return [f"clang-format failed: {run.stderr.strip()}"]
    return [f"{path}: run clang-format-19 -i {path}" for path in wrong]


def scripts(tree):
    """Every shell script and Python file parses."""
    complaints = []
    for path in tree.files:
        with open(tree.root / path, "rb") as file:
            start = file.read(32)
        if start.startswith(b"#!/usr/bin/env bash"):
            run = subprocess.run(["bash", "-n", path], cwd=tree.root, capture_output=True, text=True)
            complaints += [run.stderr.strip()] if run.returncode else []
        elif path.endswith(".py"):
            try:
                compile(tree.text(path), path, "exec")
            except SyntaxError as error:
                complaints.append(f"{path}:{error.lineno}: {error.msg}")
    return complaints


CHECKS = (includes, links, sizes, words, documents, named_files, design_names, knots, classes, labels, formatting,
          scripts, cluster_sources, cluster_table)
