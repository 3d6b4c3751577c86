#!/usr/bin/env python3
"""Tests of accuracy.py and collectives.py: pipeline cuts of frameworks, statistics, networks, and a
whole folder.
"""

import contextlib
import io
import math
import os
import unittest
from pathlib import Path

import accuracy
import collectives

# nanotron's Llamas of the ultra-scale playbook.
SMALL = {"source_group": "nanotron", "kind": "llama", "layers": "16", "hidden": "2048", "ffn_hidden": "8192", "vocab": "131072", "vpp": "1"}
LARGE = {**SMALL, "layers": "32", "hidden": "4096", "ffn_hidden": "14336"}


class Cuts(unittest.TestCase):
    def test_even(self):
        row = {"source_group": "korthikanti", "kind": "gpt2", "layers": "96", "pp": "8", "vpp": "3"}
        self.assertEqual(accuracy.chunk_layers(row), ([4] * 24, []))
        self.assertEqual(accuracy.stage_begins(row)[:2], ["transformer.h.4.*", "transformer.h.8.*"])
        self.assertIsNone(accuracy.chunk_layers({**row, "vpp": "5"}))

    def test_short_ends(self):
        """The first stage also has the embedding, and the last one the head, in the place of a layer."""
        row = {"source_group": "zero-bubble", "kind": "gpt2", "layers": "22", "pp": "8", "vpp": "1", "pp_split": accuracy.SHORT_ENDS}
        self.assertEqual(accuracy.chunk_layers(row), ([2, 3, 3, 3, 3, 3, 3, 2], []))
        chunks = accuracy.stage_begins({**row, "vpp": "3"})
        self.assertEqual(len(chunks), 23)
        self.assertEqual((chunks[0], chunks[-1]), ("transformer.h.0.*", "transformer.ln_f.*"))
        for other in ({"pp_split": "by hand"}, {"layers": "24"}):
            with self.assertRaises(accuracy.Unsupported):
                accuracy.chunk_layers({**row, **other})

    def test_by_cost(self):
        """A layer of the small model costs 67.1 M, and its head 4 times as much. A stage takes
        layers until their cost passes its share of 20 layers.
        """
        self.assertEqual(accuracy.chunk_layers({**SMALL, "pp": "2"}), ([11, 5], []))
        self.assertEqual(accuracy.chunk_layers({**SMALL, "pp": "4"}), ([6, 5, 5], ["model.norm.*"]))
        self.assertEqual(accuracy.chunk_layers({**SMALL, "pp": "8"}), ([3, 3, 2, 3, 2, 3], ["model.norm.*", "loss*"]))
        self.assertEqual(accuracy.stage_begins({**SMALL, "pp": "4"}), ["model.layers.6.*", "model.layers.11.*", "model.norm.*"])
        self.assertEqual(accuracy.chunk_layers({**LARGE, "pp": "4"}), ([9, 9, 8, 6], []))
        with self.assertRaises(accuracy.Unsupported):
            accuracy.chunk_layers({**SMALL, "pp": "16"})


class Statistics(unittest.TestCase):
    """Factors and intervals of evidence."""

    @staticmethod
    def lines(*ratios):
        return [{"predicted": 1.0, "measured": ratio} for ratio in ratios]

    def test_a_factor_is_drawn_to_one(self):
        two = [self.lines(2, 2, 2), self.lines(2)]
        self.assertAlmostEqual(accuracy.factor(two), 2 / 3 * math.log(2))
        self.assertEqual(accuracy.factor([]), 0)

    def test_sources_weigh_the_same(self):
        many = self.lines(*[1.01] * 1000)
        self.assertAlmostEqual(accuracy.width([many]), 0.01)
        self.assertAlmostEqual(accuracy.width([many, self.lines(1.5)]), 0.5)
        self.assertIsNone(accuracy.width([]))

    def test_plans_by_memory_first(self):
        # The fastest is tight and took 3 s, so the next, 2 s, is as planned: +100 % instead of +200 %.
        runs = ((1.0, 3.0, "tight"), (1.1, 2.0, "fits"), (1.2, 1.0, "fits"), (1.3, 1.5, "does not fit"))
        lines = [{"source": "s", "sweep": "a", "predicted": p, "measured": m, "verdict": v} for p, m, v in runs]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            accuracy.rank("ranking", lines)
        self.assertRegex(out.getvalue(), r"200\.0 % +200\.0 % +100\.0 % +100\.0 %")

    def test_ranks(self):
        self.assertEqual(accuracy.ranks([3, 1, 3]), [1.5, 0, 1.5])
        self.assertAlmostEqual(accuracy.spearman([1, 2, 3], [10, 30, 20]), 0.5)
        self.assertTrue(math.isnan(accuracy.spearman([1, 2], [5, 5])))

    def test_the_gate(self):
        """0.2 and 0.1 of two sources are 15 %. Better, and 0.1 points worse, pass."""
        lines = [{"what": "time", "source": source, "predicted": predicted, "measured": 1.0} for source, predicted in (("a", 1.2), ("b", 0.9))]
        found = accuracy.macro_errors(lines)
        self.assertAlmostEqual(found["time"], 0.15)
        self.assertEqual(found["time rows"], 2)
        self.assertEqual(accuracy.gate(found, {"time": 0.1495, "time rows": 2}), [])
        self.assertIn("15.0 %, was 14.0 %", accuracy.gate(found, {"time": 0.14})[0])
        self.assertIn("2 are predicted, 3 were", accuracy.gate(found, {"time": 0.15, "time rows": 3})[0])

    def test_constants_are_replaced_or_added(self):
        text = "[a]\nx = 1\n\n[b]\ny = 2\n"
        self.assertEqual(accuracy.changed(text, "a", "x", 3), "[a]\nx = 3\n\n[b]\ny = 2\n")
        self.assertIn("[c]\nz = 4\n", accuracy.changed(text, "c", "z", 4))


