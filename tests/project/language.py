"""usage: language.py [--list [N]] [--update] [ROOT]

Measures how comments and documents read, and compares with the ratchet in language.json.

Exit code 0: every ratio is at least as good as the ratchet; 1: one is worse. `--update` writes
today's values into the ratchet. `--list` shows the N files (default 10) with most counted words.

A ratio is of all comments together, or of all documents together. Example: 12 uses of "what" in
1,500 words of comments are 8.0 per 1,000. A value may exceed the ratchet by SLACK of itself, so one
honest sentence never fails the check.
"""

import argparse
import io
import json
import re
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from checks import Tree

# Made from comments of the code, or from the texts of flags, which are measured where they stand.
GENERATED = {"docs/ir.md", "python/tbc/keywords.py"}
RATCHET = Path(__file__).with_name("language.json")
SLACK = 0.02
MAX_COLUMNS = 100

# Counted per 1,000 words.
WORDS = {
    "what": r"what",
    "which that those whose": r"which|that|those|whose",
    "none nothing nobody whoever whatever": r"none|nothing|nobody|whoever|whatever",
    "of which of what of those": r"of (?:which|what|those)",
    "for example": r"e\.g\.|for example|examples?:|for instance",
}
_PATTERNS = {name: re.compile(rf"(?<![\w`-])(?:{words})(?![\w`])", re.IGNORECASE) for name, words in WORDS.items()}
OPENINGS = "sentences that begin with Of What Where Who That"
_OPENING = re.compile(r"(?:Of|What|Where|Who|That)\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\n+")

HEADINGS, CODE_BLOCKS = "headings", "code blocks"
PICTURES, LONG_LINES = "pictures", f"% of lines over {MAX_COLUMNS} columns"
# For these more is better, for all others less.
MORE_IS_BETTER = {"for example", HEADINGS, CODE_BLOCKS, PICTURES}

AIMS = {
    "comments": {
        "what": 1,
        "which that those whose": 17,
        "none nothing nobody whoever whatever": 1,
        "of which of what of those": 0.5,
        "for example": 1.5,
        OPENINGS: 0.5,
    },
    "docs": {
        "what": 1,
        "which that those whose": 17,
        "none nothing nobody whoever whatever": 1,
        "of which of what of those": 0.5,
        "for example": 1.5,
        OPENINGS: 0.5,
        LONG_LINES: 0,
        HEADINGS: 6,
        CODE_BLOCKS: 3,
        PICTURES: 8,
    },
}


@dataclass
class Count:
    """Counts of one file, or the sum over several."""

    words: int = 0
    sentences: int = 0
    lines: int = 0
    found: Counter = field(default_factory=Counter)

    def __add__(self, other):
        return Count(
            self.words + other.words, self.sentences + other.sentences, self.lines + other.lines, self.found + other.found
        )

    def ratio(self, name):
        """Returns the value that the ratchet holds for `name`, rounded to two digits."""
        count = self.found[name]
        if name == PICTURES:
            return count
        if name == OPENINGS:
            return round(100 * count / max(self.sentences, 1), 2)
        if name == LONG_LINES:
            return round(100 * count / max(self.lines, 1), 2)
        return round(1000 * count / max(self.words, 1), 2)


def count_prose(text):
    """Counts words and sentences of plain text. A name in backquotes is one word and is never a
    counted one.
    """
    text = re.sub(r"`[^`\n]*`", "`name`", text)
    sentences = [sentence.strip(" *-#>|\"'") for sentence in _SENTENCE.split(text)]
    sentences = [sentence for sentence in sentences if re.search(r"\w", sentence)]
    found = Counter({name: len(pattern.findall(text)) for name, pattern in _PATTERNS.items()})
    found[OPENINGS] = sum(1 for sentence in sentences if _OPENING.match(sentence))
    return Count(words=len(re.findall(r"[\w`][\w`'’-]*", text)), sentences=len(sentences), found=found)


# -- Comments ------------------------------------------------------------------------------------------

# A comment, or a string or character literal (skipped, so that "//" in it is no comment).
_CXX_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TD_TEXT = re.compile(r'(?:description|summary)\s*=\s*(?:\[\{(.*?)\}\]|"((?:\\.|[^"\\])*)")', re.DOTALL)


def cxx_comments(text):
    """Returns the comments of C++ or TableGen code. Joins the lines of one comment; an empty line
    separates comments.
    """
    parts, end = [], -1
    for match in _CXX_COMMENT.finditer(text):
        comment = match.group(0)
        if comment[0] in "\"'":
            continue
        body = re.sub(r"^(//[/!]?<?|/\*+)|\*/$", "", comment).strip()
        if re.fullmatch(r"[=\-*/ ]*|.*NOLINT.*|namespace.*|===-.*-===", body):
            continue
        follows = end >= 0 and text[end : match.start()].strip() == "" and text.count("\n", end, match.start()) == 1
        parts.append((" " if follows else "\n\n") + body)
        end = match.end()
    return "".join(parts)


