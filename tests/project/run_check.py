"""usage: run_check.py CHECK [ROOT]

Runs one check of checks.py over the repository. Exit code: 0 passed, 1 complaints (one per line),
77 not possible on this machine.
"""

import sys
from pathlib import Path

import checks

SKIPPED = 77


def main():
    by_name = {check.__name__: check for check in checks.CHECKS}
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in by_name:
        sys.exit(f"{__doc__}\nchecks: {', '.join(by_name)}")
    tree = checks.Tree(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parents[2])
    if not tree.files:
        sys.exit(f"{tree.root} holds no files")
    try:
        complaints = by_name[sys.argv[1]](tree)
    except checks.Skip as skip:
        print(f"skipped: {skip}")
        sys.exit(SKIPPED)
    print("\n".join(complaints) or f"{sys.argv[1]}: nothing to complain about in {len(tree.files)} files")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
