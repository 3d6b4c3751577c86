"""Prints what a CTest JUnit report holds: passed, failed, then one line "RUN: TEST" per skipped test.

usage: count_tests.py REPORT.xml RUN
"""

import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """Returns "passed", "failed" or "skipped". A test that could not start has failed."""
    status = case.get("status")
    if status == "run":
        return "passed"
    note = case.find("skipped")
    asked_to_skip = note is not None and note.get("message", "").startswith("SKIP_")
    return "skipped" if status == "disabled" or asked_to_skip else "failed"


def main():
    report, run = sys.argv[1:]
    outcomes = [(outcome(case), case.get("name")) for case in ElementTree.parse(report).iter("testcase")]
    for wanted in ("passed", "failed"):
        print(sum(1 for found, _ in outcomes if found == wanted))
    for found, name in outcomes:
        if found == "skipped":
            print(f"{run}: {name}")


if __name__ == "__main__":
    main()
