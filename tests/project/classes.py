"""Checks that no class grows too many methods."""

import re

MOST = 25
ROOM = "planner/"
_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_OPERATOR = re.compile(r"\boperator\s*(\(\)|[^\s\w(]+)")
_ANGLES = re.compile(r"<[^<>;{}]*>")
_SCOPE = re.compile(r"\b(class|struct|union|enum|namespace)\b(?:\s+(?:class|struct))?\s*([\w:]*)[^;(]*$")
_NO_METHOD = ("using ", "typedef ", "friend ", "static_assert")


def classes(tree):
    """A class declares at most MOST methods in its header: constructors, static functions and
    accessors count, inherited ones and those of nested classes do not. Example: a class with 20
    public and 6 private methods has one too many.
    """
    complaints = []
    for path in tree.ending(".h"):
        if not path.startswith(ROOM):
            continue
        for name, count in methods(tree.text(path)).items():
            if count > MOST:
                complaints.append(f"{path}: {name} declares {count} methods, at most {MOST} are allowed; split it")
    return complaints


def methods(text):
    """Returns the number of methods of each class in the text of a header, by name."""
    text = _OPERATOR.sub("operator", _NOISE.sub("", text))
    while _ANGLES.search(text):
        text = _ANGLES.sub("", text)
    counts = {}
    _read(text, 0, None, counts)
    return counts


def _read(text, at, name, counts):
    """Reads the body of class `name` (None: of a namespace) from `at`, and returns the end of it."""
    statement = ""
    while at < len(text) and text[at] != "}":
        if text[at] == ";":
            _count(statement, name, counts)
            statement = ""
        elif text[at] == "{":
            scope = _SCOPE.search(statement)
            if scope and scope.group(1) != "enum":
                inner = None if scope.group(1) == "namespace" else scope.group(2)
                if inner is not None:
                    counts.setdefault(inner, 0)
                at = _read(text, at + 1, inner, counts)
                statement = "" if scope.group(1) == "namespace" else statement + "="
            elif statement.count("(") > statement.count(")"):  # a default argument
                at = _skip(text, at)
            elif statement.strip() == "" or statement.lstrip().startswith(","):
                at = _skip(text, at)  # after an initializer of a constructor
                statement = ""
            else:
                at = _skip(text, at)
                if _count(statement, name, counts):  # a definition ends without a semicolon
                    statement = ""
                else:
                    statement += "="
        else:
            statement += text[at]
        at += 1
    return at


def _skip(text, at):
    """Returns the position of the brace that closes the one at `at`."""
    depth = 0
    while at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1
    return at


def _count(statement, name, counts):
    """Counts `statement` of class `name` if it declares a method. Returns whether it does."""
    text = re.sub(r"\b(public|private|protected)\s*:(?!:)", "", statement).strip()
    before, found, _ = text.partition("(")
    is_method = bool(found) and "=" not in before and not text.startswith(_NO_METHOD)
    if is_method and name is not None:
        counts[name] += 1
    return is_method
