"""usage: install_test.py CMAKE BUILD_DIR MODEL

Installs a build and uses it from elsewhere. It must not depend on the build or source folder, the
current directory, or the environment.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, BUILD_DIR, MODEL = sys.argv[1:4]
del sys.argv[1:]


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run(
            [CMAKE, "--install", BUILD_DIR, "--prefix", str(cls.folder / "first")],
            check=True,
            capture_output=True,
        )
        # The installation is moved, so a path fixed at installation shows.
        cls.prefix = cls.folder / "moved"
        (cls.folder / "first").rename(cls.prefix)
        shutil.copy(MODEL, cls.folder / "model.onnx")

    def tbc(self, *arguments):
        return subprocess.run(
            [self.prefix / "bin" / "tbc", *arguments],
            cwd=self.folder,
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def test_it_starts(self):
        run = self.tbc("--version")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"^tbc \d+\.\d+\.\d+\n$")

    def test_the_runner_starts(self):
        run = subprocess.run(
            [self.prefix / "bin" / "tbc-run", "--version"], env={}, capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"^tbc-run \d+\.\d+\.\d+\n$")

    def test_it_plans_with_a_preset(self):
        run = self.tbc("plan", "model.onnx", "--gpus", "4", "--cluster", "h100-sxm", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("mesh", json.loads(run.stdout))


if __name__ == "__main__":
    unittest.main()
