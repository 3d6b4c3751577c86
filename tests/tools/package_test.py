"""usage: package_test.py CPACK BUILD_DIR SOURCE_DIR

The .tar.gz of cpack, unpacked into another folder, makes a model, plans, compiles and trains: with
an empty environment but for its own bin folder, and, as root, in a root folder that has only the libraries below.
"""

import os
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
# Of Debian's libedit2 and libxml2, which the linker of kernels does not find beside itself.
LINKER = ("libtinfo.so.6", "libbsd.so.0", "libmd.so.0", "libicuuc.so.72", "libicudata.so.72", "liblzma.so.5")
COMMANDS = ("new gpt2 --layers 2 --hidden 64 --heads 2 --ffn 256 --vocab 128 --seq 16 -o model.onnx",
            "plan model.onnx --gpus 2 --batch 4 -o plan.json", "compile plan.json -o program --no-cache",
            "run program --steps 2 --init-weights 1")


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        made = subprocess.run([CPACK, "-G", "TGZ", "-B", cls.folder / "packed"], cwd=BUILD, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
        cls.archive, = (cls.folder / "packed").glob("*.tar.gz")
        cls.root = cls.folder / "root"
        cls.root.mkdir()
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.root)
        cls.program, = cls.root.glob("**/bin/tbc")
        print(f"{cls.archive.name}: {cls.archive.stat().st_size / 2**20:.0f} MiB, unpacked "
              f"{sum(file.lstat().st_size for file in cls.root.rglob('*') if file.is_file() and not file.is_symlink()) / 2**20:.0f} MiB")

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
        for name in (*GLIBC, *LINKER):
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", libraries / name)
        (self.root / "lib64/ld-linux-x86-64.so.2").symlink_to("../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
        # Libraries beside a program are found by way of /proc/self/exe.
        mounts = "; ".join(f"mount --rbind /{name} {self.root}/{name}" for name in ("dev", "proc", "sys"))
        self.train(["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", f'{mounts}; exec /usr/sbin/chroot {self.root} "$@"', "sh"],
                   "/" + str(self.program.relative_to(self.root)), "/")


if __name__ == "__main__":
    unittest.main()
