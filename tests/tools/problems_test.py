"""usage: problems_test.py TBC SOURCE_DIR [--write]

Every kind of problem (runtime/abi/Problems.def) has a page of `tbc help CODE`, a row of docs/errors.md,
and a command here that triggers it. Every error of check, plan, explain and compile is of a kind.
With --write, docs/errors.md is written.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
PAGE = SOURCE / "docs/errors.md"

# Code: a shell command that prints it, after the set-up below. Its exit code is the code's.
CASES = {
    "TBC0100": "tbc run program --log .",
    "TBC0101": "tbc plan mlp.onnx --gpus 2 -o missing/plan.json",
    "TBC0102": "tbc cluster > /dev/full",
    "TBC0103": "TMPDIR=/missing tbc compile plan.json -o linked --no-cache",
    "TBC0200": "tbc calibrate --name 'a\"b' -o x.toml",
    "TBC0201": "tbc plan mlp.onnx --gpus 8 --mehs dp=8",
    "TBC0202": "tbc plan mlp.onnx --gpus eight",
    "TBC0203": "tbc plan mlp.onnx",
    "TBC0204": "tbc run program --steps 2 --epochs 1",
    "TBC0205": "tbc explain missing.json",
    "TBC0206": "tbc explain broken.json",
    "TBC0207": "tbc compile edited.json -o other",
    "TBC0208": "tbc compile plan.json --model other.onnx -o other",
    "TBC0209": "tbc plan mlp.onnx --gpus 8 --cluster h1000",
    "TBC0210": "tbc plan mlp.onnx --gpus 4 --mesh dp=two",
    "TBC0211": "tbc plan mlp.onnx --gpus 4 --batch 8 --mesh dp=4 --schedule 1f1b",
    "TBC0212": "tbc plan mlp.onnx --gpus 4 --memory-limit 80",
    "TBC0213": "tbc check mlp.onnx --freeze 'nothing*'",
    "TBC0214": "tbc compile plan.json -o other --cpu x86-64-v9",
    "TBC0215": "tbc explain plan.json --rank 99",
    "TBC0217": "tbc run mlp.onnx",
    "TBC0218": "tbc run program --nproc 3",
    "TBC0219": "tbc run program --lr 1 --lr-min 2",
    "TBC0220": "tbc help TBC0999",
    "TBC0300": "tbc checkpoint consolidate saved -o w.onnx --model broken.onnx",
    "TBC0301": "tbc check broken.onnx",
    "TBC0302": "tbc plan mlp.onnx --gpus 2 --freeze '*'",
    "TBC0400": "tbc plan mlp.onnx --gpus 1 --batch 8 --memory-limit 1MiB",
    "TBC0500": "tbc verify damaged",
    "TBC0900": "mkdir empty; tbc checkpoint consolidate empty -o weights.safetensors",
    "TBC1100": "tbc run program --steps 9 --lr 1e38",
}


def shell(command, folder):
    environment = {**os.environ, "PATH": f"{TBC.parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300, env=environment)


def damage(folder):
    """Gives a Program another activation, and seals it again."""
    def sha256(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    program, run, seal = (folder / name for name in ("program.json", "run.json", "seal.json"))
    before = sha256(program)
    head, payload = program.read_text().replace('"op":"relu",', '"op":"neg",').split('"program":\n')
    payload = payload[: -len("}\n")]
    head = re.sub('"sha256":"[0-9a-f]*"', f'"sha256":"{hashlib.sha256(payload.encode()).hexdigest()}"', head)
    program.write_text(head + '"program":\n' + payload + "}\n")
    run.write_text(run.read_text().replace(before, sha256(program)))
    content = json.loads(seal.read_text())
    for line, file in zip(content["files"], (program, run)):
        line.update(bytes=file.stat().st_size, sha256=sha256(file))
    hashed = json.dumps({key: content[key] for key in ("files", "sources")}, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(hashed.encode()).hexdigest()
    seal.write_text(json.dumps(content, indent=1) + "\n")


def pages():
    """Returns {code: page} as `tbc help` prints them."""
    listed = shell("tbc help errors", ".").stdout
    return {code: shell(f"tbc help {code}", ".").stdout for code in re.findall(r"(?m)^  (TBC\d{4}) ", listed)}


def document(found):
    text = ("# Errors\n\nThe end of a message has the code of its kind of problem, as in `[TBC0206]`; `tbc help TBC0206`\n"
            "prints its page. The first digits are the exit code. This page is made of those pages.\n")
    for code, page in found.items():
        title, *rest = page.split("\n\n")
        parts = [re.sub(r"\s+", " ", part).strip() for part in rest]
        meaning, example, remedy = parts[0], parts[1].removeprefix("Example "), parts[2].removeprefix("What to do ")
        text += f"\n## {title}\n\n"
        for words in (meaning, f"Example: `{example}`", f"Remedy: {remedy}"):
            line = ""
            for word in words.split():
                if line and len(line) + 1 + len(word) > 100:
                    text += line + "\n"
                    line = ""
                line += (" " if line else "") + word
            text += line + "\n\n"
        text = text.rstrip("\n") + "\n"
    return text


class ProblemsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = pages()
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        shutil.copy(SOURCE / "models/tiny-mlp.onnx", cls.folder / "mlp.onnx")
        shutil.copy(SOURCE / "models/tiny-gpt2.onnx", cls.folder / "other.onnx")
        made = shell("tbc plan mlp.onnx --gpus 2 --batch 8 --mesh dp=2 -o plan.json && tbc compile plan.json -o program", cls.folder)
        assert made.returncode == 0, made.stderr
        made = shell("tbc run program --steps 1 --checkpoint saved && tbc compile plan.json -o damaged --no-kernels", cls.folder)
        assert made.returncode == 0, made.stderr
        damage(cls.folder / "damaged")
        plan = cls.folder.joinpath("plan.json").read_text()
        cls.folder.joinpath("edited.json").write_text(re.sub(r'(?m)^ "accumulation": 1', ' "accumulation": 2', plan.replace('"micro_batch": 4,', '"micro_batch": 2,')))
        cls.folder.joinpath("broken.json").write_text("{}")
        cls.folder.joinpath("broken.onnx").write_text("hello\n")

    def check_code(self, code, run):
        self.assertIn(f" [{code}]\n", run.stderr)
        self.assertEqual(len(set(re.findall(r"\[(TBC\d{4})\]", run.stderr))), 1, run.stderr)

    def test_each_problem_is_triggered(self):
        for code, command in CASES.items():
            with self.subTest(code):
                run = shell(command, self.folder)
                self.check_code(code, run)
                self.assertEqual(run.returncode, int(code[3:]) // 100, run.stderr)

    def test_every_problem_has_a_case(self):
        self.assertEqual(set(CASES) - set(self.pages), set())
        self.assertEqual(set(self.pages) - set(CASES), set(SIGNALS))

    def test_ranks_that_are_killed_or_stopped(self):
        for code, (flags, sent) in SIGNALS.items():
            with self.subTest(code):
                log = self.folder / "log.txt"
                with open(log, "w") as messages, subprocess.Popen(
                    [TBC, "run", "program", "--steps", "100000000", *flags.split()], cwd=self.folder,
                    stdout=subprocess.PIPE, stderr=messages, text=True,
                ) as run:
                    self.assertTrue(any("step 2" in line for line in run.stdout))
                    ranks = [int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
                    os.kill(run.pid if sent == signal.SIGTERM else ranks[-1], sent)
                    run.stdout.read()
                    self.assertEqual(run.wait(timeout=60), int(code[3:]) // 100)
                self.assertIn(f"[{code}]", log.read_text())

    def test_every_page_has_its_parts(self):
        for code, page in self.pages.items():
            self.assertRegex(page, rf"(?s)^{code}: .+\n\n  .+\n\nExample\n  .+\n\nWhat to do\n  .+\n\nThe exit code is {int(code[3:]) // 100}\.\n$")
            self.assertLessEqual(max(map(len, page.splitlines())), 80)

    def test_the_document_is_current(self):
        self.assertEqual(PAGE.read_text(), document(self.pages), "write it with problems_test.py TBC SOURCE_DIR --write")

    def test_errors_of_check_plan_explain_and_compile_are_of_a_kind(self):
        """They are made by problem() or ofKind()."""
        for name in ("CheckCommand", "PlanCommand", "PlanOptions", "ExplainCommand", "CompileCommand", "ModelOptions", "Files"):
            text = (SOURCE / f"tools/tbc/{name}.cpp").read_text()
            bare = [match for match in re.findall(r"return Error\{ErrorCode[^;]*", text)]
            self.assertEqual(bare, [], name)


SIGNALS = {
    "TBC0600": ("", signal.SIGKILL),
    "TBC0700": ("--timeout 2", signal.SIGSTOP),
    "TBC0800": ("--checkpoint stopped", signal.SIGTERM),
}

if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(document(pages()))
    else:
        unittest.main()
