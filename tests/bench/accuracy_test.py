#!/usr/bin/env python3
"""Tests of accuracy.py: pipeline cuts of frameworks, and the memory they keep beside tbc's program.
"""

import unittest

import accuracy
import collectives
import frameworks

# nanotron's Llamas of the ultra-scale playbook.
SMALL = {"source_group": "nanotron", "kind": "llama", "layers": "16", "hidden": "2048", "ffn_hidden": "8192", "vocab": "131072", "vpp": "1"}
LARGE = {**SMALL, "layers": "32", "hidden": "4096", "ffn_hidden": "14336"}


def stage(**other):
    sizes = {"tokens": 2048, "layers": 3, "hidden": 4096, "ffn": 11008, "keys": 4096, "logits": 0, "parameters": 10**6, "tp": 1,
             "sequence": 1, "data": 1, "batch": 1, "zero": 0, "recompute": False, "ends": 0, "joints": 0}
    return frameworks.Stage(**{**sizes, **other})


class Cuts(unittest.TestCase):
    def test_even(self):
        row = {"source_group": "korthikanti", "kind": "gpt2", "layers": "96", "pp": "8", "vpp": "3"}
        self.assertEqual(accuracy.chunk_layers(row), ([4] * 24, []))
        self.assertEqual(accuracy.stage_begins(row)[:2], ["transformer.h.4.*", "transformer.h.8.*"])
        self.assertIsNone(accuracy.chunk_layers({**row, "vpp": "5"}))

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


class Kept(unittest.TestCase):
    def bytes(self, group, part, **other):
        row = {"source_group": group, "variant": "Eager [-]", "vocab": "32000"}
        return sum(more for where, _, more in frameworks.kept(row, stage(**other), {"gradients": 4 * 10**6}) if part in where)

    def test_megatron(self):
        """Korthikanti et al., equation 4: a layer keeps 34 bytes per token and element of its
        width. tbc keeps 28 if norms are recomputed.
        """
        self.assertEqual(self.bytes("korthikanti", "activations", tp=8, sequence=8), (34 - 28) * 4096 * 2048 * 3 / 8)
        self.assertEqual(self.bytes("korthikanti", "activations", tp=8), 2 * 4096 * 2048 * 3)

    def test_nothing_of_what_is_computed_again(self):
        self.assertEqual(self.bytes("nanotron", "activations", recompute=True, tp=8, sequence=8), 0)

    def test_states(self):
        self.assertEqual(self.bytes("nanotron", "states"), 2 * 10**6)
        self.assertEqual(self.bytes("nanotron", "states", data=2), 4 * 10**6)
        self.assertEqual(self.bytes("nanotron", "states", tp=2, sequence=2), 2 * 10**6 + 4 * 4096 * 2048)
        self.assertEqual(self.bytes("litgpt-thunder", "states", data=8), 2 * 10**6)
        self.assertEqual(self.bytes("litgpt-thunder", "states", data=8, zero=3), 0)

    def test_a_source_without_a_list(self):
        self.assertEqual(self.bytes("dgxc-llama3.1", "states"), 0)


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
