"""Builds the wheel for pip: the hooks of PEP 517 over CMake's target `wheel`.

    pip install .                                      builds in build/, or goes on there
    pip install . --config-settings build-dir=FOLDER   in another build folder
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def _run(*line: str | Path) -> None:
    try:
        subprocess.run(line, cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit(f"{line[0]} is not there; ./bootstrap --no-build installs what a build needs") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{line[0]} failed with exit code {error.returncode}") from None


def build_wheel(wheel_directory: str, config_settings: dict[str, Any] | None = None, _metadata: str | None = None) -> str:
    """Configures if need be, builds the target `wheel`, and copies its file. Returns the file's name."""
    build = ROOT / (config_settings or {}).get("build-dir", "build")
    if not (build / "CMakeCache.txt").exists():
        _run("cmake", "--preset", "default", "-B", build, "-DTBC_BUILD_TESTS=OFF")
    _run("cmake", "--build", build, "--target", "wheel")
    wheel = max((build / "wheel").glob("*.whl"), key=lambda file: file.stat().st_mtime)
    shutil.copy(wheel, wheel_directory)
    return wheel.name


def build_sdist(_sdist_directory: str, _config_settings: dict[str, Any] | None = None) -> str:
    """tbc has no source distribution: a clone is one."""
    raise SystemExit("there is no source distribution; pip wheel . makes a wheel of a clone")
