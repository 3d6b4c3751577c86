"""A transcript brought up to date that keeps its elisions.

`updated(written, printed)` aligns the lines of a transcript with the lines that a command prints now
(the cheapest edit script). A line that says only "…" stands for any lines, and "…" within a line for
any text of it; both are kept where they were. For example,

    written            printed            updated
    loss 5.1 after …   loss 5.2 after 3 s loss 5.2 after …
    …                  read 3 files       …
    done               wrote a, b         done
                       done

The result matches what is printed (`docs_test.matches`).
"""

import difflib
import re

ELISION = "…"
PIECE = re.compile(r"…|[\w.,]+|\s+|[^\w\s]")


def aligned(written, printed, is_elision, changed):
    """Yields (entry of written or None, entry of printed or None), in order, of the cheapest edit script.

    `changed(old, new)` is the price of an entry that became another one: 0 if they agree, at most 2. An
    entry that is new or gone costs 1. An elision takes any entries of `printed`, yielded as one pair
    (elision, None).
    """
    height, width = len(written) + 1, len(printed) + 1
    cost = [[0.0] * width for _ in range(height)]
    step = [[""] * width for _ in range(height)]
    for i in range(height):
        for j in range(width):
            elided = i > 0 and is_elision(written[i - 1])
            ways = []
            if i and j and not elided:
                ways.append((cost[i - 1][j - 1] + changed(written[i - 1], printed[j - 1]), "both"))
            if elided:
                ways.append((cost[i - 1][j], "close"))
                if j:
                    ways.append((cost[i][j - 1], "elide"))
            elif i:
                ways.append((cost[i - 1][j] + 1, "gone"))
            if j:
                ways.append((cost[i][j - 1] + 1, "new"))
            if ways:
                cost[i][j], step[i][j] = min(ways, key=lambda way: way[0])
    pairs, i, j = [], height - 1, width - 1
    while i or j:
        way = step[i][j]
        if way in ("both", "gone", "close"):
            i -= 1
        if way in ("both", "new", "elide"):
            j -= 1
        if way != "elide":
            pairs.append((written[i] if way != "new" else None, printed[j] if way in ("both", "new") else None))
    return reversed(pairs)


def agrees(line, printed):
    pattern = r".*".join(re.escape(part) for part in line.rstrip().split(ELISION))
    return re.fullmatch(pattern + r"\s*", printed) is not None


def updated_line(line, printed):
    """Returns the printed line with the elisions of `line`, unless nothing else would be left."""
    if agrees(line, printed):
        return line
    if ELISION not in line:
        return printed
    pairs = aligned(PIECE.findall(line), PIECE.findall(printed), lambda piece: piece == ELISION,
                    lambda old, new: 0.0 if old == new else 1.5)
    result = "".join(old if old == ELISION else new or "" for old, new in pairs)
    return result if result.replace(ELISION, "").strip() else printed


def updated(written, printed):
    """Returns the lines of `printed` with the elisions of `written`."""
    def changed(line, new):
        if agrees(line, new):
            return 0.0
        return 0.1 + 1.9 * (1 - difflib.SequenceMatcher(None, line, new, autojunk=False).ratio())

    def is_elision(line):
        return line.strip() == ELISION

    lines = []
    for line, new in aligned(written, printed, is_elision, changed):
        if line is not None and is_elision(line):
            lines.append(line)
        elif new is not None:
            lines.append(new if line is None else updated_line(line, new))
    return lines
