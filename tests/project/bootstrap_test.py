"""usage: bootstrap_test.py BOOTSTRAP

Tests the answers of ./bootstrap without building: help, mistakes, missing packages, no root.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BOOTSTRAP = sys.argv.pop(1) if len(sys.argv) > 1 else None


class BootstrapTest(unittest.TestCase):
    def run_bootstrap(self, *arguments, **programs):
        """Runs ./bootstrap with `programs` ({name: shell text}) ahead of the machine's in PATH."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in programs.items():
                file = Path(folder, name.replace("_", "-"))
                file.write_text(f"#!/bin/sh\n{text}\n")
                file.chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            return subprocess.run(
                [BOOTSTRAP, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )

    def test_help_names_every_option(self):
        run = self.run_bootstrap("--help")
        self.assertEqual(run.returncode, 0)
        for option in ("--preset", "--no-build", "--no-tests", "--no-install", "--unity", "--help"):
            self.assertIn(option, run.stdout)

    def test_mistakes_are_usage_errors(self):
        for arguments, message in (
            (["--nope"], "unknown option '--nope'"),
            (["--preset", "fast"], "unknown preset 'fast'"),
            (["--preset"], "--preset needs a name"),
        ):
            run = self.run_bootstrap(*arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(message, run.stderr)
            self.assertEqual(run.stdout, "")

    def test_missing_packages_are_named_and_not_installed_when_told_so(self):
        run = self.run_bootstrap(
            "--no-install",
            # As if all packages but ninja-build were installed.
            dpkg_query='shift 3; for p; do [ "$p" = ninja-build ] || echo "$p installed"; done',
            apt_get="echo called >&2; exit 1",
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("missing packages: ninja-build\n", run.stdout)
        self.assertNotIn("called", run.stderr)

    def test_a_failed_update_is_explained(self):
        if os.geteuid() != 0:
            self.skipTest("asks for sudo's password when not root")
        run = self.run_bootstrap(dpkg_query="exit 1", apt_get="exit 100")
        self.assertEqual(run.returncode, 1)
        self.assertIn("apt-get update failed", run.stderr)


if __name__ == "__main__":
    unittest.main()
