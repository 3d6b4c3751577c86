"""usage: timeline_test.py TBC SOURCE_DIR

The trace of `tbc timeline`: it lasts as long as the predicted step, its slices nest, its arrows join
sends and actions, its memory is that of the plan, and its work adds up to the prediction.
"""

import collections
import json
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()

# Every part of a chunk's seconds that a plan may have occurs in one of them.
PLANS = {
    "dp": "gpt2 --gpus 16 --batch 512 --seq 1024",
    "one-micro-batch": "gpt2 --gpus 16 --mesh fsdp=16 --batch 64 --seq 128",
    "tp-over-nodes": "tiny-gpt2 --gpus 16 --mesh dp=4,tp=4 --cluster four.toml --batch 16 --seq 16",
    "1f1b": "gpt2 --gpus 32 --mesh pp=4,fsdp=8 --schedule 1f1b --batch 128 --micro-batch 1 --seq 256 --recompute full",
    "gpipe": "llama-8l --gpus 4 --mesh pp=4 --schedule gpipe --batch 8 --micro-batch 1 --seq 64",
    "interleaved": "llama-8l --gpus 4 --mesh pp=4 --schedule interleaved --batch 16 --micro-batch 1 --seq 64",
    "zero-bubble": "llama-8l --gpus 8 --mesh pp=4,fsdp=2 --schedule zero-bubble --virtual-stages 1 --batch 32 --micro-batch 2 --seq 64",
    "zero-bubble-v": "llama-8l --gpus 4 --mesh pp=2,tp=2 --schedule zero-bubble --virtual-stages 2 --batch 16 --micro-batch 1 --seq 64",
    "ring": "tiny-llama --gpus 4 --mesh cp=4 --context ring --batch 2 --micro-batch 1 --seq 64",
    "experts": "moe-8l --gpus 8 --mesh ep=4,dp=2 --batch 64",
    "offload": "tiny-gpt2 --gpus 4 --mesh pp=2,dp=2 --batch 16 --micro-batch 2 --schedule 1f1b --offload all --seq 16",
}


def nanoseconds(microseconds):
    return round(microseconds * 1000)


class Trace:
    """The events of a trace by kind, in whole nanoseconds."""

    def __init__(self, text):
        self.whole = json.loads(text)
        self.events = self.whole["traceEvents"]
        for event in self.events:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = nanoseconds(event[key])
        self.of = collections.defaultdict(list)
        for event in self.events:
            self.of[event["ph"]].append(event)
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.of["M"] if e["name"] == "thread_name"}
        self.processes = {e["pid"]: e["args"]["name"] for e in self.of["M"] if e["name"] == "process_name"}

    def slices(self, pid=None, **keys):
        return [e for e in self.of["X"] if pid in (None, e["pid"]) and all(e[k] == v for k, v in keys.items())]

    def thread(self, event):
        return self.threads[event["pid"], event["tid"]]


def each_plan(test):
    """Runs a test once for every plan and its trace."""

    def run(self):
        for name, trace in self.traces.items():
            with self.subTest(name):
                test(self, self.plans[name], trace)

    return run


class TimelineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = Path(cls.holder.name)
        preset = subprocess.run([TBC, "cluster", "h100-sxm"], check=True, capture_output=True, text=True).stdout
        (cls.folder / "four.toml").write_text(preset.replace("devices_per_node = 8", "devices_per_node = 2"))
        cls.plans, cls.traces = {}, {}
        for name, words in PLANS.items():
            model, *flags = words.split()
            run = cls.tbc("plan", SOURCE / f"models/{model}.onnx", *flags, "-o", f"{name}.json")
            assert run.returncode == 0, (name, run.stderr)
            cls.plans[name] = json.loads((cls.folder / f"{name}.json").read_text())
            run = cls.tbc("timeline", f"{name}.json", "-o", "-")
            assert run.returncode == 0, (name, run.stderr)
            cls.traces[name] = Trace(run.stdout)

    @classmethod
    def tbc(cls, *words):
        return subprocess.run([TBC, *words], capture_output=True, text=True, timeout=300, cwd=cls.folder)

    def parts(self, plan, stage):
        """Returns the parts of all chunks of a stage, added up."""
        sums = collections.Counter()
        placement = plan.get("placement") or range(plan["mesh"]["pp"])
        for entry in plan["prediction"]["chunks"]:
            for chunk in entry["chunks"]:
                if placement[chunk] == stage:
                    for name, part in entry["parts"].items():
                        sums[name] += part["seconds"]
        return sums

    @each_plan
    def test_the_whole_lasts_as_long_as_the_step(self, plan, trace):
        step = round(plan["step_seconds"] * 1e9)
        self.assertEqual(trace.whole["otherData"]["step_seconds"], plan["step_seconds"])
        self.assertEqual(max(e["ts"] + e["dur"] for e in trace.of["X"]), step)
        self.assertEqual(min(e["ts"] for e in trace.of["X"]), 0)
        for pid in trace.processes:
            self.assertEqual([(e["ts"], e["dur"]) for e in trace.slices(pid, cat="step")], [(0, step)])
        # An update ends with the step.
        self.assertEqual(max(e["ts"] + e["dur"] for e in trace.slices(name="update")), step)

    @each_plan
    def test_processes_are_the_stages(self, plan, trace):
        per_stage = (plan["job"]["gpus"] - plan["idle_devices"]) // plan["mesh"]["pp"]
        self.assertEqual(sorted(trace.processes), [s * per_stage for s in range(plan["mesh"]["pp"])])

    @each_plan
    def test_slices_nest(self, _, trace):
        open_ends = collections.defaultdict(list)
        for event in sorted(trace.of["X"], key=lambda e: (e["ts"], -e["dur"])):
            self.assertGreater(event["dur"], 0)
            ends = open_ends[event["pid"], event["tid"]]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            if ends:
                self.assertEqual(trace.thread(event), "compute", event)
                self.assertLessEqual(event["ts"] + event["dur"], ends[-1], event)
            ends.append(event["ts"] + event["dur"])

    @each_plan
    def test_a_slice_stands_before_its_children_in_the_file(self, _, trace):
        """Readers take the order of the file where two slices begin together."""
        last = {}
        for event in trace.of["X"]:
            key = event["pid"], event["tid"], event["ts"]
            self.assertLessEqual(event["dur"], last.get(key, event["dur"]))
            last[key] = event["dur"]

    @each_plan
    def test_every_action_of_the_schedule_is_there(self, plan, trace):
        chunks = len(plan["stages"])
        kinds = collections.Counter(e["name"].split()[0] for e in trace.slices(cat="action"))
        expected = {"forward": chunks * plan["accumulation"], "backward": chunks * plan["accumulation"],
                    "update": plan["mesh"]["pp"]}
        if plan["schedule"] == "zero-bubble":
            expected["weight"] = expected["forward"]
        self.assertEqual(kinds, expected)

    @each_plan
    def test_actions_take_the_seconds_of_their_chunk(self, plan, trace):
        lengths = collections.Counter()
        for event in trace.slices(cat="action"):
            if event["name"] != "update":
                lengths[event["args"]["chunk"]] += event["dur"]
        for chunk, seconds in enumerate(plan["prediction"]["stage_seconds"]):
            self.assertAlmostEqual(lengths[chunk] / plan["accumulation"] / 1e9, seconds, delta=3e-9)

    def test_work_adds_up_to_the_prediction(self):
        """Each part is drawn once per micro-batch, or once; rounded to 1 ns per slice."""
        seen = set()
        for name, trace in self.traces.items():
            plan = self.plans[name]
            per_stage = (plan["job"]["gpus"] - plan["idle_devices"]) // plan["mesh"]["pp"]
            for stage in range(plan["mesh"]["pp"]):
                drawn, slices = collections.Counter(), collections.Counter()
                for event in trace.slices(stage * per_stage):
                    if event["cat"] in ("kernel", "communication", "copy"):
                        drawn[event["args"]["part"]] += event["dur"]
                        slices[event["args"]["part"]] += 1
                for part, seconds in self.parts(plan, stage).items():
                    if part.startswith("send_"):
                        continue
                    seen.add(part)
                    times = 1 if part.endswith("_step") else plan["accumulation"]
                    self.assertAlmostEqual(drawn[part], seconds * times * 1e9, delta=2 + 2 * slices[part], msg=part)
        self.assertGreaterEqual(seen, {
            "forward", "backward", "weight", "recompute", "operands_forward", "operands_backward", "gather_forward",
            "gather_backward", "reduce_micro", "first_gather_forward", "first_gather_backward", "last_reduce_micro",
            "data_weight", "host_forward", "host_backward", "reduce_step",
            "parameter_step", "update_step", "host_step"})  # fmt: skip

    @each_plan
    def test_waits_are_the_exposed_communication(self, plan, trace):
        """The waits of the slowest stage are the parts of the step's time in plan.json."""
        per_stage = (plan["job"]["gpus"] - plan["idle_devices"]) // plan["mesh"]["pp"]
        mine = trace.slices(plan["prediction"]["slowest_stage"] * per_stage, cat="wait")
        waited = collections.Counter()
        for event in mine:
            waited[event["name"]] += event["dur"]
        time = plan["prediction"]["time"]
        delta = 2 * len(mine) + 2
        self.assertAlmostEqual(waited["wait for collectives between ops"], time["operands"] * 1e9, delta=delta)
        self.assertAlmostEqual(waited["wait for launches"], time["launches"] * 1e9, delta=delta)
        self.assertAlmostEqual(waited["copies from and to the host"], time["host"] * 1e9, delta=delta)
        if plan["mesh"]["pp"] == len(plan["stages"]):  # else overlap is per chunk there, per stage here
            data = sum(waited[f"wait for {of}"] for of in ("parameters and gradients", "gradients", "parameters and scalars"))
            self.assertAlmostEqual(data, time["data"] * 1e9, delta=delta)

    @each_plan
    def test_arrows_join_sends_and_actions(self, plan, trace):
        begins = {e["id"]: e for e in trace.of["s"]}
        ends = {e["id"]: e for e in trace.of["f"]}
        self.assertEqual(begins.keys(), ends.keys())
        placement = plan.get("placement") or list(range(plan["mesh"]["pp"]))
        crossings = sum(a != b for a, b in zip(placement, placement[1:]))
        self.assertEqual(len(begins), 2 * crossings * plan["accumulation"])
        sends = {(e["pid"], e["tid"], e["ts"]): e for e in trace.slices(cat="send")}
        actions = {(e["pid"], e["ts"]): e for e in trace.slices(cat="action")}
        self.assertEqual(len(sends), len(begins))
        for number, begin in begins.items():
            end = ends[number]
            send = sends[begin["pid"], begin["tid"], begin["ts"]]
            action = actions[end["pid"], end["ts"]]
            self.assertNotEqual(begin["pid"], end["pid"])
            self.assertEqual(action["args"]["micro_batch"], send["args"]["micro_batch"])
            self.assertEqual(abs(action["args"]["chunk"] - send["args"]["chunk"]), 1)
            self.assertEqual(action["name"].split()[0],
                             {"activations": "forward", "gradients": "backward"}[send["name"].split()[0]])
            # A send begins with the end of the action that makes its data, and arrives in time.
            self.assertTrue(any(e["ts"] + e["dur"] == send["ts"] for e in trace.slices(send["pid"], cat="action")))
            self.assertLessEqual(send["ts"] + send["dur"], action["ts"] + 1)

    @each_plan
    def test_memory_is_that_of_the_plan(self, plan, trace):
        per_stage = (plan["job"]["gpus"] - plan["idle_devices"]) // plan["mesh"]["pp"]
        for stage, memory in enumerate(plan["prediction"]["stages"]):
            lines = {line["name"]: line["bytes"] for line in memory["memory"]}
            points = [e["args"] for e in trace.of["C"] if e["pid"] == stage * per_stage]
            most = {key: max(p[key] for p in points) for key in points[0]}
            self.assertEqual(most["live bytes"], sum(lines.values()))
            self.assertEqual(most["inputs and residuals"], lines["inputs"] + lines["saved residuals"])
            self.assertEqual(most["working set"],
                             lines["transients"] + lines["gathered parameters"] + lines["collective buffers"])
            self.assertEqual(points[-1]["inputs and residuals"], 0)

    def test_threads_say_whether_nodes_are_crossed(self):
        def threads(plan, **keys):
            return {self.traces[plan].thread(e) for e in self.traces[plan].slices(**keys)}

        self.assertEqual(threads("tp-over-nodes", name="all_reduce tp"), {"communication between nodes"})
        self.assertEqual(threads("1f1b", name="all_gather fsdp"), {"communication inside the node"})
        self.assertIn("sends between nodes", threads("1f1b", cat="send"))
        self.assertEqual({name.split(" (")[0] for name in threads("gpipe", cat="send")}, {"sends inside the node"})
        self.assertEqual(threads("offload", cat="copy"), {"copies to the host"})

    def test_ranks(self):
        everyone = Trace(self.tbc("timeline", "zero-bubble.json", "-o", "-", "--ranks", "all").stdout)
        self.assertEqual(sorted(everyone.processes), list(range(8)))
        self.assertEqual(len(everyone.of["s"]), 2 * len(self.traces["zero-bubble"].of["s"]))
        for event in everyone.of["f"]:  # the ranks of a send have equal places in their stages
            (begin,) = (e for e in everyone.of["s"] if e["id"] == event["id"])
            self.assertEqual(abs(begin["pid"] - event["pid"]), 2)
        some = Trace(self.tbc("timeline", "zero-bubble.json", "-o", "-", "--ranks", "0-2,5").stdout)
        self.assertEqual(sorted(some.processes), [0, 1, 2, 5])
        self.assertEqual({e["pid"] for e in some.of["s"]}, {0, 2})  # 5 is the neighbour of 3 and 7
        for wrong in ("8", "3-1", "", "0,", "x", "0-", "-1", "0-99999999999999999999"):
            run = self.tbc("timeline", "zero-bubble.json", "-o", "-", f"--ranks={wrong}")
            self.assertEqual((run.returncode, run.stdout), (2, ""), wrong)
            self.assertIn("--ranks", run.stderr)

    def test_wrong_plans_are_refused(self):
        def refusal(edit, name="1f1b"):
            plan = json.loads((self.folder / f"{name}.json").read_text())
            edit(plan)
            (self.folder / "edited.json").write_text(json.dumps(plan))
            run = self.tbc("timeline", "edited.json", "-o", "-")
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            return run.stderr

        parts = lambda plan: plan["prediction"]["chunks"][0]["parts"]
        self.assertIn("--derive", refusal(lambda plan: plan["prediction"].pop("chunks")))
        self.assertIn("--derive", refusal(lambda plan: plan.update(prefetch=plan["prefetch"] + 1)))
        self.assertIn("adds up to", refusal(lambda plan: parts(plan)["forward"].update(seconds=9)))

        def doubled(plan):
            parts(plan)["forward"]["seconds"] *= 2
            for work in parts(plan)["forward"]["work"]:
                work["seconds"] *= 2

        self.assertIn("prediction.chunks gives a step of", refusal(doubled))
        self.assertIn("of 4 chunks", refusal(lambda plan: plan["prediction"]["chunks"].pop()))
        self.assertIn("twice", refusal(lambda plan: plan["prediction"]["chunks"][0]["chunks"].append(0)))

    def test_the_largest_plan_is_fast(self):
        """llama3-405b on 4,096 GPUs: less than 2 s of CPU, as docs/commands/timeline.md says."""
        run = self.tbc("new", "llama", "--layers", "126", "--hidden", "16384", "--heads", "128", "--kv-heads", "8", "--ffn",
                       "53248", "--vocab", "128256", "-o", "405b.onnx")  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stderr)
        run = self.tbc("plan", "405b.onnx", "--gpus", "4096", "--mesh", "pp=16,fsdp=32,tp=8", "--batch", "2048", "--seq",
                       "8192", "--micro-batch", "1", "-o", "405b.json")  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stderr)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = self.tbc("timeline", "405b.json", "-o", "405b.trace.json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        plan = json.loads((self.folder / "405b.json").read_text())
        trace = Trace((self.folder / "405b.trace.json").read_text())
        self.assertEqual(max(e["ts"] + e["dur"] for e in trace.of["X"]), round(plan["step_seconds"] * 1e9))
        run = self.tbc("timeline", "405b.json", "-o", "-", "--ranks", "all")
        self.assertEqual(run.returncode, 2)
        self.assertIn("4096 ranks have", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
