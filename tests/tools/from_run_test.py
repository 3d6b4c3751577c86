"""usage: from_run_test.py TBC SOURCE_DIR

`tbc calibrate --from-run`: measured steps move the predicted time towards them and narrow its interval, by
the formula of the docs; plans of the written cluster have all times scaled.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
SPREAD, DEVIATIONS = 0.07, 1.645  # docs/accuracy.md
MODEL = SOURCE / "models/tiny-gpt2.onnx"
JOB = ["--gpus", "16", "--mesh", "dp=2,fsdp=8", "--batch", "64", "--micro-batch", "2", "--seq", "16"]


def posterior(seconds, predicted, uncertainty):
    """The formula of docs/accuracy.md: (factor, half-width)."""
    logs = [math.log(s / predicted) for s in seconds]
    middle = sorted(seconds)
    n = len(middle)
    measured = math.log((middle[(n - 1) // 2] + middle[n // 2]) / 2 / predicted)
    mean = sum(logs) / n
    noise = SPREAD**2 + (sum((x - mean) ** 2 for x in logs) / (n - 1) / n if n > 1 else 0)
    prior = (math.log(1 + uncertainty) / DEVIATIONS) ** 2
    if abs(measured) > math.log(1 + uncertainty):
        prior = max(prior, measured**2 - noise)
    weight = prior / (prior + noise)
    return math.exp(weight * measured), math.exp(DEVIATIONS * math.sqrt(weight * noise)) - 1


class FromRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        cls.plan = cls.planned("plan.json", "--executor", "torchtitan")

    @classmethod
    def tbc(cls, *words, code=0):
        run = subprocess.run([TBC, *words], capture_output=True, text=True, timeout=300, cwd=cls.folder)
        assert run.returncode == code, (words, run.returncode, run.stderr)
        return run.stdout if code == 0 else run.stdout + run.stderr

    @classmethod
    def planned(cls, name, *flags):
        cls.tbc("plan", MODEL, *JOB, *flags, "-o", name)
        return json.loads((cls.folder / name).read_text())

    def fit(self, text, *flags, log="steps.csv", plan="plan.json", code=0):
        if text is not None:
            (self.folder / log).write_text(text)
        return self.tbc("calibrate", "--from-run", log, "--plan", plan, *flags, "-o", "mine.toml", code=code)

    def written(self, executor="torchtitan"):
        text = (self.folder / "mine.toml").read_text()
        factor, uncertainty = re.search(rf"\[measured.{executor}\]\ntime_factor = (\S+)\ntime_uncertainty = (\S+)\n", text).groups()
        return float(factor), float(uncertainty)

    def check(self, seconds, plan):
        before, uncertainty = plan["step_seconds"], plan["cluster"]["time_uncertainty"]
        factor, half = posterior(seconds, before, uncertainty)
        earlier = plan["cluster"].get("time_factor", 1)
        self.assertAlmostEqual(self.written()[0] / (earlier * factor), 1, delta=1e-4)
        self.assertAlmostEqual(self.written()[1] / half, 1, delta=0.01)
        return factor

    def test_three_steps_narrow_the_interval_around_them(self):
        before = self.plan["step_seconds"]
        steps = [1.25 * before, 1.2 * before, 1.22 * before]
        said = self.fit("step,seconds\n" + "".join(f"{i},{s}\n" for i, s in enumerate([9 * before, *steps], 1)))
        self.assertIn("3 steps", said)  # the first one warms up
        self.assertNotIn("outside", said)
        factor = self.check(steps, self.plan)
        after = self.planned("after.json", "--executor", "torchtitan", "--cluster", "mine.toml")
        p, q = ({**plan["prediction"], **{key: plan[key] for key in ("step_seconds", "peak_bytes")}} for plan in (self.plan, after))
        # All times have the factor: parts, communication and the bound.
        self.assertAlmostEqual(q["step_seconds"] / (factor * before), 1, delta=1e-4)
        for key, value in p["time"].items():
            self.assertAlmostEqual(q["time"][key], factor * value, delta=1e-4 * before, msg=key)
        width = [(each["high_seconds"] - each["low_seconds"]) / each["step_seconds"] for each in (p, q)]
        self.assertLess(width[1], 0.5 * width[0])
        self.assertTrue(q["low_seconds"] < 1.22 * before < q["high_seconds"])
        self.assertEqual(p["peak_bytes"], q["peak_bytes"])
        # Another executor keeps its own prediction.
        self.assertNotIn("time_factor", self.planned("own.json", "--cluster", "mine.toml")["cluster"])

    def test_a_second_run_adds_to_the_first(self):
        before = self.plan["step_seconds"]
        self.fit(f"{1.2 * before}\n")
        once = self.written()
        second = self.planned("second.json", "--executor", "torchtitan", "--cluster", "mine.toml")
        self.assertAlmostEqual(second["cluster"]["time_factor"], once[0], delta=1e-6)
        self.fit(f"{1.2 * before}\n", "--cluster", "mine.toml", plan="second.json")
        self.check([1.2 * before], second)
        self.assertTrue(once[0] < self.written()[0] < 1.2 and self.written()[1] < once[1])
        self.assertEqual((self.folder / "mine.toml").read_text().count("time_factor"), 1)
        self.assertIn("planned for another cluster", self.fit(None, "--cluster", "mine.toml", plan="second.json", code=2))

    def test_faster_and_far_off_steps(self):
        before = self.plan["step_seconds"]
        for ratio in (0.5, 3.0):
            said = self.fit(f"{ratio * before}\n")
            self.assertIn("outside of the interval", said)
            self.check([ratio * before], self.plan)
            after = self.planned("after.json", "--executor", "torchtitan", "--cluster", "mine.toml")["prediction"]
            self.assertTrue(after["low_seconds"] < ratio * before < after["high_seconds"])
            self.tbc("explain", "after.json")

    def test_a_run_and_its_profile(self):
        small = ["--gpus", "2", "--batch", "8", "--seq", "16", "--precision", "f32", "--cluster", "cpu-local"]
        self.tbc("plan", MODEL, *small, "-o", "small.json")
        self.tbc("compile", "small.json", "-o", "program")
        self.tbc("run", "program", "--steps", "3", "--log", "run.jsonl", "--profile", "run.json", "--eval-data", "synthetic", "--eval-batches", "1")
        lines = [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]
        steps = [line["seconds"] for line in lines if "evaluation_loss" not in line][1:]
        self.assertEqual(len(steps), 2)
        plan = json.loads((self.folder / "small.json").read_text())
        predicted, half = plan["step_seconds"], plan["cluster"]["time_uncertainty"]
        self.fit(None, log="run.jsonl", plan="small.json")
        self.assertAlmostEqual(self.written("tbc")[0] / posterior(steps, predicted, half)[0], 1, delta=1e-3)
        events = [e for e in json.loads((self.folder / "run.json").read_text())["traceEvents"] if e["ph"] == "X"]
        step = (max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)) * 1e-6
        self.fit(None, log="run.json", plan="small.json")
        self.assertAlmostEqual(self.written("tbc")[0] / posterior([step], predicted, half)[0], 1, delta=0.1)  # ends of ranks differ

    def test_wrong_input_is_refused(self):
        for text, word in (("", "has no step time"), ("seconds\n", "has no step time"), ("loss\n1\n", "with a column seconds"), ("1\n-1\n", "csv:2: a step must take"),
                           ("seconds,x\n1,2\n,3\n", "csv:3: has no number"), ('{"step": 1}\n', 'no "step" with "seconds"'), ("{}\n{\n", "csv:1: has no")):  # fmt: skip
            self.assertIn(word, self.fit(text, code=2))
        self.assertIn("absent.csv", self.fit(None, log="absent.csv", code=2))
        self.assertIn("--from-run", self.tbc("calibrate", "--plan", "plan.json", "-o", "x.toml", code=2))
        self.assertIn("--plan", self.tbc("calibrate", "--from-run", "steps.csv", "-o", "x.toml", code=2))
        self.fit("1\n", "--quick", code=2)
        self.fit("1\n")
        text = (self.folder / "mine.toml").read_text().replace("h100-sxm", "renamed")
        (self.folder / "mine.toml").write_text(text)
        self.planned("renamed.json", "--cluster", "mine.toml")
        self.assertIn("name its file with --cluster", self.fit(None, plan="renamed.json", code=2))
        self.assertIn("planned for another cluster", self.fit(None, "--cluster", "a100-80gb-sxm", code=2))
        (self.folder / "wrong.toml").write_text(text.replace("measured.torchtitan", "measured.torchtitn"))
        self.assertIn("did you mean measured.torchtitan?", self.tbc("plan", MODEL, *JOB, "--cluster", "wrong.toml", code=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