def python_comments(text):
    """Returns comments and docstrings of Python code."""
    parts, last_line, previous = [], -2, None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            parts.append((" " if token.start[0] == last_line + 1 else "\n\n") + token.string.lstrip("# "))
            last_line = token.end[0]
        elif token.type == tokenize.STRING and previous in (None, tokenize.INDENT, tokenize.NEWLINE):
            parts.append("\n\n" + token.string.strip("rbf\"'"))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            previous = token.type
    return "".join(parts)


def count_comments(path, text):
    if path.endswith(".py"):
        return count_prose(python_comments(text))
    texts = [body or quoted for body, quoted in _TD_TEXT.findall(text)] if path.endswith(".td") else []
    return count_prose("\n\n".join([cxx_comments(text), *texts]))


# -- Documents -----------------------------------------------------------------------------------------


def count_document(text):
    """Counts a Markdown page. Code blocks contain no prose, and their lines may be long."""
    count, prose, is_code = Count(), [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
            count.found[CODE_BLOCKS] += is_code
            prose.append("")
        elif not is_code:
            count.lines += 1
            count.found[LONG_LINES] += len(line) > MAX_COLUMNS
            count.found[HEADINGS] += bool(re.match(r"#+ ", line))
            count.found[PICTURES] += len(re.findall(r"!\[[^\]]*\]\([^)]+\)", line))
            # A heading, a row and an item of a list end the sentence before them.
            prose.append(("\n" if re.match(r"\s*(#|\||[-*] |\d+\. )", line) else "") + line)
    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(prose))
    return count + count_prose(re.sub(r"\|", "\n\n", text))


# -- Ratchet -------------------------------------------------------------------------------------------


def measure(tree):
    """Returns {"comments": {path: Count}, "docs": {path: Count}}."""

    def paths(*endings):
        return [path for path in tree.ending(*endings) if path not in GENERATED]

    return {
        "comments": {path: count_comments(path, tree.text(path)) for path in paths(".cpp", ".h", ".td", ".py")},
        "docs": {path: count_document(tree.text(path)) for path in paths(".md")},
    }


def ratios(counts):
    """Returns {"comments": {name: value}, "docs": ...} from the result of `measure`."""
    return {
        kind: {name: sum(files.values(), Count()).ratio(name) for name in AIMS[kind]} for kind, files in counts.items()
    }


def complaints(today, ratchet):
    """Returns a sentence for every ratio that is worse than the ratchet or missing from it."""
    found = []
    for kind, values in today.items():
        for name, value in values.items():
            if name not in ratchet.get(kind, {}):
                found.append(f"{kind}: the ratchet has no '{name}'; run language.py --update")
                continue
            limit, aim = ratchet[kind][name]["today"], ratchet[kind][name]["aim"]
            more = name in MORE_IS_BETTER
            within = value >= limit * (1 - SLACK) if more else value <= limit * (1 + SLACK)
            reached = value >= aim if more else value <= aim
            if not within and not reached:
                found.append(
                    f"{kind}: '{name}' is {value}, {'at least' if more else 'at most'} {limit} is committed (aim {aim}); "
                    "language.py --list names the files"
                )
    return found


def worst(counts, number):
    """Yields lines that name, for each ratio, the files with the most of it (the least if more is
    better).
    """
    for kind, files in counts.items():
        for name in AIMS[kind]:
            if name in MORE_IS_BETTER:
                continue
            yield f"{kind}: {name}"
            ranked = sorted(files.items(), key=lambda item: (-item[1].found[name], item[0]))
            for path, count in ranked[:number]:
                if count.found[name]:
                    yield f"  {count.found[name]:4}  {count.ratio(name):7.2f}  {path}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--list", type=int, nargs="?", const=10, dest="number")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("root", nargs="?", default=Path(__file__).parents[2])
    arguments = parser.parse_args()
    counts = measure(Tree(arguments.root))
    if arguments.number:
        print("\n".join(worst(counts, arguments.number)))
    today = ratios(counts)
    ratchet = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    found = [] if arguments.update else complaints(today, ratchet)
    for kind, values in today.items():
        total = sum(counts[kind].values(), Count())
        print(f"{kind}: {total.words} words in {len(counts[kind])} files")
        for name, value in values.items():
            committed = ratchet.get(kind, {}).get(name, {}).get("today", "-")
            better = committed != "-" and (value > committed if name in MORE_IS_BETTER else value < committed)
            note = "  better: commit it by --update" if better and not arguments.update else ""
            print(f"  {name:50} {value:7}  committed {committed:>7}  aim {AIMS[kind][name]:>4}{note}")
    if arguments.update:
        written = {
            kind: {name: {"today": value, "aim": AIMS[kind][name]} for name, value in values.items()}
            for kind, values in today.items()
        }
        RATCHET.write_text(json.dumps(written, indent=2) + "\n")
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
