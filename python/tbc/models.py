"""Models that are no files: bytes, onnx.ModelProto and torch.nn.Module."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

# A path, the bytes of an ONNX file, an onnx.ModelProto, or a torch.nn.Module with `inputs`.
Model = Union[str, "os.PathLike[str]", bytes, Any]


class TemporaryFolder:
    """A folder that is removed with this object."""

    def __init__(self, kind: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"tbc-{kind}-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class ModelFile:
    """A model as a file. `folder` is its temporary folder, which lives as long as this object."""

    path: Path
    folder: TemporaryFolder | None = None
    label: str = ""  # of a temporary file: the module's class, or "the model"

    @property
    def is_temporary(self) -> bool:
        return self.folder is not None

    def named(self, message: str) -> str:
        """Returns an error's text with the label for the path of a temporary file."""
        return message.replace(str(self.path), self.label) if self.is_temporary else message


def model_file(model: Model, inputs: Any = None) -> ModelFile:
    """Returns the file of a model. Bytes have no folder, so they cannot have external data.

    `inputs`: example inputs of a torch.nn.Module, a tensor, a tuple, or a dict of arguments.
    """
    is_module = "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)
    if inputs is not None and not is_module:
        raise TypeError("inputs= is for a torch.nn.Module, which this model is not")
    if isinstance(model, str | os.PathLike):
        return ModelFile(Path(model))
    folder = TemporaryFolder("model")
    file = ModelFile(folder.path / "model.onnx", folder, type(model).__name__ if is_module else "the model")
    if is_module:
        from tbc.torch.onnx_file import write_onnx

        write_onnx(model, inputs, file.path)
    elif isinstance(model, bytes | bytearray | memoryview):
        file.path.write_bytes(model)
    elif hasattr(model, "SerializeToString"):
        file.path.write_bytes(model.SerializeToString())
    else:
        raise TypeError(
            f"a model is a path, bytes, an onnx.ModelProto or a torch.nn.Module, not {type(model).__name__}"
        )
    return file
