#!/usr/bin/env python3
"""Puts the pinned ONNX schema, onnx/onnx.proto, into a cache folder and prints that folder.

The schema comes out of the pinned `onnx` wheel, which pip downloads from the index it is configured for.
Both the wheel and the extracted file are checked against SHA-256 sums kept here. A schema that is already
there and right is left alone, so that every later call needs no network.

To pin another version: change VERSION, WHEEL_SHA256 and PROTO_SHA256 together; a mismatch prints the sum
that was found.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "1.23.2"
MEMBER = "onnx/onnx.proto"
WHEEL_SHA256 = "7abf381d278f31ac62487fddedc9dd42da842dce94d5d43536836ee3efdf4a2b"
PROTO_SHA256 = "547214dd049486a4d5ecbae593e9c72d90b5e8d603944b722eff469e0b5a9cc9"

# The schema is the same text in the wheel of every platform; one platform is asked for, whatever this
# machine is, so that one sum is enough.
WHEEL_TAGS = [
    "--platform", "manylinux_2_28_x86_64",
    "--implementation", "cp",
    "--python-version", "3.12",
    "--abi", "abi3",
]  # fmt: skip


def fail(message):
    """Ends the program with exit code 1 and one sentence."""
    sys.exit(f"fetch_onnx_schema: {message}")


def default_folder():
    """Returns the user's cache folder for this version, outside every build folder."""
    cache = os.environ.get("TBC_CACHE_DIR") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tbc"
    )
    return Path(cache, f"onnx-{VERSION}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def download_wheel(folder):
    """Returns the path of the pinned wheel, downloaded into `folder` with its hash checked by pip."""
    requirements = Path(folder, "requirements.txt")
    requirements.write_text(f"onnx=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    pip += ["--no-deps", "--only-binary=:all:", "--require-hashes", *WHEEL_TAGS]
    pip += ["--dest", folder, "--requirement", str(requirements)]
    run = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode != 0:
        fail(f"pip could not download onnx {VERSION}; is this machine online?\n{run.stderr.strip()}")
    wheels = sorted(Path(folder).glob("onnx-*.whl"))
    if len(wheels) != 1:
        fail(f"pip left {len(wheels)} wheels where one was expected")
    return wheels[0]


def extract(wheel):
    """Returns the bytes of the schema in `wheel`, checked against PROTO_SHA256."""
    with zipfile.ZipFile(wheel) as archive:
        if MEMBER not in archive.namelist():
            fail(f"{wheel.name} holds no {MEMBER}")
        schema = archive.read(MEMBER)
    if sha256(schema) != PROTO_SHA256:
        fail(f"{MEMBER} of {wheel.name} has SHA-256 {sha256(schema)}, expected {PROTO_SHA256}")
    return schema


def fetch(target):
    """Downloads the schema to the file `target`."""
    print(f"fetching the ONNX {VERSION} schema to {target}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        schema = extract(download_wheel(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another build may fetch at the same time: nobody may see half a file.
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.write_bytes(schema)
    partial.replace(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=default_folder(),
        help=f"the schema becomes FOLDER/{MEMBER} (default: %(default)s)",
    )
    folder = parser.parse_args().folder.absolute()
    target = folder / MEMBER
    if not target.is_file() or sha256(target.read_bytes()) != PROTO_SHA256:
        fetch(target)
    print(folder)


if __name__ == "__main__":
    main()
