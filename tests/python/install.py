"""usage: install.py SOURCE_DIR BUILD_DIR

Makes a fresh environment in BUILD_DIR/wheel/venv, and installs the package into it by `pip install`,
which builds the wheel from the objects of BUILD_DIR. No index is asked. Fails if the wheel is 60 MB
or more, or names a newer glibc than 2.36.
"""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
MOST_BYTES = 60e6
NEWEST_GLIBC = (2, 36)


def main():
    folder = BUILD / "wheel" / "venv"
    for old in (BUILD / "wheel").glob("*.whl"):
        old.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    subprocess.run(
        [folder / "bin/python", "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "--quiet",
         SOURCE, "--config-settings", f"build-dir={BUILD}"],
        check=True,
    )  # fmt: skip
    wheels = list((BUILD / "wheel").glob("*.whl"))
    assert len(wheels) == 1, wheels
    size = wheels[0].stat().st_size
    version = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", wheels[0].name).groups()))
    print(f"{wheels[0].name}: {size / 1e6:.1f} MB")
    assert size < MOST_BYTES, f"the wheel has {size / 1e6:.1f} MB, {MOST_BYTES / 1e6:.0f} are allowed"
    assert version <= NEWEST_GLIBC, f"the wheel needs glibc {version}, {NEWEST_GLIBC} is the newest allowed"


main()
