"""usage: progress_test.py TBC SOURCE_DIR

What a long command says on stderr: one rewritten line on a terminal, nothing into a pipe, and nothing that stays.
"""

import subprocess
import sys
import unittest
from pathlib import Path

from terminal import on_terminal

TBC, SOURCE = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1))) if len(sys.argv) > 2 else (None, None)


class ProgressTest(unittest.TestCase):
    # With much to search. It may still take less than the second after which something is said.
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

    def test_others_get_nothing(self):
        run = subprocess.run(self.PLAN, capture_output=True, timeout=300)
        self.assertEqual(run.returncode, 0)
        for line in run.stderr.decode().splitlines():
            self.assertTrue(line.startswith("tbc: warning: "), line)
        code, _, err = on_terminal(self.PLAN, term="dumb", is_slow=True)
        self.assertEqual(code, 0)
        self.assertNotIn("\x1b", err)
        self.assertNotIn("searching", err)


if __name__ == "__main__":
    unittest.main()
