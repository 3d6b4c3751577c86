"""usage: compare_defaults.py FOLDER TABLE

Compares the importer's table of defaults with the one that fetch.py made from the onnx package in
FOLDER. Exit code: 0 equal, 1 different, 77 the package was not available.
"""

import difflib
import os
import sys
from pathlib import Path

SKIPPED = 77


def main():
    made, committed = Path(sys.argv[1], "AttributeDefaults.inc"), Path(sys.argv[2])
    if not made.exists():
        print(f"there is no {made}; fetch.py makes it")
        sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)
    before, after = committed.read_text().splitlines(), made.read_text().splitlines()
    lines = list(difflib.unified_diff(before, after, str(committed), str(made), lineterm="", n=0))
    print("\n".join(lines) or f"{len(after)} equal lines")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
