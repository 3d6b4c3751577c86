"""usage: sensitivity_test.py TBC SOURCE_DIR

`tbc explain --sensitivity`: every row equals `tbc plan` with the changed cluster file or flag; the
text, the JSON and the picture of the report agree.
"""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

import jsonschema  # Debian: python3-jsonschema

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tests/support"))
from browser import Browser, find_browser  # noqa: E402

MODEL = SOURCE / "models/gpt2.onnx"
# Memory binds in the second job, and pins hold in the third.
JOBS = {
    "tight": dict(gpus=16, seq=256, batch=256, memory=5_000_000_000),
    "pinned": dict(gpus=16, seq=256, batch=256, flags=["--mesh", "fsdp=8,tp=2", "--recompute", "none"]),
    "small": dict(gpus=4, seq=256, batch=64),
}
NETWORKS = {"network in a node": "intra_node", "network between nodes": "inter_node"}


def toml(table, path=""):
    """Returns a table as TOML; tables of numbers, texts and tables alone."""
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    text = (f"[{path}]\n" if path else "") + "".join(line + "\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, dict):
            text += toml(value, f"{path}.{json.dumps(key)}" if path else json.dumps(key))
    return text


def tbc(*words, check=True):
    run = subprocess.run([TBC, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert not check or run.returncode == 0, run.stderr
    return run


def changed(cluster, row, job):
    """Returns the cluster and the job after the change of `row`."""
    cluster, job = copy.deepcopy(cluster), dict(job)
    subject, change = row["subject"], row["change"]
    factor = {"+10 %": 1.1, "-10 %": 0.9}.get(change)
    if subject == "memory":
        cluster["device"]["memory_bytes"] += 2**30
    elif subject == "memory bandwidth":
        cluster["device"]["memory_bytes_per_second"] *= factor
    elif subject in NETWORKS:
        level = cluster["network"][NETWORKS[subject]]
        for key in ("bytes_per_second", "switch_bytes_per_second"):
            if key in level:
                level[key] *= factor
        for key in level.get("group_bytes_per_second", {}):
            level["group_bytes_per_second"][key] *= factor
    elif subject == "matmul efficiency":
        kernel = cluster["kernel"]["matmul"]
        kernel["flops_fraction"] = min(1.0, kernel["flops_fraction"] * factor)
    elif subject in ("nodes", "devices"):
        job["gpus"] += int(change) * (8 if subject == "nodes" else 1)
    elif subject == "batch":
        job["batch"] *= 2
    elif subject == "sequence":
        job["seq"] //= 2
    else:
        raise AssertionError(subject)
    return cluster, job


class SensitivityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        cls.clusters, cls.answers, cls.plans = {}, {}, {}
        for name, job in JOBS.items():
            cluster = tomllib.loads(tbc("cluster", "h100-sxm").stdout)
            cluster["device"]["memory_bytes"] = job.get("memory", cluster["device"]["memory_bytes"])
            cls.clusters[name] = cluster
            cls.plans[name] = cls.plan(name, cluster, job)
            cls.answers[name] = json.loads(tbc("explain", cls.folder / f"{name}.json", "--sensitivity", "--json").stdout)
            (cls.folder / f"{name}.sensitivity.json").write_text(json.dumps(cls.answers[name]))

    @classmethod
    def plan(cls, name, cluster, job):
        """Plans from scratch; returns None if nothing fits or the flags are impossible."""
        file, output = cls.folder / "cluster.toml", cls.folder / f"{name}.json"
        file.write_text(toml(cluster))
        run = tbc("plan", MODEL, "--cluster", file, "--gpus", job["gpus"], "--batch", job["batch"], "--seq", job["seq"],
                  *job.get("flags", []), "-o", output, check=False)  # fmt: skip
        return json.loads(output.read_text()) if run.returncode == 0 else None

    def test_the_json_is_valid(self):
        schema = jsonschema.Draft202012Validator(json.loads((SOURCE / "docs/explain.schema.json").read_text()))
        for name, answer in self.answers.items():
            self.assertEqual([error.message for error in schema.iter_errors(answer)], [], name)

    def test_every_row_equals_a_plan_of_the_changed_job(self):
        # A third of each job's rows, another third for each job; `ctest -C full -L full -R sensitivity` tries all.
        full = "TBC_FULL_TESTS" in os.environ
        seen, planned = set(), 0
        for job, (name, answer) in enumerate(self.answers.items()):
            self.assertEqual(answer["base"], answer["plan"], name)
            self.assertEqual(answer["base"]["step_seconds"], self.plans[name]["step_seconds"])
            for row in answer["rows"] if full else answer["rows"][job::len(JOBS)]:
                with self.subTest(name, subject=row["subject"], change=row["change"]):
                    plan = self.plan("changed", *changed(self.clusters[name], row, JOBS[name]))
                    if row["worth"] == "impossible":
                        self.assertIsNone(plan)
                        self.assertTrue(row["reason"])
                        continue
                    self.assertEqual(row["plan"]["step_seconds"], plan["step_seconds"])
                    self.assertEqual(row["plan"]["peak_bytes"], plan["peak_bytes"])
                    self.assertEqual(row["plan"]["batch"], plan["job"]["batch"])
                    rate = plan["job"]["batch"] * plan["job"]["sequence"] / plan["step_seconds"]
                    self.assertAlmostEqual(row["plan"]["tokens_per_second"], rate, delta=1e-9 * rate)
                    self.assertAlmostEqual(row["ratio"], rate / answer["base"]["tokens_per_second"], delta=1e-9)
                    was, now = ((p["mesh"], p["parameters"]["default"]["zero"], p["micro_batch"]) for p in (self.plans[name], plan))
                    if was != now:
                        self.assertTrue(row["plan_changes"])
                    seen.add(row["subject"])
                    planned += 1
        if full:
            self.assertEqual(seen - {"devices"}, {"memory", "memory bandwidth", *NETWORKS, "matmul efficiency", "nodes", "batch", "sequence"})
        self.assertGreater(len(seen), 4)
        self.assertGreater(planned, 30 if full else 10)

    def test_ties_are_called_ties(self):
        worths = set()
        for answer in self.answers.values():
            for row in answer["rows"]:
                worths.add(row["worth"])
                if row["worth"] != "impossible":
                    expected = "tie" if 0.98 < row["ratio"] < 1.02 else "gain" if row["ratio"] > 1 else "loss"
                    self.assertEqual(row["worth"], expected)
        self.assertEqual(worths, {"gain", "loss", "tie", "impossible"})

    def test_a_job_within_a_node_has_no_network_between_nodes(self):
        self.assertNotIn("network between nodes", {row["subject"] for row in self.answers["small"]["rows"]})
        self.assertIn("network in a node", {row["subject"] for row in self.answers["small"]["rows"]})

    def test_a_pinned_mesh_takes_no_other_number_of_nodes(self):
        rows = [row for row in self.answers["pinned"]["rows"] if row["subject"] == "nodes"]
        self.assertEqual([row["worth"] for row in rows], ["impossible"] * 2)

    def test_text_fits_80_columns_and_has_every_row(self):
        for name, answer in self.answers.items():
            text = tbc("explain", self.folder / f"{name}.json", "--sensitivity").stdout
            self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
            for row in answer["rows"]:
                self.assertRegex(text, rf"(?m)^  {re.escape(row['subject'])} {re.escape(row['change'])} ")

    def test_without_the_model_it_says_so(self):
        plan = json.loads((self.folder / "tight.json").read_text())
        plan["model"]["path"] = "gone.onnx"
        (self.folder / "moved.json").write_text(json.dumps(plan))
        run = tbc("explain", self.folder / "moved.json", "--sensitivity", check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("needs the model", run.stderr)
        self.assertIn("--model", run.stderr)

    def test_the_report_takes_only_what_is_about_its_plan(self):
        page = self.folder / "page.html"
        run = tbc("report", self.folder / "tight.json", "--sensitivity", self.folder / "small.sensitivity.json", "-o", page, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("another plan", run.stderr)
        (self.folder / "broken.json").write_text(json.dumps({**self.answers["tight"], "rows": [{"subject": "x"}]}))
        run = tbc("report", self.folder / "tight.json", "--sensitivity", self.folder / "broken.json", "-o", page, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("rows[0]", run.stderr)

    @unittest.skipUnless(find_browser(), "no Chromium is installed")
    def test_the_report_draws_a_tornado(self):
        for name, answer in self.answers.items():
            page = self.folder / f"{name}.html"
            tbc("report", self.folder / f"{name}.json", "--sensitivity", self.folder / f"{name}.sensitivity.json", "-o", page)
            with Browser(find_browser()) as browser:
                for width in (1280, 390):
                    browser.size(width, 800)
                    browser.open(page)
                    bars = browser.run("[...document.querySelectorAll('#sensitivity figure [role=img]')].map((n) => n.getAttribute('aria-label'))")
                    self.assertEqual(len(bars), len(answer["rows"]))
                    for row in answer["rows"]:
                        self.assertTrue(any(bar.startswith(f"{row['subject']} {row['change']}: ") for bar in bars), row)
                    self.assertEqual(browser.run("document.querySelectorAll('#sensitivity tbody tr').length"), len(answer["rows"]))
                    self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                    self.assertEqual(browser.messages(), [])
                    text = browser.run("document.querySelector('#sensitivity').innerText")
                    for word in ("undefined", "NaN", "Infinity"):
                        self.assertNotIn(word, text)
        tbc("report", self.folder / "tight.json", "-o", self.folder / "plain.html")
        self.assertNotIn('"sensitivity":', (self.folder / "plain.html").read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
