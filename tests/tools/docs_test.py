"""usage: docs_test.py TBC SOURCE_DIR [--write]

The documentation agrees with tbc:

- Every transcript (a block that begins with "$ ") of README.md and of docs/index.md, tutorial.md,
  planning.md, faq.md and commands/*.md is run, one folder for each page. Lines below a command are its expected
  output. "…" matches any text of a line; alone on a line it matches any lines. A command without
  lines below it must succeed, its output is left out. Warnings may be left out, and the progress of a
  command on a busy machine is.
- A table of docs/commands/NAME.md lists a flag exactly if `tbc NAME --help` does, with all of its
  choices.
- Blocks of Python in tutorial.md compile, and run if PyTorch and transformers are installed.
- Every flag named by a page exists, and docs/index.md links to every page. Pages of docs/targets
  name flags of other programs too.

With --write, differing transcripts are replaced by the actual output; their elisions ("…") stay
(elision.py).
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import elision

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
DOCS = SOURCE / "docs"
PYTHON_BLOCK = re.compile(r"(?m)^```python\n(.*?)^```\n", re.DOTALL)
BLOCK = re.compile(r"(?m)^```\n(\$ .*?)^```\n", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")

# Pages whose commands have another name than the page.
COMMANDS = {"compile": ["compile", "program show"], "checkpoint": ["checkpoint consolidate"]}
# Commands without flags.
FLAGLESS = {"completion", "help"}
# Pages that leave flags to another page.
SHARED = {"check": "plan", "size": "plan"}
# Flags of other programs named by the pages.
OTHERS = {
    "--preset", "--no-tests", "--no-install", "--unity", "--target", "--build", "--config", "--install",  # ctest, cmake, bootstrap
    "--gpus", "--no-python", "--nproc-per-node", "--master_addr", "--master-addr", "--master-port", "--node-rank", "--parsable", "--signal", "--ntasks-per-node", "--requeue", "--kill-on-bad-exit", "--distribution", "--nnodes", "--rdzv-endpoint", "--standalone",  # docker, torchrun, srun
    "--emulated", "--nodes", "--curves", "--rate", "--limit", "--set", "--tbc", "--cases", "--models", "--verify", "--update", "--list",
    "--tensor-model-parallel-size", "--micro-batch-size", "--global-batch-size", "--seq-length", "--bf16",  # Megatron-LM
    "--seeds", "--jobs", "--write", "--check", "--gate", "--read", "--keep",  # scripts of tests/
    "--config-settings",  # pip
    "--trace", "--cuda-graph-trace", "--type",  # nsys
    "--mehs",  # misspelt in the page of an error
}


def transcript_pages():
    names = ["index.md", "tutorial.md", "planning.md", "faq.md"]
    return [SOURCE / "README.md"] + [DOCS / name for name in names] + sorted((DOCS / "commands").glob("*.md"))


def steps(transcript):
    """Yields (command as written, lines below it)."""
    command, below = None, []
    for line in transcript.splitlines():
        if command is not None and command.endswith("\\"):
            command += "\n" + line
        elif line.startswith("$ "):
            if command is not None:
                yield command, below
            command, below = line, []
        else:
            below.append(line)
    yield command, below


def matches(expected, printed):
    """Returns whether the output has the expected lines; "…" matches any text, or any lines."""
    pattern = ""
    for line in expected:
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[^\S\n]*\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def replayed(transcript, folder, complain):
    """Returns the transcript with the actual output if it differs."""
    text = ""
    environment = {**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8", "PATH": f"{TBC.parent}:{os.environ['PATH']}"}
    for command, below in steps(transcript):
        run = subprocess.run(
            ["bash", "-c", command[2:]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, timeout=600, env=environment,
        )
        printed = [line.rstrip() for line in run.stdout.splitlines() if not re.fullmatch(r"tbc: [a-z].* \(\d+ s\)", line)]
        if run.returncode != 0:
            complain(f"{command}: exit code {run.returncode}\n{run.stdout}")
        calm = [line for line in printed if not line.startswith("tbc: warning: ")]
        if below and not matches(below, printed) and not matches(below, calm):
            complain(f"{command}: prints\n{run.stdout}")
            shows_warnings = any(line.startswith("tbc: warning: ") for line in below)
            below = elision.updated(below, printed if shows_warnings else calm)
        text += "".join(line + "\n" for line in [command, *below])
    return text


def checked(page, complain):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models").symlink_to(SOURCE / "models")
        Path(folder, "build").mkdir()
        Path(folder, "build/bin").symlink_to(TBC.parent)
        return BLOCK.sub(lambda block: f"```\n{replayed(block[1], folder, complain)}```\n", page.read_text())


def help_of(command):
    run = subprocess.run(
        [TBC, *command.split(), "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    return run.stdout


def commands():
    """Returns the subcommands that --help lists, in groups."""
    return set(re.findall(r"(?m)^  ([a-z]+)(?= )", help_of("")))


def flags_of(command):
    """Returns {flag: [choices]} as listed by --help."""
    found = {}
    # An option begins a line; its choices may continue on the next one.
    for spec in re.findall(r"(?m)^ +((?:-\w,)?--[a-z][^\n]*(?:\{[^}]*\})?)", re.sub(r",\n\s+", ",", help_of(command))):
        flag = FLAG.search(spec).group(0)
        choices = re.match(r"\S+ [A-Z|]+:\{([^}]*)\}", spec)
        found[flag] = choices.group(1).split(",") if choices else []
    found.pop("--help", None)
    return found


def rows(page):
    """Returns {flag: row} of the tables of a page. Flags are in the first cell; a row with an empty
    first cell continues the last one.
    """
    found, flags = {}, []
    for line in page.read_text().splitlines():
        if line.startswith("| `-"):
            flags = FLAG.findall(re.split(r"(?<!\\)\|", line)[1])
            found.update({flag: line for flag in flags})
        elif line.startswith("| |"):
            found.update({flag: found[flag] + line for flag in flags})
    return found


class DocsTest(unittest.TestCase):
    maxDiff = None

    def test_transcripts_are_what_is_printed(self):
        for page in transcript_pages():
            with self.subTest(page.name):
                complaints = []
                checked(page, complaints.append)
                self.assertFalse(complaints, "\n".join(complaints))

    def test_the_examples_of_help_run(self):
        text = help_of("")
        self.assertNotIn("\nSubcommands:", text, "a command has no group")
        examples = re.findall(r"(?m)^  \$ (tbc .*)$", text)
        self.assertEqual(len(examples), 3)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "models").symlink_to(SOURCE / "models")
            environment = {**os.environ, "PATH": f"{TBC.parent}:{os.environ['PATH']}"}
            for example in examples:
                run = subprocess.run(["bash", "-c", example], cwd=folder, capture_output=True, text=True, timeout=300, env=environment)
                self.assertEqual(run.returncode, 0, f"{example}\n{run.stderr}")

    def test_there_are_transcripts(self):
        self.assertGreaterEqual(sum(len(BLOCK.findall(page.read_text())) for page in transcript_pages()), 10)

    def test_a_transcript_that_differs_is_found(self):
        self.assertTrue(matches(["a …", "…", "c"], ["a 1.5 s", "b", "b", "c"]))
        self.assertFalse(matches(["a …", "c"], ["a 1.5 s", "b", "c"]))
        self.assertFalse(matches(["loss 5.1"], ["loss 5.2"]))
        self.assertFalse(matches(["a"], []))

    def test_what_is_written_keeps_elisions(self):
        written = ["loss 5.1 after … s", "…", "  layers 12", "done in …"]
        printed = ["loss 5.2 after 3 s", "read 3 files", "wrote a", "  layers 13", "done in 4 s"]
        self.assertEqual(elision.updated(written, printed), ["loss 5.2 after … s", "…", "  layers 13", "done in …"])
        # Lines that are gone or new, elisions at both ends, and one that stands for no line now.
        self.assertEqual(elision.updated(["a", "gone entirely", "…"], ["a", "x", "y"]), ["a", "…"])
        self.assertEqual(elision.updated(["…", "total 5", "…"], ["total 6"]), ["…", "total 6", "…"])
        self.assertEqual(elision.updated(["total 5", "…"], ["head", "total 5", "z"]), ["head", "total 5", "…"])
        # Without elisions, it is what is printed.
        self.assertEqual(elision.updated(["a", "b"], ["c", "d", "e"]), ["c", "d", "e"])
        self.assertEqual(elision.updated(["a"], []), [])

    def test_what_is_written_matches_what_is_printed(self):
        generator = random.Random(1)

        def text(pieces):
            return [" ".join(generator.choices(pieces, k=generator.randint(1, 3)))
                    for _ in range(generator.randint(0, 8))]

        for _ in range(300):
            written, printed = text(["a", "b 1", "…", "c=2.5"]), text(["a", "b 1", "b 2", "c=2.5"])
            result = elision.updated(written, printed)
            self.assertTrue(matches(result, printed), (written, printed, result))
            alone = [line for line in written if line == "…"]
            self.assertEqual([line for line in result if line == "…"], alone, (written, printed))

    def test_python_of_the_tutorial_works(self):
        export, load = PYTHON_BLOCK.findall((DOCS / "tutorial.md").read_text())
        for code in (export, load):
            compile(code, "tutorial.md", "exec")
        needed = subprocess.run([sys.executable, "-c", "import onnxscript, safetensors.torch, torch.export, transformers"],
                                capture_output=True)
        if needed.returncode != 0:
            self.skipTest("PyTorch 2, transformers, onnxscript and safetensors are not installed")
        with tempfile.TemporaryDirectory() as folder:
            train = ("plan mine.onnx --gpus 2 --mesh dp=2 --batch 8 --seq 16 --precision f32 -o plan.json",
                     "compile plan.json -o program", "run program --steps 1 --checkpoint saved",
                     "checkpoint consolidate saved -o weights.safetensors")
            for command in ([sys.executable, "-c", export], [TBC, "check", "mine.onnx", "--seq", "16"],
                            *([TBC, *words.split()] for words in train), [sys.executable, "-c", load]):
                run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
                self.assertEqual(run.returncode, 0, f"{command}\n{run.stdout}{run.stderr}")

    def test_flags_are_those_of_help(self):
        for page in sorted((DOCS / "commands").glob("*.md")):
            with self.subTest(page.name):
                listed = rows(page)
                exist = {}
                for command in COMMANDS.get(page.stem, [page.stem]):
                    exist.update(flags_of(command))
                self.assertGreater(len(exist), 0 if page.stem not in FLAGLESS else -1)
                elsewhere = rows(DOCS / "commands" / f"{SHARED[page.stem]}.md") if page.stem in SHARED else {}
                self.assertEqual(set(listed) - set(exist), set(), "named and unknown")
                self.assertEqual(set(exist) - set(listed) - set(elsewhere), set(), "exist and are not named")
                for flag, choices in exist.items():
                    for choice in choices:
                        row = listed.get(flag) or elsewhere[flag]
                        self.assertRegex(row, rf"`{re.escape(choice)}`", f"{flag} has a choice that is not named")

    def test_every_command_has_a_page(self):
        self.assertEqual({page.stem for page in (DOCS / "commands").glob("*.md")} - {"README"}, commands() - {"program"})

    def test_every_flag_that_a_page_names_exists(self):
        known = {"--help", "--version"} | OTHERS
        for command in {*commands(), "program show", "checkpoint consolidate"}:
            known |= set(flags_of(command))
        for page in sorted(set(DOCS.rglob("*.md")) - set((DOCS / "targets").glob("*.md"))):
            unknown = {flag for flag in FLAG.findall(page.read_text()) if flag not in known}
            unknown = {flag for flag in unknown if not flag.startswith("--tbc-")}  # passes, below
            self.assertEqual(unknown, set(), page.name)

    def test_the_index_leads_to_every_page(self):
        links = set(re.findall(r"\]\(([^)#]+\.md)", (DOCS / "index.md").read_text()))
        pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
        self.assertEqual(pages - links, set())


if __name__ == "__main__":
    if sys.argv[3:4] == ["--write"]:
        for page in transcript_pages():
            if len(sys.argv) == 4 or page.name in sys.argv[4:]:
                page.write_text(checked(page, lambda complaint: print(complaint, file=sys.stderr)))
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
