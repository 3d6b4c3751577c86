"""Prints the defaults of all attributes of the standard ONNX ops, as frontend/onnx/AttributeDefaults.inc.

usage: attribute_defaults.py > frontend/onnx/AttributeDefaults.inc

The source are the schemas of the installed `onnx` package, with their history. A row is
{"", op, attribute, first operator set, first operator set without it or 0, default as text}.
"""

import json

from onnx import defs, helper

HEADER = """\
// The defaults of attributes of the standard ops, by operator set. Generated from onnx's schemas by
// tests/conformance/attribute_defaults.py; conformance.defaults compares the two.
"""


def text_of(value):
    """Returns a default as text. Example: 1e-5 as f32 gives "9.99999975e-06", [0, 2] gives "0,2"."""
    if isinstance(value, list):
        return ",".join(text_of(element) for element in value)
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def rows():
    """Yields (op, attribute, since, until, text) in order of the op, the attribute and `since`."""
    history = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        if schema.domain == "":
            history.setdefault(schema.name, []).append(schema)
    for op, schemas in sorted(history.items()):
        found = {}
        for schema in schemas:
            for ranges in found.values():
                if ranges[-1][1] == 0:
                    ranges[-1][1] = schema.since_version
            for name, attribute in schema.attributes.items():
                if not attribute.default_value.name:
                    continue
                text = text_of(helper.get_attribute_value(attribute.default_value))
                ranges = found.setdefault(name, [])
                if ranges and ranges[-1][1] == schema.since_version and ranges[-1][2] == text:
                    ranges[-1][1] = 0
                else:
                    ranges.append([schema.since_version, 0, text])
        for name, ranges in sorted(found.items()):
            for since, until, text in ranges:
                yield op, name, since, until, text


def table():
    lines = [
        f'{{"", "{op}", "{name}", {since}, {until}, {json.dumps(text)}}},'
        for op, name, since, until, text in rows()
    ]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
