"""Tests of the measures of structure.py, on made-up code."""

import tempfile
import unittest
from pathlib import Path

from checks import Tree
from structure import LONG_FUNCTION, Shape, functions

CODE = """
#define MACRO(x) { x }
namespace tbc {
static int one() { return 1; } // {
enum class Kind { A, B };
struct Row { const char *name = "{"; int size() const { return 2; } };
static const Row rows[] = {{"a"}, {"b"}};
Thing::Thing(int x) : x(x), y(x) {
  auto lambda = [&](int i) {
    return i;
  };
}
template <typename T, typename = void> T twice(T x) {
  if (x) {
    x += x;
  }
  return x;
}
} // namespace tbc
"""


class Functions(unittest.TestCase):
    def test_are_found_with_their_lines(self):
        self.assertEqual(
            functions(CODE), [("one", 1), ("size", 1), ("Thing::Thing", 5), ("twice", 6)]
        )


class Values(unittest.TestCase):
    def shape(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return Shape(Tree(folder))

    def test_long_functions_count(self):
        body = "  x();\n" * LONG_FUNCTION
        shape = self.shape({"ir/A.cpp": "void f() {\n" + body + "}\nvoid g() {\n}\n"})
        self.assertEqual(shape.values()["functions over 50 lines"], 1)
        self.assertEqual(shape.values()["% of functions over 50 lines"], 50.0)

    def test_long_files_of_tests_count_apart(self):
        text = "int x;\n" * 601
        values = self.shape({"ir/A.cpp": text, "tests/ir/A.cpp": text, "ir/B.cpp": "int x;\n" * 600}).values()
        self.assertEqual((values["files over 600 lines"], values["files over 600 lines in tests"]), (1, 1))

    def test_circles_of_files_and_rooms(self):
        shape = self.shape(
            {
                "ir/A.h": '#include "passes/B.h"\n',
                "passes/B.h": "",
                "passes/B.cpp": '#include "ir/A.h"\n',
                "codegen/C.cpp": '#include "ir/A.h"\n',
            }
        )
        self.assertEqual(shape.circles(), [["ir/A", "passes/B"]])
        self.assertEqual(shape.room_arrows(), [("ir", "passes"), ("passes", "ir")])

    def test_the_largest_class(self):
        shape = self.shape({"ir/A.h": "class A {\n void f();\n bool operator<(A o) const { return a < o.a; }\n};\nclass B { void g(); };\n"})
        self.assertEqual(shape.classes[0], (2, "ir/A.h: A"))


if __name__ == "__main__":
    unittest.main()
