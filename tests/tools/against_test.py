"""usage: against_test.py TBC SOURCE_DIR

`tbc timeline --against`: a prediction compared with itself has no residuals, a real run has its own
seconds, and both steps are in the trace.
"""

import collections
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from nsight_file import NsightFile

TBC, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
PLANS = {
    "pipeline": "tiny-gpt2 --gpus 4 --mesh pp=2,dp=2 --batch 16 --micro-batch 2 --seq 16 --precision f32 --recompute full"
                " --schedule zero-bubble --virtual-stages 1",
    "sharded": "tiny-gpt2 --gpus 2 --mesh fsdp=2 --batch 8 --seq 16 --precision f32",
    "accumulated": "tiny-gpt2 --gpus 2 --mesh dp=2 --batch 8 --micro-batch 1 --seq 16 --precision f32",
}
ACTION = {"recompute": "backward", "recompute_weight": "weight", "update_step": "update"}


class AgainstTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        for name, words in PLANS.items():
            model, *flags = words.split()
            cls.tbc("plan", SOURCE / f"models/{model}.onnx", *flags, "-o", f"{name}.json")

    @classmethod
    def tbc(cls, *words, code=0):
        run = subprocess.run([TBC, *words], capture_output=True, text=True, timeout=300, cwd=cls.folder)
        assert run.returncode == code, (words, run.returncode, run.stderr)
        return run.stdout if code == 0 else run.stdout + run.stderr

    def compare(self, name, profile, *flags):
        """Returns {group: (predicted, measured, difference, ratio)} as printed, and the trace. `profile` is a trace or a path."""
        if isinstance(profile, dict):
            (self.folder / "profile.json").write_text(json.dumps(profile))
            profile = "profile.json"
        title, _, *rows, blank, refit = self.tbc("timeline", f"{name}.json", "-o", "both.json", "--against", profile, *flags).splitlines()
        self.assertEqual((blank, refit), ("", f"refit: tbc calibrate --from-run {profile} --plan {name}.json -o measured.toml"))
        self.assertIn("largest difference first", title)
        table, units = {}, {"s": 1, "ms": 1e-3, "us": 1e-6}
        for row in rows:
            *group, a, a_unit, b, b_unit, c, c_unit, ratio = row.split()
            table[" ".join(group)] = (float(a) * units[a_unit], float(b) * units[b_unit], float(c) * units[c_unit], ratio)
        differences = [abs(row[2]) for row in table.values()]
        self.assertEqual(differences, sorted(differences, reverse=True))
        return table, json.loads((self.folder / "both.json").read_text())["traceEvents"]

    def as_profile(self, name, slower=1):
        """Returns the prediction in the form of a profile, every kernel `slower` times as long."""
        trace = json.loads(self.tbc("timeline", f"{name}.json", "-o", "-", "--ranks", "all"))["traceEvents"]
        events, busy, step = [], collections.Counter(), 0
        for event in (e for e in trace if e["ph"] == "X"):
            args = event.get("args", {})
            if event["cat"] == "step":
                step = event["dur"]
                events.append({**event, "cat": "block", "args": {}})
            elif event["cat"] == "action":
                busy[event["pid"]] += event["dur"]
            elif event["cat"] == "kernel":
                block = ACTION.get(args["part"], args["part"])
                events.append({**event, "dur": event["dur"] * slower, "args": {"block": f"{block} of chunk 0", "op": "einsum"}})
            elif event["cat"] in ("communication", "send"):
                kind = "send" if event["cat"] == "send" else event["name"].split()[0]
                events.append({**event, "cat": "communication", "args": {"op": kind, "block": "forward"}})
        events += [{"ph": "X", "name": "recv", "cat": "communication", "pid": pid, "tid": 9, "ts": 0, "dur": step - time,
                    "args": {"op": "recv", "block": "forward"}} for pid, time in busy.items() if step - time > 1e-3]  # fmt: skip
        for event in events:
            event["ts"] += 1e6  # clocks do not begin at 0
        return {"traceEvents": events}

    def test_a_prediction_has_no_residual_to_itself(self):
        for name in PLANS:
            table, _ = self.compare(name, self.as_profile(name))
            for group, (predicted, measured, difference, ratio) in table.items():
                self.assertEqual(ratio, "1.00", group)
                self.assertGreater(predicted, 0)
                self.assertEqual(predicted, measured)
                self.assertLess(abs(difference), 1e-6)
            expected = {"step", "kernels of forward", "kernels of backward", "kernels of update"}
            self.assertLessEqual(expected, set(table))
            self.assertLessEqual({"pipeline": {"send", "kernels of weight", "wait for other stages"},
                                  "sharded": {"all_gather"}, "accumulated": {"all_reduce"}}[name], set(table))  # fmt: skip

    def test_the_worst_group_is_first(self):
        table, _ = self.compare("sharded", self.as_profile("sharded", slower=3))
        for group, row in table.items():
            if group.startswith("kernels"):
                self.assertEqual(row[3], "3.00", group)
        self.assertTrue(next(iter(table)).startswith("kernels"))

    def test_a_run(self):
        self.tbc("compile", "sharded.json", "-o", "program")
        self.tbc("run", "program", "--steps", "2", "--profile", "run.json")
        profile = json.loads((self.folder / "run.json").read_text())
        table, both = self.compare("sharded", profile)
        measured = [e for e in profile["traceEvents"] if e["ph"] == "X"]
        begin = min(e["ts"] for e in measured)
        for group, of in (("kernels of forward", lambda e: e["cat"] in ("kernel", "region") and e["args"]["block"].startswith("forward")),
                          ("all_gather", lambda e: e["args"].get("op") == "all_gather")):
            seconds = sum(e["dur"] for e in measured if of(e)) / 2 * 1e-6
            self.assertGreater(seconds, 0)
            self.assertAlmostEqual(table[group][1] / seconds, 1, delta=0.02)
        names = {e["pid"]: e["args"]["name"] for e in both if e["name"] == "process_name"}
        self.assertEqual(names, {0: "rank 0 (stage 0)", 1: "rank 1 (stage 0)", 2: "rank 0, measured", 3: "rank 1, measured"})
        drawn = {(e["pid"] - 2, e["name"], round(e["ts"] + begin, 3)) for e in both if e["ph"] == "X" and e["pid"] >= 2}
        self.assertEqual(drawn, {(e["pid"], e["name"], round(e["ts"], 3)) for e in measured})
        self.assertEqual(min(e["ts"] for e in both if "ts" in e), 0)
        threads = {e["args"]["name"] for e in both if e["name"] == "thread_name" and e["pid"] >= 2}
        self.assertEqual(threads, {"blocks", "kernels", "communication"})
        # The trace alone goes to standard output.
        alone = self.tbc("timeline", "sharded.json", "-o", "-", "--against", "run.json")
        self.assertEqual(json.loads(alone)["traceEvents"], both)

    def test_the_last_backward_of_a_run_is_a_backward(self):
        self.tbc("compile", "accumulated.json", "-o", "accumulated")
        self.tbc("run", "accumulated", "--steps", "2", "--profile", "accumulated-run.json")
        profile = json.loads((self.folder / "accumulated-run.json").read_text())
        table, _ = self.compare("accumulated", profile)
        kernels = [e for e in profile["traceEvents"] if e["ph"] == "X" and e["cat"] in ("kernel", "region")]
        blocks = collections.Counter()
        for event in kernels:
            blocks[event["args"]["block"].split()[0]] += event["dur"] / 2 * 1e-6
        self.assertGreater(blocks["last_backward"], 0)
        measured = table["kernels of backward"][1]
        self.assertAlmostEqual(measured / (blocks["backward"] + blocks["last_backward"]), 1, delta=0.02)
        self.assertNotIn("kernels of last_backward", table)

    def as_kineto(self, name, rank, slower=1):
        """Returns the prediction as torch.profiler would write it for a rank, behind another step."""
        trace = json.loads(self.tbc("timeline", f"{name}.json", "-o", "-", "--ranks", str(rank)))["traceEvents"]
        kernels = {"all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                   "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"}
        events = [{"ph": "X", "cat": "kernel", "name": "of the step before", "pid": 0, "tid": 7, "ts": 5.0, "dur": 3.0, "args": {"stream": 7}},
                  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 99, "tid": 99, "ts": 0, "dur": 900.0},
                  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 99, "tid": 99, "ts": 1000.0, "dur": 1e6, "args": {}}]  # fmt: skip
        for event in (e for e in trace if e["ph"] == "X"):
            moved = {"ph": "X", "pid": 0, "ts": event["ts"] + 1000, "dur": event["dur"]}
            if event["cat"] == "step":
                events.append({**moved, "cat": "gpu_user_annotation", "name": "ProfilerStep#3", "tid": 7})
            elif event["cat"] == "kernel":
                events.append({**moved, "dur": event["dur"] * slower, "cat": "kernel", "name": "void at::native::kernel", "tid": 7, "args": {"stream": 7}})
            elif event["cat"] == "communication":
                events.append({**moved, "cat": "kernel", "name": kernels[event["name"].split()[0]], "tid": 20, "args": {"stream": 20}})
        return {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}, "traceEvents": events}

    def test_a_profile_of_pytorch(self):
        table, both = self.compare("sharded", self.as_kineto("sharded", 1))
        self.assertLessEqual({"step", "kernels", "all_gather"}, set(table))
        self.assertFalse([group for group in table if group.startswith("kernels of")])
        for group, row in table.items():
            self.assertEqual(row[3], "1.00", group)
        names = {e["pid"]: e["args"]["name"] for e in both if e["name"] == "process_name"}
        self.assertEqual(names[1 + 2], "rank 1, measured")
        self.assertFalse([e for e in both if e["name"] in ("of the step before", "aten::mm")])
        self.assertLessEqual({"stream 7", "stream 20"}, {e["args"]["name"] for e in both if e["name"] == "thread_name"})
        table, _ = self.compare("sharded", self.as_kineto("sharded", 0, slower=2))
        self.assertEqual(table["kernels"][3], "2.00")

    def test_wrong_profiles_of_pytorch_are_refused(self):
        good = self.as_kineto("sharded", 0)
        host = [e for e in good["traceEvents"] if e["cat"] != "kernel"]
        for profile, word in (
            ({**good, "distributedInfo": {}}, "init_process_group"), ({**good, "traceEvents": host}, "ProfilerActivity.CUDA"),
            ({**good, "traceEvents": [e for e in good["traceEvents"] if "Step" not in e["name"]]}, "call step() of it"),
            ({**good, "distributedInfo": {"rank": 2}}, "has rank 2"),
        ):  # fmt: skip
            (self.folder / "wrong.json").write_text(json.dumps(profile))
            self.assertIn(word, self.tbc("timeline", "sharded.json", "-o", "never.json", "--against", "wrong.json", code=2))

    def as_nsight(self, name, ranks, slower=1, ranges=True, step="train_step 3", without=()):
        """Writes the prediction as Nsight Systems would for some ranks, each a process with a device, behind another step.

        Kernels run long after their launches, those of backward come from another thread.
        """
        trace = json.loads(self.tbc("timeline", f"{name}.json", "-o", "-", "--ranks", ",".join(map(str, ranks))))["traceEvents"]
        names = {"all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
                 "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_TREE_LL"}  # fmt: skip
        second = 10**9
        phases = {"forward": ("forward", 3.0), "backward": ("backward", 4.0), "update": ("Optimizer.step#AdamW.step", 5.0)}
        with NsightFile(self.folder / "run.sqlite", without) as file:
            for device, rank in enumerate(ranks):
                process = {"process": 100 + device}
                file.range(step.replace("3", "2"), second, 2 * second, **process)
                file.kernel("of the step before", 2 * second, 2 * second + 5000, launched=second + 5, device=device, **process)
                file.range(step, 3 * second, 6 * second, registered=True, **process)
                file.kernel("of no step", 90 * second, 91 * second, launched=7 * second, device=device, **process)
                if ranges:
                    for phase, (text, begin) in phases.items():
                        file.range(text, int(begin * second), int(begin * second) + second, **process)
                    file.range("forward", 4 * second + 10, 4 * second + 900, thread=2, **process)  # recompute
                for event in (e for e in trace if e["ph"] == "X" and e["pid"] == rank):
                    begin, length = 9 * second + round(event["ts"] * 1000), round(event["dur"] * 1000)
                    if event["cat"] == "kernel":
                        part = ACTION.get(event["args"]["part"], event["args"]["part"])
                        file.kernel("void at::native::kernel<float>(float*)", begin, begin + length * slower, device=device, thread=2 if part == "backward" else 1,
                                    launched=int(phases[part][1] * second) + 500, **process)  # fmt: skip
                    elif event["cat"] == "communication":
                        file.kernel(names[event["name"].split()[0]], begin, begin + length, launched=3 * second + 7, device=device, stream=20, **process)
                    elif event["cat"] == "step":
                        file.copy(4096, begin, begin + length, launched=3 * second + 9, device=device, **process)
        return self.folder / "run.sqlite"

    def test_an_export_of_nsight_systems(self):
        table, both = self.compare("sharded", self.as_nsight("sharded", [0, 1]))
        self.assertLessEqual({"step", "kernels of forward", "kernels of backward", "kernels of update", "all_gather"}, set(table))
        for group, row in table.items():
            self.assertEqual(row[3], "1.00", group)
        self.assertFalse([e for e in both if e["name"] in ("of the step before", "of no step")])
        self.assertLessEqual({"stream 7", "stream 13", "stream 20"}, {e["args"]["name"] for e in both if e["name"] == "thread_name"})
        self.assertEqual({e["pid"] for e in both if e["name"].startswith("void at::native")}, {2, 3})
        self.assertEqual(min(e["ts"] for e in both if "ts" in e), 0)
        table, _ = self.compare("sharded", self.as_nsight("sharded", [0, 1], slower=2))
        self.assertEqual({row[3] for group, row in table.items() if group.startswith("kernels")}, {"2.00"})

    def test_kernels_without_ranges_are_one_group(self):
        table, both = self.compare("sharded", self.as_nsight("sharded", [1], ranges=False, step="ProfilerStep#3"), "--profile-rank", "1")
        self.assertFalse([group for group in table if group.startswith("kernels of")])
        self.assertEqual(table["kernels"][3], "1.00")
        self.assertIn("rank 1, measured", {e["args"]["name"] for e in both if e["name"] == "process_name"})

    def test_wrong_exports_of_nsight_systems_are_refused(self):
        refuse = lambda *flags: self.tbc("timeline", "sharded.json", "-o", "never.json", "--against", "run.sqlite", *flags, code=2)  # noqa: E731
        file = self.as_nsight("sharded", [1])
        self.assertIn("has 1 of 2 ranks", refuse())
        self.assertIn("beyond the plan's 2 ranks", refuse("--profile-rank", "2"))
        self.as_nsight("sharded", [0, 1], step="epoch 3")
        self.assertIn("torch.cuda.nvtx.range", refuse())
        self.as_nsight("sharded", [0, 1], without=["NVTX_EVENTS"])
        self.assertIn("torch.cuda.nvtx.range", refuse())
        self.as_nsight("sharded", [0, 1], without=["CUPTI_ACTIVITY_KIND_KERNEL"])
        self.assertIn("--cuda-graph-trace=node", refuse())
        self.as_nsight("sharded", [0, 1])
        file.write_bytes(file.read_bytes()[:5000])
        self.assertIn("cannot be read as SQLite", refuse())
        file.write_bytes(b"nsys-rep, not exported")
        self.assertIn("nsys export --type sqlite", refuse())
        self.assertIn("says its ranks by itself", refuse("--profile-rank", "0"))

    def test_wrong_profiles_are_refused(self):
        good = self.as_profile("sharded")
        event = good["traceEvents"][0]
        for text, word in (
            ("", "no list"), ("[]", "no list"), ("{}", "no list"), ('{"traceEvents": 1}', "no list"),
            ('{"traceEvents": []}', "has no events"), ('{"traceEvents": [1]}', "no phase"),
            (json.dumps({"traceEvents": [{**event, "pid": 2}]}), "has rank 2, but the plan has ranks 0 to 1"),
            (json.dumps({"traceEvents": [{**event, "pid": -1}]}), "has rank -1"),
            (json.dumps({"traceEvents": [{**event, "dur": "x"}]}), "no begin"),
            (json.dumps({"traceEvents": [{**event, "ph": "B"}]}), "no begin"),
            (json.dumps({"traceEvents": [{**event, "args": 3}]}), "no begin"),
            (json.dumps({"traceEvents": [{**event, "name": None}]}), "no phase"),
        ):  # fmt: skip
            (self.folder / "wrong.json").write_text(text)
            said = self.tbc("timeline", "sharded.json", "-o", "never.json", "--against", "wrong.json", code=2)
            self.assertIn(word, said)
            self.assertIn("wrong.json", said)
            self.assertFalse((self.folder / "never.json").exists())
        self.assertIn("absent.json", self.tbc("timeline", "sharded.json", "-o", "x.json", "--against", "absent.json", code=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
