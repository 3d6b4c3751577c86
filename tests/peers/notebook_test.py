"""usage: notebook_test.py TBC SOURCE_DIR LIBRARY   (with PyTorch and onnx)

The notebooks of docs/notebooks run from the first cell to the last, in a folder of their own. A line
"!command" is run by the shell and must succeed; "%%writefile FILE" writes the cell.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, LIBRARY = Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
del sys.argv[1:4]


def shell(command):
    """Runs a line of a cell by the Python of this test."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, shell=True, check=True, env=environment, timeout=120)


def run_cell(text, names):
    """Runs a cell, and returns the value of its last expression."""
    if text.startswith("%%writefile "):
        name, _, content = text[len("%%writefile ") :].partition("\n")
        Path(name).write_text(content)
        return None
    lines = [f"shell({line[1:]!r})" if line.startswith("!") else line for line in text.splitlines()]
    tree = ast.parse("\n".join(lines))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


class NotebookTest(unittest.TestCase):
    def test_notebooks_run(self):
        notebooks = sorted((SOURCE / "docs/notebooks").glob("*.ipynb"))
        self.assertTrue(notebooks)
        for notebook in notebooks:
            with self.subTest(notebook.name), tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                self.addCleanup(os.chdir, SOURCE)
                cells = json.loads(notebook.read_text())["cells"]
                codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
                names = {"shell": shell}
                shown = [run_cell(text, names) for text in codes]
                self.assertTrue(any(hasattr(value, "_repr_html_") for value in shown))
                self.assertTrue(all(not cell.get("outputs") for cell in cells), "outputs are not committed")


os.environ.update(TBC_LIBRARY=str(LIBRARY), PYTHONPATH=str(SOURCE / "python"))
sys.path[:0] = [str(SOURCE / "python"), ""]
unittest.main(verbosity=2)
