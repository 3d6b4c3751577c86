"""usage: onnx_annotations_test.py TBC SOURCE_DIR   (with onnx)

Multi-device annotations of ONNX, read and written by the package onnx: those of `tbc export --to onnx`, and those
of others as pins of `tbc plan`. What a plan cannot express is refused with the node's name.
"""

import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
del sys.argv[1:3]

import onnx  # noqa: E402

JOB = "--batch 8 --seq 16 --precision f32 --pad-vocabulary 1"
QKV = "transformer.h.0.attn.c_attn.weight"


def shard(tensor, axis, *parts, devices=()):
    """Returns a sharding: parts are numbers of shards, or pairs of blocks and shards."""
    spec = onnx.ShardingSpecProto(tensor_name=tensor, device=devices)
    dim = spec.sharded_dim.add(axis=axis)
    for part in parts:
        size, count = part if isinstance(part, tuple) else (None, part)
        dim.simple_sharding.add(dim_value=size, num_shards=count)
    return spec


class AnnotationsTest(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = Path(kept.name)

    def tbc(self, *arguments):
        return subprocess.run([str(TBC), *map(str, arguments)], capture_output=True, text=True)

    def plan(self, model, flags):
        file = self.folder / "plan.json"
        done = self.tbc("plan", model, *flags.split(), *JOB.split(), "-o", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(file.read_text())

    def annotated(self, name, num_devices, nodes, configurations=("theirs",)):
        """Writes a model of models/ with stages and shardings by node name."""
        model = onnx.load(SOURCE / "models" / f"{name}.onnx", load_external_data=False)
        model.ir_version = 11
        for configuration in configurations:
            model.configuration.add(name=configuration, num_devices=num_devices)
        for node in model.graph.node:
            stage, *specs = nodes.get(node.name, (None,))
            if node.name in nodes:
                node.device_configurations.add(configuration_id="theirs", pipeline_stage=stage, sharding_spec=specs)
        file = self.folder / "annotated.onnx"
        onnx.save(model, file)
        return file

    def test_onnx_reads_an_export(self):
        plan = self.plan(SOURCE / "models/tiny-gpt2.onnx", "--gpus 8 --mesh pp=2,fsdp=2,tp=2 --micro-batch 1")
        file = self.folder / "exported.onnx"
        done = self.tbc("export", self.folder / "plan.json", "--to", "onnx", "-o", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        onnx.checker.check_model(file, full_check=True)
        model = onnx.load(file, load_external_data=False)
        (configuration,) = model.configuration
        self.assertEqual((configuration.num_devices, len(configuration.device)), (8, 8))
        self.assertEqual(configuration.device[5], "pp=1 fsdp=0 tp=1")
        before = onnx.load(SOURCE / "models/tiny-gpt2.onnx", load_external_data=False)
        nodes = {node.name: node.device_configurations[0] for node in model.graph.node if node.device_configurations}
        for node in model.graph.node:
            del node.device_configurations[:]
        self.assertEqual(model.graph, before.graph)
        self.assertEqual({given.configuration_id for given in nodes.values()}, {configuration.name})
        self.assertEqual({given.pipeline_stage for given in nodes.values()}, {0, 1})
        for given in nodes.values():
            for spec in given.sharding_spec:
                self.check_devices(given, spec)
        self.check_parameters(plan, nodes)

    def check_devices(self, given, spec):
        """Each shard is on devices of the node's stage, and all of them have one."""
        groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
        shards = [groups.get(device, [device]) for device in spec.device]
        count = math.prod(part.num_shards for dim in spec.sharded_dim for part in dim.simple_sharding)
        self.assertEqual(len(shards), count, spec.tensor_name)
        stage = [4 * given.pipeline_stage + rank for rank in range(4)]
        self.assertEqual(sorted(rank for group in shards for rank in group), stage)

    def check_parameters(self, plan, nodes):
        """Shards of parameters are those that plan.json has for their use."""
        used = {name: entry["used"]["dims"] for entry in plan["layout"]["parameters"] for name in entry["names"]}
        checked = 0
        for given in nodes.values():
            for spec in given.sharding_spec:
                if spec.tensor_name not in used:
                    continue
                tp = {dim.axis for dim in spec.sharded_dim}
                planned = {axis for axis, dim in enumerate(used[spec.tensor_name]) if "tp" in json.dumps(dim)}
                self.assertEqual(tp, planned, spec.tensor_name)
                checked += 1
        self.assertGreater(checked, 20)

    def test_shardings_of_others(self):
        """Column and row splits of an MLP over 2 devices, a stage each, without tbc's flags."""
        file = self.annotated("tiny-mlp", 2, {
            "node_linear": (None, shard("fc1.weight", 0, 2), shard("fc1.bias", -1, 2)),
            "node_linear_1": (None, shard("fc2.weight", 1, 2, devices=(0, 1))),
        })  # fmt: skip
        done = self.tbc("plan", file, "--gpus", 2, "--batch", 8, "--precision", "f32", "-o", self.folder / "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual((plan["mesh"]["tp"], plan["mesh"]["dp"]), (2, 1))
        pins = {reason["value"] for reason in plan["reasons"] if reason["decision"] == "pin"}
        self.assertLessEqual({"node_linear=column", "node_linear_1=row"}, pins)
        free = self.tbc("plan", file, "--gpus", 2, "--batch", 8, "--precision", "f32", "--ignore-annotations", "--mesh",
                        "dp=2")  # fmt: skip
        self.assertEqual(free.returncode, 0, free.stderr)

    def test_stages_of_others(self):
        file = self.annotated("tiny-llama", 4, {"node_embedding": (0,), "node_linear_7": (1,), "node_linear_14": (1,)})
        plan = self.plan(file, "--gpus 4")
        self.assertEqual(plan["mesh"]["pp"], 2)
        self.assertEqual([name.split(".")[0] for name in plan["stages"][1:]], ["node_linear_7"])

    def test_refusals_name_the_node(self):
        embedding = shard("lm_head.weight", 1, 2)
        cases = {
            "3 parts": ({"node_addmm": (None, shard(QKV, 1, 2))}, "node_addmm", "axis 1 in 2 shards"),
            "3 shards": ({"node_addmm": (None, shard(QKV, 1, (3, 1), 3)), "node_embedding": (None, embedding)},
                         "node_addmm", "3 shards of .*, and others have 2"),
            "an order": ({"node_embedding": (None, shard("lm_head.weight", 1, 2, devices=(1, 0)))}, "node_embedding",
                         "on the devices it names"),
            "a device": ({"node_embedding": (None, shard("lm_head.weight", 1, 2, devices=(0, 2)))}, "node_embedding",
                         "device 2 of 2"),
            "a count": ({"node_embedding": (None, shard("lm_head.weight", 1, 2, devices=(0,)))}, "node_embedding",
                        "names 1 devices or groups"),
            "an axis": ({"node_embedding": (None, shard("lm_head.weight", 2, 2))}, "node_embedding", "2 dims"),
            "a tensor": ({"node_embedding": (None, shard(QKV, 1, 2))}, "node_embedding", "none of its inputs"),
            "stages": ({"node_embedding": (1,), "node_addmm": (0,)}, "node_embedding", "pipeline stage 1"),
            "a gap": ({"node_embedding": (0,), "node_addmm": (2,)}, "node_addmm", "stage 2 after stage 0"),
        }  # fmt: skip
        for name, (nodes, node, words) in cases.items():
            with self.subTest(name):
                self.refused(self.annotated("tiny-gpt2", 2, nodes), 2, rf"node '{node}': .*({words})")

    def test_refusals(self):
        nodes = {"node_embedding": (None, shard("lm_head.weight", 1, 2))}
        self.refused(self.annotated("tiny-gpt2", 2, nodes), 1, "for 2 devices, not --gpus 1")
        self.refused(self.annotated("tiny-gpt2", 4, nodes, ("theirs", "more")), 4, "2 device configurations")
        self.refused(self.annotated("tiny-gpt2", 2, nodes, ("ours",)), 2, "node 'node_embedding': .*'theirs' is not")
        self.refused(self.annotated("tiny-gpt2", 2, nodes, ()), 2, "node 'node_embedding': .*does not have")
        file = self.annotated("tiny-gpt2", 2, nodes)
        done = self.tbc("plan", file, "--gpus", 2, *JOB.split(), "--mesh", "dp=2")
        self.assertEqual(done.returncode, 2, done.stdout)

    def refused(self, file, gpus, words):
        done = self.tbc("plan", file, "--gpus", gpus, *JOB.split())
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, words)

    def test_changed_stages_contradict_the_flags(self):
        self.plan(SOURCE / "models/tiny-gpt2.onnx", "--gpus 2 --mesh pp=2 --pin node_layer_norm_2=begin --schedule 1f1b")
        file = self.folder / "exported.onnx"
        self.tbc("export", self.folder / "plan.json", "--to", "onnx", "-o", file)
        model = onnx.load(file, load_external_data=False)
        for node in model.graph.node:
            if node.name == "node_addmm_2":
                node.device_configurations[0].pipeline_stage = 1
        onnx.save(model, file)
        self.refused(file, 2, "node 'node_addmm_2': .*tbc.flags")
        del model.metadata_props[:]
        onnx.save(model, file)
        self.refused(file, 2, "node 'node_addmm_2': .* on the devices it names")


if __name__ == "__main__":
    unittest.main()
