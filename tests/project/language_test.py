"""Tests of the ratios of small trees, and of ratchets that they meet or miss."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import language
from checks import Tree


class LanguageTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def measure(self, **files):
        for path, text in files["files"].items():
            (self.root / path).write_text(text)
        return language.measure(Tree(self.root))

    def test_comments_of_code_are_counted_and_strings_are_not(self):
        code = '/// Returns what fits.\n/// Of those, none.\nint a; // which\nconst char *url = "http://what";\n'
        count = self.measure(files={"a.cpp": code})["comments"]["a.cpp"]
        self.assertEqual(count.words, 7)
        self.assertEqual(count.sentences, 3)
        self.assertEqual(count.found["what"], 1)
        self.assertEqual(count.found["which that those whose"], 2)
        self.assertEqual(count.found["of which of what of those"], 1)
        self.assertEqual(count.found[language.OPENINGS], 1)

    def test_descriptions_of_tablegen_are_comments(self):
        code = 'def A {\n  let summary = "Sums what it gets";\n  let description = [{\n    Example: two.\n  }];\n}\n'
        count = self.measure(files={"a.td": code})["comments"]["a.td"]
        self.assertEqual((count.words, count.found["what"], count.found["for example"]), (6, 1, 1))

    def test_docstrings_and_comments_of_python_are_counted(self):
        code = '"""What it does."""\n\nx = "what"  # what\n\n\ndef f():\n    """Nothing."""\n'
        count = self.measure(files={"a.py": code})["comments"]["a.py"]
        self.assertEqual((count.words, count.found["what"]), (5, 2))
        self.assertEqual(count.found[language.OPENINGS], 1)

    def test_names_in_backquotes_are_no_words_of_the_list(self):
        count = language.count_prose("`--offload none` and `what` stay.")
        self.assertEqual((count.words, count.found["what"]), (4, 0))
        self.assertEqual(count.found["none nothing nobody whoever whatever"], 0)

    def test_documents(self):
        text = "# A\n\nWhat it is. See [b](that.md).\n\n```\nwhat\n" + "x" * 200 + "\n```\n\n![p](p.svg)\n\n" + "y" * 101 + "\n"
        count = self.measure(files={"a.md": text})["docs"]["a.md"]
        found = {name: count.found[name] for name in (language.HEADINGS, language.CODE_BLOCKS, language.PICTURES)}
        self.assertEqual(set(found.values()), {1})
        self.assertEqual(count.found["what"], 1)
        self.assertEqual(count.found["which that those whose"], 0)
        self.assertEqual(count.found[language.LONG_LINES], 1)

    def test_a_ratio_may_not_become_worse(self):
        for name, limit, value, fails in (
            ("what", 4.0, 4.05, False),  # within SLACK
            ("what", 4.0, 4.2, True),
            ("what", 0.5, 0.9, False),  # still better than the aim, 1
            ("for example", 1.0, 0.9, True),
            ("for example", 1.0, 2.0, False),
        ):
            with self.subTest((name, limit, value)):
                ratchet = {"comments": {name: {"today": limit, "aim": language.AIMS["comments"][name]}}}
                found = language.complaints({"comments": {name: value}}, ratchet)
                self.assertEqual(bool(found), fails)
                self.assertTrue(all(f"'{name}' is {value}" in line for line in found))

    def test_a_ratio_that_the_ratchet_lacks_is_named(self):
        self.assertIn("has no 'what'", language.complaints({"docs": {"what": 0}}, {})[0])

    def test_the_exit_code_and_the_list_name_the_file(self):
        (self.root / "bad.md").write_text("What what what that nothing. " * 40)
        run = subprocess.run(
            [sys.executable, language.__file__, "--list", "1", self.root], capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("bad.md", run.stdout)
        self.assertIn("docs: 'what' is", run.stdout)


if __name__ == "__main__":
    unittest.main()
