#!/usr/bin/env python3
"""Makes ONNX's backend tests in a cache folder, once.

The source is the `onnx` package. pip installs it with pinned versions into a temporary folder.
--print only prints the folder.

Exit code 77 (skipped) if the package is unavailable, 1 if the environment says CI=true.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.23.2"
PACKAGES = [
    f"onnx=={VERSION}",
    "numpy==2.4.6;python_version>='3.11'",
    "ml_dtypes==0.6.0",
    "protobuf==7.36.2",
    "typing_extensions==4.16.0",
]
# Increase whenever generate.py writes something else.
LAYOUT = 2
SKIPPED = 77


def target_folder():
    """Returns the folder of this version's tests, outside every build folder."""
    cache = os.environ.get("TBC_CACHE_DIR") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tbc"
    )
    return Path(cache, f"onnx-tests-{VERSION}-{LAYOUT}").absolute()


def generate(target):
    """Fills the folder `target`. Raises CalledProcessError on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="onnx-tests.") as scratch:
        packages, tests = Path(scratch, "packages"), Path(scratch, "tests")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        pip += ["--only-binary=:all:", "--no-deps", "--target", str(packages), *PACKAGES]
        script = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("generate.py")), str(tests)]
        for command in (pip, script):
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                env={**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"},
                check=True,
            )
        # Another build may do the same at the same time. The rename makes a complete folder appear
        # at once.
        try:
            tests.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    # Folders of older versions and layouts are unused.
    for other in target.parent.glob("onnx-tests-*"):
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


def main():
    target = target_folder()
    if "--print" in sys.argv[1:]:
        print(target)
        return 0
    if target.is_dir():
        return 0
    try:
        generate(target)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"fetch.py: the ONNX tests could not be made; is this machine online? {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
