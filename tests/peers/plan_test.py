"""usage: plan_test.py TBC SOURCE_DIR

`tbc.Plan` reads what `tbc plan` writes: names, placements and predictions are those of the file, the
fingerprint is that of the C++ code, and a file that is no such plan is refused with the reason.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve())
sys.path.insert(0, str(SOURCE / "python"))

import tbc  # noqa: E402
from tbc.names import expand  # noqa: E402

JOBS = {
    "split": "tiny-gpt2 --gpus 4 --mesh fsdp=2,tp=2 --batch 8 --seq 16 --clip-norm 1 --epsilon 1e-7 --no-decay *.bias",
    "stages": "gpt2-8l --gpus 4 --mesh pp=2,dp=2 --batch 16 --micro-batch 2 --schedule zero-bubble --placement v --virtual-stages 2",
    "context": "tiny-llama --gpus 4 --batch 8 --mesh cp=2,tp=2 --context ring --sequence-order zigzag --recompute full",
    "experts": "moe-8l --gpus 8 --mesh ep=4,tp=2 --offload optimizer",
}


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.files = {}
        for name, job in JOBS.items():
            model, *flags = job.split()
            cls.files[name] = Path(cls.folder.name, name + ".json")
            command = [TBC, "plan", SOURCE / "models" / (model + ".onnx"), *flags, "-o", cls.files[name]]
            subprocess.run(command, check=True, capture_output=True, timeout=300)

    def edited(self, name, edit):
        content = json.loads(self.files[name].read_text())
        edit(content)
        file = Path(self.folder.name, "edited.json")
        file.write_text(json.dumps(content))
        return file

    def test_every_plan_is_read_with_its_fingerprint(self):
        for name, file in self.files.items():
            with self.subTest(name):
                plan, content = tbc.Plan.load(file), json.loads(file.read_text())
                self.assertEqual(plan.mesh, {axis: size for axis, size in plan.mesh.items() if content["mesh"][axis] == size})
                self.assertEqual(plan.ranks, content["job"]["gpus"])
                self.assertLess(plan.time.low, plan.time.value)
                self.assertLess(plan.memory.bytes.value, plan.memory.bytes.high)
                self.assertEqual(len(plan.stages), len(content["layout"]["chunks"]))
                self.assertEqual(sum(line.count for line in plan.collectives), sum(c["count"] for c in content["layout"]["collectives"]))

    def test_parameters_have_the_bytes_of_the_prediction(self):
        plan = tbc.Plan.load(self.files["split"])
        elements = sum(p.placements["stored"].local_elements(p.shape, plan.mesh) for p in plan.parameters.values())
        memory = plan.json["prediction"]["stages"][0]["memory"]
        stored = next(line["bytes"] for line in memory if line["name"] == "parameters")
        self.assertGreaterEqual(stored, 2 * elements)  # bf16, each tensor aligned
        self.assertLess(stored, 2 * elements + 512 * len(plan.parameters))

    def test_fused_weights_have_segments(self):
        plan = tbc.Plan.load(self.files["split"])
        weight = plan.parameters["transformer.h.1.attn.c_attn.weight"]
        self.assertEqual([[(f.size, f.axes) for f in s] for s in weight.placements["used"].dims[1].segments], [[(4, ("tp",)), (16, ())]] * 3)
        self.assertEqual(weight.placements["stored"].flat, ("fsdp",))
        self.assertEqual((weight.summed, weight.gather, weight.trained), ((0,), "use", True))
        self.assertEqual(plan.bindings("no-decay"), ["*.bias"])
        self.assertEqual(plan.setting["clip_norm"], 1)

    def test_names_are_expanded(self):
        self.assertEqual(expand(["h.{0..4..2}.fc", "a{{b}}", "n{3..4}"]), ["h.0.fc", "h.2.fc", "h.4.fc", "a{b}", "n3", "n4"])

    def test_edits_are_noticed_and_moves_are_not(self):
        self.assertEqual(tbc.Plan.load(self.edited("split", lambda c: c["model"].update(path="elsewhere.onnx"))).mesh["tp"], 2)
        for edit in (lambda c: c.update(bucket_bytes=1), lambda c: c["job"]["settings"].update(epsilon=1e-6)):
            with self.assertRaisesRegex(tbc.PlanError, r"edited.json: decisions were edited .* --derive FILE"):
                tbc.Plan.load(self.edited("split", edit))

    def test_what_is_no_plan_is_refused(self):
        cases = {
            'must be "tbc-plan"': lambda c: c.update(format="other"),
            "version 5 of plan.json; this package reads version 6": lambda c: c.update(version=5),
            'no complete key "layout"': lambda c: c["layout"].pop("modules"),
            "damaged: KeyError 'micro_batch'|decisions were edited": lambda c: c.pop("micro_batch"),
            "damaged: KeyError 'prediction'": lambda c: c.pop("prediction"),
        }
        for message, edit in cases.items():
            with self.subTest(message), self.assertRaisesRegex(tbc.PlanError, message):
                tbc.Plan.load(self.edited("split", edit))
        with self.assertRaisesRegex(tbc.PlanError, "nowhere.json cannot be read: No such file"):
            tbc.Plan.load("nowhere.json")
        text = Path(self.folder.name, "text.json")
        text.write_text("{")
        with self.assertRaisesRegex(tbc.PlanError, "is not JSON"):
            tbc.Plan.load(text)


if __name__ == "__main__":
    unittest.main()
