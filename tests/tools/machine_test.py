"""usage: machine_test.py TBC SOURCE_DIR

Tests the commands that examine this machine: doctor and calibrate.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 2 else (None, None)


class MachineTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tbc-machine-"))

    def tearDown(self):
        shutil.rmtree(self.folder)

    def tbc(self, *arguments, **options):
        return subprocess.run([TBC, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, **options)  # fmt: skip

    def findings(self, **options):
        run = self.tbc("doctor", "--json", **options)
        report = json.loads(run.stdout)
        self.assertEqual(report["version"], 1)
        self.assertEqual(report["ok"], run.returncode == 0)
        for finding in report["findings"]:
            self.assertIn(finding["state"], ("ok", "missing", "problem"))
            self.assertEqual(finding["advice"] == "", finding["state"] == "ok", finding)
        return {finding["name"]: finding for finding in report["findings"]}

    def test_doctor_finds_what_there_is(self):
        findings = self.findings()
        self.assertTrue(findings["cores"]["found"].startswith(f"{len(os.sched_getaffinity(0))} usable"))
        self.assertEqual(findings["ranks over loopback"]["state"], "ok", findings["ranks over loopback"])
        text = self.tbc("doctor").stdout
        for name in findings:
            self.assertIn(f" {name} ", text)

    def test_doctor_says_how_to_mend_what_is_wrong(self):
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
        finding = self.findings(preexec_fn=few)["file descriptors"]
        self.assertEqual((finding["state"], finding["found"]), ("problem", "64 per process"))
        self.assertIn("ulimit -n", finding["advice"])
        finding = self.findings(env={**os.environ, "TMPDIR": "/proc"})["temporary files"]
        self.assertEqual(finding["state"], "problem")

    def test_doctor_sees_launchers_on_the_path(self):
        launcher = self.folder / "srun"
        launcher.write_text("#!/bin/sh\n")
        launcher.chmod(0o755)
        without = self.findings(env={**os.environ, "PATH": "/nowhere"})
        self.assertEqual(without["launchers"]["found"], "tbc run")
        self.assertEqual(without["linker"]["state"], "missing")
        found = self.findings(env={**os.environ, "PATH": str(self.folder)})
        self.assertEqual(found["launchers"]["found"], "tbc run, srun")

    def test_a_calibrated_cluster_is_one_to_plan_for(self):
        run = self.tbc("calibrate", "-o", "here.toml", "--quick", "--ranks", 2, "--name", "here")
        self.assertEqual(run.returncode, 0, run.stderr)
        text = (self.folder / "here.toml").read_text()
        cluster = tomllib.loads(text)
        self.assertEqual((cluster["name"], cluster["devices_per_node"]), ("here", 2))
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertEqual(cluster["device"]["memory_bytes"], total // 2)
        # Wide bounds that hold for any machine of the last twenty years.
        peak = cluster["device"]["peak_flops_per_second"]["f32"]
        self.assertTrue(1e7 < peak < 1e14, peak)
        self.assertTrue(1e8 < cluster["device"]["memory_bytes_per_second"] < 1e13)
        self.assertTrue(1e-8 < cluster["device"]["launch_seconds"] < 1e-2)
        network = cluster["network"]["intra_node"]
        self.assertTrue(0 < network["start_seconds"] + network["latency_seconds"] < 1)
        self.assertIn("#   matmul bf16, 16 x 16 x 16: ", text)
        self.assertIn("#   all_reduce of 64 bytes over 2 ranks: ", text)
        plan = self.tbc("plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", 2, "--cluster", "here.toml", "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertGreater(json.loads(plan.stdout)["step_seconds"], 0)

    def test_flags_that_cannot_be(self):
        self.assertEqual(self.tbc("calibrate", "-o", "x.toml", "--name", 'a"b').returncode, 2)
        self.assertEqual(self.tbc("calibrate").returncode, 2)


if __name__ == "__main__":
    unittest.main()
