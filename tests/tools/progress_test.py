"""usage: progress_test.py TBC SOURCE_DIR

Tests the progress of a long command on stderr. On a terminal it is one rewritten line, removed at
the end. Elsewhere it is a line after five seconds, then at growing intervals.
"""

import signal
import subprocess
import sys
import tempfile
import time
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

    def test_a_run_says_whom_it_waits_for(self):
        with tempfile.TemporaryDirectory() as folder:
            plan, program = Path(folder, "plan.json"), Path(folder, "program")
            for command in (
                ["plan", SOURCE / "models/tiny-mlp.onnx", "--gpus", "2", "--mesh", "dp=2", "--batch", "8", "--precision", "f32", "-o", plan],
                ["compile", plan, "-o", program],
            ):
                subprocess.run([TBC, *command], check=True, capture_output=True, timeout=300)

            def alone(meeting, timeout):
                init = f"file://{Path(folder, meeting)}"
                return [TBC, "run", program, "--rank", "0", "--ranks", "2", "--init", init, "--timeout", timeout]

            code, out, err = on_terminal(alone("first", "3"))
            self.assertEqual((code, out), (7, b""), err)
            self.assertRegex(err, r"\rwaiting for rank 1 \(\d+ s\)\x1b\[K")
            self.assertIn("\r\x1b[Ktbc: rank 0: rank 1 of 2 did not come within 3000 ms", err)
            run = subprocess.run(alone("second", "8"), capture_output=True, timeout=300, text=True)
            meeting = Path(folder, "third")
            waiting = subprocess.Popen(alone("third", "300"), stderr=subprocess.PIPE, text=True)
            while not (meeting.is_dir() and any(meeting.iterdir())):
                time.sleep(0.05)
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=100)
            self.assertEqual(waiting.returncode, 8)
            self.assertIn("tbc: rank 0: stopped on request, waiting for rank 1", said)
        self.assertEqual(run.returncode, 7)
        self.assertRegex(run.stderr, r"^tbc: waiting for rank 1 \(5 s\)\ntbc: rank 0: rank 1 of 2 did not come within 8000 ms")

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
