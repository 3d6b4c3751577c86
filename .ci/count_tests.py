"""Prints what a CTest JUnit report holds: passed, failed, then one line "RUN: TEST" per skipped test.

usage: count_tests.py REPORT.xml RUN
"""

import sys
import xml.etree.ElementTree as ElementTree

report, run = sys.argv[1:]
cases = ElementTree.parse(report).getroot().findall("testcase")
# "disabled" and "notrun" tests ran no more than skipped ones did.
skipped = [c.get("name") for c in cases if c.get("status") in ("notrun", "disabled") and c.find("failure") is None]
failed = [c.get("name") for c in cases if c.get("status") == "fail" or c.find("failure") is not None]
print(len(cases) - len(skipped) - len(failed))
print(len(failed))
for name in skipped:
    print(f"{run}: {name}")
