"""Inputs and labels of a seed, in plain Python, so that they are the same with and without PyTorch and NumPy."""

import random
import struct

FRACTION = 64  # floats are multiples of 1/64, exact in every float type


def draw(seed, count, below):
    """Returns `count` integers in [0, below), or normal floats if `below` is 0."""
    source = random.Random(seed)
    if below:
        return [source.randrange(below) for _ in range(count)]
    return [round(source.gauss(0, 1) * FRACTION) / FRACTION for _ in range(count)]


def batches(seed, input_shape, vocabulary, label_shape, classes):
    """Returns flat lists of inputs and labels; shapes include the samples. Example: `batches(1,
    (12, 3), 0, (12,), 5)` is 36 floats and 12 labels below 5.
    """
    return draw(2 * seed, product(input_shape), vocabulary), draw(2 * seed + 1, product(label_shape), classes)


def product(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def write_npy(path, shape, values, is_float):
    """Writes a version 1.0 .npy of f32 or i64."""
    header = f"{{'descr': '{'<f4' if is_float else '<i8'}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header = header.ljust(117) + "\n"
    content = struct.pack(f"<{len(values)}{'f' if is_float else 'q'}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)
