"""Writes the backend tests of the installed `onnx` package as folders, one per test.

usage: generate.py FOLDER

FOLDER/KIND/TEST holds model.onnx and test_data_set_K/{input,output}_J.pb. The kinds: node (made by the
package's generators), simple, pytorch-converted, pytorch-operator (files of the package) and light
(published architectures whose weights are constants). node-defaults are those of node with all
attributes at their defaults written out, where that adds any.

FOLDER/AttributeDefaults.inc is the table of attribute_defaults.py.
"""

import shutil
import sys
from pathlib import Path

import attribute_defaults
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


def spelled_out(model):
    """Returns a copy of `model` whose nodes have all attributes at their defaults, or None without any."""
    result, added = onnx.ModelProto(), 0
    result.CopyFrom(model)
    versions = {opset.domain: opset.version for opset in model.opset_import}
    for node in result.graph.node:
        if not onnx.defs.has(node.op_type, node.domain):
            continue
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name and name not in given:
                node.attribute.append(attribute.default_value)
                added += 1
    return result if added else None


def write_case(folder, case, model=None):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes((model or case.model).SerializeToString())
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
        spelled = spelled_out(case.model)
        if case.kind == "node" and spelled and not case.name.endswith("_expanded"):
            write_case(folder / "node-defaults" / case.name, case, spelled)
    (folder / "AttributeDefaults.inc").write_text(attribute_defaults.table())
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for path in sorted((PACKAGE_DATA / kind).glob("*/model.onnx")):
            if not (folder / kind / path.parent.name).exists():
                shutil.copytree(path.parent, folder / kind / path.parent.name)
    write_light(folder / "light")


if __name__ == "__main__":
    main()
