"""The commands that plan, as functions. Every flag is a keyword: tbc/keywords.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbc.cluster import Cluster
from tbc.failures import Error, error_of
from tbc.library import Answer, flag_table, run
from tbc.models import Model, ModelFile, model_file
from tbc.planned import Plan
from tbc.progress import ProgressLike
from tbc.words import words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tbc.keywords import CheckKeywords, JudgeKeywords, NewKeywords, PlanKeywords, SizeKeywords

# Flags that change the form of the answer; tbc.command() has them.
_FORMS = {"json", "emit", "full", "job", "help"}


def _checked(function: str, keywords: Any) -> dict[str, Any]:
    """Returns the keywords with a Cluster as its name or file."""
    forms = sorted(_FORMS.intersection(keywords))
    if forms:
        raise TypeError(f"tbc.{function}() has no keyword {forms[0]}; tbc.command({function!r}, ...) returns text")
    cluster = keywords.get("cluster")
    return {**keywords, "cluster": cluster.source} if isinstance(cluster, Cluster) else dict(keywords)


def _ask(name: str, file: ModelFile, flags: Mapping[str, Any], progress: ProgressLike = None) -> Answer:
    """Runs a command on a model, for data. Errors name the model as the caller knows it."""
    try:
        return run(words(name, [file.path], {**flags, "json": True}), progress)
    except Error as error:
        raise type(error)(file.named(error.message), error.exit_code) from None


def plan(
    model: Model, *, inputs: Any = None, progress: ProgressLike = None, **keywords: Unpack[PlanKeywords]
) -> Plan:
    """Chooses how to train a model on a cluster, as `tbc plan` does.

    `model`: a path, the bytes of an ONNX file, an onnx.ModelProto, or a torch.nn.Module with example
    `inputs`. `progress`: a function of tbc.Progress, or True for a bar. Raises UsageError,
    ModelRejected and NoFeasiblePlan.

    Example: tbc.plan("gpt2.onnx", gpus=16, cluster="h100-sxm", mesh={"fsdp": 8, "tp": 2})
    """
    flags = _checked("plan", keywords)
    file = model_file(model, inputs)
    answer = _ask("plan", file, flags, progress)
    # The model's path in the plan counts from the folder of its file.
    output = flags.get("output")
    folder = Path.cwd() if output in (None, "-") else Path(output).absolute().parent
    planned = Plan.from_json(answer.json)
    object.__setattr__(planned, "folder", folder)
    object.__setattr__(planned, "model_file", file)
    return planned


def check(model: Model, *, inputs: Any = None, **keywords: Unpack[CheckKeywords]) -> dict[str, Any]:
    """Returns the content of a model, as `tbc check --json` does: docs/schemas/check.schema.json."""
    flags = _checked("check", keywords)
    file = model_file(model, inputs)
    answer: dict[str, Any] = _ask("check", file, flags).json
    return answer


def size(
    model: Model, *, inputs: Any = None, progress: ProgressLike = None, **keywords: Unpack[SizeKeywords]
) -> dict[str, Any]:
    """Returns devices, days and money for a number of tokens, as `tbc size --json` does."""
    flags = _checked("size", keywords)
    file = model_file(model, inputs)
    answer: dict[str, Any] = _ask("size", file, flags, progress).json
    return answer


def judge(
    configuration: str | os.PathLike[str], *, progress: ProgressLike = None, **keywords: Unpack[JudgeKeywords]
) -> dict[str, Any]:
    """Judges another framework's configuration, a file or a command line, as `tbc judge --json` does."""
    flags = _checked("judge", keywords)
    answer: dict[str, Any] = run(words("judge", [configuration], {**flags, "json": True}), progress).json
    return answer


def new(kind: str | None = None, *, output: str | os.PathLike[str] | None = None, **keywords: Unpack[NewKeywords]) -> bytes:
    """Returns a model without weights as bytes, and writes it to `output` if given.

    Example: tbc.plan(tbc.new("llama", layers=32), gpus=64)
    """
    kinds = [] if kind is None else [kind]
    content = run(words("new", kinds, {**_checked("new", keywords), "output": "-"})).output
    if output is not None:
        Path(output).write_bytes(content)
    return content


def command(name: str, *positionals: Any, progress: ProgressLike = None, **keywords: Any) -> str:
    """Returns the output of a command that plans, as text.

    Example: tbc.command("plan", "gpt2.onnx", gpus=8, emit="ir")
    """
    known = [command for command in flag_table() if command != "help"]
    if name not in known and not name.startswith("-"):
        raise error_of(2, f'"{name}" is none of the commands that plan: {", ".join(known)} [TBC0201]')
    return run(words(name, positionals, keywords), progress).text
