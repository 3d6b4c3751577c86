#!/usr/bin/env python3
"""usage: ir_reference.py MLIR_TBLGEN INCLUDE [--check]

Writes docs/ir.md from the TableGen files: the dialect, its attributes, ops and passes. INCLUDE is the folder of
MLIR's own .td files, e.g. /usr/lib/llvm-19/include. With --check nothing is written: exit code 1 and a message if the
page is not what would be written.
"""

import argparse
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ir.md"
EXAMPLES = ROOT / "tests" / "ir" / "examples.mlir"
COLUMNS = 100
FLOATS = "64-bit float or 32-bit float or 16-bit float or bfloat16 type"
INTEGERS = (
    "64-bit signless integer or 32-bit signless integer or 16-bit signless integer or 8-bit signless integer or "
    "8-bit unsigned integer"
)
# Types as people say them.
TYPES = {
    f"ranked tensor of {FLOATS} or {INTEGERS} or 1-bit signless integer values": "tensor",
    f"ranked tensor of {FLOATS} values": "float tensor",
    f"ranked tensor of {INTEGERS} values": "integer tensor",
    "ranked tensor of 1-bit signless integer values": "boolean tensor",
    "::mlir::": "",
    "::llvm::": "",
}

HEAD = """# Reference of the IR

For readers of IR dumps (`tbc plan --emit ir`, `tbc compile --emit-ir-after`) and for developers of passes. The dialect
`tbc` has {ops} ops in {families} families. [design.md](design.md) explains its interfaces, factors and the order of the
passes.

This page is made of `ir/*.td`, `passes/Passes.td` and `tools/driver/Passes.td` by `docs/ir_reference.py`, with the
examples of `tests/ir/examples.mlir`. Edit those files, then run `ninja -C build ir-reference`.
"""


def generated(options, generator, path):
    """Returns what mlir-tblgen prints, without comments, syntax and traits."""
    command = [options.tblgen, generator, f"-I{ROOT}", f"-I{ROOT / 'ir'}", f"-I{options.include}", str(ROOT / path)]
    if generator != "-gen-pass-doc":
        command.append("-dialect=tbc")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ir_reference.py: {' '.join(command)} failed:\n{done.stderr}")
    text = re.sub(r"<!--.*?-->\n?", "", done.stdout)
    # Those of an op are in its .td; one form of text is common to nearly all ops.
    text = re.sub(r"(?m)^(Traits|Interfaces|Effects): .*\n", "", text)
    for long, short in TYPES.items():
        text = text.replace(long, short)
    text = text.replace("<table>\n", "").replace("</table>\n", "")
    text = text.replace("<tr><th>Attribute</th><th>MLIR Type</th><th>Description</th></tr>\n",
                        "| Attribute | MLIR Type | Description |\n| --- | --- | --- |\n")
    text = re.sub(r"<tr><td><code>(.*?)</code></td><td>(.*?)</td><td>(.*?)</td></tr>", r"| `\1` | `\2` | \3 |", text)
    text = re.sub(r"(?m)^(\| `.*[^|\s])\s*$", r"\1 |", text)
    return re.sub(r"(?m)^Syntax:\n+```\n.*?^```\n", "", text, flags=re.DOTALL)


def examples():
    """Returns the op of each function of the file of examples, by the function's name."""
    found = re.findall(r"(?ms)^func\.func @(\w+)\(.*?\) \{\n(.*?)^  return\n\}", EXAMPLES.read_text(encoding="utf-8"))
    return {name: textwrap.dedent(body) for name, body in found}


def with_examples(ops):
    """Puts an example behind the description of each op that has none. Every op needs one."""
    known = examples()

    def add(match):
        name, text = match.group(1), match.group(0)
        if "```mlir" in text:
            return text
        if name not in known:
            sys.exit(f"ir_reference.py: tests/ir/examples.mlir has no @{name}, an example of tbc.{name}")
        end = re.search(r"(?m)^#+ (Attributes|Operands|Results):", text)
        at = end.start() if end else len(text)
        return f"{text[:at].rstrip()}\n\n```mlir\n{known[name]}```\n\n{text[at:]}"

    return re.sub(r"(?ms)^#### `tbc\.(\w+)`.*?(?=^#### `tbc\.|\Z)", add, ops)


def check_passes(text):
    """Every pass has an example in its description."""
    for section in re.split(r"(?m)^(?=### `-)", text)[1:]:
        if "```mlir" not in section:
            sys.exit(f"ir_reference.py: the description of {section.splitlines()[0].strip('# ')} has no example")


def wrapped(text):
    """Wraps paragraphs at COLUMNS; code, tables, headings and lists stay. No two empty lines."""
    lines, paragraph, is_code = [], [], False

    def flush():
        if paragraph:
            indent = "  " if paragraph[0].startswith("- ") else ""
            lines.extend(textwrap.wrap(" ".join(paragraph), COLUMNS, break_long_words=False, break_on_hyphens=False,
                                       subsequent_indent=indent))
            paragraph.clear()

    for line in text.splitlines():
        line = line.rstrip()
        fence = line.lstrip().startswith("```")
        if fence:
            is_code = not is_code
        if re.match(r"\(C\d+\)|Source:|- ", line.strip()) and not is_code:
            flush()
            paragraph.append("- " + line.strip().removeprefix("- "))
        elif fence or is_code or not line or re.match(r"[#|]|Constraints:", line.strip()):
            flush()
            if line.startswith("#") and not is_code and lines and lines[-1]:
                lines.append("")
            if line or (lines and lines[-1]):
                lines.append(line)
        else:
            paragraph.append(line.strip())
    flush()
    return "\n".join(lines).strip() + "\n"


def shifted(text, depth):
    """Moves headings so that the first one has `depth` marks."""
    first = re.search(r"(?m)^(#+) ", text)
    delta = depth - len(first.group(1)) if first else 0
    is_code, lines = False, []
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        match = re.match(r"(#+) ", line)
        if match and not is_code:
            line = "#" * max(2, len(match.group(1)) + delta) + line[match.end() - 1 :]
        lines.append(line)
    return "\n".join(lines) + "\n"


def page(options):
    families = re.search(r"set\(TBC_OP_FAMILIES\s+(.*?)\)", (ROOT / "ir" / "CMakeLists.txt").read_text(), re.DOTALL).group(1).split()
    ops = "\n".join(f"### {family}\n\n" + shifted(generated(options, "-gen-op-doc", f"ir/{family}.td"), 4) for family in families)
    number = len(re.findall(r"(?m)^#### `tbc\.", ops))
    parts = [HEAD.format(ops=number, families=len(families))]
    parts += ["## Attributes\n", shifted(re.sub(r"(?m)^## .*\n", "", generated(options, "-gen-attrdef-doc", "ir/Attributes.td")), 3)]
    parts += ["## Ops\n", "".join(with_examples(part) for part in re.split(r"(?m)^(?=### )", ops))]
    parts.append("## Passes\n")
    for path in ("tools/driver/Passes.td", "passes/Passes.td"):
        passes = shifted(generated(options, "-gen-pass-doc", path), 3)
        check_passes(passes)
        parts.append(passes)
    return wrapped("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description="Writes docs/ir.md from the TableGen files.")
    parser.add_argument("tblgen", help="the program mlir-tblgen")
    parser.add_argument("include", help="the folder of MLIR's .td files")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    text = page(options)
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/ir.md is not what the .td files say: run `ninja -C build ir-reference` and commit it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
