"""The permitted includes and links of each layer: the table of docs/design.md, section 1, as data.

A layer is a folder. It contains every folder below it except other layers.
"""

from dataclasses import dataclass, field

LLVM = frozenset({"llvm", "mlir"})


@dataclass(frozen=True)
class Layer:
    """`uses`: layers; it may include their headers and link their libraries directly.

    `outside`: first path components of permitted third-party headers, besides the C and C++
    libraries. Example: "nlohmann".
    """

    uses: frozenset = field(default_factory=frozenset)
    outside: frozenset = field(default_factory=frozenset)


def _layer(uses="", outside="", llvm=False):
    return Layer(frozenset(uses.split()), frozenset(outside.split()) | (LLVM if llvm else frozenset()))


LAYERS = {
    # Plain C++: the runtime, and code shared by planner and passes.
    "runtime/dtype": _layer(),
    "runtime/kernels": _layer("runtime/dtype"),
    "runtime/memory": _layer(),
    "runtime/mesh": _layer(),
    "runtime/schedule": _layer(),
    "runtime/abi": _layer("runtime/kernels runtime/memory runtime/mesh runtime/schedule", "nlohmann"),
    "runtime/comm": _layer("runtime/abi runtime/kernels", "gloo"),
    "runtime/launch": _layer("runtime/abi runtime/comm"),
    "runtime/data": _layer("runtime/abi runtime/kernels"),
    "runtime/checkpoint": _layer("runtime/abi runtime/comm runtime/data runtime/exec runtime/kernels", "nlohmann"),
    "runtime/train": _layer(
        "runtime/abi runtime/checkpoint runtime/comm runtime/data runtime/exec runtime/kernels runtime/verify", "nlohmann"
    ),
    "runtime/cpu": _layer("runtime/abi runtime/exec runtime/kernels", "dnnl.hpp"),
    "runtime/cuda": _layer("runtime/abi runtime/comm runtime/exec runtime/kernels runtime/mesh", "nlohmann"),
    "runtime/exec": _layer("runtime/abi runtime/comm runtime/kernels runtime/schedule"),
    "runtime/verify": _layer("runtime/abi"),
    "planner/reshard": _layer("runtime/dtype runtime/memory runtime/mesh"),
    "planner/support": _layer(outside="nlohmann"),
    "planner/devices": _layer("planner/reshard runtime/dtype", "toml++"),
    "planner/graph": _layer("planner/devices planner/reshard runtime/memory"),
    "planner/plan": _layer(
        "planner/devices planner/graph planner/reshard planner/support runtime/dtype runtime/mesh runtime/schedule",
        "nlohmann",
    ),
    "planner/cost": _layer("planner/devices planner/graph planner/reshard planner/support"),
    "planner/memory": _layer("planner/devices planner/plan planner/reshard runtime/memory runtime/schedule"),
    "planner/predict": _layer(
        "planner/cost planner/devices planner/graph planner/memory planner/plan planner/reshard runtime/schedule"
    ),
    "planner/pins": _layer(
        "planner/cost planner/devices planner/graph planner/plan planner/reshard planner/support runtime/schedule", "nlohmann"
    ),
    "planner/place": _layer("planner/cost planner/graph planner/pins planner/plan planner/predict planner/reshard"),
    "planner/bound": _layer(
        "planner/cost planner/devices planner/graph planner/predict planner/reshard planner/support"
    ),
    "planner/report": _layer(
        "planner/cost planner/devices planner/graph planner/plan planner/predict planner/reshard planner/support runtime/mesh",
        "nlohmann",
    ),
    "planner/layout": _layer(
        "planner/cost planner/devices planner/graph planner/plan planner/report planner/reshard"
    ),
    "planner/search": _layer(
        "planner/bound planner/cost planner/devices planner/graph planner/layout planner/memory planner/pins planner/place "
        "planner/plan planner/predict planner/report planner/reshard planner/support runtime/mesh runtime/schedule"
    ),
    "planner/explain": _layer(
        "planner/cost planner/devices planner/layout planner/memory planner/pins planner/plan planner/predict "
        "planner/report planner/reshard planner/search planner/support runtime/dtype"
    ),
    "planner/view": _layer(
        "planner/cost planner/devices planner/memory planner/plan planner/predict planner/report planner/reshard "
        "planner/support runtime/mesh runtime/schedule", "nlohmann"
    ),
    "planner/size": _layer(
        "planner/devices planner/pins planner/plan planner/reshard planner/search planner/support", "nlohmann toml++"
    ),
    # The compiler.
    "ir": _layer("planner/reshard runtime/dtype runtime/kernels runtime/mesh", llvm=True),
    "frontend/onnx": _layer("ir runtime/abi runtime/data runtime/kernels", "google onnx", llvm=True),
    "passes": _layer("ir planner/reshard runtime/schedule", llvm=True),
    "codegen": _layer("ir runtime/abi runtime/memory runtime/schedule", llvm=True),
    "codegen/region": _layer("codegen ir runtime/abi", llvm=True),
    "codegen/cpu": _layer("codegen codegen/region ir runtime/abi", llvm=True),
    "codegen/cuda": _layer("codegen codegen/region ir planner/reshard runtime/abi runtime/dtype", llvm=True),
}

# The form of an error is common to all layers and has no dependencies.
COMMON_HEADERS = {"runtime/abi/ClosestWord.h", "runtime/abi/Status.h"}

# These may use everything; only they may use each other.
TOP = ("tools", "tests")


def layer_of(path):
    """Returns the layer of a file or header: "tools" or "tests" for those, None for others."""
    parts = path.split("/")
    for depth in (2, 1):
        folder = "/".join(parts[:depth])
        if len(parts) > depth and (folder in LAYERS or folder in TOP):
            return folder
    return None
