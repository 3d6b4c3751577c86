"""usage: completion_test.py TBC SOURCE_DIR

The shells complete words of tbc: bash here, zsh and fish where they are installed. Candidates come
from the same table as --help.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()


def candidates(*words, folder=None):
    run = subprocess.run([TBC, "complete", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return run.stdout.splitlines()


def typed(shell, start, keys, folder):
    """Returns what a shell on a terminal prints after `keys`."""
    environment = {"PATH": f"{TBC.parent}:/usr/bin:/bin", "TERM": "dumb", "HOME": str(folder), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(shell[0], shell, environment)
    text = ""

    def until(pattern):
        nonlocal text
        end = time.monotonic() + 60
        while not re.search(pattern, text):
            if time.monotonic() > end or not select.select([terminal], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"{pattern} does not appear in {text!r}")
            text += os.read(terminal, 4096).decode(errors="replace")

    os.write(terminal, (start + "; echo rea''dy\n").encode())
    until("ready\r?\n")
    os.write(terminal, keys.encode())
    until(r"(?s)<.*?>\r?\n")
    os.close(terminal)
    os.waitpid(pid, 0)
    return re.findall(r"<([^<>]*)>\r?\n", text)[-1]


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        subprocess.run([TBC, "plan", SOURCE / "models/tiny-mlp.onnx", "--gpus", "2", "--batch", "8", "-o", "plan.json"],
                       cwd=cls.folder, capture_output=True, timeout=120, check=True)

    def help_of(self, *command):
        return subprocess.run([TBC, *command, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout

    def test_commands_and_flags_are_those_of_help(self):
        commands = set(re.findall(r"(?m)^  ([a-z]+)(?= )", self.help_of()))
        self.assertEqual(set(candidates("")), commands)
        self.assertGreater(len(commands), 14)
        for command in commands:
            listed = set(re.findall(r"(?m)^ +(?:-\w,)?(--[a-z][a-z0-9-]*)", self.help_of(command)))
            self.assertEqual(set(candidates(command, "--")), listed, command)

    def test_values(self):
        self.assertEqual(candidates("plan", "m.onnx", "--schedule", "zero"), ["zero-bubble"])
        self.assertEqual(candidates("plan", "--placement=l"), ["--placement=loop"])
        self.assertIn("h100-sxm", candidates("plan", "--cluster", "h"))
        self.assertIn("h100-sxm", candidates("cluster", "h100"))
        self.assertEqual(candidates("plan", "--mesh", "dp=2,"), ["dp=2,cp=", "dp=2,ep=", "dp=2,fsdp=", "dp=2,pp=", "dp=2,tp="])
        self.assertEqual(candidates("completion", ""), ["bash", "fish", "zsh"])
        self.assertIn("TBC0206", candidates("help", "TBC02"))
        self.assertEqual(candidates("plan", "--gpus", ""), [])
        self.assertEqual(candidates("plan", ""), [":files"])
        self.assertEqual(candidates("checkpoint", "con"), ["consolidate"])

    def test_tensors_are_those_of_the_plan_on_the_line(self):
        found = candidates("explain", "plan.json", "--tensor", "fc1", folder=self.folder)
        self.assertEqual(found, ["fc1.bias", "fc1.weight"])
        self.assertEqual(candidates("explain", "missing.json", "--tensor", "", folder=self.folder), [])

    def check_shell(self, shell, start, end):
        for word, completed in (("tbc tim", "tbc timeline "), ("tbc plan --sched", "tbc plan --schedule "),
                                ("tbc explain plan.json --tensor fc2.w", "tbc explain plan.json --tensor fc2.weight "),
                                ("tbc plan --mesh dp=2,t", "tbc plan --mesh dp=2,tp=")):
            with self.subTest(word):
                self.assertEqual(typed(shell, start, f"{word}\t{end}", self.folder).rstrip(), completed.rstrip())

    def test_bash_completes(self):
        # Once completed, quotes around the line let echo show it as it is.
        self.check_shell(["/bin/bash", "--norc", "--noprofile", "-i"], "source <(tbc completion bash); set +o history",
                         "\x01echo '<\x05>'\n")

    def test_zsh_completes(self):
        zsh = shutil.which("zsh")
        if not zsh:
            self.skipTest("zsh is not installed")
        self.check_shell([zsh, "-f", "-i"], "autoload -U compinit; compinit -u; source <(tbc completion zsh)",
                         "\x01echo '<\x05>'\n")

    def test_fish_completes(self):
        fish = shutil.which("fish")
        if not fish:
            self.skipTest("fish is not installed")
        run = subprocess.run([fish, "--no-config", "-c", "tbc completion fish | source; complete -C 'tbc tim'; complete -C 'tbc plan --sched'"],
                             cwd=self.folder, capture_output=True, text=True, timeout=60,
                             env={**os.environ, "PATH": f"{TBC.parent}:/usr/bin:/bin", "HOME": str(self.folder)})
        self.assertEqual(run.stdout.split(), ["timeline", "--schedule"], run.stderr)

    def test_the_examples_of_help_run(self):
        examples = re.findall(r"(?m)^  \$ (.*)$", self.help_of())
        self.assertEqual(len(examples), 3)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "models").symlink_to(SOURCE / "models")
            for command in examples:
                run = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300,
                                     env={**os.environ, "PATH": f"{TBC.parent}:{os.environ['PATH']}"})
                self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
