"""Progress of a long command: a callback, or a bar."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

_COUNT = re.compile(r": (\d+) of (\d+) ")


@dataclass(frozen=True)
class Progress:
    """The phase of a command. `done` of `total` parts are finished, where the phase counts any."""

    phase: str
    done: int | None = None
    total: int | None = None

    @classmethod
    def of(cls, text: str) -> Progress:
        """Example: "searching: 160 of 2048 configurations" has done 160, total 2048."""
        match = _COUNT.search(text)
        return cls(text, int(match[1]), int(match[2])) if match else cls(text)


Callback = Callable[[Progress], None]
# A function, True for a bar, or None.
ProgressLike = Union[Callback, bool, None]


class _Bar:
    """A bar of tqdm, or of text where tqdm is not installed."""

    def __init__(self) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self.bar: Any = None
        else:
            self.bar = tqdm(leave=False, unit=" plans")

    def show(self, progress: Progress) -> None:
        if self.bar is None:
            sys.stderr.write(f"\r{progress.phase}\033[K")
            sys.stderr.flush()
            return
        self.bar.set_description(progress.phase.partition(":")[0])
        if progress.total is not None:
            self.bar.total = progress.total
            self.bar.n = progress.done
        self.bar.refresh()

    def close(self) -> None:
        if self.bar is None:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        else:
            self.bar.close()


class Reporter:
    """Tells a callback or a bar of each new phase, once."""

    def __init__(self, progress: ProgressLike) -> None:
        self.bar = _Bar() if progress is True else None
        self.tell: Callback | None = self.bar.show if self.bar else (progress if callable(progress) else None)
        self.last = ""

    def phase(self, text: str) -> None:
        if text and text != self.last and self.tell is not None:
            self.last = text
            self.tell(Progress.of(text))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
