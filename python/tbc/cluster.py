"""`Cluster`: a preset or a cluster file. docs/clusters.md has the meaning of every key."""

from __future__ import annotations

import os
from typing import Any

from tbc.library import run
from tbc.models import TemporaryFolder


class Cluster:
    """The devices of a plan.

    Example::

        tbc.Cluster("h100-sxm").devices_per_node   # 8
        tbc.Cluster.presets()                      # ["h100-sxm", ...]
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        """Loads a preset by its name, or a TOML file. Raises UsageError if it is neither."""
        self.source = os.fspath(source)
        answer = run(["cluster", "--json", "--", self.source])
        self.json: dict[str, Any] = answer.json["clusters"][0]
        self._folder: TemporaryFolder | None = None

    @classmethod
    def presets(cls) -> list[str]:
        """Returns the names of the presets."""
        return [cluster["name"] for cluster in run(["cluster", "--json"]).json["clusters"]]

    @classmethod
    def from_toml(cls, text: str) -> Cluster:
        """Returns the cluster of a TOML text, e.g. an edited `toml` of another."""
        folder = TemporaryFolder("cluster")
        file = folder.path / "cluster.toml"
        file.write_text(text, encoding="utf-8")
        cluster = cls(file)
        cluster._folder = folder
        return cluster

    @property
    def name(self) -> str:
        return str(self.json["name"])

    @property
    def devices_per_node(self) -> int:
        return int(self.json["devices_per_node"])

    @property
    def toml(self) -> str:
        """The text of the cluster file."""
        return run(["cluster", "--", self.source]).text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the cluster file."""
        run(["cluster", f"--output={os.fspath(path)}", "--", self.source])

    def __repr__(self) -> str:
        return f"Cluster({self.source!r})"
