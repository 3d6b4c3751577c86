"""usage: width_test.py TBC SOURCE_DIR

On a terminal, text fits its columns (80 at least) and keeps every character; in a pipe it is as wide
as its content. JSON is never folded. No command colours its answer.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
GPT2 = SOURCE / "models/gpt2.onnx"
COMMANDS = {
    "check": ["check", GPT2], "cluster": ["cluster"], "doctor": ["doctor"], "explain": ["explain", "mesh.json"],
    "verify": ["verify", "small.json", "--kernels", "--budget", "1"],
    "roofline": ["program", "show", "program", "--roofline"],
    "judge": ["judge", "bf16=True fsdp=full_shard per_device_train_batch_size=4", "--model", GPT2, "--gpus", "8", "--seq", "256", "--alone"],
    **{view: ["explain", "mesh.json", *view.split()] for view in ("--memory", "--comms", "--kernels", "--layers", "--rank 1", "--decisions", "--why tp=1", "--diff small.json")},
}
CODES = {"--diff small.json": 10}


class WidthTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        for words in (["plan", GPT2, "--gpus", "16", "--mesh", "pp=2,tp=2,fsdp=4", "--seq", "256", "--batch", "64", "-o", "mesh.json"],
                      ["plan", SOURCE / "models/tiny-gpt2.onnx", "--gpus", "2", "--mesh", "dp=2", "--batch", "8", "--seq", "16",
                       "--precision", "f32", "-o", "small.json"], ["compile", "small.json", "-o", "program"]):  # fmt: skip
            subprocess.run([TBC, *map(str, words)], cwd=cls.folder, capture_output=True, check=True, timeout=300)

    def piped(self, words, **variables):
        run = subprocess.run([TBC, *map(str, words)], cwd=self.folder, capture_output=True, timeout=300, env={**os.environ, **variables})
        return run.returncode, run.stdout.decode()

    def on_terminal(self, words, columns, **variables):
        """Returns the exit code and what is printed to a terminal of so many columns."""
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | {"TERM": "xterm", **variables}
        with subprocess.Popen([TBC, *map(str, words)], cwd=self.folder, stdout=other, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              env=environment) as run:  # fmt: skip
            os.close(other)
            text = b""
            while True:
                try:
                    part = os.read(main, 65536)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                text += part
            os.close(main)
            return run.wait(timeout=300), text.decode().replace("\r\n", "\n")

    def test_text_fits_a_terminal(self):
        for name, words in COMMANDS.items():
            with self.subTest(name):
                code, text = self.on_terminal(words, 80)
                self.assertEqual(code, CODES.get(name, 0), text)
                self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
                if name in ("doctor", "verify", "roofline"):  # numbers differ between two runs
                    continue
                self.assertEqual(sorted("".join(text.split())), sorted("".join(self.piped(words)[1].split())))
                wide = self.on_terminal(words, 300)[1]
                self.assertEqual(wide, self.piped(words)[1])
                self.assertNotIn("\x1b", text)
                self.assertEqual(self.on_terminal(words, 80, NO_COLOR="1")[1], text)

    def test_narrow_terminals_count_as_80_columns(self):
        words = COMMANDS["--layers"]
        self.assertEqual(self.on_terminal(words, 20), self.on_terminal(words, 80))
        self.assertEqual(self.on_terminal(words, 200, COLUMNS="80"), self.on_terminal(words, 80))

    def test_pipes_are_not_folded(self):
        words = COMMANDS["--layers"]
        self.assertGreater(max(map(len, self.piped(words)[1].splitlines())), 80)
        self.assertEqual(self.piped(words, COLUMNS="80"), self.piped(words))

    def test_json_is_not_folded(self):
        for name in ("check", "cluster", "explain", "--layers", "--rank 1"):
            words = [*COMMANDS[name], "--json"]
            self.assertEqual(self.on_terminal(words, 80)[1], self.piped(words)[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
