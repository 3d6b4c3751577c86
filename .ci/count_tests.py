"""Prints what a CTest JUnit report holds: passed, failed, then one line per test that did
not pass: "skipped RUN: TEST" or "failed RUN: TEST". Appends the end of each failed test's output to FAILURES.

usage: count_tests.py REPORT.xml RUN FAILURES
"""

import sys
import xml.etree.ElementTree as ElementTree

# What is kept of a failed test's output.
LINES = 40


def outcome(case):
    """Returns "passed", "failed" or "skipped". A test that could not start has failed."""
    status = case.get("status")
    if status == "run":
        return "passed"
    note = case.find("skipped")
    asked_to_skip = note is not None and note.get("message", "").startswith("SKIP_")
    return "skipped" if status == "disabled" or asked_to_skip else "failed"


def main():
    report, run, failures = sys.argv[1:]
    outcomes = [(outcome(case), case) for case in ElementTree.parse(report).iter("testcase")]
    for wanted in ("passed", "failed"):
        print(sum(1 for found, _ in outcomes if found == wanted))
    with open(failures, "a", encoding="utf-8") as ends:
        for found, case in outcomes:
            if found == "passed":
                continue
            print(f"{found} {run}: {case.get('name')}")
            if found == "failed":
                lines = (case.findtext("system-out") or "").rstrip().splitlines()[-LINES:]
                ends.write("\n".join([f"-- {run}: {case.get('name')} ({case.get('time')} s)", *lines, ""]))


if __name__ == "__main__":
    main()
