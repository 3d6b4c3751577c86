"""usage: bare_root_test.py SOURCE_DIR BUILD_DIR

The wheel works on a machine with Python and glibc alone: in a root directory tbc plans GPT-2 as it
does here. Where debootstrap is installed and reaches a mirror, the root is a minimal Debian 12 with
Python. Elsewhere it gets the Python that runs this test, its standard library and the libraries that
those need. Skipped where a process may not change its root.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD = (Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve())
LIBRARY = re.compile(r"(?:=> |^\s*)(/\S+)", re.M)
# The loader of programs reads /proc, which every machine has.
CHROOT = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --rbind /proc "$0/proc" && exec unshare --root="$0" "$@"']
PLAN = """
import sys, warnings
warnings.simplefilter("ignore")
import tbc
plan = tbc.plan("/gpt2.onnx", gpus=16, batch=512)
plan.save("/plan.json")
print(plan.mesh, tbc.__file__)
"""


def needed(file):
    """Returns the shared libraries that a file needs, by their full paths."""
    done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    return {Path(path) for path in LIBRARY.findall(done.stdout)}


def copy(file, root):
    """Copies a file to the same place in `root`, links followed."""
    target = root / str(file).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(file, target)


def assemble(root):
    """Copies Python, its standard library and their libraries into `root`. Returns Python's path."""
    python = Path(os.path.realpath(sys.executable))
    standard = Path(sysconfig.get_path("stdlib"))
    leave_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "tkinter", "config-*", "ensurepip")
    shutil.copytree(standard, root / str(standard).lstrip("/"), ignore=leave_out)
    for file in [python, *(standard / "lib-dynload").glob("*.so")]:
        copy(file, root)
        for library in needed(file):
            copy(library, root)
    for folder in ("tmp", "proc"):
        (root / folder).mkdir(parents=True)
    return python


def bootstrap(root):
    """Makes a Debian 12 with Python in `root`. Returns Python's path, or None if that fails."""
    program = shutil.which("debootstrap", path="/usr/sbin:/usr/bin")
    if program is None:
        return None
    # Its mounts and processes end with its namespace, so that none is left below `root`.
    line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", program, "--variant=minbase",
            "--include=python3-minimal,libpython3-stdlib", "bookworm", root]  # fmt: skip
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        print("debootstrap took more than four minutes")
        return None
    if done.returncode != 0:
        print("debootstrap failed:", *done.stdout.splitlines()[-3:], *done.stderr.splitlines()[-3:], sep="\n  ")
        return None
    return Path("/usr/bin/python3")


class BareRootTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = Path(tempfile.mkdtemp(prefix="tbc-root-"))
        # Not rmtree, which would follow a mount.
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", "--one-file-system", folder], check=True)
        cls.root = folder / "debian"
        cls.python = bootstrap(cls.root)
        cls.is_debian = cls.python is not None
        if not cls.is_debian:
            cls.root = folder / "assembled"
            cls.python = assemble(cls.root)
        print("root:", "debootstrap" if cls.is_debian else "Python, its libraries and glibc")
        wheel = next((BUILD / "wheel").glob("*.whl"))
        pip = [BUILD / "wheel/venv/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--quiet",
               "--disable-pip-version-check", "--target", cls.root / "site", wheel]  # fmt: skip
        subprocess.run(pip, check=True)
        shutil.copy(SOURCE / "models/gpt2.onnx", cls.root)

    def run_in_root(self, *words):
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/site", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*CHROOT, self.root, *words], env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_nothing_else_is_there(self):
        if not self.is_debian:  # apt needs libstdc++
            names = {file.name for file in self.root.rglob("*.so*") if "site" not in file.relative_to(self.root).parts}
            self.assertFalse([name for name in names if re.match("lib(stdc|LLVM|MLIR|protobuf|gloo|dnnl)", name)])

    def test_gpt2_is_planned_as_here(self):
        out = self.run_in_root(self.python, "-c", PLAN)
        self.assertIn("/site/tbc/__init__.py", out)
        command = [BUILD / "bin/tbc", "plan", "gpt2.onnx", "--gpus", "16", "--batch", "512", "--json"]
        expected = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout
        self.assertEqual((self.root / "plan.json").read_text(), expected)

    def test_programs_start(self):
        for name in ("tbc", "tbc-run"):
            self.assertIn(name, self.run_in_root(f"/site/tbc/bin/{name}", "--version"))
        out = self.run_in_root("/site/tbc/bin/tbc", "plan", "/gpt2.onnx", "--gpus", "16")
        self.assertIn("fits:", out)


if subprocess.run([*CHROOT, "/", "true"], capture_output=True, check=False).returncode != 0:
    print("skipped: this machine lets no process change its root (unshare --map-root-user)")
    sys.exit(77)
unittest.main(verbosity=2)
