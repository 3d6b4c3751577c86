"""usage: json_test.py TBC SOURCE_DIR

Every --json has a header ("format", "version") and a schema in docs/schemas (docs/json.md), which
real answers fulfil, of success and of failure.
"""

import copy
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
from pathlib import Path

import jsonschema  # Debian: python3-jsonschema

# References of one schema to another are relative to its $id, a urn.
for known in (urllib.parse.uses_relative, urllib.parse.uses_fragment):
    known.append("urn")

TBC, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
MODELS = SOURCE / "models"
SCHEMAS = {path: json.loads(path.read_text())
           for path in [*sorted((SOURCE / "docs").glob("*.schema.json")), *sorted((SOURCE / "docs/schemas").glob("*.json"))]}
# Of models/tiny-gpt2.onnx.
LEGAL = ("pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
         "--micro-batch-size 4 --global-batch-size 8 --seq-length 16 --bf16")
# The document that decides each answer: a schema for each command line in docs/json.md.
ROW = re.compile(r"(?m)^\| `tbc ([^`]+)`[^|]*\| `(tbc-[a-z]+)` \| (\d+) \| \[[^\]]*\]\(([^)]+)\)")


def objects(value):
    if isinstance(value, dict):
        yield value
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(entry)


def spoil_kernels(folder):
    """Makes additions of vectors in a Program's kernels.so subtractions, and seals it again."""
    kernels, seal = folder / "kernels.so", folder / "seal.json"
    addps, subps = b"\x0f\x58", b"\x0f\x5c"
    assert addps in kernels.read_bytes()
    kernels.write_bytes(kernels.read_bytes().replace(addps, subps))
    content = json.loads(seal.read_text())
    line, = [line for line in content["files"] if line["path"] == "kernels.so"]
    line["sha256"] = hashlib.sha256(kernels.read_bytes()).hexdigest()
    hashed = json.dumps({key: content[key] for key in ("files", "sources")}, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(hashed.encode()).hexdigest()
    seal.write_text(json.dumps(content, indent=1) + "\n")


class JsonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        cls.tbc("plan", MODELS / "tiny-mlp.onnx", "--gpus", "2", "--batch", "8", "-o", "plan.json")
        cls.tbc("plan", MODELS / "tiny-gpt2.onnx", "--gpus", "8", "--batch", "16", "--mesh", "pp=2,tp=2,fsdp=2",
                "--recompute", "full", "-o", "mesh.json")
        cls.tbc("compile", "plan.json", "-o", "program")
        cls.tbc("run", "program", "--steps", "2", "--profile", "profile.json")

    @classmethod
    def tbc(cls, *arguments, code=0):
        run = subprocess.run([TBC, *map(str, arguments)], cwd=cls.folder, capture_output=True, text=True, timeout=300)
        if run.returncode != code:
            raise AssertionError(f"{arguments}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
        return run.stdout

    def schema(self, path):
        schema = SCHEMAS[path]
        store = {entry["$id"]: entry for entry in SCHEMAS.values()}
        return jsonschema.Draft202012Validator(schema, resolver=jsonschema.RefResolver("", schema, store=store))

    def check(self, path, text):
        answer = json.loads(text)
        self.assertTrue(answer["format"].startswith("tbc-"), path)
        self.assertIsInstance(answer["version"], int)
        validator = self.schema(path)
        self.assertEqual([error.message for error in validator.iter_errors(answer)][:3], [], path)
        for damage in ({"format": "tbc-other"}, {"version": 0}):
            self.assertFalse(validator.is_valid({**copy.deepcopy(answer), **damage}), (path, damage))
        return answer

    def test_answers_fulfil_their_schemas(self):
        docs = SOURCE / "docs"
        schemas = docs / "schemas"
        cases = [
            (schemas / "check.schema.json", 0, "check", MODELS / "tiny-mlp.onnx"),
            (schemas / "check.schema.json", 0, "check", MODELS / "tiny-gpt2.onnx", "--freeze", "*.bias"),
            (schemas / "cluster.schema.json", 0, "cluster"),
            (schemas / "cluster.schema.json", 0, "cluster", "mi300x"),
            (schemas / "report.schema.json", 0, "report", "plan.json", "mesh.json"),
            (schemas / "report.schema.json", 0, "report", "plan.json", "--against", "profile.json"),
            (schemas / "verify.schema.json", 0, "verify", "program"),
            (schemas / "verify.schema.json", 0, "verify", "mesh.json"),
            (schemas / "roofline.schema.json", 0, "program", "show", "program", "--roofline"),
            (schemas / "judge.schema.json", 0, "judge", LEGAL, "--model", MODELS / "tiny-gpt2.onnx", "--gpus", "2"),
            (schemas / "judge.schema.json", 4, "judge", LEGAL.replace("tensor-model-parallel-size 2",
                                                                      "tensor-model-parallel-size 7"),
             "--model", MODELS / "tiny-gpt2.onnx", "--gpus", "2"),
            (docs / "size.schema.json", 0, "size", MODELS / "tiny-gpt2.onnx", "--tokens", "1B", "--gpus-from", "1",
             "--gpus-to", "2"),
            (docs / "plan.schema.json", 0, "plan", MODELS / "tiny-mlp.onnx", "--gpus", "2"),
            (docs / "plan.schema.json", 0, "explain", "plan.json"),
            (schemas / "explain.schema.json", 10, "explain", "plan.json", "--diff", "mesh.json"),
            (schemas / "explain.schema.json", 0, "explain", "plan.json", "--diff", "plan.json"),
        ]
        for plan in ("plan.json", "mesh.json"):
            for view in ("--memory", "--comms", "--kernels", "--layers", "--tensor=*weight*", "--why=tp=2", "--why=tp=1", "--why=dp=3",
                         "--why=recompute=none"):
                cases.append((schemas / "explain.schema.json", 0, "explain", plan, view))
            for view in ("--rank=1", "--decisions"):
                cases.append((docs / "explain.schema.json", 0, "explain", plan, view))
        for path, code, *arguments in cases:
            with self.subTest(arguments):
                self.check(path, self.tbc(*arguments, "--json", code=code))
        # Every schema was used, but those of other tests (below).
        used = {path for path, *_ in cases}
        self.assertEqual(set(SCHEMAS) - used, {schemas / f"{name}.schema.json" for name in ("doctor", "compile", "run", "weights", "job")})

    def test_training_answers_too(self):
        schemas = SOURCE / "docs/schemas"
        job = [MODELS / "tiny-gpt2.onnx", "--gpus", "2", "--batch", "8", "--seq", "16", "--precision", "f32"]
        self.tbc("plan", *job, "--clip-norm", "1", "-o", "trained.json")
        answer = self.check(schemas / "compile.schema.json", self.tbc("compile", "trained.json", "-o", "trained", "--json"))
        self.assertEqual(set(answer["files"]), {path.name for path in (self.folder / "trained").iterdir()})
        self.assertLessEqual(answer["stages"][0]["arena_bytes"], answer["stages"][0]["predicted_bytes"])
        said = self.tbc("run", "trained", "--steps", "2", "--log", "log.jsonl", "--checkpoint", "saved", "--eval-data", "synthetic", "--eval-batches", "1",
                        "--json", "--check-memory")  # fmt: skip
        self.assertEqual(said, (self.folder / "log.jsonl").read_text())
        lines = [self.check(schemas / "run.schema.json", line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([("loss" in line, line["step"]) for line in lines], [(True, 1), (True, 2), (False, 2)])
        for flags, kind in ((("weights.safetensors",), "safetensors"), (("trained.onnx", "--model", MODELS / "tiny-gpt2.onnx"), "onnx")):
            answer = self.check(schemas / "weights.schema.json", self.tbc("checkpoint", "consolidate", "saved", "-o", *flags, "--json"))
            self.assertEqual((answer["kind"], answer["checkpoint"]), (kind, "saved/step-00000002"))

    def test_jobs_answer_line_by_line(self):
        jobs = [{"id": "a", "model": str(MODELS / "tiny-gpt2.onnx"), "gpus": 4, "mesh": "pp=2,tp=2", "batch": 8, "micro-batch": 1},
                {"model": str(MODELS / "tiny-mlp.onnx"), "gpus": 2, "batch": 8}, {"model": "absent.onnx", "gpus": 2}]  # fmt: skip
        self.folder.joinpath("jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
        answers = [self.check(SOURCE / "docs/schemas/job.schema.json", line) for line in self.tbc("plan", "--job", "jobs.jsonl", code=1).splitlines()]
        self.assertEqual([(answer["line"], "error" in answer) for answer in answers], [(1, False), (2, False), (3, True)])

    def test_doctor_answers_when_something_is_wrong_too(self):
        path = SOURCE / "docs/schemas/doctor.schema.json"
        run = subprocess.run([TBC, "doctor", "--json"], capture_output=True, text=True, timeout=120)
        answer = self.check(path, run.stdout)
        self.assertEqual(run.returncode, 0 if answer["ok"] else 1)
        run = subprocess.run(["bash", "-c", f"ulimit -n 32; '{TBC}' doctor --json"], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIs(self.check(path, run.stdout)["ok"], False)

    def test_verify_answers_when_something_differs_too(self):
        self.tbc("compile", "plan.json", "-o", "spoilt", "--cpu", "x86-64-v2")
        spoil_kernels(self.folder / "spoilt")
        answer = self.check(SOURCE / "docs/schemas/verify.schema.json",
                            self.tbc("verify", "spoilt", "--json", "--budget", "1", code=5))
        self.assertIs(answer["passed"], False)
        self.assertTrue(any("the reference kernel gives" in kernel["difference"] for kernel in answer["kernels"]))
        self.assertTrue(any(not tensor["agrees"] for tensor in answer["run"]))
        self.assertTrue(all(tensor["agrees"] for tensor in answer["residues"]))

    def test_judge_refuses_files_of_tbc(self):
        self.folder.joinpath("answer.json").write_text(self.tbc("check", MODELS / "tiny-mlp.onnx", "--json"))
        for file, advice in (("plan.json", "tbc export plan.json --to deepspeed"), ("answer.json", "is a tbc-check")):
            for kind in ((), ("--from", "deepspeed")):
                run = subprocess.run([TBC, "judge", file, "--model", MODELS / "tiny-mlp.onnx", "--gpus", "2", *kind],
                                     cwd=self.folder, capture_output=True, text=True, timeout=300)
                self.assertEqual((run.returncode, run.stdout), (2, ""))
                self.assertIn(f"{file} is a tbc-", run.stderr)
                self.assertIn(advice, run.stderr)

    def test_an_error_prints_nothing_on_stdout(self):
        self.assertEqual(self.tbc("check", "absent.onnx", "--json", code=2), "")
        self.assertEqual(self.tbc("explain", "absent.json", "--json", code=2), "")
        self.tbc("compile", "plan.json", "-o", "damaged", "--no-kernels")
        self.folder.joinpath("damaged/plan.json").write_text("{}")
        self.assertEqual(self.tbc("verify", "damaged", "--json", code=2), "")

    def test_every_key_has_a_description(self):
        for path, schema in SCHEMAS.items():
            for value in objects(schema):
                if isinstance(value.get("properties"), dict):
                    for key, entry in value["properties"].items():
                        if set(entry) == {"const"}:
                            continue  # a condition on a key that is described elsewhere
                        self.assertTrue(entry.get("description", "").endswith("."), (path.name, key))

    def test_the_page_lists_every_command_that_prints_json(self):
        rows = ROW.findall((SOURCE / "docs/json.md").read_text())
        for command, name, version, link in rows:
            schema = SCHEMAS[(SOURCE / "docs" / link).resolve()]
            text = json.dumps(schema)
            self.assertIn(f'"const": "{name}"', text, command)
            self.assertIn(f'"const": {version}', text, command)
        self.assertEqual({(SOURCE / "docs" / row[3]).resolve() for row in rows}, set(SCHEMAS))
        overview = subprocess.run([TBC, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        commands = [*re.findall(r"(?m)^  ([a-z]+) ", overview), "program show", "checkpoint consolidate"]
        have = set()
        for command in commands:
            if command not in ("program", "checkpoint"):
                text = subprocess.run([TBC, *command.split(), "--help"], capture_output=True, text=True, timeout=60).stdout
                have |= {command} if re.search(r"(?m)^ +--json\b", text) else set()
        self.assertEqual({row[0].split(" --")[0] for row in rows if "--json" in row[0]}, have)


if __name__ == "__main__":
    unittest.main()
