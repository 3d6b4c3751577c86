"""Plants one violation per rule in a small tree. The check must name it and no other."""

import shutil
import tempfile
import unittest
from pathlib import Path

import checks
import classes
import layers


class ChecksTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def complaints(self, check, **files):
        """Returns the complaints of `check` about a tree of `files`, given as {"path": "text"}."""
        for path, text in files["files"].items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check(checks.Tree(self.root))

    def test_a_layer_includes_only_what_it_may_use(self):
        found = self.complaints(
            checks.includes,
            files={
                "planner/reshard/Good.h": '#include <vector>\n#include "planner/reshard/Sharding.h"\n',
                "planner/reshard/Bad.h": '\n#include "planner/plan/Plan.h"\n',
                "planner/plan/Plan.h": '#include <nlohmann/json.hpp>\n#include "runtime/abi/Status.h"\n',
                "runtime/exec/Bad.cpp": '#include "llvm/ADT/StringRef.h"\n#include <toml++/toml.h>\n',
                "runtime/verify/Bad.cpp": '#include "runtime/exec/Executor.h"\n',
                "ir/Bad.cpp": '#include "passes/Passes.h"\n#include "tools/tbc/Main.h"\n',
                "codegen/Bad.cpp": '#include "EmitProgram.h"\n',
                "tests/ir/any_test.cpp": '#include "tools/tbc/Main.h"\n#include <gtest/gtest.h>\n',
            },
        )
        self.assertEqual(
            [line.split(" ")[0] for line in found],
            [
                "codegen/Bad.cpp:1:",
                "ir/Bad.cpp:1:",
                "ir/Bad.cpp:2:",
                "planner/reshard/Bad.h:2:",
                "runtime/exec/Bad.cpp:1:",
                "runtime/exec/Bad.cpp:2:",
                "runtime/verify/Bad.cpp:1:",
            ],
        )

    def test_a_folder_without_a_layer_is_named(self):
        found = self.complaints(checks.includes, files={"misc/Bad.cpp": "\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("misc/Bad.cpp: belongs to no layer", found[0])

    def test_a_library_links_only_what_it_may_use(self):
        found = self.complaints(
            checks.links,
            files={
                "runtime/kernels/CMakeLists.txt": "tbc_library(tbc-kernels SOURCES A.cpp)\n",
                "runtime/comm/CMakeLists.txt": "tbc_library(tbc-comm SOURCES A.cpp DEPS tbc-kernels)\n",
                "ir/CMakeLists.txt": "tbc_library(tbc-ir MLIR\n  SOURCES A.cpp DEPS tbc-kernels) # tbc-exec\n",
                "planner/plan/CMakeLists.txt": "tbc_library(tbc-core MLIR SOURCES A.cpp DEPS tbc-ir)\n",
            },
        )
        self.assertEqual(
            found,
            [
                "planner/plan/CMakeLists.txt: tbc-core is in planner/plan, which needs no MLIR",
                "planner/plan/CMakeLists.txt: tbc-core is in planner/plan and may not link tbc-ir of ir",
            ],
        )

    def test_long_files_are_named(self):
        found = self.complaints(
            checks.sizes, files={"ir/Long.cpp": "//\n" * 1001, "ir/Short.cpp": "//\n" * 1000}
        )
        self.assertEqual(found, ["ir/Long.cpp: 1001 lines, at most 1000; split it"])

    def test_words_of_one_machine_are_named(self):
        found = self.complaints(
            checks.words,
            files={
                "a.md": "see /home/me/notes\n",
                "b.md": "from ../shared/models\n",
                "c.sh": "curl https://pypi.org/simple\n",
                "d.cpp": "// TODO: later\n",
                "e.py": "# fixes issue #12\n",
                "good.md": "an issue of work/life; build/work/x; the issue is 3 lines long\n",
            },
        )
        self.assertEqual([line[:4] for line in found], ["a.md", "b.md", "c.sh", "d.cp", "e.py"])

    def test_dead_links_are_named(self):
        found = self.complaints(
            checks.documents,
            files={
                "docs/a.md": "[a](b.md#what-is-it) [x](https://example.com/y) [dead](../c.md) [b](b.md#no) [c](#no)\n",
                "docs/b.md": "# `tbc`\n\n## What is it?\n\n```\n# no\n```\n",
            },
        )
        self.assertEqual(
            found,
            [
                "docs/a.md: the link to ../c.md leads nowhere",
                "docs/a.md: b.md has no heading #no",
                "docs/a.md: docs/a.md has no heading #no",
            ],
        )

    def test_files_that_do_not_exist_are_named(self):
        found = self.complaints(
            checks.named_files,
            files={
                "a.md": "`ir/Loss.{h,cpp}` `ir/FAMILY.td` `ir/` `ir/Los.td` `tests/gone` `no/room.h`\n",
                "ir/Loss.h": "",
            },
        )
        self.assertEqual(
            found, ["a.md:1: there is no " + name for name in ("ir/Loss.cpp", "ir/Los.td", "tests/gone")]
        )

    def test_a_large_knot_of_includes_is_named(self):
        ring = {f"ir/U{i}.cpp": f'#include "ir/U{(i + 1) % 6}.h"\n' for i in range(6)}
        headers = {f"ir/U{i}.h": "" for i in range(6)}
        small = {"ir/A.h": '#include "ir/B.h"\n', "ir/B.h": "", "ir/B.cpp": '#include "ir/A.h"\n#include "ir/U0.h"\n'}
        found = self.complaints(checks.knots, files={**ring, **headers, **small})
        names = ", ".join(f"ir/U{i}" for i in range(6))
        self.assertEqual(found, [f"ir/U0.h: 6 units include each other, at most 5 may: {names}"])

    def test_a_class_with_too_many_methods_is_named(self):
        def header(number):
            declared = "".join(f"  int f{i}(int a = (1), T b = {{}}) const {{ return a; }}\n" for i in range(number - 4))
            return (
                "namespace tbc {\n/// A comment (with words);\nclass Big final : public Base {\npublic:\n"
                "  explicit Big(const Map<int, std::pair<int, int>> &m) : a(m), b{1} {}\n  Big(const Big &) = delete;\n"
                "  bool operator<(const Big &o) const { return std::tie(a) < std::tie(o.a); }\n"
                '  virtual const char *name() const { return "f(x);"; }\n'
                f"{declared}"
                "  struct Inner {\n    int g() const;\n  } inner;\n  enum class Kind { One, Two };\n"
                "private:\n  using Key = std::function<int(int)>;\n  friend int h(int);\n"
                "  std::function<double(double)> a;\n  int b{f(1)}, c = f(2);\n};\nint free(int);\n} // namespace tbc\n"
            )

        self.assertEqual(classes.methods(header(7)), {"Big": 7, "Inner": 1})
        found = self.complaints(
            checks.classes, files={"planner/A.h": header(26), "planner/B.h": header(25), "ir/C.h": header(26)}
        )
        self.assertEqual(
            found, ["planner/A.h: Big declares 26 methods, at most 25 are allowed; split it"]
        )

    def test_a_constraint_without_a_test_is_named(self):
        found = self.complaints(
            checks.labels,
            files={
                "ir/A.td": 'def Tbc_AOp : Tbc_Op<"a"> {\n  (C1) one\n  (C2) two\n}\n'
                'def Tbc_BOp : Op<Tbc_Dialect, "b", []> {\n  (C1) one\n}\n',
                "tests/ir/invalid_a.mlir": "func.func @a_c1_size(\nfunc.func @a_c20(\nfunc.func @b_c1(\n",
            },
        )
        self.assertEqual(found, ["ir/A.td: no test breaks (C2) of a: tests/ir has no @a_c2"])

    def test_a_design_that_names_other_things_than_the_code_is_named(self):
        rooms = "".join(
            f"| `{room}` | {', '.join(f'`{use}`' for use in sorted(layer.uses)) or 'nothing'} |\n"
            for room, layer in layers.LAYERS.items()
        )
        page = f"{rooms}\nThe dialect has 2 ops.\n`AOpInterface`\n## 7. Codes\n| 0 | done |\n| 2 | usage |\n## 8. Words\n"
        code = {
            "ir/A.td": "def Tbc_AOp : X;\ndef Tbc_BOp\n",
            "ir/TbcInterfaces.td": "def AOpInterface : X {\n",
            "runtime/abi/Status.h": "  Usage = 2,\n",
        }
        for old, new, expected in (
            ("", "", []),
            ("`runtime/memory` | nothing", "`runtime/memory` | `ir`", ["runtime/memory may not use ir"]),
            ("| `passes` |", "| `pass` |", ["has no row for the room passes"]),
            ("2 ops", "3 ops", ["the dialect has 2 ops"]),
            ("AOpInterface", "BOpInterface", ["AOpInterface is defined only", "BOpInterface is named only"]),
            ("| 2 | usage |", "| 3 | usage |", ["exit code 2 is in the code only", "exit code 3 is in it only"]),
        ):
            with self.subTest(new):
                found = self.complaints(
                    checks.design_names, files={**code, "docs/design.md": page.replace(old, new) if old else page}
                )
                self.assertEqual(len(found), len(expected), found)
                for line, part in zip(found, expected):
                    self.assertIn(part, line)

    def test_unformatted_files_are_named(self):
        files = {
            ".clang-format": "BasedOnStyle: LLVM\n",
            "ir/Bad.cpp": "int  x ;\n",
            "ir/Good.cpp": "int x;\n",
        }
        try:
            found = self.complaints(checks.formatting, files=files)
        except checks.Skip as skip:
            self.skipTest(str(skip))
        self.assertEqual(found, ["ir/Bad.cpp: run clang-format-19 -i ir/Bad.cpp"])

    def test_scripts_that_do_not_parse_are_named(self):
        found = self.complaints(
            checks.scripts,
            files={"bad": "#!/usr/bin/env bash\nif true\n", "good": "#!/usr/bin/env bash\ntrue\n", "bad.py": "def\n"},
        )
        self.assertEqual(len(found), 2)

    PRESET = (
        'name = "x-{n}"\n# NVIDIA data sheet.\ndevices_per_node = 8\n\n'
        "[device]\n# Assumed as for x-{other}.\nmemory_bytes = 1_073_741_824\nmemory_bytes_per_second = 2e9\n\n"
        "[device.peak_flops_per_second]\n# arXiv 1234.5678.\nbf16 = 1e12\n\n"
        "# a/b 0123abc.\n[network.intra_node]\nbytes_per_second = 3e9\n\n"
        "[network.inter_node]\n# Same table.\nbytes_per_second = 1e9\n"
    )

    def test_numbers_without_a_source_are_named(self):
        good = self.PRESET.format(n=1, other=2)
        path = "planner/clusters/x-1.toml"
        files = {path: good, "planner/clusters/x-2.toml": self.PRESET.format(n=2, other=1)}
        self.assertEqual(self.complaints(checks.cluster_sources, files=files), [])
        for old, new, line in (
            ("# NVIDIA data sheet.", "# Eight of them.", 3),
            ("# NVIDIA data sheet.\n", "", 2),
            ("as for x-2", "as for x-3", 7),
            ("as for x-2", "as for x-1", 7),
            ("# arXiv 1234.5678.\n", "# arXiv 1234.5678.\n\n", 13),
            ("# a/b 0123abc.", "# a/b.", 16),
        ):
            files[path] = good.replace(old, new)
            found = self.complaints(checks.cluster_sources, files=files)
            self.assertIn(f"{path}:{line}: ", found[0] if found else "nothing", new)
        (self.root / path).unlink()
        (self.root / "planner/clusters/x-2.toml").unlink()
        self.assertEqual(len(self.complaints(checks.cluster_sources, files={})), 1)

    def test_a_table_that_differs_from_the_presets_is_named(self):
        preset = {"planner/clusters/x-1.toml": self.PRESET.format(n=1, other=2)}
        row = "| `x-1` | 8 | 1.0 | 1 | 2 | 3.0 | 1.0 |\n"
        for table, complaint in (
            (row, None),
            (row.replace("3.0", "3.1"), "docs/clusters.md:1: differs"),
            ("| `other` | 8 |\n", "has no row for x-1"),
        ):
            found = self.complaints(checks.cluster_table, files={**preset, "docs/clusters.md": table})
            self.assertEqual(len(found), 0 if complaint is None else 1, found)
            self.assertIn(complaint or "", "".join(found))


if __name__ == "__main__":
    unittest.main()
