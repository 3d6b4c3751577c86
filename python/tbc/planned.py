"""`Plan`: a plan with the questions that the compiled planner answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tbc import picture, plan_file
from tbc.errors import PlanError
from tbc.failures import error_of
from tbc.fingerprint import canonical_text
from tbc.library import run
from tbc.models import ModelFile
from tbc.programs import program
from tbc.progress import ProgressLike
from tbc.words import words

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Difference:
    """A difference between two plans: a decision, or a prediction."""

    area: str
    what: str
    this: str
    other: str


@dataclass(frozen=True)
class Plan(plan_file.Plan):
    """A plan of `tbc.plan`, or of a file.

    Example::

        plan = tbc.Plan.load("plan.json")
        print(plan.explain(why="tp=8"))
    """

    # The folder from which the model's path in the plan counts.
    folder: Path = field(default=Path(), repr=False, compare=False)
    model_file: ModelFile | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a plan file. Raises PlanError with the file's name if it is no plan of this version."""
        plan = cast("Plan", super().load(path))
        object.__setattr__(plan, "folder", Path(path).absolute().parent)
        return plan

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        """Returns the plan of parsed JSON. Raises PlanError."""
        return cast("Plan", super().from_json(content))

    @property
    def model(self) -> Path:
        """The file of the plan's model."""
        if self.model_file is not None and self.model_file.is_temporary:
            return self.model_file.path
        return Path(os.path.normpath(self.folder.absolute() / self.json["model"]["path"]))

    def text(self, folder: str | os.PathLike[str] = ".") -> str:
        """Returns plan.json as text, with the model's path from `folder`."""
        path = os.path.relpath(self.model, folder)
        return canonical_text({**self.json, "model": {**self.json["model"], "path": path}})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes plan.json. A model that was no file is written beside it, with the suffix .onnx."""
        file = Path(path)
        model = self.model_file
        if model is not None and model.is_temporary:
            beside = file.absolute().with_suffix(".onnx")
            if beside.exists() and beside.read_bytes() != model.path.read_bytes():
                raise PlanError(f"{beside} is another file; the model of this plan would be written there")
            for part in model.path.parent.iterdir():
                # Weights of an exported module lie beside it.
                shutil.copy(part, beside if part == model.path else beside.parent / part.name)
            object.__setattr__(self, "model_file", None)
            object.__setattr__(self, "folder", beside.parent)
            self.json["model"]["path"] = beside.name
        file.write_text(self.text(file.absolute().parent), encoding="utf-8")

    @contextmanager
    def _as_file(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="tbc-plan-") as folder:
            file = Path(folder).resolve() / "plan.json"
            file.write_text(self.text(file.parent), encoding="utf-8")
            yield file

    def _ask(self, command: str, keywords: Mapping[str, Any], progress: ProgressLike = None) -> Any:
        with self._as_file() as file:
            return run(words(command, [file], keywords), progress)

    def explain(self, *, progress: ProgressLike = None, **flags: Any) -> str:
        """Returns the text of `tbc explain` with these flags. Example: explain(why="tp=8")."""
        text: str = self._ask("explain", flags, progress).text
        return text

    def report(self, *, progress: ProgressLike = None, **flags: Any) -> dict[str, Any]:
        """The same as data: docs/explain.schema.json. Example: report(memory=True)["rows"]."""
        answer: dict[str, Any] = self._ask("explain", {**flags, "json": True}, progress).json
        return answer

    def diff(self, other: plan_file.Plan) -> list[Difference]:
        """Returns the differences from `other`; none if it decides and predicts the same."""
        if not isinstance(other, plan_file.Plan):
            raise TypeError(f"diff: expected a Plan, not {other!r}; tbc.Plan.load(path) reads a file")
        with tempfile.TemporaryDirectory(prefix="tbc-plan-") as folder:
            file = Path(folder) / "other.json"
            file.write_text(canonical_text(other.json), encoding="utf-8")
            rows = self.report(diff=file)["rows"]
        return [Difference(row["area"], row["what"], row["this"], row["other"]) for row in rows]

    def verify(self, **flags: Any) -> dict[str, Any]:
        """Runs all ranks here, and compares them with the serial program: docs/json.md, `tbc-verify`.

        The program `tbc` of the package does it in a process of its own, which Ctrl-C ends. Raises
        VerificationFailed.
        """
        with self._as_file() as file:
            line = [str(program("tbc")), *words("verify", [file], {**flags, "json": True})]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [text for text in done.stderr.splitlines() if text.startswith("tbc: ")]
            message = lines[-1][len("tbc: ") :] if lines else "the parallel program is not the serial one [TBC0500]"
            raise error_of(done.returncode, message)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def export(self, to: str, output: str | os.PathLike[str], **flags: Any) -> Path:
        """Writes the plan for another framework: docs/targets. Example: export("megatron", "run.sh")."""
        self._ask("export", {**flags, "to": to, "output": Path(output).absolute()})
        return Path(output)

    def to_pandas(self, table: str = "parameters") -> pandas.DataFrame:
        """Returns "parameters", "collectives", "stages" or "modules" as a DataFrame, a row each."""
        import pandas

        rows = _TABLES.get(table)
        if rows is None:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(_TABLES)}")
        return pandas.DataFrame(rows(self))

    def _repr_html_(self) -> str:
        return picture.html(self)


def _split(placement: plan_file.Placement) -> str:
    """Returns a placement as text. Example: "-, tp; flat fsdp" for columns over tp, then shards."""
    dims = ", ".join("+".join(sorted(dim.all_axes)) or "-" for dim in placement.dims)
    flat = f"; flat {'+'.join(placement.flat)}" if placement.flat else ""
    partial = f"; partial {'+'.join(placement.partial)}" if placement.partial else ""
    return dims + flat + partial


def _parameter_rows(plan: plan_file.Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "shape": parameter.shape,
            "dtype": parameter.dtype,
            "trained": parameter.trained,
            "gather": parameter.gather,
            **{kind: _split(placement) for kind, placement in parameter.placements.items()},
        }
        for parameter in plan.parameters.values()
    ]


def _collective_rows(plan: plan_file.Plan) -> list[dict[str, Any]]:
    return [
        {"kind": c.kind, "axes": "+".join(c.axes), "bytes": c.bytes, "count": c.count, "purpose": c.purpose,
         "cause": c.cause, "stages": c.stages}
        for c in plan.collectives
    ]  # fmt: skip


def _stage_rows(plan: plan_file.Plan) -> list[dict[str, Any]]:
    return [
        {"chunk": s.chunk, "stage": s.stage, "begin": s.begin, "modules": len(s.modules), "parameters": len(s.parameters)}
        for s in plan.stages
    ]


def _module_rows(plan: plan_file.Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": module.name,
            "inputs": ", ".join(_split(tensor.placement) for tensor in module.inputs),
            "outputs": ", ".join(_split(tensor.placement) for tensor in module.outputs),
        }
        for module in plan.modules.values()
    ]


_TABLES = {
    "parameters": _parameter_rows,
    "collectives": _collective_rows,
    "stages": _stage_rows,
    "modules": _module_rows,
}
