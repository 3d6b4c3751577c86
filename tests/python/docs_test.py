"""usage: docs_test.py SOURCE_DIR TBC   (by the Python of the installed package)

The examples of docs/python.md, a block of ">>>" each, give what the page says.
"""

import doctest
import os
import shutil
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1]).resolve()


def main():
    folder = Path(tempfile.mkdtemp(prefix="tbc-doctest-"))
    try:
        shutil.copytree(SOURCE / "models", folder / "models", ignore=shutil.ignore_patterns("reference"))
        os.chdir(folder)
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        result = doctest.testfile(str(SOURCE / "docs/python.md"), module_relative=False, optionflags=options, encoding="utf-8")
        print(f"{result.attempted} examples, {result.failed} failed")
        return 1 if result.failed or result.attempted < 10 else 0
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


sys.exit(main())
