"""usage: package_test.py CPACK BUILD_DIR SOURCE_DIR

The commands of docs/install.md make the packages and install them. The .tar.gz, unpacked into
another folder, makes a model, plans, compiles and trains: with an empty environment but for its own
bin folder, and, as root, in a root folder that has only the libraries below.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

CPACK, BUILD, SOURCE = sys.argv[1:4]
del sys.argv[1:]
GLIBC = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2")
COMMANDS = ("new gpt2 --layers 2 --hidden 64 --heads 2 --ffn 256 --vocab 128 --seq 16 -o model.onnx",
            "plan model.onnx --gpus 2 --batch 4 -o plan.json", "compile plan.json -o program --no-cache",
            "run program --steps 2 --init-weights 1")


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        page = (Path(SOURCE) / "docs/install.md").read_text()
        cls.path = re.search(r"put `(tbc-[^`]+)` on the path", page)[1]
        cls.commands = re.findall(r"(?m)^\|[^|]*\| `([^`]+)`", page)
        (cls.folder / "build").symlink_to(BUILD)
        cls.install(cls.commands[0].replace("cpack", CPACK, 1))
        cls.archive, = cls.folder.glob("*.tar.gz")
        cls.root = cls.folder / "root"
        cls.root.mkdir()
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.root)
        cls.program, = cls.root.glob("**/bin/tbc")
        print(f"{cls.archive.name}: {cls.archive.stat().st_size / 2**20:.0f} MiB, unpacked "
              f"{sum(file.lstat().st_size for file in cls.root.rglob('*') if file.is_file() and not file.is_symlink()) / 2**20:.0f} MiB")

    @classmethod
    def install(cls, command, **variables):
        """Runs a command of docs/install.md in a folder beside `build`."""
        run = subprocess.run(["sh", "-c", command], cwd=cls.folder, capture_output=True, text=True,
                             env={**os.environ, **{key: str(value) for key, value in variables.items()}})  # fmt: skip
        assert run.returncode == 0, command + "\n" + run.stdout + run.stderr
        return run.stdout

    def test_the_commands_of_the_page(self):
        cpack, tar, apt, cmake = self.commands
        self.assertTrue(cpack.startswith("cpack "))
        self.install(tar)
        self.assertTrue((self.folder / self.path / "tbc").is_file())
        # Into a folder, and without a change of this machine.
        self.install(cmake, DESTDIR=self.folder / "installed")
        program, = (self.folder / "installed").glob("**/bin/tbc")
        self.assertIn("tbc 0", subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout)
        if shutil.which("apt"):
            self.assertIn("Inst tbc ", self.install(apt.replace("install", "install --simulate")))

    def train(self, prefix, program, folder):
        """Runs COMMANDS; `prefix` enters the root folder in which `program` is."""
        for command in COMMANDS:
            run = subprocess.run([*prefix, program, *command.split()], cwd=folder, capture_output=True, text=True, timeout=300,
                                 env={"PATH": f"{Path(program).parent}:/usr/bin:/bin" if prefix else str(Path(program).parent), "HOME": "/", "TMPDIR": "/tmp"})
            self.assertEqual(run.returncode, 0, command + "\n" + run.stdout + run.stderr)
        self.assertIn("step 2", run.stdout)

    def test_it_trains_from_another_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.train([], self.program, folder)

    def test_it_needs_few_libraries(self):
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        libraries = self.root / "lib/x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        (self.root / "lib64").mkdir()
        (self.root / "tmp").mkdir()
        for folder in ("dev", "etc", "proc", "sys"):
            (self.root / folder).mkdir()
        shutil.copy("/etc/hosts", self.root / "etc/hosts")
        for name in GLIBC:
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", libraries / name)
        (self.root / "lib64/ld-linux-x86-64.so.2").symlink_to("../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
        # Libraries beside a program are found by way of /proc/self/exe.
        mounts = "; ".join(f"mount --rbind /{name} {self.root}/{name}" for name in ("dev", "proc", "sys"))
        self.train(["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", f'{mounts}; exec /usr/sbin/chroot {self.root} "$@"', "sh"],
                   "/" + str(self.program.relative_to(self.root)), "/")


if __name__ == "__main__":
    unittest.main()
