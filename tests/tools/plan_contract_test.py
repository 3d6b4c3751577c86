"""usage: plan_contract_test.py TBC SOURCE_DIR

docs/plan.md is enough to execute a plan. The page's own function computes which elements of each
parameter, gradient and optimizer state every rank has, from plan.json alone. The compiled Program
must hold the same elements, and its collectives must be those of the layout.
"""

import collections
import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 2 else (None, None)

JOBS = [
    "tiny-gpt2 --gpus 4 --mesh dp=2,tp=2 --batch 8 --strategy ddp",
    "tiny-gpt2 --gpus 8 --mesh pp=2,fsdp=2,tp=2 --batch 8 --micro-batch 1 --seq 8 --precision f32",
    "tiny-gpt2 --gpus 4 --mesh dp=2,fsdp=2 --batch 8 --strategy hybrid-shard",
    "tiny-gpt2 --gpus 2 --batch 8 --mesh pp=2 --schedule zero-bubble --placement v --virtual-stages 2",
    "tiny-llama --gpus 4 --batch 8 --mesh cp=2,tp=2 --context ring --sequence-order zigzag",
    "tiny-resnet --gpus 4 --batch 8 --mesh dp=4 --strategy zero2",
    "tiny-mlp --gpus 3 --batch 9 --mesh fsdp=3",
    "moe-8l --gpus 8 --mesh ep=4,tp=2 --recompute full",
    "packed-llama --gpus 4 --mesh fsdp=2,tp=2 --recompute selective",
]


def page_function():
    text = (SOURCE / "docs/plan.md").read_text()
    scope = {}
    exec(re.search(r"(?ms)^```python\n(def indices.*?)^```\n", text)[1], scope)  # noqa: S102: the page's own code
    return scope["indices"]


def expand(patterns):
    """The names that patterns of plan.json stand for."""
    for pattern in patterns:
        found = re.search(r"(?<!\{)\{(\d+)\.\.(\d+)(?:\.\.(\d+))?\}", pattern)
        plain = lambda text: text.replace("{{", "{").replace("}}", "}")
        if not found:
            yield plain(pattern)
            continue
        first, last, step = (int(part or 1) for part in found.groups())
        for number in range(first, last + 1, step):
            yield plain(pattern[: found.start()]) + str(number) + plain(pattern[found.end() :])


def flattened(parts, shape, flat, mesh, coordinate):
    """The global element numbers on a rank, in local order; None is padding."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    elements = [sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*parts)]
    if not flat:
        return elements
    count, at = 1, 0
    for axis in flat:
        count, at = count * mesh[axis], at * mesh[axis] + coordinate[axis]
    chunk = -(-len(elements) // count)
    elements += [None] * (chunk * count - len(elements))
    return elements[at * chunk : (at + 1) * chunk]


def program_dim(segments, mesh, coordinate):
    """The indices of one dim of a Program's piece: segments of factors [size, axis...]."""
    result, begin = [], 0
    for factors in segments:
        inside, length = [0], 1
        for size, *axes in factors:
            first, part = 0, size
            for axis in axes:
                part //= mesh[axis]
                first += coordinate[axis] * part
            inside = [i * size + k for i in inside for k in range(first, first + part)]
            length *= size
        result += [begin + i for i in inside]
        begin += length
    return result


class PlanContractTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.indices = staticmethod(page_function())

    @classmethod
    @functools.cache
    def made(cls, job):
        """The plan of a job and its Program."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        model, *flags = job.split()
        plan = Path(folder.name, "plan.json")
        path = SOURCE / "models" / (model + ".onnx")
        for command in (["plan", path, *flags, "-o", plan],
                        ["compile", plan, "--model", path, "-o", folder.name + "/program", "--no-kernels"]):
            done = subprocess.run([TBC, *command], capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr
        program = json.loads(Path(folder.name, "program/program.json").read_text())["program"]
        return json.loads(plan.read_text()), program

    def elements(self, placement, shape, mesh, coordinate):
        parts = [self.indices(dim, size, mesh, coordinate) for dim, size in zip(placement["dims"], shape)]
        return flattened(parts, shape, placement.get("flat", []), mesh, coordinate)

    def same_elements(self, placement, shape, tensor, mesh):
        self.assertEqual("x".join(map(str, shape)), tensor["type"].rpartition("x")[0])
        self.assertEqual(set(placement.get("partial", [])), set(tensor.get("partial", [])), tensor["name"])
        for values in itertools.product(*(range(size) for size in mesh.values())):
            coordinate = dict(zip(mesh, values))
            parts = [program_dim(dim, mesh, coordinate) for dim in tensor["piece"]]
            expected = flattened(parts, shape, tensor.get("flat", []), mesh, coordinate)
            self.assertEqual(self.elements(placement, shape, mesh, coordinate), expected, (tensor["name"], coordinate))

    def test_every_rank_has_the_elements_that_the_page_says(self):
        compared = collections.Counter()
        for job in JOBS:
            with self.subTest(job):
                plan, program = self.made(job)
                layout = plan["layout"]
                mesh = {axis["axis"]: axis["size"] for axis in layout["axes"]}
                self.assertEqual([[axis["axis"], axis["size"]] for axis in layout["axes"]], program["mesh"])
                strides = [axis["stride"] for axis in layout["axes"]]
                self.assertEqual(strides, [axis["stride"] for axis in sorted(layout["axes"], key=lambda a: -a["stride"])])
                tensors = collections.defaultdict(list)
                for tensor in program["tensors"]:
                    tensors[tensor["name"]].append(tensor)
                named = set()
                for group in layout["parameters"]:
                    for path in expand(group["names"]):
                        name = layout["initializers"].get(path, path)
                        named.add(name)
                        (stored,) = tensors[name]
                        self.assertEqual(stored["role"], "parameter")
                        self.same_elements(group["stored"], group["shape"], stored, mesh)
                        compared["parameter"] += 1
                        for suffix, key in ((".grad", "gradient"), (".m", "optimizer_state"), (".master", "optimizer_state")):
                            for tensor in tensors[name + suffix]:
                                self.same_elements(group[key], group["shape"], tensor, mesh)
                                compared[suffix] += 1
                self.assertEqual(named, {t["name"] for t in program["tensors"] if t["role"] == "parameter"})
        self.assertTrue(all(compared[kind] > 50 for kind in ("parameter", ".grad", ".m", ".master")), compared)

    def test_collectives_are_those_of_the_prediction(self):
        for job in JOBS:
            with self.subTest(job):
                plan, _ = self.made(job)
                expected, actual = collections.Counter(), collections.Counter()
                for line in plan["prediction"]["collectives"]:
                    expected[line["kind"], line["axes"], line["stage"], line["bytes"]] += line["count"]
                for line in plan["layout"]["collectives"]:
                    for stage in line["stages"]:
                        actual[line["kind"], "+".join(line["axes"]), stage, line["bytes"]] += line["count"]
                self.assertEqual(actual, expected)

    def test_activations_of_modules_fit_to_their_weights(self):
        """A matmul's summed dim lies as the end of its input, the other one as the end of its output."""
        axes_of = lambda dim: {a for s in dim["segments"] for f in s for a in f["axes"]} if isinstance(dim, dict) else set(dim)
        compared = collections.Counter()
        for job in JOBS:
            plan, _ = self.made(job)
            modules = {name: group for group in plan["layout"]["modules"] for name in expand(group["names"])}
            for group in plan["layout"]["parameters"]:
                if len(group["shape"]) != 2 or len(group.get("summed", [])) != 1:
                    continue
                inner, outer = group["summed"][0], 1 - group["summed"][0]
                for path in expand(group["names"]):
                    module = modules.get(path.rpartition(".")[0], {"inputs": [], "outputs": []})
                    for kind, dim, tensors in (("input", inner, module["inputs"]), ("output", outer, module["outputs"])):
                        if len(tensors) == 1 and tensors[0]["shape"][-1] == group["shape"][dim]:
                            with self.subTest(job, path=path, kind=kind):
                                axes = axes_of(group["used"]["dims"][dim])
                                self.assertLessEqual(axes, axes_of(tensors[0]["dims"][-1]) | {"fsdp", "dp", "ep"})
                                compared[kind, bool(axes)] += 1
        self.assertTrue(all(compared[kind, split] > 10 for kind in ("input", "output") for split in (True, False)), compared)

    def test_an_edited_decision_is_noticed_without_the_model(self):
        plan, _ = self.made(JOBS[0])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "plan.json")
            plan["model"]["path"] = "nowhere.onnx"
            file.write_text(json.dumps(plan))
            explain = lambda: subprocess.run([TBC, "explain", file], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(explain().returncode, 0)
            plan["bucket_bytes"] += 1
            file.write_text(json.dumps(plan))
            self.assertEqual(explain().returncode, 2)
            self.assertIn("decisions were edited", explain().stderr)
            page = Path(folder, "page.html")
            report = subprocess.run([TBC, "report", file, "-o", page], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(report.returncode, 2)
            self.assertIn("decisions were edited", report.stderr)
            self.assertFalse(page.exists())


if __name__ == "__main__":
    unittest.main()
