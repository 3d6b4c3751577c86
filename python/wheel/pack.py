#!/usr/bin/env python3
"""Packs the Python package and what CMake linked for it into a wheel.

usage: pack.py SOURCE FOLDER [OUTPUT]

SOURCE is the repository; FOLDER has tbc/lib/libtbc.so and tbc/bin/. The wheel goes to OUTPUT, by
default FOLDER. Libraries that these need, but for glibc's, are packed beside libtbc.so. One
wheel serves every Python from 3.10 on, because libtbc.so has no symbol of Python.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

try:
    import tomllib
except ImportError:
    sys.exit("a wheel is packed by Python 3.11 or later, which has tomllib")

# Of glibc, which every machine has. The loader is named by its path.
GLIBC = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util)\.so)")
LIBRARY = re.compile(r"^\s*(\S+) => (\S+)", re.M)
VERSION = re.compile(rb"GLIBC_(\d+)\.(\d+)")
# Files have one date, so that equal builds make equal wheels.
DATE = (2020, 1, 1, 0, 0, 0)


def libraries(program: Path) -> dict[str, Path]:
    """Returns the shared libraries of a program that are not glibc's, by name."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if "not found" in text:
        raise SystemExit(f"{program} misses a library:\n{text}")
    return {name: Path(path).resolve() for name, path in LIBRARY.findall(text) if not GLIBC.match(name)}


def glibc_version(files: list[bytes]) -> tuple[int, int]:
    """Returns the newest version of glibc that the files name, e.g. (2, 36)."""
    return max((int(a), int(b)) for content in files for a, b in VERSION.findall(content))


def metadata(project: dict, source: Path) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]  # fmt: skip
    for extra, packages in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {package}; extra == "{extra}"' for package in packages]
    lines += ["Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + (source / project["readme"]).read_text()


def contents(source: Path, folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Returns the package's files by their name in the wheel: bytes, and whether they are programs."""
    files = {}
    package = source / "python" / "tbc"
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.pyi"), package / "py.typed"]):
        files[f"tbc/{file.relative_to(package)}"] = (file.read_bytes(), False)
    library, programs = folder / "tbc/lib/libtbc.so", [folder / "tbc/bin/tbc-wheel", folder / "tbc/bin/tbc-run-wheel"]
    files["tbc/lib/libtbc.so"] = (library.read_bytes(), False)
    for program in [library, *programs]:
        for name, path in sorted(libraries(program).items()):
            files[f"tbc/lib/{name}"] = (path.read_bytes(), False)
    for program in programs:
        files[f"tbc/bin/{program.name.removesuffix('-wheel')}"] = (program.read_bytes(), True)
    return files


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    output = Path(sys.argv[3]) if len(sys.argv) > 3 else folder
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    files = contents(source, folder)
    binaries = [content for name, (content, _) in files.items() if "/lib/" in name or "/bin/" in name]
    major, minor = glibc_version(binaries)
    tag = f"py3-none-manylinux_{major}_{minor}_{os.uname().machine}"
    info = f"{project['name']}-{project['version']}.dist-info"
    scripts = "".join(f"{name} = {place}\n" for name, place in project["scripts"].items())
    files[f"{info}/METADATA"] = (metadata(project, source).encode(), False)
    wheel = f"Wheel-Version: 1.0\nGenerator: tbc\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = (wheel.encode(), False)
    files[f"{info}/entry_points.txt"] = (f"[console_scripts]\n{scripts}".encode(), False)
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), False)
    target = output / f"{project['name']}-{project['version']}-{tag}.whl"
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, (content, is_program) in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    temporary.replace(target)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
