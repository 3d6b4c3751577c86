"""usage: readme_test.py TBC SOURCE_DIR [--write]

The transcripts in README.md are what the commands in them print. With --write they become it.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]), Path(sys.argv[2])
BLOCK = re.compile(r"(?m)^```\n(\$ .*?)^```\n", re.DOTALL)


def replayed(transcript, folder):
    """The transcript with what its commands print now; they run one after the other in `folder`."""
    text = ""
    for line in transcript.splitlines():
        if not line.startswith("$ "):
            continue
        run = subprocess.run(
            ["bash", "-c", line[2:]], cwd=folder, capture_output=True, text=True, timeout=600,
            env={**os.environ, "COLUMNS": "120", "LC_ALL": "C"},
        )
        if run.returncode not in (0, 10):  # 10: tbc explain --diff found differences
            raise AssertionError(f"{line}: exit code {run.returncode}\n{run.stderr}")
        text += line + "\n" + run.stdout
    return text


def checked(readme):
    """README.md with its transcripts replayed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "build/bin").mkdir(parents=True)
        Path(folder, "build/bin/tbc").symlink_to(TBC.resolve())
        Path(folder, "models").symlink_to((SOURCE / "models").resolve())
        return BLOCK.sub(lambda block: f"```\n{replayed(block[1], folder)}```\n", readme)


class ReadmeTest(unittest.TestCase):
    maxDiff = None

    def test_transcripts_are_what_is_printed(self):
        readme = (SOURCE / "README.md").read_text()
        self.assertGreaterEqual(len(BLOCK.findall(readme)), 2)
        self.assertEqual(checked(readme), readme)


if __name__ == "__main__":
    if sys.argv[3:] == ["--write"]:
        (SOURCE / "README.md").write_text(checked((SOURCE / "README.md").read_text()))
    else:
        unittest.main(argv=sys.argv[:1])
