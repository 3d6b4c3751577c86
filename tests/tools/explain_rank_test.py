"""usage: explain_rank_test.py TBC SOURCE_DIR

`tbc explain --rank N` and `--decisions`: slices are those of the function printed in docs/plan.md,
bytes those of the plan's memory, groups are the same on all of their ranks. The model is not there.
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import jsonschema  # Debian: python3-jsonschema

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
PLANS = {
    "tp": "tiny-gpt2 --gpus 4 --mesh fsdp=2,tp=2 --batch 8 --seq 16",
    "pipeline": "tiny-gpt2 --gpus 8 --mesh pp=2,dp=2,tp=2 --batch 16 --seq 16 --precision f32",
    "chunks": "llama-8l --gpus 4 --mesh pp=2,fsdp=2 --schedule interleaved --virtual-stages 2 --batch 16 --micro-batch 1 --seq 64",
    "ring": "tiny-llama --gpus 4 --mesh cp=4 --context ring --batch 2 --micro-batch 1 --seq 64",
    "experts": "moe-8l --gpus 8 --mesh ep=4,dp=2 --batch 64",
    "free": "gpt2 --gpus 16 --batch 512 --seq 1024",
}
INDICES = re.search(r"```python\n(def indices.*?)```", (SOURCE / "docs/plan.md").read_text(), re.S).group(1)
exec(INDICES)  # noqa: S102  defines indices()


def ranges(text, size):
    """Returns the indices of one dim of a slice as tbc prints it."""
    if text == ":":
        return list(range(size))
    return [i for part in text.split("+") for i in range(*map(int, part.split(":")))]


def listed(text):
    """Returns the ranks of "0 to 56 by 8, 60"."""
    ranks = []
    for part in filter(None, text.split(", ")):
        words = part.split()
        last = int(words[2]) if len(words) > 2 else int(words[0])
        ranks += range(int(words[0]), last + 1, int(words[4]) if len(words) > 4 else 1)
    return ranks


class ExplainRankTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        cls.schema = jsonschema.Draft202012Validator(json.loads((SOURCE / "docs/explain.schema.json").read_text()))
        cls.plans, cls.ranks = {}, {}
        for name, words in PLANS.items():
            model, *flags = words.split()
            # The plan names a model that is not beside it: nothing below may read it.
            cls.tbc("plan", SOURCE / f"models/{model}.onnx", *flags, "-o", f"{name}.json")
            plan = json.loads((cls.folder / f"{name}.json").read_text())
            plan["model"]["path"] = "not/there.onnx"
            (cls.folder / f"{name}.json").write_text(json.dumps(plan))
            cls.plans[name] = plan
            cls.ranks[name] = [json.loads(cls.tbc("explain", f"{name}.json", "--rank", str(rank), "--json"))
                               for rank in range(plan["job"]["gpus"] - plan["idle_devices"])]  # fmt: skip

    @classmethod
    def tbc(cls, *words):
        run = subprocess.run([TBC, *words], capture_output=True, text=True, timeout=120, cwd=cls.folder)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def each(self):
        for name, ranks in self.ranks.items():
            for answer in ranks:
                yield name, self.plans[name], answer

    def test_the_json_is_valid(self):
        for name, _, answer in self.each():
            self.assertEqual([error.message for error in self.schema.iter_errors(answer)], [], name)
        for name in PLANS:
            for flag in ("--decisions", "--timeline"):
                answer = json.loads(self.tbc("explain", f"{name}.json", flag, "--json"))
                self.assertEqual([error.message for error in self.schema.iter_errors(answer)], [], name)

    def test_slices_are_those_of_the_printed_function(self):
        kinds = {"parameter": "stored", "gradient": "gradient", "optimizer state": "optimizer_state"}
        compared = collections.Counter()
        for name, plan, answer in self.each():
            mesh = {axis["axis"]: axis["size"] for axis in plan["layout"]["axes"]}
            coordinate = {axis: int(at) for axis, at in (word.split("=") for word in answer["coordinates"].split())}
            # Every dim with a split names its axes; axes of size 1 are not in the layout.
            everything = collections.defaultdict(lambda: 1, mesh), collections.defaultdict(int, coordinate)
            groups = {}
            for group in plan["layout"]["parameters"]:
                groups.setdefault(("x".join(map(str, group["shape"])), json.dumps(group, sort_keys=True)), group)
            for row in answer["holds"]:
                if row["kind"] not in kinds:
                    continue
                key = kinds[row["kind"]]
                fits = []
                for group in groups.values():
                    if row["type"].split()[0] != "x".join(map(str, group["shape"])) or key not in group:
                        continue
                    placement = group[key]
                    dims = [indices(dim, size, *everything) for dim, size in zip(placement["dims"], group["shape"])]
                    match = re.match(r"\[(.*?)\](?: flat (\d+):(\d+))?", row["slice"])
                    said = [ranges(part, size) for part, size in zip(filter(None, match[1].split(", ")), group["shape"])]
                    count = 1
                    for dim in dims:
                        count *= len(dim)
                    flat = None
                    if "flat" in placement:
                        piece, first = count + placement["padding"], 0
                        for axis in placement["flat"]:
                            piece //= everything[0][axis]
                            first += everything[1][axis] * piece
                        flat, count = (str(first), str(first + piece)), piece
                    size = {"f32": 4, "bf16": 2}[group["dtype"]] if key == "stored" else 4
                    if key == "optimizer_state":
                        size = 8 if group["dtype"] == "f32" else 12
                    fits.append((said, match[2] and (match[2], match[3]), row["bytes"]) == (dims, flat, count * size))
                self.assertTrue(any(fits), (name, answer["rank"], row))
                compared[row["kind"]] += 1
        self.assertGreater(min(compared.values()), 50)
        self.assertEqual(set(compared), set(kinds))

    def test_every_element_is_on_some_rank(self):
        for name, ranks in self.ranks.items():
            held = collections.defaultdict(set)
            for answer in ranks:
                for row in answer["holds"]:
                    if row["kind"] == "parameter" and "flat" not in row["slice"] and "," not in row["slice"]:
                        size = int(row["type"].split()[0])
                        held[row["tensors"], size] |= set(ranges(row["slice"][1:-1], size))
            for (tensors, size), elements in held.items():
                self.assertEqual(elements, set(range(size)), (name, tensors))

    def test_bytes_are_those_of_the_memory(self):
        lines = {"parameter": ["parameters"], "gradient": ["gradients"], "optimizer state": ["optimizer state", "master weights"]}
        for name, _, answer in self.each():
            memory = {line["line"]: line["bytes"] for line in answer["memory"]}
            for kind, names in lines.items():
                rows = [row for row in answer["holds"] if row["kind"] == kind]
                said, planned = sum(row["all_bytes"] for row in rows), sum(memory[line] for line in names)
                buffers = sum(row["count"] for row in rows) * (3 if kind == "optimizer state" else 1)
                # Buffers are aligned to 256 bytes; the update keeps a few scalars.
                self.assertLessEqual(said, planned, (name, kind))
                self.assertLessEqual(planned, said + 256 * buffers + 4096, (name, kind))

    def test_kernels_take_the_time_of_the_step(self):
        for name, plan, answer in self.each():
            if answer["stage"] != plan["prediction"]["slowest_stage"]:
                continue
            seconds = collections.Counter()
            for row in answer["computes"]:
                seconds[row["part"]] += row["seconds"]
            time = plan["prediction"]["time"]
            self.assertAlmostEqual(seconds["forward"] + seconds["backward"] + seconds["weight"], time["compute"], delta=1e-9 * time["compute"])
            self.assertAlmostEqual(seconds["recompute"] + seconds["recompute_weight"], time["recompute"], delta=1e-12)
            self.assertAlmostEqual(seconds["update_step"], time["update"], delta=1e-12)

    def test_groups_are_the_same_on_all_of_their_ranks(self):
        for name, ranks in self.ranks.items():
            groups = [collections.defaultdict(set) for _ in ranks]
            for answer in ranks:
                for row in answer["says"]:
                    members = listed(row["ranks"])
                    if row["kind"] == "send":
                        self.assertNotIn(answer["rank"], members)
                    else:
                        self.assertIn(answer["rank"], members)
                    groups[answer["rank"]][row["axes"]].add(tuple(members))
            for rank, by_axes in enumerate(groups):
                for axes, sets in by_axes.items():
                    if axes == "pp":
                        continue  # each parameter has its own stages
                    (members,) = sets
                    for member in members:
                        self.assertEqual(groups[member][axes], sets, (name, rank, axes))

    def test_messages_are_those_of_the_prediction(self):
        for name, plan, answer in self.each():
            said, predicted = collections.Counter(), collections.Counter()
            for row in answer["says"]:
                said[row["kind"], row["axes"], row["bytes"]] += row["count"]
            for line in plan["prediction"]["collectives"]:
                if line["stage"] == answer["stage"]:
                    predicted[line["kind"], line["axes"], line["bytes"]] += line["count"]
            self.assertEqual(said, predicted, name)

    def test_decisions_have_rivals(self):
        answer = json.loads(self.tbc("explain", "free.json", "--decisions", "--json"))
        plan = self.plans["free"]
        self.assertEqual([(row["decision"], row["value"], row["origin"], row["why"]) for row in answer["decisions"]],
                         [(r["decision"], r["value"], r["origin"], r["text"]) for r in plan["reasons"]])
        mesh = answer["decisions"][0]
        others = [other for other in plan["alternatives"] if other["mesh"] != plan["mesh"] and other["memory"] == "fits"]
        best = min(others, key=lambda other: other["step_seconds"])
        self.assertEqual((mesh["other_time"], mesh["other_memory"]), (best["step_seconds"], best["peak_bytes"]))

    def test_text(self):
        text = self.tbc("explain", "pipeline.json", "--rank", "5")
        for word in ("pp=1 dp=0 tp=1", "mlp.c_fc", "optimizer state", "all_reduce", "4 to 5", "matmul"):
            self.assertIn(word.replace("4 to 5", "4, 5"), text)
        self.assertIn("micro-batch", self.tbc("explain", "free.json", "--decisions"))

    def test_wrong_ranks_and_edited_plans_are_refused(self):
        for rank in ("8", "-1", "x"):
            run = subprocess.run([TBC, "explain", "pipeline.json", "--rank", rank], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn("--rank", run.stderr)
        edited = dict(self.plans["pipeline"], prefetch=7)
        (self.folder / "edited.json").write_text(json.dumps(edited))
        for flags in (["--rank", "0"], ["--decisions"]):
            run = subprocess.run([TBC, "explain", "edited.json", *flags], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn("--derive", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