@unittest.skipUnless(os.environ.get("TBC"), "TBC names the program")
class Sample(unittest.TestCase):
    """A folder of made-up rows: no row ends the run, and every row is predicted or has a reason."""

    @classmethod
    def setUpClass(cls):
        folder = Path(__file__).resolve().parent / "accuracy_sample"
        with contextlib.redirect_stdout(io.StringIO()):
            cls.lines, cls.refused, _ = accuracy.predict(folder, os.environ["TBC"], None, 0, [], {})
        cls.rows = sum(len(accuracy.usable(folder / name, words, None))
                       for name, words in (("runs.csv", ("both",)), ("memory.csv", ("memory",))))

    def test_every_row_counts(self):
        self.assertEqual(len(self.lines) + sum(self.refused.values()), self.rows)
        reasons = " ".join(reason for _, reason in self.refused)
        for word in ("ep", "split in words", "GPU unheard-of", "offload", "no vocab", "ValueError", "do not divide", "nobody",
                     "nothing was measured", "memory part wings"):
            self.assertIn(word, reasons)

    def test_predictions(self):
        found = {(line["id"], line["what"]): line for line in self.lines}
        for line in self.lines:
            self.assertLess(line["low"], line["predicted"])
            self.assertGreaterEqual(line["high"], line["predicted"])
        self.assertEqual(found["volta", "time"]["executor"], "tbc")
        self.assertEqual(found["dp", "memory"]["executor"], "megatron")
        self.assertGreater(found["states", "memory"]["predicted"], found["states", "memory"]["own"])

    def test_the_report(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            for what in ("time", "memory"):
                accuracy.report(what, [line for line in self.lines if line["what"] == what], 3, "s")
            accuracy.rank("ranking of sweeps", [line for line in self.lines if line["what"] == "time"])
        for word in ("macro-average", "left out", "inside", "Spearman", "regret", "error per executor"):
            self.assertIn(word, text.getvalue())


class Collectives(unittest.TestCase):
    """The numbers of NetworkCost.BetweenNodesGathersGoAroundRings in tests/planner/core/CostTest.cpp."""

    INTRA = {"bytes_per_second": 362e9, "latency_seconds": 1.4e-6, "start_seconds": 8e-6, "ring_step_seconds": 1e-6}
    INTER = {"bytes_per_second": 45e9, "latency_seconds": 11e-6, "start_seconds": 44e-6, "ring_step_seconds": 1e-4,
             "small_fraction": 1e-3}

    def check(self, kind, data, seconds):
        network = {"intra_node": self.INTRA, "inter_node": self.INTER}
        self.assertAlmostEqual(collectives.seconds(network, kind, 64, 8, data), 44e-6 + seconds, 12)

    def test_between_nodes(self):
        rails = 8 * 45e9
        self.check("all_gather", 1e9, 63e-4 + 63 / 64 * 1e9 / rails)
        self.check("reduce_scatter", 64, 56 * 1.4e-6 + 7 * 11e-6 + 63 / (1e-3 * rails))
        self.check("all_reduce", 1e8, 2 * (3e-4 + 7e-6) + 5e8 / rails)
        self.check("all_reduce", 1e10, 126e-4 + 126 / 64 * 1e10 / rails)

    def test_a_switch_within_a_node(self):
        network = {"intra_node": {**self.INTRA, "switch_bytes_per_second": 260e9}}
        self.assertAlmostEqual(collectives.seconds(network, "all_reduce", 8, 1, 1e9), 8e-6 + 16e-6 + 1e9 / 260e9, 12)


if __name__ == "__main__":
    unittest.main()
