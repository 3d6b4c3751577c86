"""Writes the backend tests of the installed `onnx` package as folders, one per test.

usage: generate.py FOLDER

FOLDER/KIND/TEST holds model.onnx and test_data_set_K/{input,output}_J.pb. The kinds: node (made by the
package's generators), simple, pytorch-converted, pytorch-operator (files of the package) and light
(published architectures whose weights are constants).
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.model import collect_testcases as collect_models
from onnx.backend.test.case.node import collect_testcases as collect_nodes

PACKAGE_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def to_proto(value, info):
    """Returns `value` of a generated case as the protobuf message of its declared type."""
    if not isinstance(value, (np.ndarray, np.generic, list, dict)) and value is not None:
        return value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value), info.name)
    if info.type.HasField("map_type"):
        return numpy_helper.from_dict(value, info.name)
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write_case(folder, case):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for k, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{k}"
        data.mkdir()
        for kind, values, infos in (
            ("input", inputs, case.model.graph.input),
            ("output", outputs, case.model.graph.output),
        ):
            for j, value in enumerate(values):
                (data / f"{kind}_{j}.pb").write_bytes(to_proto(value, infos[j]).SerializeToString())


def write_light(folder):
    """Writes the light models, which come without inputs. Each input counts up from zero and is
    scaled to [0, 1), as in the package's own runner.
    """
    for path in sorted((PACKAGE_DATA / "light").glob("*.onnx")):
        case = folder / f"test_{path.stem}"
        data = case / "test_data_set_0"
        data.mkdir(parents=True)
        shutil.copyfile(path, case / "model.onnx")
        graph = onnx.load(path).graph
        weights = {initializer.name for initializer in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        for j, value in enumerate(inputs):
            shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            n = int(np.prod(shape))
            elements = (np.arange(n).astype(np.float32) / n).reshape(shape)
            proto = numpy_helper.from_array(elements, value.name)
            (data / f"input_{j}.pb").write_bytes(proto.SerializeToString())
        shutil.copyfile(path.with_name(f"{path.stem}_output_0.pb"), data / "output_0.pb")


def main():
    folder = Path(sys.argv[1])
    models = [case for case in collect_models() if case.kind == "simple"]
    for case in collect_nodes() + models:
        write_case(folder / case.kind / case.name, case)
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for path in sorted((PACKAGE_DATA / kind).glob("*/model.onnx")):
            if not (folder / kind / path.parent.name).exists():
                shutil.copytree(path.parent, folder / kind / path.parent.name)
    write_light(folder / "light")


if __name__ == "__main__":
    main()
