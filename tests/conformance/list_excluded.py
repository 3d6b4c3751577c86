#!/usr/bin/env python3
"""Turns the output of `conformance` into the list of excluded tests.

usage: conformance FOLDER excluded.txt > run.txt; list_excluded.py run.txt > excluded.txt

Groups the tests that do not pass by reason: a class of REASONS if one fits, else the importer's
message without names and numbers. Read the difference before committing it: it must not contain a
test that passed before.
"""

import re
import sys

ELEMENT_TYPES = {
    8: "string", 14: "complex64", 15: "complex128",
    17: "float8", 18: "float8", 19: "float8", 20: "float8", 21: "4-bit integers", 22: "4-bit integers",
    23: "float4", 24: "float8", 25: "2-bit integers", 26: "2-bit integers",
}  # fmt: skip

REASONS = [
    (r"is not a tensor|is a sequence of tensors", "sequences, maps and optional values: a plan has tensors only"),
    (r"has no elements", "tensors without elements: a tbc tensor has at least one"),
    (r"dim \d+ of input '[^']*' is 0", "tensors without elements: a tbc tensor has at least one"),
]

HEADER = """\
# The tests that do not pass, by reason; README.md says how this list is checked and made again.
"""

# Tests with a reason of their own for another result, or for having no counterpart.
TESTS = [
    (r"test_attention_4d_causal_fp16", "f16: ONNX's reference rounds after every step of the attention, tbc once"),
    (r"test_attention_4d_with_past_and_present_qk_matmul_bias_.*causal",
     "hidden scores as output: -inf in ONNX's reference, the lowest finite number here"),
    (r"test_training_dropout(_default)?$|test_bernoulli", "draws random numbers: others than ONNX's reference"),
    (r"test_dft_inverse", "DFT: zeros, where ONNX's reference has rounding noise of f32 beyond its own tolerance"),
    (r"test_gradient_of_", "Gradient: tbc derives the gradient of a whole model, no graph holds one"),
]  # fmt: skip


def reason_of(outcome, test, text):
    """Returns the reason under which a test is listed."""
    for pattern, reason in TESTS:
        if re.search(pattern, test):
            return reason
    if outcome == "FAILED":
        return "wrong: " + (text.split(":")[0] if re.match("ended|took|evaluation", text) else "another result")
    if found := re.search(r"element type (\d+)", text):
        kind = ELEMENT_TYPES.get(int(found[1]), f"number {found[1]}")
        return f"element type {kind}: tbc has f64 f32 f16 bf16 i64 i32 i16 i8 u32 u16 u8 bool"
    if found := re.search(r"not supported: +(.*?) +Export the model", text):
        types = re.findall(r"(?:^| )([\w.]+):", found[1])
        return "no importer for " + ", ".join(sorted(set(types)))
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return reason
    text = re.sub(r"^node '[^']*' \((\w+)\): ", r"\1: ", text)
    text = re.sub(r"'[^']*'", "'...'", text)
    return re.sub(r"\d+", "N", text)


def main():
    groups = {}
    with open(sys.argv[1], encoding="utf-8") as run:
        for line in run:
            found = re.match(r"(refused|FAILED) +(\S+?)(?:: (.*))?$", line)
            # With its defaults written out, a node is listed by its own name.
            if found and not found[2].startswith("node-defaults/"):
                groups.setdefault(reason_of(found[1], found[2], found[3] or ""), []).append(found[2])
    print(HEADER)
    for reason in sorted(groups, key=lambda reason: (-len(groups[reason]), reason)):
        print(f"[{reason}]")
        for test in sorted(groups[reason]):
            print(test)
        print()


if __name__ == "__main__":
    main()
