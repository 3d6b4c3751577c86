"""usage: size_test.py TBC SOURCE_DIR

`tbc size`: each row follows from `tbc plan` of that size; the Pareto front, limits, prices and the
batch limit are computed again here.
"""

import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jsonschema  # Debian: python3-jsonschema

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
MODEL = SOURCE / "models/gpt2.onnx"
PRICES = """currency = "EUR"
[price.h100-sxm]
per_device_hour = 2.5
date = "2026-01"
source = "an offer"
[price.l4]
per_device_hour = 0.4
date = "2026-01"
source = "an offer"
"""
BASE = ["--seq", "256", "--tokens", "300B", "--gpus-to", "32", "--cluster", "h100-sxm", "--cluster", "l4"]
# One size of each kind, for what does not compare sizes.
SMALL = [*BASE[:4], "--gpus-to", "8", *BASE[6:]]
ENDS = ("low", "middle", "high")


class SizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        (cls.folder / "prices.toml").write_text(PRICES)
        schema = json.loads((SOURCE / "docs/size.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        cls.validator = jsonschema.Draft202012Validator(schema)
        cls.answers = {
            "plain": cls.sized(BASE, "--prices", "prices.toml"),
            "limits": cls.sized(BASE, "--prices", "prices.toml", "--deadline", "12h", "--budget", "470"),
            "batch": cls.sized(BASE, "--prices", "prices.toml", "--max-batch-tokens", "100k"),
            "unpriced": cls.sized(SMALL),
        }

    @classmethod
    def tbc(cls, *words):
        return subprocess.run([TBC, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cls.folder)

    @classmethod
    def sized(cls, job, *words):
        run = cls.tbc("size", MODEL, *job, "--json", *words)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    def test_the_json_is_valid(self):
        for name, answer in self.answers.items():
            self.assertEqual([error.message for error in self.validator.iter_errors(answer)], [], name)

    def test_every_row_follows_from_a_plan_of_that_size(self):
        for name in ("plain", "batch"):
            answer = self.answers[name]
            self.assertEqual([(row["cluster"], row["devices"]) for row in answer["rows"]],
                             list(itertools.product(("h100-sxm", "l4"), (8, 16, 32))))
            for row in answer["rows"]:
                flags = ["--batch", row["batch"]] if name == "batch" else []
                file = self.folder / "plan.json"
                run = self.tbc("plan", MODEL, "--seq", "256", "--gpus", row["devices"], "--cluster", row["cluster"], *flags, "-o", file)
                self.assertEqual(run.returncode, 0, run.stderr)
                plan = json.loads(file.read_text())
                self.assertEqual(row["step_seconds"], plan["step_seconds"], row)
                self.assertEqual(row["batch"], plan["job"]["batch"])
                steps = math.ceil(300e9 / (row["batch"] * 256))
                self.assertEqual(row["steps"], steps)
                price = {"h100-sxm": 2.5, "l4": 0.4}[row["cluster"]]
                prediction = plan["prediction"]
                for end, seconds in zip(ENDS, (prediction["low_seconds"], plan["step_seconds"], prediction["high_seconds"])):
                    hours = steps * seconds / 3600
                    self.assertAlmostEqual(row["days"][end] / (hours / 24), 1, places=9)
                    self.assertAlmostEqual(row["device_hours"][end] / (hours * row["devices"]), 1, places=9)
                    self.assertAlmostEqual(row["money"][end] / (hours * row["devices"] * price), 1, places=9)

    def test_the_front_is_of_what_nothing_beats(self):
        for name, answer in self.answers.items():
            rows = answer["rows"]
            self.assertTrue(any(not row["front"] for row in rows) or name == "plain", name)
            for row in rows:
                keys = ["days", "device_hours"]
                beaten = False
                for other in rows:
                    both = keys + (["money"] if "money" in row and "money" in other else [])
                    pairs = [(other[key]["middle"], row[key]["middle"]) for key in both]
                    beaten |= all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
                self.assertEqual(row["front"], not beaten, (name, row["cluster"], row["devices"]))

    def test_limits_are_kept(self):
        answer = self.answers["limits"]
        allowed = []
        for index, row in enumerate(answer["rows"]):
            for key, limit, estimate in (("deadline", 0.5, row["days"]), ("budget", 470, row["money"])):
                kept = "surely" if estimate["high"] <= limit else "probably" if estimate["middle"] <= limit else "not"
                self.assertEqual(row[key], kept)
            if "not" not in (row["deadline"], row["budget"]):
                allowed.append(index)
        cost, days = (lambda i: answer["rows"][i]["money"]["middle"]), (lambda i: answer["rows"][i]["days"]["middle"])
        self.assertEqual(answer["cheapest"], min(allowed, key=cost) if allowed else None)
        self.assertEqual(answer["fastest"], min(allowed, key=days) if allowed else None)
        self.assertTrue(0 < len(allowed) < len(answer["rows"]), "the limits must decide something")

    def test_the_batch_stays_within_its_limit(self):
        for row in self.answers["batch"]["rows"]:
            self.assertLessEqual(row["batch_tokens"], 100e3)
            self.assertEqual(row["batch"], 390 // row["devices"] * row["devices"])
        text = self.tbc("size", MODEL, *SMALL, "--max-batch-tokens", "100k").stdout
        self.assertIn("within 100 k tokens", text)
        run = self.tbc("size", MODEL, *BASE, "--max-batch-tokens", "100")
        self.assertEqual(run.returncode, 2)
        self.assertIn("a sample has 256 tokens", run.stderr)

    def test_without_a_price_money_is_left_out_and_said(self):
        answer = self.answers["unpriced"]
        self.assertTrue(answer["prices_are_examples"])
        self.assertEqual([("money" in row) for row in answer["rows"]], [True, False])
        text = " ".join(self.tbc("size", MODEL, *SMALL).stdout.split())
        self.assertIn("money is left out for l4", text)
        self.assertIn("prices are examples", text)
        self.assertIn("2024-12, Amazon EC2 Capacity Blocks", text)
        run = self.tbc("size", MODEL, *SMALL[:-4], "--cluster", "l4", "--budget", "1M")
        self.assertEqual(run.returncode, 2)
        self.assertIn("no price of l4", run.stderr)

    def test_text_fits_80_columns_and_says_what_is_uncertain(self):
        for words in ((), ("--all", "--deadline", "30d"), ("--deadline", "1h")):
            run = self.tbc("size", MODEL, *SMALL, *words)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertLessEqual(max(map(len, run.stdout.splitlines())), 80, run.stdout)
            self.assertIn("intervals: uncertainty", run.stdout)
            low, high = re.search(r"times, -(\d+) % to \+(\d+) % of days, device-hours and money alike", " ".join(run.stdout.split())).groups()
            rows = self.answers["unpriced"]["rows"]
            for key, end, sign in ((low, "low", -1), (high, "high", 1)):
                ratios = [abs(row[what][end] / row[what]["middle"] - 1) for row in rows for what in ("days", "device_hours", "money") if what in row]
                self.assertAlmostEqual(int(key) / 100, max(ratios), delta=0.006)
        self.assertIn("no size here keeps 0.042 days", run.stdout)

    def test_the_text_says_where_batches_differ(self):
        """A batch of 2^19 tokens has fewer samples than 64 devices where a sample has 16,384."""
        model = self.folder / "llama.onnx"
        self.tbc("new", "llama", "--layers", "2", "--hidden", "256", "--heads", "4", "--kv-heads", "4", "--ffn", "512",
                 "--vocab", "1024", "-o", model)
        for most, words in (("32", "batch: the same at every size;"), ("64", "for the devices, 524 k to 1.05 M tokens;")):
            run = self.tbc("size", model, "--seq", "16384", "--tokens", "1B", "--gpus-from", "32", "--gpus-to", most,
                           "--cluster", "h100-sxm")
            self.assertIn(words, " ".join(run.stdout.split()), run.stderr)

    def test_what_does_not_fit_is_named(self):
        cluster = self.folder / "little.toml"
        text = self.tbc("cluster", "l4").stdout
        cluster.write_text(re.sub(r"(?m)^memory_bytes = .*", "memory_bytes = 3_000_000_000", text))
        run = self.tbc("size", MODEL, "--tokens", "1B", "--seq", "256", "--gpus-from", "1", "--gpus-to", "8", "--cluster", cluster, "--json")
        answer = json.loads(run.stdout)
        self.assertGreater(len(answer["omitted"]), 0)
        for size in answer["omitted"]:
            self.assertIn("no plan", size["reason"])
        cluster.write_text(re.sub(r"(?m)^memory_bytes = .*", "memory_bytes = 1_000_000", text))
        run = self.tbc("size", MODEL, "--tokens", "1B", "--seq", "256", "--gpus-to", "8", "--cluster", cluster)
        self.assertEqual(run.returncode, 4)
        self.assertIn("no size has a plan", run.stderr)

    def test_the_picture_has_every_row(self):
        for name, words in (("a", ["--prices", "prices.toml", "--deadline", "12h", "--budget", "470"]), ("b", [])):
            run = self.tbc("size", MODEL, *(BASE if words else SMALL), *words, "-o", f"{name}.svg")
            self.assertEqual(run.returncode, 0, run.stderr)
            root = ElementTree.fromstring((self.folder / f"{name}.svg").read_text())
            ns = "{http://www.w3.org/2000/svg}"
            titles = [node.text for node in root.iter(ns + "title")]
            rows = self.answers["limits" if words else "unpriced"]["rows"]
            for row in rows:
                self.assertTrue(any(title.startswith(f"{row['devices']} x {row['cluster']}: ") for title in titles), row)
            self.assertEqual(len(titles), 1 + len(rows))
            self.assertEqual(len([n for n in root.iter(ns + "line") if n.get("class") == "limit"]), len(words) // 2 - (1 if words else 0))
            for node in root.iter():
                for key in ("x", "cx", "x1", "x2"):
                    if key in node.attrib:
                        self.assertTrue(-1 <= float(node.get(key)) <= 901, node.attrib)
            self.assertIn("EUR" if words else "device-hours", root.find(ns + "title").text)

    def test_wrong_flags_are_named(self):
        for words, message in (
            (["--tokens", "many"], "--tokens many"), (["--tokens", "-5"], "--tokens"), (["--tokens", "15Z"], "15Z"),
            (["--tokens", "0x10"], "0x10"), (["--tokens", "0"], "--tokens 0"), ([], "--tokens is required"),
            (["--tokens", "1B", "--deadline", "30"], "--deadline 30"), (["--tokens", "1B", "--deadline", "0d"], "--deadline 0d"),
            (["--tokens", "1B", "--gpus-from", "64", "--gpus-to", "8"], "--gpus-from 64"),
            (["--tokens", "1B", "--prices", "none.toml"], "none.toml"), (["--tokens", "1B", "--cluster", "h1000"], "h1000"),
        ):  # fmt: skip
            run = self.tbc("size", MODEL, *words)
            self.assertEqual(run.returncode, 2, (words, run.stderr))
            self.assertIn(message, run.stderr)

    def test_malformed_prices_are_named(self):
        for text, message in (
            ("currency = 1\n", "currency must be a string"), ('currency = "USD"\n', "[price.CLUSTER]"),
            (PRICES.replace("2.5", "-1"), "price.h100-sxm.per_device_hour must be positive"),
            (PRICES.replace("2.5", '"2.5"'), "price.h100-sxm.per_device_hour must be a number"),
            (PRICES.replace("date", "dates"), "did you mean price.h100-sxm.date"),
            (PRICES + "[price.x]\n", "price.x.per_device_hour is missing"), ("[price", "bad.toml:1"),
            ('currency = "USD"\nprice = 1\n', "[price.CLUSTER]"), ('currency = "USD"\n[price]\nl4 = 1\n', "price.l4 must be a table"),
        ):  # fmt: skip
            (self.folder / "bad.toml").write_text(text)
            run = self.tbc("size", MODEL, "--tokens", "1B", "--prices", "bad.toml")
            self.assertEqual(run.returncode, 2, (text, run.stderr))
            self.assertIn(message, run.stderr)

    def test_written_prices_are_read(self):
        self.assertEqual(self.tbc("size", "--write-prices", "mine.toml").returncode, 0)
        run = self.tbc("size", MODEL, "--tokens", "1B", "--seq", "256", "--gpus-to", "8", "--prices", "mine.toml", "--json")
        answer = json.loads(run.stdout)
        self.assertFalse(answer["prices_are_examples"])
        self.assertEqual(sorted({row["cluster"] for row in answer["rows"]}), ["a100-40gb-sxm", "h100-sxm", "h200-sxm"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
