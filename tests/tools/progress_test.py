"""usage: progress_test.py TBC SOURCE_DIR

Tests the progress of a long command on stderr. On a terminal it is one rewritten line, removed at
the end. Elsewhere it is a line after five seconds, then at growing intervals.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from terminal import on_terminal

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1))) if len(sys.argv) > 2 else (None, None)


class ProgressTest(unittest.TestCase):
    # A large search. It may still end before the first second, after which progress is printed.
    PLAN = [TBC, "plan", SOURCE / "models/gpt2.onnx", "--gpus", "1024", "--batch", "4096"]

    def test_a_terminal_gets_one_line_that_is_gone_at_the_end(self):
        code, out, err = on_terminal(self.PLAN, is_slow=True)
        self.assertEqual(code, 0, err)
        self.assertIn(b"fits: ", out)
        self.assertNotIn(b"\x1b", out)
        lines = [line for line in err.replace("\r\n", "\n").split("\n") if "\r" in line]
        self.assertTrue(lines, "nothing was said")
        for line in lines:
            self.assertTrue(line.rsplit("\r", 1)[1].startswith("\x1b[K"), line)
        self.assertIn(" s)", "".join(lines))

    def test_verify_says_what_it_does(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = [TBC, "plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", "4", "--mesh", "dp=2,tp=2", "--batch", "8", "--seq", "16",
                    "--precision", "f32", "-o", Path(folder, "plan.json")]  # fmt: skip
            subprocess.run(plan, check=True, capture_output=True, timeout=300)
            code, out, err = on_terminal([TBC, "verify", Path(folder, "plan.json")], is_slow=True)
        self.assertEqual(code, 0, err)
        self.assertIn(b"verified", out)
        self.assertRegex(err, r"\r(importing the model|compiling the program|running all ranks.*|comparing kernels.*) \(\d+ s\)")
        self.assertTrue(err.endswith("\r\x1b[K"), err)

    def test_others_get_a_line_after_five_seconds(self):
        # So many meshes that the search ends by its time limit.
        plan = [TBC, "plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", "720720", "--time-limit", "8"]
        run = subprocess.run(plan, capture_output=True, timeout=300, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)  # it answers nevertheless
        said = [line for line in run.stderr.splitlines() if not line.startswith("tbc: warning: ")]
        self.assertRegex(said[0], r"^tbc: searching.* \(5 s\)$")
        for line in said:
            self.assertRegex(line, r"^tbc: [a-z].* \(\d+ s\)$")

    def test_others_get_no_control_characters(self):
        run = subprocess.run(self.PLAN, capture_output=True, timeout=300)
        self.assertEqual(run.returncode, 0)
        for line in run.stderr.decode().splitlines():
            self.assertRegex(line, r"^tbc: (warning: .*|.* \(\d+ s\))$")
            self.assertTrue(line.isprintable(), line)
        code, _, err = on_terminal(self.PLAN, term="dumb", is_slow=True)
        self.assertEqual(code, 0)
        self.assertNotIn("\x1b", err)


if __name__ == "__main__":
    unittest.main()
