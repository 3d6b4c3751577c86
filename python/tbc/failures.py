"""Errors of the planner, by exit code of the command: docs/errors.md.

The text is that of the command, with its code at the end.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"\[(TBC\d{4})\]$")


class Error(Exception):
    """A command failed. `code` is that of docs/errors.md, e.g. "TBC0206"."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        match = _CODE.search(message)
        self.code = match[1] if match else f"TBC{exit_code:02}00"


class UsageError(Error, ValueError):
    """Exit code 2: a keyword, or a file of tbc (plan, cluster), is wrong."""


class ModelRejected(Error):
    """Exit code 3: the model cannot be imported or trained."""


class NoFeasiblePlan(Error):
    """Exit code 4: no plan fits the devices."""


class VerificationFailed(Error):
    """Exit code 5: the parallel program is not the serial one."""


class TbcWarning(UserWarning):
    """A warning of the command, without its prefix "tbc: warning: "."""


_KINDS: dict[int, type[Error]] = {2: UsageError, 3: ModelRejected, 4: NoFeasiblePlan, 5: VerificationFailed}


def error_of(exit_code: int, message: str) -> Error:
    """Returns the error of an exit code. Example: 2 gives a UsageError."""
    return _KINDS.get(exit_code, Error)(message, exit_code)
