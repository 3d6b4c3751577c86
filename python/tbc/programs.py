"""The programs `tbc` and `tbc-run` of the wheel. Python hands the process over to them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tbc.failures import Error
from tbc.library import PACKAGE


def program(name: str) -> Path:
    """Returns the file of a program of the wheel."""
    file = PACKAGE / "bin" / name
    if not file.exists():
        raise Error(f"{file} is not there; install the package with 'pip install .'")
    return file


def _become(name: str) -> None:
    file = program(name)
    os.execv(file, [name, *sys.argv[1:]])


def tbc() -> None:
    _become("tbc")


def tbc_run() -> None:
    _become("tbc-run")
