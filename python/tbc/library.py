"""The compiled planner: libtbc.so, in this process.

Calls release the GIL. Ctrl-C, and an exception of the progress callback, end a command at its next
search step.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbc.failures import Error, TbcWarning, error_of
from tbc.progress import ProgressLike, Reporter

PACKAGE = Path(__file__).resolve().parent
_WARNING = "tbc: warning: "
_POLL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)


class _Answer(ctypes.Structure):
    _fields_ = [
        ("exit_code", ctypes.c_int32),
        ("was_stopped", ctypes.c_int32),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_int64),
        ("messages", ctypes.c_char_p),
        ("error", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Answer:
    """The output of a command that succeeded. `exit_code` is 10 for plans that differ."""

    exit_code: int
    output: bytes

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.output)


def library_file() -> Path:
    """Returns libtbc.so: of the package, or the one that TBC_LIBRARY names."""
    return Path(os.environ.get("TBC_LIBRARY") or PACKAGE / "lib" / "libtbc.so")


@functools.cache
def load() -> ctypes.CDLL:
    """Returns the library. Raises tbc.Error if the package was not built."""
    file = library_file()
    # A libstdc++ of the machine serves all libraries of the process; the packed one is for machines without.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libstdc++.so.6")
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        raise Error(
            f"the compiled planner cannot be loaded: {error}; install the package with 'pip install .', or name "
            "a libtbc.so by TBC_LIBRARY"
        ) from error
    library.tbc_command.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_char_p), _POLL]
    library.tbc_command.restype = ctypes.POINTER(_Answer)
    library.tbc_release.argtypes = [ctypes.POINTER(_Answer)]
    library.tbc_release.restype = None
    library.tbc_flags.restype = ctypes.c_char_p
    library.tbc_version.restype = ctypes.c_char_p
    library.tbc_set_program.argtypes = [ctypes.c_char_p]
    library.tbc_set_program.restype = None
    library.tbc_set_program(os.fsencode(PACKAGE / "bin" / "tbc"))
    return library


@functools.cache
def flag_table() -> dict[str, Any]:
    """Returns the subcommands and their flags: tools/library/FlagTable.h."""
    table: dict[str, Any] = json.loads(load().tbc_flags())
    return table


def version() -> str:
    """Returns the version of the planner, e.g. "0.1.0"."""
    text: bytes = load().tbc_version()
    return text.decode()


def run(words: Sequence[str], progress: ProgressLike = None) -> Answer:
    """Runs the words of a command line behind "tbc". Raises the documented errors, and warns."""
    library = load()
    reporter = Reporter(progress)
    caught: list[BaseException] = []

    def poll(phase: bytes) -> int:
        # Python runs the handler of Ctrl-C here, where it raises KeyboardInterrupt.
        try:
            reporter.phase(phase.decode())
        except BaseException as error:
            caught.append(error)
        return 0 if caught else 1

    encoded = (ctypes.c_char_p * len(words))(*(os.fsencode(word) for word in words))
    answer = None
    try:
        answer = library.tbc_command(len(words), encoded, _POLL(poll))
        content = answer.contents
        exit_code, error_text = int(content.exit_code), content.error.decode()
        output = ctypes.string_at(content.output, content.output_size)
        messages = content.messages.decode()
    finally:
        reporter.close()
        if answer is not None:
            library.tbc_release(answer)
    if caught:
        raise caught[0]
    _tell(messages)
    if error_text:
        raise error_of(exit_code, error_text)
    return Answer(exit_code, output)


def _tell(messages: str) -> None:
    """Warns of each warning; other lines go to stderr."""
    for line in messages.splitlines():
        if line.startswith(_WARNING):
            warnings.warn(line[len(_WARNING) :], TbcWarning, stacklevel=4)
        else:
            print(line, file=sys.stderr)
