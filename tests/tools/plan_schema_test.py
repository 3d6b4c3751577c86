"""usage: plan_schema_test.py TBC SOURCE_DIR

Compares docs/plan.schema.json with the plans that tbc writes and reads. Every written key is
described; both refuse an undescribed key.
"""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import jsonschema  # Debian: python3-jsonschema

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 2 else (None, None)

# Together these plans have every key: stages, chunks, tp, ZeRO over two axes, recompute, offload, a
# loss scale, bindings, muon, experts, a cluster with keys that presets omit, and one with several kinds of nodes.
JOBS = {
    "data": "tiny-mlp --gpus 4 --batch 32 --precision f32 --optimizer sgd-momentum --momentum 0.8",
    "hybrid-shard": "tiny-gpt2 --gpus 8 --batch 16 --micro-batch 1 --mesh dp=2,fsdp=2,tp=2 --precision f16 --freeze *.bias",
    "one-by-one": "tiny-gpt2 --gpus 4 --batch 16 --micro-batch 1 --mesh fsdp=4 --strategy fsdp --bucket-size none --gather-size none",
    "pipeline": "tiny-gpt2 --cluster every-key.toml --executor nanotron --gpus 4 --mesh pp=2,dp=2 --batch 16 --micro-batch 2 --schedule 1f1b --recompute selective --offload all",
    "stages": "tiny-gpt2 --gpus 4 --mesh pp=2,dp=2 --batch 16 --micro-batch 2 --schedule 1f1b --zero 0 --pad-vocabulary 129",
    "mixed": "tiny-mlp --cluster mixed.toml --gpus 2 --mesh pp=2 --batch 16 --micro-batch 4",
    "experts": "moe-8l --gpus 4 --mesh dp=2,ep=2 --batch 16 --expert-imbalance 1.2",
    "fp8": "tiny-llama --gpus 2 --batch 16 --seq 64 --executor megatron --matmul-precision fp8",
    "chunks": "llama-8l --gpus 4 --seq 64 --mesh pp=4 --batch 16 --micro-batch 1 --schedule interleaved --top 8 --optimizer muon",
}


def objects(json_value, path=()):
    """Yields (path, object) of every object in a JSON value."""
    if isinstance(json_value, dict):
        yield path, json_value
        for key, value in json_value.items():
            yield from objects(value, (*path, key))
    elif isinstance(json_value, list):
        for index, value in enumerate(json_value):
            yield from objects(value, (*path, index))


def at(json_value, path):
    for step in path:
        json_value = json_value[step]
    return json_value


class PlanSchemaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads((SOURCE / "docs/plan.schema.json").read_text())
        cls.validator = jsonschema.Draft202012Validator(cls.schema)
        cls.folder = tempfile.TemporaryDirectory()
        cls.plans = {}
        text = subprocess.run([TBC, "cluster", "h100-sxm"], check=True, capture_output=True, text=True, timeout=60).stdout
        for section, line in (("device", "floor_seconds = 1e-6"), ("overlap", "slowdown = 0.2"),
                              ("kernel.causal_attention", "bytes_per_flop = 0.02"), ("memory", "kernel_workspace = false")):
            text = text.replace(f"[{section}]\n", f"[{section}]\n{line}\n")
        text += "[measured.nanotron]\ntime_factor = 0.5\ntime_uncertainty = 0.1\n"
        Path(cls.folder.name, "every-key.toml").write_text(text)
        Path(cls.folder.name, "mixed.toml").write_text(
            'name = "mixed"\ndescription = "two kinds"\n'
            + "".join(f'[[nodes]]\ncluster = "{cluster}"\ncount = 1\ndevices_per_node = 1\n' for cluster in ("l4", "l40s"))
            + "[network.between_groups]\nbytes_per_second = 1e9\nlatency_seconds = 1e-5\nstart_seconds = 2e-5\n")
        for name, job in JOBS.items():
            model, *flags = job.split()
            file = Path(cls.folder.name, name + ".json")
            subprocess.run(
                [TBC, "plan", SOURCE / "models" / (model + ".onnx"), *flags, "-o", file],
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, cwd=cls.folder.name,
            )
            cls.plans[name] = json.loads(file.read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def is_read(self, plan):
        file = Path(self.folder.name, "edited.json")
        file.write_text(json.dumps(plan))
        return subprocess.run([TBC, "explain", file], capture_output=True, timeout=60).returncode == 0

    def test_the_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_plans_are_valid(self):
        for name, plan in self.plans.items():
            with self.subTest(name):
                self.assertEqual([error.message for error in self.validator.iter_errors(plan)], [])
                self.assertTrue(self.is_read(plan))

    def test_the_plans_have_every_key_that_is_described(self):
        """Otherwise a key would be described that is never written."""
        written = {key for plan in self.plans.values() for _, value in objects(plan) for key in value}
        described = {
            key for _, value in objects(self.schema) if isinstance(value.get("properties"), dict)
            for key in value["properties"]
        }
        # These are written only if cp > 1, if a rank has a partial maximum, if a search ended early,
        # or if wgrad has that kind of work.
        self.assertEqual(described - written, {"context", "sequence_order", "partial_max", "search_end", "operands_weight",
                                               "recompute_weight", "data_weight", "host_weight", "launch_weight"})  # fmt: skip

    def test_every_key_has_a_description(self):
        for path, value in objects(self.schema):
            if path and path[-1] in ("properties", "$defs"):
                for key, entry in value.items():
                    self.assertTrue(entry.get("description", "").endswith("."), (path, key))

    def test_unknown_keys_are_refused_by_both(self):
        # In maps the keys are names. A name unknown to the model is refused when the plan is
        # applied.
        maps = {("layout", "initializers"), ("job", "bindings"), ("job", "settings"), ("cluster", "kernels"), ("cluster", "peak_flops_per_second"),
                ("cluster", "intra_node", "group_bytes_per_second")}
        maps |= {("cluster", "groups", 0, *path) for path in maps}
        for plan in (self.plans["chunks"], self.plans["hybrid-shard"], self.plans["mixed"]):
            seen = set()
            for path, _ in objects(plan):
                kind = tuple(step if isinstance(step, str) else 0 for step in path)
                if kind in seen or kind in maps:
                    continue
                seen.add(kind)
                edited = copy.deepcopy(plan)
                at(edited, path)["not_a_key"] = 1
                with self.subTest(kind):
                    self.assertFalse(self.validator.is_valid(edited))
                    self.assertFalse(self.is_read(edited))
            self.assertGreater(len(seen), 15)

    def test_too_many_kinds_of_nodes_are_refused_by_both(self):
        for count, is_valid in ((64, True), (65, False)):
            edited = copy.deepcopy(self.plans["mixed"])
            groups = edited["cluster"]["groups"]
            groups += [copy.deepcopy(groups[-1]) for _ in range(count - len(groups))]
            self.assertEqual(self.validator.is_valid(edited), is_valid)
            self.assertEqual(self.is_read(edited), is_valid)

    def test_missing_keys_are_refused_by_both(self):
        plan = self.plans["data"]
        for path, value in objects(plan):
            if any(isinstance(step, int) and step > 0 for step in path) or path[:1] == ("cluster",):
                continue
            if path[-1:] in (("bindings",), ("settings",), ("initializers",), ("parts",)):
                continue
            for key in value:
                if key in ("bucket_bytes", "gather_bytes", "prefetch", "memory", "warnings", "layout", "partial", "modules", "summed", "search"):
                    continue  # optional; a missing "partial" is found with the model
                if (*path, key) in (("prediction", "chunks"), ("prediction", "time", "launches")) or "work" in path and key in ("axes", "bytes"):
                    continue  # optional
                edited = copy.deepcopy(plan)
                del at(edited, path)[key]
                with self.subTest((*path, key)):
                    self.assertFalse(self.validator.is_valid(edited))
                    self.assertFalse(self.is_read(edited))

    def test_wrong_values_are_refused_by_both(self):
        for path, value in ((("mesh", "tp"), 0), (("schedule",), "zigzag"), (("micro_batch",), 1.5), (("fits",), 1),
                            (("recompute", "mode"), "some"), (("version",), 1), (("step_seconds",), "fast"),
                            (("parameters", "default", "zero"), 4), (("reasons", 0, "origin"), "guessed")):
            edited = copy.deepcopy(self.plans["data"])
            at(edited, path[:-1])[path[-1]] = value
            with self.subTest(path):
                self.assertFalse(self.validator.is_valid(edited))
                self.assertFalse(self.is_read(edited))


if __name__ == "__main__":
    unittest.main()
